//! Commands that add, change and delete single things by hand, as Torc has them. All of them are for a workflow that
//! nobody runs at the moment.

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
Its jobs run in the current directory.

Examples:
  windlass workflows new --name by-hand
  windlass jobs create last -n fetch -c 'curl -O https://example.org/data'
  windlass run last")]
pub(crate) struct NewWorkflowArgs {
    /// Its name.
    #[arg(short, long)]
    pub(crate) name: String,
    /// What it is about.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputDirArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
It waits for the jobs that are named and for those that write what it reads; jobs that read what it writes wait for it.

Examples:
  windlass jobs create last -n report -c 'make report' -b solve_1,solve_2
  windlass jobs create 3 -n clean -c 'rm -r tmp' -r 2 -i 7 -o 8")]
pub(crate) struct CreateJobArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Its name, new in the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    /// The shell command to run.
    #[arg(short, long, value_name = "CMD")]
    pub(crate) command: String,
    /// What it asks for: resource requirements of the workflow, by id or name.
    #[arg(short, long, value_name = "NAME", alias = "resource-requirements")]
    pub(crate) resource_requirements_id: Option<String>,
    /// Jobs that it waits for, by id or name; with commas or given again.
    #[arg(short, long, value_name = "JOB", value_delimiter = ',')]
    pub(crate) blocking_job_ids: Vec<JobRef>,
    /// Files that it reads, by id or name; with commas or given again.
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    pub(crate) input_file_ids: Vec<String>,
    /// Files that it writes, by id or name; with commas or given again.
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    pub(crate) output_file_ids: Vec<String>,
    /// Larger ones start first.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Empty lines and lines that begin with # are skipped. The jobs are called job1, job2 …, or go on behind those that the \
workflow has, and wait for nothing. What is not said is not limited: a job without --memory-per-job may take as much \
memory as it likes.

Examples:
  windlass jobs create-from-file last commands.txt --cpus-per-job 2 --memory-per-job 4g --runtime-per-job 1h")]
pub(crate) struct CreateJobsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID")]
    pub(crate) workflow: WorkflowRef,
    /// File with one command per line; `-` is stdin.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// CPUs that each job asks for; one if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus_per_job: Option<u32>,
    /// Memory that each job asks for, and may not exceed.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_per_job: Option<Bytes>,
    /// Time that each job may take.
    #[arg(long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    pub(crate) runtime_per_job: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A job that completed stays completed; `windlass workflows reinit` sees that its command changed, and has it run again. Every \
change is an event, with what was there before.

Examples:
  windlass jobs update align_7 --command './align --slow 7'
  windlass jobs update 12 --runtime 2h --priority 5
  windlass jobs update 12 --label gpu --label big")]
pub(crate) struct UpdateJobArgs {
    /// Job: its id, its name, or the beginning of its name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Workflow of the job, if it is named by its name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Its new name.
    #[arg(short, long)]
    pub(crate) name: Option<String>,
    /// Its new command.
    #[arg(short, long, value_name = "CMD")]
    pub(crate) command: Option<String>,
    /// The time it may take. It then has resource requirements of its own.
    #[arg(long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    pub(crate) runtime: Option<Duration>,
    /// The memory it asks for, such as 8g. It then has resource requirements of its own.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// The CPUs it asks for. It then has resource requirements of its own.
    #[arg(long, visible_alias = "num-cpus", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: Option<u32>,
    /// What it asks for: resource requirements of the workflow, by id or name.
    #[arg(long, value_name = "NAME", alias = "resource-requirements")]
    pub(crate) resource_requirements_id: Option<String>,
    /// Its new priority; larger ones start first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// A label, in place of those it has; give it again for more.
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// Take its labels away.
    #[arg(long, conflicts_with = "label")]
    pub(crate) clear_labels: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Their results go with them; their logs stay. A job that another one waits for is only deleted together with it.

Examples:
  windlass jobs delete 12 13
  windlass jobs delete --workflow 3 solve_1 solve_2 --dry-run")]
pub(crate) struct DeleteJobsArgs {
    /// Jobs: ids, names, or beginnings of names.
    #[arg(value_name = "JOB", required = true)]
    pub(crate) jobs: Vec<JobRef>,
    /// Workflow of the jobs, if they are named by name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Say what would be deleted, and delete nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteAllJobsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateFileArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Its name, new in the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    /// Where it is or will be: relative to the directory in which the jobs run, or absolute.
    #[arg(short, long)]
    pub(crate) path: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Commands in which the old path stands are not changed; `windlass jobs update` does that.")]
pub(crate) struct UpdateFileArgs {
    #[command(flatten)]
    pub(crate) file: NamedObjectArgs,
    /// Its new name.
    #[arg(short, long = "name", value_name = "NAME")]
    pub(crate) new_name: Option<String>,
    /// Its new path.
    #[arg(short, long)]
    pub(crate) path: Option<String>,
}

/// What a set of requirements says.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ResourceAmountArgs {
    /// CPUs; one if nothing is said.
    #[arg(long, value_name = "N")]
    pub(crate) num_cpus: Option<u32>,
    /// GPUs; none if nothing is said.
    #[arg(long, value_name = "N")]
    pub(crate) num_gpus: Option<u32>,
    /// Nodes; one if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_nodes: Option<u32>,
    /// Memory, which jobs may then not exceed: `4g`, `512m`. 0 limits nothing.
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Time that jobs may take: `90m`, `PT1H`.
    #[arg(short, long, value_name = "DURATION", value_parser = windlass_types::parse_duration)]
    pub(crate) runtime: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass jobs requirements create last -n large --num-cpus 8 --memory 16g --runtime 2h")]
pub(crate) struct CreateRequirementsArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Their name, new in the workflow.
    #[arg(short, long)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) resources: ResourceAmountArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
It counts for all jobs that have these requirements, from their next attempt on.")]
pub(crate) struct UpdateRequirementsArgs {
    #[command(flatten)]
    pub(crate) requirements: NamedObjectArgs,
    /// Their new name.
    #[arg(short, long = "name", value_name = "NAME")]
    pub(crate) new_name: Option<String>,
    #[command(flatten)]
    pub(crate) resources: ResourceAmountArgs,
}

/// Something that is named by its id alone.
#[derive(Debug, Args)]
pub(crate) struct RecordIdArgs {
    /// Its id, as lists show it with `--format json`.
    #[arg(value_name = "ID")]
    pub(crate) id: i64,
}
