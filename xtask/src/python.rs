//! The Python programs that tests need: Torc's client, schemathesis and the SDK of MCP, in an environment below
//! the target directory. Created once, and again when the pinned versions change.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell::{self, root, run};

const REQUIREMENTS: &str = "crates/server/tests/torc_client/requirements.txt";

/// The path of the environment, whether it exists or not.
pub(crate) fn place() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("torc-client")
}

/// Creates the environment if it is missing or out of date.
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
    // Written last, so that an interrupted installation is repeated.
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
    // On Debian the module is a separate package.
    if shell::can_apt_install() {
        shell::apt_install(&["python3-venv"])?;
    }
    run(&mut make()).context("cannot make an environment for Python; on Debian: apt-get install python3-venv")
}
