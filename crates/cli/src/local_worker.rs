//! The worker of this machine: how `run`, `resume` and `exec` start it, and the command `windlass __worker`.

use crate::args::MachineArgs;
use crate::error::{CliError, CliExit};
use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use windlass_agent::environment::CREDENTIAL_VARIABLES;
use windlass_agent::{ActionRunner, RemoteWorkerOptions, default_state_dir};
use windlass_process::Signal;
use windlass_process::ensure_dead::{self, RecordedWorker, is_of_another_database};
use windlass_process::machine::MachineInfo;
use windlass_process::process_identity::{FileIdentity, ProcessIdentity, boot_id};
use windlass_scheduler::worker_host::{
    ActionDone, DeadWorkerReport, StartedWorker, WorkerHost, WorkerHostError,
};
use windlass_server::logging;
use windlass_store::StoreLocation;
use windlass_store::model::{NewWorker, WorkflowRow};
use windlass_store::postgres::{PASS_FILE_VARIABLE, render_passfile_line};
use windlass_types::worker_messages::{AttemptEndReport, AttemptKey};
use windlass_types::worker_protocol::ActionCommand;
use windlass_types::{Capacity, LOCAL_SITE};
use windlass_worker::{LaunchedWorker, WorkerOptions, read_ends, remove_ends};

/// Sets the level of the log for processes that this one starts.
const LOG_LEVEL_VARIABLE: &str = "WINDLASS_LOG_LEVEL";

/// Maximum time for killed processes to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// `windlass __worker`: the process that executes the jobs of a local run.
pub(crate) fn run_worker() -> Result<CliExit, CliError> {
    windlass_worker::serve_on_stdin()
        .map_err(|e| CliError::io(format!("the worker cannot continue: {e}")))?;
    Ok(CliExit::Success)
}

/// The worker process logs like this process, on the same standard error.
fn pass_log_level(command: &mut Command) {
    if let Some(level) = logging::level() {
        command.env(LOG_LEVEL_VARIABLE, level);
    }
}

/// The same for the worker processes of a remote worker.
pub(crate) fn share_log_level(options: &mut RemoteWorkerOptions) {
    let start = std::mem::replace(&mut options.worker_command, Box::new(|| Command::new("")));
    options.worker_command = Box::new(move || {
        let mut command = start();
        pass_log_level(&mut command);
        command
    });
}

/// The resources available to jobs: those of this machine, or the given ones.
pub(crate) fn machine_capacity(args: &MachineArgs, machine: &MachineInfo) -> Capacity {
    Capacity {
        cpus: args.num_cpus.unwrap_or(machine.cpus),
        memory: args.memory.unwrap_or(machine.memory),
        gpus: args.num_gpus.unwrap_or(machine.gpus.len() as u32),
        nodes: 1,
        max_jobs: args.max_parallel_jobs,
    }
}

/// Starts worker processes on this machine and makes sure that lost ones are dead.
pub(crate) struct LocalWorkerHost {
    machine: MachineInfo,
    capacity: Capacity,
    labels: Vec<String>,
    grace: Duration,
    /// The user has confirmed that workers on other hosts are dead.
    assume_dead: bool,
    /// Absolute path, or the URL of a PostgreSQL database.
    database: PathBuf,
    /// Directory of the ledgers.
    run_directory: PathBuf,
    /// A line with the database password, which is not part of the URL that jobs get.
    pgpass_line: Option<String>,
    pgpass_file: Option<PathBuf>,
    /// Child processes to reap: a zombie worker counts as dead.
    children: Vec<Child>,
    /// Each with the ledger that was created here.
    actions: Vec<ActionRunner>,
}

/// `<database>.run/` beside a file; for PostgreSQL, a directory of this user on this machine.
fn run_directory(database: &Path) -> PathBuf {
    let is_postgres = database.to_str().is_some_and(StoreLocation::is_postgres);
    let beside = || {
        let mut beside = database.as_os_str().to_owned();
        beside.push(".run");
        beside.into()
    };
    default_state_dir().filter(|_| is_postgres).unwrap_or_else(beside)
}

