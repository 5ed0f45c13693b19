//! `windlass mcp`: the MCP server for agents on this machine.
//!
//! Reads use the database directly. Changes are made by starting this program as a user would, so that an agent
//! is subject to the same checks and gets the same messages as on the command line.

use crate::args::MachineArgs;
use crate::args::mcp::McpArgs;
use crate::cluster_profiles;
use crate::commands::request::operations::release_options;
use crate::commands::{cancel, why};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::recovery::local_capacity;
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
use windlass_core::job_explanation::WorkerAvailability;
use windlass_core::redact::SecretNames;
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_insight::allocation_planning;
use windlass_insight::recovery::EligibleWorkers;
use windlass_mcp::{
    AgentActions, AgentCapability, AgentSession, RequestToolCall, SpecText, ToolError, UndeliveredAttempt,
    WorkerJournal,
};
use windlass_slurm::cluster_discovery;
use windlass_slurm::slurm_client::SlurmClient;
use windlass_store::Store;
use windlass_store::lock::LockHolder;
use windlass_types::WorkflowId;
use windlass_types::payload::check_name;
use windlass_types::slurm::AllocationRequest;
use windlass_types::worker_messages::AttemptReport;

/// Poll interval: the database cannot notify about another process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time until a started process holds the lock of its workflow.
const START_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(ctx: &CliContext, args: &McpArgs) -> Result<CliExit, CliError> {
    if args.list_tools {
        ctx.ui.print_json(&windlass_mcp::describe_tools())?;
        return Ok(CliExit::Success);
    }
    let jobs_store = if args.allow_write {
        ctx.open_or_create()?
    } else {
        ctx.open_read_if_exists()?.ok_or_else(|| no_database_error(ctx))?
    };
    let program = std::env::current_exe()
        .map_err(|e| CliError::io(format!("cannot find the windlass executable: {e}")))?;
    let hands = CommandLineExecutor {
        program,
        global_args: ctx.repeat_global_args(),
        cwd: ctx.cwd.clone(),
        store: Arc::clone(&jobs_store),
        client: ctx.server()?.cloned(),
    };
    let requests = AgentSession {
        store: jobs_store,
        actions: Arc::new(hands),
        masking: SecretNames::default(),
        agent: "agent".to_owned(),
        known_as: crate::failure_commands::acting_agent(None),
        allow_write: args.allow_write,
    };
    windlass_mcp::serve_stdio(requests)
        .map_err(|e| CliError::io(format!("cannot communicate with the agent: {e}")))?;
    Ok(CliExit::Success)
}

/// The client of an agent starts this command in a directory of its own choice.
fn no_database_error(ctx: &CliContext) -> CliError {
    CliError::user(format!("no workflow was created in {} or its parents: there is no database", ctx.cwd.display()))
        .with_hint(
            "name the database in the command of the agent's client: `windlass mcp --db PATH`; with `--allow-write`, \
             a missing database is created",
        )
}

/// Performs actions by running windlass commands.
struct CommandLineExecutor {
    program: PathBuf,
    /// Global options for the database or the server.
    global_args: Vec<OsString>,
    cwd: PathBuf,
    store: Arc<dyn Store>,
    client: Option<Client>,
}

