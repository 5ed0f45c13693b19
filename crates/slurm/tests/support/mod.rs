//! A real Slurm cluster for tests, shared by all concurrent tests, with simulated nodes n1..n4 and g1.
//!
//! It is `tools/slurm-cluster`; the first test that needs it starts it, and it runs until it is stopped, as
//! `cargo xtask test` does at its end. Tests that stop one of its daemons use it exclusively: [`Cluster::alone`],
//! in a module called `disturbed`. Other crates include this file by `#[path]`. Tests that do so are in binaries
//! called `cluster` (here) or `slurm` (elsewhere): these names limit how many run at once, and exclude them where
//! no cluster can run.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time limit for an expected event: for a busy machine, or a node that Slurm gives up after a while.
const WAIT_TIMEOUT: Duration = Duration::from_mins(4);

/// A running cluster.
pub(crate) struct Cluster {
    directory: PathBuf,
    is_alone: bool,
    /// Locked while the cluster is in use, so that no part of it is stopped meanwhile.
    _used: File,
}

impl Cluster {
    /// Shared with other tests. Tests must not stop any part of it.
    pub(crate) fn shared() -> Self {
        Self::open(false)
    }

    /// For this test only, which may stop any part of it. All parts are started again when this is dropped.
    pub(crate) fn alone() -> Self {
        Self::open(true)
    }

    fn open(is_alone: bool) -> Self {
        let directory = place();
        fs::create_dir_all(&directory).unwrap();
        let used = lock_file(&directory.join("used.lock"));
        {
            // A test that wants exclusive access keeps this lock while it waits for the others. Later tests queue
            // behind it, so it cannot starve.
            let turn = lock_file(&directory.join("turn.lock"));
            turn.lock().unwrap();
            if is_alone { used.lock() } else { used.lock_shared() }.unwrap();
        }
        let cluster = Self { directory, is_alone, _used: used };
        if !cluster.has_answered() {
            cluster.repair();
        }
        cluster
    }

    /// Starts the stopped daemons, and waits until all of them answer.
    pub(crate) fn repair(&self) {
        done(&mut self.tool("start"));
    }

    /// Controls one of its daemons: `stop-ctld`, `freeze-ctld`, `start-ctld`, `stop-dbd`, `start-dbd`, or with a
    /// node's name `kill-node`, `stop-node`, `start-node`.
    pub(crate) fn disturb(&self, verb: &str, node: Option<&str>) {
        assert!(self.is_alone, "other tests use it too: use `Cluster::alone()`");
        done(self.tool(verb).args(node));
    }

