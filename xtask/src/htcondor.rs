//! The HTCondor pool that tests run on: installed before they begin, while the workspace is built, and stopped
//! after them if one of them has started it.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell::{root, succeeds};

/// An installation under way; on a machine that has a pool it is over at once.
pub(crate) struct Installing {
    child: Child,
}

impl Installing {
    pub(crate) fn begin() -> Result<Self> {
        let child =
            tool("install").stdin(Stdio::null()).spawn().context("cannot start tools/htcondor-pool")?;
        Ok(Self { child })
    }

    /// Waits for it. What it had to say is on the terminal.
    pub(crate) fn finish(mut self) -> Result<Pool> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!("no HTCondor pool for the tests: `tools/htcondor-pool install` failed: {status}");
        }
        Ok(Pool { is_ours: !is_running() })
    }
}

/// The pool while tests run. They start it when they want it.
pub(crate) struct Pool {
    is_ours: bool,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A pool that ran before, or that another process uses by now, keeps running. If it does not stop, it has
        // printed the reason, and the tests have not failed because of that.
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

/// Where tests look for it too.
pub(crate) fn place() -> PathBuf {
    env::var_os("HTCONDOR_POOL_DIR").map_or_else(|| "/var/tmp/htcondor-pool".into(), PathBuf::from)
}
