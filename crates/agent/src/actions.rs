//! Workflow actions: commands that the server orders, run one after the other, beside the jobs.

use crate::environment::{CREDENTIAL_VARIABLES, PassedEnvironment};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use windlass_process::process_identity::to_pid;
use windlass_process::process_tree::{self, marker_variable};
use windlass_process::{Pid, Signal, shell};
use windlass_types::worker_messages::SERVER_URL_VARIABLES;
use windlass_types::worker_messages::return_code::CANNOT_START;
use windlass_types::worker_protocol::{ActionCommand, ActionReport};
use windlass_types::{Attempt, SystemClock, Timestamp, WorkflowId};

/// The running actions.
pub struct ActionRunner {
    /// Marks the environment of all processes they start, so that they can be found again.
    token: String,
    running: HashMap<(i64, Attempt), RunningAction>,
    report: ActionReporter,
    /// The environment that they get; `None`, in a local run: the worker's own without its credentials and
    /// servers.
    environment: Option<PassedEnvironment>,
}

#[derive(Debug)]
struct RunningAction {
    workflow: WorkflowId,
    handle: ActionHandle,
    /// The server has given it to another worker, so its result is not reported.
    is_given_up: bool,
}

/// Called with the result of an action, on the action's thread.
type ActionReporter = Arc<dyn Fn(ActionReport) + Send + Sync>;

/// The state shared by the worker and the thread of an action.
type ActionHandle = Arc<ActionProcess>;

#[derive(Debug, Default)]
struct ActionProcess {
    state: Mutex<ActionProcessState>,
    /// The action has ended: no command runs or will run.
    ended: Condvar,
}

impl ActionProcess {
    fn lock(&self) -> MutexGuard<'_, ActionProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct ActionProcessState {
    /// The process of the current command.
    process: Option<Pid>,
    /// No further command is started.
    is_stopped: bool,
    is_over: bool,
}

impl fmt::Debug for ActionRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActionRunner").field("running", &self.running).finish_non_exhaustive()
    }
}

impl ActionRunner {
    pub fn new(token: String, tell: impl Fn(ActionReport) + Send + Sync + 'static) -> Self {
        Self { token, running: HashMap::new(), report: Arc::new(tell), environment: None }
    }

