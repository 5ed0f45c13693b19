//! Orders about jobs that have failed or wait: which are carried out, which wait for a person, which are refused; and where
//! all jobs stand afterwards.

mod agents;
mod held;
mod limit;
mod place;
mod undo;

pub use agents::{is_quoted, kept_from_agents};
pub use held::Held;
pub use limit::beyond_workers;
pub use place::Place;
pub use undo::{Undoing, undo};

use crate::board::{Again, Board, JobTable};
use crate::change::Change;
use crate::graph::Cycle;
use rustc_hash::{FxBuildHasher, FxHashSet};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use windlass_types::orders::{Order, TriagePolicy, Verdict};
use windlass_types::settings::SlurmScheduler;
use windlass_types::{
    Attempt, JobId, JobStatus, RequirementsId, Resources, RunId, WorkflowId, format_duration,
};

/// What of a job somebody can change while it waits; only what changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// What a job asks for, and where it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    #[serde(flatten)]
    pub resources: Resources,
    pub by: AskedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskedBy {
    /// It names nothing.
    Nothing,
    /// A set that it may share with others.
    Row(RequirementsId),
    /// The job alone.
    Itself,
}

/// What is known of the job of an order.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub status: JobStatus,
    pub asked: Asked,
    pub command: &'a str,
    pub priority: i32,
    /// The Slurm scheduler that it names.
    pub scheduler: Option<&'a SlurmScheduler>,
    /// How often agents had it tried again in this run.
    pub agent_retries: u32,
    /// The end of what it said when it failed; `None`: whoever gives the order has looked its quotes up in all of it.
    pub said: Option<&'a str>,
}

/// What the workflow says about orders.
#[derive(Clone, Copy, Debug, Default)]
pub struct House<'a> {
    /// Failures that nobody foresaw wait for a decision.
    pub asks: bool,
    pub policy: TriagePolicy,
    /// The Slurm schedulers of the workflow.
    pub schedulers: &'a [SlurmScheduler],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is carried out; with what of the job changes, if anything does.
    Done {
        words: String,
        revision: Option<Box<(Edition, Edition)>>,
    },
    /// It is carried out once a person agrees.
    Proposed(String),
    Refused(String),
}

/// Whether an order can be carried out, for an agent or a person.
pub fn judge(order: &Order, is_agent: bool, house: &House<'_>, case: &Case<'_>) -> Judgement {
    let refused = stands_wrong(order.verdict, case.status)
        .or_else(|| makes_no_sense(order))
        .or_else(|| is_agent.then(|| agents::oversteps(order, house, case)).flatten());
    let then = match (refused, place::moved(&order.changes, case.scheduler, house.schedulers)) {
        (Some(words), _) | (None, Err(words)) => return Judgement::Refused(words),
        (None, Ok(then)) => then,
    };
    let revision = revise(order, case, then.as_ref());
    if order.verdict == Verdict::Change && revision.is_none() {
        return Judgement::Refused("nothing would change".to_owned());
    }
    let unsure = house.policy.min_confidence.filter(|_| is_agent);
    if let Some(least) = unsure.filter(|least| order.confidence.is_none_or(|sure| sure < *least)) {
        let sure = order.confidence.map_or_else(|| "unsaid".to_owned(), |sure| format!("{sure}"));
        return Judgement::Proposed(format!("waits for a person: confidence {sure} is below {least}"));
    }
    Judgement::Done { words: in_words(order.verdict, revision.as_deref()), revision }
}

/// Whether it can be decided so about a job that stands like this, if nothing else speaks against it.
pub fn fits(verdict: Verdict, status: JobStatus) -> bool {
    stands_wrong(verdict, status).is_none()
}

fn stands_wrong(verdict: Verdict, status: JobStatus) -> Option<String> {
    use JobStatus::{Completed, Disabled, Failed, PendingFailed, Terminated};
    let (fits, remedy) = match verdict {
        Verdict::Retry => {
            (matches!(status, PendingFailed | Failed | Terminated), "only what has failed can be tried again")
        }
        Verdict::Fail => (status == PendingFailed, "only what waits for a decision can be made to fail"),
        Verdict::Ignore => {
            (matches!(status, PendingFailed | Failed | Terminated), "only a failure can be ignored")
        }
        Verdict::Change => (
            !(status.is_active() || matches!(status, Completed | Disabled)),
            "only what waits or has failed can be changed",
        ),
    };
    (!fits).then(|| format!("it is `{status}`: {remedy}"))
}

