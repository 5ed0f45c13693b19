//! `windlass workflows reset-status` and `windlass jobs reset-status`: reset jobs and their dependents to run again.

use crate::args::JobRef;
use crate::args::plan_and_reset::{JobsResetArgs, ResetOptionArgs, ResetStatusArgs};
use crate::changes::{self, ComparisonSettings, StoredJobs};
use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind, CliExit};
use crate::ui::run_summary;
use crate::ui::style::TextTone;
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use crate::{failure_commands, missing_inputs, object_selection, rerun};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::reset::{JobResetState, ResetError, ResetSelection, plan_reset};
use windlass_store::Store;
use windlass_store::model::{JobFilter, LoadedJobs, WorkflowRow};
use windlass_types::{JobId, JobStatus, RunId, StatusCounts, WorkflowId, matching_statuses};

/// Maximum number of jobs listed; the counts cover all.
const MAX_NAMED: usize = 20;
const PAGE_SIZE: u64 = 2000;

pub(crate) fn run(ctx: &CliContext, args: &ResetStatusArgs) -> Result<CliExit, CliError> {
    let store = open_store(ctx, &args.options)?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let jobs = find_jobs(&*store, &row, &args.jobs, "the first argument")?;
    reset_jobs(
        ctx,
        &*store,
        &row,
        &JobResetSelection { jobs, failed_only: args.failed_only, options: &args.options },
    )
}

pub(crate) fn reset_named_jobs(ctx: &CliContext, args: &JobsResetArgs) -> Result<CliExit, CliError> {
    let narrowed = !args.options.status.is_empty() || args.options.return_code.is_some();
    if args.jobs.is_empty() && !narrowed {
        return Err(CliError::user("no jobs selected").with_hint(
            "name jobs, or select them with --status or --return-code; `windlass workflows reset-status` resets all",
        ));
    }
    let store = open_store(ctx, &args.options)?;
    let row = match (&args.workflow_id, args.jobs.first().and_then(|job| job.id)) {
        (Some(workflow), _) => object_selection::find_workflow(&*store, workflow)?,
        (None, Some(job)) => find_workflow_of_job(&*store, job)?,
        (None, None) => object_selection::find_workflow(&*store, &crate::args::WorkflowRef::Last)?,
    };
    let jobs = find_jobs(&*store, &row, &args.jobs, "--workflow-id")?;
    reset_jobs(ctx, &*store, &row, &JobResetSelection { jobs, failed_only: false, options: &args.options })
}

fn open_store(ctx: &CliContext, options: &ResetOptionArgs) -> Result<Arc<dyn Store>, CliError> {
    if options.confirm.dry_run { ctx.open_read() } else { ctx.open_write() }
}

/// `elsewhere` is how the command selects another workflow.
fn find_jobs(
    store: &dyn Store,
    row: &WorkflowRow,
    jobs: &[JobRef],
    elsewhere: &str,
) -> Result<Vec<JobId>, CliError> {
    let id = |job: &JobRef| Ok(object_selection::find_job(store, row, job, elsewhere)?.id);
    jobs.iter().map(id).collect()
}

/// Job ids are unique in a database; the newest workflow is searched first.
fn find_workflow_of_job(store: &dyn Store, job: JobId) -> Result<WorkflowRow, CliError> {
    let mut rows = store.workflows()?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    let Some(newest) = rows.first().cloned() else {
        return object_selection::find_workflow(store, &crate::args::WorkflowRef::Last);
    };
    for row in rows {
        if object_selection::find_job_by_id(store, &row, job)?.is_some() {
            return Ok(row);
        }
    }
    // An unknown name is reported when it is looked up.
    Ok(newest)
}

/// The selected jobs.
struct JobResetSelection<'a> {
    jobs: Vec<JobId>,
    failed_only: bool,
    options: &'a ResetOptionArgs,
}

