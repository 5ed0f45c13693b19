//! What a workflow spec may say that DAGMan cannot do. All of it is told at once.

use windlass_spec::{ResolvedJob, ResolvedJobGroup, ResolvedWorkflow};
use windlass_types::settings::ExecutionMode;

/// In words, with the remedy; empty: it can be a DAG.
pub(super) fn find_unsupported(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    let mut faults = find_unsupported_in_workflow(workflow);
    faults.extend(workflow.job_groups().iter().filter_map(find_unsupported_in_kind));
    faults.extend(workflow.jobs().filter_map(|job| find_unsupported_in_job(workflow, &job)));
    faults
}

fn find_unsupported_in_workflow(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    let settings = workflow.settings();
    let mode = settings.execution_config.as_ref().and_then(|config| config.mode);
    let said = [
        (!workflow.actions().is_empty(), "actions: nobody is there to do them; make jobs of them"),
        (
            settings.use_pending_failed,
            "use_pending_failed: nobody is asked while DAGMan runs; give jobs failure handlers",
        ),
        (settings.retry_budget.is_some(), "retry_budget: retries are not counted together; leave it out"),
        (settings.dynamic_jobs.is_some(), "dynamic_jobs: jobs cannot add jobs to a DAG"),
        (settings.enable_ro_crate, "enable_ro_crate: it is made by a server; leave it out"),
        (mode == Some(ExecutionMode::Slurm), "execution_config.mode: `slurm` is not HTCondor; leave it out"),
    ];
    said.into_iter().filter(|(is_so, _)| *is_so).map(|(_, words)| words.to_owned()).collect()
}

fn find_unsupported_in_kind(kind: &ResolvedJobGroup) -> Option<String> {
    let words = if kind.scheduler.is_some() {
        "scheduler: it asks Slurm for nodes; leave it out"
    } else if !kind.labels.is_empty() {
        "labels: they choose workers of Windlass; name `sites`, or leave them out"
    } else {
        return None;
    };
    Some(format!("job `{}`: {words}", kind.name))
}

fn find_unsupported_in_job(workflow: &ResolvedWorkflow<'_>, job: &ResolvedJob<'_>) -> Option<String> {
    let resources = job.requirements.map(|number| workflow.requirements()[number as usize].resources);
    let words = if !job.cancel_on_blocking_job_failure {
        "cancel_on_blocking_job_failure: DAGMan starts nothing after a failure; let the command before it end with 0"
    } else if job.input_user_data().chain(job.output_user_data()).any(|list| !list.is_empty()) {
        "user data: it is kept by a server, and jobs of a DAG have none; use files"
    } else if resources.is_some_and(|resources| resources.nodes > 1) {
        "num_nodes: a node of a DAG has one machine"
    } else {
        return None;
    };
    Some(format!("job `{}`: {words}", job.name))
}
