//! Lists the features of a workflow spec that DAGMan does not have, all at once.

use windlass_spec::{ResolvedJob, ResolvedWorkflow};
use windlass_types::JobGroup;
use windlass_types::settings::ExecutionMode;

/// One sentence per feature, with the remedy; empty: the workflow can run as a DAG.
pub(super) fn find_unsupported(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    let mut faults = find_unsupported_in_workflow(workflow);
    faults.extend(workflow.job_groups().iter().filter_map(find_unsupported_in_group));
    faults.extend(workflow.jobs().filter_map(|job| find_unsupported_in_job(workflow, &job)));
    faults
}

fn find_unsupported_in_workflow(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    let settings = workflow.settings();
    let mode = settings.execution_config.as_ref().and_then(|config| config.mode);
    let message = [
        (!workflow.actions().is_empty(), "actions: DAGMan does not run them; use jobs instead"),
        (
            settings.use_pending_failed,
            "use_pending_failed: DAGMan cannot wait for a decision; give jobs failure handlers",
        ),
        (
            settings.retry_budget.is_some(),
            "retry_budget: DAGMan does not count the retries of all jobs; leave it out",
        ),
        (settings.dynamic_jobs.is_some(), "dynamic_jobs: jobs cannot add jobs to a DAG"),
        (settings.enable_ro_crate, "enable_ro_crate: only a server creates it; leave it out"),
        (mode == Some(ExecutionMode::Slurm), "execution_config.mode: `slurm` is not HTCondor; leave it out"),
    ];
    message.into_iter().filter(|(is_so, _)| *is_so).map(|(_, words)| words.to_owned()).collect()
}

fn find_unsupported_in_group(job_group: &JobGroup<u32>) -> Option<String> {
    let words = if job_group.settings.scheduler.is_some() {
        "scheduler: it requests nodes from Slurm; leave it out"
    } else if !job_group.settings.labels.is_empty() {
        "labels: they select workers of Windlass; use `sites`, or leave them out"
    } else {
        return None;
    };
    Some(format!("job `{}`: {words}", job_group.name))
}

fn find_unsupported_in_job(workflow: &ResolvedWorkflow<'_>, job: &ResolvedJob<'_>) -> Option<String> {
    let resources = job.requirements.map(|number| workflow.requirements()[number as usize].resources);
    let words = if !job.cancel_on_blocking_job_failure {
        "cancel_on_blocking_job_failure: DAGMan starts nothing after a failure; let the command before it end with 0"
    } else if job.input_user_data().chain(job.output_user_data()).any(|list| !list.is_empty()) {
        "user data: only a server stores it; use files"
    } else if resources.is_some_and(|resources| resources.nodes > 1) {
        "num_nodes: a node of a DAG runs on one machine"
    } else {
        return None;
    };
    Some(format!("job `{}`: {words}", job.name))
}
