//! Workflows of requests and their progress.

use super::{dags, load_request, page_length, request_queries};
use crate::error::{ApiError, ApiResult};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_api::requests::{
    BlockSummary, DagSummary, RequestMetrics, RequestWorkflowDetails, RequestWorkflowList,
    RequestWorkflowStatus, RequestWorkflowSummary,
};
use windlass_core::adaptive::RequestMeasurements;
use windlass_core::requests::RequestView;
use windlass_core::requests::rows::{
    BackendRunRef, BlockRow, OutputStep, OutputStepKind, OutputStepState, RequestProgress, RequestRow, RunRow,
};
use windlass_requests::round_measurements;
use windlass_store::StoreDatabase;
use windlass_store::model::{OutputStepFilter, RequestFilter, RequestRunFilter};
use windlass_types::Timestamp;
use windlass_types::requests::{RequestRunStatus, RequestStatus, WorkUnitName};

/// Minimum number of completed nodes for an estimate.
const MIN_NODES_FOR_ESTIMATE: u64 = 3;

fn load_process(db: &dyn StoreDatabase, uuid: &str) -> ApiResult<RequestProgress> {
    db.process_by_uuid(uuid)?.ok_or_else(|| ApiError::not_found(format_args!("workflow {uuid}")))
}

/// Workflows of a page of requests, by their names.
pub fn list_request_workflows(
    db: &dyn StoreDatabase,
    mut filter: RequestFilter,
) -> ApiResult<RequestWorkflowList> {
    filter.limit = Some(page_length(filter.limit));
    let total = db.count_requests(&filter)?;
    let names: Vec<String> = db.requests(&filter)?.into_iter().map(|row| row.request.request_name).collect();
    let mut items: Vec<RequestWorkflowSummary> =
        db.load_request_views(&names)?.into_iter().filter_map(api_request_workflow).collect();
    items.sort_by(|a, b| a.request_name.cmp(&b.request_name));
    Ok(RequestWorkflowList { items, offset: filter.offset, total })
}

/// `None`: the request has no workflow yet.
fn api_request_workflow(view: RequestView) -> Option<RequestWorkflowSummary> {
    let process = view.process?;
    Some(RequestWorkflowSummary {
        id: process.uuid,
        status: request_queries::workflow_status(view.row.status).to_owned(),
        request_status: view.row.status,
        priority: view.row.request.priority,
        request_name: process.request_name,
        round: process.round,
        engine_workflow_id: view.run.as_ref().and_then(engine_workflow_id),
        dag_id: view.run.map(|run| run.uuid),
        created_at: process.created_at,
        updated_at: process.updated_at,
    })
}

pub fn get_request_workflow(db: &dyn StoreDatabase, uuid: &str) -> ApiResult<RequestWorkflowDetails> {
    let process = load_process(db, uuid)?;
    let row = load_request(db, &process.request_name)?;
    let runs = load_runs(db, uuid)?;
    let request = row.request;
    let steps =
        db.output_steps(&OutputStepFilter { process: Some(uuid.to_owned()), ..OutputStepFilter::default() })?;
    Ok(RequestWorkflowDetails {
        status: request_queries::workflow_status(row.status).to_owned(),
        dag_id: runs.last().map(|run| run.uuid.clone()),
        dags: runs.into_iter().map(dags::api_dag).collect(),
        blocks: api_block_summaries(db.processing_blocks(uuid)?, &steps),
        id: process.uuid,
        request_name: process.request_name,
        input_dataset: request.input_dataset,
        splitting_algo: request.splitting_algo.name().to_owned(),
        splitting_params: serde_json::to_value(&request.splitting_params).map_err(ApiError::internal)?,
        round: process.round,
        category_throttles: process.category_throttles,
        step_metrics: process.step_metrics.as_ref().and_then(public_metrics),
        events_produced: process.events_produced,
        created_at: process.created_at,
        updated_at: process.updated_at,
    })
}

