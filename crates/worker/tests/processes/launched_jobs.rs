//! Jobs that a launcher runs elsewhere: how they are measured there, and the messages of their launcher.

use crate::support::{AWAIT_GO_FILE, Fixture, HOST, WAIT_TIMEOUT, eventually, job};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use windlass_process::Signal;
use windlass_process::process_identity::to_pid;
use windlass_types::Bytes;
use windlass_types::worker_messages::{Assignment, AttemptEndCause, AttemptUsage, ProcessExit, StdioMode};

/// Uses more CPU time than the clock resolution.
const BUSY: &str = "python3 -c 'import time\nwhile time.process_time() < 0.3: pass'";

/// A job behind the process that stands in for it.
fn stand_in(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(HOST);
    command.arg("__step").arg(directory.join("note")).args(["mark", "20", "/bin/sh", "-c", line]);
    command.current_dir(directory).env("SLURM_PROCID", "3").process_group(0);
    command
}

fn note(directory: &Path) -> Option<serde_json::Value> {
    serde_json::from_slice(&fs::read(directory.join("note.3")).ok()?).ok()
}

/// Waits for it within a generous time limit; then it is killed with its group.
fn end_of(mut child: Child) -> Output {
    let give_up = Instant::now() + WAIT_TIMEOUT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > give_up {
            signal_group(&child, Signal::KILL);
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn signal_group(child: &Child, signal: Signal) {
    rustix::process::kill_process_group(to_pid(child.id()).unwrap(), signal).unwrap();
}

#[test]
fn measuring_command_exits_like_the_job_and_writes_usage() {
    for (line, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 3", Some(3), None),
        ("kill -9 $$", None, Some(9)),
        ("kill -USR1 $$", None, Some(10)),
        ("kill -SEGV $$", None, Some(11)),
        // What it leaves behind is not waited for.
        ("sleep 1000 & exit 5", Some(5), None),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let child = stand_in(directory.path(), line).spawn().unwrap();
        let group = to_pid(child.id()).unwrap();
        let status = end_of(child).status;
        // The last of them left an orphan.
        rustix::process::kill_process_group(group, Signal::KILL).ok();
        assert_eq!((status.code(), status.signal()), (code, signal), "{line}");
        assert!(!status.core_dumped());
        let note = note(directory.path()).expect(line);
        assert_eq!((&note["mark"], &note["ran_out"]), (&"mark".into(), &false.into()), "{line}");
    }
}

#[test]
fn unwritable_usage_does_not_affect_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("no/such/place");
    let line = ["mark", "20", "/bin/sh", "-c", "exit 3"];
    let status = Command::new(HOST).arg("__step").arg(nowhere).args(line).status().unwrap();
    assert_eq!(status.code(), Some(3));
}

#[test]
fn without_a_second_process_the_job_runs_unmeasured() {
    // A path where all users find the program, and could write the usage file.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let program = directory.path().join("host");
    fs::copy(HOST, &program).unwrap();
    let signals = "while read -r name set; do case $name in Sig[BI][lg]*) echo $set;; esac; done < /proc/$$/status; exit 3";
    let run = |words: &[&str]| {
        // Root has no limit on processes, so another user runs it.
        let mut limited = Command::new("prlimit");
        if rustix::process::getuid().is_root() {
            limited = Command::new("setpriv");
            limited.args(["--reuid=54321", "--clear-groups", "prlimit"]);
        }
        limited.args(["--nproc=1", "--"]).args(words).args(["/bin/sh", "-c", signals]);
        let answer = limited.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&answer.stderr), "");
        assert_eq!(answer.status.code(), Some(3));
        String::from_utf8(answer.stdout).unwrap()
    };
    let prefix = directory.path().join("note");
    let signals = run(&[program.to_str().unwrap(), "__step", prefix.to_str().unwrap(), "mark", "20"]);
    assert_eq!((signals.lines().count(), &signals), (2, &run(&[])));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "there is only the program");
}

