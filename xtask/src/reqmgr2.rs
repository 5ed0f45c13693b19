//! The ReqMgr2 that tests ask: installed before they begin. Each of them starts its own, and stops it.

use std::process::Command;

use anyhow::{Result, bail};

use crate::shell::{root, succeeds};

/// It wants a Python of its time, and npm.
pub(crate) fn can_be_here() -> bool {
    succeeds(&mut tool("can-be-here"))
}

/// Takes a minute on a machine that has none, and no time on others. What it has to say is on the terminal.
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
