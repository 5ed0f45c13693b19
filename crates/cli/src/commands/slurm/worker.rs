//! `windlass slurm worker`: a worker configured from its Slurm allocation.

use crate::args::slurm_worker::SlurmWorkerArgs;
use crate::commands::worker::{SignalHandling, print_end, work};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_worker;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_agent::environment::{PassedEnvironment, check_pattern};
use windlass_agent::{
    FindServer, LauncherSelector, LeaveReason, RemoteWorkerOptions, WorkerDeadline, default_state_dir,
};
use windlass_core::slurm::end_reserve::termination_lead;
use windlass_core::slurm::job_steps::runs_as_steps;
use windlass_process::{command, machine::MachineInfo};
use windlass_slurm::render::srun;
use windlass_slurm::slurm_environment::{
    OPTION_LIKE_VARIABLES, SlurmEnvironment, TimeLeft, decide_time_left, job_grace, parse_kill_wait,
};
use windlass_types::settings::WorkflowSettings;
use windlass_types::{SystemClock, WorkflowId};

/// Longer than the timeouts of Slurm's own commands.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);
/// Torc's default, if the workflow has no value.
const DEFAULT_IDLE_SECONDS: u64 = 90;
const FIRST_CONTACT_MINUTES: u64 = 20;

pub(crate) fn run(ctx: &CliContext, args: &SlurmWorkerArgs) -> Result<CliExit, CliError> {
    let environment = SlurmEnvironment::from_environment(|name| std::env::var(name).ok())
        .map_err(|error| CliError::user(error.to_string()))?;
    let is_looked_after = args.allocation.is_some();
    let left = decide_time_left(&environment, args.walltime, is_looked_after, SystemClock.now(), || {
        query_time_left(environment.place.job_id)
    });
    let began = Instant::now();
    let client = ctx.require_server()?.clone();
    std::thread::sleep(environment.start_delay());

    let workflow = WorkflowId(args.workflow);
    let settings = load_settings(ctx, workflow, args.settings.as_deref());
    let machine = MachineInfo::detect();
    let memory = args.memory.unwrap_or(machine.memory);
    let capacity = environment.capacity(memory, args.max_parallel_jobs);
    let state_dir = args.state_dir.clone().map_or_else(local_state_dir, Ok)?;
    let mut options = RemoteWorkerOptions::new(client, capacity, ctx.cwd.join(state_dir));
    local_worker::share_log_level(&mut options);
    options.find_server = ctx.server_finder().map(|find| Arc::new(find) as FindServer);
    options.gpu_devices.clone_from(&environment.devices);
    options.workflow = Some(workflow);
    options.scheduled_compute_node = args.allocation;
    options.slurm = Some(environment.place.clone());
    let stay = WorkerExitPolicy::from_settings(&settings, args.idle_timeout);
    options.idle_timeout = stay.idle;
    options.persistent = stay.persistent;
    options.leaves_when_over = stay.exits_when_done;
    options.first_contact = stay.first_contact;
    options.warning_before_end = args.warning;
    options.grace = job_grace(parse_kill_wait(&slurm_config_text()));
    options.deadline = left.map(|left| worker_deadline(began, left, termination_lead(&settings)));
    options.launcher = step_launcher(&environment);
    let command = options.worker_command;
    options.worker_command = Box::new(move || {
        let mut command = command();
        for name in OPTION_LIKE_VARIABLES {
            command.env_remove(name);
        }
        command
    });
    options.environment = PassedEnvironment { extra_patterns: worker_args(args)?, in_allocation: true };
    let signals = SignalHandling {
        signals: &[SIGUSR1, SIGTERM, SIGINT],
        handler: |control, signal| match signal {
            SIGUSR1 => control.notify_time_limit(),
            _ => control.stop(),
        },
    };
    let outcome = work(&ctx.ui, options, &signals)?;
    let exit = print_end(&ctx.ui, &outcome);
    // The server knows the state of the jobs. For Slurm, an allocation that was used to its end has not
    // failed.
    let is_orderly = outcome.reason == LeaveReason::TimeOver && outcome.kept.is_none();
    Ok(if is_orderly { CliExit::Success } else { exit })
}

/// The options, and those in the environment that the allocation was submitted with.
fn worker_args(args: &SlurmWorkerArgs) -> Result<Vec<String>, CliError> {
    let set = std::env::var("WINDLASS_PASS_ENVIRONMENT").unwrap_or_default();
    let set = set.split(',').map(str::trim).filter(|name| !name.is_empty()).map(check_pattern);
    let set = set.collect::<Result<Vec<String>, String>>();
    let set = set.map_err(|why| CliError::user(format!("WINDLASS_PASS_ENVIRONMENT: {why}")))?;
    Ok(args.pass_environment.iter().cloned().chain(set).collect())
}

/// When and why the worker leaves, by the settings of the workflow.
struct WorkerExitPolicy {
    idle: Option<Duration>,
    persistent: bool,
    exits_when_done: bool,
    first_contact: Duration,
}

