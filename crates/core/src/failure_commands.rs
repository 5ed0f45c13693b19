//! Failure commands for failed or waiting jobs: which are applied, which need the approval of a person, which
//! are refused; and the resulting state of all jobs.

mod agent_policy;
mod blocking_dependents;
mod scheduler_target;
mod undo;
mod worker_limits;

pub use agent_policy::{agent_rerun_refusal, is_quoted};
pub use blocking_dependents::BlockingDependents;
pub use scheduler_target::SchedulerTarget;
pub use undo::{PatchUndo, plan_undo};
pub use worker_limits::exceeds_workers_reason;

use crate::change::WorkflowChange;
use crate::dependency_graph::DependencyCycle;
use crate::workflow_state::{JobTable, RerunPlan, WorkflowState};
use rustc_hash::{FxBuildHasher, FxHashSet};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use windlass_types::failure_commands::{FailureCommand, FailureCommandKind, TriagePolicy};
use windlass_types::settings::SlurmScheduler;
use windlass_types::{
    Attempt, JobId, JobStatus, RequirementsId, Resources, RunId, WorkflowId, format_duration,
};

/// The properties of a waiting job that can be changed; only those that change.
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

/// The resources of a job and where they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedResources {
    #[serde(flatten)]
    pub resources: Resources,
    pub by: ResourceSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceSource {
    /// The job requests nothing.
    Nothing,
    /// A row that it may share with other jobs.
    Row(RequirementsId),
    /// A row of its own.
    Itself,
}

/// The job of a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandTarget<'a> {
    pub status: JobStatus,
    pub asked: RequestedResources,
    pub command: &'a str,
    pub priority: i32,
    /// The Slurm scheduler of the job.
    pub scheduler: Option<&'a SlurmScheduler>,
    /// Number of retries by agents in this run.
    pub agent_retries: u32,
    /// The end of its log when it failed; `None`: the caller has checked quotes against the whole log.
    pub log_tail: Option<&'a str>,
}

/// Settings of the workflow for commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandSettings<'a> {
    /// Unhandled failures wait for a decision.
    pub uses_pending_failed: bool,
    pub policy: TriagePolicy,
    /// The Slurm schedulers of the workflow.
    pub schedulers: &'a [SlurmScheduler],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandDecision {
    /// The command is applied, with the changes of the job, if any.
    Accepted {
        message: String,
        patch: Option<Box<(JobPatch, JobPatch)>>,
    },
    /// The command is applied once a person approves.
    Proposed(String),
    Refused(String),
}

/// Decides whether a command is applied, for an agent or a person.
pub fn decide_command(
    order: &FailureCommand,
    is_agent: bool,
    settings: &CommandSettings<'_>,
    case: &CommandTarget<'_>,
) -> CommandDecision {
    let refused = wrong_status_reason(order.kind, case.status)
        .or_else(|| invalid_command_reason(order))
        .or_else(|| is_agent.then(|| agent_policy::policy_violation(order, settings, case)).flatten());
    let then = match (
        refused,
        scheduler_target::plan_scheduler_change(&order.changes, case.scheduler, settings.schedulers),
    ) {
        (Some(words), _) | (None, Err(words)) => return CommandDecision::Refused(words),
        (None, Ok(then)) => then,
    };
    let revision = plan_patch(order, case, then.as_ref());
    if order.kind == FailureCommandKind::Change && revision.is_none() {
        return CommandDecision::Refused("nothing would change".to_owned());
    }
    // A command runs with the account of a worker, which may do more than the agent.
    let command = order.changes.command.as_ref().filter(|command| is_agent && *command != case.command);
    if let Some(command) = command {
        return CommandDecision::Proposed(format!(
            "waits for a person: it changes the command to `{command}`"
        ));
    }
    let unsure = settings.policy.min_confidence.filter(|_| is_agent);
    if let Some(least) = unsure.filter(|least| order.confidence.is_none_or(|sure| sure < *least)) {
        let sure = order.confidence.map_or_else(|| "unsaid".to_owned(), |sure| format!("{sure}"));
        return CommandDecision::Proposed(format!("waits for a person: confidence {sure} is below {least}"));
    }
    CommandDecision::Accepted { message: describe_command(order.kind, revision.as_deref()), patch: revision }
}

/// Returns why the command does not fit the state of the job, if so.
pub fn is_applicable(kind: FailureCommandKind, status: JobStatus) -> bool {
    wrong_status_reason(kind, status).is_none()
}

