//! A PostgreSQL server for the length of a measurement, on a socket in its own directory, with default
//! durability.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell::{output, run};

pub(in crate::bench) struct PostgresServer {
    place: PathBuf,
    bin: PathBuf,
}

impl PostgresServer {
    pub(in crate::bench) fn start(place: &Path) -> Result<Self> {
        let bin = find()?;
        fs::create_dir_all(place)?;
        let server = Self { place: place.to_owned(), bin };
        run(Command::new("chown").arg("postgres").arg(place))?;
        let data = place.join("data");
        server.run(&["initdb", "--auth=trust", "--username=windlass", "-D", text(&data)?])?;
        let options = format!("-c listen_addresses='' -c unix_socket_directories='{}'", place.display());
        let log = server.log();
        server.run(&["pg_ctl", "-w", "-D", text(&data)?, "-o", &options, "-l", text(&log)?, "start"])?;
        server.run(&["createdb", "-h", text(place)?, "-U", "windlass", "windlass"])?;
        Ok(server)
    }

    pub(in crate::bench) fn url(&self) -> String {
        format!("postgres://windlass@/windlass?host={}", self.place.display())
    }

    /// The process whose children serve the connections.
    pub(in crate::bench) fn pid(&self) -> Result<u32> {
        let file =
            fs::read_to_string(self.place.join("data/postmaster.pid")).context("PostgreSQL is gone")?;
        file.lines()
            .next()
            .and_then(|line| line.trim().parse().ok())
            .context("postmaster.pid names no process")
    }

    pub(in crate::bench) fn log(&self) -> PathBuf {
        self.place.join("log")
    }

    /// PostgreSQL refuses to run as root.
    fn run(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        output(command.arg(self.bin.join(words[0])).args(&words[1..]).current_dir(&self.place)).map(drop)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let data = self.place.join("data");
        if let Some(data) = data.to_str() {
            self.run(&["pg_ctl", "-w", "-m", "fast", "-D", data, "stop"]).unwrap_or_default();
        }
    }
}

fn find() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("PostgreSQL is not installed (postgresql)")?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
    found.sort();
    match found.pop() {
        Some(bin) => Ok(bin),
        None => bail!("PostgreSQL is not installed (postgresql)"),
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}
