//! Reuse of results: for each job of a plan, whether an earlier result is still valid, and if not, why.
//!
//! A result is valid if the definition of the job is unchanged, the job completed, its input files are as that
//! attempt found them, its outputs as it left them, and none of its dependencies runs again. The caller passes
//! in the current state, including files; nothing here reads a disk.

mod definition;
mod dependencies;

pub use definition::{AcceptedChange, DefinitionField, NameSetDigest, ParseAcceptError, ReuseDefinition};
pub use dependencies::dependency_digests;

use crate::dependency_edges::DependencyEdges;
use crate::dependency_graph::DependencyCycle;
use crate::topological_order::TopologicalOrder;
use rustc_hash::FxHashSet;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use windlass_types::worker_messages::{AttemptFiles, FileSnapshot};
use windlass_types::{Bytes, JobStatus, Timestamp};

/// A job as it was in the earlier workflow.
#[derive(Clone, Debug)]
pub struct PreviousJob<'a> {
    pub definition: ReuseDefinition<'a>,
    pub status: JobStatus,
    /// Files of the newest completed attempt, in the order of the definition.
    pub files: Option<AttemptFiles>,
    /// Whether it added jobs that are not in the plan: only a rerun shows what they are.
    pub has_added: bool,
}

/// Input of the decision.
#[derive(Clone, Copy)]
pub struct ReuseQuery<'a> {
    pub jobs: u32,
    pub edges: &'a DependencyEdges,
    /// Returns each job of the plan.
    pub current: &'a dyn Fn(u32) -> ReuseDefinition<'a>,
    /// Returns the earlier job of this name, if any.
    pub previous: &'a dyn Fn(u32, &str) -> Option<PreviousJob<'a>>,
    /// Returns the current state of a file, with a hash if contents are compared.
    pub file: &'a dyn Fn(&str) -> Option<FileSnapshot>,
    /// Whether other declared files are in this directory.
    pub is_shared: &'a dyn Fn(&str) -> bool,
    /// Changes accepted by the user.
    pub accepted: &'a [AcceptedChange],
}

impl fmt::Debug for ReuseQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReuseQuery").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReuseDecision {
    /// Its result is still valid. Also used for disabled jobs.
    Reuse,
    Run(RerunReason),
}

impl ReuseDecision {
    pub fn runs(&self) -> bool {
        matches!(self, Self::Run(_))
    }
}

/// The reason why a job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum RerunReason {
    /// There was no such job.
    New,
    NotCompleted {
        status: JobStatus,
    },
    Changed {
        field: DefinitionField,
        old: String,
        new: String,
    },
    /// It added jobs that are not in the plan.
    HasAdded,
    /// It declares files, but their earlier state is not recorded.
    NoRecord,
    InputChanged {
        file: String,
        old: Option<FileSnapshot>,
        new: FileSnapshot,
    },
    InputMissing {
        file: String,
    },
    OutputMissing {
        file: String,
    },
    /// The output was modified since.
    OutputChanged {
        file: String,
        old: Option<FileSnapshot>,
        new: FileSnapshot,
    },
    /// A dependency runs again.
    Upstream {
        /// The nearest dependency that runs for a reason of its own.
        job: u32,
        /// The direct dependency on the path to it; the same one if it is direct.
        through: u32,
    },
}

impl RerunReason {
    /// In words: `command changed: a → b`. `name` returns the name of a job.
    pub fn describe(&self, name: impl Fn(u32) -> String) -> String {
        match self {
            Self::New => "new".to_owned(),
            Self::NotCompleted { status } => format!("was {status}"),
            Self::Changed { field, old, new } => format!("{field} changed: {old} → {new}"),
            Self::HasAdded => "it added jobs, which are not in the spec".to_owned(),
            Self::NoRecord => "the earlier state of its files is not recorded".to_owned(),
            Self::InputChanged { file, old, new } => {
                format!("input {file} changed: {}", describe_change(old.as_ref(), new))
            }
            Self::InputMissing { file } => format!("input {file} is missing"),
            Self::OutputMissing { file } => format!("output {file} is missing"),
            Self::OutputChanged { file, old, new } => {
                format!("output {file} changed since: {}", describe_change(old.as_ref(), new))
            }
            Self::Upstream { job, through } if job == through => {
                format!("depends on {}, which runs", name(*job))
            }
            Self::Upstream { job, through } => {
                format!("depends on {}, which runs because of {}", name(*through), name(*job))
            }
        }
    }
}

