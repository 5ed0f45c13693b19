//! Commands about jobs, their attempts and their records.

use super::list_options::ListPageArgs;
use super::object_refs::{JobRef, WorkflowRef, job_status_parser};
use super::workflows::ListInWorkflowArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use windlass_types::{JobStatus, RunId};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
States of a job:
  uninitialized   created, dependencies not yet evaluated
  blocked         waits for its dependencies
  ready           may start
  pending         assigned to a worker
  running         started
  completed       ended with exit code 0
  failed          ended with another exit code or a signal
  canceled        not started or stopped, by a user or because a dependency failed
  terminated      killed by windlass because it exceeded its time limit
  disabled        excluded from the workflow
  pending_failed  failed, and waits for a decision

Examples:
  windlass jobs --failed
  windlass jobs --status running,pending
  windlass jobs 3 --limit 20 --offset 40
  windlass jobs get align_7
  windlass jobs -f json | jq -r '.[] | select(.return_code == 137) | .name'"
)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<JobsSubcommand>,
    #[command(flatten)]
    pub(crate) list: JobsListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsSubcommand {
    /// List the jobs of a workflow.
    List(JobsListArgs),
    /// Show the details of a job.
    Get(OneJobArgs),
    /// List running jobs and their run times.
    Running(ListInWorkflowArgs),
    /// Add a job to a workflow.
    Create(super::crud::CreateJobArgs),
    /// Add a job for each line of a file of commands.
    CreateFromFile(super::crud::CreateJobsArgs),
    /// Change a job that is not assigned to a worker.
    Update(super::crud::UpdateJobArgs),
    /// Delete jobs and their results.
    Delete(super::crud::DeleteJobsArgs),
    /// Delete all jobs of a workflow and their results.
    DeleteAll(super::crud::DeleteAllJobsArgs),
    /// List the resource requirements of each job.
    ListResourceRequirements(JobsRequirementsArgs),
    /// List the failure handler of each job.
    ListFailureHandlers(JobsRequirementsArgs),
    /// Mark jobs and their dependents to run again.
    #[command(visible_alias = "reset")]
    ResetStatus(super::plan_and_reset::JobsResetArgs),
    /// Add jobs from inside a running job to its workflow.
    Spawn(super::spec::JobSpawnArgs),
    /// Results of finished attempts: exit codes, times, memory.
    Results(ResultsArgs),
    /// Files that jobs read and write: list, get, create, update, delete …
    Files(super::files_and_events::FilesArgs),
    /// User data that jobs read and write: list, get, update, create, delete …
    UserData(super::files_and_events::UserDataArgs),
    /// Dependencies of jobs on jobs, files and user data: job-job, job-file, job-user-data.
    Dependencies(DependenciesArgs),
    /// Resource requirements of jobs: list, get, create, update, delete.
    Requirements(RequirementsArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct JobsListArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only jobs in these states, separated by commas. `failed` includes `terminated`.
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',', value_parser = job_status_parser(), hide_possible_values = true)]
    pub(crate) status: Vec<JobStatus>,
    /// Only jobs that failed: `failed`, `terminated` and `pending_failed`.
    #[arg(long, conflicts_with = "status")]
    pub(crate) failed: bool,
    /// Only dependents of this job, by id or name.
    #[arg(long, value_name = "JOB", visible_alias = "after")]
    pub(crate) upstream_job_id: Option<JobRef>,
    /// Include the ids of the dependencies, inputs and outputs of each job.
    #[arg(long)]
    pub(crate) include_relationships: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OneJobArgs {
    /// Job: id, name, or prefix of the name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Workflow of the job, if the job is given by name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Each attempt has a result, including failed attempts that were retried.

Examples:
  windlass jobs results --failed
  windlass jobs results --failed --include-logs
  windlass jobs results --job align_7 --all-runs"
)]
pub(crate) struct ResultsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<ResultsSubcommand>,
    #[command(flatten)]
    pub(crate) list: ResultsListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResultsSubcommand {
    /// List finished attempts.
    List(ResultsListArgs),
    /// Show the details of a finished attempt.
    Get(OneResultArgs),
    /// Delete the result of an attempt; the state of its job is kept.
    Delete(super::crud::RecordIdArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ResultsListArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only attempts that did not complete.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only attempts of this job, by id or name.
    #[arg(short, long, value_name = "JOB", alias = "job-id")]
    pub(crate) job: Option<JobRef>,
    /// Only attempts that ended in these states, separated by commas. `failed` includes `terminated`.
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',', value_parser = job_status_parser(), hide_possible_values = true)]
    pub(crate) status: Vec<JobStatus>,
    /// Only attempts with this exit code.
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    pub(crate) return_code: Option<i32>,
    /// Only attempts of this run of the workflow.
    #[arg(short, long, value_name = "N", alias = "run-id", conflicts_with = "all_runs")]
    pub(crate) run: Option<RunId>,
    /// Include earlier runs of the workflow.
    #[arg(long)]
    pub(crate) all_runs: bool,
    /// Include the paths of the logs of each attempt.
    #[arg(long)]
    pub(crate) include_logs: bool,
    /// Accepted for Torc's scripts: the database has the paths of the logs.
    #[arg(short, long, value_name = "DIR", hide = true)]
    pub(crate) output_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OneResultArgs {
    /// Result: id, as in `windlass jobs results --format json`.
    #[arg(value_name = "RESULT")]
    pub(crate) result: i64,
    /// Workflow of the result: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RequirementsArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<RequirementsSubcommand>,
    #[command(flatten)]
    pub(crate) list: ListInWorkflowArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RequirementsSubcommand {
    /// List the resource requirements of a workflow.
    List(ListInWorkflowArgs),
    /// Show the details of resource requirements.
    Get(NamedObjectArgs),
    /// Add resource requirements to a workflow.
    Create(super::crud::CreateRequirementsArgs),
    /// Change resource requirements, for all jobs that use them.
    Update(super::crud::UpdateRequirementsArgs),
    /// Delete resource requirements that no job uses.
    Delete(NamedObjectArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct HandlersArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<HandlersSubcommand>,
    #[command(flatten)]
    pub(crate) list: ListInWorkflowArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HandlersSubcommand {
    /// List the failure handlers of a workflow.
    List(ListInWorkflowArgs),
    /// Show a failure handler and its rules.
    Get(NamedObjectArgs),
}

/// An object of a workflow that has an id and a name.
#[derive(Debug, Args)]
pub(crate) struct NamedObjectArgs {
    /// Id or name, as the `list` command shows it.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Workflow in which a name is looked up: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
pub(crate) struct DependenciesArgs {
    #[command(subcommand)]
    pub(crate) verb: DependenciesSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DependenciesSubcommand {
    /// List the dependencies between jobs.
    #[command(name = "job-job")]
    Job(ListInWorkflowArgs),
    /// List which jobs read and write which files.
    #[command(name = "job-file")]
    File(ListInWorkflowArgs),
    /// List which jobs read and write which user data.
    #[command(name = "job-user-data")]
    UserData(ListInWorkflowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct JobsRequirementsArgs {
    /// Workflow: id, name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only this job, by id or name.
    #[arg(short, long, value_name = "JOB")]
    pub(crate) job_id: Option<JobRef>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CliCommand;
    use crate::args::tests::parse;

    fn list(line: &[&str]) -> JobsListArgs {
        let CliCommand::Jobs(args) = parse(line).unwrap() else { panic!("not jobs") };
        match args.verb {
            Some(JobsSubcommand::List(list)) => list,
            None => args.list,
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn noun_without_subcommand_lists() {
        for line in [&["jobs", "3", "-l", "5"][..], &["jobs", "list", "3", "-l", "5"]] {
            let args = list(line);
            assert_eq!(args.workflow, WorkflowRef::Id(windlass_types::WorkflowId(3)));
            assert_eq!(args.page.limit, Some(5));
        }
        assert_eq!(list(&["jobs"]).workflow, WorkflowRef::Last);
    }

    #[test]
    fn status_filter_takes_several_known_states() {
        assert_eq!(
            list(&["jobs", "-s", "failed", "--status", "ready"]).status,
            [JobStatus::Failed, JobStatus::Ready]
        );
        assert_eq!(
            list(&["jobs", "--status", "failed,terminated"]).status,
            [JobStatus::Failed, JobStatus::Terminated]
        );
        assert!(list(&["jobs", "--failed"]).failed);
        let error = parse(&["jobs", "--status", "done"]).unwrap_err().to_string();
        assert!(error.contains("pending_failed"), "{error}");
    }
}