    /// The environment that the cluster's commands need.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("SLURM_CONF", self.directory.join("etc/slurm.conf").display().to_string())]
    }

    /// The program, to be run with the cluster's configuration, as on a login node.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        command.envs(self.environment().iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs one of Slurm's commands to its end; it must succeed. Returns its output. A command that the
    /// controller of a busy machine did not answer in time is repeated.
    pub(crate) fn slurm(&self, program: &str, arguments: &[&str]) -> String {
        let mut output = None;
        eventually(&format!("Slurm answers {program} {arguments:?}"), || {
            let mut command = self.command(program);
            let ended = command.args(arguments).current_dir("/").output().unwrap();
            let message = String::from_utf8_lossy(&ended.stderr).into_owned();
            // A submission without an answer may have been accepted.
            let may_repeat = program != "sbatch" && is_unanswered(&message);
            assert!(ended.status.success() || may_repeat, "{command:?}: {}\n{message}", ended.status);
            let has_answer = ended.status.success();
            output = Some(ended.stdout);
            has_answer
        });
        String::from_utf8(output.unwrap()).unwrap()
    }

    /// Submits a batch script with these commands; returns the job id.
    pub(crate) fn submit(&self, options: &[&str], wrapped: &str) -> u64 {
        let common = ["--parsable", "--output=/dev/null", "--wrap", wrapped];
        let message = self.slurm("sbatch", &[options, &common].concat());
        message.trim().parse().unwrap_or_else(|_| panic!("sbatch printed {message:?}"))
    }

    /// The state in `squeue`, of finished jobs too; `None` once Slurm has purged the job.
    pub(crate) fn state(&self, job: u64) -> Option<String> {
        // With a second id, a purged job is not an error.
        let jobs = format!("{job},999999999");
        let message = self.slurm("squeue", &["-h", "-t", "all", "-j", &jobs, "-o", "%T"]);
        message.lines().next().map(str::to_owned)
    }

    /// Waits until the job is in one of these states.
    #[track_caller]
    pub(crate) fn await_state(&self, job: u64, states: &[&str]) {
        let mut last = None;
        eventually(&format!("job {job} is {states:?}"), || {
            last = self.state(job);
            let found = last.as_deref().is_some_and(|state| states.contains(&state));
            let is_terminal =
                ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY"];
            let is_lost = last.as_deref().is_some_and(|state| is_terminal.contains(&state));
            assert!(found || !is_lost, "job {job} is {last:?} and will never be {states:?}");
            found
        });
    }

    /// Kills every process that was started for this job, on any node, as when the node fails.
    pub(crate) fn kill_all_of(&self, job: u64) {
        assert!(self.is_alone, "other tests use it too: use `Cluster::alone()`");
        // First those of Slurm, which would report the end of the others.
        let title = format!("slurmstepd: [{job}.");
        let sign = format!("SLURM_JOB_ID={job}");
        kill_while_there(|pid| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(title.as_bytes()))
        });
        kill_while_there(|pid| is_marked(pid, &sign));
    }

    /// Freezes processes of this job whose command line, with its words separated by zeros, contains this: they
    /// stop running, and only SIGKILL ends them. SIGSTOP is not enough, because Slurm sends SIGCONT with the
    /// signal that asks a job to end.
    pub(crate) fn hold_processes_of(&self, job: u64, line: &str) -> HeldProcesses {
        let meant = self.processes_of(job, line);
        let mut holder = Command::new("python3")
            .args(["-c", include_str!("hold.py")])
            .args(meant.iter().map(u32::to_string))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut message = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut message).unwrap();
        assert_eq!(message, "held\n");
        HeldProcesses(holder)
    }

    /// Stops processes of this job, selected as in [`Self::hold_processes_of`], until they receive SIGCONT.
    pub(crate) fn stop_processes_of(&self, job: u64, line: &str) {
        for pid in self.processes_of(job, line) {
            done(Command::new("kill").args(["-STOP", &pid.to_string()]));
        }
    }

    #[expect(clippy::unused_self, reason = "the job is one of this cluster")]
    fn processes_of(&self, job: u64, line: &str) -> Vec<u32> {
        let sign = format!("SLURM_JOB_ID={job}");
        let says = |pid: &u32| {
            let message = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&message).contains(line)
        };
        let meant: Vec<u32> = processes().filter(|pid| is_marked(*pid, &sign)).filter(says).collect();
        assert!(!meant.is_empty(), "job {job} has no process with {line:?}");
        meant
    }

    /// The jobs with this comment that Slurm has, or had recently: found by a tag.
    pub(crate) fn jobs_tagged(&self, tag: &str) -> Vec<u64> {
        let message = self.slurm("squeue", &["-h", "-t", "all", "-o", "%A|%k"]);
        let rows = message.lines().filter_map(|line| line.split_once('|'));
        // The text after the tag identifies the owner.
        let bears = |comment: &str| comment.split("..").next() == Some(tag);
        rows.filter(|(_, comment)| bears(comment)).map(|(id, _)| id.parse().unwrap()).collect()
    }

    /// A node on which only jobs of this test run: jobs of others could take its cores, or be preempted
    /// instead.
    pub(crate) fn reserve_node(&self) -> ReservedNode<'_> {
        let name = format!("test-{}-{}", std::process::id(), next());
        let mut node = None;
        // Slurm rejects overlapping reservations, so each node is reserved once. Two nodes are left to the
        // other tests.
        eventually("a node can be reserved", || {
            node = ["n3", "n4"].into_iter().find(|node| self.create_reservation(&name, node));
            node.is_some()
        });
        ReservedNode { cluster: self, name, node: node.unwrap() }
    }

    fn create_reservation(&self, name: &str, node: &str) -> bool {
        // It expires, in case the test is killed.
        let rest = ["users=root", "starttime=now", "duration=20", "flags=ignore_jobs"];
        let mut create = self.command("scontrol");
        create.args(["create", "reservation", &format!("reservationname={name}"), &format!("nodes={node}")]);
        let output = create.args(rest).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        let is_taken = message.contains("overlaps") || message.contains("busy") || is_unanswered(&message);
        assert!(output.status.success() || is_taken, "{create:?}: {message}");
        output.status.success()
    }

    /// Moves the end time of a job to a few seconds from now. Slurm rejects an end time that has passed when the
    /// controller reads it, which can take longer on a busy machine.
    pub(crate) fn expire_job(&self, job: u64) {
        eventually(&format!("the end time of job {job} is changed"), || {
            let mut update = self.command("scontrol");
            update.args(["update", &format!("jobid={job}"), "endtime=now+3seconds"]);
            let output = update.output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            let is_late = message.contains("Invalid time specified") || is_unanswered(&message);
            assert!(output.status.success() || is_late, "{update:?}: {message}");
            output.status.success()
        });
    }

    /// A directory for the files of a test; deleted when dropped, unless the test failed.
    pub(crate) fn work(&self, name: &str) -> Work {
        let path = self.directory.join(format!("work/{name}-{}-{}", std::process::id(), next()));
        // Of a failed test whose process had the same number.
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(&path).unwrap();
        Work { path }
    }

    /// Whether it runs, has answered after its start, and no part of it was stopped since. Cheaper than a
    /// query.
    fn has_answered(&self) -> bool {
        let run = self.directory.join("run");
        let record = fs::read_to_string(run.join("slurmctld.pid")).unwrap_or_default();
        let pid = record.split(' ').next().unwrap_or_default();
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        program.trim() == "slurmctld" && run.join("ready").exists()
    }

    fn tool(&self, verb: &str) -> Command {
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/slurm-cluster"));
        command.arg("-d").arg(&self.directory).arg(verb);
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_alone {
            // If it cannot be repaired now, the next test does it.
            self.tool("start").output().ok();
        }
    }
}

