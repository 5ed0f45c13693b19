//! `windlass mcp`: what an agent is served with on this machine.
//!
//! Reading goes to the books. What changes something is done by this program itself, started once more as a person would
//! start it: so an agent can do nothing that the command line would not do, with the same checks and the same words.

use crate::args::MachineArgs;
use crate::args::mcp::McpArgs;
use crate::clusters;
use crate::commands::request::operator::release_options;
use crate::commands::{cancel, why};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::recovery::local_room;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_api::requests::ReleaseRequest;
use windlass_client::Client;
use windlass_core::redact::Masking;
use windlass_core::slurm::profile::Profile;
use windlass_core::why::Offer;
use windlass_insight::allocating;
use windlass_insight::recovery::Room;
use windlass_mcp::{AboutRequests, Desk, Hands, Skill, SpecText, Trouble, Undelivered, UndeliveredAttempt};
use windlass_slurm::calls::Slurm;
use windlass_slurm::discover;
use windlass_store::Store;
use windlass_store::lock::Holder;
use windlass_types::WorkflowId;
use windlass_types::payload::check_name;
use windlass_types::slurm::AllocationRequest;
use windlass_types::work::Report;

/// Another process is watched through the books, which cannot notify.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So long it may take until it has taken up a workflow.
const START: Duration = Duration::from_secs(30);

pub(crate) fn run(ctx: &Context, args: &McpArgs) -> Result<Exit, CliError> {
    if args.list_tools {
        ctx.ui.print_json(&windlass_mcp::describe_tools())?;
        return Ok(Exit::Success);
    }
    let books = if args.allow_write { ctx.open_or_create()? } else { ctx.open_read()? };
    let program =
        std::env::current_exe().map_err(|e| CliError::io(format!("cannot tell where windlass is: {e}")))?;
    let hands = Person {
        program,
        words: ctx.globals_again(),
        cwd: ctx.cwd.clone(),
        books: Arc::clone(&books),
        client: ctx.server()?.cloned(),
    };
    let desk = Desk {
        books,
        hands: Arc::new(hands),
        masking: Masking::default(),
        agent: "agent".to_owned(),
        known_as: crate::orders::agent(None),
        allow_write: args.allow_write,
    };
    windlass_mcp::serve_stdio(desk)
        .map_err(|e| CliError::io(format!("the agent cannot be spoken to: {e}")))?;
    Ok(Exit::Success)
}

/// Does what a person would do at a terminal.
struct Person {
    program: PathBuf,
    /// What was said of the database or the server.
    words: Vec<OsString>,
    cwd: PathBuf,
    books: Arc<dyn Store>,
    client: Option<Client>,
}

