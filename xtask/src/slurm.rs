//! The Slurm cluster of the tests: its packages are installed before they begin, and it is stopped after them if
//! one of them started it.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell::{can_apt_install, find_program, root, succeeds};
use crate::test::is_root;

/// Whether the cluster can run here: its daemons run jobs as the submitting user, and on systems other than Debian
/// its packages must already be installed.
pub(crate) fn can_be_here() -> bool {
    is_root() && (can_apt_install() || find_program("slurmctld").is_some())
}

/// Installs the packages, which takes some seconds; returns at once if they are installed. The output is on the
/// terminal.
pub(crate) fn provide() -> Result<TestCluster> {
    let status = tool("install").status()?;
    if !status.success() {
        bail!("no Slurm cluster for the tests: `tools/slurm-cluster install` failed: {status}");
    }
    Ok(TestCluster { is_ours: !is_running() })
}

/// The cluster while tests run. Tests start it when they need it.
pub(crate) struct TestCluster {
    is_ours: bool,
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        // A cluster that ran before, or that another process uses by now, keeps running. If it fails to stop, it
        // has printed the reason; that is not a test failure.
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

/// The path where tests look for it too.
pub(crate) fn place() -> PathBuf {
    env::var_os("SLURM_CLUSTER_DIR").map_or_else(|| "/var/tmp/slurm-cluster".into(), PathBuf::from)
}
