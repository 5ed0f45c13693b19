//! Faults around a run: the disk is full, the database is damaged or in use, a job requests impossible
//! resources.

use crate::common::{Sandbox, eventually};
use crate::server_commands::KilledOnDrop;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const SMALL: &str =
    "name: small\njobs: [{name: a, command: 'true'}, {name: b, command: 'true', depends_on: [a]}]\n";

fn after_a_run() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", SMALL);
    sandbox.windlass(&["run", "spec.yaml"]).exits(0);
    sandbox
}

fn database(sandbox: &Sandbox) -> PathBuf {
    sandbox.path(".windlass/windlass.db")
}

#[test]
fn running_workflow_can_be_inspected_but_not_run_twice() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: busy\njobs: [{name: a, command: 'touch started; while [ ! -e go ]; do sleep 0.02; done'}]\n",
    );
    let mut first = sandbox.start(&["run", "spec.yaml"]);
    eventually("the job has started", || sandbox.path("started").exists());
    let refused = sandbox.windlass(&["resume"]).exits(4);
    assert!(refused.stderr.contains(&format!("process {}", first.id())), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint:"), "{}", refused.stderr);
    // Queries, and another run in the same directory, still work.
    sandbox.windlass(&["status"]).exits(0).prints("running");
    sandbox.windlass(&["exec", "-c", "true"]).exits(0);
    sandbox.write("go", "");
    assert_eq!(first.wait().unwrap().code(), Some(0));
}

#[test]
fn damaged_database_is_reported_and_not_taken_for_empty() {
    for (damage, words) in [
        ((|path| fs::write(path, "").unwrap()) as fn(&Path), "truncated"),
        (|path| truncate(path, 5000), "truncated"),
        (
            |path| fs::write(path, "dear diary, today I wrote a text file\n".repeat(200)).unwrap(),
            "not a database",
        ),
        (|path| overwrite(path, 100, 20_000), "damaged"),
    ] {
        let sandbox = after_a_run();
        damage(&database(&sandbox));
        let before = fs::read(database(&sandbox)).unwrap();
        for args in [&["status"][..], &["run", "--new", "spec.yaml"], &["resume"]] {
            sandbox.windlass(args).exits(5).says(words).says("hint:");
        }
        assert!(fs::read(database(&sandbox)).unwrap() == before, "nothing was changed ({words})");
    }
}

#[test]
fn oversized_job_is_held_back_and_others_run() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: greedy\nresource_requirements: [{name: big, num_cpus: 4000, memory: 1g}]\njobs:\n  - {name: first, command: touch ran}\n  - {name: hungry, command: 'true', resource_requirements: big}\n",
    );
    sandbox.windlass(&["run", "spec.yaml"]).exits(2).says("`hungry`").says("4000 CPUs").says("--num-cpus");
    assert!(sandbox.path("ran").exists());
    sandbox.windlass(&["run", "spec.yaml", "--num-cpus", "4000"]).exits(0);
}

#[test]
fn full_disk_pauses_run_without_false_completions() {
    let disk = SmallDisk::mount();
    let sandbox = Sandbox::new();
    let mut spec = String::from("name: full\njobs:\n");
    // The first job fills the disk of the database; the others do not write to it.
    let filler = disk.0.join("filler").display().to_string();
    writeln!(spec, "  - {{name: fill, command: 'head -c 100m /dev/zero > {filler}; true'}}").unwrap();
    for job in 0..50 {
        writeln!(spec, "  - {{name: j{job}, command: 'touch ran_{job}', depends_on: [fill]}}").unwrap();
    }
    sandbox.write("spec.yaml", &spec);
    let db = disk.0.join("windlass.db").display().to_string();
    let said = fs::File::create(sandbox.path("said")).unwrap();
    let mut run = sandbox.command(&["--db", &db, "run", "spec.yaml"]).stderr(said).spawn().unwrap();
    eventually("the disk is full and the run says so", || sandbox.read("said").contains("no space left"));
    // The end of `fill` is not on disk, so nothing that follows from it starts.
    assert!(!sandbox.path("ran_0").exists());
    assert_eq!(run.try_wait().unwrap(), None, "it waits");
    fs::remove_file(filler).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0), "{}", sandbox.read("said"));
    assert!(sandbox.path("ran_49").exists());
    let status = sandbox.json(&["--db", &db, "status"]);
    assert_eq!(status["jobs"]["completed"], 51);
}