impl Person {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).args(&self.words).current_dir(&self.cwd);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Types a command and reads what it prints.
    fn types(&self, words: &[&str], input: &str) -> Result<Value, Trouble> {
        let mut command = self.command(words);
        command.args(["--format", "json", "--quiet"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| Trouble::refused(format!("windlass cannot be started: {why}")))?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that reads nothing says why by how it ends.
            drop(stdin.write_all(input.as_bytes()));
        }
        let output = child
            .wait_with_output()
            .map_err(|why| Trouble::refused(format!("windlass cannot be waited for: {why}")))?;
        if !output.status.success() {
            return Err(complaint(&String::from_utf8_lossy(&output.stderr)));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|why| Trouble::refused(format!("windlass said: {why}")))
    }

    /// Waits until somebody runs the workflow, or the one who was to gave up.
    fn is_taken_up(&self, workflow: WorkflowId, child: &mut Child) -> Result<(), Trouble> {
        let began = Instant::now();
        loop {
            if self.books.lock_holder(workflow)?.is_some() {
                return Ok(());
            }
            match child.try_wait() {
                // It may be over already.
                Ok(Some(end)) if end.code().is_some_and(|code| code <= 1) => return Ok(()),
                Ok(Some(end)) => {
                    return Err(Trouble::refused(format!(
                        "`windlass resume {workflow}` ended at once: {end}"
                    )));
                }
                _ if began.elapsed() > START => {
                    return Err(Trouble::refused("it has not begun yet").with_hint("look again in a while"));
                }
                _ => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

/// What a person would type to ask this about requests, or to have it done.
fn typed(asked: &AboutRequests) -> Result<Vec<String>, Trouble> {
    // Words of an agent are values, and never options: a name that begins with a dash is none.
    let named = |verb: &str, name: &str| {
        check_name(name).map_err(|why| Trouble::refused(format!("there is no request `{name}`: {why}")))?;
        Ok::<_, Trouble>(vec!["request".to_owned(), verb.to_owned(), name.to_owned()])
    };
    let because = |reason: &str| format!("--reason={reason}");
    Ok(match asked {
        AboutRequests::List { status, name, offset, limit } => {
            let mut words = vec!["request".to_owned(), "list".to_owned()];
            words.extend([format!("--limit={limit}"), format!("--offset={offset}")]);
            words.extend(status.iter().map(|status| format!("--status={status}")));
            words.extend(name.iter().map(|name| format!("--name={name}")));
            words
        }
        AboutRequests::Show { name } => named("show", name)?,
        AboutRequests::Errors { name, all_rounds } => {
            let mut words = named("errors", name)?;
            words.extend(all_rounds.then(|| "--all".to_owned()));
            words
        }
        AboutRequests::Release { name, body } => {
            let release: ReleaseRequest = serde_json::from_value(body.clone())
                .map_err(|why| Trouble::refused(format!("the release makes no sense: {why}")))?;
            let mut words = named("release", name)?;
            words.extend(release_options(&release).into_iter().map(|(flag, value)| match value {
                Some(value) => format!("{flag}={value}"),
                None => flag.to_owned(),
            }));
            words
        }
        AboutRequests::Stop { name, reason } => [named("stop", name)?, vec![because(reason)]].concat(),
        AboutRequests::Fail { name, reason } => {
            [named("fail", name)?, vec![because(reason), "--yes".to_owned()]].concat()
        }
    })
}

/// What a command said when it refused.
fn complaint(stderr: &str) -> Trouble {
    let last = stderr.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let all = serde_json::from_str::<Value>(stderr).ok().or(last);
    let error = all.as_ref().map(|said| said.get("error").unwrap_or(said));
    let part = |name: &str| error.and_then(|error| error.get(name)?.as_str()).map(str::to_owned);
    Trouble { message: part("message").unwrap_or_else(|| stderr.trim().to_owned()), hint: part("hint") }
}

impl From<CliError> for Trouble {
    fn from(error: CliError) -> Self {
        Self { message: error.message, hint: error.hint }
    }
}

/// The results that a worker has and its server does not.
fn undelivered(found: windlass_agent::Undelivered, workflow: WorkflowId) -> Undelivered {
    let attempt = |report: Report| {
        let (key, return_code) = match report {
            Report::Started { .. } => return None,
            Report::Returned { key, .. } => (key, None),
            Report::Ended(ended) => (ended.key, Some(ended.exit.return_code())),
        };
        let (job_id, run_id, attempt_id) = (key.job, key.run, key.attempt);
        (key.workflow == workflow).then_some(UndeliveredAttempt { job_id, run_id, attempt_id, return_code })
    };
    Undelivered {
        worker_id: found.worker,
        host: found.host,
        is_alive: found.is_alive,
        attempts: found.reports.into_iter().filter_map(attempt).collect(),
    }
}

impl Hands for Person {
    fn can(&self, _: Skill) -> bool {
        true
    }

    fn create(&self, spec: &SpecText, working_dir: Option<&str>) -> Result<Value, Trouble> {
        if working_dir.is_some_and(|directory| Path::new(directory) != self.cwd) {
            return Err(Trouble::refused(format!("jobs run in {} here", self.cwd.display()))
                .with_hint("leave out working_dir, or have `windlass mcp` started there"));
        }
        self.types(&["create", "-"], &spec.0)
    }

    /// Workers of a server have journals; who runs a workflow of this machine writes into its books.
    fn journals(&self, workflow: WorkflowId) -> Result<Vec<Undelivered>, Trouble> {
        let (Some(client), Some(state_dir)) = (&self.client, windlass_agent::default_state_dir()) else {
            return Ok(Vec::new());
        };
        let found = windlass_agent::undelivered(&state_dir)
            .map_err(|why| Trouble::refused(format!("cannot read {}: {why}", state_dir.display())))?;
        let here = found.into_iter().filter(|found| found.url == client.url());
        Ok(here.map(|found| undelivered(found, workflow)).collect())
    }

    /// Only below the directory where we were started, and never in place of another file.
    fn save(&self, spec: &SpecText, path: &str) -> Result<Value, Trouble> {
        let below =
            Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !below {
            return Err(Trouble::refused(format!("{path} is not below {}", self.cwd.display())));
        }
        let file = self.cwd.join(path);
        let written = std::fs::File::create_new(&file).and_then(|mut file| file.write_all(spec.0.as_bytes()));
        written.map_err(|why| Trouble::refused(format!("cannot write {path}: {why}")))?;
        Ok(json!({ "saved": file }))
    }

    fn requests(&self, asked: &AboutRequests) -> Result<Value, Trouble> {
        let words = typed(asked)?;
        self.types(&words.iter().map(String::as_str).collect::<Vec<_>>(), "")
    }

    fn start(&self, workflow: WorkflowId) -> Result<Value, Trouble> {
        if let Some(client) = &self.client {
            let run = client.start_workflow(workflow).map_err(windlass_store::Error::from)?;
            return Ok(json!({ "workflow_id": workflow, "run_id": run, "state": "workers may have it" }));
        }
        // It goes on when the agent is gone.
        let mut child = self
            .command(&["resume", &workflow.to_string(), "--quiet"])
            .process_group(0)
            .spawn()
            .map_err(|why| Trouble::refused(format!("windlass cannot be started: {why}")))?;
        let pid = child.id();
        let taken_up = self.is_taken_up(workflow, &mut child);
        std::thread::spawn(move || child.wait());
        taken_up.map(|()| json!({ "workflow_id": workflow, "pid": pid, "state": "running" }))
    }

    fn cancel(&self, workflow: WorkflowId) -> Result<Value, Trouble> {
        self.types(&["cancel", &workflow.to_string()], "")
    }

    fn reset(&self, workflow: WorkflowId, failed_only: bool) -> Result<Value, Trouble> {
        let id = workflow.to_string();
        let mut words = vec!["reset-status", &id, "--yes"];
        words.extend(failed_only.then_some("--failed-only"));
        self.types(&words, "")
    }

    fn cluster(&self, profile: Option<&str>) -> Result<Profile, Trouble> {
        Ok(clusters::find_from(&self.cwd, profile)?)
    }

    fn would_start(&self, request: &AllocationRequest) -> Result<String, Trouble> {
        Ok(discover::would_start(&Slurm::by_hand(), request).map_err(CliError::from)?.to_string())
    }

    fn accounts(&self, workflow: WorkflowId) -> Result<Vec<Value>, Trouble> {
        match self.types(&["slurm", "sacct", &workflow.to_string()], "")? {
            Value::Array(rows) => Ok(rows),
            other => Ok(vec![other]),
        }
    }

    fn room(&self, books: &dyn Store, workflow: WorkflowId) -> Result<Room, Trouble> {
        // What workers have now says little where new allocations bring others.
        if allocating::is_on_slurm(books, workflow)?
            && let Ok(profile) = self.cluster(None)
        {
            let settings = books.workflow(workflow)?.map(|row| row.settings).unwrap_or_default();
            return Ok(allocating::room(&profile, None, &settings));
        }
        match &self.client {
            Some(_) => Ok(Room::of(&self.workers(books, workflow)?)),
            None => Ok(local_room(books, workflow, &MachineArgs::default())?),
        }
    }

    /// A server does so by itself, and so does whoever runs the workflow.
    fn clear_up(&self, workflow: WorkflowId) -> Result<(), Trouble> {
        let is_seen_to = self.client.is_some() || self.books.lock_holder(workflow)?.is_some();
        if !is_seen_to && !self.books.held_jobs(workflow)?.is_empty() {
            self.types(&["workflows", "sync-status", &workflow.to_string()], "")?;
        }
        Ok(())
    }

    fn nudge(&self, holder: &Holder) {
        // Who cannot be told looks once in a while.
        drop(cancel::tell(holder));
    }

    fn workers(&self, books: &dyn Store, workflow: WorkflowId) -> Result<Vec<Offer>, Trouble> {
        match &self.client {
            Some(client) => {
                let there = client.workers(Some(workflow)).map_err(windlass_store::Error::from)?;
                Ok(there.into_iter().map(why::offer).collect())
            }
            None => Ok(books
                .active_workers(Some(workflow))?
                .into_iter()
                .map(|row| Offer::of(row.worker.capacity))
                .collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_agent_are_values_and_never_options() {
        let release = AboutRequests::Release {
            name: "reco".to_owned(),
            body: json!({"reason": "--rescue", "site_bans": ["--memory"], "memory_mb": 3000}),
        };
        let expected =
            ["request", "release", "reco", "--ban=--memory", "--memory=3000m", "--reason=--rescue"];
        assert_eq!(typed(&release).unwrap(), expected);
        for name in ["--help", "-x", "a b", "../a", ""] {
            assert!(typed(&AboutRequests::Show { name: name.to_owned() }).is_err(), "{name}");
        }
    }

    #[test]
    fn what_a_command_complained_of_is_passed_on() {
        let said = "note\n{\"error\": {\"message\": \"it is over\", \"hint\": \"try\"}}\n";
        assert_eq!(complaint(said), Trouble::refused("it is over").with_hint("try"));
        assert_eq!(complaint("broken pipe\n"), Trouble::refused("broken pipe"));
    }
}
