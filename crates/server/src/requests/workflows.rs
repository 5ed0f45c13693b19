//! How requests are carried out: their workflows, and how far they are.

use super::{dags, look, page, request};
use crate::error::{Answer, ApiError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_api::requests::{
    BlockLine, DagSummary, RequestMetrics, RequestWorkflow, RequestWorkflows, Workflow, WorkflowStatus,
};
use windlass_core::adaptive::Experience;
use windlass_core::requests::View;
use windlass_core::requests::book::{
    Backend, BlockRow, OutputStep, Process, RequestRow, RunRow, StepKind, StepState,
};
use windlass_requests::learnt;
use windlass_store::Database;
use windlass_store::model::{RequestFilter, RunFilter, StepFilter};
use windlass_types::Timestamp;
use windlass_types::requests::{RequestStatus, RunStatus, UnitName};

/// With so few nodes done the pace says nothing about the rest.
const ENOUGH_FOR_ESTIMATE: u64 = 3;

fn process(db: &dyn Database, uuid: &str) -> Answer<Process> {
    db.process_by_uuid(uuid)?.ok_or_else(|| ApiError::not_found(format_args!("workflow {uuid}")))
}

/// Those of a page of requests, by their names.
pub fn list(db: &dyn Database, mut filter: RequestFilter) -> Answer<RequestWorkflows> {
    filter.limit = Some(page(filter.limit));
    let total = db.count_requests(&filter)?;
    let names: Vec<String> = db.requests(&filter)?.into_iter().map(|row| row.request.request_name).collect();
    let mut items: Vec<RequestWorkflow> = db.views(&names)?.into_iter().filter_map(line).collect();
    items.sort_by(|a, b| a.request_name.cmp(&b.request_name));
    Ok(RequestWorkflows { items, offset: filter.offset, total })
}

/// `None`: the request has no workflow yet.
fn line(view: View) -> Option<RequestWorkflow> {
    let process = view.process?;
    Some(RequestWorkflow {
        id: process.uuid,
        status: look::workflow_status(view.row.status).to_owned(),
        request_status: view.row.status,
        priority: view.row.request.priority,
        request_name: process.request_name,
        round: process.round,
        engine_workflow_id: view.run.as_ref().and_then(engine_workflow),
        dag_id: view.run.map(|run| run.uuid),
        created_at: process.created_at,
        updated_at: process.updated_at,
    })
}

pub fn show(db: &dyn Database, uuid: &str) -> Answer<Workflow> {
    let process = process(db, uuid)?;
    let row = request(db, &process.request_name)?;
    let runs = runs_of(db, uuid)?;
    let request = row.request;
    let steps = db.steps(&StepFilter { process: Some(uuid.to_owned()), ..StepFilter::default() })?;
    Ok(Workflow {
        status: look::workflow_status(row.status).to_owned(),
        dag_id: runs.last().map(|run| run.uuid.clone()),
        dags: runs.into_iter().map(dags::dag).collect(),
        blocks: lines_of(db.blocks(uuid)?, &steps),
        id: process.uuid,
        request_name: process.request_name,
        input_dataset: request.input_dataset,
        splitting_algo: request.splitting_algo.name().to_owned(),
        splitting_params: serde_json::to_value(&request.splitting_params).map_err(ApiError::internal)?,
        round: process.round,
        category_throttles: process.category_throttles,
        step_metrics: process.step_metrics.as_ref().and_then(shown_metrics),
        events_produced: process.events_produced,
        created_at: process.created_at,
        updated_at: process.updated_at,
    })
}

/// what was measured, once something was. How it is reckoned with is nobody else's business.
fn shown_metrics(metrics: &Value) -> Option<Value> {
    let profile = Experience::remembered(metrics)?.profile;
    if profile.jobs_sampled == 0 { None } else { serde_json::to_value(profile).ok() }
}

fn runs_of(db: &dyn Database, process: &str) -> Answer<Vec<RunRow>> {
    Ok(db.request_runs(&RunFilter { process: Some(process.to_owned()), ..RunFilter::default() })?)
}

pub fn status(db: &dyn Database, uuid: &str, now: Timestamp) -> Answer<WorkflowStatus> {
    let process = process(db, uuid)?;
    let row = request(db, &process.request_name)?;
    status_of(db, row, Some(process), now)
}

/// The same by the name of the request, also before it has a workflow.
pub fn request_status(db: &dyn Database, name: &str, now: Timestamp) -> Answer<WorkflowStatus> {
    let row = request(db, name)?;
    let process = db.process(name)?;
    status_of(db, row, process, now)
}

fn status_of(
    db: &dyn Database,
    row: RequestRow,
    process: Option<Process>,
    now: Timestamp,
) -> Answer<WorkflowStatus> {
    let (mut run, mut blocks, mut steps) = (None, Vec::new(), Vec::new());
    if let Some(process) = &process {
        run = runs_of(db, &process.uuid)?.pop();
        blocks = db.blocks(&process.uuid)?;
        let open = StepFilter {
            process: Some(process.uuid.clone()),
            state: vec![StepState::Pending, StepState::Failed],
            ..StepFilter::default()
        };
        steps = db.steps(&open)?;
    }
    let failed = steps.iter().filter(|step| step.state == StepState::Failed).count() as u64;
    let begun_with = match &run {
        Some(run) => done_at_start(db, run)?,
        None => 0,
    };
    Ok(WorkflowStatus {
        workflow_id: process.as_ref().map(|process| process.uuid.clone()),
        request_name: row.request.request_name,
        status: look::workflow_status(row.status).to_owned(),
        request_status: row.status,
        reason: row.reason,
        priority: row.request.priority,
        progress_percent: percent(row.status, run.as_ref()),
        estimated_completion: run.as_ref().and_then(|run| estimate(run, begun_with, now)),
        dag: run.as_ref().map(summary),
        blocks: lines_of(blocks, &steps),
        round: process.as_ref().map_or(0, |process| process.round),
        step_metrics: process.and_then(|process| shown_metrics(process.step_metrics.as_ref()?)),
        output_steps_pending: steps.len() as u64 - failed,
        output_steps_failed: failed,
        version: row.version,
    })
}

/// What its rounds have found out, the one under way included.
pub fn metrics(db: &dyn Database, name: &str) -> Answer<RequestMetrics> {
    let row = request(db, name)?;
    let known = match db.process(name)? {
        Some(process) => learnt::so_far(&process, runs_of(db, &process.uuid)?.last()),
        None => Experience::default(),
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

fn summary(run: &RunRow) -> DagSummary {
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
        engine_workflow_id: engine_workflow(run),
    }
}

fn engine_workflow(run: &RunRow) -> Option<i64> {
    match run.backend {
        Backend::Engine { workflow, .. } => workflow.map(|id| id.0),
        Backend::Htcondor { .. } => None,
    }
}

/// With what these steps of theirs say: rules, and attempts that failed.
fn lines_of(blocks: Vec<BlockRow>, steps: &[OutputStep]) -> Vec<BlockLine> {
    let mut by_block: BTreeMap<&str, Vec<&OutputStep>> = BTreeMap::new();
    for step in steps {
        by_block.entry(&step.block).or_default().push(step);
    }
    let line = |row: BlockRow| {
        let steps = by_block.get(row.uuid.as_str()).map_or(&[][..], Vec::as_slice);
        block(row, steps)
    };
    blocks.into_iter().map(line).collect()
}

fn block(row: BlockRow, steps: &[&OutputStep]) -> BlockLine {
    let rule = |step: &&OutputStep| {
        let unit = step.unit.filter(|_| step.kind == StepKind::Protect)?;
        Some((UnitName(unit).to_string(), step.result.clone()?))
    };
    let failed = steps.iter().filter(|step| step.state.is_open());
    let worst = failed.filter(|step| step.attempts > 0).max_by_key(|step| step.attempts);
    BlockLine {
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

/// Of the nodes of the latest run, in tenths, and 100 only when it is all done.
fn percent(status: RequestStatus, run: Option<&RunRow>) -> f64 {
    if status == RequestStatus::Completed {
        return 100.0;
    }
    let Some(run) = run.filter(|run| run.totals.nodes > 0) else { return 0.0 };
    let thousandths = run.counts.done.saturating_mul(1000) / run.totals.nodes;
    thousandths.min(1000) as f64 / 10.0
}

/// Nodes that were done when the run began: it may go on with another.
fn done_at_start(db: &dyn Database, run: &RunRow) -> Answer<u64> {
    if run.parent.is_none() {
        return Ok(0);
    }
    let history = db.run_history(&run.uuid)?;
    let begun = history.iter().find(|event| event.to == Some(RunStatus::Submitted));
    Ok(begun.map_or(0, |event| event.counts.done))
}

/// If it goes on as it went so far.
fn estimate(run: &RunRow, begun_with: u64, now: Timestamp) -> Option<Timestamp> {
    let begun = run.submitted_at.filter(|_| run.status.is_active())?;
    let done = run.counts.done.saturating_sub(begun_with);
    let left = run.totals.nodes.saturating_sub(run.counts.done);
    if done < ENOUGH_FOR_ESTIMATE || left == 0 {
        return None;
    }
    let seconds = now.since(begun).as_secs_f64() / done as f64 * left as f64;
    (seconds < 1e9).then(|| now.after(Duration::from_secs_f64(seconds)))
}
