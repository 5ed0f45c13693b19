//! What a cluster has, asked of Slurm itself.

use crate::calls::environment::is_dropped;
use crate::read::cluster::{self, SCONTROL, SINFO, Unreadable, WouldStart};
use std::io;
use std::process::Command;
use std::time::Duration;
use windlass_core::slurm::profile::Profile;
use windlass_proc::command;

/// A controller that is slow answers within this time; one that hangs does not.
const LIMIT: Duration = Duration::from_secs(30);

/// Why nothing is known about the cluster.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    #[error("there is no Slurm here: {command} is not on the PATH")]
    NoSlurm { command: &'static str },
    #[error("cannot run {command}: {source}")]
    Io { command: &'static str, source: io::Error },
    #[error("{command} took longer than {}, and was ended", windlass_types::format_duration(LIMIT))]
    TooSlow { command: &'static str },
    #[error("{command} failed: {said}")]
    Failed { command: &'static str, said: String },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Partitions, their limits and nodes. Two questions to the controller, and one to the configuration.
pub fn discover() -> Result<Profile, DiscoverError> {
    let sinfo = ask("sinfo", &SINFO)?;
    let scontrol = ask("scontrol", &SCONTROL)?;
    let profile = cluster::cluster("slurm", &sinfo, &scontrol)?;
    Ok(Profile { display_name: cluster_name().unwrap_or_default(), ..profile })
}

/// As the cluster calls itself; it is a matter of looks, so whatever keeps us from it does not matter.
fn cluster_name() -> Option<String> {
    let config = ask("scontrol", &["show", "config"]).ok()?;
    let line = config.lines().find_map(|line| line.strip_prefix("ClusterName"))?;
    line.split_once('=').map(|(_, name)| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// When a job with these options of `sbatch` would start. Nothing is submitted; Slurm counts a number for it, though.
pub fn would_start(options: &[String]) -> Result<WouldStart, DiscoverError> {
    let mut command = clean("sbatch");
    command.arg("--test-only").args(options).args(["--wrap", "true"]);
    let answer = run("sbatch", &mut command)?;
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    cluster::would_start(&said)
        .ok_or_else(|| DiscoverError::Failed { command: "sbatch --test-only", said: said.trim().to_owned() })
}

fn ask(name: &'static str, arguments: &[&str]) -> Result<String, DiscoverError> {
    let answer = run(name, clean(name).args(arguments))?;
    if !answer.status.success() {
        let said = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
        return Err(DiscoverError::Failed { command: name, said });
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}

/// Within an allocation the variables of Slurm act as options; words are to be as we know them.
fn clean(name: &str) -> Command {
    let mut command = Command::new(name);
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(|name| is_dropped(name, true)) {
            command.env_remove(&variable);
        }
    }
    command.env("LC_ALL", "C").stdin(std::process::Stdio::null());
    command
}

fn run(name: &'static str, command: &mut Command) -> Result<command::Answer, DiscoverError> {
    match command::run(command, LIMIT) {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(DiscoverError::TooSlow { command: name }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(DiscoverError::NoSlurm { command: name })
        }
        Err(source) => Err(DiscoverError::Io { command: name, source }),
    }
}
