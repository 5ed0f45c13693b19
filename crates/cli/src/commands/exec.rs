//! `windlass exec`: a list of commands as a workflow.

use crate::args::run::{ExecArgs, Monitor, MonitorArgs};
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::plan;
use crate::sweep::{self, Param, ParamArg, Template};
use std::io::Read as _;
use std::path::Path;
use windlass_store::model::{Listed, NewJob, NewWorkflow};
use windlass_types::settings::{Granularity, MonitorScope, NodeMonitorScope, ResourceMonitor, Settings};

pub(crate) fn run(ctx: &Context, args: &ExecArgs) -> Result<Exit, CliError> {
    let commands = commands(ctx, args)?;
    if args.dry_run {
        if ctx.ui.json_wanted() {
            ctx.ui.print_json(&commands)?;
        } else {
            ctx.ui.print_lines(&commands)?;
        }
        return Ok(Exit::Success);
    }
    let names: Vec<String> = (1..=commands.len()).map(|n| format!("job{n}")).collect();
    let output_dir = plan::output_directory(ctx, &args.output)?;
    let store = ctx.open_or_create()?;
    let settings = settings(args.monitor);
    let new = NewWorkflow {
        name: &args.name,
        user: &plan::current_user(),
        description: args.description.as_deref(),
        submission_dir: plan::utf8(&ctx.cwd)?,
        output_dir: plan::utf8(&output_dir)?,
        settings: settings.as_ref(),
        ..NewWorkflow::default()
    };
    let jobs =
        names.iter().zip(&commands).map(|(name, command)| NewJob { name, command, ..NewJob::default() });
    let workflow = store.create_workflow(&new, &mut Listed::new(jobs), ctx.clock.now())?;
    drive(ctx, &*store, workflow, Failed::Keep, &args.machine)
}

/// How the commands are watched, as a spec would say it; nothing where nothing was asked for.
fn settings(args: MonitorArgs) -> Option<Settings> {
    if args == MonitorArgs::default() {
        return None;
    }
    let scope = |monitor: Monitor| {
        let granularity = match monitor {
            Monitor::TimeSeries => Granularity::TimeSeries,
            Monitor::Summary | Monitor::Off => Granularity::Summary,
        };
        MonitorScope { enabled: monitor != Monitor::Off, granularity }
    };
    let (jobs, node) = (scope(args.monitor), scope(args.monitor_compute_node));
    let monitor = ResourceMonitor {
        sample_interval_seconds: args.sample_interval_seconds,
        generate_plots: args.generate_plots,
        jobs: Some(jobs),
        compute_node: Some(NodeMonitorScope {
            enabled: node.enabled,
            granularity: node.granularity,
            ..NodeMonitorScope::default()
        }),
        ..ResourceMonitor::default()
    };
    Some(Settings { resource_monitor: Some(monitor), ..Settings::default() })
}

/// Every command line to run: each template with each combination of the parameters.
fn commands(ctx: &Context, args: &ExecArgs) -> Result<Vec<String>, CliError> {
    let templates = templates(args)?;
    let params: Vec<Param> = args.params.iter().map(ParamArg::values).collect::<Result<_, _>>()?;
    sweep::refuse_unused(&params, &templates)?;
    for name in sweep::undefined(&params, &templates) {
        ctx.ui.warn(&format!("{{{name}}} stays as it is: there is no parameter `{name}`"));
    }
    let bindings = sweep::combine(&params, args.link)?;
    let filled = templates.iter().flat_map(|template| bindings.iter().map(|binding| template.fill(binding)));
    let commands: Vec<String> = filled.collect::<Result<_, _>>()?;
    match commands.iter().find(|command| command.contains('\0')) {
        Some(_) => Err(CliError::user("a command contains a NUL byte, which no program can be given")),
        None => Ok(commands),
    }
}

fn templates(args: &ExecArgs) -> Result<Vec<Template>, CliError> {
    let mut templates: Vec<Template> = args.commands.iter().cloned().map(Template::Shell).collect();
    if let Some(path) = &args.commands_file {
        templates.extend(commands_in(path)?.into_iter().map(Template::Shell));
    }
    if !args.trailing.is_empty() {
        templates.push(Template::from_words(&args.trailing));
    }
    if templates.is_empty() {
        return Err(CliError::user("there is nothing to run")
            .with_hint("give commands with -c, a file of them with -C, or one after `--`"));
    }
    if templates.iter().any(Template::is_empty) {
        return Err(CliError::user("a command is empty").with_hint("a variable of your shell may be unset"));
    }
    Ok(templates)
}

/// One on each line; empty lines and comments are left out.
pub(super) fn commands_in(path: &Path) -> Result<Vec<String>, CliError> {
    let text = read(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<String, CliError> {
    let from_stdin = path == Path::new("-");
    let text = if from_stdin {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let name = if from_stdin { "stdin".to_owned() } else { path.display().to_string() };
    text.map_err(|e| CliError::user(format!("cannot read commands from {name}: {e}")))
}
