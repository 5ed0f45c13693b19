//! The ReqMgr2 of the tests, installed before they begin. Each test starts and stops its own instance.

use std::process::Command;

use anyhow::{Result, bail};

use crate::shell::{root, succeeds};

/// Whether ReqMgr2 can run here: it needs an old version of Python, and npm.
pub(crate) fn can_be_here() -> bool {
    succeeds(&mut tool("can-be-here"))
}

/// Installs ReqMgr2, which takes a minute; returns at once if it is installed. Its output is on the terminal.
pub(crate) fn provide() -> Result<()> {
    let status = tool("install").status()?;
    if !status.success() {
        bail!("no ReqMgr2 for the tests: `tools/reqmgr2-server install` failed: {status}");
    }
    Ok(())
}

fn tool(verb: &str) -> Command {
    let mut command = Command::new(root().join("tools/reqmgr2-server"));
    command.arg(verb);
    command
}
