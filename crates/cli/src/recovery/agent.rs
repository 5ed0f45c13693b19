//! Runs an agent that decides about waiting failures. It is a program of the user, gets a prompt, and acts
//! through `windlass mcp` or the command line. If the agent fails, the recovery continues without it.

mod agent_process;
mod prompt;

use crate::args::recover::AiAgentArgs;
use crate::context::CliContext;
use crate::error::CliError;
use crate::failure_commands;
use crate::rerun;
use crate::ui::text;
use agent_process::{AgentEnd, AgentEnvironment, AgentProcess};
use signal_hook::low_level::emulate_default_handler;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_api::tokens::CreateToken;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::worker_messages::server_url_variables;
use windlass_types::{JobStatus, format_duration};

/// The name shown to users.
pub(crate) fn name(args: &AiAgentArgs) -> &str {
    args.command.as_deref().unwrap_or(&args.agent)
}

/// Maximum length of the name recorded with decisions.
const MAX_NAME_LENGTH: usize = 80;

/// The name recorded with its decisions: `my-agent` for `/opt/bin/my-agent --verbose`.
fn decision_name(command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or("agent");
    let name = Path::new(program).file_name().map_or("agent".into(), |name| name.to_string_lossy());
    name.chars().take(MAX_NAME_LENGTH).collect()
}

/// Runs the agent on waiting failures. Returns only database errors: an agent that is missing, fails or times
/// out is only reported.
pub(crate) fn run_agent(
    ctx: &CliContext,
    store: &dyn Store,
    row: &WorkflowRow,
    args: &AiAgentArgs,
) -> Result<(), CliError> {
    let waiting = row.counts.get(JobStatus::PendingFailed);
    if waiting == 0 {
        return Ok(());
    }
    let failed = |why: String| {
        ctx.ui.print_warning(&format!("the agent `{}` {why}; continuing without it", name(args)));
        Ok(())
    };
    let program = match AgentProgram::find_program(args) {
        Ok(program) => program,
        Err(why) => return failed(why),
    };
    let credential =
        match AgentCredential::create_credential(ctx, row, &decision_name(name(args)), args.limit)? {
            Ok(credential) => credential,
            Err(why) => return failed(why),
        };
    let asked =
        match prepare_session(ctx, store, row, &program, &decision_name(name(args)), credential.as_ref())? {
            Ok(session) => session,
            Err(why) => return failed(why),
        };
    let jobs = text::render_count(waiting, "job");
    ctx.ui.print_note(&format!(
        "running `{}` to decide about {jobs}; its log is {}",
        name(args),
        asked.log.display()
    ));
    let ended = asked.run(args.limit);
    if let Some(credential) = credential {
        credential.revoke_credential(ctx);
    }
    let ended = match ended {
        Ok(AgentEnd::Succeeded) => None,
        Ok(AgentEnd::Failed(how)) => Some(format!("failed ({how})")),
        Ok(AgentEnd::TimedOut) => Some(format!("timed out after {}", format_duration(args.limit))),
        Ok(AgentEnd::Signaled(signal)) => {
            ctx.ui.print_note(&format!("`{}` and its child processes were terminated", name(args)));
            // There is nothing to clean up: terminate as the signal would by default.
            emulate_default_handler(signal)
                .map_err(|e| CliError::io(format!("cannot terminate on signal {signal}: {e}")))?;
            None
        }
        Err(error) => Some(format!("could not be started: {error}")),
    };
    let left = rerun::load_workflow_row(store, row.id)?.counts.get(JobStatus::PendingFailed);
    let decided = text::render_count(waiting.saturating_sub(left), "job");
    ctx.ui.print_note(&format!("it decided on {decided} of {waiting}"));
    ended.map_or(Ok(()), failed)
}

/// The program to start.
pub(super) enum AgentProgram {
    /// The Claude command line, which gets the MCP server in a configuration file.
    Claude(PathBuf),
    /// Gets the prompt as its last argument.
    Named(PathBuf),
    /// A shell command that gets the prompt on standard input.
    Command(String),
}

impl AgentProgram {
    fn find_program(args: &AiAgentArgs) -> Result<Self, String> {
        if let Some(command) = &args.command {
            return Ok(Self::Command(command.clone()));
        }
        let wanted = &args.agent;
        let path = find_on_path(wanted).ok_or("is not installed: there is no such program on PATH")?;
        let is_claude = Path::new(wanted).file_name().is_some_and(|name| name == "claude");
        Ok(if is_claude { Self::Claude(path) } else { Self::Named(path) })
    }
}

fn find_on_path(program: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(is_program)
}

