//! The next run of a workflow: decides and stores which jobs are reset, under the lock of the workflow. Running
//! it is another step.

use crate::args::MachineArgs;
use crate::changes::{self, ComparisonSettings, StoredJobs, WorkflowChanges};
use crate::classification_rules;
use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind};
use crate::local_run::{EarlierFailuresPolicy, worker_database};
use crate::local_worker::LocalWorkerHost;
use crate::missing_inputs;
use crate::orphaned_workers;
use windlass_core::reset::{JobResetState, ResetSelection, plan_reset};
use windlass_scheduler::recover_workflow;
use windlass_scheduler::run_observer::{AttemptEndNotice, RunObserver, RunProgress};
use windlass_store::Store;
use windlass_store::lock::{LockGuard, LockScope};
use windlass_store::model::{DataFilter, WorkflowRow};
use windlass_types::{JobId, JobStatus, RunId, WorkflowId};

/// Starts the next run with the jobs that `choose` returns. `None` if there are none.
///
/// Processes left by a dead run are ended first, so that the state does not change while `choose` decides.
pub(crate) fn start_next_run<T>(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    choose: impl FnOnce(&WorkflowRow) -> Result<(Vec<JobId>, T), CliError>,
) -> Result<(Option<RunId>, T), CliError> {
    start_next_run_from(ctx, store, workflow, &MachineArgs::default(), choose)
}

/// The same with machine options, which also determine how workers of earlier processes are handled.
fn start_next_run_from<T>(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
    choose: impl FnOnce(&WorkflowRow) -> Result<(Vec<JobId>, T), CliError>,
) -> Result<(Option<RunId>, T), CliError> {
    // A server refuses while a worker holds a job, and handles dead workers itself.
    let served = ctx.server()?.is_some();
    let lock = if served { None } else { Some(store.lock(LockScope::Workflow(workflow), ctx.clock.now())?) };
    let row = match &lock {
        Some(lock) => ensure_nothing_runs(ctx, store, lock, workflow, machine)?,
        None => load_workflow_row(store, workflow)?,
    };
    let (again, found) = choose(&row)?;
    if again.is_empty() {
        return Ok((None, found));
    }
    Ok((Some(store.begin_next_run(workflow, &again, ctx.clock.now())?), found))
}

/// Makes sure that nothing of a locked workflow runs, and returns its present state.
pub(crate) fn ensure_nothing_runs(
    ctx: &CliContext,
    store: &dyn Store,
    _held: &LockGuard,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<WorkflowRow, CliError> {
    orphaned_workers::refuse_orphaned_workers(store, workflow, machine.take_over)?;
    let mut host = LocalWorkerHost::new(machine, &worker_database(store)?);
    let classifier = classification_rules::configured_classifier(ctx)?;
    recover_workflow(
        store,
        &mut host,
        &mut NoticePrinter(ctx),
        &load_workflow_row(store, workflow)?,
        classifier,
        ctx.clock.now(),
    )?;
    load_workflow_row(store, workflow)
}

/// Starts the next run of a workflow if the input files or user data of completed jobs have changed, or outputs
/// are missing. Returns a description; `None` if nothing changed.
///
/// Failed and canceled jobs keep their states unless they are to run again or depend on jobs that do.
pub(crate) fn start_next_run_if_changed(
    ctx: &CliContext,
    store: &dyn Store,
    row: &WorkflowRow,
    terms: ComparisonSettings<'_>,
    failed: EarlierFailuresPolicy,
    machine: &MachineArgs,
) -> Result<Option<String>, CliError> {
    let any = DataFilter { limit: Some(1), ..DataFilter::default() };
    let nothing_done = row.counts.get(JobStatus::Completed) == 0;
    if nothing_done || (row.file_count == 0 && store.user_data(row.id, &any)?.is_empty()) {
        return Ok(None);
    }
    let jobs_store = StoredJobs::load(store, row)?;
    if outdated_jobs(&jobs_store, &changes::compare_workflow(&jobs_store, terms)?).is_empty() {
        return Ok(None);
    }
    // Repeated under the lock, which excludes other changes.
    let (run, headline) = start_next_run_from(ctx, store, row.id, machine, |row| {
        let jobs_store = StoredJobs::load(store, row)?;
        let changes = changes::compare_workflow(&jobs_store, terms)?;
        let again = jobs_to_reset(&jobs_store, &changes, failed)?;
        if !machine.force {
            missing_inputs::refuse_missing(&missing_inputs::find_missing(store, row, &again)?)?;
        }
        let headline = changes::render_headline(&changes, |number| jobs_store.name(number));
        jobs_store.check_read_error()?;
        Ok((again, headline))
    })?;
    Ok(run.map(|_| headline))
}

/// Completed jobs whose results are outdated, by number.
fn outdated_jobs(jobs_store: &StoredJobs<'_>, changes: &WorkflowChanges) -> Vec<u32> {
    let numbers = changes.jobs_to_run().map(|(number, _)| number);
    numbers.filter(|number| jobs_store.status(*number) == JobStatus::Completed).collect()
}

fn jobs_to_reset(
    jobs_store: &StoredJobs<'_>,
    changes: &WorkflowChanges,
    failed: EarlierFailuresPolicy,
) -> Result<Vec<JobId>, CliError> {
    let jobs = outdated_jobs(jobs_store, changes);
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    if failed == EarlierFailuresPolicy::RunAgain {
        return Ok(changes::jobs_to_reset(jobs_store, changes));
    }
    let table = jobs_store.loaded_jobs();
    let to_reset_state = |&status: &JobStatus| JobResetState { status, return_code: None };
    let job_states: Vec<JobResetState> = table.status.iter().map(to_reset_state).collect();
    let reset = plan_reset(&job_states, &table.edges, &ResetSelection { jobs, ..ResetSelection::default() });
    let reset = reset.map_err(|refused| CliError::new(CliErrorKind::Refused, refused.to_string()))?;
    Ok(reset.all_jobs().into_iter().map(|number| jobs_store.id(number)).collect())
}

pub(crate) fn load_workflow_row(store: &dyn Store, workflow: WorkflowId) -> Result<WorkflowRow, CliError> {
    store.workflow(workflow)?.ok_or(CliError::from(windlass_store::StoreError::NoSuchWorkflow(workflow)))
}

/// Prints notices about earlier processes.
struct NoticePrinter<'a>(&'a CliContext);

impl RunObserver for NoticePrinter<'_> {
    fn on_progress(&mut self, _progress: &RunProgress) {}

    fn on_attempt_ended(&mut self, _end: &AttemptEndNotice<'_>) {}

    fn on_notice(&mut self, text: &str) {
        self.0.ui.print_note(text);
    }
}