fn describe_change(old: Option<&FileSnapshot>, new: &FileSnapshot) -> String {
    match old {
        Some(old) => format!("{} → {}", describe_file(old, new), describe_file(new, old)),
        None => format!("missing → {}", Bytes(new.size)),
    }
}

/// Describes a file by what distinguishes it from `other`: contents if both have hashes, else size, else time.
fn describe_file(file: &FileSnapshot, other: &FileSnapshot) -> String {
    let size = |file: &FileSnapshot| Bytes(file.size).to_string().replace(".0 ", " ");
    match (&file.hash, &other.hash) {
        (Some(hash), Some(_)) => format!("contents {}", hash.chars().take(12).collect::<String>()),
        _ if size(file) != size(other) => size(file),
        // A large file whose size changed slightly.
        _ if file.size != other.size => format!("{} bytes", file.size),
        _ => Timestamp(file.mtime_ns / 1000).to_string(),
    }
}

/// Number of jobs that run, by kind of reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReuseSummary {
    pub reused: u32,
    pub new: u32,
    pub not_completed: u32,
    pub changed: u32,
    pub files: u32,
    pub upstream: u32,
}

impl ReuseSummary {
    pub fn from_decisions(decisions: &[ReuseDecision]) -> Self {
        let mut summary = Self::default();
        for decision in decisions {
            let count = match decision {
                ReuseDecision::Reuse => &mut summary.reused,
                ReuseDecision::Run(RerunReason::New) => &mut summary.new,
                ReuseDecision::Run(RerunReason::NotCompleted { .. }) => &mut summary.not_completed,
                ReuseDecision::Run(RerunReason::Changed { .. } | RerunReason::HasAdded) => {
                    &mut summary.changed
                }
                ReuseDecision::Run(RerunReason::Upstream { .. }) => &mut summary.upstream,
                ReuseDecision::Run(
                    RerunReason::NoRecord
                    | RerunReason::InputChanged { .. }
                    | RerunReason::InputMissing { .. }
                    | RerunReason::OutputMissing { .. }
                    | RerunReason::OutputChanged { .. },
                ) => &mut summary.files,
            };
            *count += 1;
        }
        summary
    }

    pub fn rerun_count(&self) -> u32 {
        self.new + self.not_completed + self.changed + self.files + self.upstream
    }
}

/// Decides about every job, by number.
pub fn decide_reuse(question: &ReuseQuery<'_>) -> Result<Vec<ReuseDecision>, DependencyCycle> {
    let order = TopologicalOrder::new(question.jobs, question.edges)?;
    let mut decisions = vec![ReuseDecision::Reuse; question.jobs as usize];
    // For each node: the job that makes its dependents run, and the nearest cause.
    let mut upstream_reruns: Vec<Option<UpstreamRerun>> = vec![None; order.len()];
    let mut rewritten = FxHashSet::default();
    for &node in order.sorted() {
        let reached = order.predecessors(node).iter().find_map(|&before| upstream_reruns[before as usize]);
        if order.is_group(node) {
            upstream_reruns[node as usize] = reached;
            continue;
        }
        let now = (question.current)(node);
        let own = own_reason(question, node, &now, &rewritten);
        let reason = own.or(reached.map(|upstream_rerun| RerunReason::Upstream {
            job: upstream_rerun.cause,
            through: upstream_rerun.direct,
        }));
        let Some(reason) = reason else { continue };
        let cause = if let RerunReason::Upstream { job, .. } = reason { job } else { node };
        upstream_reruns[node as usize] = Some(UpstreamRerun { cause, direct: node });
        rewritten.extend(now.outputs.iter().map(|path| path.clone().into_owned()));
        decisions[node as usize] = ReuseDecision::Run(reason);
    }
    Ok(decisions)
}

