//! The process of an agent: started without a terminal, with a log, and terminated with all its descendants at
//! its time limit or when this process is terminated.

use super::AgentProgram;
use crate::local_run::{RunSignalListener, listen_for_signals};
use serde_json::json;
use signal_hook::consts::SIGUSR1;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};
use windlass_process::agent_mark;
use windlass_process::process_identity::to_pid;
use windlass_process::{process_tree, shell};
use windlass_store::model::WorkflowRow;
use windlass_types::worker_messages::SERVER_URL_VARIABLES;

/// Poll interval for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Set in the environment of the process tree, so that orphaned descendants are found too.
const SESSION_VARIABLE: &str = "WINDLASS_AGENT_SESSION";

/// Credentials of the user for servers, which an agent does not inherit.
const CREDENTIAL_VARIABLES: [&str; 5] =
    ["WINDLASS_TOKEN", "WINDLASS_TOKEN_FILE", "WINDLASS_KEYRING", "WINDLASS_CERT", "WINDLASS_KEY"];

/// The environment of an agent, in addition to the inherited one.
pub(super) struct AgentEnvironment {
    pub(super) variables: Vec<(OsString, OsString)>,
    /// The agent's identity; also written to the MCP configuration, since tool servers may inherit no
    /// environment.
    pub(super) identity_variables: Vec<(OsString, OsString)>,
}

pub(super) struct AgentProcess {
    command: Command,
    /// The unique value of the tag.
    tag: String,
    /// Written to standard input.
    input: Option<String>,
    pub(super) log: PathBuf,
}

pub(super) enum AgentEnd {
    Succeeded,
    Failed(ExitStatus),
    TimedOut,
    /// This process received the signal.
    Signaled(i32),
}

impl AgentProcess {
    /// `server` is the command line of an MCP server. Returns the reason if the process cannot be prepared.
    pub(super) fn new(
        row: &WorkflowRow,
        program: &AgentProgram,
        prompt: String,
        server: &[String],
        agent_environment: AgentEnvironment,
    ) -> Result<Self, String> {
        let AgentEnvironment { variables, identity_variables: own } = agent_environment;
        let files = AgentFiles::new(row, server, &own).map_err(|e| format!("cannot get its files: {e}"))?;
        let noted = writeln!(&files.log_file, "{prompt}\n---").and_then(|()| files.log_file.try_clone());
        let errors = noted.map_err(|e| format!("cannot be logged: {e}"))?;
        let (mut command, input) = match program {
            AgentProgram::Claude(path) => {
                let mut command = Command::new(path);
                command.arg("--print").arg(&prompt).arg("--mcp-config").arg(&files.config);
                command.args(["--allowedTools", "mcp__windlass"]);
                (command, None)
            }
            AgentProgram::Named(path) => {
                let mut command = Command::new(path);
                command.arg(&prompt);
                (command, None)
            }
            AgentProgram::Command(line) => (shell::shell_command(line), Some(prompt)),
        };
        let tag = format!("{}:{}", std::process::id(), files.log.display());
        for name in CREDENTIAL_VARIABLES.iter().chain(&SERVER_URL_VARIABLES) {
            command.env_remove(name);
        }
        agent_mark::mark_command(&mut command);
        command
            .envs(variables)
            .envs(own)
            .env("WINDLASS_MCP_CONFIG", &files.config)
            .env(SESSION_VARIABLE, &tag);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(files.log_file).stderr(errors);
        Ok(Self { command, tag, input, log: files.log })
    }

