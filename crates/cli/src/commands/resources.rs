//! `windlass resources`: requested and used resources of jobs, and requirements corrected from measurements.

use crate::args::resources::{
    ResourcesArgs, ResourcesCheckArgs, ResourcesCorrectArgs, ResourcesSubcommand, SizingArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::style::{TextPainter, TextTone};
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use serde::Serialize;
use std::time::Duration;
use windlass_core::sizing::{GroupSizing, SizingRules, UsageStatistics};
use windlass_insight::job_groups::{self, JobGroupFilter, JobGroupUsage};
use windlass_store::model::{RequirementsChange, RequirementsUsers, WorkflowRow};
use windlass_types::{Bytes, JobId, Resources, WorkflowId, format_duration};

pub(crate) fn run(ctx: &CliContext, args: &ResourcesArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        ResourcesSubcommand::Check(args) => check(ctx, args),
        ResourcesSubcommand::Correct(args) => correct_requirements(ctx, args),
        ResourcesSubcommand::Tune(args) => super::tune::run(ctx, args),
        ResourcesSubcommand::Plot(args) => super::plot::plot_resources(ctx, args),
    }
}

impl From<SizingArgs> for SizingRules {
    fn from(args: SizingArgs) -> Self {
        Self {
            memory_multiplier: args.memory_multiplier,
            cpu_multiplier: args.cpu_multiplier,
            runtime_multiplier: args.runtime_multiplier,
            downsize: !args.no_downsize,
        }
    }
}

/// Job groups as JSON.
#[derive(Serialize)]
struct JobClassesView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    classes: Vec<&'a GroupSizing>,
}

pub(crate) fn check(ctx: &CliContext, args: &ResourcesCheckArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let which = JobGroupFilter { run: args.run_id, include_failed: args.include_failed, jobs: &[] };
    let sized =
        job_groups::size_groups(job_groups::load_job_groups(&*store, &row, &which)?, &SizingRules::default());
    let least = args.min_over_utilization;
    let worth_showing = |sizing: &&GroupSizing| match least {
        Some(percent) => worst_excess(sizing) > percent,
        None => args.all || !sizing.changes.is_empty() || !sizing.excesses.is_empty(),
    };
    let shown: Vec<&GroupSizing> = sized.iter().map(|(_, sizing)| sizing).filter(worth_showing).collect();
    if ctx.ui.wants_json() {
        let view = JobClassesView { workflow_id: row.id, name: &row.name, dry_run: true, classes: shown };
        ctx.ui.print_json(&view)?;
        return Ok(CliExit::Success);
    }
    if shown.is_empty() {
        ctx.ui.print_line(&nothing_to_report(&row, sized.len(), args.all))?;
        return Ok(CliExit::Success);
    }
    ctx.ui.print_table(&usage_table(&shown))?;
    let proposals: Vec<String> =
        shown.iter().flat_map(|sizing| proposal_lines(sizing, ctx.ui.stdout_painter())).collect();
    if !proposals.is_empty() {
        ctx.ui.print_line("")?;
        ctx.ui.print_lines(&proposals)?;
    }
    if shown.iter().any(|sizing| !sizing.changes.is_empty()) {
        let tune = row.spec_path.is_some();
        let spec = if tune { "; `windlass resources tune SPEC` writes them into the spec" } else { "" };
        ctx.ui.print_note(&format!("next: windlass resources correct {} --dry-run{spec}", row.id));
    }
    Ok(CliExit::Success)
}

/// The largest excess over the requirements, in percent.
fn worst_excess(sizing: &GroupSizing) -> f64 {
    let worst = sizing.excesses.iter().filter_map(|excess| excess.worst).fold(0.0, f64::max);
    (worst - 1.0) * 100.0
}

fn nothing_to_report(row: &WorkflowRow, classes: usize, all: bool) -> String {
    let of = format!("workflow {} ({})", row.id, text::one_line(&row.name));
    match classes {
        0 => format!("{of}: no job with resource requirements has a result"),
        _ if all => format!("{of}: no resource use to show"),
        n => format!(
            "{of}: {} with requirements that need no change; --all lists them",
            text::render_count(n as u64, "job group")
        ),
    }
}

