//! `windlass payload`: what runs on a worker for a request.
//!
//! Its exit codes are those of the programs it runs, so it ends the process by itself when something failed.

use crate::args::payload::{
    PayloadCleanupArgs, PayloadLandArgs, PayloadMergeArgs, PayloadRunArgs, PayloadSimulateArgs,
    PayloadUnitArgs, PayloadVerb, ResultsArgs, WorkDirArgs,
};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::text;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use windlass_payload::run::{Options, StepInput};
use windlass_payload::simulate::{Task, simulate};
use windlass_payload::{Control, Failure, Place, cleanup, land, merge, run as node};
use windlass_types::payload::{Fault, Generation, MergeOutput, NodeReport};

/// Where a worker that names no site is.
const NO_SITE: &str = "local";

pub(crate) fn run(ctx: &Context, verb: &PayloadVerb) -> Result<Exit, CliError> {
    match verb {
        PayloadVerb::Run(args) => finish(ctx, run_node(ctx, args)?),
        PayloadVerb::Land(args) => finish(ctx, land_unit(ctx, args)),
        PayloadVerb::Merge(args) => finish(ctx, merge_unit(ctx, args)?),
        PayloadVerb::Cleanup(args) => finish(ctx, clean_unit(ctx, args)),
        PayloadVerb::Simulate(args) => simulate_step(ctx, args),
    }
}

/// Prints what came of it; a failure as the last line, and with its own exit code.
fn finish(ctx: &Context, ended: Result<Result<(), CliError>, Failure>) -> Result<Exit, CliError> {
    match ended {
        Ok(printed) => printed.map(|()| Exit::Success),
        Err(failure) => {
            ctx.ui.say_lines(&[failure.to_string()]);
            std::process::exit(failure.process_code().into())
        }
    }
}

type Ended = Result<Result<(), CliError>, Failure>;

fn run_node(ctx: &Context, args: &PayloadRunArgs) -> Result<Ended, CliError> {
    let control = pass_signals_on()?;
    let program = std::env::current_exe()
        .map_err(|error| CliError::io(format!("cannot find the windlass that runs this: {error}")))?;
    let work_dir = work_dir(&args.work);
    Ok(open_with(&args.unit, &args.results).and_then(|place| {
        let options = Options {
            node: args.node,
            attempt: attempt(),
            work_dir: &work_dir,
            program: &program,
            keep: args.keep,
        };
        let report = node::run(&place, &options, &control)?;
        Ok(print_node(ctx, &report))
    }))
}

fn print_node(ctx: &Context, report: &NodeReport) -> Result<(), CliError> {
    if ctx.ui.json_wanted() {
        return ctx.ui.print_json(report);
    }
    for file in &report.outputs {
        let events = text::count(file.events, "event");
        ctx.ui
            .print_line(&format!("{}  {events}  {} bytes  adler32 {}", file.lfn, file.size, file.adler32))?;
    }
    Ok(())
}

fn land_unit(ctx: &Context, args: &PayloadLandArgs) -> Ended {
    let place = open(&args.unit)?;
    let place = match &args.report {
        Some(report) => place.with_landing(report.clone()),
        None => place,
    };
    land::land(&place)?;
    ctx.ui.note(&format!("{} can run at {}", place.manifest.unit, place.site));
    Ok(Ok(()))
}

fn merge_unit(ctx: &Context, args: &PayloadMergeArgs) -> Result<Ended, CliError> {
    let control = pass_signals_on()?;
    let merged = open_with(&args.unit, &args.results)
        .and_then(|place| merge::merge(&place, &work_dir(&args.work), &control));
    Ok(merged.map(|output| print_merged(ctx, &output)))
}

fn print_merged(ctx: &Context, output: &MergeOutput) -> Result<(), CliError> {
    if ctx.ui.json_wanted() {
        return ctx.ui.print_json(output);
    }
    for (dataset, files) in &output.datasets {
        for file in files {
            let events = text::count(file.events, "event");
            ctx.ui.print_line(&format!("{dataset}  {}  {events}  {} bytes", file.lfn, file.size))?;
        }
    }
    Ok(())
}

