//! `torc-server` and `torc run`, as shipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::http::Http;
use super::options::Options;
use super::server_under_test::{ServerUnderTest, WorkerSettings};
use crate::shell::{find_program, is_executable, output};

pub(super) struct Torc<'a> {
    program: PathBuf,
    place: &'a Path,
}

/// `torc` alone is only a client: `torc-server` must be in the same directory.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    let Some(torc) = named.map(Path::to_owned).or_else(|| find_program("torc")) else {
        return Err("there is no torc on PATH (see --torc)".to_owned());
    };
    let server = torc.with_file_name("torc-server");
    for file in [&torc, &server] {
        if !is_executable(file) {
            return Err(format!("there is no program {}", file.display()));
        }
    }
    Ok(torc)
}

impl<'a> Torc<'a> {
    pub(super) fn new(program: PathBuf, place: &'a Path) -> Self {
        Self { program, place }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.place).stdin(Stdio::null()).env("USER", "bench").env("RUST_LOG", "warn");
        command
    }

    fn client(&self, origin: &str) -> Command {
        let mut command = self.command(&self.program);
        command.env("TORC_API_URL", format!("{origin}{}", super::http::PREFIX));
        command
    }
}

impl ServerUnderTest for Torc<'_> {
    fn name(&self) -> String {
        let version = output(Command::new(&self.program).arg("--version")).unwrap_or_default();
        format!("torc-server and torc run, {}", version.trim())
    }

    fn share(&self, options: &Options) -> usize {
        options.torc_jobs.min(options.jobs)
    }

    /// As many threads as CPUs, and the shortest poll interval for completed jobs.
    fn serve(&self, port: u16) -> Command {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut command = self.command(&self.program.with_file_name("torc-server"));
        command.args(["run", "--host", "127.0.0.1", "--database", "torc.db", "-c", "1"]);
        command.args(["--port", &port.to_string(), "--threads", &threads.to_string()]);
        command
    }

    fn token(&self) -> Result<Option<String>> {
        Ok(None)
    }

    fn submit(&self, http: &Http, _token: Option<&str>, spec: &Path) -> Result<i64> {
        let text = output(self.client(&http.origin()).args(["-f", "json", "create"]).arg(spec))?;
        let answer: Value = serde_json::from_str(&text).context("torc printed no JSON")?;
        let id = answer["workflow_id"].as_i64().with_context(|| format!("torc named no workflow: {text}"))?;
        http.post(&format!("/workflows/{id}/initialize_jobs"), "")?;
        Ok(id)
    }

    /// Polls ten times a second: with its default of five seconds only the poll interval would be measured.
    fn worker(&self, worker_settings: &WorkerSettings<'_>, workflow: Option<i64>) -> Option<Command> {
        let (workflow, slots) = (workflow?.to_string(), worker_settings.slots.to_string());
        let mut command = self.client(&worker_settings.origin);
        command.args(["run", &workflow, "--num-cpus", &slots, "--memory-gb", "1", "--poll-interval", "0.1"]);
        command.args(["--output-dir", &format!("output-{}", worker_settings.number)]);
        Some(command)
    }
}
