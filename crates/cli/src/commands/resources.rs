//! `windlass resources`: what jobs asked for and what they used; and better requirements, learned from that.

use crate::args::resources::{CheckArgs, CorrectArgs, ResourcesArgs, ResourcesVerb, SizingArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::style::{Paint, Tone};
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use serde::Serialize;
use std::time::Duration;
use windlass_core::sizing::{Measure, Rules, Sizing};
use windlass_insight::classes::{self, Class, Which};
use windlass_store::model::{RequirementsChange, UsedBy, WorkflowRow};
use windlass_types::{Bytes, JobId, Resources, WorkflowId, format_duration};

pub(crate) fn run(ctx: &Context, args: &ResourcesArgs) -> Result<Exit, CliError> {
    match &args.verb {
        ResourcesVerb::Check(args) => check(ctx, args),
        ResourcesVerb::Correct(args) => correct(ctx, args),
    }
}

impl From<SizingArgs> for Rules {
    fn from(args: SizingArgs) -> Self {
        Self {
            memory_multiplier: args.memory_multiplier,
            cpu_multiplier: args.cpu_multiplier,
            runtime_multiplier: args.runtime_multiplier,
            downsize: !args.no_downsize,
        }
    }
}

/// Classes of jobs as programs see them.
#[derive(Serialize)]
struct ClassesView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    classes: Vec<&'a Sizing>,
}

pub(crate) fn check(ctx: &Context, args: &CheckArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let row = select::workflow(&*store, &args.workflow)?;
    let which = Which { run: args.run_id, failed: args.include_failed, jobs: &[] };
    let judged = classes::judge(classes::load(&*store, &row, &which)?, &Rules::default());
    let least = args.min_over_utilization;
    let worth_showing = |sizing: &&Sizing| match least {
        Some(percent) => worst_excess(sizing) > percent,
        None => args.all || !sizing.changes.is_empty() || !sizing.excesses.is_empty(),
    };
    let shown: Vec<&Sizing> = judged.iter().map(|(_, sizing)| sizing).filter(worth_showing).collect();
    if ctx.ui.json_wanted() {
        let view = ClassesView { workflow_id: row.id, name: &row.name, dry_run: true, classes: shown };
        ctx.ui.print_json(&view)?;
        return Ok(Exit::Success);
    }
    if shown.is_empty() {
        ctx.ui.print_line(&nothing(&row, judged.len(), args.all))?;
        return Ok(Exit::Success);
    }
    ctx.ui.print_table(&usage_table(&shown))?;
    let proposals: Vec<String> =
        shown.iter().flat_map(|sizing| proposal_lines(sizing, ctx.ui.paint_out())).collect();
    if !proposals.is_empty() {
        ctx.ui.print_line("")?;
        ctx.ui.print_lines(&proposals)?;
    }
    if shown.iter().any(|sizing| !sizing.changes.is_empty()) {
        let tune = row.spec_path.is_some();
        let spec = if tune { "; `windlass tune SPEC` puts them into the spec" } else { "" };
        ctx.ui.note(&format!("next: windlass resources correct {} --dry-run{spec}", row.id));
    }
    Ok(Exit::Success)
}

/// By how many percent a class went over what it asked for, at worst.
fn worst_excess(sizing: &Sizing) -> f64 {
    let worst = sizing.excesses.iter().filter_map(|excess| excess.worst).fold(0.0, f64::max);
    (worst - 1.0) * 100.0
}

fn nothing(row: &WorkflowRow, classes: usize, all: bool) -> String {
    let of = format!("workflow {} ({})", row.id, text::one_line(&row.name));
    match classes {
        0 => format!("{of}: no job that asks for something has a result of its own"),
        _ if all => format!("{of}: nothing to show"),
        n => format!(
            "{of}: {} of jobs, all of which ask for about what they use; --all shows them",
            text::count(n as u64, "class").replace("classs", "classes")
        ),
    }
}