/// Processes that are frozen until this is dropped.
pub(crate) struct HeldProcesses(Child);

impl Drop for HeldProcesses {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// See [`Cluster::reserve_node`].
pub(crate) struct ReservedNode<'a> {
    cluster: &'a Cluster,
    name: String,
    node: &'static str,
}

impl ReservedNode<'_> {
    /// The options of `sbatch` for this reservation.
    pub(crate) fn options(&self) -> [String; 2] {
        [format!("--reservation={}", self.name), format!("--nodelist={}", self.node)]
    }
}

impl Drop for ReservedNode<'_> {
    fn drop(&mut self) {
        // Slurm does not delete a reservation that a job uses. A remaining one expires.
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut is_deleted = false;
        while !is_deleted && Instant::now() < deadline {
            self.cluster.command("scancel").arg(format!("--reservation={}", self.name)).output().ok();
            let mut delete = self.cluster.command("scontrol");
            delete.args(["delete", &format!("reservationname={}", self.name)]);
            is_deleted = delete.output().is_ok_and(|output| output.status.success());
            if !is_deleted {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
}

/// A directory for the files of a test; kept for inspection if the test failed.
pub(crate) struct Work {
    path: PathBuf,
}

impl Work {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, and creates its directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A job that is being canceled may still write here; its output is not needed.
            fs::remove_dir_all(&self.path).ok();
        }
    }
}

/// Waits for an expected event, with a time limit for a cluster on a busy machine.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The `windlass` of this build, beside this test: `target/debug/windlass`.
pub(crate) fn windlass() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap().join("windlass");
    let is_there = built.metadata().is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
    assert!(is_there, "{} is not built: `cargo build -p windlass`", built.display());
    built
}

/// The directory of the cluster, if one can run here; or the reason why not, with the remedy.
fn place() -> PathBuf {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    assert!(is_root, "tests on a Slurm cluster start it and act as several users: run them as root");
    let there =
        ["/usr/sbin/slurmctld", "/usr/local/sbin/slurmctld"].iter().any(|path| Path::new(path).exists());
    assert!(there, "Slurm is not installed: `cargo xtask test` does, or `tools/slurm-cluster install`");
    std::env::var_os("SLURM_CLUSTER_DIR").map_or_else(|| "/var/tmp/slurm-cluster".into(), PathBuf::from)
}

/// A process may start another one before its own end.
fn kill_while_there(is_meant: impl Fn(u32) -> bool) {
    while let Some(pid) = processes().find(|pid| is_meant(*pid)) {
        Command::new("kill").args(["-KILL", &pid.to_string()]).output().unwrap();
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether the process has this in its environment, of this cluster; false for a dead process.
fn is_marked(pid: u32, sign: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let conf = format!("SLURM_CONF={}", place().join("etc/slurm.conf").display());
    let has = |word: &str| environment.split(|byte| *byte == 0).any(|one| one == word.as_bytes());
    has(sign) && has(&conf)
}

/// Whether the controller did not answer in time, according to the message of a command.
fn is_unanswered(message: &str) -> bool {
    ["timed out", "Unable to contact slurm controller"].iter().any(|text| message.contains(text))
}

fn lock_file(path: &Path) -> File {
    OpenOptions::new().read(true).append(true).create(true).open(path).unwrap()
}

fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn done(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{message}", output.status);
    output
}
