//! Descriptions of the parameters in the OpenAPI document that have none of their own: most are ids in paths and
//! filters of lists, which mean the same in every operation.

use crate::error::{API_PREFIX, TORC_PREFIX};

/// Describes a parameter by its name, and an id also by its path.
pub(crate) fn describe_parameter(path: &str, name: &str) -> Option<String> {
    if matches!(name, "id" | "name") && path.contains(&format!("/{{{name}}}")) {
        let path = [API_PREFIX, TORC_PREFIX].iter().find_map(|prefix| path.strip_prefix(prefix))?;
        let object = object_name(path.trim_start_matches('/').split('/').next()?);
        return Some(if name == "id" {
            format!("Id of the {object}.")
        } else {
            format!("Name of the {object}.")
        });
    }
    let found = PARAMETERS.iter().find(|(known, _)| *known == name);
    found.map(|(_, description)| (*description).to_owned())
}

/// `compute node` for `compute_nodes`.
fn object_name(collection: &str) -> String {
    match collection {
        "dags" => "run".to_owned(),
        "ro_crate_entities" => "RO-Crate entity".to_owned(),
        "slurm_stats" => "Slurm measurement".to_owned(),
        "slurm_schedulers" => "Slurm scheduler".to_owned(),
        "user_data" | "resource_requirements" => collection.replace('_', " "),
        _ => collection.trim_end_matches('s').replace('_', " "),
    }
}

const PARAMETERS: &[(&str, &str)] = &[
    ("action_id", "Id of the action."),
    ("attempt_id", "Number of the attempt of the job in its run, from 1."),
    ("campaign", "Only requests of this campaign."),
    ("category", "Only events of this category."),
    ("clear_ephemeral_user_data", "Whether the values of ephemeral user data are cleared."),
    ("compute_node_id", "Id of the compute node."),
    ("consumer_job_id", "Only inputs of this job."),
    ("decision_id", "Id of the decision."),
    ("description", "Only workflows with this description."),
    ("entity_id", "Only the entity with this id in the RO-Crate."),
    ("file_id", "Id of the file."),
    ("group_id", "Id of the access group."),
    ("host", "Host name of the node."),
    ("hostname", "Only compute nodes with this host name."),
    ("is_active", "Only compute nodes that are connected (true), or that are not (false)."),
    (
        "is_ephemeral",
        "Only ephemeral user data, cleared before each run (true), or only other user data (false).",
    ),
    ("job_id", "Id of the job."),
    ("limit", "Maximum number of entries."),
    ("memory", "Only entries with this memory."),
    ("name", "Only entries with this name."),
    ("num_cpus", "Only entries with this number of CPUs."),
    ("num_gpus", "Only entries with this number of GPUs."),
    ("num_nodes", "Only entries with this number of nodes."),
    ("offset", "Number of entries to skip."),
    ("path", "Only files with this path."),
    ("priority_max", "Only requests with at most this priority."),
    ("priority_min", "Only requests with at least this priority."),
    ("produced_by_job_id", "Only output files of this job."),
    ("producer_job_id", "Only outputs of this job."),
    ("requestor", "Only requests of this user."),
    ("return_code", "Only results with this exit code."),
    ("reverse_sort", "Whether the order is reversed."),
    ("revision", "Number of the revision."),
    ("run_id", "Number of the run of the workflow, from 1."),
    ("scheduled_compute_node_id", "Only compute nodes of this allocation."),
    ("scheduler_config_id", "Id of the Slurm scheduler."),
    ("scheduler_id", "Only allocations with this job id in Slurm."),
    ("signature", "Key of the failure group, or a unique prefix of it."),
    ("status", "State of the job, the result or the allocation."),
    ("trigger_type", "Only actions with these triggers."),
    ("user", "Only workflows of this user."),
    ("user_name", "Name of the user."),
    ("worker", "Host name of the remote worker."),
    ("workflow_id", "Id of the workflow."),
];