fn usage_table(shown: &[&GroupSizing]) -> TextTable {
    let mut table = TextTable::new(vec![
        TableColumn::flexible("GROUP"),
        TableColumn::number("JOBS"),
        TableColumn::number("RUNS"),
        TableColumn::number("MEMORY"),
        TableColumn::number("USED P95"),
        TableColumn::number("MAX"),
        TableColumn::number("CPUS"),
        TableColumn::number("USED MAX"),
        TableColumn::number("RUNTIME"),
        TableColumn::number("USED P95"),
        TableColumn::number("MAX"),
    ]);
    let memory = |measure: Option<&UsageStatistics>, pick: fn(&UsageStatistics) -> f64| {
        TableCell::optional(measure.map(|measure| Bytes(pick(measure) as u64)))
    };
    let time = |measure: Option<&UsageStatistics>, pick: fn(&UsageStatistics) -> f64| {
        TableCell::optional(measure.map(|measure| format_duration(Duration::from_secs_f64(pick(measure)))))
    };
    for sizing in shown {
        table.add_row(vec![
            TableCell::new(&sizing.name),
            TableCell::new(sizing.jobs.to_string()),
            TableCell::new(sizing.runs.to_string()),
            TableCell::new(sizing.asked.memory.to_string()),
            memory(sizing.memory.as_ref(), |measure| measure.p95),
            memory(sizing.memory.as_ref(), |measure| measure.max),
            TableCell::new(sizing.asked.cpus.to_string()),
            TableCell::optional(sizing.cpu_percent.as_ref().map(|used| format!("{:.1}", used.max / 100.0))),
            TableCell::optional(sizing.asked.runtime.map(format_duration)),
            time(sizing.runtime.as_ref(), |measure| measure.p95),
            time(sizing.runtime.as_ref(), |measure| measure.max),
        ]);
    }
    table
}

/// Proposed changes, each with the measurements behind it.
pub(crate) fn proposal_lines(sizing: &GroupSizing, paint: TextPainter) -> Vec<String> {
    let name = paint.apply(TextTone::Bold, &text::one_line(&sizing.name));
    let mut lines: Vec<String> = sizing
        .changes
        .iter()
        .map(|change| {
            let field = change.to.resource().field();
            let from = change.from.map_or_else(|| "nothing".to_owned(), |from| from.to_string());
            format!("{name}: {field} {from} → {} ({})", change.to, change.evidence)
        })
        .collect();
    lines.extend(sizing.kept.map(|kept| paint.apply(TextTone::Dim, &format!("{}: {kept}", sizing.name))));
    lines
}

pub(crate) fn correct_requirements(
    ctx: &CliContext,
    args: &ResourcesCorrectArgs,
) -> Result<CliExit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let which = JobGroupFilter { run: None, include_failed: true, jobs: &args.job_ids };
    let sized =
        job_groups::size_groups(job_groups::load_job_groups(&*store, &row, &which)?, &args.sizing.into());
    let changed: Vec<&(JobGroupUsage, GroupSizing)> =
        sized.iter().filter(|(_, sizing)| !sizing.changes.is_empty()).collect();
    if !args.dry_run {
        let changes = changed
            .iter()
            .map(|(class, sizing)| requirements_change(class, sizing.proposed(), &args.job_ids));
        store.change_requirements(row.id, &changes.collect::<Vec<_>>(), ctx.clock.now())?;
    }
    let sizings: Vec<&GroupSizing> = changed.iter().map(|(_, sizing)| sizing).collect();
    if ctx.ui.wants_json() {
        let view =
            JobClassesView { workflow_id: row.id, name: &row.name, dry_run: args.dry_run, classes: sizings };
        ctx.ui.print_json(&view)?;
        return Ok(CliExit::Success);
    }
    let paint = ctx.ui.stdout_painter();
    let lines: Vec<String> = sized.iter().flat_map(|(_, sizing)| proposal_lines(sizing, paint)).collect();
    ctx.ui.print_lines(&lines)?;
    ctx.ui.print_note(&match (sizings.len(), args.dry_run) {
        (0, _) => format!("workflow {} ({}): no changes needed", row.id, row.name),
        (_, true) => "no requirements were changed".to_owned(),
        (_, false) => "the new requirements apply from the next attempt of each job".to_owned(),
    });
    Ok(CliExit::Success)
}

/// Creates a separate set for the group, so that other jobs that share the old set keep it.
fn requirements_change(class: &JobGroupUsage, resources: Resources, jobs: &[JobId]) -> RequirementsChange {
    let used_by = match class.kind {
        Some(kind) if jobs.is_empty() => RequirementsUsers::Kind(kind),
        _ => RequirementsUsers::Jobs(class.jobs.clone()),
    };
    RequirementsChange { name: class.corrected_name(), resources, used_by }
}
