//! Commands about what would run, what runs again, and why: `plan`, `why`, `reinit`, `reset-status`.

use super::list_options::ConfirmArgs;
use super::object_refs::job_status_parser;
use super::{JobRef, WorkflowRef};
use clap::Args;
use std::path::PathBuf;
use windlass_core::reuse::AcceptedChange;
use windlass_types::{Bytes, JobStatus};

#[derive(Debug, Args)]
#[command(after_help = "\
With a spec: what it would do. If the same file made a workflow here before, the plan says which of its finished jobs \
are reused and, for each job that runs again, the one thing that changed. With the id or the name of a workflow: what \
its next run would do. Nothing is changed and nothing is stored.

Formats:
  table     stages, counts, the critical path and a drawing, for the terminal (also called text)
  json      the same for programs
  dot       a graph for Graphviz
  mermaid   a graph for Markdown pages
  svg       a picture

Examples:
  windlass plan                                    the spec of this directory
  windlass plan sweep.yaml
  windlass plan last                               what `windlass workflows reinit` would run again
  windlass plan sweep.yaml --format svg -o sweep.svg
  windlass plan sweep.yaml --format dot | dot -Tpdf > sweep.pdf
  windlass plan sweep.yaml --accept merge:command  merge was only written differently
  windlass plan sweep.yaml -f json | jq '.changes.run[].name'")]
pub(crate) struct PlanArgs {
    /// Spec file (`-` is stdin), or a workflow: its id, its name, or `last`. The spec of this directory by default.
    #[arg(value_name = "SPEC|ID")]
    pub(crate) target: Option<String>,
    /// Write to this file instead of to standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// One line for each job instead of one for each entry of the spec.
    #[arg(long)]
    pub(crate) per_job: bool,
    /// List every job that would run with its reason, instead of the first few.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Compare with nothing that ran before, as `windlass run --new` does.
    #[arg(long)]
    pub(crate) new: bool,
    /// Tell changed files by what is in them, not by their times.
    #[arg(long, visible_alias = "hash")]
    pub(crate) content: bool,
    /// Take a change for one that means nothing: `JOB`, `JOB:FIELD`, or `*:FIELD` for all jobs.
    #[arg(long, value_name = "JOB:FIELD")]
    pub(crate) accept: Vec<AcceptedChange>,
    #[command(flatten)]
    pub(crate) capacity: CapacityArgs,
}

/// A machine to plan for.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "The machine to plan for")]
pub(crate) struct CapacityArgs {
    /// Plan for a machine with this many CPUs instead of this one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Plan for a machine with this much memory, in GiB.
    #[arg(long = "memory-gb", value_name = "GIB", value_parser = super::parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Plan for a machine with this many GPUs.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
    /// Plan for at most this many jobs at once.
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_parallel_jobs: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
One answer for a job that waits, runs or failed: the verdict, what speaks for it (the jobs it waits for, what no worker \
can offer, exit code and signal, the log lines that matter), and the next command to type.

Examples:
  windlass why align_7
  windlass why 12 --workflow 3
  windlass why align_7 -f json | jq -r .headline")]
pub(crate) struct WhyArgs {
    /// Job: its id or its name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Workflow of the job: its id, its name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A finished job runs again if one of its input files or input data changed since it ran, if one of its output files is \
gone, or if it depends on a job that runs again. Results of earlier runs stay visible with `windlass jobs results --all-runs`.

Examples:
  windlass workflows reinit --dry-run              say what would run again, and why
  windlass workflows reinit && windlass resume
  windlass workflows reinit 3 --content            a file that was only touched has not changed")]
pub(crate) struct ReinitArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Say for each job why it would run again, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Go on although input files are missing.
    #[arg(long)]
    pub(crate) force: bool,
    /// Tell changed files by what is in them, not by their times.
    #[arg(long, visible_alias = "hash")]
    pub(crate) content: bool,
    #[command(flatten)]
    pub(crate) at_once: TorcAsyncArgs,
}

/// What Torc's scripts say of work that a server does in the background; here it is done at once.
#[derive(Debug, Args)]
pub(crate) struct TorcAsyncArgs {
    /// Understood for the sake of scripts; it is done when the command returns in any case.
    #[arg(long = "async", hide = true)]
    pub(crate) in_background: bool,
    /// Understood for the sake of scripts; there is nothing to wait for.
    #[arg(long, hide = true, value_name = "SECONDS")]
    pub(crate) wait_timeout: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The workflow is ready to run as soon as it is created; this checks that the input files which no job makes are there.

Examples:
  windlass workflows init
  windlass workflows init 3 --dry-run")]
pub(crate) struct WorkflowInitArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Go on although input files are missing.
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what is missing, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Understood for the sake of scripts; nothing is asked.
    #[arg(long, hide = true)]
    pub(crate) no_prompts: bool,
    #[command(flatten)]
    pub(crate) at_once: TorcAsyncArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without --failed-only, --job, --status or --return-code every job of the workflow runs again. Jobs built on those that \
run again do so too. Results of earlier runs stay visible with `windlass jobs results --all-runs`.

Examples:
  windlass workflows reset-status --failed-only && windlass resume
  windlass workflows reset-status --job align_7 --dry-run
  windlass workflows reset-status 3 --status canceled --no-prompts
  windlass workflows reset-status --return-code 137")]
pub(crate) struct ResetStatusArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only jobs that failed, were canceled or ran out of time.
    #[arg(long)]
    pub(crate) failed_only: bool,
    /// Only this job, by id or name; give it again for more.
    #[arg(short, long = "job", value_name = "JOB")]
    pub(crate) jobs: Vec<JobRef>,
    #[command(flatten)]
    pub(crate) how: ResetOptionArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Jobs built on those that run again do so too. Results of earlier runs stay visible with `windlass jobs results --all-runs`.

Examples:
  windlass jobs reset-status 12 13
  windlass jobs reset-status --status failed --workflow-id 3 --dry-run")]
pub(crate) struct JobsResetArgs {
    /// Jobs, by id or name.
    #[arg(value_name = "JOB")]
    pub(crate) jobs: Vec<JobRef>,
    /// Workflow of the jobs: its id, its name, or `last`. Ids of jobs say it themselves.
    #[arg(short, long, visible_alias = "workflow", value_name = "ID")]
    pub(crate) workflow_id: Option<WorkflowRef>,
    #[command(flatten)]
    pub(crate) how: ResetOptionArgs,
}

/// What resetting a workflow and resetting jobs have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResetOptionArgs {
    /// Only jobs in these states, separated by commas. `failed` includes `terminated`.
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',', value_parser = job_status_parser(), hide_possible_values = true)]
    pub(crate) status: Vec<JobStatus>,
    /// Only jobs whose newest attempt ended with this code.
    #[arg(long, value_name = "CODE", allow_hyphen_values = true)]
    pub(crate) return_code: Option<i32>,
    /// Also jobs whose inputs changed, as `windlass workflows reinit` finds them.
    #[arg(short = 'r', long, visible_alias = "reinit")]
    pub(crate) reinitialize: bool,
    /// Go on although input files are missing.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}
