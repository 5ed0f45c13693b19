//! Exclusive use of the cluster of the tests.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::job_stamps::ACCOUNT;
use crate::shell::{output, run};
use crate::slurm::{place, provide, tool};

const WAIT_TIMEOUT: Duration = Duration::from_mins(2);

pub(super) struct ExclusiveCluster {
    directory: PathBuf,
    /// Held while tests use the cluster. Released before the next step checks for other users.
    _used: File,
    /// Stops the cluster, unless it ran before.
    _provided: crate::slurm::TestCluster,
}

impl ExclusiveCluster {
    /// Waits until no other process uses the cluster, and reserves it.
    pub(super) fn alone() -> Result<Self> {
        let provided = provide()?;
        let directory = place();
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let open = |name: &str| {
            let path = directory.join(name);
            let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
            file.with_context(|| format!("cannot open {}", path.display()))
        };
        // As in the tests: the first waiting process keeps out later ones.
        let turn = open("turn.lock")?;
        turn.lock()?;
        let used = open("used.lock")?;
        used.lock()?;
        drop(turn);
        run(&mut tool("start"))?;
        Ok(Self { directory, _used: used, _provided: provided })
    }

    /// Gives a program access to the cluster.
    pub(super) fn set_environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("SLURM_CONF", self.directory.join("etc/slurm.conf"))
    }

    /// Cancels the remaining jobs of the measurement, and waits until they are gone.
    pub(super) fn clear(&self) -> Result<()> {
        let account = format!("--account={ACCOUNT}");
        output(self.set_environment(Command::new("scancel").arg(&account)))?;
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !output(self.set_environment(Command::new("squeue").args(["-h", &account])))?.trim().is_empty()
        {
            ensure!(Instant::now() < deadline, "jobs of the measurement do not end: `squeue {account}`");
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}