/// measured values, once there are some. Internal values of the estimator are omitted.
fn public_metrics(metrics: &Value) -> Option<Value> {
    let profile = RequestMeasurements::from_metrics(metrics)?.profile;
    if profile.jobs_sampled == 0 { None } else { serde_json::to_value(profile).ok() }
}

fn load_runs(db: &dyn StoreDatabase, process: &str) -> ApiResult<Vec<RunRow>> {
    Ok(db.request_runs(&RequestRunFilter {
        process: Some(process.to_owned()),
        ..RequestRunFilter::default()
    })?)
}

pub fn get_workflow_status(
    db: &dyn StoreDatabase,
    uuid: &str,
    now: Timestamp,
) -> ApiResult<RequestWorkflowStatus> {
    let process = load_process(db, uuid)?;
    let row = load_request(db, &process.request_name)?;
    build_workflow_status(db, row, Some(process), now)
}

/// The same by request name, also before the request has a workflow.
pub fn get_request_status(
    db: &dyn StoreDatabase,
    name: &str,
    now: Timestamp,
) -> ApiResult<RequestWorkflowStatus> {
    let row = load_request(db, name)?;
    let process = db.process(name)?;
    build_workflow_status(db, row, process, now)
}

fn build_workflow_status(
    db: &dyn StoreDatabase,
    row: RequestRow,
    process: Option<RequestProgress>,
    now: Timestamp,
) -> ApiResult<RequestWorkflowStatus> {
    let (mut run, mut blocks, mut steps) = (None, Vec::new(), Vec::new());
    if let Some(process) = &process {
        run = load_runs(db, &process.uuid)?.pop();
        blocks = db.processing_blocks(&process.uuid)?;
        let open = OutputStepFilter {
            process: Some(process.uuid.clone()),
            state: vec![OutputStepState::Pending, OutputStepState::Failed],
            ..OutputStepFilter::default()
        };
        steps = db.output_steps(&open)?;
    }
    let failed = steps.iter().filter(|step| step.state == OutputStepState::Failed).count() as u64;
    let begun_with = match &run {
        Some(run) => load_done_at_start(db, run)?,
        None => 0,
    };
    Ok(RequestWorkflowStatus {
        workflow_id: process.as_ref().map(|process| process.uuid.clone()),
        request_name: row.request.request_name,
        status: request_queries::workflow_status(row.status).to_owned(),
        request_status: row.status,
        reason: row.reason,
        priority: row.request.priority,
        progress_percent: progress_percent(row.status, run.as_ref()),
        estimated_completion: run.as_ref().and_then(|run| estimate_completion(run, begun_with, now)),
        dag: run.as_ref().map(api_dag_summary),
        blocks: api_block_summaries(blocks, &steps),
        round: process.as_ref().map_or(0, |process| process.round),
        step_metrics: process.and_then(|process| public_metrics(process.step_metrics.as_ref()?)),
        output_steps_pending: steps.len() as u64 - failed,
        output_steps_failed: failed,
        version: row.version,
    })
}

/// Values measured by its rounds, including the active one.
pub fn get_request_metrics(db: &dyn StoreDatabase, name: &str) -> ApiResult<RequestMetrics> {
    let row = load_request(db, name)?;
    let known = match db.process(name)? {
        Some(process) => {
            round_measurements::current_experience(&process, load_runs(db, &process.uuid)?.last())
        }
        None => RequestMeasurements::default(),
    };
    let rounds: Result<Vec<Value>, _> = known.rounds.iter().map(serde_json::to_value).collect();
    Ok(RequestMetrics {
        request_name: row.request.request_name,
        round: known.profile.round,
        jobs_sampled: known.profile.jobs_sampled,
        steps: serde_json::to_value(&known.profile.steps).map_err(ApiError::internal)?,
        rounds: rounds.map_err(ApiError::internal)?,
    })
}

