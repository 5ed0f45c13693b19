//! The Python programs that tests are run with: Torc's own client, schemathesis and the SDK of MCP, in an
//! environment of their own below the target directory. Made once, and again when what is pinned changes.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell::{self, root, run};

const REQUIREMENTS: &str = "crates/server/tests/torc_client/requirements.txt";

/// Where the environment is, whether it is there or not.
pub(crate) fn place() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("torc-client")
}

/// Makes the environment if it is missing or out of date.
pub(crate) fn provide() -> Result<PathBuf> {
    let place = place();
    let wanted = fs::read(root().join(REQUIREMENTS)).context(REQUIREMENTS)?;
    let stamp = place.join("requirements.txt");
    if fs::read(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(place);
    }
    eprintln!(
        "Torc's Python client, schemathesis and the SDK of MCP are missing: installing them (once, a minute)"
    );
    create(&place)?;
    let pip = place.join("bin/python");
    run(Command::new(pip)
        .args(["-m", "pip", "install", "--quiet", "--requirement"])
        .arg(root().join(REQUIREMENTS)))?;
    // Last, so that an installation that was cut off is done again.
    fs::write(&stamp, wanted)?;
    Ok(place)
}

fn create(place: &Path) -> Result<()> {
    let make = || {
        let mut command = Command::new("python3");
        command.args(["-m", "venv", "--clear"]).arg(place);
        command
    };
    if run(&mut make()).is_ok() {
        return Ok(());
    }
    // Debian has the module in a package of its own.
    if shell::can_apt_install() {
        shell::apt_install(&["python3-venv"])?;
    }
    run(&mut make()).context("cannot make an environment for Python; on Debian: apt-get install python3-venv")
}