impl LocalWorkerHost {
    pub(crate) fn new(args: &MachineArgs, database: &Path) -> Self {
        let machine = MachineInfo::detect();
        let capacity = machine_capacity(args, &machine);
        Self {
            machine,
            capacity,
            labels: args.label.clone(),
            grace: args.grace,
            assume_dead: args.assume_dead,
            database: database.to_owned(),
            run_directory: run_directory(database),
            pgpass_line: None,
            pgpass_file: None,
            children: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Gives jobs access to a database whose URL has a password.
    pub(crate) fn with_password_of(mut self, database: &Path) -> Self {
        self.pgpass_line =
            database.to_str().filter(|text| StoreLocation::is_postgres(text)).and_then(render_passfile_line);
        self
    }

    /// Keeps the password in a file readable only by this user while this value lives: environment variables
    /// tend to end up in job logs.
    fn write_password_file(&mut self) -> std::io::Result<Option<&Path>> {
        if let (Some(line), None) = (&self.pgpass_line, &self.pgpass_file) {
            let path = self.run_directory.join(format!("pass-{}", unique_token()?));
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(line.as_bytes())?;
            self.pgpass_file = Some(path);
        }
        Ok(self.pgpass_file.as_deref())
    }

    /// Workers of another database are ignored: their attempts are unrelated.
    fn recorded_ends(&self, worker: &NewWorker) -> HashMap<AttemptKey, AttemptEndReport> {
        let ledger = ledger_of(worker, &self.database);
        let is_ours = !is_of_another_database(&process_identity(worker, &ledger, &self.database));
        if is_ours { read_ends(&ledger) } else { HashMap::new() }
    }

    fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for LocalWorkerHost {
    fn drop(&mut self) {
        if let Some(path) = &self.pgpass_file {
            // A file that remains is readable only by its owner.
            std::fs::remove_file(path).unwrap_or_default();
        }
    }
}

impl WorkerHost for LocalWorkerHost {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn start_worker(&mut self, workflow: &WorkflowRow) -> Result<StartedWorker, WorkerHostError> {
        self.reap();
        let token = unique_token()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.run_directory)?;
        let ledger = self.run_directory.join(format!("worker-{token}.ledger"));
        let mut options = WorkerOptions::new(
            self.capacity,
            PathBuf::from(&workflow.submission_dir),
            PathBuf::from(&workflow.output_dir),
            ledger.clone(),
            token.clone(),
        );
        options.gpu_devices.clone_from(&self.machine.gpus);
        options.timeout_grace = self.grace;
        options.database = Some(self.database.clone());
        // Jobs can run without this directory; they only do not find windlass unless it is installed.
        options.program = std::env::current_exe().ok();
        set_resource_monitor(&mut options, workflow);
        // The running executable, not the file now at its path, which may be a newer build.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("windlass").arg("__worker");
        pass_log_level(&mut command);
        // Jobs get the environment of the run, without the credentials for servers.
        for name in CREDENTIAL_VARIABLES {
            command.env_remove(name);
        }
        if let Some(path) = self.write_password_file()? {
            command.env(PASS_FILE_VARIABLE, path);
        }
        let LaunchedWorker { child, link } = windlass_worker::launch_worker(command, &options)?;
        let process = ProcessIdentity::from_pid(child.id()).ok_or("the worker died immediately")?;
        self.children.push(child);
        let worker = NewWorker {
            workflow: Some(workflow.id),
            run: Some(workflow.run_id),
            user: workflow.user.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            site: Some(LOCAL_SITE.to_owned()),
            host: self.machine.hostname.clone(),
            boot_id: boot_id()?,
            pid: process.pid,
            pid_start_ticks: process.start_ticks,
            token,
            ledger_path: ledger.to_str().ok_or("the path of the database is not UTF-8")?.to_owned(),
            capacity: self.capacity,
            ..NewWorker::default()
        };
        Ok(StartedWorker { worker, stream: link })
    }

    fn ensure_dead(&mut self, worker: &NewWorker) -> Result<DeadWorkerReport, WorkerHostError> {
        self.reap();
        let outcome = ensure_worker_dead(worker, &self.database);
        self.reap();
        match outcome {
            Ok(report) => Ok(DeadWorkerReport {
                started_attempts: report.started_attempts,
                killed_processes: report.killed_pids.len(),
                is_same_boot: boot_id().is_ok_and(|now| now == worker.boot_id),
                leftover_usage: report
                    .leftover_usage
                    .into_iter()
                    .map(|(key, usage)| (key, usage.into()))
                    .collect(),
                recorded_ends: self.recorded_ends(worker),
            }),
            Err(
                ensure_dead::EnsureDeadError::OtherHost { .. }
                | ensure_dead::EnsureDeadError::OfAnotherDatabase { .. },
            ) if self.assume_dead => Ok(DeadWorkerReport::default()),
            Err(error) => Err(error.into()),
        }
    }

    fn forget_worker(&mut self, worker: &NewWorker) {
        let ledger = ledger_of(worker, &self.database);
        if is_of_another_database(&process_identity(worker, &ledger, &self.database)) {
            return;
        }
        // Best effort: a ledger that remains is only a file of a few hundred kilobytes.
        std::fs::remove_file(&ledger).unwrap_or_default();
        remove_ends(&ledger);
    }

    fn perform_action(
        &mut self,
        order: ActionCommand,
        worker: &NewWorker,
        output_dir: &str,
        done: ActionDone,
    ) {
        let mut actions = ActionRunner::new(worker.token.clone(), done);
        actions.start_action(order, Some(PathBuf::from(output_dir)));
        self.actions.push(actions);
    }

    fn stop_actions(&mut self, at_once: bool) {
        let signal = if at_once { Signal::KILL } else { Signal::TERM };
        self.actions.iter().for_each(|actions| actions.stop_all(signal));
    }
}

/// Makes sure that a worker and all its child processes are dead.
fn ensure_worker_dead(
    worker: &NewWorker,
    database: &Path,
) -> Result<ensure_dead::EnsureDeadReport, ensure_dead::EnsureDeadError> {
    ensure_dead::ensure_worker_dead(
        &process_identity(worker, &ledger_of(worker, database), database),
        KILL_TIMEOUT,
    )
}

/// The recorded directory, or the one beside the database if that was moved.
fn ledger_of(worker: &NewWorker, database: &Path) -> PathBuf {
    let noted = Path::new(&worker.ledger_path);
    let beside = noted.file_name().map(|name| run_directory(database).join(name));
    beside.filter(|beside| !noted.exists() && beside.exists()).unwrap_or_else(|| noted.to_owned())
}

/// Looks up a worker without changing anything.
pub(crate) fn find_worker(
    worker: &NewWorker,
) -> Result<ensure_dead::WorkerLiveness, ensure_dead::EnsureDeadError> {
    ensure_dead::check_liveness(&process_identity(worker, Path::new(&worker.ledger_path), Path::new("")))
}

fn process_identity<'a>(worker: &'a NewWorker, ledger: &'a Path, database: &Path) -> RecordedWorker<'a> {
    RecordedWorker {
        host: &worker.host,
        boot_id: &worker.boot_id,
        process: ProcessIdentity { pid: worker.pid, start_ticks: worker.pid_start_ticks },
        token: &worker.token,
        ledger,
        // A PostgreSQL database has no file.
        database: FileIdentity::from_path(database),
    }
}

fn set_resource_monitor(options: &mut WorkerOptions, workflow: &WorkflowRow) {
    options.set_monitoring(workflow.id, workflow.run_id, workflow.settings.resource_monitor.as_ref());
}

fn unique_token() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::run_summary;
    use windlass_types::settings::{
        JobMonitorScope, MonitoringGranularity, NodeMonitorScope, ResourceMonitor,
    };
    use windlass_types::{Bytes, RunId, WorkflowId};

    #[test]
    fn worker_on_other_host_is_dead_only_if_declared() {
        let elsewhere = NewWorker {
            workflow: Some(WorkflowId(1)),
            run: Some(RunId(1)),
            host: "no-such-host".into(),
            boot_id: "another boot".into(),
            pid: 1,
            pid_start_ticks: 1,
            token: "t".into(),
            ledger_path: "/nowhere".into(),
            capacity: Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes: 1, max_jobs: None },
            ..NewWorker::default()
        };
        let mut careful = LocalWorkerHost::new(&MachineArgs::default(), Path::new("x.db"));
        assert!(careful.ensure_dead(&elsewhere).unwrap_err().to_string().contains("no-such-host"));
        let told = MachineArgs { assume_dead: true, ..MachineArgs::default() };
        let ended_worker = LocalWorkerHost::new(&told, Path::new("x.db")).ensure_dead(&elsewhere).unwrap();
        assert!(ended_worker.started_attempts.is_none(), "any claim may have started");
    }