fn prepare_session(
    ctx: &CliContext,
    store: &dyn Store,
    row: &WorkflowRow,
    program: &AgentProgram,
    known_as: &str,
    credential: Option<&AgentCredential>,
) -> Result<Result<AgentProcess, String>, CliError> {
    let server = mcp_server_command(ctx)?;
    let prompt = prompt::render_prompt(row, &store.failure_groups(row.id)?, &server);
    let mut variables = agent_environment(ctx, row)?;
    let command = server.iter().map(|word| text::shell_quote(word)).collect::<Vec<_>>().join(" ");
    variables.push(("WINDLASS_MCP_COMMAND".into(), command.into()));
    let mut own: Vec<(OsString, OsString)> = vec![(failure_commands::AGENT_VARIABLE.into(), known_as.into())];
    own.extend(credential.map(|credential| ("WINDLASS_TOKEN".into(), credential.token.clone().into())));
    Ok(AgentProcess::new(
        row,
        program,
        prompt,
        &server,
        AgentEnvironment { variables, identity_variables: own },
    ))
}

/// Added to the agent's time limit: it may still contact the server while it is being terminated.
const TOKEN_MARGIN: Duration = Duration::from_mins(1);

/// The server token of one agent: allows reading and deciding as an agent, and is revoked with its end.
struct AgentCredential {
    id: i64,
    token: String,
}

impl AgentCredential {
    /// `None` without a server. On failure returns the reason, and the agent is not started: it would otherwise
    /// act as its user.
    fn create_credential(
        ctx: &CliContext,
        row: &WorkflowRow,
        known_as: &str,
        limit: Duration,
    ) -> Result<Result<Option<Self>, String>, CliError> {
        let Some(client) = ctx.server()? else { return Ok(Ok(None)) };
        let new = CreateToken {
            name: format!("agent {known_as}"),
            scopes: vec!["agent".to_owned()],
            // Limited to the workflows of the user, without operator permissions.
            role: client.caller_info().is_ok_and(|me| me.user == row.user).then(|| "user".to_owned()),
            expires_in: Some(u32::try_from((limit + TOKEN_MARGIN).as_secs()).unwrap_or(u32::MAX)),
            ..CreateToken::default()
        };
        Ok(match client.create_token(&new) {
            Ok(made) => Ok(Some(Self { id: made.about.id, token: made.token })),
            Err(error) => Err(format!("cannot get a token of its own ({error})")),
        })
    }

    fn revoke_credential(self, ctx: &CliContext) {
        // It expires in any case.
        if let Ok(Some(client)) = ctx.server()
            && let Err(error) = client.revoke_token(self.id)
        {
            ctx.ui
                .print_warning(&format!("the token of the agent was not revoked, and will expire: {error}"));
        }
    }
}

/// The arguments of an MCP server for this database.
fn mcp_server_command(ctx: &CliContext) -> Result<Vec<String>, CliError> {
    let program = std::env::current_exe()
        .map_err(|e| CliError::io(format!("cannot find the windlass executable: {e}")))?;
    let mut words = vec![program.display().to_string(), "mcp".to_owned(), "--allow-write".to_owned()];
    words.extend(database_args(ctx)?);
    Ok(words)
}

/// The options that select the database. A database URL may contain a password, which is passed only in the
/// environment.
fn database_args(ctx: &CliContext) -> Result<Vec<String>, CliError> {
    if ctx.is_postgres() {
        return Ok(Vec::new());
    }
    let mut words: Vec<String> = ctx
        .repeat_global_args_without_credentials()
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // A discovered database is passed explicitly, so that the directory does not matter.
    if !words.iter().any(|word| word == "--db" || word == "--url") {
        words.extend(match ctx.server()? {
            Some(client) => ["--url".to_owned(), client.url().to_owned()],
            None => ["--db".to_owned(), ctx.database().display().to_string()],
        });
    }
    Ok(words)
}

/// Environment variables of agents and hooks: each name of the contract exists twice. They replace the server
/// that the user's environment names.
pub(super) fn agent_environment(
    ctx: &CliContext,
    row: &WorkflowRow,
) -> Result<Vec<(OsString, OsString)>, CliError> {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    let mut both = |name: &str, value: String| {
        variables.push((format!("WINDLASS_{name}").into(), value.clone().into()));
        variables.push((format!("TORC_{name}").into(), value.into()));
    };
    both("WORKFLOW_ID", row.id.to_string());
    both("RUN_ID", row.run_id.to_string());
    both("OUTPUT_DIR", row.output_dir.clone());
    match ctx.server()? {
        Some(client) => {
            let urls = server_url_variables(client.url());
            variables.extend(urls.map(|(name, url)| (name.into(), url.into())));
        }
        None => variables.push(("WINDLASS_DB".into(), ctx.database().into())),
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_is_named_after_program() {
        assert_eq!(decision_name("/opt/bin/my-agent --verbose"), "my-agent");
        assert_eq!((decision_name("claude"), decision_name(" ")), ("claude".to_owned(), "agent".to_owned()));
    }

    #[test]
    fn programs_are_found_on_path() {
        assert_eq!(find_on_path("sh").unwrap().file_name().unwrap(), "sh");
        assert_eq!(find_on_path("/bin/sh"), Some("/bin/sh".into()));
        assert_eq!(find_on_path("/etc/passwd"), None, "cannot be executed");
        assert_eq!(find_on_path("surely-no-such-agent"), None);
    }
}
