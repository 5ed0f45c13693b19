//! `windlass slurm worker`: an ordinary worker, with what it finds in an allocation of Slurm.

use crate::args::slurm_worker::SlurmWorkerArgs;
use crate::commands::worker::{Signalled, tell_end, work};
use crate::context::Context;
use crate::error::{CliError, Exit};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_agent::environment::{PassedEnvironment, check_pattern};
use windlass_agent::{AgentOptions, End, FindAgain, Launcher, Until, default_state_dir};
use windlass_core::slurm::reserve::lead;
use windlass_core::slurm::steps::runs_steps;
use windlass_proc::{command, machine::Machine};
use windlass_slurm::render::srun;
use windlass_slurm::worker::{ACT_AS_OPTIONS, Surroundings, TimeLeft, grace, kill_wait, time_left};
use windlass_types::settings::Settings;
use windlass_types::{Clock, WorkflowId};

/// Longer than Slurm's own commands take to give up.
const PATIENCE: Duration = Duration::from_mins(1);
/// As Torc has it, where a workflow says nothing.
const IDLE: u64 = 90;
const FIRST_CONTACT_MINUTES: u64 = 20;

pub(crate) fn run(ctx: &Context, args: &SlurmWorkerArgs) -> Result<Exit, CliError> {
    let around = Surroundings::read(|name| std::env::var(name).ok())
        .map_err(|error| CliError::user(error.to_string()))?;
    let is_looked_after = args.allocation.is_some();
    let left = time_left(&around, args.walltime, is_looked_after, Clock.now(), || asked(around.place.job_id));
    let began = Instant::now();
    let client = ctx.require_server()?.clone();
    std::thread::sleep(around.jitter());

    let workflow = WorkflowId(args.workflow);
    let settings = settings(ctx, workflow, args.settings.as_deref());
    let machine = Machine::detect();
    let memory = args.memory.unwrap_or(machine.memory);
    let capacity = around.capacity(memory, args.max_parallel_jobs);
    let state_dir = args.state_dir.clone().map_or_else(local_state_dir, Ok)?;
    let mut options = AgentOptions::new(client, capacity, ctx.cwd.join(state_dir));
    options.find_again = ctx.way_back().map(|find| Arc::new(find) as FindAgain);
    options.gpu_devices.clone_from(&around.devices);
    options.workflow = Some(workflow);
    options.allocation = args.allocation;
    options.slurm = Some(around.place.clone());
    let stay = Stay::of(&settings, args.idle_timeout);
    options.idle_timeout = stay.idle;
    options.persistent = stay.persistent;
    options.leaves_when_over = stay.leaves_when_over;
    options.first_contact = stay.first_contact;
    options.warning = args.warning;
    options.grace = grace(kill_wait(&slurm_configuration()));
    options.until = left.map(|left| until(began, left, lead(&settings)));
    options.launcher = launcher(&around);
    let command = options.worker_command;
    options.worker_command = Box::new(move || {
        let mut command = command();
        for name in ACT_AS_OPTIONS {
            command.env_remove(name);
        }
        command
    });
    options.environment = PassedEnvironment { more: passed(args)?, in_allocation: true };
    let signals = Signalled {
        signals: &[SIGUSR1, SIGTERM, SIGINT],
        tell: |control, signal| match signal {
            SIGUSR1 => control.warn(),
            _ => control.stop(),
        },
    };
    let outcome = work(&ctx.ui, options, &signals)?;
    let exit = tell_end(&ctx.ui, &outcome);
    // What becomes of its jobs the server knows. To Slurm an allocation that was used to its end has not failed.
    let is_orderly = outcome.end == End::TimeOver && outcome.kept.is_none();
    Ok(if is_orderly { Exit::Success } else { exit })
}

/// What was said, and what stands in the environment that the allocation was submitted with.
fn passed(args: &SlurmWorkerArgs) -> Result<Vec<String>, CliError> {
    let set = std::env::var("WINDLASS_PASS_ENVIRONMENT").unwrap_or_default();
    let set = set.split(',').map(str::trim).filter(|name| !name.is_empty()).map(check_pattern);
    let set = set.collect::<Result<Vec<String>, String>>();
    let set = set.map_err(|why| CliError::user(format!("WINDLASS_PASS_ENVIRONMENT: {why}")))?;
    Ok(args.pass_environment.iter().cloned().chain(set).collect())
}

/// When and why it leaves, by what its workflow says.
struct Stay {
    idle: Option<Duration>,
    persistent: bool,
    leaves_when_over: bool,
    first_contact: Duration,
}

