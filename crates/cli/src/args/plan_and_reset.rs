//! Commands about what would run and what runs again: `plan`, `why`, `reinit`, `reset-status`.

use super::list_options::ConfirmArgs;
use super::object_refs::job_status_parser;
use super::{JobRef, WorkflowRef};
use clap::Args;
use std::path::PathBuf;
use windlass_core::reuse::AcceptedChange;
use windlass_types::{Bytes, JobStatus};

#[derive(Debug, Args)]
#[command(after_help = "\
With a spec: shows what it would run. If the same file created a workflow here before, the plan shows which of its \
completed jobs are reused and, for each job that runs again, what changed. With the id or name of a workflow: shows what \
its next run would do. Nothing is changed or stored.

Formats:
  table     stages, counts, the critical path and a drawing, for the terminal (`text` is an alias)
  json      the same for programs
  dot       a graph for Graphviz, in the DOT language
  mermaid   a graph for Markdown pages, in the Mermaid language
  svg       a picture

Examples:
  windlass plan                                    the spec of this directory
  windlass plan sweep.yaml
  windlass plan last                               what `windlass workflows reinit` would reset
  windlass plan sweep.yaml --format svg -o sweep.svg
  windlass plan sweep.yaml --format dot | dot -Tpdf > sweep.pdf
  windlass plan sweep.yaml --accept merge:command  ignore the changed command of merge
  windlass plan sweep.yaml -f json | jq '.changes.run[].name'")]
pub(crate) struct PlanArgs {
    /// Spec file (`-` reads standard input), or a workflow: id, name, or `last`. Default: the spec of this
    /// directory.
    #[arg(value_name = "SPEC|ID")]
    pub(crate) target: Option<String>,
    /// File to write. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show one line per job instead of one per job group (the jobs of one entry of the spec).
    #[arg(long)]
    pub(crate) per_job: bool,
    /// List all jobs that would run with their reasons, instead of the first few.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show what `windlass run --new` would run: all jobs, without reuse of earlier results.
    #[arg(long)]
    pub(crate) new: bool,
    /// Detect changed files by content instead of modification time.
    #[arg(long, visible_alias = "hash")]
    pub(crate) content: bool,
    /// Plan to reuse the results of a job although it changed: `JOB` for any change, `JOB:FIELD` for one
    /// field, `*:FIELD` for one field of all jobs; repeat for more.
    #[arg(long, value_name = "JOB:FIELD")]
    pub(crate) accept: Vec<AcceptedChange>,
    #[command(flatten)]
    pub(crate) capacity: CapacityArgs,
}

/// The machine to plan for.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Machine to plan for")]
pub(crate) struct CapacityArgs {
    /// Number of CPUs. Default: those of this machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_cpus: Option<u32>,
    /// Memory in GiB. Default: that of this machine.
    #[arg(long = "memory-gb", value_name = "GIB", value_parser = super::parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Number of GPUs. Default: those of this machine.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
    /// Maximum number of concurrent jobs. Default: no limit.
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_parallel_jobs: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Explains why a job waits, runs or failed: the conclusion, the evidence (dependencies, missing resources, exit code, \
signal, relevant log lines), and the next command to type.

Examples:
  windlass why align_7
  windlass why 12 --workflow 3
  windlass why align_7 -f json | jq -r .headline")]
pub(crate) struct WhyArgs {
    /// Job: id or name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Workflow of the job: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A completed job is reset if one of its input files or input data changed since it ran, if one of its output files is \
missing, or if it depends on a job that is reset. `windlass jobs results --all-runs` shows the results of earlier runs.

Examples:
  windlass workflows reinit --dry-run              show which jobs would run again, and why
  windlass workflows reinit && windlass resume
  windlass workflows reinit 3 --content            ignore new modification times of files with the same content")]
pub(crate) struct ReinitArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Show for each job why it would run again, without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Continue even if input files are missing.
    #[arg(long)]
    pub(crate) force: bool,
    /// Detect changed files by content instead of modification time.
    #[arg(long, visible_alias = "hash")]
    pub(crate) content: bool,
    #[command(flatten)]
    pub(crate) at_once: TorcAsyncArgs,
}

/// Options of Torc for background tasks; here the work is done when the command returns.
#[derive(Debug, Args)]
pub(crate) struct TorcAsyncArgs {
    /// Accepted for Torc's scripts without effect.
    #[arg(long = "async", hide = true)]
    pub(crate) in_background: bool,
    /// Accepted for Torc's scripts without effect.
    #[arg(long, hide = true, value_name = "SECONDS")]
    pub(crate) wait_timeout: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A workflow is ready to run as soon as it is created. This command only checks that the input files exist which no \
job of the workflow writes.

Examples:
  windlass workflows init
  windlass workflows init 3 --dry-run")]
pub(crate) struct WorkflowInitArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Continue even if input files are missing.
    #[arg(long)]
    pub(crate) force: bool,
    /// Show missing files without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Accepted for Torc's scripts: nothing is asked.
    #[arg(long, hide = true)]
    pub(crate) no_prompts: bool,
    #[command(flatten)]
    pub(crate) at_once: TorcAsyncArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without --failed-only, --job, --status or --return-code all jobs of the workflow are reset. Dependents of reset jobs are \
reset too. `windlass jobs results --all-runs` shows the results of earlier runs.

Examples:
  windlass workflows reset-status --failed-only && windlass resume
  windlass workflows reset-status --job align_7 --dry-run
  windlass workflows reset-status 3 --status canceled --no-prompts
  windlass workflows reset-status --return-code 137")]
pub(crate) struct ResetStatusArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only failed, canceled and terminated jobs.
    #[arg(long)]
    pub(crate) failed_only: bool,
    /// Only this job, by id or name; repeat for more.
    #[arg(short, long = "job", value_name = "JOB")]
    pub(crate) jobs: Vec<JobRef>,
    #[command(flatten)]
    pub(crate) options: ResetOptionArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Dependents of reset jobs are reset too. `windlass jobs results --all-runs` shows the results of earlier runs.

Examples:
  windlass jobs reset-status 12 13
  windlass jobs reset-status --status failed --workflow-id 3 --dry-run")]
pub(crate) struct JobsResetArgs {
    /// Jobs, by id or name.
    #[arg(value_name = "JOB")]
    pub(crate) jobs: Vec<JobRef>,
    /// Workflow of the jobs, if jobs are given by name: id, name, or `last`.
    #[arg(short, long, visible_alias = "workflow", value_name = "ID")]
    pub(crate) workflow_id: Option<WorkflowRef>,
    #[command(flatten)]
    pub(crate) options: ResetOptionArgs,
}

/// Options that resetting workflows and jobs have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResetOptionArgs {
    /// Only jobs in these states, separated by commas. `failed` includes `terminated`.
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',', value_parser = job_status_parser(), hide_possible_values = true)]
    pub(crate) status: Vec<JobStatus>,
    /// Only jobs whose newest attempt has this exit code.
    #[arg(long, value_name = "CODE", allow_hyphen_values = true)]
    pub(crate) return_code: Option<i32>,
    /// Also reset jobs whose inputs changed, as `windlass workflows reinit` does.
    #[arg(short = 'r', long, visible_alias = "reinit")]
    pub(crate) reinitialize: bool,
    /// Continue even if input files are missing.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}