#[test]
fn run_with_removed_database_fails_with_message() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: gone\njobs: [{name: a, command: 'rm -r .windlass'}, {name: b, command: 'true'}]\n",
    );
    sandbox
        .windlass(&["run", "spec.yaml"])
        .exits(5)
        .says("windlass.db was removed or replaced")
        .says("hint:");
}

/// Nothing is reported as completed after its record is gone.
#[test]
fn worker_of_removed_database_does_not_succeed() {
    let sandbox = Sandbox::new();
    let log = fs::File::create(sandbox.path("log")).unwrap();
    let server = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]).stderr(log).spawn().unwrap();
    let mut server = KilledOnDrop(server);
    eventually("it serves", || sandbox.windlass(&["ping"]).code == 0);
    sandbox.write(
        "spec.yaml",
        "name: gone\njobs: [{name: a, command: 'rm -r .windlass; touch removed'}, {name: b, command: 'true'}]\n",
    );
    sandbox.windlass(&["submit", "spec.yaml"]).exits(0);
    let mut worker = KilledOnDrop(sandbox.start(&["worker", "-w", "last", "-j1"]));
    assert_eq!(server.0.wait().unwrap().code(), Some(5));
    assert!(sandbox.path("removed").exists());
    assert!(sandbox.read("log").contains("windlass.db was removed or replaced"), "{}", sandbox.read("log"));
    assert_eq!(worker.0.try_wait().unwrap(), None, "it was not told that its work is done");
}

#[test]
fn server_reports_full_disk_and_required_space() {
    let sandbox = Sandbox::new();
    let disk = SmallDisk::mount_at(sandbox.path(".windlass"), "4m");
    let _server = start_server(&sandbox, &disk);
    sandbox.write("spec.yaml", SMALL);
    sandbox.windlass(&["submit", "spec.yaml"]).exits(0);
    sandbox.windlass(&["ping"]).exits(0).prints("database ok");

    let filler = disk.0.join("filler");
    let make_token = || sandbox.windlass(&["auth", "token", "create", "--name", "t", "--scope", "read"]);
    eventually("nothing can be written", || {
        let mut file = fs::File::options().create(true).append(true).open(&filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        make_token().code != 0
    });
    sandbox.windlass(&["ping"]).exits(5).prints("the disk of the database is full").prints("needed");
    sandbox.windlass(&["status"]).exits(0).says("the disk of the database is full");
    eventually("the log says so", || sandbox.read("log").contains("no space left for the database"));

    fs::remove_file(filler).unwrap();
    make_token().exits(0);
    sandbox.windlass(&["ping"]).exits(0).prints("database ok");
    eventually("the log says so", || sandbox.read("log").contains("accepts writes again"));
}

#[test]
fn server_with_6_mb_disk_completes_400_jobs_once() {
    let sandbox = Sandbox::new();
    let disk = SmallDisk::mount_at(sandbox.path(".windlass"), "6m");
    let _server = start_server(&sandbox, &disk);
    submit_four_hundred(&sandbox, "true");
    let mut worker = KilledOnDrop(sandbox.start(&["worker", "-w", "last", "-j8"]));
    // Readers run while the worker writes.
    while worker.0.try_wait().unwrap().is_none() {
        sandbox.json(&["jobs"]);
    }
    assert_eq!(worker.0.wait().unwrap().code(), Some(0), "{}", sandbox.read("log"));
    all_completed_once(&sandbox);
    sandbox.windlass(&["ping"]).exits(0).prints("database ok");
    let log = sandbox.read("log");
    assert!(!log.contains("no space left"), "{log}");
}

#[test]
fn server_completes_each_job_once_after_full_disk() {
    let sandbox = Sandbox::new();
    let disk = SmallDisk::mount_at(sandbox.path(".windlass"), "64m");
    let _server = start_server(&sandbox, &disk);
    submit_four_hundred(&sandbox, "head -c 100m /dev/zero > .windlass/filler; true");
    let mut worker = KilledOnDrop(sandbox.start(&["worker", "-w", "last", "-j8"]));
    eventually("the log says so", || sandbox.read("log").contains("no space left for the database"));
    sandbox.windlass(&["ping"]).exits(5).prints("the disk of the database is full").prints("needed");
    sandbox.windlass(&["status"]).exits(0).says("the disk of the database is full");
    assert!(worker.0.try_wait().unwrap().is_none(), "it waits");
    fs::remove_file(disk.0.join("filler")).unwrap();
    assert_eq!(worker.0.wait().unwrap().code(), Some(0), "{}", sandbox.read("log"));
    all_completed_once(&sandbox);
}

/// A server whose database is on the small disk, with its log in `log`.
fn start_server(sandbox: &Sandbox, disk: &SmallDisk) -> KilledOnDrop {
    let log = fs::File::create(sandbox.path("log")).unwrap();
    let server = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]).stderr(log).spawn().unwrap();
    let server = KilledOnDrop(server);
    eventually("the address of the server", || disk.0.join("windlass.db.run/server.json").exists());
    server
}