fn reset_jobs(
    ctx: &CliContext,
    store: &dyn Store,
    row: &WorkflowRow,
    wanted: &JobResetSelection<'_>,
) -> Result<CliExit, CliError> {
    let options = wanted.options;
    let found = find_jobs_to_reset(store, row, wanted)?;
    if options.confirm.dry_run || found.is_empty() {
        found.print_plan(ctx, row, None, options.confirm.dry_run)?;
        return Ok(CliExit::Success);
    }
    failure_commands::refuse_agent_rerun(store, row, |job| found.contains_job(job))?;
    // Only the time spent on completed jobs is lost.
    if found.completed_count() > 0 {
        let work = text::render_count(found.completed_count(), "completed job");
        let what = format!("rerun {work} of workflow {} ({})", row.id, row.name);
        ctx.ui.confirm(&what, options.confirm)?;
    }
    // Repeated under the lock, which excludes other changes.
    let (run_id, found) = rerun::start_next_run(ctx, store, row.id, |row| {
        let found = find_jobs_to_reset(store, row, wanted)?;
        failure_commands::refuse_agent_rerun(store, row, |job| found.contains_job(job))?;
        let again = found.ids();
        if !options.force {
            missing_inputs::refuse_missing(&missing_inputs::find_missing(store, row, &again)?)?;
        }
        Ok((again, found))
    })?;
    if run_id.is_some() {
        failure_commands::record_agent_action(
            ctx,
            store,
            row.id,
            &format!("reset {} to run again", found.render_count()),
        )?;
    }
    found.print_plan(ctx, row, run_id, false)?;
    Ok(CliExit::Success)
}

/// Why a job is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ResetCause {
    Chosen,
    /// It depends on a job that is reset.
    Downstream,
    /// Its inputs changed, or it depends on a job whose inputs changed.
    Changed,
}

struct JobResetPlan {
    /// By job number, with the present state.
    jobs: BTreeMap<u32, (JobId, JobStatus, ResetCause)>,
    names: Vec<String>,
}

fn find_jobs_to_reset(
    store: &dyn Store,
    row: &WorkflowRow,
    wanted: &JobResetSelection<'_>,
) -> Result<JobResetPlan, CliError> {
    let table = store.load_jobs(row.id)?;
    let job_states = load_job_states(store, row, &table, wanted.options.return_code.is_some())?;
    let numbers = wanted.jobs.iter().filter_map(|id| table.ids.binary_search(id).ok());
    let choice = ResetSelection {
        jobs: numbers.map(|number| number as u32).collect(),
        statuses: matching_statuses(&wanted.options.status),
        return_codes: wanted.options.return_code.into_iter().collect(),
        failed_only: wanted.failed_only,
    };
    let reset =
        plan_reset(&job_states, &table.edges, &choice).map_err(|refused| refused_error(&refused, row))?;
    let mut jobs = BTreeMap::new();
    let mut add = |numbers: &[u32], because: ResetCause| {
        for &number in numbers {
            let (id, status) = (table.ids[number as usize], table.status[number as usize]);
            jobs.entry(number).or_insert((id, status, because));
        }
    };
    add(&reset.chosen, ResetCause::Chosen);
    add(&reset.downstream, ResetCause::Downstream);
    if wanted.options.reinitialize {
        let jobs_store = StoredJobs::load(store, row)?;
        let changes = changes::compare_workflow(&jobs_store, ComparisonSettings::default())?;
        let changed: Vec<u32> = changes::jobs_to_reset(&jobs_store, &changes)
            .iter()
            .filter_map(|id| table.ids.binary_search(id).ok().map(|number| number as u32))
            // Jobs that did not complete were selected, or are kept.
            .filter(|number| table.status[*number as usize] == JobStatus::Completed)
            .collect();
        add(&changed, ResetCause::Changed);
    }
    let named: Vec<JobId> = jobs.values().take(MAX_NAMED).map(|(id, ..)| *id).collect();
    Ok(JobResetPlan { names: store.job_names(&named)?, jobs })
}

fn load_job_states(
    store: &dyn Store,
    row: &WorkflowRow,
    table: &LoadedJobs,
    with_codes: bool,
) -> Result<Vec<JobResetState>, CliError> {
    let mut job_states: Vec<JobResetState> =
        table.status.iter().map(|&status| JobResetState { status, return_code: None }).collect();
    if !with_codes {
        return Ok(job_states);
    }
    let mut after = None;
    loop {
        let filter = JobFilter { after, limit: Some(PAGE_SIZE), ..JobFilter::default() };
        let page = store.jobs(row.id, &filter)?;
        let Some(last) = page.last().map(|job| job.id) else { return Ok(job_states) };
        for job in page {
            if let Ok(number) = table.ids.binary_search(&job.id) {
                job_states[number].return_code = job.return_code;
            }
        }
        after = Some(last);
    }
}