fn clean_unit(ctx: &Context, args: &PayloadCleanupArgs) -> Ended {
    let place = open_with(&args.unit, &args.results)?;
    let removed = cleanup::cleanup(&place, args.force)?;
    ctx.ui.note(&format!("removed {} of {}", text::count(removed as u64, "file"), place.manifest.unit));
    Ok(Ok(()))
}

fn open(args: &PayloadUnitArgs) -> Result<Place, Failure> {
    let site = args.site.clone().or_else(|| variable("WINDLASS_SITE"));
    Place::open(&args.manifest, site.as_deref().unwrap_or(NO_SITE))
}

fn open_with(unit: &PayloadUnitArgs, results: &ResultsArgs) -> Result<Place, Failure> {
    let place = open(unit)?;
    Ok(match &results.results {
        Some(results) => place.with_results(results.clone()),
        None => place,
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Counted from 1 by whoever runs the job.
fn attempt() -> u32 {
    variable("WINDLASS_ATTEMPT").and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn work_dir(args: &WorkDirArgs) -> PathBuf {
    args.work_dir.clone().unwrap_or_else(std::env::temp_dir)
}

/// From now on signals for this process are for the step that runs.
fn pass_signals_on() -> Result<Control, CliError> {
    const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];
    let mut signals = Signals::new(ENDING.into_iter().chain([SIGUSR1, SIGUSR2]))
        .map_err(|error| CliError::io(format!("cannot listen for signals: {error}")))?;
    let control = Control::default();
    let passed = control.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            passed.signal(signal, ENDING.contains(&signal));
        }
    });
    Ok(control)
}

fn simulate_step(ctx: &Context, args: &PayloadSimulateArgs) -> Result<Exit, CliError> {
    let task = task(args)?;
    let code = simulate(&task)
        .map_err(|error| CliError::io(format!("cannot simulate step {}: {error}", task.step)))?;
    if code == 0 {
        return Ok(Exit::Success);
    }
    ctx.ui.say_lines(&[format!("simulation of step {} fails with exit code {code}", task.step)]);
    std::process::exit(code.into())
}

/// What the environment says, and what the command line says over it.
fn task(args: &PayloadSimulateArgs) -> Result<Task, CliError> {
    let mut task = Task::from_environment(variable).map_err(|error| CliError::user(error.to_string()))?;
    if let Some(events) = args.events {
        task.inputs.clear();
        task.generate = events.checked_sub(1).map(|more| Generation {
            first_event: args.first_event,
            last_event: args.first_event.saturating_add(more),
            run: 1,
            first_lumi: 1,
            events_per_lumi: None,
        });
    }
    if !args.input.is_empty() {
        task.generate = None;
        task.inputs = args.input.iter().cloned().map(StepInput::whole).collect();
    }
    if !args.output.is_empty() {
        task.outputs.clone_from(&args.output);
    }
    if task.outputs.is_empty() {
        return Err(CliError::user("there is nothing to write").with_hint("--output FILE says where"));
    }
    task.report = args.report.clone().or(task.report);
    task.seed = args.seed.unwrap_or(task.seed);
    task.threads = args.threads.unwrap_or(task.threads).max(1);
    let simulation = &mut task.simulation;
    simulation.profile = args.profile.clone().or(simulation.profile.take());
    simulation.speed = args.speed.or(simulation.speed);
    simulation.filter_efficiency = args.filter.or(simulation.filter_efficiency);
    if let Some(kind) = args.fail {
        let (node, site, until_attempt) = (args.fail_node, args.fail_site.clone(), args.fail_attempts);
        simulation.faults = vec![Fault { kind, node, site, until_attempt }];
    }
    Ok(task)
}
