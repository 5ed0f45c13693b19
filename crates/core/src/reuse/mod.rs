//! Running only what changed: for each job of a plan, whether an earlier result still stands, and if not, why.
//!
//! A result stands if the job is defined as it was, it completed, its input files are as that attempt found them, its
//! outputs as it left them, and nothing that it depends on runs again. The caller says how things are, files included;
//! nothing here looks at a disk.

mod definition;
mod dependencies;

pub use definition::{AcceptedChange, DefinitionField, NameSetDigest, ParseAcceptError, ReuseDefinition};
pub use dependencies::dependency_digests;

use crate::edges::DependencyEdges;
use crate::graph::DependencyCycle;
use crate::topological_order::TopologicalOrder;
use rustc_hash::FxHashSet;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use windlass_types::worker_messages::{AttemptFiles, FileSnapshot};
use windlass_types::{Bytes, JobStatus, Timestamp};

/// A job as it was when it last had the chance to run.
#[derive(Clone, Debug)]
pub struct PreviousJob<'a> {
    pub definition: ReuseDefinition<'a>,
    pub status: JobStatus,
    /// The files of the newest attempt that completed, in the order of the definition.
    pub files: Option<AttemptFiles>,
    /// It added jobs that are not in the plan: only running it again tells what they are to be.
    pub has_added: bool,
}

/// What is to be decided on.
#[derive(Clone, Copy)]
pub struct ReuseQuery<'a> {
    pub jobs: u32,
    pub edges: &'a DependencyEdges,
    /// Each job of the plan.
    pub current: &'a dyn Fn(u32) -> ReuseDefinition<'a>,
    /// The same job before; `None` if there was none of that name.
    pub previous: &'a dyn Fn(u32, &str) -> Option<PreviousJob<'a>>,
    /// A file as it is at present. With a hash where contents are compared.
    pub file: &'a dyn Fn(&str) -> Option<FileSnapshot>,
    /// Whether files that are declared by themselves lie in this directory.
    pub is_shared: &'a dyn Fn(&str) -> bool,
    /// Changes that somebody declared to mean nothing.
    pub accepted: &'a [AcceptedChange],
}

impl fmt::Debug for ReuseQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReuseDecision {
    /// What it made is still good. Also said of a job that was left out on purpose.
    Reuse,
    Run(RerunReason),
}

impl ReuseDecision {
    pub fn runs(&self) -> bool {
        matches!(self, Self::Run(_))
    }
}

/// The one thing because of which a job runs.
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
    /// It added jobs, which the plan does not have.
    HasAdded,
    /// It declares files, but how they were is not on record.
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
    /// Somebody else has written it since.
    OutputChanged {
        file: String,
        old: Option<FileSnapshot>,
        new: FileSnapshot,
    },
    /// A job that it depends on runs again.
    Upstream {
        /// The nearest one that runs for a reason of its own.
        job: u32,
        /// The dependency through which that reaches this job; the same one if it is a direct dependency.
        through: u32,
    },
}

impl RerunReason {
    /// In words: `command changed: a → b`. `name` gives the name of a job.
    pub fn describe(&self, name: impl Fn(u32) -> String) -> String {
        match self {
            Self::New => "new".to_owned(),
            Self::NotCompleted { status } => format!("was {status}"),
            Self::Changed { field, old, new } => format!("{field} changed: {old} → {new}"),
            Self::HasAdded => "it added jobs, which are not in the spec".to_owned(),
            Self::NoRecord => "how its files were is not on record".to_owned(),
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

/// A file by what tells it from `other`, and no more: its contents if both were looked at, else its size, else its time.
fn describe_file(file: &FileSnapshot, other: &FileSnapshot) -> String {
    let size = |file: &FileSnapshot| Bytes(file.size).to_string().replace(".0 ", " ");
    match (&file.hash, &other.hash) {
        (Some(hash), Some(_)) => format!("contents {}", hash.chars().take(12).collect::<String>()),
        _ if size(file) != size(other) => size(file),
        // A large file that grew by little.
        _ if file.size != other.size => format!("{} bytes", file.size),
        _ => Timestamp(file.mtime_ns / 1000).to_string(),
    }
}

/// How many jobs run, and for which kinds of reasons.
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

/// Decides on every job, by number.
pub fn decide_reuse(question: &ReuseQuery<'_>) -> Result<Vec<ReuseDecision>, DependencyCycle> {
    let order = TopologicalOrder::new(question.jobs, question.edges)?;
    let mut decisions = vec![ReuseDecision::Reuse; question.jobs as usize];
    // Per node: the job that makes those behind it run, and the nearest cause of that.
    let mut stirred: Vec<Option<UpstreamRerun>> = vec![None; order.len()];
    let mut rewritten = FxHashSet::default();
    for &node in order.sorted() {
        let reached = order.predecessors(node).iter().find_map(|&before| stirred[before as usize]);
        if order.is_gate(node) {
            stirred[node as usize] = reached;
            continue;
        }
        let now = (question.current)(node);
        let own = own_reason(question, node, &now, &rewritten);
        let reason =
            own.or(reached.map(|stir| RerunReason::Upstream { job: stir.cause, through: stir.direct }));
        let Some(reason) = reason else { continue };
        let cause = if let RerunReason::Upstream { job, .. } = reason { job } else { node };
        stirred[node as usize] = Some(UpstreamRerun { cause, direct: node });
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

/// Why `job` has to run whatever becomes of the jobs before it. A file that a job before it writes anew says nothing
/// yet.
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
    // What a job changes in place is compared as the output that it left.
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

/// The outputs must be there, and as the job left them: whatever else wrote them is not its result. `accepted`: being
/// there is enough, and so it is for a directory in which other jobs have files of their own.
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

/// A file that was different; `None`: not there.
struct PreviousFile(Option<FileSnapshot>);

/// How the file was, if that differs from how it is. One that was not among `paths`, because its addition was accepted,
/// has no old state to differ from.
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

/// Equal contents are the same file whatever its time says; without both hashes, size and time decide.
fn is_same(old: &FileSnapshot, new: &FileSnapshot) -> bool {
    match (&old.hash, &new.hash) {
        (Some(old), Some(new)) => old == new,
        _ => (old.mtime_ns, old.size) == (new.mtime_ns, new.size),
    }
}

#[cfg(test)]
mod tests;
