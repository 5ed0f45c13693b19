//! Orders about jobs that have failed or wait: which are carried out, which wait for a person, which are refused; and where
//! all jobs stand afterwards.

mod agent_policy;
mod held_dependents;
mod scheduler_target;
mod undo;
mod worker_limits;

pub use agent_policy::{agent_rerun_refusal, is_quoted};
pub use held_dependents::HeldDependents;
pub use scheduler_target::SchedulerTarget;
pub use undo::{PatchUndo, plan_undo};
pub use worker_limits::exceeds_workers_reason;

use crate::change::WorkflowChange;
use crate::graph::DependencyCycle;
use crate::workflow_state::{JobTable, RerunPlan, WorkflowState};
use rustc_hash::{FxBuildHasher, FxHashSet};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use windlass_types::failure_commands::{FailureCommand, FailureCommandKind, TriagePolicy};
use windlass_types::settings::SlurmScheduler;
use windlass_types::{
    Attempt, JobId, JobStatus, RequirementsId, Resources, RunId, WorkflowId, format_duration,
};

/// What of a job somebody can change while it waits; only what changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<RequestedResources>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<SchedulerTarget>,
}

/// What a job asks for, and where it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedResources {
    #[serde(flatten)]
    pub resources: Resources,
    pub by: ResourceSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceSource {
    /// It names nothing.
    Nothing,
    /// A set that it may share with others.
    Row(RequirementsId),
    /// The job alone.
    Itself,
}

/// What is known of the job of an order.
#[derive(Clone, Copy, Debug)]
pub struct CommandTarget<'a> {
    pub status: JobStatus,
    pub asked: RequestedResources,
    pub command: &'a str,
    pub priority: i32,
    /// The Slurm scheduler that it names.
    pub scheduler: Option<&'a SlurmScheduler>,
    /// How often agents had it tried again in this run.
    pub agent_retries: u32,
    /// The end of what it said when it failed; `None`: whoever gives the order has looked its quotes up in all of it.
    pub log_tail: Option<&'a str>,
}

/// What the workflow says about orders.
#[derive(Clone, Copy, Debug, Default)]
pub struct House<'a> {
    /// Failures that nobody foresaw wait for a decision.
    pub uses_pending_failed: bool,
    pub policy: TriagePolicy,
    /// The Slurm schedulers of the workflow.
    pub schedulers: &'a [SlurmScheduler],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandDecision {
    /// It is carried out; with what of the job changes, if anything does.
    Accepted {
        message: String,
        patch: Option<Box<(JobPatch, JobPatch)>>,
    },
    /// It is carried out once a person agrees.
    Proposed(String),
    Refused(String),
}

/// Whether an order can be carried out, for an agent or a person.
pub fn decide_command(
    order: &FailureCommand,
    is_agent: bool,
    house: &House<'_>,
    case: &CommandTarget<'_>,
) -> CommandDecision {
    let refused = wrong_status_reason(order.verdict, case.status)
        .or_else(|| invalid_command_reason(order))
        .or_else(|| is_agent.then(|| agent_policy::policy_violation(order, house, case)).flatten());
    let then = match (
        refused,
        scheduler_target::plan_scheduler_change(&order.changes, case.scheduler, house.schedulers),
    ) {
        (Some(words), _) | (None, Err(words)) => return CommandDecision::Refused(words),
        (None, Ok(then)) => then,
    };
    let revision = plan_patch(order, case, then.as_ref());
    if order.verdict == FailureCommandKind::Change && revision.is_none() {
        return CommandDecision::Refused("nothing would change".to_owned());
    }
    let unsure = house.policy.min_confidence.filter(|_| is_agent);
    if let Some(least) = unsure.filter(|least| order.confidence.is_none_or(|sure| sure < *least)) {
        let sure = order.confidence.map_or_else(|| "unsaid".to_owned(), |sure| format!("{sure}"));
        return CommandDecision::Proposed(format!("waits for a person: confidence {sure} is below {least}"));
    }
    CommandDecision::Accepted {
        message: describe_command(order.verdict, revision.as_deref()),
        patch: revision,
    }
}

/// Whether it can be decided so about a job that stands like this, if nothing else speaks against it.
pub fn is_applicable(verdict: FailureCommandKind, status: JobStatus) -> bool {
    wrong_status_reason(verdict, status).is_none()
}