fn api_dag_summary(run: &RunRow) -> DagSummary {
    DagSummary {
        id: run.uuid.clone(),
        status: run.status,
        total_nodes: run.totals.nodes,
        node_counts: run.totals.by_role.clone(),
        nodes_idle: run.counts.idle,
        nodes_running: run.counts.running,
        nodes_done: run.counts.done,
        nodes_failed: run.counts.failed,
        nodes_held: run.counts.held,
        total_work_units: run.totals.units,
        work_units_completed: run.units_completed,
        work_units_failed: run.units_failed,
        engine_workflow_id: engine_workflow_id(run),
    }
}

fn engine_workflow_id(run: &RunRow) -> Option<i64> {
    match run.backend {
        BackendRunRef::Engine { workflow, .. } => workflow.map(|id| id.0),
        BackendRunRef::Htcondor { .. } => None,
    }
}

/// Adds the results of their steps: rules, and failed attempts.
fn api_block_summaries(blocks: Vec<BlockRow>, steps: &[OutputStep]) -> Vec<BlockSummary> {
    let mut by_block: BTreeMap<&str, Vec<&OutputStep>> = BTreeMap::new();
    for step in steps {
        by_block.entry(&step.block).or_default().push(step);
    }
    let line = |row: BlockRow| {
        let steps = by_block.get(row.uuid.as_str()).map_or(&[][..], Vec::as_slice);
        api_block_summary(row, steps)
    };
    blocks.into_iter().map(line).collect()
}

fn api_block_summary(row: BlockRow, steps: &[&OutputStep]) -> BlockSummary {
    let rule = |step: &&OutputStep| {
        let unit = step.unit.filter(|_| step.kind == OutputStepKind::Protect)?;
        Some((WorkUnitName(unit).to_string(), step.result.clone()?))
    };
    let failed = steps.iter().filter(|step| step.state.is_open());
    let worst = failed.filter(|step| step.attempts > 0).max_by_key(|step| step.attempts);
    BlockSummary {
        work_units: format!("{}/{}", row.units_completed, row.total_units()),
        dataset_name: row.dataset,
        block_index: row.index,
        status: row.status,
        block_name: row.name,
        tape_rule_id: row.tape_rule,
        source_rule_ids: steps.iter().filter_map(rule).collect(),
        attempts: worst.map_or(0, |step| step.attempts),
        last_error: worst.and_then(|step| step.last_error.clone()),
    }
}

/// Computes the share of completed nodes of the latest run, in tenths of a percent; 100 only when all are
/// completed.
fn progress_percent(status: RequestStatus, run: Option<&RunRow>) -> f64 {
    if status == RequestStatus::Completed {
        return 100.0;
    }
    let Some(run) = run.filter(|run| run.totals.nodes > 0) else { return 0.0 };
    let thousandths = run.counts.done.saturating_mul(1000) / run.totals.nodes;
    thousandths.min(1000) as f64 / 10.0
}

/// Nodes that were already completed when the run started (it may continue another run).
fn load_done_at_start(db: &dyn StoreDatabase, run: &RunRow) -> ApiResult<u64> {
    if run.parent.is_none() {
        return Ok(0);
    }
    let history = db.run_history(&run.uuid)?;
    let begun = history.iter().find(|event| event.to == Some(RequestRunStatus::Submitted));
    Ok(begun.map_or(0, |event| event.counts.done))
}

/// Assuming the pace so far.
fn estimate_completion(run: &RunRow, begun_with: u64, now: Timestamp) -> Option<Timestamp> {
    let begun = run.submitted_at.filter(|_| run.status.is_active())?;
    let done = run.counts.done.saturating_sub(begun_with);
    let left = run.totals.nodes.saturating_sub(run.counts.done);
    if done < MIN_NODES_FOR_ESTIMATE || left == 0 {
        return None;
    }
    let seconds = now.since(begun).as_secs_f64() / done as f64 * left as f64;
    (seconds < 1e9).then(|| now.plus(Duration::from_secs_f64(seconds)))
}
