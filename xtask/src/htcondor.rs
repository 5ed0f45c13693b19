//! The HTCondor pool of the tests: installed while the workspace is built, and stopped after the tests if one of
//! them started it.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell::{root, succeeds};

/// A running installation; on a machine that already has a pool it finishes at once.
pub(crate) struct PoolInstallation {
    child: Child,
}

impl PoolInstallation {
    pub(crate) fn begin() -> Result<Self> {
        let child =
            tool("install").stdin(Stdio::null()).spawn().context("cannot start tools/htcondor-pool")?;
        Ok(Self { child })
    }

    /// Waits for the installation. Its output is on the terminal.
    pub(crate) fn finish(mut self) -> Result<Pool> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!("no HTCondor pool for the tests: `tools/htcondor-pool install` failed: {status}");
        }
        Ok(Pool { is_ours: !is_running() })
    }
}

/// The pool while tests run. Tests start it when they need it.
pub(crate) struct Pool {
    is_ours: bool,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A pool that ran before, or that another process uses by now, keeps running. If it fails to stop, it has
        // printed the reason; that is not a test failure.
        if self.is_ours && is_running() {
            tool("stop").arg("--unless-used").status().ok();
        }
    }
}

fn is_running() -> bool {
    succeeds(&mut tool("status"))
}

pub(crate) fn tool(verb: &str) -> Command {
    let mut command = Command::new(root().join("tools/htcondor-pool"));
    command.arg("-d").arg(place()).arg(verb);
    command
}

/// The path where tests look for it too.
pub(crate) fn place() -> PathBuf {
    env::var_os("HTCONDOR_POOL_DIR").map_or_else(|| "/var/tmp/htcondor-pool".into(), PathBuf::from)
}
