//! A server and its workers, as processes.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::http::Http;
use crate::shell::{output, run};

const PATIENCE: Duration = Duration::from_mins(1);

/// Where it all happens.
pub(super) struct Stage<'a> {
    pub(super) windlass: &'a Path,
    pub(super) place: &'a Path,
    /// A file in the place, or the address of a PostgreSQL database.
    pub(super) location: &'a str,
}

pub(super) struct Fleet<'a> {
    stage: &'a Stage<'a>,
    address: String,
    server: Child,
    workers: Vec<Child>,
}

impl Stage<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.windlass);
        command.args(arguments).current_dir(self.place).stdin(Stdio::null());
        command.env("XDG_CONFIG_HOME", self.place.join("config")).env_remove("WINDLASS_DB");
        command
    }

    /// The number of the new workflow.
    pub(super) fn submit(&self, spec: &Path) -> Result<i64> {
        let mut command = self.command(&["submit", "--format", "json"]);
        let connected = with_url(&mut command, self.place)?;
        let text = output(connected.arg(spec))?;
        let answer: Value = serde_json::from_str(&text).context("submit printed no JSON")?;
        let id = answer["workflow_id"].as_i64().or_else(|| answer["id"].as_i64());
        id.with_context(|| format!("submit named no workflow: {text}"))
    }
}

/// The address and the token of the server that was started here.
fn with_url<'c>(command: &'c mut Command, place: &Path) -> Result<&'c mut Command> {
    let (url, token) = server_file(place)?;
    Ok(command.env("WINDLASS_URL", url).env("WINDLASS_TOKEN", token))
}

fn server_file(place: &Path) -> Result<(String, String)> {
    let text =
        fs::read_to_string(place.join("w.db.run/server.json")).context("the server left no address")?;
    let found: Value = serde_json::from_str(&text)?;
    let part = |name: &str| found[name].as_str().map(str::to_owned).with_context(|| format!("no {name}"));
    Ok((part("url")?, part("token")?))
}

impl<'a> Fleet<'a> {
    pub(super) fn serve(stage: &'a Stage<'a>) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let log = File::create(stage.place.join("server.log"))?;
        let arguments = ["serve", "--db", stage.location, "--listen", &address];
        let mut server = stage
            .command(&arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start the server")?;
        let deadline = Instant::now() + PATIENCE;
        while server_file(stage.place).is_err() || std::net::TcpStream::connect(&address).is_err() {
            if let Some(status) = server.try_wait()? {
                let log = fs::read_to_string(stage.place.join("server.log"))?;
                bail!("the server ended: {status}\n{log}");
            }
            ensure!(Instant::now() < deadline, "the server does not come up");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { stage, address, server, workers: Vec::new() })
    }

    pub(super) fn http(&self) -> Result<Http> {
        let (_, token) = server_file(self.stage.place)?;
        Ok(Http::new(&self.address, &token))
    }

    pub(super) fn add_workers(&mut self, count: usize, slots: usize) -> Result<()> {
        for number in 0..count {
            let log = File::create(self.stage.place.join(format!("worker-{number}.log")))?;
            let slots = slots.to_string();
            let mut command =
                self.stage.command(&["worker", "--persistent", "--num-cpus", &slots, "--memory", "1g"]);
            let child = with_url(&mut command, self.stage.place)?
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .context("cannot start a worker")?;
            self.workers.push(child);
        }
        Ok(())
    }

    pub(super) fn dismiss_workers(&mut self) -> Result<()> {
        for child in &mut self.workers {
            end(child)?;
        }
        self.workers.clear();
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<()> {
        end(&mut self.server)?;
        let log = fs::read_to_string(self.stage.place.join("server.log"))?;
        ensure!(!log.to_lowercase().contains("locked"), "the server speaks of locks:\n{log}");
        Ok(())
    }
}

/// They have introduced themselves.
pub(super) fn wait_for_workers(http: &Http, count: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let list = http.get("/api/v1/workers?is_active=true")?;
        if list["items"].as_array().is_some_and(|workers| workers.len() >= count) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the workers do not come up: {list}");
        thread::sleep(Duration::from_millis(50));
    }
}

pub(super) fn wait_until_complete(http: &Http, workflow: i64) -> Result<()> {
    let path = format!("/api/v1/workflows/{workflow}/is_complete");
    let deadline = Instant::now() + 10 * PATIENCE;
    while http.get(&path)?["is_complete"] != true {
        ensure!(Instant::now() < deadline, "it does not end");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Drop for Fleet<'_> {
    /// On the way out of a failure.
    fn drop(&mut self) {
        for child in self.workers.iter_mut().chain([&mut self.server]) {
            child.kill().unwrap_or_default();
            child.wait().ok();
        }
    }
}

fn end(child: &mut Child) -> Result<()> {
    run(Command::new("kill").args(["-s", "TERM", &child.id().to_string()]))?;
    child.wait()?;
    Ok(())
}
