//! `--install-peers`: installs the other competitors where possible. A failure here never ends the benchmark.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::competitors;
use super::options::Install;
use crate::shell::{self, cargo, find_program, is_executable, run};

const APT: &[&str] = &["make", "parallel"];
const PYPI: &[&str] = &["parsl", "snakemake", "hyperqueue"];
const TORC: &str = "torc@1.0.0";

pub(super) fn install(what: Install, folder: &Path) {
    if what >= Install::QuickPeers {
        tell("the apt packages", install_apt());
        tell("the Python packages", install_pypi(folder));
    }
    if what >= Install::AllPeers {
        tell("torc", install_torc(folder));
    }
}

fn tell(what: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("cannot install {what}: {error:#}");
    }
}

fn install_apt() -> Result<()> {
    let missing: Vec<&str> = APT.iter().copied().filter(|program| find_program(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    anyhow::ensure!(shell::can_apt_install(), "run `sudo apt-get install {}`", missing.join(" "));
    shell::apt_install(&missing)
}

/// One package at a time: a package without a build for this Python must not affect the others.
fn install_pypi(folder: &Path) -> Result<()> {
    let venv = competitors::venv(folder);
    if !is_executable(&venv.join("bin/pip")) {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    for package in PYPI {
        tell(package, run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", package])));
    }
    Ok(())
}

/// Installs Torc and its server, a separate program that `torc -s` starts. Without `SQLX_OFFLINE`, compiling Torc
/// needs a database.
fn install_torc(folder: &Path) -> Result<()> {
    if is_executable(&folder.join("bin/torc-server")) {
        return Ok(());
    }
    let what =
        ["install", TORC, "--features", "server-bin", "--bin", "torc", "--bin", "torc-server", "--force"];
    run(cargo(what).arg("--root").arg(folder).env("SQLX_OFFLINE", "true"))
}