#[derive(Clone, Copy)]
struct UpstreamRerun {
    cause: u32,
    direct: u32,
}

/// Returns why `job` has to run regardless of its dependencies. An input written by a dependency is not checked
/// here.
fn own_reason(
    question: &ReuseQuery<'_>,
    job: u32,
    now: &ReuseDefinition<'_>,
    rewritten: &FxHashSet<String>,
) -> Option<RerunReason> {
    let Some(before) = (question.previous)(job, &now.name) else { return Some(RerunReason::New) };
    match before.status {
        JobStatus::Disabled => return None,
        JobStatus::Completed => {}
        status => return Some(RerunReason::NotCompleted { status }),
    }
    let accepted = |field| question.accepted.iter().any(|accept| accept.covers(&now.name, field));
    if let Some(reason) = definition::find_difference(&before.definition, now, accepted) {
        return Some(reason);
    }
    if before.has_added {
        return Some(RerunReason::HasAdded);
    }
    let Some(files) = &before.files else {
        let declares = !now.inputs.is_empty() || !now.outputs.is_empty();
        return declares.then_some(RerunReason::NoRecord);
    };
    input_reason(question, &before.definition, files, now, rewritten).or_else(|| {
        output_reason(question, &before.definition, files, now, accepted(DefinitionField::OutputFiles))
    })
}

fn input_reason(
    question: &ReuseQuery<'_>,
    before: &ReuseDefinition<'_>,
    files: &AttemptFiles,
    now: &ReuseDefinition<'_>,
    rewritten: &FxHashSet<String>,
) -> Option<RerunReason> {
    // A file that a job modifies in place is compared as its output.
    let settled =
        now.inputs.iter().filter(|path| !rewritten.contains(path.as_ref()) && !now.outputs.contains(path));
    settled.map(AsRef::as_ref).find_map(|path: &str| match (question.file)(path) {
        None => Some(RerunReason::InputMissing { file: path.to_owned() }),
        Some(new) => {
            let PreviousFile(old) = changed_file(&before.inputs, &files.inputs, path, &new)?;
            Some(RerunReason::InputChanged { file: path.to_owned(), old, new })
        }
    })
}

/// Checks that the outputs exist and are as the job left them. If `accepted`, existence suffices, also for a
/// directory that contains files of other jobs.
fn output_reason(
    question: &ReuseQuery<'_>,
    before: &ReuseDefinition<'_>,
    files: &AttemptFiles,
    now: &ReuseDefinition<'_>,
    accepted: bool,
) -> Option<RerunReason> {
    now.outputs.iter().map(AsRef::as_ref).find_map(|path: &str| match (question.file)(path) {
        None => Some(RerunReason::OutputMissing { file: path.to_owned() }),
        Some(_) if accepted => None,
        Some(new) => {
            let PreviousFile(old) = changed_file(&before.outputs, &files.outputs, path, &new)?;
            (!(question.is_shared)(path)).then(|| RerunReason::OutputChanged {
                file: path.to_owned(),
                old,
                new,
            })
        }
    })
}

/// The earlier state of a changed file; `None`: missing.
struct PreviousFile(Option<FileSnapshot>);

/// Returns the earlier state of a file if it differs. A file not among `paths`, because its addition was
/// accepted, has no earlier state.
fn changed_file(
    paths: &[Cow<'_, str>],
    states: &[Option<FileSnapshot>],
    path: &str,
    new: &FileSnapshot,
) -> Option<PreviousFile> {
    let place = paths.iter().position(|old| old == path)?;
    let old = states.get(place).cloned().flatten();
    old.as_ref().is_none_or(|old| !is_same(old, new)).then_some(PreviousFile(old))
}

/// Equal hashes mean the same file even if its time differs; without both hashes, size and time decide.
fn is_same(old: &FileSnapshot, new: &FileSnapshot) -> bool {
    match (&old.hash, &new.hash) {
        (Some(old), Some(new)) => old == new,
        _ => (old.mtime_ns, old.size) == (new.mtime_ns, new.size),
    }
}

#[cfg(test)]
mod tests;
