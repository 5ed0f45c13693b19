//! What a cluster has, and when it would have room: asked of Slurm itself, within whatever budget the asking is.

use crate::calls::{Outcome, Slurm, Tool, Unknown};
use crate::read::cluster::{self, SCONTROL, SINFO, Unreadable, WouldStart};
use crate::render::batch::{self, Unfit};
use windlass_core::slurm::profile::Profile;
use windlass_types::slurm::AllocationRequest;

/// Why nothing is known about the cluster.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    #[error("there is no Slurm here: {command} cannot be started ({why})")]
    NoSlurm { command: &'static str, why: String },
    #[error("{command} failed: {said}")]
    Failed { command: &'static str, said: String },
    #[error(transparent)]
    Unanswered(Unknown),
    #[error("scheduler `{scheduler}`: {why}")]
    Unfit { scheduler: String, why: Unfit },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Partitions, their limits and nodes. Two questions to the controller, and one to the configuration.
pub fn discover(slurm: &Slurm) -> Result<Profile, DiscoverError> {
    let sinfo = answer("sinfo", slurm.run(Tool::Sinfo, &SINFO.map(str::to_owned)))?;
    let scontrol = answer("scontrol", slurm.run(Tool::Scontrol, &SCONTROL.map(str::to_owned)))?;
    let profile = cluster::cluster("slurm", &sinfo, &scontrol)?;
    Ok(Profile { display_name: cluster_name(slurm).unwrap_or_default(), ..profile })
}

/// As the cluster calls itself; it is a matter of looks, so whatever keeps us from it does not matter.
fn cluster_name(slurm: &Slurm) -> Option<String> {
    let config = slurm.run(Tool::Scontrol, &["show", "config"].map(str::to_owned)).answer()?;
    let line = config.lines().find_map(|line| line.strip_prefix("ClusterName"))?;
    line.split_once('=').map(|(_, name)| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// When such an allocation would start. Nothing is submitted; Slurm counts a number for it, though.
pub fn would_start(slurm: &Slurm, request: &AllocationRequest) -> Result<WouldStart, DiscoverError> {
    const COMMAND: &str = "sbatch --test-only";
    let unfit = |why| DiscoverError::Unfit { scheduler: request.scheduler.clone(), why };
    let arguments = batch::trial(request).map_err(unfit)?;
    // It answers on its standard error, whether it can be or not.
    let said = match slurm.run_in_full(Tool::Sbatch, &arguments) {
        Outcome::Refused(said) => said,
        other => answer(COMMAND, other)?.stderr,
    };
    cluster::would_start(&said)
        .ok_or_else(|| DiscoverError::Failed { command: COMMAND, said: said.trim().to_owned() })
}

fn answer<T>(command: &'static str, outcome: Outcome<T>) -> Result<T, DiscoverError> {
    match outcome {
        Outcome::Answered(answer) => Ok(answer),
        Outcome::Refused(said) => Err(DiscoverError::Failed { command, said: said.trim().to_owned() }),
        Outcome::Unknown(Unknown::NotStarted { why, .. }) => Err(DiscoverError::NoSlurm { command, why }),
        Outcome::Unknown(why) => Err(DiscoverError::Unanswered(why)),
    }
}
