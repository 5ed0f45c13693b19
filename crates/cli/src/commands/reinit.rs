//! `windlass workflows reinit`: marks jobs whose inputs changed, and their dependents, to run again. Also
//! `workflows init`.

use crate::args::plan_and_reset::{ReinitArgs, WorkflowInitArgs};
use crate::changes::{self, ComparisonSettings, RerunReasonView, StoredJobs, WorkflowChanges};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::missing_inputs;
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use crate::{object_selection, rerun};
use serde::Serialize;
use windlass_store::Store;
use windlass_store::model::{WorkflowFileRow, WorkflowRow};
use windlass_types::{JobId, RunId, WorkflowId};

/// Maximum number of jobs listed after a reset; a dry run lists all.
const MAX_NAMED: usize = 20;

pub(crate) fn run(ctx: &CliContext, args: &ReinitArgs) -> Result<CliExit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let find = |row: &WorkflowRow| ReinitPlan::new(&*store, row, args.content);
    let (run_id, found) = if args.dry_run {
        (None, find(&row)?)
    } else {
        rerun::start_next_run(ctx, &*store, row.id, |row| {
            let found = find(row)?;
            if !args.force {
                missing_inputs::refuse_missing(&found.missing_inputs)?;
            }
            // A workflow that never ran gets no new run, and jobs that a recovery added have no purpose
            // either.
            if row.started_at.is_none() {
                store.rearm_unstarted(row.id, ctx.clock.now())?;
            }
            Ok((found.jobs_to_reset.clone(), found))
        })?
    };
    found.print_plan(ctx, &row, run_id, args.dry_run)?;
    Ok(CliExit::Success)
}

/// The comparison result for a workflow.
struct ReinitPlan {
    jobs_to_reset: Vec<JobId>,
    reused_count: u32,
    reasons_to_run: Vec<RerunReasonView>,
    missing_inputs: Vec<WorkflowFileRow>,
}

impl ReinitPlan {
    fn new(store: &dyn Store, row: &WorkflowRow, content: bool) -> Result<Self, CliError> {
        let jobs_store = StoredJobs::load(store, row)?;
        let changes = changes::compare_workflow(
            &jobs_store,
            ComparisonSettings { compare_contents: content, ..ComparisonSettings::default() },
        )?;
        let going_back = changes::jobs_to_reset(&jobs_store, &changes);
        let found = Self {
            missing_inputs: missing_inputs::find_missing(store, row, &going_back)?,
            jobs_to_reset: going_back,
            reused_count: changes.summary().reused,
            reasons_to_run: rerun_reasons(&jobs_store, &changes),
        };
        jobs_store.check_read_error()?;
        Ok(found)
    }

    fn print_plan(
        &self,
        ctx: &CliContext,
        row: &WorkflowRow,
        run_id: Option<RunId>,
        dry_run: bool,
    ) -> Result<(), CliError> {
        if ctx.ui.wants_json() {
            return ctx.ui.print_json(&ReinitView {
                workflow_id: row.id,
                name: &row.name,
                dry_run,
                run_id,
                reused: self.reused_count,
                run: &self.reasons_to_run,
                missing_inputs: file_paths(&self.missing_inputs),
            });
        }
        warn_missing_inputs(ctx, &self.missing_inputs);
        let named = if dry_run { usize::MAX } else { MAX_NAMED };
        ctx.ui.print_lines(&self.render_lines(ctx, row, dry_run, named))?;
        if run_id.is_some() {
            ctx.ui.print_note(&format!("next: windlass resume {}", row.id));
        }
        Ok(())
    }

    fn render_lines(&self, ctx: &CliContext, row: &WorkflowRow, dry_run: bool, named: usize) -> Vec<String> {
        let of = format!("workflow {} ({})", row.id, text::one_line(&row.name));
        if self.reasons_to_run.is_empty() {
            let all = match self.reused_count {
                1 => "its job is unchanged".to_owned(),
                more => format!("{more} jobs are unchanged"),
            };
            return vec![format!("{of}: nothing has changed; {all}")];
        }
        let verb = if dry_run { "would run" } else { "will run" };
        let jobs = text::render_count(self.reasons_to_run.len() as u64, "job");
        let mut lines = vec![format!("{of}: {jobs} {verb}, {} reused", self.reused_count)];
        lines.extend(
            reason_table(&self.reasons_to_run, named).render(ctx.ui.stdout_width(), ctx.ui.stdout_painter()),
        );
        if self.reasons_to_run.len() > named {
            lines.push(format!(
                "… and {}",
                text::render_count((self.reasons_to_run.len() - named) as u64, "more job")
            ));
        }
        lines
    }
}

/// JSON output.
#[derive(Serialize)]
struct ReinitView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    /// The run that was started; `null` if none.
    run_id: Option<RunId>,
    reused: u32,
    run: &'a [RerunReasonView],
    missing_inputs: Vec<&'a str>,
}

fn file_paths(missing: &[WorkflowFileRow]) -> Vec<&str> {
    missing.iter().map(|file| file.path.as_str()).collect()
}

fn warn_missing_inputs(ctx: &CliContext, missing: &[WorkflowFileRow]) {
    if !missing.is_empty() {
        ctx.ui.print_warning(&missing_inputs::render_missing(missing));
    }
}

pub(crate) fn rerun_reasons(jobs_store: &StoredJobs<'_>, changes: &WorkflowChanges) -> Vec<RerunReasonView> {
    changes
        .jobs_to_run()
        .map(|(job, reason)| RerunReasonView::new(job, reason, |number| jobs_store.name(number)))
        .collect()
}

/// The first jobs, each with its main reason to run.
pub(crate) fn reason_table(run: &[RerunReasonView], named: usize) -> TextTable {
    let mut table = TextTable::new(vec![TableColumn::flexible("JOB"), TableColumn::flexible("REASON")]);
    for view in run.iter().take(named) {
        table.add_row(vec![TableCell::new(&view.name), TableCell::new(&view.reason)]);
    }
    table
}

/// `workflows init`: a workflow is ready as soon as it is created; only its input files can be missing.
pub(crate) fn check_workflow_inputs(ctx: &CliContext, args: &WorkflowInitArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let missing = missing_inputs::find_missing(&*store, &row, &[])?;
    if !args.dry_run && !args.force {
        missing_inputs::refuse_missing(&missing)?;
    }
    if ctx.ui.wants_json() {
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
            missing_inputs: file_paths(&missing),
        };
        ctx.ui.print_json(&view)?;
        return Ok(CliExit::Success);
    }
    warn_missing_inputs(ctx, &missing);
    let state = if missing.is_empty() { "is ready to run" } else { "can run, with warnings" };
    ctx.ui.print_line(&format!("workflow {} ({}) {state}", row.id, text::one_line(&row.name)))?;
    ctx.ui.print_note(&format!("next: windlass resume {}", row.id));
    Ok(CliExit::Success)
}