fn usage_table(shown: &[&Sizing]) -> Table {
    let mut table = Table::new(vec![
        Column::elastic("CLASS"),
        Column::number("JOBS"),
        Column::number("RUNS"),
        Column::number("MEMORY"),
        Column::number("USED P95"),
        Column::number("MAX"),
        Column::number("CPUS"),
        Column::number("USED MAX"),
        Column::number("RUNTIME"),
        Column::number("USED P95"),
        Column::number("MAX"),
    ]);
    let memory = |measure: Option<&Measure>, pick: fn(&Measure) -> f64| {
        Cell::maybe(measure.map(|measure| Bytes(pick(measure) as u64)))
    };
    let time = |measure: Option<&Measure>, pick: fn(&Measure) -> f64| {
        Cell::maybe(measure.map(|measure| format_duration(Duration::from_secs_f64(pick(measure)))))
    };
    for sizing in shown {
        table.row(vec![
            Cell::new(&sizing.name),
            Cell::new(sizing.jobs.to_string()),
            Cell::new(sizing.runs.to_string()),
            Cell::new(sizing.asked.memory.to_string()),
            memory(sizing.memory.as_ref(), |measure| measure.p95),
            memory(sizing.memory.as_ref(), |measure| measure.max),
            Cell::new(sizing.asked.cpus.to_string()),
            Cell::maybe(sizing.cpu_percent.as_ref().map(|used| format!("{:.1}", used.max / 100.0))),
            Cell::maybe(sizing.asked.runtime.map(format_duration)),
            time(sizing.runtime.as_ref(), |measure| measure.p95),
            time(sizing.runtime.as_ref(), |measure| measure.max),
        ]);
    }
    table
}

/// What should change, each with what it rests on.
pub(crate) fn proposal_lines(sizing: &Sizing, paint: Paint) -> Vec<String> {
    let name = paint.apply(Tone::Bold, &text::one_line(&sizing.name));
    let mut lines: Vec<String> = sizing
        .changes
        .iter()
        .map(|change| {
            let field = change.to.resource().field();
            let from = change.from.map_or_else(|| "nothing".to_owned(), |from| from.to_string());
            format!("{name}: {field} {from} → {} ({})", change.to, change.evidence)
        })
        .collect();
    lines.extend(sizing.kept.map(|kept| paint.apply(Tone::Dim, &format!("{}: {kept}", sizing.name))));
    lines
}

pub(crate) fn correct(ctx: &Context, args: &CorrectArgs) -> Result<Exit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = select::workflow(&*store, &args.workflow)?;
    let which = Which { run: None, failed: true, jobs: &args.job_ids };
    let judged = classes::judge(classes::load(&*store, &row, &which)?, &args.sizing.into());
    let changed: Vec<&(Class, Sizing)> =
        judged.iter().filter(|(_, sizing)| !sizing.changes.is_empty()).collect();
    if !args.dry_run {
        let changes = changed.iter().map(|(class, sizing)| change(class, sizing.proposed(), &args.job_ids));
        store.change_requirements(row.id, &changes.collect::<Vec<_>>(), ctx.clock.now())?;
    }
    let sizings: Vec<&Sizing> = changed.iter().map(|(_, sizing)| sizing).collect();
    if ctx.ui.json_wanted() {
        let view =
            ClassesView { workflow_id: row.id, name: &row.name, dry_run: args.dry_run, classes: sizings };
        ctx.ui.print_json(&view)?;
        return Ok(Exit::Success);
    }
    let paint = ctx.ui.paint_out();
    let lines: Vec<String> = judged.iter().flat_map(|(_, sizing)| proposal_lines(sizing, paint)).collect();
    ctx.ui.print_lines(&lines)?;
    ctx.ui.note(&match (sizings.len(), args.dry_run) {
        (0, _) => format!("workflow {} ({}): nothing needs to change", row.id, row.name),
        (_, true) => "nothing was changed".to_owned(),
        (_, false) => "the new requirements hold from the next attempt of each job on".to_owned(),
    });
    Ok(Exit::Success)
}

/// A set of its own for the class, so that others who share the old one keep it.
fn change(class: &Class, resources: Resources, jobs: &[JobId]) -> RequirementsChange {
    let used_by = match class.kind {
        Some(kind) if jobs.is_empty() => UsedBy::Kind(kind),
        _ => UsedBy::Jobs(class.jobs.clone()),
    };
    RequirementsChange { name: class.corrected_name(), resources, used_by }
}
