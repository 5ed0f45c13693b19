//! Failures and decisions about them, and changes of jobs.

use super::list_options::{ConfirmArgs, ListPageArgs};
use super::run::parse_memory;
use super::{JobRef, WorkflowRef};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::time::Duration;
use windlass_types::failure_commands::RequestedJobChanges;
use windlass_types::{Bytes, FailureClass};

/// A parser of failure classes with the values that a shell can complete.
fn failure_class_parser() -> impl TypedValueParser<Value = FailureClass> {
    let names = FailureClass::ALL.map(FailureClass::as_str);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<FailureClass>())
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Failures with the same class, the same exit code or signal, and the same message form a group; numbers, names and paths in \
messages are ignored. Each group has a key; a unique prefix of the key is enough.

In a workflow with `use_pending_failed: true`, failures that no rule handles wait for a decision (`pending_failed`), and \
their dependents wait too. Each decision is recorded with its user or agent and the reason; `windlass failures report` \
shows how often decisions were right.

Examples:
  windlass failures                                    list failures by group
  windlass failures --group 3fa2                       list the jobs of a group
  windlass failures retry 3fa2 --memory 8g --reason 'the index grew'
  windlass failures ignore 3fa2 9c41 --reason 'empty samples'
  windlass failures pending                            list failures that wait for a decision
  windlass failures show align_7                       show the failures of a job
  windlass failures retry 'align_*' --class transient  retry jobs by name and class
  windlass failures fail 12 13 --reason 'bad input'    fail jobs, and cancel their dependents
  windlass failures approve 4                          carry out what an agent proposed
  windlass failures undo 3                             undo a change of jobs

Decisions take effect at once, also while the rest of the workflow runs. If it is not running, `windlass resume` continues it."
)]
pub(crate) struct FailuresArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<FailuresSubcommand>,
    #[command(flatten)]
    pub(crate) list: FailuresListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FailuresListArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// List the jobs of this group instead of all groups. Give the key of the group or a prefix of it.
    #[arg(short, long, value_name = "KEY")]
    pub(crate) group: Option<String>,
    /// Include failures that were retried.
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
    Pending(PendingFailuresArgs),
    /// Show the failures of a job, and the decisions about it.
    Show(FailureShowArgs),
    /// Retry failed jobs, optionally with changed resources or another command.
    Retry(FailureChangeArgs),
    /// Ignore failures: dependents run as if the jobs had completed.
    Ignore(FailureDecisionArgs),
    /// Fail jobs that wait for a decision; their dependents are canceled.
    Fail(FailureDecisionArgs),
    /// Change failed jobs without retrying them.
    Change(FailureChangeArgs),
    /// Carry out decisions that an agent proposed.
    Approve(ProposalReviewArgs),
    /// Decline decisions that an agent proposed; the jobs keep waiting.
    Decline(ProposalReviewArgs),
    /// List decisions about failures, and their outcomes.
    Decisions(DecisionListArgs),
    /// List or show changes of jobs (revisions).
    Revisions(RevisionsArgs),
    /// Undo a revision: restore the jobs as they were before.
    Undo(OneRevisionArgs),
    /// Report how often the decisions of each agent and person were right.
    Report(DecisionReportArgs),
    /// Classify a failure by its log, exit code or signal.
    Classify(super::classify::ClassifyArgs),
    /// Failure handlers of a workflow: list, get.
    Handlers(super::jobs::HandlersArgs),
}

/// Changes of jobs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Changes of the jobs")]
pub(crate) struct JobChangeArgs {
    /// New memory of each job: `8g`.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<Bytes>,
    /// New time limit of each job: `2h` or `PT2H`.
    #[arg(long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    runtime: Option<Duration>,
    /// New number of CPUs of each job.
    #[arg(long, visible_alias = "num-cpus", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus: Option<u32>,
    /// New command of each job.
    #[arg(long, value_name = "CMD")]
    command: Option<String>,
    /// New priority; jobs with larger values start first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// New Slurm scheduler of each job, by name.
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
    /// New Slurm partition of each job; other jobs with the same scheduler keep theirs.
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
pub(crate) struct PendingFailuresArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) filter: FailureFilterArgs,
    /// Number of last log lines to show of each failure.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) lines: usize,
    /// Maximum number of entries.
    #[arg(short, long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

/// A selection of failures.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FailureFilterArgs {
    /// Only failures of this group, by its key or a prefix of the key; repeat for more.
    #[arg(short, long, value_name = "KEY")]
    pub(crate) group: Vec<String>,
    /// Only failures of this class; repeat for more.
    #[arg(long, value_name = "CLASS", value_parser = failure_class_parser())]
    pub(crate) class: Vec<FailureClass>,
}

impl FailureFilterArgs {
    pub(crate) fn is_empty(&self) -> bool {
        self.group.is_empty() && self.class.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct FailureShowArgs {
    /// Job: id, name, or prefix of the name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Workflow of the job, if the job is given by name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct FailureDecisionArgs {
    /// Jobs (ids, names, or patterns of names with `*` and `?`), or keys of groups.
    #[arg(value_name = "JOB|KEY", required_unless_present_any = ["group", "class"])]
    pub(crate) jobs: Vec<JobRef>,
    /// Workflow: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) filter: FailureFilterArgs,
    /// Reason, recorded with the decision; required for groups.
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
    #[command(flatten)]
    pub(crate) agent: DecisionAgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FailureChangeArgs {
    #[command(flatten)]
    pub(crate) decision: FailureDecisionArgs,
    #[command(flatten)]
    pub(crate) changes: JobChangeArgs,
}

/// The policy of the workflow restricts decisions of agents, not of users.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "For agents")]
pub(crate) struct DecisionAgentArgs {
    /// Name of the agent that decides; its decisions are subject to the triage policy of the workflow. Default:
    /// WINDLASS_AGENT.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Confidence of the agent, from 0 to 1.
    #[arg(long, value_name = "X")]
    pub(crate) confidence: Option<f64>,
    /// Log line that supports the decision; repeat for more.
    #[arg(long, value_name = "LINE")]
    pub(crate) evidence: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalReviewArgs {
    /// Numbers of proposals, as `windlass failures pending` shows them.
    #[arg(value_name = "DECISION", required = true)]
    pub(crate) decisions: Vec<i64>,
    /// Workflow of the proposals: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct DecisionListArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only decisions about this job, by id or name.
    #[arg(short, long, value_name = "JOB")]
    pub(crate) job: Option<JobRef>,
    /// Only proposals that wait for approval.
    #[arg(long)]
    pub(crate) proposed: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DecisionReportArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Include all workflows of the database.
    #[arg(short, long, conflicts_with = "workflow")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
A revision is a set of changes made together: who changed which jobs, why, and the old and new values. A revision can be \
undone only while its jobs wait or have failed.

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
    /// Number of the revision, as `windlass failures revisions` shows it.
    #[arg(value_name = "N")]
    pub(crate) revision: i64,
    /// Workflow of the revision: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}