#[test]
fn missing_or_invalid_arguments_are_reported() {
    for (words, said) in [
        (
            &["__step", "p", "m", "0"][..],
            "windlass __step: missing arguments: PREFIX MARK INTERVAL PROGRAM [ARGUMENT …]\n",
        ),
        (&["__step", "p", "m", "x", "true"], "windlass __step: INTERVAL is not a number of milliseconds\n"),
        (
            &["__step", "p", "m", "0", "/no/such"],
            "windlass __step: /no/such: No such file or directory (os error 2)\n",
        ),
    ] {
        let answer = Command::new(HOST).args(words).output().unwrap();
        assert_eq!(String::from_utf8(answer.stderr).unwrap(), said);
        assert_eq!(answer.status.code(), Some(126));
    }
}

#[test]
fn signals_to_the_group_reach_the_job_once() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let line = format!(
        "trap 'echo usr1 >> heard' USR1; trap 'echo term >> heard; exit 7' TERM\n\
         touch ready\n{AWAIT_GO_FILE}\ntouch heard_enough\nwhile :; do sleep 0.02; done"
    );
    let child = stand_in(place, &line).spawn().unwrap();
    eventually("it is ready", || place.join("ready").exists().then_some(()));
    signal_group(&child, Signal::USR1);
    let heard = || fs::read_to_string(place.join("heard")).unwrap_or_default();
    eventually("it has received the first signal", || (heard() == "usr1\n").then_some(()));
    fs::write(place.join("gate"), "").unwrap();
    eventually("it continues", || place.join("heard_enough").exists().then_some(()));
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::ALARM, Signal::TSTP] {
        // Only to the first process: it stays.
        rustix::process::kill_process(to_pid(child.id()).unwrap(), signal).unwrap();
    }
    signal_group(&child, Signal::TERM);
    assert_eq!(end_of(child).status.code(), Some(7));
    assert_eq!(heard(), "usr1\nterm\n");
    assert!(note(place).is_some());
}

#[test]
fn the_job_has_the_same_environment_as_without_measurement() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("gift"), "a gift\n").unwrap();
    let line = "pwd; env | sort; ls /proc/self/fd; cat <&7; cut -d' ' -f5 /proc/self/stat > group\n\
                grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ulimit -a; umask; echo \"$0\" \"$@\"";
    // The shell of the test gives both the same descriptor.
    let run = |words: &[&str]| {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", "exec 7< gift; exec \"$@\"", "sh"])
            .args(words)
            .args(["/bin/sh", "-c", line, "a", "b c"]);
        shell.current_dir(&directory).stdin(Stdio::null()).env("SLURM_PROCID", "3").process_group(0);
        let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let leader = child.id().to_string();
        let answer = end_of(child);
        assert_eq!(String::from_utf8_lossy(&answer.stderr), "");
        assert_eq!(fs::read_to_string(directory.path().join("group")).unwrap().trim(), leader);
        String::from_utf8(answer.stdout).unwrap()
    };
    let prefix = directory.path().join("note");
    let behind = run(&[HOST, "__step", prefix.to_str().unwrap(), "mark", "20"]);
    assert!(behind.contains("a gift\n") && behind.ends_with("a b c\n"), "{behind}");
    assert_eq!(behind, run(&[]));
}

