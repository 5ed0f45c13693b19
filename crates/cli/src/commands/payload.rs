//! `windlass payload`: the program that runs on a worker for a request.
//!
//! Its exit codes are those of the programs it runs, so on failure it ends the process itself.

use crate::args::payload::{
    PayloadCleanupArgs, PayloadLandArgs, PayloadMergeArgs, PayloadResultsArgs, PayloadRunArgs,
    PayloadSimulateArgs, PayloadSubcommand, PayloadUnitArgs, PayloadWorkDirArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::text;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use windlass_payload::processing_job::{ProcessingOptions, StepInput};
use windlass_payload::simulate::{SimulationTask, run_simulation};
use windlass_payload::{
    PayloadFailure, StepControl, UnitWorkspace, cleanup, landing, merge, processing_job as node,
};
use windlass_types::payload::{EventGeneration, MergeOutput, ProcessingReport, SimulatedFailure};

/// Site of a worker that names none.
const DEFAULT_SITE: &str = "local";

pub(crate) fn run(ctx: &CliContext, verb: &PayloadSubcommand) -> Result<CliExit, CliError> {
    match verb {
        PayloadSubcommand::Run(args) => print_result(ctx, run_node(ctx, args)?),
        PayloadSubcommand::Land(args) => print_result(ctx, land_unit(ctx, args)),
        PayloadSubcommand::Merge(args) => print_result(ctx, merge_unit(ctx, args)?),
        PayloadSubcommand::Cleanup(args) => print_result(ctx, clean_unit(ctx, args)),
        PayloadSubcommand::Simulate(args) => simulate_step(ctx, args),
    }
}

/// Prints the result; a failure as the last line, with its own exit code.
fn print_result(
    ctx: &CliContext,
    ended: Result<Result<(), CliError>, PayloadFailure>,
) -> Result<CliExit, CliError> {
    match ended {
        Ok(printed) => printed.map(|()| CliExit::Success),
        Err(failure) => {
            ctx.ui.print_stderr_lines(&[failure.to_string()]);
            std::process::exit(failure.process_code().into())
        }
    }
}

type PayloadResult = Result<Result<(), CliError>, PayloadFailure>;

fn run_node(ctx: &CliContext, args: &PayloadRunArgs) -> Result<PayloadResult, CliError> {
    let control = forward_signals()?;
    let program = std::env::current_exe()
        .map_err(|error| CliError::io(format!("cannot find the windlass executable: {error}")))?;
    let work_dir = work_dir(&args.work);
    Ok(open_unit_with_results(&args.unit, &args.results).and_then(|place| {
        let options = ProcessingOptions {
            node: args.node,
            attempt: attempt_number(),
            work_dir: &work_dir,
            program: &program,
            keep_scratch: args.keep,
        };
        let report = node::run_node(&place, &options, &control)?;
        Ok(print_node(ctx, &report))
    }))
}

fn print_node(ctx: &CliContext, report: &ProcessingReport) -> Result<(), CliError> {
    if ctx.ui.wants_json() {
        return ctx.ui.print_json(report);
    }
    for file in &report.outputs {
        let events = text::render_count(file.events, "event");
        ctx.ui
            .print_line(&format!("{}  {events}  {} bytes  adler32 {}", file.lfn, file.size, file.adler32))?;
    }
    Ok(())
}

fn land_unit(ctx: &CliContext, args: &PayloadLandArgs) -> PayloadResult {
    let place = open_unit(&args.unit)?;
    let place = match &args.report {
        Some(report) => place.with_landing(report.clone()),
        None => place,
    };
    landing::run_landing(&place)?;
    ctx.ui.print_note(&format!("{} can run at {}", place.manifest.unit, place.site));
    Ok(Ok(()))
}

fn merge_unit(ctx: &CliContext, args: &PayloadMergeArgs) -> Result<PayloadResult, CliError> {
    let control = forward_signals()?;
    let merged = open_unit_with_results(&args.unit, &args.results)
        .and_then(|place| merge::merge_unit(&place, &work_dir(&args.work), &control));
    Ok(merged.map(|output| print_merged(ctx, &output)))
}

fn print_merged(ctx: &CliContext, output: &MergeOutput) -> Result<(), CliError> {
    if ctx.ui.wants_json() {
        return ctx.ui.print_json(output);
    }
    for (dataset, files) in &output.datasets {
        for file in files {
            let events = text::render_count(file.events, "event");
            ctx.ui.print_line(&format!("{dataset}  {}  {events}  {} bytes", file.lfn, file.size))?;
        }
    }
    Ok(())
}

fn clean_unit(ctx: &CliContext, args: &PayloadCleanupArgs) -> PayloadResult {
    let place = open_unit_with_results(&args.unit, &args.results)?;
    let removed = cleanup::cleanup_unit(&place, args.force)?;
    ctx.ui.print_note(&format!(
        "removed {} of {}",
        text::render_count(removed as u64, "file"),
        place.manifest.unit
    ));
    Ok(Ok(()))
}

fn open_unit(args: &PayloadUnitArgs) -> Result<UnitWorkspace, PayloadFailure> {
    let site = args.site.clone().or_else(|| environment_variable("WINDLASS_SITE"));
    UnitWorkspace::open(&args.manifest, site.as_deref().unwrap_or(DEFAULT_SITE))
}

fn open_unit_with_results(
    unit: &PayloadUnitArgs,
    results: &PayloadResultsArgs,
) -> Result<UnitWorkspace, PayloadFailure> {
    let place = open_unit(unit)?;
    Ok(match &results.results {
        Some(results) => place.with_results(results.clone()),
        None => place,
    })
}

fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Attempt number from 1, set by the process that runs the job.
fn attempt_number() -> u32 {
    environment_variable("WINDLASS_ATTEMPT").and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn work_dir(args: &PayloadWorkDirArgs) -> PathBuf {
    args.work_dir.clone().unwrap_or_else(std::env::temp_dir)
}

/// From here on, signals for this process are forwarded to the running step.
fn forward_signals() -> Result<StepControl, CliError> {
    const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];
    let mut signals = Signals::new(ENDING.into_iter().chain([SIGUSR1, SIGUSR2]))
        .map_err(|error| CliError::io(format!("cannot install signal handlers: {error}")))?;
    let control = StepControl::default();
    let passed = control.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            passed.signal(signal, ENDING.contains(&signal));
        }
    });
    Ok(control)
}