impl CommandLineExecutor {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).args(&self.global_args).current_dir(&self.cwd);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs a command and parses its output.
    fn run_windlass(&self, words: &[&str], input: &str) -> Result<Value, ToolError> {
        let mut command = self.command(words);
        command.args(["--format", "json", "--quiet"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| ToolError::new(format!("cannot start windlass: {why}")))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read stdin explains itself by its exit code.
            drop(stdin.write_all(input.as_bytes()));
        }
        let output = child
            .wait_with_output()
            .map_err(|why| ToolError::new(format!("cannot wait for windlass: {why}")))?;
        if !output.status.success() {
            return Err(parse_error_output(&String::from_utf8_lossy(&output.stderr)));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|why| ToolError::new(format!("cannot parse the output of windlass: {why}")))
    }

    /// Waits until the workflow is being run, or the started process has ended.
    fn wait_until_started(&self, workflow: WorkflowId, child: &mut Child) -> Result<(), ToolError> {
        let began = Instant::now();
        loop {
            if self.store.lock_holder(workflow)?.is_some() {
                return Ok(());
            }
            match child.try_wait() {
                // The run may have ended already.
                Ok(Some(end)) if end.code().is_some_and(|code| code <= 1) => return Ok(()),
                Ok(Some(end)) => {
                    return Err(ToolError::new(format!(
                        "`windlass resume {workflow}` ended immediately: {end}"
                    )));
                }
                _ if began.elapsed() > START_TIMEOUT => {
                    return Err(ToolError::new("the run has not started yet").with_hint("check again later"));
                }
                _ => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

/// The command line for a request tool call.
fn request_command(asked: &RequestToolCall) -> Result<Vec<String>, ToolError> {
    // Values given by an agent must never become options: a name that begins with a dash is invalid.
    let named = |verb: &str, name: &str| {
        check_name(name).map_err(|why| ToolError::new(format!("there is no request `{name}`: {why}")))?;
        Ok::<_, ToolError>(vec!["request".to_owned(), verb.to_owned(), name.to_owned()])
    };
    let because = |reason: &str| format!("--reason={reason}");
    Ok(match asked {
        RequestToolCall::List { status, name, offset, limit } => {
            let mut words = vec!["request".to_owned(), "list".to_owned()];
            words.extend([format!("--limit={limit}"), format!("--offset={offset}")]);
            words.extend(status.iter().map(|status| format!("--status={status}")));
            words.extend(name.iter().map(|name| format!("--name={name}")));
            words
        }
        RequestToolCall::Show { name } => named("show", name)?,
        RequestToolCall::Errors { name, all_rounds } => {
            let mut words = named("errors", name)?;
            words.extend(all_rounds.then(|| "--all".to_owned()));
            words
        }
        RequestToolCall::Release { name, body } => {
            let release: ReleaseRequest = serde_json::from_value(body.clone())
                .map_err(|why| ToolError::new(format!("invalid release: {why}")))?;
            let mut words = named("release", name)?;
            words.extend(release_options(&release).into_iter().map(|(flag, value)| match value {
                Some(value) => format!("{flag}={value}"),
                None => flag.to_owned(),
            }));
            words
        }
        RequestToolCall::Stop { name, reason } => [named("stop", name)?, vec![because(reason)]].concat(),
        RequestToolCall::Fail { name, reason } => {
            [named("fail", name)?, vec![because(reason), "--yes".to_owned()]].concat()
        }
    })
}

/// The error that a failed command printed.
fn parse_error_output(stderr: &str) -> ToolError {
    let last = stderr.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let all = serde_json::from_str::<Value>(stderr).ok().or(last);
    let error = all.as_ref().map(|text| text.get("error").unwrap_or(text));
    let part = |name: &str| error.and_then(|error| error.get(name)?.as_str()).map(str::to_owned);
    ToolError { message: part("message").unwrap_or_else(|| stderr.trim().to_owned()), hint: part("hint") }
}

impl From<CliError> for ToolError {
    fn from(error: CliError) -> Self {
        Self { message: error.message, hint: error.hint }
    }
}

/// Results that a worker holds and its server has not received.
fn to_undelivered(found: windlass_agent::UndeliveredSummary, workflow: WorkflowId) -> WorkerJournal {
    let attempt = |report: AttemptReport| {
        let (key, return_code) = match report {
            AttemptReport::Started { .. } | AttemptReport::LeftBehind { .. } => return None,
            AttemptReport::Returned { key, .. } => (key, None),
            AttemptReport::Ended(ended) => (ended.key, Some(ended.exit.return_code())),
        };
        let (job_id, run_id, attempt_id) = (key.job, key.run, key.attempt);
        (key.workflow == workflow).then_some(UndeliveredAttempt { job_id, run_id, attempt_id, return_code })
    };
    WorkerJournal {
        worker_id: found.worker,
        host: found.host,
        is_alive: found.is_alive,
        attempts: found.reports.into_iter().filter_map(attempt).collect(),
    }
}

impl AgentActions for CommandLineExecutor {
    fn supports(&self, _: AgentCapability) -> bool {
        true
    }

    fn create_workflow(&self, spec: &SpecText, working_dir: Option<&str>) -> Result<Value, ToolError> {
        if working_dir.is_some_and(|directory| Path::new(directory) != self.cwd) {
            return Err(ToolError::new(format!("jobs run in {} on this server", self.cwd.display()))
                .with_hint("leave out working_dir, or start `windlass mcp` in that directory"));
        }
        self.run_windlass(&["create", "-"], &spec.0)
    }

    /// Only workers of a server have journals; a local run writes directly into the database.
    fn undelivered_results(&self, workflow: WorkflowId) -> Result<Vec<WorkerJournal>, ToolError> {
        let (Some(client), Some(state_dir)) = (&self.client, windlass_agent::default_state_dir()) else {
            return Ok(Vec::new());
        };
        let found = windlass_agent::list_undelivered(&state_dir)
            .map_err(|why| ToolError::new(format!("cannot read {}: {why}", state_dir.display())))?;
        let here = found.into_iter().filter(|found| found.url == client.url());
        Ok(here.map(|found| to_undelivered(found, workflow)).collect())
    }

    /// Writes only below the directory where this process was started, and never overwrites a file.
    fn save_spec(&self, spec: &SpecText, path: &str) -> Result<Value, ToolError> {
        let below =
            Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !below {
            return Err(ToolError::new(format!("{path} is not inside {}", self.cwd.display())));
        }
        let file = self.cwd.join(path);
        let written = std::fs::File::create_new(&file).and_then(|mut file| file.write_all(spec.0.as_bytes()));
        written.map_err(|why| ToolError::new(format!("cannot write {path}: {why}")))?;
        Ok(json!({ "saved": file }))
    }

    fn perform_request_call(&self, asked: &RequestToolCall) -> Result<Value, ToolError> {
        let words = request_command(asked)?;
        self.run_windlass(&words.iter().map(String::as_str).collect::<Vec<_>>(), "")
    }

    fn start_workflow(&self, workflow: WorkflowId) -> Result<Value, ToolError> {
        if let Some(client) = &self.client {
            let run = client.start_workflow(workflow).map_err(windlass_store::StoreError::from)?;
            return Ok(json!({ "workflow_id": workflow, "run_id": run, "state": "available to workers" }));
        }
        // In its own process group, so that it survives the agent.
        let mut child = self
            .command(&["resume", &workflow.to_string(), "--quiet"])
            .process_group(0)
            .spawn()
            .map_err(|why| ToolError::new(format!("cannot start windlass: {why}")))?;
        let pid = child.id();
        let taken_up = self.wait_until_started(workflow, &mut child);
        std::thread::spawn(move || child.wait());
        taken_up.map(|()| json!({ "workflow_id": workflow, "pid": pid, "state": "running" }))
    }

    fn cancel_workflow(&self, workflow: WorkflowId) -> Result<Value, ToolError> {
        self.run_windlass(&["cancel", &workflow.to_string()], "")
    }

    fn reset_workflow(&self, workflow: WorkflowId, failed_only: bool) -> Result<Value, ToolError> {
        let id = workflow.to_string();
        let mut words = vec!["reset-status", &id, "--yes"];
        words.extend(failed_only.then_some("--failed-only"));
        self.run_windlass(&words, "")
    }

    fn load_cluster_profile(&self, profile: Option<&str>) -> Result<ClusterProfile, ToolError> {
        Ok(cluster_profiles::find_profile_from(&self.cwd, profile)?)
    }

    fn estimate_start(&self, request: &AllocationRequest) -> Result<String, ToolError> {
        Ok(cluster_discovery::estimate_start(&SlurmClient::unlimited(), request)
            .map_err(CliError::from)?
            .to_string())
    }

    fn slurm_accounting(&self, workflow: WorkflowId) -> Result<Vec<Value>, ToolError> {
        match self.run_windlass(&["slurm", "sacct", &workflow.to_string()], "")? {
            Value::Array(rows) => Ok(rows),
            other => Ok(vec![other]),
        }
    }

    fn eligible_capacity(
        &self,
        jobs_store: &dyn Store,
        workflow: WorkflowId,
    ) -> Result<EligibleWorkers, ToolError> {
        // On Slurm, new allocations bring new workers, so the present workers do not limit the capacity.
        if allocation_planning::is_on_slurm(jobs_store, workflow)?
            && let Ok(profile) = self.load_cluster_profile(None)
        {
            let settings = jobs_store.workflow(workflow)?.map(|row| row.settings).unwrap_or_default();
            return Ok(allocation_planning::cluster_capacity(&profile, None, &settings));
        }
        match &self.client {
            Some(_) => Ok(EligibleWorkers::from_offers(&self.available_workers(jobs_store, workflow)?)),
            None => Ok(local_capacity(jobs_store, workflow, &MachineArgs::default())?),
        }
    }

    /// A server does this by itself, and so does a process that runs the workflow.
    fn requeue_orphaned_jobs(&self, workflow: WorkflowId) -> Result<(), ToolError> {
        let is_seen_to = self.client.is_some() || self.store.lock_holder(workflow)?.is_some();
        if !is_seen_to && !self.store.held_jobs(workflow)?.is_empty() {
            self.run_windlass(&["workflows", "sync-status", &workflow.to_string()], "")?;
        }
        Ok(())
    }

    fn wake_holder(&self, holder: &LockHolder) {
        // If the signal fails, the process still polls for pending commands.
        drop(cancel::signal_holder(holder));
    }

    fn available_workers(
        &self,
        jobs_store: &dyn Store,
        workflow: WorkflowId,
    ) -> Result<Vec<WorkerAvailability>, ToolError> {
        match &self.client {
            Some(client) => {
                let there = client.workers(Some(workflow)).map_err(windlass_store::StoreError::from)?;
                Ok(there.into_iter().map(why::worker_offer).collect())
            }
            None => Ok(jobs_store
                .active_workers(Some(workflow))?
                .into_iter()
                .map(|row| WorkerAvailability::from_capacity(row.worker.capacity))
                .collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_values_are_never_parsed_as_options() {
        let release = RequestToolCall::Release {
            name: "reco".to_owned(),
            body: json!({"reason": "--rescue", "site_bans": ["--memory"], "memory_mb": 3000}),
        };
        let expected =
            ["request", "release", "reco", "--ban=--memory", "--memory=3000m", "--reason=--rescue"];
        assert_eq!(request_command(&release).unwrap(), expected);
        for name in ["--help", "-x", "a b", "../a", ""] {
            assert!(request_command(&RequestToolCall::Show { name: name.to_owned() }).is_err(), "{name}");
        }
    }

    #[test]
    fn tool_error_keeps_message_and_hint_of_command() {
        let text = "note\n{\"error\": {\"message\": \"it is over\", \"hint\": \"try\"}}\n";
        assert_eq!(parse_error_output(text), ToolError::new("it is over").with_hint("try"));
        assert_eq!(parse_error_output("broken pipe\n"), ToolError::new("broken pipe"));
    }
}