impl WorkerExitPolicy {
    fn from_settings(settings: &WorkflowSettings, given: Option<Duration>) -> Self {
        let idle = given.unwrap_or_else(|| {
            Duration::from_secs(
                settings.compute_node_wait_for_new_jobs_seconds.unwrap_or(DEFAULT_IDLE_SECONDS),
            )
        });
        let exits_when_done = settings.compute_node_ignore_workflow_completion != Some(true);
        let minutes =
            settings.compute_node_wait_for_healthy_database_minutes.unwrap_or(FIRST_CONTACT_MINUTES);
        Self {
            idle: Some(idle).filter(|idle| !idle.is_zero()),
            persistent: idle.is_zero() && !exits_when_done,
            exits_when_done,
            first_contact: Duration::from_mins(minutes),
        }
    }
}

/// At most half of the time before the end.
fn worker_deadline(began: Instant, left: Duration, lead: Duration) -> WorkerDeadline {
    // A time beyond the range of the clock is never reached.
    let end = began.checked_add(left).unwrap_or_else(|| began + Duration::from_hours(24 * 365));
    WorkerDeadline { end, stop_before_end: lead.min(left / 2) }
}

/// The settings of the workflow; if the server is unreachable, those that were passed when the allocation was
/// submitted.
fn load_settings(
    ctx: &CliContext,
    workflow: WorkflowId,
    given: Option<&WorkflowSettings>,
) -> WorkflowSettings {
    let row = ctx.open_read().ok().and_then(|store| store.workflow(workflow).ok().flatten());
    row.map(|row| row.settings).or_else(|| given.cloned()).unwrap_or_default()
}

/// The state according to Slurm. The server reports later changes.
fn query_time_left(job_id: u64) -> Option<Duration> {
    let mut squeue = Command::new("squeue");
    squeue.args(["--noheader", "--format=%L", &format!("--jobs={job_id}")]);
    let answer = command::run_command(&mut squeue, COMMAND_TIMEOUT)
        .ok()
        .flatten()
        .filter(|answer| answer.status.success())?;
    match TimeLeft::parse(&String::from_utf8_lossy(&answer.stdout)) {
        TimeLeft::Time(left) => Some(left),
        TimeLeft::Unlimited | TimeLeft::Unknown => None,
    }
}

fn slurm_config_text() -> String {
    let named = std::env::var_os("SLURM_CONF").map(PathBuf::from);
    let usual = ["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"].map(PathBuf::from);
    let texts = named.into_iter().chain(usual).map(fs::read_to_string);
    texts.flatten().next().unwrap_or_default()
}

/// On a local disk, shared by all workers of this user: the next worker delivers results that an earlier one
/// could not.
fn local_state_dir() -> Result<PathBuf, CliError> {
    let own = rustix::process::getuid().as_raw();
    let places = ["SLURM_TMPDIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let places = places.chain(["/tmp".into()]).filter(|place| place.is_absolute() && place.is_dir());
    let mut ours = places
        .map(|place| place.join(format!("windlass-{own}")))
        .filter(|place| is_private_directory(place, own));
    ours.next().map(|place| place.join("workers")).or_else(default_state_dir).ok_or_else(|| {
        CliError::io("no local directory for the worker's journal")
            .with_hint("set TMPDIR, or use --state-dir")
    })
}

/// Creates the directory with restricted permissions, or checks the owner: in a world-writable directory
/// another user could have created it.
fn is_private_directory(place: &Path, own: u32) -> bool {
    if let Err(error) = DirBuilder::new().mode(0o700).create(place)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return false;
    }
    fs::symlink_metadata(place)
        .is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode().trailing_zeros() >= 6)
}

/// Runs jobs as steps; `None` if Slurm's `srun` cannot do it.
fn step_launcher(environment: &SlurmEnvironment) -> Option<LauncherSelector> {
    let path = std::env::var_os("PATH")?;
    let program =
        std::env::split_paths(&path).map(|place| place.join("srun")).find(|program| program.is_file())?;
    let (job_id, nodes) = (environment.place.job_id, environment.nodes.len());
    Some(Box::new(move |assignment, config| {
        if runs_as_steps(config, nodes) {
            srun::render_srun(&program, job_id, assignment, config)
        } else {
            Vec::new()
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_exit_policy_follows_workflow_settings() {
        let usual = WorkerExitPolicy::from_settings(&WorkflowSettings::default(), None);
        assert_eq!((usual.idle, usual.persistent), (Some(Duration::from_secs(90)), false));
        assert!(usual.exits_when_done);
        let never = WorkflowSettings {
            compute_node_wait_for_new_jobs_seconds: Some(0),
            ..WorkflowSettings::default()
        };
        let stay = WorkerExitPolicy::from_settings(&never, None);
        assert_eq!((stay.idle, stay.persistent, stay.exits_when_done), (None, false, true));
        let always = WorkflowSettings { compute_node_ignore_workflow_completion: Some(true), ..never };
        assert!(WorkerExitPolicy::from_settings(&always, None).persistent);
        assert!(!WorkerExitPolicy::from_settings(&always, Some(Duration::from_secs(5))).persistent);
    }

    #[test]
    fn jobs_get_at_least_half_of_worker_time() {
        let now = Instant::now();
        assert_eq!(
            worker_deadline(now, Duration::from_mins(1), Duration::from_secs(90)).stop_before_end,
            Duration::from_secs(30)
        );
    }
}
