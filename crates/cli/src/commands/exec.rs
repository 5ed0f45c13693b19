//! `windlass exec`: runs a list of commands as a workflow.

use crate::args::run::{ExecArgs, ResourceMonitorArg, ResourceMonitorArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_run::{EarlierFailuresPolicy, run_locally};
use crate::parameter_sweep::{self, ExecCommandTemplate, ExecParameter, ExecParameterArg};
use crate::spec_file;
use std::io::Read as _;
use std::path::Path;
use windlass_store::model::{InMemoryJobSource, NewJob, NewWorkflow};
use windlass_types::JobDefinition;
use windlass_types::settings::{
    JobMonitorScope, MonitoringGranularity, NodeMonitorScope, ResourceMonitor, WorkflowSettings,
};

pub(crate) fn run(ctx: &CliContext, args: &ExecArgs) -> Result<CliExit, CliError> {
    let (names, commands) = expand_commands(ctx, args)?;
    if args.dry_run {
        if ctx.ui.wants_json() {
            ctx.ui.print_json(&commands)?;
        } else {
            ctx.ui.print_lines(&commands)?;
        }
        return Ok(CliExit::Success);
    }
    let output_dir = spec_file::output_directory(ctx, &args.output)?;
    let store = ctx.open_or_create()?;
    let settings = monitor_settings(args.monitor);
    let new = NewWorkflow {
        name: &args.name,
        user: &spec_file::current_user(),
        description: args.description.as_deref(),
        submission_dir: spec_file::path_to_utf8(&ctx.cwd)?,
        output_dir: spec_file::path_to_utf8(&output_dir)?,
        settings: settings.as_ref(),
        ..NewWorkflow::default()
    };
    let jobs = names.into_iter().zip(commands);
    let jobs = jobs.map(|(name, command)| NewJob::from(JobDefinition::new(name, command)));
    let workflow = store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), ctx.clock.now())?;
    run_locally(ctx, &store, workflow, EarlierFailuresPolicy::Keep, &args.machine)
}

/// The resource monitor of the commands as in a spec; `None` if no option asks for it.
fn monitor_settings(args: ResourceMonitorArgs) -> Option<WorkflowSettings> {
    if args == ResourceMonitorArgs::default() {
        return None;
    }
    let scope = |monitor: ResourceMonitorArg| {
        let granularity = match monitor {
            ResourceMonitorArg::TimeSeries => MonitoringGranularity::TimeSeries,
            ResourceMonitorArg::Summary | ResourceMonitorArg::Off => MonitoringGranularity::Summary,
        };
        JobMonitorScope { enabled: monitor != ResourceMonitorArg::Off, granularity }
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
    Some(WorkflowSettings { resource_monitor: Some(monitor), ..WorkflowSettings::default() })
}

/// The names of the jobs and their command lines: each template with each combination of parameters.
fn expand_commands(ctx: &CliContext, args: &ExecArgs) -> Result<(Vec<String>, Vec<String>), CliError> {
    let templates = parse_templates(args)?;
    let params: Vec<ExecParameter> =
        args.params.iter().map(ExecParameterArg::load_values).collect::<Result<_, _>>()?;
    parameter_sweep::refuse_unused_parameters(&params, &templates)?;
    for name in parameter_sweep::undefined_parameters(&params, &templates) {
        ctx.ui.print_warning(&format!("{{{name}}} is not replaced: no parameter is named `{name}`"));
    }
    let bindings = parameter_sweep::combine_parameters(&params, args.link)?;
    let filled =
        templates.iter().flat_map(|template| bindings.iter().map(|binding| template.fill_in(binding)));
    let commands: Vec<String> = filled.collect::<Result<_, _>>()?;
    match commands.iter().find(|command| command.contains('\0')) {
        Some(_) => Err(CliError::user("a command contains a NUL byte, which cannot be passed to a program")),
        None => Ok((parameter_sweep::job_names(templates.len(), &bindings), commands)),
    }
}

fn parse_templates(args: &ExecArgs) -> Result<Vec<ExecCommandTemplate>, CliError> {
    let mut templates: Vec<ExecCommandTemplate> =
        args.commands.iter().cloned().map(ExecCommandTemplate::Shell).collect();
    if let Some(path) = &args.commands_file {
        templates.extend(read_commands(path)?.into_iter().map(ExecCommandTemplate::Shell));
    }
    if !args.trailing.is_empty() {
        templates.push(ExecCommandTemplate::from_words(&args.trailing));
    }
    if templates.is_empty() {
        return Err(CliError::user("no commands given")
            .with_hint("give commands with -c, a file of commands with -C, or one command after `--`"));
    }
    if templates.iter().any(ExecCommandTemplate::is_empty) {
        return Err(CliError::user("a command is empty").with_hint("a shell variable may be unset"));
    }
    Ok(templates)
}

/// One command per line; empty lines and comments are skipped.
pub(super) fn read_commands(path: &Path) -> Result<Vec<String>, CliError> {
    let text = read_text(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn read_text(path: &Path) -> Result<String, CliError> {
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
