//! Tools for resource requirements and usage.

use super::ToolResult;
use super::page::PageRange;
use crate::agent_session::{AgentSession, ToolError, change_requirements, load_requirements};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::failure_commands::{invalid_command_reason, is_applicable};
use windlass_core::sizing::{GroupSizing, SizingRules};
use windlass_insight::job_groups::{self, JobGroupFilter};
use windlass_store::model::JobRow;
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandOutcome,
    FailureCommandStatus as Given, RequestedJobChanges,
};
use windlass_types::{JobId, Resources, parse_duration};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckUtilizationInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Include failed attempts.
    #[serde(default)]
    include_failed: bool,
    /// Maximum number of job groups. Default: 50, maximum: 500.
    limit: Option<u64>,
    /// Number of job groups to skip. Default: 0.
    offset: Option<u64>,
}

pub(super) fn check_utilization(session: &AgentSession, args: &CheckUtilizationInput) -> ToolResult {
    let sizings = load_sizings(session, args.workflow_id, args.include_failed)?;
    let of_note = |sizing: &GroupSizing| !sizing.changes.is_empty() || !sizing.excesses.is_empty();
    let shown = sizings.into_iter().filter(of_note).collect();
    Ok(PageRange::new(args.offset, args.limit).render_slice(shown, |sizing| sizing))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnalyzeUsageInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Only attempts that completed.
    #[serde(default)]
    completed_only: bool,
    /// Maximum number of job groups. Default: 50, maximum: 500.
    limit: Option<u64>,
    /// Number of job groups to skip. Default: 0.
    offset: Option<u64>,
}

pub(super) fn analyze_usage(session: &AgentSession, args: &AnalyzeUsageInput) -> ToolResult {
    let sizings = load_sizings(session, args.workflow_id, !args.completed_only)?;
    Ok(PageRange::new(args.offset, args.limit).render_slice(sizings, |sizing| sizing))
}

