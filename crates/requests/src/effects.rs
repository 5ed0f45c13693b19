//! The effects of decisions. Each is idempotent; its result is input for the next decision.

mod input_accounting;
mod invalidation;
mod outputs;
mod round_input;

use crate::backend::{DagFileParameters, RoleRetrySettings, RunContext, RunSubmission, StopResult};
use crate::catalog::{CatalogError, CatalogErrorKind};
use crate::context::RequestReconcilerContext;
use crate::derived_names;
use crate::manifests::{self, ManifestTemplate, ManifestWriteError};
use crate::planned_run_units::PlannedRunUnits;
use crate::round_measurements;
use round_input::RoundInput;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::adaptive::{self, RoundRecord};
use windlass_core::requests::lifecycle::{
    EffectFailure, LifecycleEffect, LifecycleEvent, PlannedRound, PlannedRun,
};
use windlass_core::requests::rows::{
    BackendRunRef, BlockRow, RequestFileCounts, RequestOverrides, RequestProgress, RequestRow, RoundExtent,
    RunRow,
};
use windlass_core::requests::{RequestView, rounds};
use windlass_core::round_plan::{self, PlanBlock, PlanInput, PlanProblem, PlanProblemCause, RoundStart};
use windlass_store::model::RequestRunFilter;
use windlass_types::SystemClock;
use windlass_types::payload::check_name;
use windlass_types::requests::{Request, RequestRunStatus};

/// Effects with the same key are performed one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EffectKey {
    pub(crate) request: String,
    pub(crate) subject: EffectSubject,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EffectSubject {
    Plan,
    Run,
    Block(String),
    /// Of no request: alerts.
    Alerts,
}

impl EffectKey {
    pub(crate) fn for_effect(request: &str, effect: &LifecycleEffect) -> Self {
        let subject = match effect {
            LifecycleEffect::Import | LifecycleEffect::Plan { .. } | LifecycleEffect::WriteManifest => {
                EffectSubject::Plan
            }
            LifecycleEffect::Submit { .. }
            | LifecycleEffect::Resume { .. }
            | LifecycleEffect::Stop { .. }
            | LifecycleEffect::Settle { .. }
            | LifecycleEffect::Pause { .. }
            | LifecycleEffect::Unpause { .. }
            | LifecycleEffect::AvoidSites { .. }
            | LifecycleEffect::Prioritize { .. } => EffectSubject::Run,
            LifecycleEffect::Step(step) => EffectSubject::Block(step.block.clone()),
        };
        Self { request: request.to_owned(), subject }
    }
}

/// The rows that an effect needs, as of the decision.
#[derive(Clone, Debug)]
pub(crate) struct EffectRows {
    pub(crate) name: String,
    pub(crate) requestor: String,
    /// Changes by operators to the execution.
    pub(crate) overrides: RequestOverrides,
    pub(crate) priority: i64,
    pub(crate) process: Option<RequestProgress>,
    pub(crate) run: Option<RunRow>,
    /// Of a step.
    pub(crate) block: Option<BlockRow>,
}

impl EffectRows {
    pub(crate) fn from_view(view: &RequestView, effect: &LifecycleEffect) -> Self {
        let block = match effect {
            LifecycleEffect::Step(step) => view.find_block(&step.block).cloned(),
            _ => None,
        };
        Self {
            name: view.row.request.request_name.clone(),
            requestor: view.row.request.requestor.clone(),
            overrides: view.row.overrides.clone(),
            priority: view.row.request.priority,
            process: view.process.clone(),
            run: view.run.clone(),
            block,
        }
    }
}

/// The result of an effect.
#[derive(Debug)]
pub(crate) struct EffectOutcome {
    pub(crate) tag: String,
    pub(crate) events: Vec<LifecycleEvent>,
    /// It is not repeated before this time, even if it is still due.
    pub(crate) min_delay: Duration,
}

