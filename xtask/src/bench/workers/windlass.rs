//! `windlass serve` and `windlass worker`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::http::Http;
use super::postgres::PostgresServer;
use super::server_under_test::{ServerUnderTest, WorkerSettings};
use crate::shell::output;

pub(in crate::bench) struct Windlass<'a> {
    program: &'a Path,
    place: &'a Path,
    postgres: Option<&'a PostgresServer>,
}

impl<'a> Windlass<'a> {
    pub(in crate::bench) fn new(
        program: &'a Path,
        place: &'a Path,
        postgres: Option<&'a PostgresServer>,
    ) -> Self {
        Self { program, place, postgres }
    }

    /// A command without the caller's environment.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments).current_dir(self.place).stdin(Stdio::null());
        command.env("XDG_CONFIG_HOME", self.place.join("config"));
        command.env("XDG_STATE_HOME", self.place.join("state")).env_remove("WINDLASS_DB");
        command
    }

    fn location(&self) -> String {
        self.postgres.map_or_else(|| "w.db".to_owned(), PostgresServer::url)
    }

    /// The file with the server's address: beside the database, or among the servers of this user.
    fn announcement(&self) -> Result<PathBuf> {
        if self.postgres.is_none() {
            return Ok(self.place.join("w.db.run/server.json"));
        }
        let servers = fs::read_dir(self.place.join("state/windlass/servers"))?;
        let first = servers.flatten().next().context("no server is there")?;
        Ok(first.path().join("server.json"))
    }
}

impl ServerUnderTest for Windlass<'_> {
    fn name(&self) -> String {
        let database = if self.postgres.is_some() { "PostgreSQL" } else { "SQLite" };
        format!("windlass, {database}")
    }

    fn serve(&self, port: u16) -> Command {
        let listen = format!("127.0.0.1:{port}");
        self.command(&["serve", "--db", &self.location(), "--listen", &listen])
    }

    fn token(&self) -> Result<Option<String>> {
        let text = fs::read_to_string(self.announcement()?).context("the server left no address")?;
        let found: Value = serde_json::from_str(&text)?;
        Ok(Some(found["token"].as_str().context("no token")?.to_owned()))
    }

    fn submit(&self, http: &Http, token: Option<&str>, spec: &Path) -> Result<i64> {
        let mut command = self.command(&["submit", "--format", "json"]);
        command.env("WINDLASS_URL", http.origin()).env("WINDLASS_TOKEN", token.unwrap_or_default());
        let text = output(command.arg(spec))?;
        let answer: Value = serde_json::from_str(&text).context("submit printed no JSON")?;
        answer["workflow_id"].as_i64().with_context(|| format!("submit named no workflow: {text}"))
    }

    fn worker(&self, worker_settings: &WorkerSettings<'_>, _workflow: Option<i64>) -> Option<Command> {
        let slots = worker_settings.slots.to_string();
        let mut command = self.command(&["worker", "--persistent", "--num-cpus", &slots, "--memory", "1g"]);
        command
            .env("WINDLASS_URL", &worker_settings.origin)
            .env("WINDLASS_TOKEN", worker_settings.token.unwrap_or_default());
        Some(command)
    }

    fn database(&self) -> Result<Option<u32>> {
        self.postgres.map(PostgresServer::pid).transpose()
    }

    fn logs(&self) -> Vec<PathBuf> {
        self.postgres.map(PostgresServer::log).into_iter().collect()
    }
}
