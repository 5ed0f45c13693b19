//! The worker of this machine: how `run`, `resume` and `exec` start it, and what `windlass __worker` does.

use crate::args::MachineArgs;
use crate::error::{CliError, Exit};
use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use windlass_agent::environment::CREDENTIALS;
use windlass_agent::{Actions, default_state_dir};
use windlass_engine::host::{ActionDone, Buried, HostError, Started, WorkerHost};
use windlass_proc::Signal;
use windlass_proc::bury::{self, Deceased, is_of_another_database, make_sure_dead};
use windlass_proc::identity::{FileIdentity, Identity, boot_id};
use windlass_proc::machine::Machine;
use windlass_store::Location;
use windlass_store::model::{NewWorker, WorkflowRow};
use windlass_store::postgres::{PASS_FILE, line_for};
use windlass_types::fleet::ActionOrder;
use windlass_types::work::{AttemptKey, Ended};
use windlass_types::{Capacity, LOCAL_SITE};
use windlass_worker::{Launched, WorkerOptions, read_ends, remove_ends};

/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// `windlass __worker`: the process that a run starts to execute its jobs.
pub(crate) fn worker() -> Result<Exit, CliError> {
    windlass_worker::serve_on_stdin().map_err(|e| CliError::io(format!("the worker cannot go on: {e}")))?;
    Ok(Exit::Success)
}

/// What jobs may use of this machine: all of it, or what was said.
pub(crate) fn capacity(args: &MachineArgs, machine: &Machine) -> Capacity {
    Capacity {
        cpus: args.num_cpus.unwrap_or(machine.cpus),
        memory: args.memory.unwrap_or(machine.memory),
        gpus: args.num_gpus.unwrap_or(machine.gpus.len() as u32),
        nodes: 1,
        max_jobs: args.max_parallel_jobs,
    }
}

/// Starts worker processes on this machine and buries dead ones.
pub(crate) struct LocalHost {
    machine: Machine,
    capacity: Capacity,
    labels: Vec<String>,
    grace: Duration,
    /// Somebody has made sure that workers on other machines are dead.
    assume_dead: bool,
    /// Absolute, or the URL of a PostgreSQL database.
    database: PathBuf,
    /// Where the ledgers go.
    run_directory: PathBuf,
    /// A line with the password of the database, which jobs are not told in its URL.
    pass_line: Option<String>,
    pass_file: Option<PathBuf>,
    /// To be reaped; a worker that is a zombie is as dead as one that is gone.
    children: Vec<Child>,
    /// Each with one that was begun here.
    actions: Vec<Actions>,
}

/// `<database>.run/` beside a file; for PostgreSQL, where this user keeps such things on this machine.
fn run_directory(database: &Path) -> PathBuf {
    let is_postgres = database.to_str().is_some_and(Location::is_postgres);
    let beside = || {
        let mut beside = database.as_os_str().to_owned();
        beside.push(".run");
        beside.into()
    };
    default_state_dir().filter(|_| is_postgres).unwrap_or_else(beside)
}