/// Minimum delay before a repetition, which prevents a busy loop.
const MIN_REPEAT_DELAY: Duration = Duration::from_millis(50);
/// Time for a stop to take effect; then it is requested again.
const STOP_REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Performs the effect and returns its result.
pub(crate) fn perform_effect(
    context: &RequestReconcilerContext,
    effect: &LifecycleEffect,
    rows: &EffectRows,
) -> EffectOutcome {
    let retry_after = context.options.decision_settings.retry_after;
    let done = |events, pause| EffectOutcome { tag: effect.effect_key(), events, min_delay: pause };
    let or_failure =
        |outcome: Result<LifecycleEvent, EffectFailure>,
         failure_event: &dyn Fn(EffectFailure) -> LifecycleEvent| match outcome {
            Ok(event) => done(vec![event], MIN_REPEAT_DELAY),
            Err(why) => done(vec![failure_event(why)], retry_after),
        };
    match effect {
        LifecycleEffect::Import => or_failure(
            import_request(context, rows).map(|made| LifecycleEvent::Imported(Box::new(made))),
            &LifecycleEvent::ImportFailed,
        ),
        LifecycleEffect::Plan { round } => {
            let planned = plan_next_round(context, rows, *round).map(|planned| {
                planned.map_or(LifecycleEvent::NothingToPlan, |planned| {
                    LifecycleEvent::Planned(Box::new(planned))
                })
            });
            or_failure(planned, &LifecycleEvent::PlanFailed)
        }
        LifecycleEffect::Submit { run } | LifecycleEffect::Resume { run } => {
            or_failure(submit_run(context, rows, run), &|problem| LifecycleEvent::SubmitFailed {
                run: run.clone(),
                failure: problem,
            })
        }
        LifecycleEffect::Stop { run, reason } => match stop_run(context, rows, run, reason) {
            Ok(events) => done(events, STOP_REPEAT_INTERVAL),
            Err(problem) => {
                tracing::warn!(request = rows.name, run, reason = problem.reason, "cannot stop a run yet");
                done(vec![LifecycleEvent::StopFailed { run: run.clone(), failure: problem }], retry_after)
            }
        },
        LifecycleEffect::Pause { run } => {
            match apply_restriction(context, rows, run, RunRestriction::Pause) {
                // Repeated in case the request was lost.
                Ok(()) => done(Vec::new(), STOP_REPEAT_INTERVAL),
                Err(problem) => postpone_effect(done(Vec::new(), retry_after), rows, &problem),
            }
        }
        LifecycleEffect::Unpause { run } => match apply_restriction(context, rows, run, RunRestriction::None)
        {
            Ok(()) => done(vec![LifecycleEvent::Unpaused { run: run.clone() }], MIN_REPEAT_DELAY),
            Err(problem) => postpone_effect(done(Vec::new(), retry_after), rows, &problem),
        },
        LifecycleEffect::AvoidSites { run } => {
            match apply_restriction(context, rows, run, RunRestriction::Sites) {
                Ok(()) => done(Vec::new(), MIN_REPEAT_DELAY),
                Err(problem) => postpone_effect(done(Vec::new(), retry_after), rows, &problem),
            }
        }
        LifecycleEffect::Prioritize { run, priority } => match update_priority(context, rows, run) {
            Ok(()) => done(
                vec![LifecycleEvent::Prioritized { run: run.clone(), priority: *priority }],
                MIN_REPEAT_DELAY,
            ),
            Err(problem) => postpone_effect(done(Vec::new(), retry_after), rows, &problem),
        },
        LifecycleEffect::Settle { round, run } => {
            let settled = input_accounting::perform_input_accounting(context, rows, *round);
            let settled =
                settled.map(|files| LifecycleEvent::Settled { round: *round, run: run.clone(), files });
            or_failure(settled, &|problem| LifecycleEvent::SettleFailed { round: *round, failure: problem })
        }
        LifecycleEffect::WriteManifest => {
            let written = invalidation::write_invalidation_manifest(context, rows);
            let written =
                written.map(|path| LifecycleEvent::ManifestWritten { path: path.display().to_string() });
            or_failure(written, &|problem| LifecycleEvent::ManifestFailed { reason: problem.reason })
        }
        LifecycleEffect::Step(step) => {
            done(vec![outputs::perform_output_step(context, step, rows)], MIN_REPEAT_DELAY)
        }
    }
}