/// A bench whose jobs go through a launcher with this script.
fn launched(script: &str, fixture: &Fixture, mut job: Assignment) -> Assignment {
    let launcher = fixture.path(&format!("launcher{}", job.key.job));
    fs::write(&launcher, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    job.launcher = vec![launcher.to_str().unwrap().to_owned(), "--option=it's".to_owned()];
    job
}

fn logs(fixture: &Fixture) -> Vec<String> {
    let entries = fs::read_dir(fixture.options.output_dir.join("job_stdio")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn usage_of_remote_tasks_is_summed_and_files_are_removed() {
    let mut fixture = Fixture::with(|options| options.program = Some(HOST.into()));
    let both = "shift\nSLURM_PROCID=0 \"$@\" && SLURM_PROCID=1 exec \"$@\"";
    let held = format!("{BUSY}\npython3 -c 'x = bytearray(80 << 20)'");
    let mut wide = job(1, &held);
    wide.resources.nodes = 2;
    // As if a dead worker had left the files of the previous attempt.
    let stale = fixture.options.output_dir.join("job_stdio/job_wf3_j1_r2_a3.used.1");
    fs::write(&stale, "{}").unwrap();
    let ended = fixture.run(launched(both, &fixture, wide));
    assert_eq!((ended.exit, &ended.cause), (ProcessExit::Code(0), &AttemptEndCause::Itself));
    let usage = ended.usage;
    let peak = usage.peak_memory.unwrap();
    assert!(peak > Bytes(80 << 20) && peak < Bytes(160 << 20), "{usage:?}");
    assert!(usage.cpu_time >= Duration::from_millis(600), "{usage:?}");
    assert!(usage.avg_memory.is_some() && usage.avg_cpu_percent > Some(0.0), "{usage:?}");

    // Killed at once with the measuring process: the usage is unknown rather than wrong.
    let killing = "kill -9 $(cut -d' ' -f4 /proc/$$/stat); sleep 1000";
    let fatal = "shift\n\"$@\"; kill -9 $$";
    let killed = fixture.run(launched(fatal, &fixture, job(2, killing)));
    assert_eq!((killed.exit, killed.usage), (ProcessExit::Signal(9), AttemptUsage::default()));
    // Later: the usage until then.
    let noted =
        "while ! grep -q peak_memory out/job_stdio/job_wf3_j4_r2_a4.used.0; do sleep 0.05; done 2> /dev/null";
    let killed = fixture.run(launched(fatal, &fixture, job(4, &format!("{BUSY}\n{noted}\n{killing}"))));
    assert_eq!(killed.exit, ProcessExit::Signal(9));
    assert!(killed.usage.cpu_time >= Duration::from_millis(300), "{killed:?}");
    assert!(killed.usage.peak_memory.is_some(), "{killed:?}");
    let missing = fixture.run(launched("shift\nexec \"$@\"", &fixture, job(3, "exit 3")));
    assert_eq!(missing.exit, ProcessExit::Code(3));
    assert!(!missing.usage.cpu_time.is_zero());
    let left: Vec<String> = logs(&fixture).into_iter().filter(|name| name.contains("used")).collect();
    assert!(left.is_empty(), "{left:?}");
    fixture.quit();
}

#[test]
fn without_the_program_the_job_runs_unmeasured() {
    let mut fixture = Fixture::with(|options| options.program = Some("/no/such/program".into()));
    let ended = fixture.run(launched("shift\nexec \"$@\"", &fixture, job(1, &format!("{BUSY}; echo done"))));
    assert_eq!((ended.exit, ended.usage), (ProcessExit::Code(0), AttemptUsage::default()));
    assert_eq!(fixture.log(1, "o").as_deref(), Some("done\n"));
    fixture.quit();
}

#[test]
fn launcher_messages_are_read_also_without_kept_stderr() {
    let mut fixture = Fixture::new();
    let says = "echo gone; echo 'srun: error: n1: task 0: Out Of Memory' >&2; exit 1";
    for (id, mode, kept) in [
        (1, StdioMode::None, &[][..]),
        (2, StdioMode::NoStderr, &["job_wf3_j2_r2_a4.o"]),
        (3, StdioMode::NoStdout, &["job_wf3_j3_r2_a4.e"]),
    ] {
        let mut silent = launched(says, &fixture, job(id, "true"));
        silent.stdio.mode = mode;
        let ended = fixture.run(silent);
        assert_eq!(
            (ended.exit, &ended.cause),
            (ProcessExit::Code(1), &AttemptEndCause::OutOfMemory),
            "{mode:?}"
        );
        assert_eq!(ended.last_words.as_deref(), Some("srun: error: n1: task 0: Out Of Memory"));
        let own = format!("_j{id}_");
        let logs: Vec<String> = logs(&fixture).into_iter().filter(|name| name.contains(&own)).collect();
        assert_eq!(logs, kept, "{mode:?}");
    }
    // A job that runs here and keeps no output reports none.
    let mut here = job(4, "echo 'srun: error: n1: task 0: Out Of Memory' >&2; exit 1");
    here.stdio.mode = StdioMode::None;
    let ended = fixture.run(here);
    assert_eq!((ended.cause, ended.last_words), (AttemptEndCause::Itself, None));
    fixture.quit();
}
