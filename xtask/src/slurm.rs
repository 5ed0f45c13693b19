//! The Slurm cluster that tests run on: its packages are installed before they begin, and it is stopped after
//! them if one of them has started it.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell::{can_apt_install, find_program, root, succeeds};
use crate::test::is_root;

/// Its daemons run jobs as the submitting user. On other systems than Debian its packages must be installed already.
pub(crate) fn can_be_here() -> bool {
    is_root() && (can_apt_install() || find_program("slurmctld").is_some())
}

/// Installs the packages, which takes some seconds on a machine that has none of them, and no time on others.
/// What it has to say is on the terminal.
pub(crate) fn provide() -> Result<Cluster> {
    let status = tool("install").status()?;
    if !status.success() {
        bail!("no Slurm cluster for the tests: `tools/slurm-cluster install` failed: {status}");
    }
    Ok(Cluster { is_ours: !is_running() })
}

/// The cluster while tests run. They start it when they want it.
pub(crate) struct Cluster {
    is_ours: bool,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A cluster that ran before, or that another process uses by now, keeps running. If it does not stop, it
        // has printed the reason, and the tests have not failed because of that.
        if self.is_ours && place().join("etc").exists() {
            tool("stop").arg("--unless-used").status().ok();
        }
    }
}

fn is_running() -> bool {
    succeeds(&mut tool("status"))
}

pub(crate) fn tool(verb: &str) -> Command {
    let mut command = Command::new(root().join("tools/slurm-cluster"));
    command.arg("-d").arg(place()).arg(verb);
    command
}

/// Where tests look for it too.
pub(crate) fn place() -> PathBuf {
    env::var_os("SLURM_CLUSTER_DIR").map_or_else(|| "/var/tmp/slurm-cluster".into(), PathBuf::from)
}
