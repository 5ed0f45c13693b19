//! Commands about jobs, their attempts, and what hangs on them.

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
  uninitialized   made, not yet looked at
  blocked         waits for the jobs it depends on
  ready           may start
  pending         given to a worker, may have started
  running         has started
  completed       ended with exit code 0
  failed          ended otherwise
  canceled        did not run, or was stopped, because somebody or a failed dependency said so
  terminated      ended by windlass because its time was up
  disabled        left out on purpose
  pending_failed  failed, and somebody is to say what happens next

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
    /// Show everything that is known about a job.
    Get(OneJobArgs),
    /// List the jobs that run now, and for how long.
    Running(ListInWorkflowArgs),
    /// Add a job to a workflow.
    Create(super::crud::CreateJobArgs),
    /// Add jobs to a workflow, one for each line of a file of commands.
    CreateFromFile(super::crud::CreateJobsArgs),
    /// Change a job that no worker holds.
    Update(super::crud::UpdateJobArgs),
    /// Delete jobs with their results.
    Delete(super::crud::DeleteJobsArgs),
    /// Delete all jobs of a workflow with their results.
    DeleteAll(super::crud::DeleteAllJobsArgs),
    /// List what the jobs of a workflow ask for.
    ListResourceRequirements(JobsRequirementsArgs),
    /// List which failure handlers the jobs of a workflow have.
    ListFailureHandlers(JobsRequirementsArgs),
    /// Have jobs run again, and what was built on them.
    #[command(visible_alias = "reset")]
    ResetStatus(super::plan::JobsResetArgs),
    /// Add jobs to the workflow of the job that calls this.
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
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only jobs in these states, separated by commas. `failed` includes `terminated`: both ended badly.
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',', value_parser = job_status_parser(), hide_possible_values = true)]
    pub(crate) status: Vec<JobStatus>,
    /// Only jobs that failed: failed, terminated (out of time), and `pending_failed` (waiting for a decision).
    #[arg(long, conflicts_with = "status")]
    pub(crate) failed: bool,
    /// Only jobs that wait for this one, by id or name.
    #[arg(long, value_name = "JOB", visible_alias = "after")]
    pub(crate) upstream_job_id: Option<JobRef>,
    /// Also what each job waits for, reads and writes, by id.
    #[arg(long)]
    pub(crate) include_relationships: bool,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OneJobArgs {
    /// Job: its id, its name, or the beginning of its name.
    #[arg(value_name = "JOB")]
    pub(crate) job: JobRef,
    /// Workflow of the job, if it is named by its name: id, name, or `last`.
    #[arg(short, long, value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Every attempt leaves a result, also the ones that failed and were tried again.

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
    /// List attempts that ended.
    List(ResultsListArgs),
    /// Show everything that is known about an attempt that ended.
    Get(OneResultArgs),
    /// Delete what is known of an attempt; its job stays as it is.
    Delete(super::crud::RecordIdArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ResultsListArgs {
    /// Workflow: its id, its name, or `last`.
    #[arg(value_name = "ID", default_value = "last")]
    pub(crate) workflow: WorkflowRef,
    /// Only attempts that did not complete.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only this job, by id or name.
    #[arg(short, long, value_name = "JOB", alias = "job-id")]
    pub(crate) job: Option<JobRef>,
    /// Only attempts that ended in these states, separated by commas. `failed` includes `terminated`.
    #[arg(short, long, value_name = "STATUS", value_delimiter = ',', value_parser = job_status_parser(), hide_possible_values = true)]
    pub(crate) status: Vec<JobStatus>,
    /// Only attempts with this exit code.
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    pub(crate) return_code: Option<i32>,
    /// Only this run of the workflow.
    #[arg(short, long, value_name = "N", alias = "run-id", conflicts_with = "all_runs")]
    pub(crate) run: Option<RunId>,
    /// Earlier runs of the workflow as well.
    #[arg(long)]
    pub(crate) all_runs: bool,
    /// Also where the logs of each attempt are.
    #[arg(long)]
    pub(crate) include_logs: bool,
    /// Where the logs are. The books know it; this is for Torc's sake.
    #[arg(short, long, value_name = "DIR", hide = true)]
    pub(crate) output_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) page: ListPageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OneResultArgs {
    /// Result: its id, as in `windlass jobs results --format json`.
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
    /// Show one of them.
    Get(NamedObjectArgs),
    /// Add resource requirements to a workflow, for jobs to use.
    Create(super::crud::CreateRequirementsArgs),
    /// Change them, for all jobs that use them.
    Update(super::crud::UpdateRequirementsArgs),
    /// Delete those that no job uses.
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
    /// Show one of them with its rules.
    Get(NamedObjectArgs),
}

/// Something of a workflow that has an id and a name.
#[derive(Debug, Args)]
pub(crate) struct NamedObjectArgs {
    /// Its id or its name.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The workflow, if it is named by its name: id, name, or `last`.
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
    /// List which job waits for which.
    #[command(name = "job-job")]
    Job(ListInWorkflowArgs),
    /// List which job reads and writes which file.
    #[command(name = "job-file")]
    File(ListInWorkflowArgs),
    /// List which job reads and writes which user data.
    #[command(name = "job-user-data")]
    UserData(ListInWorkflowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct JobsRequirementsArgs {
    /// Workflow: its id, its name, or `last`.
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
    fn a_noun_without_a_verb_lists() {
        for line in [&["jobs", "3", "-l", "5"][..], &["jobs", "list", "3", "-l", "5"]] {
            let args = list(line);
            assert_eq!(args.workflow, WorkflowRef::Id(windlass_types::WorkflowId(3)));
            assert_eq!(args.page.limit, Some(5));
        }
        assert_eq!(list(&["jobs"]).workflow, WorkflowRef::Last);
    }

    #[test]
    fn several_states_may_be_asked_for_and_only_known_ones() {
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