fn wrong_status_reason(kind: FailureCommandKind, status: JobStatus) -> Option<String> {
    use JobStatus::{Completed, Disabled, Failed, PendingFailed, Terminated};
    let (fits, remedy) = match kind {
        FailureCommandKind::Retry => {
            (matches!(status, PendingFailed | Failed | Terminated), "only failed jobs can be retried")
        }
        FailureCommandKind::Fail => {
            (status == PendingFailed, "only jobs that wait for a decision can be failed")
        }
        FailureCommandKind::Ignore => {
            (matches!(status, PendingFailed | Failed | Terminated), "only failures can be ignored")
        }
        FailureCommandKind::Change => (
            !(status.is_active() || matches!(status, Completed | Disabled)),
            "only waiting or failed jobs can be changed",
        ),
    };
    (!fits).then(|| format!("the job is `{status}`: {remedy}"))
}

/// Returns why a command is invalid for any job.
pub fn invalid_command_reason(order: &FailureCommand) -> Option<String> {
    let changes = &order.changes;
    let no = |what: &str| Some(what.to_owned());
    if order.confidence.is_some_and(|sure| !(0.0..=1.0).contains(&sure)) {
        return no("confidence must be between 0 and 1");
    }
    if matches!(order.kind, FailureCommandKind::Fail | FailureCommandKind::Ignore) && !changes.is_empty() {
        return no("a job that does not run again cannot be changed; use retry or change");
    }
    if changes.runtime_seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds < 1e10)) {
        return no("the runtime must be greater than zero");
    }
    if changes.memory_bytes.is_some_and(|memory| memory.0 == 0) || changes.cpus == Some(0) {
        return no("a job needs memory and at least one CPU");
    }
    if changes.nodes == Some(0) {
        return no("a job needs at least one node");
    }
    if changes.command.as_deref().is_some_and(|command| command.trim().is_empty()) {
        return no("the command is empty");
    }
    None
}

/// Returns the properties that change: before and after.
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
fn describe_command(kind: FailureCommandKind, revision: Option<&(JobPatch, JobPatch)>) -> String {
    let Some((before, after)) = revision else { return kind.to_string() };
    let with = if kind == FailureCommandKind::Change { "change" } else { "retry with" };
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
    #[error("job number {0} would have to be reset, but a worker holds it")]
    Held(u32),
}

/// Returns the changes of all jobs after these commands: `chosen` are jobs by number, `done` the newest attempt
/// with a result in this run, by job.
pub fn plan_commands(
    workflow: WorkflowId,
    run: RunId,
    table: &JobTable,
    chosen: &[(u32, FailureCommandKind)],
    done: &HashMap<JobId, Attempt, FxBuildHasher>,
) -> Result<Vec<WorkflowChange>, CommandPlanError> {
    let of = |wanted: FailureCommandKind| {
        chosen.iter().filter(move |(_, kind)| *kind == wanted).map(|(job, _)| *job)
    };
    if chosen.iter().all(|(_, kind)| *kind == FailureCommandKind::Change) {
        return Ok(Vec::new());
    }
    let mut state = WorkflowState::new(workflow, run, table.clone())?;
    let (mut changes, mut after) = (Vec::new(), table.clone());
    for job in of(FailureCommandKind::Fail) {
        state.on_failure_decision(job, JobStatus::Failed, &mut changes);
    }
    let is_canceled = |job: &u32| state.status(*job) == JobStatus::Canceled;
    let freed: Vec<u32> =
        of(FailureCommandKind::Ignore).flat_map(|job| state.dependents(job)).filter(is_canceled).collect();
    let retried: Vec<u32> = of(FailureCommandKind::Retry).collect();
    let again = state.plan_rerun(&retried, true, true, done).map_err(CommandPlanError::Held)?;
    let back = state.plan_rerun(&freed, false, true, done).map_err(CommandPlanError::Held)?;
    let mut known = FxHashSet::default();
    for RerunPlan { changes: more, .. } in [again, back] {
        changes.extend(more.into_iter().filter(|change| known.insert(changed_job(change))));
    }
    for job in of(FailureCommandKind::Ignore) {
        let key = state.attempt_key(job);
        // A dependent of a job that runs again also runs again.
        if known.contains(&Some(key.job)) {
            continue;
        }
        if state.status(job) == JobStatus::PendingFailed {
            let (from, to) = (JobStatus::PendingFailed, JobStatus::Failed);
            changes.push(WorkflowChange::Status { job: key.job, from, to });
        }
        changes.push(WorkflowChange::Ignore { job: key.job, attempt: key.attempt });
        after.ignored.push(job);
    }
    apply_to_table(&mut after, &state, &changes);
    let mut state = WorkflowState::new(workflow, run, after)?;
    state.on_resume(&mut changes);
    state.on_initialize_rest(&mut changes);
    state.reconcile_units(&mut changes);
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

/// Applies the changes to the table.
fn apply_to_table(table: &mut JobTable, state: &WorkflowState, changes: &[WorkflowChange]) {
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
        let Some(index) = state.job_index(job) else { continue };
        table.status[index as usize] = status;
        if let Some(attempt) = attempt {
            table.attempt[index as usize] = attempt;
        }
    }
}

#[cfg(test)]
mod tests;