fn transient_failure(error: impl std::fmt::Display) -> EffectFailure {
    EffectFailure { reason: error.to_string(), is_retryable: true }
}

fn permanent_failure(error: impl std::fmt::Display) -> EffectFailure {
    EffectFailure { reason: error.to_string(), is_retryable: false }
}

fn store_failure(error: &windlass_store::StoreError) -> EffectFailure {
    EffectFailure { reason: format!("cannot use the database: {error}"), is_retryable: true }
}

fn catalog_failure(error: CatalogError) -> EffectFailure {
    EffectFailure { is_retryable: error.fault == CatalogErrorKind::Transient, reason: error.detail }
}

/// The request with its whole document.
fn load_request(context: &RequestReconcilerContext, name: &str) -> Result<RequestRow, EffectFailure> {
    let row = context.database.request(name).map_err(|error| store_failure(&error))?;
    row.ok_or_else(|| permanent_failure("the request does not exist"))
}

/// What can be checked at once: that its input exists, and that its programs are valid.
fn import_request(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
) -> Result<RequestProgress, EffectFailure> {
    let row = load_request(context, &rows.name)?;
    let (request, created_at) = (row.request, row.created_at);
    check_name(&request.request_name).map_err(permanent_failure)?;
    if let Some(dataset) = &request.input_dataset
        && !context.catalog.has_dataset(dataset).map_err(catalog_failure)?
    {
        return Err(permanent_failure(format!("input_dataset: dataset {dataset} is not in the catalog")));
    }
    ManifestTemplate::new(&request, "0", &std::collections::BTreeMap::new()).map_err(permanent_failure)?;
    let now = SystemClock.now();
    Ok(RequestProgress {
        uuid: windlass_core::requests::derived_uuids::process_uuid(&request.request_name, created_at),
        request_name: request.request_name.clone(),
        round: 0,
        next_first_event: request.generation.map_or(1, |generation| generation.first_event),
        next_first_lumi: request.generation.map_or(1, |generation| generation.first_lumi),
        next_block: 0,
        more_input: false,
        excluded: 0,
        settled: 0,
        files: RequestFileCounts::default(),
        extent: RoundExtent::default(),
        events_produced: 0,
        events_of_round: 0,
        empty_rounds: 0,
        category_throttles: context.options.plan_settings.throttles.clone(),
        step_metrics: None,
        created_at: now,
        updated_at: now,
    })
}