    pub(super) fn run(mut self, limit: Duration) -> io::Result<AgentEnd> {
        let deadline = Instant::now() + limit;
        let received_signal = Arc::new(AtomicI32::new(0));
        // Installed before the agent is started, so that a signal in between ends it as well.
        let _listener = start_signal_listener(&received_signal)?;
        let mut child = self.command.spawn()?;
        if let (Some(input), Some(mut stdin)) = (self.input, child.stdin.take()) {
            // An agent that does not read its input must not block.
            std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap_or_default());
        }
        loop {
            match child.try_wait()? {
                Some(end) if end.success() => return Ok(AgentEnd::Succeeded),
                Some(end) => return Ok(AgentEnd::Failed(end)),
                None if received_signal.load(Ordering::Relaxed) != 0 => {
                    kill_process_tree(&mut child, &self.tag);
                    return Ok(AgentEnd::Signaled(received_signal.load(Ordering::Relaxed)));
                }
                None if Instant::now() >= deadline => {
                    kill_process_tree(&mut child, &self.tag);
                    return Ok(AgentEnd::TimedOut);
                }
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

fn start_signal_listener(received_signal: &Arc<AtomicI32>) -> io::Result<RunSignalListener> {
    let received_signal = Arc::clone(received_signal);
    let note = move |signal| {
        // SIGUSR1 only wakes processes that run a workflow.
        if signal != SIGUSR1 {
            received_signal.store(signal, Ordering::Relaxed);
        }
    };
    let signals = listen_for_signals().map_err(|error| io::Error::other(error.to_string()))?;
    RunSignalListener::start(signals, note).map_err(|error| io::Error::other(error.to_string()))
}

/// Kills the process tree; stops it first, so that no new processes are started.
fn kill_process_tree(child: &mut Child, tag: &str) {
    if let Some(pid) = to_pid(child.id()) {
        let all = || {
            process_tree::with_descendants(
                [pid].into_iter().chain(process_tree::find_with_variable(SESSION_VARIABLE, tag)),
            )
        };
        process_tree::freeze_processes(all);
        all().into_iter().for_each(process_tree::kill_process);
    }
    // The process is dead, or cannot be killed.
    drop(child.wait());
}

/// The log, and the MCP configuration.
struct AgentFiles {
    log: PathBuf,
    log_file: File,
    config: PathBuf,
}

impl AgentFiles {
    fn new(row: &WorkflowRow, server: &[String], own: &[(OsString, OsString)]) -> io::Result<Self> {
        let folder = Path::new(&row.output_dir);
        std::fs::create_dir_all(folder)?;
        let (log, sink, config, mut config_file) = new_files(folder, row)?;
        let [command, args @ ..] = server else {
            return Err(io::Error::other("there is no MCP server command"));
        };
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        let env: BTreeMap<String, String> =
            own.iter().map(|(name, value)| (text(name), text(value))).collect();
        let servers =
            json!({ "mcpServers": { "windlass": { "command": command, "args": args, "env": env } } });
        writeln!(config_file, "{servers:#}")?;
        Ok(Self { log, log_file: sink, config })
    }
}

/// The log and the MCP configuration, with a new name each time: `agent_wf3_r1_2.log`. Existing files and links
/// are never opened: the configuration contains a token.
fn new_files(folder: &Path, row: &WorkflowRow) -> io::Result<(PathBuf, File, PathBuf, File)> {
    let mut number = 1;
    loop {
        let log = folder.join(format!("agent_wf{}_r{}_{number}.log", row.id, row.run_id));
        let config = log.with_extension("mcp.json");
        let created = File::create_new(&log).and_then(|log_file| {
            let config_file = File::options().write(true).create_new(true).mode(0o600).open(&config)?;
            Ok((log_file, config_file))
        });
        match created {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return created.map(|(log_file, config_file)| (log, log_file, config, config_file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::run_summary::tests::overview;

    #[test]
    fn token_is_not_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let mut row = overview(&[], Vec::new()).workflow.row;
        row.output_dir = directory.path().to_string_lossy().into_owned();
        let target = directory.path().join("shared");
        let link = directory.path().join("agent_wf3_r1_1.mcp.json");
        std::fs::write(&target, "as it was").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let files = AgentFiles::new(&row, &["windlass".to_owned()], &[]).unwrap();
        assert_eq!(files.config, directory.path().join("agent_wf3_r1_2.mcp.json"));
        assert!(std::fs::read_to_string(&files.config).unwrap().contains("mcpServers"));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "as it was");
    }
}