impl LocalHost {
    pub(crate) fn new(args: &MachineArgs, database: &Path) -> Self {
        let machine = Machine::detect();
        let capacity = capacity(args, &machine);
        Self {
            machine,
            capacity,
            labels: args.label.clone(),
            grace: args.grace,
            assume_dead: args.assume_dead,
            database: database.to_owned(),
            run_directory: run_directory(database),
            pass_line: None,
            pass_file: None,
            children: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Lets jobs use a database whose URL has a password.
    pub(crate) fn with_password_of(mut self, database: &Path) -> Self {
        self.pass_line = database.to_str().filter(|text| Location::is_postgres(text)).and_then(line_for);
        self
    }

    /// The password in a file that only this user can read, as long as this lives: what stands in the environment is
    /// sooner or later printed by some job into its log.
    fn keep_password(&mut self) -> std::io::Result<Option<&Path>> {
        if let (Some(line), None) = (&self.pass_line, &self.pass_file) {
            let path = self.run_directory.join(format!("pass-{}", unique_token()?));
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(line.as_bytes())?;
            self.pass_file = Some(path);
        }
        Ok(self.pass_file.as_deref())
    }

    /// Not those of another database, which may be of other attempts than ours.
    fn recorded_ends(&self, worker: &NewWorker) -> HashMap<AttemptKey, Ended> {
        let ledger = ledger_of(worker, &self.database);
        let is_ours = !is_of_another_database(&remembered(worker, &ledger, &self.database));
        if is_ours { read_ends(&ledger) } else { HashMap::new() }
    }

    fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for LocalHost {
    fn drop(&mut self) {
        if let Some(path) = &self.pass_file {
            // Whatever is left of it is its owner's alone.
            std::fs::remove_file(path).unwrap_or_default();
        }
    }
}

impl WorkerHost for LocalHost {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn start(&mut self, workflow: &WorkflowRow) -> Result<Started, HostError> {
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
        // Without it jobs can still be run; they only do not find us unless we are installed.
        options.program = std::env::current_exe().ok();
        watch(&mut options, workflow);
        // Not the file that is at our path now, which may be a newer build, but the one that runs.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("windlass").arg("__worker");
        // Jobs get the environment that the run was started with, without what it acts at servers with.
        for name in CREDENTIALS {
            command.env_remove(name);
        }
        if let Some(path) = self.keep_password()? {
            command.env(PASS_FILE, path);
        }
        let Launched { child, link } = windlass_worker::launch(command, &options)?;
        let process = Identity::of(child.id()).ok_or("the worker died at once")?;
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
        Ok(Started { worker, stream: link })
    }

    fn bury(&mut self, worker: &NewWorker) -> Result<Buried, HostError> {
        self.reap();
        let outcome = bury(worker, &self.database);
        self.reap();
        match outcome {
            Ok(report) => Ok(Buried {
                started: report.started,
                ended_processes: report.ended.len(),
                is_same_boot: boot_id().is_ok_and(|now| now == worker.boot_id),
                recorded_ends: self.recorded_ends(worker),
            }),
            Err(bury::Error::OtherHost { .. } | bury::Error::OfAnotherDatabase { .. })
                if self.assume_dead =>
            {
                Ok(Buried::default())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn forget(&mut self, worker: &NewWorker) {
        let ledger = ledger_of(worker, &self.database);
        if is_of_another_database(&remembered(worker, &ledger, &self.database)) {
            return;
        }
        // Best effort: a ledger that stays behind is a file of a few hundred kilobytes and no harm.
        std::fs::remove_file(&ledger).unwrap_or_default();
        remove_ends(&ledger);
    }

    fn carry_out(&mut self, order: ActionOrder, worker: &NewWorker, output_dir: &str, done: ActionDone) {
        let mut actions = Actions::new(worker.token.clone(), done);
        actions.start(order, Some(PathBuf::from(output_dir)));
        self.actions.push(actions);
    }

    fn stop_actions(&mut self, at_once: bool) {
        let signal = if at_once { Signal::KILL } else { Signal::TERM };
        self.actions.iter().for_each(|actions| actions.stop(signal));
    }
}

/// Makes sure that a worker is dead with all that it started.
pub(crate) fn bury(worker: &NewWorker, database: &Path) -> Result<bury::Report, bury::Error> {
    make_sure_dead(&remembered(worker, &ledger_of(worker, database), database), PATIENCE)
}

/// Where it was, or beside the database, should that have been moved.
fn ledger_of(worker: &NewWorker, database: &Path) -> PathBuf {
    let noted = Path::new(&worker.ledger_path);
    let beside = noted.file_name().map(|name| run_directory(database).join(name));
    beside.filter(|beside| !noted.exists() && beside.exists()).unwrap_or_else(|| noted.to_owned())
}

/// Looks for a worker, and does nothing to it.
pub(crate) fn look_for(worker: &NewWorker) -> Result<bury::Life, bury::Error> {
    bury::look_for(&remembered(worker, Path::new(&worker.ledger_path), Path::new("")))
}

fn remembered<'a>(worker: &'a NewWorker, ledger: &'a Path, database: &Path) -> Deceased<'a> {
    Deceased {
        host: &worker.host,
        boot_id: &worker.boot_id,
        process: Identity { pid: worker.pid, start_ticks: worker.pid_start_ticks },
        token: &worker.token,
        ledger,
        // Of a PostgreSQL database there is no file.
        database: FileIdentity::of(database),
    }
}

fn watch(options: &mut WorkerOptions, workflow: &WorkflowRow) {
    options.watch(workflow.id, workflow.run_id, workflow.settings.resource_monitor.as_ref());
}

fn unique_token() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::summary;
    use windlass_types::settings::{Granularity, MonitorScope, NodeMonitorScope, ResourceMonitor};
    use windlass_types::{Bytes, RunId, WorkflowId};

    #[test]
    fn a_worker_elsewhere_counts_as_dead_only_if_somebody_says_so() {
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
        let mut careful = LocalHost::new(&MachineArgs::default(), Path::new("x.db"));
        assert!(careful.bury(&elsewhere).unwrap_err().to_string().contains("no-such-host"));
        let told = MachineArgs { assume_dead: true, ..MachineArgs::default() };
        let buried = LocalHost::new(&told, Path::new("x.db")).bury(&elsewhere).unwrap();
        assert!(buried.started.is_none(), "any claim may have started");
    }

    fn watched(monitor: Option<ResourceMonitor>) -> WorkerOptions {
        let mut row = summary::tests::overview(&[], Vec::new()).workflow.row;
        row.settings.resource_monitor = monitor;
        let capacity = Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes: 1, max_jobs: None };
        let mut options = WorkerOptions::new(capacity, "/".into(), "/".into(), "/l".into(), "t".into());
        watch(&mut options, &row);
        options
    }

    #[test]
    fn a_workflow_says_how_closely_its_jobs_are_watched() {
        let usual = watched(None);
        assert_eq!((usual.measure_jobs, usual.series), (true, None));
        assert_eq!(watched(Some(ResourceMonitor::default())), usual);

        let off = ResourceMonitor { enabled: Some(false), ..ResourceMonitor::default() };
        assert!(!watched(Some(off)).measure_jobs);

        let jobs = MonitorScope { enabled: true, granularity: Granularity::TimeSeries };
        let all = watched(Some(ResourceMonitor { jobs: Some(jobs), ..ResourceMonitor::default() }));
        assert!(all.measure_jobs && all.sample_interval == ResourceMonitor::SAMPLE_INTERVAL);
        assert!(all.series.is_some_and(|s| s.jobs && !s.node && s.flush_interval == Duration::from_mins(5)));

        let node = NodeMonitorScope {
            enabled: true,
            granularity: Granularity::TimeSeries,
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
