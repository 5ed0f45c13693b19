//! `windlass reset-status` and `windlass jobs reset-status`: jobs that are to run again, and what was built on them.

use crate::args::JobRef;
use crate::args::plan::{JobsResetArgs, ResetArgs, ResetStatusArgs};
use crate::changes::{self, Books, Terms};
use crate::context::Context;
use crate::error::{CliError, Exit, Kind};
use crate::ui::style::Tone;
use crate::ui::summary;
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use crate::{inputs, orders, rerun, select};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::reset::{Choice, Refused, Standing, plan_reset};
use windlass_store::Store;
use windlass_store::model::{JobFilter, LoadedJobs, WorkflowRow};
use windlass_types::{JobId, JobStatus, RunId, StatusCounts, WorkflowId, matching_statuses};

/// So many jobs are named; the counts say how many there are.
const NAMED: usize = 20;
const PAGE: u64 = 2000;

pub(crate) fn run(ctx: &Context, args: &ResetStatusArgs) -> Result<Exit, CliError> {
    let store = open(ctx, &args.how)?;
    let row = select::workflow(&*store, &args.workflow)?;
    let jobs = named_jobs(&*store, &row, &args.jobs, "the first argument")?;
    reset(ctx, &*store, &row, &Wanted { jobs, failed_only: args.failed_only, how: &args.how })
}

pub(crate) fn run_for_jobs(ctx: &Context, args: &JobsResetArgs) -> Result<Exit, CliError> {
    let narrowed = !args.how.status.is_empty() || args.how.return_code.is_some();
    if args.jobs.is_empty() && !narrowed {
        return Err(CliError::user("no job was named").with_hint(
            "name jobs, or choose them with --status or --return-code; `windlass reset-status` resets all",
        ));
    }
    let store = open(ctx, &args.how)?;
    let row = match (&args.workflow_id, args.jobs.first().and_then(|job| job.id)) {
        (Some(workflow), _) => select::workflow(&*store, workflow)?,
        (None, Some(job)) => workflow_of(&*store, job)?,
        (None, None) => select::workflow(&*store, &crate::args::WorkflowRef::Last)?,
    };
    let jobs = named_jobs(&*store, &row, &args.jobs, "--workflow-id")?;
    reset(ctx, &*store, &row, &Wanted { jobs, failed_only: false, how: &args.how })
}

fn open(ctx: &Context, how: &ResetArgs) -> Result<Arc<dyn Store>, CliError> {
    if how.confirm.dry_run { ctx.open_read() } else { ctx.open_write() }
}

/// `elsewhere` says how the command names another workflow.
fn named_jobs(
    store: &dyn Store,
    row: &WorkflowRow,
    jobs: &[JobRef],
    elsewhere: &str,
) -> Result<Vec<JobId>, CliError> {
    let id = |job: &JobRef| Ok(select::job(store, row, job, elsewhere)?.id);
    jobs.iter().map(id).collect()
}

/// Ids of jobs are unique in a database; the newest workflow is the likeliest.
fn workflow_of(store: &dyn Store, job: JobId) -> Result<WorkflowRow, CliError> {
    let mut rows = store.workflows()?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    let Some(newest) = rows.first().cloned() else {
        return select::workflow(store, &crate::args::WorkflowRef::Last);
    };
    for row in rows {
        if select::job_by_id(store, &row, job)?.is_some() {
            return Ok(row);
        }
    }
    // Whether it is a name there, or wrong, is told when it is looked up.
    Ok(newest)
}

/// Which jobs are asked for.
struct Wanted<'a> {
    jobs: Vec<JobId>,
    failed_only: bool,
    how: &'a ResetArgs,
}

fn reset(ctx: &Context, store: &dyn Store, row: &WorkflowRow, wanted: &Wanted<'_>) -> Result<Exit, CliError> {
    let how = wanted.how;
    let found = find(store, row, wanted)?;
    if how.confirm.dry_run || found.is_empty() {
        found.show(ctx, row, None, how.confirm.dry_run)?;
        return Ok(Exit::Success);
    }
    orders::refuse_agents(store, row, |job| found.has(job))?;
    // Nothing is lost by it but the time that completed work took.
    if found.completed() > 0 {
        let work = text::count(found.completed(), "completed job");
        let what = format!("run {work} of workflow {} ({}) again", row.id, row.name);
        ctx.ui.confirm(&what, how.confirm)?;
    }
    // Once more, now that nobody else can change anything.
    let (run_id, found) = rerun::begin(ctx, store, row.id, |row| {
        let found = find(store, row, wanted)?;
        orders::refuse_agents(store, row, |job| found.has(job))?;
        let again = found.ids();
        if !how.force {
            inputs::refuse(&inputs::missing(store, row, &again)?)?;
        }
        Ok((again, found))
    })?;
    if run_id.is_some() {
        orders::note_agent(ctx, store, row.id, &format!("{} run again", found.count()))?;
    }
    found.show(ctx, row, run_id, false)?;
    Ok(Exit::Success)
}

/// Why a job goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Because {
    Chosen,
    /// It was built on one that goes back.
    Downstream,
    /// Its inputs changed, or it depends on one whose inputs did.
    Changed,
}

struct Found {
    /// By number, with the state in which it is.
    jobs: BTreeMap<u32, (JobId, JobStatus, Because)>,
    names: Vec<String>,
}