    fn watched(monitor: Option<ResourceMonitor>) -> WorkerOptions {
        let mut row = run_summary::tests::overview(&[], Vec::new()).workflow.row;
        row.settings.resource_monitor = monitor;
        let capacity = Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes: 1, max_jobs: None };
        let mut options = WorkerOptions::new(capacity, "/".into(), "/".into(), "/l".into(), "t".into());
        set_resource_monitor(&mut options, &row);
        options
    }

    #[test]
    fn workflow_settings_select_job_monitoring() {
        let usual = watched(None);
        assert_eq!((usual.measure_jobs, usual.series), (true, None));
        assert_eq!(watched(Some(ResourceMonitor::default())), usual);

        let off = ResourceMonitor { enabled: Some(false), ..ResourceMonitor::default() };
        assert!(!watched(Some(off)).measure_jobs);

        let jobs = JobMonitorScope { enabled: true, granularity: MonitoringGranularity::TimeSeries };
        let all = watched(Some(ResourceMonitor { jobs: Some(jobs), ..ResourceMonitor::default() }));
        assert!(all.measure_jobs && all.sample_interval == ResourceMonitor::SAMPLE_INTERVAL);
        assert!(all.series.is_some_and(|s| s.jobs && !s.node && s.flush_interval == Duration::from_mins(5)));

        let node = NodeMonitorScope {
            enabled: true,
            granularity: MonitoringGranularity::TimeSeries,
            ..NodeMonitorScope::default()
        };
        let quick = ResourceMonitor {
            compute_node: Some(node),
            sample_interval_seconds: Some(0.5),
            flush_interval_seconds: Some(1),
            ..ResourceMonitor::default()
        };
        let quick = watched(Some(quick));
        assert_eq!(quick.sample_interval, Duration::from_millis(500));
        assert!(
            quick.series.is_some_and(|s| !s.jobs && s.node && s.flush_interval == Duration::from_secs(1))
        );
    }
}