fn refused_error(refused: &ResetError, row: &WorkflowRow) -> CliError {
    match refused {
        ResetError::Active(_) => CliError::refused(refused.to_string())
            .with_hint(format!("`windlass cancel {} --wait` cancels them", row.id)),
        ResetError::Cycle(cycle) => CliError::new(CliErrorKind::Spec, cycle.to_string()),
    }
}

/// JSON output.
#[derive(Serialize)]
struct ResetView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    /// The run that was started; `null` if none.
    run_id: Option<RunId>,
    jobs: Vec<ResetJobView>,
}

#[derive(Serialize)]
struct ResetJobView {
    job_id: JobId,
    /// The previous state.
    status: JobStatus,
    because: ResetCause,
}

impl JobResetPlan {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    fn render_count(&self) -> String {
        text::render_count(self.jobs.len() as u64, "job")
    }

    fn completed_count(&self) -> u64 {
        self.jobs.values().filter(|(_, status, _)| *status == JobStatus::Completed).count() as u64
    }

    fn contains_job(&self, job: JobId) -> bool {
        self.jobs.values().any(|(id, ..)| *id == job)
    }

    fn ids(&self) -> Vec<JobId> {
        self.jobs.values().map(|(id, ..)| *id).collect()
    }

    fn print_plan(
        &self,
        ctx: &CliContext,
        row: &WorkflowRow,
        run_id: Option<RunId>,
        dry_run: bool,
    ) -> Result<(), CliError> {
        if ctx.ui.wants_json() {
            let view = |(job_id, status, because)| ResetJobView { job_id, status, because };
            let jobs = self.jobs.values().copied().map(view).collect();
            return ctx.ui.print_json(&ResetView {
                workflow_id: row.id,
                name: &row.name,
                dry_run,
                run_id,
                jobs,
            });
        }
        ctx.ui.print_lines(&self.render_lines(ctx, row, dry_run))?;
        if run_id.is_some() {
            ctx.ui.print_note(&format!("next: windlass resume {}", row.id));
        }
        Ok(())
    }

    fn render_lines(&self, ctx: &CliContext, row: &WorkflowRow, dry_run: bool) -> Vec<String> {
        let of = format!("workflow {} ({})", row.id, text::one_line(&row.name));
        if self.is_empty() {
            return vec![format!("{of}: no matching job has a result; nothing to reset")];
        }
        let paint = ctx.ui.stdout_painter();
        let mut from = StatusCounts::default();
        self.jobs.values().for_each(|(_, status, _)| from.add(*status, 1));
        let verb = if dry_run { "would run" } else { "will run" };
        let counts = run_summary::render_counts(&from, paint);
        let mut lines = vec![format!("{of}: {} {verb} again ({counts} before)", self.render_count())];
        lines.extend(self.render_table().render(ctx.ui.stdout_width(), paint));
        if self.jobs.len() > MAX_NAMED {
            lines.push(format!(
                "… and {}",
                text::render_count((self.jobs.len() - MAX_NAMED) as u64, "more job")
            ));
        }
        lines
    }

    fn render_table(&self) -> TextTable {
        let mut table = TextTable::new(vec![
            TableColumn::number("ID"),
            TableColumn::flexible("NAME"),
            TableColumn::text("STATUS"),
            TableColumn::text("REASON"),
        ]);
        for ((id, status, because), name) in self.jobs.values().zip(&self.names) {
            let because = match because {
                ResetCause::Chosen => "chosen",
                ResetCause::Downstream => "depends on a job that runs again",
                ResetCause::Changed => "its inputs changed",
            };
            table.add_row(vec![
                TableCell::new(id.to_string()),
                TableCell::new(name),
                TableCell::with_tone(status.name(), TextTone::for_status(*status)),
                TableCell::new(because),
            ]);
        }
        table
    }
}