    /// Restricts the environment of actions to these variables.
    #[must_use]
    pub fn with_environment(self, passed: PassedEnvironment) -> Self {
        Self { environment: Some(passed), ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Starts an action. `output_dir` is that of its workflow; `None`: the workflow was not introduced.
    pub fn start_action(&mut self, order: ActionCommand, output_dir: Option<PathBuf>) {
        let key = (order.action, order.attempt);
        if self.running.contains_key(&key) {
            return;
        }
        let handle = ActionHandle::default();
        let (own, token, tell) = (Arc::clone(&handle), self.token.clone(), Arc::clone(&self.report));
        let (workflow, unstarted, passed) = (order.workflow, order.clone(), self.environment.clone());
        let body = move || {
            let around = ActionEnvironment { token: &token, environment: passed.as_ref() };
            let report = perform_action(&order, output_dir.as_deref(), &around, &own);
            own.lock().is_over = true;
            own.ended.notify_all();
            tell(report);
        };
        match thread::Builder::new().name("action".to_owned()).spawn(body) {
            Ok(_) => _ = self.running.insert(key, RunningAction { workflow, handle, is_given_up: false }),
            Err(error) => self.report_refused(&unstarted, &error.to_string()),
        }
    }

    /// Reports an action as failed without starting it.
    pub(crate) fn report_refused(&self, order: &ActionCommand, why: &str) {
        (self.report)(build_report(
            order,
            SystemClock.now(),
            Err((CANNOT_START, format!("not started: {why}"))),
        ));
    }

    /// Removes an ended action; returns whether its result has to be reported.
    pub(crate) fn on_action_ended(&mut self, report: &ActionReport) -> bool {
        self.running.remove(&(report.action, report.attempt)).is_none_or(|running| !running.is_given_up)
    }

    pub(crate) fn workflows(&self) -> impl Iterator<Item = WorkflowId> {
        self.running.values().map(|running| running.workflow)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (i64, Attempt)> {
        self.running.keys().copied()
    }

    /// Kills actions that the server has given to other workers.
    pub(crate) fn kill_reassigned_actions(&mut self, lost: &[(i64, Attempt)]) {
        for key in lost {
            if let Some(running) = self.running.get_mut(key) {
                running.is_given_up = true;
                stop_action(&running.handle, Signal::KILL);
            }
        }
    }

    /// Asks the actions of a workflow to end, and kills them after the grace period.
    pub(crate) fn stop_workflow_actions(&self, workflow: WorkflowId, grace: Duration) {
        let own = self.running.values().filter(|running| running.workflow == workflow);
        let handles: Vec<ActionHandle> = own.map(|running| Arc::clone(&running.handle)).collect();
        for handle in &handles {
            stop_action(handle, Signal::TERM);
        }
        if handles.is_empty() {
            return;
        }
        let asked = Instant::now();
        let body = move || {
            for handle in &handles {
                kill_after_grace(handle, asked, grace);
            }
        };
        // If no thread can be started, they are not killed.
        drop(thread::Builder::new().name("action-grace".to_owned()).spawn(body));
    }

    pub(crate) fn freeze_all(&self) {
        for pid in self.processes() {
            process_tree::freeze_processes(|| process_tree::with_descendants([pid]));
        }
    }

    pub(crate) fn thaw_all(&self) {
        for pid in self.processes() {
            process_tree::thaw_processes(&process_tree::with_descendants([pid]));
        }
    }

    pub fn stop_all(&self, signal: Signal) {
        for running in self.running.values() {
            stop_action(&running.handle, signal);
        }
    }

    fn processes(&self) -> Vec<Pid> {
        let of = |running: &RunningAction| running.handle.lock().process;
        self.running.values().filter_map(of).collect()
    }
}

/// Signals the running command, and prevents the next ones.
fn stop_action(handle: &ActionHandle, signal: Signal) {
    let mut slot = handle.lock();
    slot.is_stopped = true;
    if let Some(pid) = slot.process {
        process_tree::signal_group_and_members(pid, &process_tree::with_descendants([pid]), signal);
    }
}

/// Waits for the end of an action that was asked to end, and kills it after the grace period.
fn kill_after_grace(handle: &ActionHandle, asked: Instant, grace: Duration) {
    let left = grace.saturating_sub(asked.elapsed());
    let waited = handle.ended.wait_timeout_while(handle.lock(), left, |slot| !slot.is_over);
    let (slot, _) = waited.unwrap_or_else(PoisonError::into_inner);
    if !slot.is_over {
        drop(slot);
        stop_action(handle, Signal::KILL);
    }
}

/// What all commands of an action share.
struct ActionEnvironment<'a> {
    token: &'a str,
    environment: Option<&'a PassedEnvironment>,
}

fn perform_action(
    order: &ActionCommand,
    output_dir: Option<&Path>,
    around: &ActionEnvironment<'_>,
    handle: &ActionHandle,
) -> ActionReport {
    let started_at = SystemClock.now();
    let outcome = match output_dir {
        Some(directory) => run_commands(order, directory, around, handle),
        None => Err((CANNOT_START, "the workflow was not introduced to this worker".to_owned())),
    };
    build_report(order, started_at, outcome)
}

fn build_report(
    order: &ActionCommand,
    started_at: Timestamp,
    outcome: Result<(), (i32, String)>,
) -> ActionReport {
    let (return_code, message) = match outcome {
        Ok(()) => (0, None),
        Err((code, message)) => (code, Some(message)),
    };
    ActionReport {
        workflow: order.workflow,
        run: order.run,
        action: order.action,
        attempt: order.attempt,
        started_at,
        ended_at: SystemClock.now(),
        return_code,
        message,
    }
}

fn run_commands(
    order: &ActionCommand,
    directory: &Path,
    around: &ActionEnvironment<'_>,
    handle: &ActionHandle,
) -> Result<(), (i32, String)> {
    let name = format!("action_wf{}_a{}_r{}_n{}.log", order.workflow, order.action, order.run, order.attempt);
    let path = directory.join("actions").join(name);
    let trouble = |error: io::Error| (CANNOT_START, format!("{}: {error}", path.display()));
    fs::create_dir_all(directory.join("actions")).map_err(trouble)?;
    // The owner of the directory may have created a link to a file of the worker's account.
    let no_links = OFlags::NOFOLLOW.bits().cast_signed();
    let log = File::options().write(true).create(true).truncate(true).custom_flags(no_links).open(&path);
    let log = log.map_err(trouble)?;
    let count = order.commands.len();
    for (number, command) in order.commands.iter().enumerate() {
        let which = format!("command {} of {count}, `{command}`", number + 1);
        let status = run_command(order, command, directory, around, &log, handle)
            .map_err(|error| (CANNOT_START, format!("{which} cannot be started: {error}")))?;
        if !status.success() {
            let log = path.display();
            return Err((exit_code(status), format!("{which}: {status}; its output is in {log}")));
        }
    }
    Ok(())
}

fn run_command(
    order: &ActionCommand,
    command: &str,
    directory: &Path,
    around: &ActionEnvironment<'_>,
    log: &File,
    handle: &ActionHandle,
) -> io::Result<ExitStatus> {
    let mut slot = handle.lock();
    if slot.is_stopped {
        return Err(io::Error::other("the worker was stopped"));
    }
    let mut shell = shell::shell_command(command);
    match around.environment {
        Some(passed) => passed.apply_to(&mut shell),
        None => {
            for name in CREDENTIAL_VARIABLES.iter().chain(&SERVER_URL_VARIABLES) {
                shell.env_remove(name);
            }
        }
    }
    let mut child = shell
        .current_dir(directory)
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .env(marker_variable::WORKER, around.token)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .spawn()?;
    slot.process = to_pid(child.id());
    drop(slot);
    let status = child.wait();
    handle.lock().process = None;
    status
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(CANNOT_START)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::Weak;
    use std::sync::mpsc::{Receiver, channel};
    use windlass_types::RunId;

    fn order(commands: &[&str]) -> ActionCommand {
        ActionCommand {
            workflow: WorkflowId(1),
            run: RunId(2),
            action: 3,
            attempt: Attempt(4),
            trigger: "on_jobs_complete".into(),
            commands: commands.iter().map(|command| (*command).to_owned()).collect(),
            env: vec![("NAME".into(), "world".into())],
        }
    }

    fn report(events: &Receiver<ActionReport>) -> ActionReport {
        events.recv_timeout(Duration::from_mins(1)).unwrap()
    }

    #[test]
    fn commands_run_in_order_until_one_fails() {
        let directory = tempfile::tempdir().unwrap();
        let (events, inbox) = channel();
        let mut actions =
            ActionRunner::new("token".into(), move |report| events.send(report).unwrap_or_default());
        let commands = ["echo hello $NAME; pwd > place", "echo oops >&2; exit 3", "touch never"];
        actions.start_action(order(&commands), Some(directory.path().to_owned()));
        assert!(!actions.is_empty());
        let report = report(&inbox);
        assert!(actions.on_action_ended(&report));
        assert!(actions.is_empty());
        assert_eq!(report.return_code, 3);
        let message = report.message.unwrap();
        assert!(
            message.contains("command 2 of 3") && message.contains("action_wf1_a3_r2_n4.log"),
            "{message}"
        );
        let log = fs::read_to_string(directory.path().join("actions/action_wf1_a3_r2_n4.log")).unwrap();
        assert_eq!(log, "hello world\noops\n");
        let place = fs::read_to_string(directory.path().join("place")).unwrap();
        assert_eq!(Path::new(place.trim()), directory.path().canonicalize().unwrap());
        assert!(!directory.path().join("never").exists());
    }

    #[test]
    fn log_is_not_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (events, inbox) = channel();
        let mut actions =
            ActionRunner::new("token".into(), move |report| events.send(report).unwrap_or_default());
        let secret = directory.path().join("authorized_keys");
        fs::write(&secret, "as it was").unwrap();
        fs::create_dir(directory.path().join("actions")).unwrap();
        let log = directory.path().join("actions/action_wf1_a3_r2_n4.log");
        std::os::unix::fs::symlink(&secret, &log).unwrap();
        actions.start_action(order(&["echo evil"]), Some(directory.path().to_owned()));
        let report = report(&inbox);
        assert_eq!(report.return_code, CANNOT_START, "{:?}", report.message);
        assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was");
    }

    /// A running action: its command has written into the pipe.
    fn one_under_way(actions: &mut ActionRunner, directory: &Path, command: &str) -> Weak<ActionProcess> {
        let here = directory.join("here");
        assert!(Command::new("mkfifo").arg(&here).status().unwrap().success());
        actions.start_action(order(&[command, "touch never"]), Some(directory.to_owned()));
        fs::read(&here).unwrap();
        Arc::downgrade(&actions.running.values().next().unwrap().handle)
    }

    #[test]
    fn an_action_that_ends_on_request_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let (events, inbox) = channel();
        let mut actions =
            ActionRunner::new("token".into(), move |report| events.send(report).unwrap_or_default());
        let process = one_under_way(&mut actions, directory.path(), "echo > here; sleep 1000");
        actions.stop_workflow_actions(WorkflowId(2), Duration::ZERO);
        actions.stop_workflow_actions(WorkflowId(1), Duration::from_hours(1));
        let report = report(&inbox);
        assert_eq!(report.return_code, 128 + 15);
        actions.on_action_ended(&report);
        let give_up = Instant::now() + Duration::from_mins(1);
        while process.strong_count() > 0 {
            assert!(Instant::now() < give_up, "a reader still waits");
            thread::yield_now();
        }
    }

    #[test]
    fn an_action_that_ignores_the_request_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let (events, inbox) = channel();
        let mut actions =
            ActionRunner::new("token".into(), move |report| events.send(report).unwrap_or_default());
        let command = "trap '' TERM; echo > here; while :; do sleep 1; done";
        one_under_way(&mut actions, directory.path(), command);
        actions.stop_workflow_actions(WorkflowId(1), Duration::from_millis(10));
        assert_eq!(report(&inbox).return_code, 128 + 9);
    }

    #[test]
    fn a_stopped_action_starts_no_further_command() {
        let directory = tempfile::tempdir().unwrap();
        let (events, inbox) = channel();
        let mut actions =
            ActionRunner::new("token".into(), move |report| events.send(report).unwrap_or_default());
        one_under_way(&mut actions, directory.path(), "echo > here; sleep 1000");
        actions.stop_all(Signal::TERM);
        let report = report(&inbox);
        assert_eq!((report.return_code, directory.path().join("never").exists()), (128 + 15, false));
    }
}