/// Plans a round and writes its directory. `None`: there is nothing left to do.
fn plan_next_round(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
    round: u32,
) -> Result<Option<PlannedRound>, EffectFailure> {
    let row = load_request(context, &rows.name)?;
    let request = row.request;
    check_name(&request.request_name).map_err(permanent_failure)?;
    let process = rows.process.as_ref().ok_or_else(|| permanent_failure("the request has no process"))?;
    let places = context.usable_sites(&request.request_name).map_err(|error| store_failure(&error))?;
    let input = RoundInput::load(context, &request, &row.overrides, process, round)?;
    if input.is_partly_processed() && input.remaining.files.is_empty() {
        return Ok(None);
    }
    let wanted = request.generation.map(|all| all.events.saturating_sub(process.events_produced));
    if wanted == Some(0) {
        return Ok(None);
    }
    let mut experience = round_measurements::experience_before(process, rows.run.as_ref(), round);
    let done = if wanted.is_some() { process.events_produced } else { input.counts.processed };
    let left = input.remaining.files.len() as u64;
    let size = adaptive::decide_round_size(
        &context.options.plan_settings.adaptive,
        request.adaptive,
        Some(&experience),
    );
    let plan = match round_plan::plan_round(&PlanInput {
        request: &request,
        files: &input.remaining.files,
        attempted: &input.remaining.attempted,
        remaining: &input.remaining.left,
        sites: &places.usable,
        settings: &context.options.plan_settings,
        start: RoundStart {
            first_event: process.next_first_event,
            first_lumi: process.next_first_lumi,
            first_block: process.next_block,
        },
        events_wanted: wanted,
        memory_mb: row.overrides.memory_mb,
        time_per_event: row.overrides.time_per_event_sec,
        metrics: Some(&experience),
        max_units: size.map(|size| size.units),
        max_jobs: size.and_then(|size| size.jobs),
        until_step: size.and_then(|_| rounds::amount_until_next_step(&request, done, left)),
    }) {
        Ok(plan) => plan,
        Err(faults) if input.is_partly_processed() && is_input_exhausted(&faults) => return Ok(None),
        Err(faults) => return Err(EffectFailure::from_plan_problems(&faults)),
    };
    if plan.units().len() == 0 {
        return Ok(None);
    }
    let uuid = derived_names::run_uuid(&process.uuid, round);
    let common = ManifestTemplate::new(&request, &uuid, &places.storage_paths).map_err(permanent_failure)?;
    let directory = run_directory(context, &request.request_name, &uuid)?;
    let outline = manifests::write_manifests(&directory, &plan, &common).map_err(write_failure)?;
    let backend = context.backends.choose_backend(|| list_active_runs(context))?;
    let place = PlannedRun {
        uuid,
        submit_dir: directory.to_string_lossy().into_owned(),
        backend,
        totals: outline.totals(),
    };
    let name_block =
        |block: &PlanBlock<'_>| derived_names::block_uuid(&process.uuid, block.dataset, block.index);
    let mut planned = PlannedRound::new(process, round, &plan, place, name_block, SystemClock.now());
    planned.process.files = input.counts;
    planned.process.excluded = row.overrides.excluded_files.len() as u64;
    planned.process.extent = rounds::round_extent(&request, &planned.process, &plan);
    experience.record_round(RoundRecord { round, asked: plan.asked, measured: None });
    planned.process.step_metrics = Some(serde_json::to_value(experience).map_err(permanent_failure)?);
    write_backend_files(context, rows, &request, &planned.run, &outline)?;
    manifests::write_outline(&directory, &outline).map_err(write_failure)?;
    Ok(Some(planned))
}

fn list_active_runs(context: &RequestReconcilerContext) -> Result<Vec<RunRow>, EffectFailure> {
    let status = vec![
        RequestRunStatus::Ready,
        RequestRunStatus::Submitted,
        RequestRunStatus::Running,
        RequestRunStatus::Halted,
    ];
    let filter = RequestRunFilter { status, ..RequestRunFilter::default() };
    context.database.request_runs(&filter).map_err(|error| store_failure(&error))
}

/// The files of the backend in the directory of a run. The engine gets its jobs at submission.
fn write_backend_files(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
    request: &Request,
    run: &RunRow,
    outline: &PlannedRunUnits,
) -> Result<(), EffectFailure> {
    match run.backend {
        BackendRunRef::Engine { .. } => Ok(()),
        BackendRunRef::Htcondor { .. } => {
            let parameters = DagFileParameters {
                directory: Path::new(&run.submit_dir),
                run: &run.uuid,
                workflow: &run.process,
                submission: &run_submission(context, rows, run),
                banned_sites: &context
                    .closed_sites(&request.request_name)
                    .map_err(|error| store_failure(&error))?,
            };
            context.backends.condor.write_dag_files(&parameters, outline)
        }
    }
}

fn write_failure(error: ManifestWriteError) -> EffectFailure {
    match error {
        ManifestWriteError::Io { .. } => transient_failure(error),
        ManifestWriteError::InvalidManifest { .. } => permanent_failure(error),
    }
}

/// The only fault is that nothing of the input is left.
fn is_input_exhausted(faults: &[PlanProblem]) -> bool {
    faults.iter().all(|fault| fault.cause == PlanProblemCause::Nothing)
}

fn run_directory(
    context: &RequestReconcilerContext,
    request: &str,
    run: &str,
) -> Result<PathBuf, EffectFailure> {
    // Jobs on other machines get this path.
    let root = std::path::absolute(&context.options.submit_root).map_err(transient_failure)?;
    Ok(root.join(request).join(run))
}

/// Submits a run to its backend.
fn submit_run(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
    run: &str,
) -> Result<LifecycleEvent, EffectFailure> {
    let order = run_context(context, rows, find_run(rows, run)?)?;
    let backend = context.backends.backend_for(order.run).submit_run(&order)?;
    Ok(LifecycleEvent::Submitted { run: run.to_owned(), backend, priority: Some(rows.priority) })
}

