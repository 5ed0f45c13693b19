//! What a cluster offers, and when an allocation would start: queries to Slurm, within the call budget of the
//! caller.

use crate::parse::cluster::{self, SCONTROL_ARGUMENTS, SINFO_ARGUMENTS, StartEstimate, UnreadableOutput};
use crate::render::batch::{self, InvalidAllocation};
use crate::slurm_client::{SlurmClient, SlurmOutcome, SlurmTool, SlurmUnavailable};
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_types::slurm::AllocationRequest;

/// Why nothing is known about the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterDiscoveryError {
    #[error("Slurm is not available: cannot start {command} ({why})")]
    NoSlurm { command: &'static str, why: String },
    #[error("{command} failed: {message}")]
    Failed { command: &'static str, message: String },
    #[error(transparent)]
    Unanswered(SlurmUnavailable),
    #[error("scheduler `{scheduler}`: {why}")]
    InvalidRequest { scheduler: String, why: InvalidAllocation },
    #[error(transparent)]
    Unreadable(#[from] UnreadableOutput),
}

/// Partitions, their limits and nodes: two calls to the controller, and one for the configuration.
pub fn discover_cluster(slurm: &SlurmClient) -> Result<ClusterProfile, ClusterDiscoveryError> {
    let sinfo =
        require_answer("sinfo", slurm.run_command(SlurmTool::Sinfo, &SINFO_ARGUMENTS.map(str::to_owned)))?;
    let scontrol = require_answer(
        "scontrol",
        slurm.run_command(SlurmTool::Scontrol, &SCONTROL_ARGUMENTS.map(str::to_owned)),
    )?;
    let profile = cluster::parse_cluster("slurm", &sinfo, &scontrol)?;
    Ok(ClusterProfile { display_name: find_cluster_name(slurm).unwrap_or_default(), ..profile })
}

/// The name of the cluster. It is only displayed, so errors are ignored.
fn find_cluster_name(slurm: &SlurmClient) -> Option<String> {
    let config =
        slurm.run_command(SlurmTool::Scontrol, &["show", "config"].map(str::to_owned)).into_answer()?;
    let line = config.lines().find_map(|line| line.strip_prefix("ClusterName"))?;
    line.split_once('=').map(|(_, name)| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// When such an allocation would start. Nothing is submitted, but Slurm uses up a job id.
pub fn estimate_start(
    slurm: &SlurmClient,
    request: &AllocationRequest,
) -> Result<StartEstimate, ClusterDiscoveryError> {
    const COMMAND: &str = "sbatch --test-only";
    let unfit = |why| ClusterDiscoveryError::InvalidRequest { scheduler: request.scheduler.clone(), why };
    let arguments = batch::render_test_only_arguments(request).map_err(unfit)?;
    // `sbatch` answers on its standard error in both cases.
    let message = match slurm.run_command_with_stderr(SlurmTool::Sbatch, &arguments) {
        SlurmOutcome::Refused(message) => message,
        other => require_answer(COMMAND, other)?.stderr,
    };
    cluster::parse_start_estimate(&message)
        .ok_or_else(|| ClusterDiscoveryError::Failed { command: COMMAND, message: message.trim().to_owned() })
}

fn require_answer<T>(command: &'static str, outcome: SlurmOutcome<T>) -> Result<T, ClusterDiscoveryError> {
    match outcome {
        SlurmOutcome::Answered(answer) => Ok(answer),
        SlurmOutcome::Refused(message) => {
            Err(ClusterDiscoveryError::Failed { command, message: message.trim().to_owned() })
        }
        SlurmOutcome::Unknown(SlurmUnavailable::NotStarted { why, .. }) => {
            Err(ClusterDiscoveryError::NoSlurm { command, why })
        }
        SlurmOutcome::Unknown(why) => Err(ClusterDiscoveryError::Unanswered(why)),
    }
}
