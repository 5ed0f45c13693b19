//! What is decided about failures and changed about jobs: in groups, one by one, and how to take it back.

use super::list_options::{ConfirmArgs, ListPageArgs};
use super::run::parse_memory;
use super::{JobRef, WorkflowRef};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::time::Duration;
use windlass_types::failure_commands::RequestedJobChanges;
use windlass_types::{Bytes, FailureClass};

/// A class of failures, as one of the words that a shell can complete.
fn failure_class_parser() -> impl TypedValueParser<Value = FailureClass> {
    let names = FailureClass::ALL.map(FailureClass::as_str);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<FailureClass>())
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Failures are one group when they have the same class, the same end and, but for numbers, names and paths, the same words. \
A group goes by its key, of which the beginning is enough.

Examples:
  windlass failures                                  what failed, in groups
  windlass failures --group 3fa2                     the jobs of one group
  windlass failures retry 3fa2 --memory 8g --reason 'the index grew'
  windlass failures ignore 3fa2 9c41 --reason 'empty samples'
  windlass failures fail 3fa2 --reason 'no such reference' --dry-run

What is decided holds at once, also while the rest of the workflow runs. If nobody runs it, `windlass resume` goes on."
)]
pub(crate) struct FailuresArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<FailuresSubcommand>,
    #[command(flatten)]
    pub(crate) list: FailuresListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FailuresListArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// The jobs of this group instead, by its key or the beginning of it.
    #[arg(short, long, value_name = "KEY")]
    pub(crate) group: Option<String>,
    /// Also failures that something came after: they were tried again.
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FailuresSubcommand {
    /// List the groups of failures of a workflow, or the jobs of one group.
    List(FailuresListArgs),
    /// List failures that wait for a decision (`pending_failed`), with the last lines of their logs.
    Pending(TriageListArgs),
    /// Show the failures of a job, and the decisions about it.
    Show(TriageShowArgs),
    /// Retry failed jobs, optionally with changed resources or another command.
    Retry(TriageChangeArgs),
    /// Ignore failures: dependents run as if the jobs had completed.
    Ignore(TriageDecisionArgs),
    /// Fail jobs that wait for a decision; their dependents are canceled.
    Fail(TriageDecisionArgs),
    /// Change failed jobs without retrying them.
    Change(TriageChangeArgs),
    /// Carry out decisions that an agent proposed.
    Approve(ProposalReviewArgs),
    /// Decline decisions that an agent proposed; the jobs keep waiting.
    Decline(ProposalReviewArgs),
    /// List decisions about failures, and their outcomes.
    Decisions(TriageDecisionsArgs),
    /// List or show changes of jobs (revisions).
    Revisions(RevisionsArgs),
    /// Undo a revision: restore the jobs as they were before.
    Undo(OneRevisionArgs),
    /// Report how often the decisions of each agent and person were right.
    Report(TriageReportArgs),
    /// Classify a failure by its log, exit code or signal.
    Classify(super::classify::ClassifyArgs),
    /// Failure handlers of a workflow: list, get.
    Handlers(super::jobs::HandlersArgs),
}

/// What of jobs is to be otherwise.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What changes about the jobs")]
pub(crate) struct JobChangeArgs {
    /// The memory that each asks for from now on, such as 8g.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<Bytes>,
    /// The time that each may take from now on, such as 2h or PT2H.
    #[arg(long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    runtime: Option<Duration>,
    /// The CPUs that each asks for from now on.
    #[arg(long, visible_alias = "num-cpus", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus: Option<u32>,
    /// Another command for each.
    #[arg(long, value_name = "CMD")]
    command: Option<String>,
    /// Another priority; larger ones start first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Another Slurm scheduler of the workflow for each, by name.
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
    /// Another Slurm partition for each; what else its scheduler says stays, and others that name it stay where they are.
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
}

impl From<&JobChangeArgs> for RequestedJobChanges {
    fn from(args: &JobChangeArgs) -> Self {
        Self {
            memory_bytes: args.memory,
            runtime_seconds: args.runtime.map(|runtime| runtime.as_secs_f64()),
            cpus: args.cpus,
            command: args.command.clone(),
            priority: args.priority,
            scheduler: args.scheduler.clone(),
            partition: args.partition.clone(),
            ..Self::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TriageListArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) which: FailureFilterArgs,
    /// Show so many of the last lines of what each said.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) lines: usize,
    /// List at most this many.
    #[arg(short, long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

/// Which failures are meant.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FailureFilterArgs {
    /// Only of this group, by its key or the beginning of it; give it again for more.
    #[arg(short, long, value_name = "KEY")]
    pub(crate) group: Vec<String>,
    /// Only of this class; give it again for more.
    #[arg(long, value_name = "CLASS", value_parser = failure_class_parser())]
    pub(crate) class: Vec<FailureClass>,
}

impl FailureFilterArgs {
    pub(crate) fn is_empty(&self) -> bool {
        self.group.is_empty() && self.class.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct TriageShowArgs {
    /// Job: its id, its name, or the beginning of its name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Workflow of the job, if it is named by its name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct TriageDecisionArgs {
    /// Jobs: ids, names, or patterns of names with `*` and `?`.
    #[arg(value_name = "JOB", required_unless_present_any = ["group", "class"])]
    pub(crate) jobs: Vec<JobRef>,
    /// Workflow: its id, its name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) which: FailureFilterArgs,
    /// Why; kept with the decision, for those who ask later.
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
    #[command(flatten)]
    pub(crate) agent: DecisionAgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TriageChangeArgs {
    #[command(flatten)]
    pub(crate) which: TriageDecisionArgs,
    #[command(flatten)]
    pub(crate) changes: JobChangeArgs,
}

/// An agent is bound by the workflow's policy; a person is not.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "For agents")]
pub(crate) struct DecisionAgentArgs {
    /// Decide as this agent: the workflow's policy holds, and the report counts it apart. Otherwise WINDLASS_AGENT names it.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// How sure it is, from 0 to 1.
    #[arg(long, value_name = "X")]
    pub(crate) confidence: Option<f64>,
    /// A line of what the job said that speaks for the decision; give it again for more.
    #[arg(long, value_name = "LINE")]
    pub(crate) evidence: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalReviewArgs {
    /// The numbers of proposals, as `windlass failures pending` shows them.
    #[arg(value_name = "DECISION", required = true)]
    pub(crate) decisions: Vec<i64>,
    /// Workflow that they belong to: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct TriageDecisionsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only those about this job, by id or name.
    #[arg(short, long, value_name = "JOB")]
    pub(crate) job: Option<JobRef>,
    /// Only proposals that wait for a person.
    #[arg(long)]
    pub(crate) proposed: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TriageReportArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// All workflows of the database together.
    #[arg(short, long, conflicts_with = "workflow")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
What is changed together is one revision: who changed which jobs, why, from what to what. It can be undone as long as its \
jobs wait or have failed.

Examples:
  windlass failures revisions
  windlass failures revisions show 3
  windlass failures undo 3"
)]
pub(crate) struct RevisionsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<RevisionsSubcommand>,
    #[command(flatten)]
    pub(crate) list: super::workflows::ListInWorkflowArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RevisionsSubcommand {
    /// List the revisions of a workflow's jobs.
    List(super::workflows::ListInWorkflowArgs),
    /// Show the changes of one revision, job by job.
    Show(OneRevisionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OneRevisionArgs {
    /// The number that `windlass failures revisions` shows.
    #[arg(value_name = "N")]
    pub(crate) revision: i64,
    /// Workflow that it belongs to: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}
