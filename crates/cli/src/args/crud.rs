//! Commands that create, change and delete single objects, as Torc has them. The workflow must not be running.

use super::jobs::NamedObjectArgs;
use super::list_options::ConfirmArgs;
use super::object_refs::{JobRef, WorkflowRef};
use super::run::{OutputDirArgs, parse_memory};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_types::Bytes;

#[derive(Debug, Args)]
#[command(after_help = "\
The jobs of the workflow run in the current directory.

Examples:
  windlass workflows new --name by-hand
  windlass jobs create last -n fetch -c 'curl -O https://example.org/data'
  windlass run last")]
pub(crate) struct NewWorkflowArgs {
    /// Name of the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    /// Description of the workflow.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputDirArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The job depends on the named jobs and on the jobs that write its inputs; jobs that read its outputs depend on it.

Examples:
  windlass jobs create last -n report -c 'make report' -b solve_1,solve_2
  windlass jobs create 3 -n clean -c 'rm -r tmp' -r 2 -i 7 -o 8")]
pub(crate) struct CreateJobArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Name of the job; must be new in the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    /// Shell command of the job.
    #[arg(short, long, value_name = "CMD")]
    pub(crate) command: String,
    /// Resource requirements of the job, by id or name.
    #[arg(short, long, value_name = "NAME", alias = "resource-requirements")]
    pub(crate) resource_requirements_id: Option<String>,
    /// Jobs that this job depends on, by id or name; separated by commas or repeated.
    #[arg(short, long, value_name = "JOB", value_delimiter = ',')]
    pub(crate) blocking_job_ids: Vec<JobRef>,
    /// Input files, by id or name; separated by commas or repeated.
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    pub(crate) input_file_ids: Vec<String>,
    /// Output files, by id or name; separated by commas or repeated.
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    pub(crate) output_file_ids: Vec<String>,
    /// Priority; jobs with larger values start first.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Empty lines and lines that begin with # are skipped. The jobs are named job1, job2 …, continuing the numbers of existing \
jobs, and have no dependencies.

Examples:
  windlass jobs create-from-file last commands.txt --cpus-per-job 2 --memory-per-job 4g --runtime-per-job 1h")]
pub(crate) struct CreateJobsArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID")]
    pub(crate) workflow: WorkflowRef,
    /// File with one command per line; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// CPUs of each job. Default: 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus_per_job: Option<u32>,
    /// Memory that each job reserves and may use at most: `4g`. Default: no limit.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_per_job: Option<Bytes>,
    /// Time limit of each job: `1h`. Default: no limit.
    #[arg(long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    pub(crate) runtime_per_job: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A completed job stays completed; `windlass workflows reinit` detects the changed command, and resets the job. Each change \
is recorded as an event with the previous values.

Examples:
  windlass jobs update align_7 --command './align --slow 7'
  windlass jobs update 12 --runtime 2h --priority 5
  windlass jobs update 12 --label gpu --label big")]
pub(crate) struct UpdateJobArgs {
    /// Job: id, name, or prefix of the name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Workflow of the job, if the job is given by name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// New name.
    #[arg(short, long)]
    pub(crate) name: Option<String>,
    /// New command.
    #[arg(short, long, value_name = "CMD")]
    pub(crate) command: Option<String>,
    /// New time limit: `2h`. Other jobs with the same resource requirements keep theirs.
    #[arg(long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    pub(crate) runtime: Option<Duration>,
    /// New memory: `8g`. Other jobs with the same resource requirements keep theirs.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// New number of CPUs. Other jobs with the same resource requirements keep theirs.
    #[arg(long, visible_alias = "num-cpus", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: Option<u32>,
    /// Resource requirements of the job, by id or name.
    #[arg(long, value_name = "NAME", alias = "resource-requirements")]
    pub(crate) resource_requirements_id: Option<String>,
    /// New priority; jobs with larger values start first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// Label, replacing the existing labels; repeat for more.
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// Remove all labels.
    #[arg(long, conflicts_with = "label")]
    pub(crate) clear_labels: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The results of the jobs are deleted too; their logs are kept. A job with dependents can only be deleted together with them.

Examples:
  windlass jobs delete 12 13
  windlass jobs delete --workflow 3 solve_1 solve_2 --dry-run")]
pub(crate) struct DeleteJobsArgs {
    /// Jobs: ids, names, or prefixes of names.
    #[arg(value_name = "JOB", required = true)]
    pub(crate) jobs: Vec<JobRef>,
    /// Workflow of the jobs, if the jobs are given by name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Show what would be deleted without deleting it.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteAllJobsArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateFileArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Name of the file; must be new in the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    /// Path of the file: relative to the directory where the jobs run, or absolute.
    #[arg(short, long)]
    pub(crate) path: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Commands that contain the old path are not changed; use `windlass jobs update`.")]
pub(crate) struct UpdateFileArgs {
    #[command(flatten)]
    pub(crate) file: NamedObjectArgs,
    /// New name.
    #[arg(short, long = "name", value_name = "NAME")]
    pub(crate) new_name: Option<String>,
    /// New path.
    #[arg(short, long)]
    pub(crate) path: Option<String>,
}

/// Values of resource requirements.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ResourceAmountArgs {
    /// Number of CPUs. Default: 1 for new requirements, unchanged in an update.
    #[arg(long, value_name = "N")]
    pub(crate) num_cpus: Option<u32>,
    /// Number of GPUs. Default: 0 for new requirements, unchanged in an update.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
    /// Number of nodes. Default: 1 for new requirements, unchanged in an update.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_nodes: Option<u32>,
    /// Memory that each job reserves and may use at most: `4g`, `512m`. 0: no limit.
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Time limit of each job: `90m`, `PT1H`.
    #[arg(short, long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    pub(crate) runtime: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass jobs requirements create last -n large --num-cpus 8 --memory 16g --runtime 2h")]
pub(crate) struct CreateRequirementsArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Name of the requirements; must be new in the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) resources: ResourceAmountArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The change applies to all jobs with these requirements, from their next attempt on.")]
pub(crate) struct UpdateRequirementsArgs {
    #[command(flatten)]
    pub(crate) requirements: NamedObjectArgs,
    /// New name.
    #[arg(short, long = "name", value_name = "NAME")]
    pub(crate) new_name: Option<String>,
    #[command(flatten)]
    pub(crate) resources: ResourceAmountArgs,
}

/// An object identified by its id.
#[derive(Debug, Args)]
pub(crate) struct RecordIdArgs {
    /// Id, as the `list` command shows it with `--format json`.
    #[arg(value_name = "ID")]
    pub(crate) id: i64,
}
