//! The next run of a workflow: which of its jobs go back to the start. Decided and noted while nobody else runs it;
//! running it is another command.

use crate::args::MachineArgs;
use crate::changes::{self, Books, Changes, Terms};
use crate::context::Context;
use crate::drive::{Failed, database};
use crate::error::{CliError, Kind};
use crate::inputs;
use crate::local::LocalHost;
use crate::rules;
use crate::strays;
use windlass_core::reset::{Choice, Standing, plan_reset};
use windlass_engine::observe::{AttemptEnd, Observer, Progress};
use windlass_engine::take_over;
use windlass_store::Store;
use windlass_store::lock::{Lock, LockGuard};
use windlass_store::model::{DataFilter, WorkflowRow};
use windlass_types::{JobId, JobStatus, RunId, WorkflowId};

/// Has `choose` say which jobs go back, and starts the next run with them. `None` if there are none.
///
/// What a dead process left running is first made sure to be dead, so that what is decided on stands still.
pub(crate) fn begin<T>(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    choose: impl FnOnce(&WorkflowRow) -> Result<(Vec<JobId>, T), CliError>,
) -> Result<(Option<RunId>, T), CliError> {
    begin_from(ctx, store, workflow, &MachineArgs::default(), choose)
}

/// The same; what was said of this machine also says what is done about workers of earlier processes.
fn begin_from<T>(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
    choose: impl FnOnce(&WorkflowRow) -> Result<(Vec<JobId>, T), CliError>,
) -> Result<(Option<RunId>, T), CliError> {
    // A server refuses while a worker holds a job, and sees to dead ones itself.
    let served = ctx.server()?.is_some();
    let lock = if served { None } else { Some(store.lock(Lock::Workflow(workflow), ctx.clock.now())?) };
    let row = match &lock {
        Some(lock) => clear_up(ctx, store, lock, workflow, machine)?,
        None => row(store, workflow)?,
    };
    let (again, found) = choose(&row)?;
    if again.is_empty() {
        return Ok((None, found));
    }
    Ok((Some(store.begin_next_run(workflow, &again, ctx.clock.now())?), found))
}

/// Makes sure that nothing of a workflow runs whose lock we hold. How it stands then.
pub(crate) fn clear_up(
    ctx: &Context,
    store: &dyn Store,
    _held: &LockGuard,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<WorkflowRow, CliError> {
    strays::refuse(store, workflow, machine.take_over)?;
    let mut host = LocalHost::new(machine, &database(store)?);
    let classifier = rules::of_settings(ctx)?;
    take_over(store, &mut host, &mut Notices(ctx), &row(store, workflow)?, classifier, ctx.clock.now())?;
    row(store, workflow)
}

/// Starts the next run of a workflow if what its completed jobs were made from has changed since: input files, data, or
/// outputs that are gone. Says what; `None` if nothing has.
///
/// Jobs that ended badly stay as they are unless they are to run again or stand behind what does.
pub(crate) fn begin_changed(
    ctx: &Context,
    store: &dyn Store,
    row: &WorkflowRow,
    terms: Terms<'_>,
    failed: Failed,
    machine: &MachineArgs,
) -> Result<Option<String>, CliError> {
    let any = DataFilter { limit: Some(1), ..DataFilter::default() };
    let nothing_done = row.counts.get(JobStatus::Completed) == 0;
    if nothing_done || (row.file_count == 0 && store.user_data(row.id, &any)?.is_empty()) {
        return Ok(None);
    }
    let books = Books::load(store, row)?;
    if outdated(&books, &changes::of_workflow(&books, terms)?).is_empty() {
        return Ok(None);
    }
    // Once more, now that nobody else can change anything.
    let (run, news) = begin_from(ctx, store, row.id, machine, |row| {
        let books = Books::load(store, row)?;
        let changes = changes::of_workflow(&books, terms)?;
        let again = going_back(&books, &changes, failed)?;
        if !machine.force {
            inputs::refuse(&inputs::missing(store, row, &again)?)?;
        }
        let news = changes::headline(&changes, |number| books.name(number));
        books.trouble()?;
        Ok((again, news))
    })?;
    Ok(run.map(|_| news))
}

/// Completed jobs whose work does not hold any more, by number.
fn outdated(books: &Books<'_>, changes: &Changes) -> Vec<u32> {
    let numbers = changes.runs().map(|(number, _)| number);
    numbers.filter(|number| books.status(*number) == JobStatus::Completed).collect()
}

fn going_back(books: &Books<'_>, changes: &Changes, failed: Failed) -> Result<Vec<JobId>, CliError> {
    let jobs = outdated(books, changes);
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    if failed == Failed::RunAgain {
        return Ok(changes::going_back(books, changes));
    }
    let table = books.table();
    let standing = |&status: &JobStatus| Standing { status, return_code: None };
    let standings: Vec<Standing> = table.status.iter().map(standing).collect();
    let reset = plan_reset(&standings, &table.edges, &Choice { jobs, ..Choice::default() });
    let reset = reset.map_err(|refused| CliError::new(Kind::Refused, refused.to_string()))?;
    Ok(reset.all().into_iter().map(|number| books.id(number)).collect())
}

pub(crate) fn row(store: &dyn Store, workflow: WorkflowId) -> Result<WorkflowRow, CliError> {
    store.workflow(workflow)?.ok_or(CliError::from(windlass_store::Error::NoSuchWorkflow(workflow)))
}

/// Passes on what is found out about earlier processes.
struct Notices<'a>(&'a Context);

impl Observer for Notices<'_> {
    fn progress(&mut self, _progress: &Progress) {}

    fn attempt_ended(&mut self, _end: &AttemptEnd<'_>) {}

    fn notice(&mut self, text: &str) {
        self.0.ui.note(text);
    }
}