fn wrong_status_reason(verdict: FailureCommandKind, status: JobStatus) -> Option<String> {
    use JobStatus::{Completed, Disabled, Failed, PendingFailed, Terminated};
    let (fits, remedy) = match verdict {
        FailureCommandKind::Retry => {
            (matches!(status, PendingFailed | Failed | Terminated), "only what has failed can be tried again")
        }
        FailureCommandKind::Fail => {
            (status == PendingFailed, "only what waits for a decision can be made to fail")
        }
        FailureCommandKind::Ignore => {
            (matches!(status, PendingFailed | Failed | Terminated), "only a failure can be ignored")
        }
        FailureCommandKind::Change => (
            !(status.is_active() || matches!(status, Completed | Disabled)),
            "only what waits or has failed can be changed",
        ),
    };
    (!fits).then(|| format!("it is `{status}`: {remedy}"))
}

/// Whatever job it is about.
pub fn invalid_command_reason(order: &FailureCommand) -> Option<String> {
    let changes = &order.changes;
    let no = |what: &str| Some(what.to_owned());
    if order.confidence.is_some_and(|sure| !(0.0..=1.0).contains(&sure)) {
        return no("confidence goes from 0 to 1");
    }
    if matches!(order.verdict, FailureCommandKind::Fail | FailureCommandKind::Ignore) && !changes.is_empty() {
        return no("what does not run again cannot be changed; retry or change it");
    }
    if changes.runtime_seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds < 1e10)) {
        return no("a runtime is more than nothing");
    }
    if changes.memory_bytes.is_some_and(|memory| memory.0 == 0) || changes.cpus == Some(0) {
        return no("a job cannot do without memory or without a CPU");
    }
    if changes.nodes == Some(0) {
        return no("a job cannot do without a node");
    }
    if changes.command.as_deref().is_some_and(|command| command.trim().is_empty()) {
        return no("the command would be empty");
    }
    None
}

/// What changes: how it was, and how it will be.
fn plan_patch(
    order: &FailureCommand,
    case: &CommandTarget<'_>,
    then: Option<&SlurmScheduler>,
) -> Option<Box<(JobPatch, JobPatch)>> {
    let (mut before, mut after) = (JobPatch::default(), JobPatch::default());
    let resources = order.changes.apply_to_resources(case.asked.resources);
    if resources != case.asked.resources {
        before.asked = Some(case.asked);
        after.asked = Some(RequestedResources { resources, by: ResourceSource::Itself });
    }
    if let Some(command) = order.changes.command.as_ref().filter(|command| *command != case.command) {
        before.command = Some(case.command.to_owned());
        after.command = Some(command.clone());
    }
    if let Some(priority) = order.changes.priority.filter(|priority| *priority != case.priority) {
        before.priority = Some(case.priority);
        after.priority = Some(priority);
    }
    if then.is_some() {
        before.place = Some(SchedulerTarget::from_scheduler(case.scheduler));
        after.place = Some(SchedulerTarget::from_scheduler(then));
    }
    (after != JobPatch::default()).then(|| Box::new((before, after)))
}

/// `retry with memory 1 GiB → 2 GiB`
fn describe_command(verdict: FailureCommandKind, revision: Option<&(JobPatch, JobPatch)>) -> String {
    let Some((before, after)) = revision else { return verdict.to_string() };
    let with = if verdict == FailureCommandKind::Change { "change" } else { "retry with" };
    format!("{with} {}", describe_patch(before, after))
}

/// `memory 1 GiB → 2 GiB, priority 0 → 5`
pub fn describe_patch(before: &JobPatch, after: &JobPatch) -> String {
    let mut parts = Vec::new();
    if let (Some(old), Some(new)) = (before.asked, after.asked) {
        parts.extend(describe_resource_change(&old.resources, &new.resources));
    }
    if after.command != before.command {
        parts.push("another command".to_owned());
    }
    if let (Some(old), Some(new)) = (before.priority, after.priority)
        && old != new
    {
        parts.push(format!("priority {old} → {new}"));
    }
    if let (Some(old), Some(new)) = (&before.place, &after.place) {
        parts.extend(scheduler_target::describe_target_change(old, new));
    }
    parts.join(", ")
}

