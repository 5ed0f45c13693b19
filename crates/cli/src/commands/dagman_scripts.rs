//! `windlass condor`: the scripts that DAGMan calls for the nodes of a run.
//!
//! The exit code is the result, so it is chosen here and does not depend on the type of an error.

use crate::args::dagman_scripts::{
    DagDirectoryArgs, DagmanScriptCli, DagmanScriptSubcommand, PostScriptArgs,
};
use crate::ui::text;
use clap::Parser as _;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use windlass_htcondor::script_settings::TOO_EARLY_EXIT_CODE;
use windlass_htcondor::scripts::{
    self, PreScriptResult, ScriptCall, ScriptDecision, ScriptError, ScriptExitCode,
};

/// Result of a script.
struct DagmanScriptResult {
    code: u8,
    /// For DAGMan's debug log, and for users who run the script by hand.
    message: String,
}

/// Runs a script if the arguments are exactly a valid script call, without reading the settings or building the
/// clap command tree, which would take longer than the script itself. All other calls, also invalid ones, take
/// the normal path.
pub(crate) fn run_script_early(words: &[OsString]) -> Option<ExitCode> {
    let [_, command, rest @ ..] = words else { return None };
    if command != "condor" {
        return None;
    }
    let parsed = DagmanScriptCli::try_parse_from(rest).ok()?;
    Some(ExitCode::from(run_script_command(&parsed.verb)))
}

/// Runs a script and returns the exit code of the process.
pub(crate) fn run_script_command(verb: &DagmanScriptSubcommand) -> u8 {
    // The exit code of a panic must not be mistaken for a decision of the script.
    let answer = std::panic::catch_unwind(|| run_script(verb)).unwrap_or_else(|_| DagmanScriptResult {
        code: ScriptExitCode::Retry.code(),
        message: "this is a bug in windlass; please report the output above".to_owned(),
    });
    // DAGMan may have closed stderr.
    writeln!(std::io::stderr(), "windlass condor: {}", text::escape_control(&answer.message)).ok();
    answer.code
}

fn run_script(verb: &DagmanScriptSubcommand) -> DagmanScriptResult {
    let answered = match verb {
        DagmanScriptSubcommand::Post(args) => scripts::run_post(&script_call(args)).map(decision_result),
        DagmanScriptSubcommand::Elect(args) => {
            scripts::run_landing_post(&script_call(args)).map(decision_result)
        }
        DagmanScriptSubcommand::Pre(args) => {
            scripts::run_pre(&dag_directory(&args.place), &args.node).map(ready_result)
        }
        DagmanScriptSubcommand::Unit(args) => {
            Ok(unit_result(&args.unit, scripts::unit(&dag_directory(&args.place), &args.unit, args.returned)))
        }
    };
    answered.unwrap_or_else(|error| error_result(&error))
}

fn dag_directory(args: &DagDirectoryArgs) -> PathBuf {
    args.dir.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| PathBuf::from("."))
}

fn script_call(args: &PostScriptArgs) -> ScriptCall {
    ScriptCall {
        directory: dag_directory(&args.place),
        node: args.node.clone(),
        returned: args.returned,
        retry: args.retry,
        max_retries: args.max_retries,
        job_id: args.job_id.clone(),
        node_group: args.kind.clone(),
    }
}

fn decision_result(decision: ScriptDecision) -> DagmanScriptResult {
    let report = decision.report;
    let what = &report.classification;
    let colon = if what.why.is_empty() { "" } else { ": " };
    let words = format!("{}: {}{colon}{}", report.node_name, what.category, what.why);
    DagmanScriptResult { code: decision.exit_code.code(), message: words }
}

fn ready_result(ready: PreScriptResult) -> DagmanScriptResult {
    match ready {
        PreScriptResult::Ready => DagmanScriptResult { code: 0, message: "ready".to_owned() },
        PreScriptResult::TooEarly => {
            DagmanScriptResult { code: TOO_EARLY_EXIT_CODE, message: "its cool-off has not ended".to_owned() }
        }
        PreScriptResult::Paused => {
            DagmanScriptResult { code: TOO_EARLY_EXIT_CODE, message: "its run is paused".to_owned() }
        }
    }
}

fn unit_result(unit: &str, exit_code: ScriptExitCode) -> DagmanScriptResult {
    let how = match exit_code {
        ScriptExitCode::Success => "completed",
        ScriptExitCode::Abort => "aborted, together with its run",
        ScriptExitCode::Retry | ScriptExitCode::Permanent => "failed",
    };
    DagmanScriptResult { code: exit_code.code(), message: format!("{unit}: {how}") }
}

fn error_result(error: &ScriptError) -> DagmanScriptResult {
    DagmanScriptResult { code: ScriptExitCode::Retry.code(), message: error.to_string() }
}