/// A job that runs `first`, and 400 jobs after it that each write a line per attempt.
fn submit_four_hundred(sandbox: &Sandbox, first: &str) {
    fs::create_dir(sandbox.path("ran")).unwrap();
    let mut spec = format!("name: small\njobs:\n  - {{name: first, command: '{first}'}}\n");
    for job in 0..400 {
        let command = format!("echo $WINDLASS_ATTEMPT >> ran/{job}");
        writeln!(spec, "  - {{name: j{job}, command: {command}, depends_on: [first]}}").unwrap();
    }
    sandbox.write("spec.yaml", &spec);
    sandbox.windlass(&["submit", "spec.yaml"]).exits(0);
}

fn all_completed_once(sandbox: &Sandbox) {
    assert_eq!(sandbox.json(&["status"])["jobs"]["completed"], 401);
    for job in 0..400 {
        assert_eq!(sandbox.read(&format!("ran/{job}")), "1\n", "job {job}");
    }
}

/// In a container the session leader is often a process outside the PID namespace, and has the number 0 inside.
#[test]
fn session_leader_outside_pid_namespace_is_accepted() {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", "name: inside\njobs:\n  - {name: a, command: 'touch ran'}\n");
    let windlass = sandbox.command(&["run", "spec.yaml"]);
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc"]).arg(windlass.get_program()).args(windlass.get_args());
    let output = unshare.current_dir(sandbox.path(".")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(sandbox.path("ran").exists());
}

/// A filesystem of a few megabytes, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount() -> Self {
        Self::mount_at(tempfile::tempdir().unwrap().keep(), "4m")
    }

    fn mount_at(dir: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&dir).unwrap();
        let size = format!("size={size}");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "none"]).arg(&dir).status().unwrap();
        assert!(mounted.success(), "this test mounts a small filesystem and needs to be root");
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().unwrap();
        fs::remove_dir(&self.0).unwrap();
    }
}

fn truncate(path: &Path, length: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn overwrite(path: &Path, from: usize, length: usize) {
    let mut bytes = fs::read(path).unwrap();
    let end = bytes.len().min(from + length);
    bytes[from..end].fill(0xa5);
    fs::write(path, bytes).unwrap();
}