impl Stay {
    fn of(settings: &Settings, said: Option<Duration>) -> Self {
        let idle = said.unwrap_or_else(|| {
            Duration::from_secs(settings.compute_node_wait_for_new_jobs_seconds.unwrap_or(IDLE))
        });
        let leaves_when_over = settings.compute_node_ignore_workflow_completion != Some(true);
        let minutes =
            settings.compute_node_wait_for_healthy_database_minutes.unwrap_or(FIRST_CONTACT_MINUTES);
        Self {
            idle: Some(idle).filter(|idle| !idle.is_zero()),
            persistent: idle.is_zero() && !leaves_when_over,
            leaves_when_over,
            first_contact: Duration::from_mins(minutes),
        }
    }
}

/// Not before half of the time is over.
fn until(began: Instant, left: Duration, lead: Duration) -> Until {
    // A time that no clock has is one that never comes.
    let end = began.checked_add(left).unwrap_or_else(|| began + Duration::from_hours(24 * 365));
    Until { end, lead: lead.min(left / 2) }
}

/// What the workflow says; where the server is away, which is waited for later, what it said when the allocation was asked for.
fn settings(ctx: &Context, workflow: WorkflowId, said: Option<&Settings>) -> Settings {
    let row = ctx.open_read().ok().and_then(|store| store.workflow(workflow).ok().flatten());
    row.map(|row| row.settings).or_else(|| said.cloned()).unwrap_or_default()
}

/// As Slurm knows it now. Changes later on are told by the server.
fn asked(job_id: u64) -> Option<Duration> {
    let mut squeue = Command::new("squeue");
    squeue.args(["--noheader", "--format=%L", &format!("--jobs={job_id}")]);
    let answer =
        command::run(&mut squeue, PATIENCE).ok().flatten().filter(|answer| answer.status.success())?;
    match TimeLeft::parse(&String::from_utf8_lossy(&answer.stdout)) {
        TimeLeft::Time(left) => Some(left),
        TimeLeft::Unlimited | TimeLeft::Unknown => None,
    }
}

fn slurm_configuration() -> String {
    let named = std::env::var_os("SLURM_CONF").map(PathBuf::from);
    let usual = ["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"].map(PathBuf::from);
    let texts = named.into_iter().chain(usual).map(fs::read_to_string);
    texts.flatten().next().unwrap_or_default()
}

/// On a disk of this machine, and for all workers of this user here: who comes next delivers what one could not.
fn local_state_dir() -> Result<PathBuf, CliError> {
    let own = rustix::process::getuid().as_raw();
    let places = ["SLURM_TMPDIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let places = places.chain(["/tmp".into()]).filter(|place| place.is_absolute() && place.is_dir());
    let mut ours =
        places.map(|place| place.join(format!("windlass-{own}"))).filter(|place| is_ours(place, own));
    ours.next().map(|place| place.join("workers")).or_else(default_state_dir).ok_or_else(|| {
        CliError::io("there is no directory on this machine to keep notes in")
            .with_hint("TMPDIR, or --state-dir, names one")
    })
}

/// Made by us, and closed to others: in a directory that all may write somebody could have put it there.
fn is_ours(place: &Path, own: u32) -> bool {
    if let Err(error) = DirBuilder::new().mode(0o700).create(place)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return false;
    }
    fs::symlink_metadata(place)
        .is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode().trailing_zeros() >= 6)
}

/// Jobs that are to run as steps; `None` where Slurm has no `srun` for it.
fn launcher(around: &Surroundings) -> Option<Launcher> {
    let path = std::env::var_os("PATH")?;
    let program =
        std::env::split_paths(&path).map(|place| place.join("srun")).find(|program| program.is_file())?;
    let (job_id, nodes) = (around.place.job_id, around.nodes.len());
    Some(Box::new(move |assignment, config| {
        if runs_steps(config, nodes) {
            srun::render(&program, job_id, assignment, config)
        } else {
            Vec::new()
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leaves_as_its_workflow_says() {
        let usual = Stay::of(&Settings::default(), None);
        assert_eq!((usual.idle, usual.persistent), (Some(Duration::from_secs(90)), false));
        assert!(usual.leaves_when_over);
        let never = Settings { compute_node_wait_for_new_jobs_seconds: Some(0), ..Settings::default() };
        let stay = Stay::of(&never, None);
        assert_eq!((stay.idle, stay.persistent, stay.leaves_when_over), (None, false, true));
        let always = Settings { compute_node_ignore_workflow_completion: Some(true), ..never };
        assert!(Stay::of(&always, None).persistent);
        assert!(!Stay::of(&always, Some(Duration::from_secs(5))).persistent);
    }

    #[test]
    fn jobs_have_half_of_the_time_at_least() {
        let now = Instant::now();
        assert_eq!(until(now, Duration::from_mins(1), Duration::from_secs(90)).lead, Duration::from_secs(30));
    }
}