/// Whatever job it is about.
pub fn makes_no_sense(order: &Order) -> Option<String> {
    let changes = &order.changes;
    let no = |what: &str| Some(what.to_owned());
    if order.confidence.is_some_and(|sure| !(0.0..=1.0).contains(&sure)) {
        return no("confidence goes from 0 to 1");
    }
    if matches!(order.verdict, Verdict::Fail | Verdict::Ignore) && !changes.is_empty() {
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
fn revise(order: &Order, case: &Case<'_>, then: Option<&SlurmScheduler>) -> Option<Box<(Edition, Edition)>> {
    let (mut before, mut after) = (Edition::default(), Edition::default());
    let resources = order.changes.applied_to(case.asked.resources);
    if resources != case.asked.resources {
        before.asked = Some(case.asked);
        after.asked = Some(Asked { resources, by: AskedBy::Itself });
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
        before.place = Some(Place::of(case.scheduler));
        after.place = Some(Place::of(then));
    }
    (after != Edition::default()).then(|| Box::new((before, after)))
}

/// `retry with memory 1 GiB → 2 GiB`
fn in_words(verdict: Verdict, revision: Option<&(Edition, Edition)>) -> String {
    let Some((before, after)) = revision else { return verdict.to_string() };
    let with = if verdict == Verdict::Change { "change" } else { "retry with" };
    format!("{with} {}", difference(before, after))
}

/// `memory 1 GiB → 2 GiB, priority 0 → 5`
pub fn difference(before: &Edition, after: &Edition) -> String {
    let mut parts = Vec::new();
    if let (Some(old), Some(new)) = (before.asked, after.asked) {
        parts.extend(asked_difference(&old.resources, &new.resources));
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
        parts.extend(place::difference(old, new));
    }
    parts.join(", ")
}

fn asked_difference(old: &Resources, new: &Resources) -> Vec<String> {
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
pub enum Impossible {
    #[error(transparent)]
    Cycle(#[from] Cycle),
    #[error("job number {0}, which would have to go back, is held by a worker")]
    Held(u32),
}

/// Where jobs stand once the verdicts are carried out, as changes: `chosen` are jobs by number. `done`: the newest attempt
/// of each job that left a result in this run.
pub fn plan(
    workflow: WorkflowId,
    run: RunId,
    table: &JobTable,
    chosen: &[(u32, Verdict)],
    done: &HashMap<JobId, Attempt, FxBuildHasher>,
) -> Result<Vec<Change>, Impossible> {
    let of =
        |wanted: Verdict| chosen.iter().filter(move |(_, verdict)| *verdict == wanted).map(|(job, _)| *job);
    if chosen.iter().all(|(_, verdict)| *verdict == Verdict::Change) {
        return Ok(Vec::new());
    }
    let mut board = Board::new(workflow, run, table.clone())?;
    let (mut changes, mut after) = (Vec::new(), table.clone());
    for job in of(Verdict::Fail) {
        board.on_decided(job, JobStatus::Failed, &mut changes);
    }
    let is_canceled = |job: &u32| board.status(*job) == JobStatus::Canceled;
    let freed: Vec<u32> =
        of(Verdict::Ignore).flat_map(|job| board.dependents(job)).filter(is_canceled).collect();
    let retried: Vec<u32> = of(Verdict::Retry).collect();
    let again = board.plan_again(&retried, true, true, done).map_err(Impossible::Held)?;
    let back = board.plan_again(&freed, false, true, done).map_err(Impossible::Held)?;
    let mut known = FxHashSet::default();
    for Again { changes: more, .. } in [again, back] {
        changes.extend(more.into_iter().filter(|change| known.insert(job_of(change))));
    }
    for job in of(Verdict::Ignore) {
        let key = board.key(job);
        // It was built on something that runs again, and so does it.
        if known.contains(&Some(key.job)) {
            continue;
        }
        if board.status(job) == JobStatus::PendingFailed {
            let (from, to) = (JobStatus::PendingFailed, JobStatus::Failed);
            changes.push(Change::Status { job: key.job, from, to });
        }
        changes.push(Change::Ignore { job: key.job, attempt: key.attempt });
        after.ignored.push(job);
    }
    take_in(&mut after, &board, &changes);
    let mut board = Board::new(workflow, run, after)?;
    board.on_resumed(&mut changes);
    board.on_asked_for(&mut changes);
    board.on_going_on(&mut changes);
    Ok(changes)
}

const fn job_of(change: &Change) -> Option<JobId> {
    match change {
        Change::Retry { job, .. } | Change::Reset { job, .. } | Change::Status { job, .. } => Some(*job),
        _ => None,
    }
}

/// The table as it will be.
fn take_in(table: &mut JobTable, board: &Board, changes: &[Change]) {
    for change in changes {
        let (job, status, attempt) = match change {
            Change::Status { job, to, .. } => (*job, *to, None),
            Change::Retry { job, attempt, .. } => (*job, JobStatus::Ready, Some(attempt.next())),
            Change::Reset { job, attempt, .. } => (*job, JobStatus::Uninitialized, Some(*attempt)),
            Change::Unit(change) => {
                table.take_in_unit(change);
                continue;
            }
            _ => continue,
        };
        let Some(index) = board.index(job) else { continue };
        table.status[index as usize] = status;
        if let Some(attempt) = attempt {
            table.attempt[index as usize] = attempt;
        }
    }
}

#[cfg(test)]
mod tests;