fn find(store: &dyn Store, row: &WorkflowRow, wanted: &Wanted<'_>) -> Result<Found, CliError> {
    let table = store.load_jobs(row.id)?;
    let standings = standings(store, row, &table, wanted.how.return_code.is_some())?;
    let numbers = wanted.jobs.iter().filter_map(|id| table.ids.binary_search(id).ok());
    let choice = Choice {
        jobs: numbers.map(|number| number as u32).collect(),
        statuses: matching_statuses(&wanted.how.status),
        return_codes: wanted.how.return_code.into_iter().collect(),
        failed_only: wanted.failed_only,
    };
    let reset = plan_reset(&standings, &table.edges, &choice).map_err(|refused| refusal(&refused, row))?;
    let mut jobs = BTreeMap::new();
    let mut add = |numbers: &[u32], because: Because| {
        for &number in numbers {
            let (id, status) = (table.ids[number as usize], table.status[number as usize]);
            jobs.entry(number).or_insert((id, status, because));
        }
    };
    add(&reset.chosen, Because::Chosen);
    add(&reset.downstream, Because::Downstream);
    if wanted.how.reinitialize {
        let books = Books::load(store, row)?;
        let changes = changes::of_workflow(&books, Terms::default())?;
        let changed: Vec<u32> = changes::going_back(&books, &changes)
            .iter()
            .filter_map(|id| table.ids.binary_search(id).ok().map(|number| number as u32))
            // What did not end well was chosen, or is to stay.
            .filter(|number| table.status[*number as usize] == JobStatus::Completed)
            .collect();
        add(&changed, Because::Changed);
    }
    let named: Vec<JobId> = jobs.values().take(NAMED).map(|(id, ..)| *id).collect();
    Ok(Found { names: store.job_names(&named)?, jobs })
}

fn standings(
    store: &dyn Store,
    row: &WorkflowRow,
    table: &LoadedJobs,
    with_codes: bool,
) -> Result<Vec<Standing>, CliError> {
    let mut standings: Vec<Standing> =
        table.status.iter().map(|&status| Standing { status, return_code: None }).collect();
    if !with_codes {
        return Ok(standings);
    }
    let mut after = None;
    loop {
        let filter = JobFilter { after, limit: Some(PAGE), ..JobFilter::default() };
        let page = store.jobs(row.id, &filter)?;
        let Some(last) = page.last().map(|job| job.id) else { return Ok(standings) };
        for job in page {
            if let Ok(number) = table.ids.binary_search(&job.id) {
                standings[number].return_code = job.return_code;
            }
        }
        after = Some(last);
    }
}

fn refusal(refused: &Refused, row: &WorkflowRow) -> CliError {
    match refused {
        Refused::Active(_) => CliError::refused(refused.to_string())
            .with_hint(format!("`windlass cancel {} --wait` ends them", row.id)),
        Refused::Cycle(cycle) => CliError::new(Kind::Spec, cycle.to_string()),
    }
}

/// For programs.
#[derive(Serialize)]
struct ResetView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    /// The run that was started; `null` if nothing was.
    run_id: Option<RunId>,
    jobs: Vec<ResetJobView>,
}

#[derive(Serialize)]
struct ResetJobView {
    job_id: JobId,
    /// As it was.
    status: JobStatus,
    because: Because,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    fn count(&self) -> String {
        text::count(self.jobs.len() as u64, "job")
    }

    fn completed(&self) -> u64 {
        self.jobs.values().filter(|(_, status, _)| *status == JobStatus::Completed).count() as u64
    }

    fn has(&self, job: JobId) -> bool {
        self.jobs.values().any(|(id, ..)| *id == job)
    }

    fn ids(&self) -> Vec<JobId> {
        self.jobs.values().map(|(id, ..)| *id).collect()
    }

    fn show(
        &self,
        ctx: &Context,
        row: &WorkflowRow,
        run_id: Option<RunId>,
        dry_run: bool,
    ) -> Result<(), CliError> {
        if ctx.ui.json_wanted() {
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
        ctx.ui.print_lines(&self.lines(ctx, row, dry_run))?;
        if run_id.is_some() {
            ctx.ui.note(&format!("next: windlass resume {}", row.id));
        }
        Ok(())
    }

    fn lines(&self, ctx: &Context, row: &WorkflowRow, dry_run: bool) -> Vec<String> {
        let of = format!("workflow {} ({})", row.id, text::one_line(&row.name));
        if self.is_empty() {
            return vec![format!("{of}: there is no such job that ran; nothing is to be reset")];
        }
        let paint = ctx.ui.paint_out();
        let mut from = StatusCounts::default();
        self.jobs.values().for_each(|(_, status, _)| from.add(*status, 1));
        let verb = if dry_run { "would run" } else { "will run" };
        let counts = summary::counts_line(&from, paint);
        let mut lines = vec![format!("{of}: {} {verb} again ({counts} before)", self.count())];
        lines.extend(self.table().render(ctx.ui.width_out(), paint));
        if self.jobs.len() > NAMED {
            lines.push(format!("… and {}", text::count((self.jobs.len() - NAMED) as u64, "more job")));
        }
        lines
    }

    fn table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::number("ID"),
            Column::elastic("NAME"),
            Column::text("WAS"),
            Column::text("BECAUSE"),
        ]);
        for ((id, status, because), name) in self.jobs.values().zip(&self.names) {
            let because = match because {
                Because::Chosen => "chosen",
                Because::Downstream => "built on one that runs again",
                Because::Changed => "its inputs changed",
            };
            table.row(vec![
                Cell::new(id.to_string()),
                Cell::new(name),
                Cell::toned(status.name(), Tone::of(*status)),
                Cell::new(because),
            ]);
        }
        table
    }
}