fn simulate_step(ctx: &CliContext, args: &PayloadSimulateArgs) -> Result<CliExit, CliError> {
    let task = simulation_task(args)?;
    let code = run_simulation(&task)
        .map_err(|error| CliError::io(format!("cannot simulate step {}: {error}", task.step)))?;
    if code == 0 {
        return Ok(CliExit::Success);
    }
    ctx.ui.print_stderr_lines(&[format!("simulation of step {} fails with exit code {code}", task.step)]);
    std::process::exit(code.into())
}

/// Values of the environment, overridden by the command line.
fn simulation_task(args: &PayloadSimulateArgs) -> Result<SimulationTask, CliError> {
    let mut task = SimulationTask::from_environment(environment_variable)
        .map_err(|error| CliError::user(error.to_string()))?;
    if let Some(events) = args.events {
        task.inputs.clear();
        task.generate = events.checked_sub(1).map(|more| EventGeneration {
            first_event: args.first_event,
            last_event: args.first_event.saturating_add(more),
            run: 1,
            first_lumi: 1,
            events_per_lumi: None,
        });
    }
    if !args.input.is_empty() {
        task.generate = None;
        task.inputs = args.input.iter().cloned().map(StepInput::whole_file).collect();
    }
    if !args.output.is_empty() {
        task.outputs.clone_from(&args.output);
    }
    if task.outputs.is_empty() {
        return Err(CliError::user("no output given").with_hint("use --output FILE"));
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
        simulation.faults = vec![SimulatedFailure { kind, node, site, until_attempt }];
    }
    Ok(task)
}