fn run_context<'r>(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
    run: &'r RunRow,
) -> Result<RunContext<'r>, EffectFailure> {
    let filter = RequestRunFilter { process: Some(run.process.clone()), ..RequestRunFilter::default() };
    let mut others = context.database.request_runs(&filter).map_err(|error| store_failure(&error))?;
    others.retain(|other| other.uuid != run.uuid);
    let banned = context.closed_to(&rows.name, run).map_err(|error| store_failure(&error))?;
    Ok(RunContext {
        run,
        submission: run_submission(context, rows, run),
        process_runs: others,
        banned_sites: banned,
    })
}

fn find_run<'r>(rows: &'r EffectRows, run: &str) -> Result<&'r RunRow, EffectFailure> {
    rows.run.as_ref().filter(|row| row.uuid == run).ok_or_else(|| permanent_failure("its run does not exist"))
}

fn run_submission(context: &RequestReconcilerContext, rows: &EffectRows, run: &RunRow) -> RunSubmission {
    let options = &context.options;
    let usual = options.plan_settings.retries;
    let processing = rows.overrides.retry_count.unwrap_or(usual.processing);
    let retries = RoleRetrySettings {
        counts: round_plan::RetriesByRole { processing, ..usual },
        cool_off: options.cool_off,
    };
    let throttles = rows.process.as_ref().map(|process| process.category_throttles.clone());
    // All runs of a round use the directory of its first one, and are runs of one workflow.
    let digest = Path::new(&run.submit_dir).file_name().map(|name| name.to_string_lossy().into_owned());
    RunSubmission {
        name: rows.name.clone(),
        user: options.workflow_owner.as_ref().unwrap_or(&rows.requestor).clone(),
        digest: digest.unwrap_or_else(|| run.uuid.clone()),
        directory: run.submit_dir.clone(),
        throttles: throttles.unwrap_or_default(),
        retries,
        max_memory_per_core: options.plan_settings.max_memory_per_core,
        memory_mb: rows.overrides.memory_mb,
        priority: rows.priority,
    }
}

/// Stops all that the backend has of the run. A run whose submission was not recorded is recorded first.
fn stop_run(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
    run: &str,
    reason: &str,
) -> Result<Vec<LifecycleEvent>, EffectFailure> {
    let order = run_context(context, rows, find_run(rows, run)?)?;
    let stopped = |there| LifecycleEvent::Stopped { run: run.to_owned(), was_running: there };
    Ok(match context.backends.backend_for(order.run).stop_run(&order, reason)? {
        StopResult::Requested(backend) => {
            vec![LifecycleEvent::Submitted { run: run.to_owned(), backend, priority: None }, stopped(true)]
        }
        StopResult::NotRunning => vec![stopped(false)],
    })
}

/// The sites that a run must avoid.
#[derive(Clone, Copy)]
enum RunRestriction {
    None,
    Pause,
    Sites,
}

fn apply_restriction(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
    run: &str,
    restriction: RunRestriction,
) -> Result<(), EffectFailure> {
    let run = find_run(rows, run)?;
    let backend = context.backends.backend_for(run);
    match restriction {
        RunRestriction::None => backend.set_paused(run, false),
        RunRestriction::Pause => backend.set_paused(run, true),
        RunRestriction::Sites => backend.apply_site_bans(&run_context(context, rows, run)?),
    }
}

/// Sets the priority of all jobs of the run that have not ended.
fn update_priority(
    context: &RequestReconcilerContext,
    rows: &EffectRows,
    run: &str,
) -> Result<(), EffectFailure> {
    let run = find_run(rows, run)?;
    context.backends.backend_for(run).update_priority(&run_context(context, rows, run)?)
}

/// It is retried; the error is only logged.
fn postpone_effect(done: EffectOutcome, rows: &EffectRows, problem: &EffectFailure) -> EffectOutcome {
    tracing::warn!(request = rows.name, effect = done.tag, reason = problem.reason, "not done yet");
    done
}