fn load_sizings(session: &AgentSession, workflow: i64, failed: bool) -> Result<Vec<GroupSizing>, ToolError> {
    let row = session.load_workflow(workflow)?;
    let which = JobGroupFilter { run: None, include_failed: failed, jobs: &[] };
    let sized = job_groups::size_groups(
        job_groups::load_job_groups(&*session.store, &row, &which)?,
        &SizingRules::default(),
    );
    Ok(sized.into_iter().map(|(_, sizing)| sizing).collect())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateResourcesInput {
    /// Id of the job.
    job_id: i64,
    /// Number of CPUs.
    num_cpus: Option<u32>,
    /// Memory, for example `8g`.
    memory: Option<String>,
    /// Runtime limit, for example `PT2H` or `90m`.
    runtime: Option<String>,
    /// Name of another Slurm scheduler of the workflow. Only for waiting or failed jobs.
    scheduler: Option<String>,
    /// Another Slurm partition; the other settings of the scheduler are kept. Only for waiting or failed jobs.
    partition: Option<String>,
    /// Reason in one sentence; it is recorded with the previous values.
    reason: Option<String>,
}

pub(super) fn update_resources(session: &AgentSession, args: &UpdateResourcesInput) -> ToolResult {
    let (_, job) = session.load_job(args.job_id)?;
    let before = load_requirements(&*session.store, &job)?;
    let changes = RequestedJobChanges {
        cpus: args.num_cpus,
        memory_bytes: args
            .memory
            .as_ref()
            .map(|memory| parse_amount("memory", memory.parse()))
            .transpose()?,
        runtime_seconds: args
            .runtime
            .as_ref()
            .map(|runtime| parse_amount("runtime", parse_duration(runtime)))
            .transpose()?
            .map(|time| time.as_secs_f64()),
        scheduler: args.scheduler.clone(),
        partition: args.partition.clone(),
        ..RequestedJobChanges::default()
    };
    let resources = changes.apply_to_resources(before);
    let is_moved = changes.scheduler.is_some() || changes.partition.is_some();
    if resources == before && !is_moved {
        return Err(ToolError::new(format!("no changes given for job {}", job.id))
            .with_hint("set num_cpus, memory, runtime, scheduler or partition"));
    }
    if is_applicable(FailureCommandKind::Change, job.status) {
        revise_job(session, &job, changes, args.reason.as_deref())?;
    } else if is_moved {
        return Err(ToolError::new(format!(
            "job {} is {}: it cannot move to another scheduler or partition",
            job.id, job.status
        )));
    } else {
        let order = change_command(session, job.id, changes, args.reason.as_deref());
        if let Some(why) = invalid_command_reason(&order) {
            return Err(ToolError::new(format!("job {}: {why}", job.id)));
        }
        session.check_capacity(job.workflow_id, &order.changes, &before)?;
        change_requirements(&*session.store, &job, resources)?;
    }
    Ok(
        json!({ "job_id": job.id, "name": job.name, "before": resources_json(&before), "now": resources_json(&resources),
        "holds": "from its next attempt on" }),
    )
}

/// Waiting and failed jobs are changed by a failure command, which can be undone, also while the workflow runs.
fn revise_job(
    session: &AgentSession,
    job: &JobRow,
    changes: RequestedJobChanges,
    reason: Option<&str>,
) -> Result<(), ToolError> {
    let orders = vec![change_command(session, job.id, changes, reason)];
    let outcomes = session.submit_failure_commands(
        job.workflow_id,
        FailureCommandBatch { orders, ..FailureCommandBatch::default() },
    )?;
    match outcomes.into_iter().find(|outcome| outcome.answer == Given::Refused) {
        Some(refused) => Err(ToolError::new(format!("job {}: {}", job.id, refused.words))),
        None => Ok(()),
    }
}

fn change_command(
    session: &AgentSession,
    job: JobId,
    changes: RequestedJobChanges,
    reason: Option<&str>,
) -> FailureCommand {
    let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    FailureCommand {
        job,
        kind: FailureCommandKind::Change,
        changes,
        reason: format!("requested by agent {}{why}", session.agent),
        confidence: None,
        evidence: Vec::new(),
    }
}

fn parse_amount<T>(what: &str, parsed: Result<T, windlass_types::ParseAmountError>) -> Result<T, ToolError> {
    parsed.map_err(|why| ToolError::new(format!("{what}: {why}")))
}

fn resources_json(resources: &Resources) -> Value {
    json!({
        "num_cpus": resources.cpus, "memory": resources.memory.to_string(), "num_gpus": resources.gpus,
        "num_nodes": resources.nodes, "runtime_seconds": resources.runtime.map(|time| time.as_secs_f64()),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RegroupResourcesInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// New requirements and the jobs that get them, one entry per group.
    groups: Vec<ResourceGroup>,
    /// Only report what would change.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResourceGroup {
    /// Memory, for example `8g`.
    memory: String,
    /// Number of CPUs.
    num_cpus: u32,
    /// Runtime limit, for example `PT2H` or `90m`.
    runtime: String,
    /// Number of GPUs.
    num_gpus: Option<u32>,
    /// Number of nodes.
    num_nodes: Option<u32>,
    /// Name of the group, used in the recorded reason.
    name: Option<String>,
    /// Ids of the jobs.
    job_ids: Vec<i64>,
}

pub(super) fn regroup_resources(session: &AgentSession, args: &RegroupResourcesInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    let mut orders = Vec::new();
    for (number, group) in (1..).zip(&args.groups) {
        let changes = group.changes()?;
        let name = group.name.clone().unwrap_or_else(|| format!("group {number}"));
        for id in &group.job_ids {
            let job = session.load_workflow_job(&workflow, *id)?;
            orders.push(change_command(session, job.id, changes.clone(), Some(&name)));
        }
    }
    if orders.is_empty() {
        return Err(ToolError::new("no jobs given").with_hint("each group requires job_ids"));
    }
    let outcomes = session.submit_failure_commands(
        workflow.id,
        FailureCommandBatch { dry_run: args.dry_run, orders, ..FailureCommandBatch::default() },
    )?;
    let mut outcomes = outcomes.into_iter();
    let mut groups = Vec::new();
    for (number, group) in (1..).zip(&args.groups) {
        let of_group: Vec<FailureCommandOutcome> = outcomes.by_ref().take(group.job_ids.len()).collect();
        let refused = |one: &&FailureCommandOutcome| one.answer == Given::Refused;
        let to_json = |one: &FailureCommandOutcome| json!({ "job_id": one.job, "why": one.words });
        let changed = of_group.iter().filter(|one| one.answer == Given::Done).count();
        groups.push(json!({
            "name": group.name.clone().unwrap_or_else(|| format!("group {number}")),
            "resources": resources_json(&group.changes()?.apply_to_resources(Resources::DEFAULT)),
            "jobs": of_group.len(), "changed": changed,
            "refused": of_group.iter().filter(refused).map(to_json).collect::<Vec<_>>(),
        }));
    }
    Ok(json!({
        "workflow_id": workflow.id, "dry_run": args.dry_run, "groups": groups,
        "holds": "from their next attempt on; `windlass failures revisions` lists the change and can undo it",
    }))
}

impl ResourceGroup {
    fn changes(&self) -> Result<RequestedJobChanges, ToolError> {
        let runtime = parse_amount("runtime", parse_duration(&self.runtime))?;
        Ok(RequestedJobChanges {
            cpus: Some(self.num_cpus),
            memory_bytes: Some(parse_amount("memory", self.memory.parse())?),
            runtime_seconds: Some(runtime.as_secs_f64()),
            gpus: Some(self.num_gpus.unwrap_or(0)),
            nodes: Some(self.num_nodes.unwrap_or(1)),
            ..RequestedJobChanges::default()
        })
    }
}