fn describe_resource_change(old: &Resources, new: &Resources) -> Vec<String> {
    let mut parts = Vec::new();
    let runtime = |asked: &Resources| asked.runtime.map_or_else(|| "unsaid".to_owned(), format_duration);
    if old.memory != new.memory {
        parts.push(format!("memory {} → {}", old.memory, new.memory));
    }
    if old.runtime != new.runtime {
        parts.push(format!("runtime {} → {}", runtime(old), runtime(new)));
    }
    if old.cpus != new.cpus {
        parts.push(format!("cpus {} → {}", old.cpus, new.cpus));
    }
    if old.gpus != new.gpus {
        parts.push(format!("gpus {} → {}", old.gpus, new.gpus));
    }
    if old.nodes != new.nodes {
        parts.push(format!("nodes {} → {}", old.nodes, new.nodes));
    }
    parts
}

/// Why a plan cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CommandPlanError {
    #[error(transparent)]
    Cycle(#[from] DependencyCycle),
    #[error("job number {0}, which would have to go back, is held by a worker")]
    Held(u32),
}

/// Where jobs stand once the verdicts are carried out, as changes: `chosen` are jobs by number. `done`: the newest attempt
/// of each job that left a result in this run.
pub fn plan_commands(
    workflow: WorkflowId,
    run: RunId,
    table: &JobTable,
    chosen: &[(u32, FailureCommandKind)],
    done: &HashMap<JobId, Attempt, FxBuildHasher>,
) -> Result<Vec<WorkflowChange>, CommandPlanError> {
    let of = |wanted: FailureCommandKind| {
        chosen.iter().filter(move |(_, verdict)| *verdict == wanted).map(|(job, _)| *job)
    };
    if chosen.iter().all(|(_, verdict)| *verdict == FailureCommandKind::Change) {
        return Ok(Vec::new());
    }
    let mut board = WorkflowState::new(workflow, run, table.clone())?;
    let (mut changes, mut after) = (Vec::new(), table.clone());
    for job in of(FailureCommandKind::Fail) {
        board.on_failure_decision(job, JobStatus::Failed, &mut changes);
    }
    let is_canceled = |job: &u32| board.status(*job) == JobStatus::Canceled;
    let freed: Vec<u32> =
        of(FailureCommandKind::Ignore).flat_map(|job| board.dependents(job)).filter(is_canceled).collect();
    let retried: Vec<u32> = of(FailureCommandKind::Retry).collect();
    let again = board.plan_rerun(&retried, true, true, done).map_err(CommandPlanError::Held)?;
    let back = board.plan_rerun(&freed, false, true, done).map_err(CommandPlanError::Held)?;
    let mut known = FxHashSet::default();
    for RerunPlan { changes: more, .. } in [again, back] {
        changes.extend(more.into_iter().filter(|change| known.insert(changed_job(change))));
    }
    for job in of(FailureCommandKind::Ignore) {
        let key = board.attempt_key(job);
        // It was built on something that runs again, and so does it.
        if known.contains(&Some(key.job)) {
            continue;
        }
        if board.status(job) == JobStatus::PendingFailed {
            let (from, to) = (JobStatus::PendingFailed, JobStatus::Failed);
            changes.push(WorkflowChange::Status { job: key.job, from, to });
        }
        changes.push(WorkflowChange::Ignore { job: key.job, attempt: key.attempt });
        after.ignored.push(job);
    }
    apply_to_table(&mut after, &board, &changes);
    let mut board = WorkflowState::new(workflow, run, after)?;
    board.on_resume(&mut changes);
    board.on_initialize_rest(&mut changes);
    board.reconcile_units(&mut changes);
    Ok(changes)
}

const fn changed_job(change: &WorkflowChange) -> Option<JobId> {
    match change {
        WorkflowChange::Retry { job, .. }
        | WorkflowChange::Reset { job, .. }
        | WorkflowChange::Status { job, .. } => Some(*job),
        _ => None,
    }
}

/// The table as it will be.
fn apply_to_table(table: &mut JobTable, board: &WorkflowState, changes: &[WorkflowChange]) {
    for change in changes {
        let (job, status, attempt) = match change {
            WorkflowChange::Status { job, to, .. } => (*job, *to, None),
            WorkflowChange::Retry { job, attempt, .. } => (*job, JobStatus::Ready, Some(attempt.next())),
            WorkflowChange::Reset { job, attempt, .. } => (*job, JobStatus::Uninitialized, Some(*attempt)),
            WorkflowChange::Unit(change) => {
                table.apply_unit_change(change);
                continue;
            }
            _ => continue,
        };
        let Some(index) = board.job_index(job) else { continue };
        table.status[index as usize] = status;
        if let Some(attempt) = attempt {
            table.attempt[index as usize] = attempt;
        }
    }
}

#[cfg(test)]
mod tests;
