//! The process of an agent: started without a terminal, logged, and ended with all that it started when its time is over, or
//! when we are told to end.

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

/// How often it is looked whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// In the environment of all that it starts, by which also that is found whose parents are gone.
const SESSION_VARIABLE: &str = "WINDLASS_AGENT_SESSION";

/// What its user shows to servers: an agent does not inherit it.
const CREDENTIAL_VARIABLES: [&str; 5] =
    ["WINDLASS_TOKEN", "WINDLASS_TOKEN_FILE", "WINDLASS_KEYRING", "WINDLASS_CERT", "WINDLASS_KEY"];

/// The environment of an agent, beside what it inherits.
pub(super) struct AgentEnvironment {
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Who it is: also for servers of tools that inherit no environment.
    pub(super) identity_variables: Vec<(OsString, OsString)>,
}

pub(super) struct AgentProcess {
    command: Command,
    /// The value of the tag: nobody else's.
    tag: String,
    /// On its standard input.
    input: Option<String>,
    pub(super) log: PathBuf,
}

pub(super) enum AgentEnd {
    Succeeded,
    Failed(ExitStatus),
    TimedOut,
    /// Somebody sent us this signal.
    Signaled(i32),
}

impl AgentProcess {
    /// `server` is the command line of an MCP server. Says why there can be none.
    pub(super) fn new(
        row: &WorkflowRow,
        program: &AgentProgram,
        prompt: String,
        server: &[String],
        surroundings: AgentEnvironment,
    ) -> Result<Self, String> {
        let AgentEnvironment { variables, identity_variables: own } = surroundings;
        let files =
            AgentFiles::new(row, server, &own).map_err(|e| format!("cannot be given its files: {e}"))?;
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
        for name in CREDENTIAL_VARIABLES {
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
        let told = Arc::new(AtomicI32::new(0));
        // Before it is there: whoever is told to end meanwhile ends it as well.
        let _listener = start_signal_listener(&told)?;
        let mut child = self.command.spawn()?;
        if let (Some(input), Some(mut stdin)) = (self.input, child.stdin.take()) {
            // One that does not read it holds nobody up.
            std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap_or_default());
        }
        loop {
            match child.try_wait()? {
                Some(end) if end.success() => return Ok(AgentEnd::Succeeded),
                Some(end) => return Ok(AgentEnd::Failed(end)),
                None if told.load(Ordering::Relaxed) != 0 => {
                    kill_process_tree(&mut child, &self.tag);
                    return Ok(AgentEnd::Signaled(told.load(Ordering::Relaxed)));
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

fn start_signal_listener(told: &Arc<AtomicI32>) -> io::Result<RunSignalListener> {
    let told = Arc::clone(told);
    let note = move |signal| {
        // That one is for those whom `cancel` asks to look.
        if signal != SIGUSR1 {
            told.store(signal, Ordering::Relaxed);
        }
    };
    let signals = listen_for_signals().map_err(|error| io::Error::other(error.to_string()))?;
    RunSignalListener::start(signals, note).map_err(|error| io::Error::other(error.to_string()))
}

/// With all that it started: first nothing of it may start anything more.
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
    // It is dead, or nothing can be done about it.
    drop(child.wait());
}

/// Where it writes, and where it reads how to reach us.
struct AgentFiles {
    log: PathBuf,
    log_file: File,
    config: PathBuf,
}

impl AgentFiles {
    fn new(row: &WorkflowRow, server: &[String], own: &[(OsString, OsString)]) -> io::Result<Self> {
        let folder = Path::new(&row.output_dir);
        std::fs::create_dir_all(folder)?;
        let (log, sink) = new_log(folder, row)?;
        let config = log.with_extension("mcp.json");
        let [command, args @ ..] = server else { return Err(io::Error::other("there is no MCP server")) };
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        let env: BTreeMap<String, String> =
            own.iter().map(|(name, value)| (text(name), text(value))).collect();
        let servers =
            json!({ "mcpServers": { "windlass": { "command": command, "args": args, "env": env } } });
        // It holds a token.
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&config)?;
        writeln!(file, "{servers:#}")?;
        Ok(Self { log, log_file: sink, config })
    }
}

/// Each time another one: `agent_wf3_r1_2.log`.
fn new_log(folder: &Path, row: &WorkflowRow) -> io::Result<(PathBuf, File)> {
    let mut number = 1;
    loop {
        let path = folder.join(format!("agent_wf{}_r{}_{number}.log", row.id, row.run_id));
        match File::create_new(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|file| (path, file)),
        }
    }
}
