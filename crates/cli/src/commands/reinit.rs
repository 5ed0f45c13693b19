//! `windlass reinit`: what changed since a workflow ran, and what builds on it, is to run again. And `workflows init`.

use crate::args::plan::{InitArgs, ReinitArgs};
use crate::changes::{self, Books, Changes, ReasonView, Terms};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::inputs;
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use crate::{rerun, select};
use serde::Serialize;
use windlass_store::Store;
use windlass_store::model::{FileRow, WorkflowRow};
use windlass_types::{JobId, RunId, WorkflowId};

/// So many jobs are named when something was done; a dry run names all.
const NAMED: usize = 20;

pub(crate) fn run(ctx: &Context, args: &ReinitArgs) -> Result<Exit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = select::workflow(&*store, &args.workflow)?;
    let is_served = ctx.server()?.is_some();
    let find = |row: &WorkflowRow| Found::new(&*store, row, args.content);
    let (run_id, found) = if args.dry_run {
        (None, find(&row)?)
    } else {
        rerun::begin(ctx, &*store, row.id, |row| {
            let found = find(row)?;
            if !args.force {
                inputs::refuse(&found.missing)?;
            }
            // No run begins for a workflow that never ran, and what a recovery added to it has no purpose either.
            if row.started_at.is_none() && !is_served {
                store.rearm_actions(row.id, true, ctx.clock.now())?;
            }
            Ok((found.going_back.clone(), found))
        })?
    };
    found.show(ctx, &row, run_id, args.dry_run)?;
    Ok(Exit::Success)
}

/// What was found out about a workflow.
struct Found {
    going_back: Vec<JobId>,
    reused: u32,
    run: Vec<ReasonView>,
    missing: Vec<FileRow>,
}

impl Found {
    fn new(store: &dyn Store, row: &WorkflowRow, content: bool) -> Result<Self, CliError> {
        let books = Books::load(store, row)?;
        let changes = changes::of_workflow(&books, Terms { content, ..Terms::default() })?;
        let going_back = changes::going_back(&books, &changes);
        let found = Self {
            missing: inputs::missing(store, row, &going_back)?,
            going_back,
            reused: changes.summary().reused,
            run: reasons(&books, &changes),
        };
        books.trouble()?;
        Ok(found)
    }

    fn show(
        &self,
        ctx: &Context,
        row: &WorkflowRow,
        run_id: Option<RunId>,
        dry_run: bool,
    ) -> Result<(), CliError> {
        if ctx.ui.json_wanted() {
            return ctx.ui.print_json(&ReinitView {
                workflow_id: row.id,
                name: &row.name,
                dry_run,
                run_id,
                reused: self.reused,
                run: &self.run,
                missing_inputs: paths(&self.missing),
            });
        }
        warn(ctx, &self.missing);
        let named = if dry_run { usize::MAX } else { NAMED };
        ctx.ui.print_lines(&self.lines(ctx, row, dry_run, named))?;
        if run_id.is_some() {
            ctx.ui.note(&format!("next: windlass resume {}", row.id));
        }
        Ok(())
    }

    fn lines(&self, ctx: &Context, row: &WorkflowRow, dry_run: bool, named: usize) -> Vec<String> {
        let of = format!("workflow {} ({})", row.id, text::one_line(&row.name));
        if self.run.is_empty() {
            let all = match self.reused {
                1 => "its job stays as it is".to_owned(),
                more => format!("{more} jobs stay as they are"),
            };
            return vec![format!("{of}: nothing has changed; {all}")];
        }
        let verb = if dry_run { "would run" } else { "will run" };
        let jobs = text::count(self.run.len() as u64, "job");
        let mut lines = vec![format!("{of}: {jobs} {verb}, {} reused", self.reused)];
        lines.extend(reason_table(&self.run, named).render(ctx.ui.width_out(), ctx.ui.paint_out()));
        if self.run.len() > named {
            lines.push(format!("… and {}", text::count((self.run.len() - named) as u64, "more job")));
        }
        lines
    }
}

/// For programs.
#[derive(Serialize)]
struct ReinitView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    /// The run that was started; `null` if nothing was.
    run_id: Option<RunId>,
    reused: u32,
    run: &'a [ReasonView],
    missing_inputs: Vec<&'a str>,
}

fn paths(missing: &[FileRow]) -> Vec<&str> {
    missing.iter().map(|file| file.path.as_str()).collect()
}

fn warn(ctx: &Context, missing: &[FileRow]) {
    if !missing.is_empty() {
        ctx.ui.warn(&inputs::words(missing));
    }
}

pub(crate) fn reasons(books: &Books<'_>, changes: &Changes) -> Vec<ReasonView> {
    changes.runs().map(|(job, reason)| ReasonView::new(job, reason, |number| books.name(number))).collect()
}

/// The first so many jobs, each with the one thing because of which it runs.
pub(crate) fn reason_table(run: &[ReasonView], named: usize) -> Table {
    let mut table = Table::new(vec![Column::elastic("JOB"), Column::elastic("RUNS BECAUSE")]);
    for view in run.iter().take(named) {
        table.row(vec![Cell::new(&view.name), Cell::new(&view.reason)]);
    }
    table
}

/// `workflows init`: a workflow is ready as soon as it is created; what can be missing are its inputs.
pub(crate) fn init(ctx: &Context, args: &InitArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let row = select::workflow(&*store, &args.workflow)?;
    let missing = inputs::missing(&*store, &row, &[])?;
    if !args.dry_run && !args.force {
        inputs::refuse(&missing)?;
    }
    if ctx.ui.json_wanted() {
        #[derive(Serialize)]
        struct InitView<'a> {
            workflow_id: WorkflowId,
            name: &'a str,
            dry_run: bool,
            missing_inputs: Vec<&'a str>,
        }
        let view = InitView {
            workflow_id: row.id,
            name: &row.name,
            dry_run: args.dry_run,
            missing_inputs: paths(&missing),
        };
        ctx.ui.print_json(&view)?;
        return Ok(Exit::Success);
    }
    warn(ctx, &missing);
    let state = if missing.is_empty() { "is ready to run" } else { "can run, but not well" };
    ctx.ui.print_line(&format!("workflow {} ({}) {state}", row.id, text::one_line(&row.name)))?;
    ctx.ui.note(&format!("next: windlass resume {}", row.id));
    Ok(Exit::Success)
}
