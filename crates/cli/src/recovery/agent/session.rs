//! The process of an agent: started without a terminal, logged, and ended with all that it started when its time is over, or
//! when we are told to end.

use super::Program;
use crate::drive::{Listener, listen_for_signals};
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
use windlass_proc::agent_mark;
use windlass_proc::identity::to_pid;
use windlass_proc::{shell, tree};
use windlass_store::model::WorkflowRow;

/// How often it is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// In the environment of all that it starts, by which also that is found whose parents are gone.
const TAG: &str = "WINDLASS_AGENT_SESSION";

/// What its user shows to servers: an agent does not inherit it.
const CREDENTIALS: [&str; 5] =
    ["WINDLASS_TOKEN", "WINDLASS_TOKEN_FILE", "WINDLASS_KEYRING", "WINDLASS_CERT", "WINDLASS_KEY"];

/// The environment of an agent, beside what it inherits.
pub(super) struct Surroundings {
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Who it is: also for servers of tools that inherit no environment.
    pub(super) own: Vec<(OsString, OsString)>,
}

pub(super) struct Session {
    command: Command,
    /// The value of the tag: nobody else's.
    tag: String,
    /// On its standard input.
    input: Option<String>,
    pub(super) log: PathBuf,
}

pub(super) enum Ended {
    Well,
    Badly(ExitStatus),
    TimedOut,
    /// Somebody sent us this signal.
    Told(i32),
}

impl Session {
    /// `server` is the command line of an MCP server. Says why there can be none.
    pub(super) fn new(
        row: &WorkflowRow,
        program: &Program,
        prompt: String,
        server: &[String],
        surroundings: Surroundings,
    ) -> Result<Self, String> {
        let Surroundings { variables, own } = surroundings;
        let files = Files::new(row, server, &own).map_err(|e| format!("cannot be given its files: {e}"))?;
        let noted = writeln!(&files.sink, "{prompt}\n---").and_then(|()| files.sink.try_clone());
        let errors = noted.map_err(|e| format!("cannot be logged: {e}"))?;
        let (mut command, input) = match program {
            Program::Claude(path) => {
                let mut command = Command::new(path);
                command.arg("--print").arg(&prompt).arg("--mcp-config").arg(&files.config);
                command.args(["--allowedTools", "mcp__windlass"]);
                (command, None)
            }
            Program::Named(path) => {
                let mut command = Command::new(path);
                command.arg(&prompt);
                (command, None)
            }
            Program::Command(line) => (shell::command(line), Some(prompt)),
        };
        let tag = format!("{}:{}", std::process::id(), files.log.display());
        for name in CREDENTIALS {
            command.env_remove(name);
        }
        agent_mark::mark(&mut command);
        command.envs(variables).envs(own).env("WINDLASS_MCP_CONFIG", &files.config).env(TAG, &tag);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(files.sink).stderr(errors);
        Ok(Self { command, tag, input, log: files.log })
    }

    pub(super) fn run(mut self, limit: Duration) -> io::Result<Ended> {
        let deadline = Instant::now() + limit;
        let told = Arc::new(AtomicI32::new(0));
        // Before it is there: whoever is told to end meanwhile ends it as well.
        let _listener = listen(&told)?;
        let mut child = self.command.spawn()?;
        if let (Some(input), Some(mut stdin)) = (self.input, child.stdin.take()) {
            // One that does not read it holds nobody up.
            std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap_or_default());
        }
        loop {
            match child.try_wait()? {
                Some(end) if end.success() => return Ok(Ended::Well),
                Some(end) => return Ok(Ended::Badly(end)),
                None if told.load(Ordering::Relaxed) != 0 => {
                    end_all(&mut child, &self.tag);
                    return Ok(Ended::Told(told.load(Ordering::Relaxed)));
                }
                None if Instant::now() >= deadline => {
                    end_all(&mut child, &self.tag);
                    return Ok(Ended::TimedOut);
                }
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

fn listen(told: &Arc<AtomicI32>) -> io::Result<Listener> {
    let told = Arc::clone(told);
    let note = move |signal| {
        // That one is for those whom `cancel` asks to look.
        if signal != SIGUSR1 {
            told.store(signal, Ordering::Relaxed);
        }
    };
    let signals = listen_for_signals().map_err(|error| io::Error::other(error.to_string()))?;
    Listener::start(signals, note).map_err(|error| io::Error::other(error.to_string()))
}

/// With all that it started: first nothing of it may start anything more.
fn end_all(child: &mut Child, tag: &str) {
    if let Some(pid) = to_pid(child.id()) {
        let all = || tree::with_descendants([pid].into_iter().chain(tree::with_variable(TAG, tag)));
        tree::freeze(all);
        all().into_iter().for_each(tree::kill);
    }
    // It is dead, or nothing can be done about it.
    drop(child.wait());
}

/// Where it writes, and where it reads how to reach us.
struct Files {
    log: PathBuf,
    sink: File,
    config: PathBuf,
}

impl Files {
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
        Ok(Self { log, sink, config })
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
