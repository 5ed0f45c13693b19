//! `windlass condor`: what DAGMan calls for the nodes of a run.
//!
//! The exit code is the answer, so it is decided here and not by what sort of error there was.

use crate::args::condor::{CondorCallArgs, CondorVerb, PlaceArgs, ShortCut};
use clap::Parser as _;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use windlass_condor::scripts::{self, Call, Decision, Ready, ScriptError, Verdict};
use windlass_condor::terms::TOO_EARLY;

/// What a script says.
struct Answer {
    code: u8,
    /// For the debug log of DAGMan, and for people who try it.
    words: String,
}

/// Runs a script if the words are nothing but one: neither the settings are read then nor the tree of all commands is
/// built, which takes longer than the script itself. Anything else, also a mistake in the words, is for the long way.
pub(crate) fn short_cut(words: &[OsString]) -> Option<ExitCode> {
    let [_, command, rest @ ..] = words else { return None };
    if command != "condor" {
        return None;
    }
    let parsed = ShortCut::try_parse_from(rest).ok()?;
    Some(ExitCode::from(run(&parsed.verb)))
}

/// Runs a script; what the process ends with.
pub(crate) fn run(verb: &CondorVerb) -> u8 {
    // A script whose answer is an accident must not pass for one that decided something.
    let answer = std::panic::catch_unwind(|| answer(verb)).unwrap_or_else(|_| Answer {
        code: Verdict::Retry.code(),
        words: "this is a bug in windlass; please report what is printed above".to_owned(),
    });
    // DAGMan may have closed it.
    writeln!(std::io::stderr(), "windlass condor: {}", answer.words).ok();
    answer.code
}

fn answer(verb: &CondorVerb) -> Answer {
    let answered = match verb {
        CondorVerb::Post(args) => scripts::post(&call(args)).map(decided),
        CondorVerb::Elect(args) => scripts::elect(&call(args)).map(decided),
        CondorVerb::Pre(args) => scripts::pre(&directory(&args.place), &args.node).map(ready),
        CondorVerb::Unit(args) => {
            Ok(over(&args.unit, scripts::unit(&directory(&args.place), &args.unit, args.returned)))
        }
    };
    answered.unwrap_or_else(|error| failed(&error))
}

fn directory(args: &PlaceArgs) -> PathBuf {
    args.dir.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| PathBuf::from("."))
}

fn call(args: &CondorCallArgs) -> Call {
    Call {
        directory: directory(&args.place),
        node: args.node.clone(),
        returned: args.returned,
        retry: args.retry,
        max_retries: args.max_retries,
        job_id: args.job_id.clone(),
        kind: args.kind.clone(),
    }
}

fn decided(decision: Decision) -> Answer {
    let report = decision.report;
    let what = &report.classification;
    let colon = if what.why.is_empty() { "" } else { ": " };
    let words = format!("{}: {}{colon}{}", report.node_name, what.category, what.why);
    Answer { code: decision.verdict.code(), words }
}

fn ready(ready: Ready) -> Answer {
    match ready {
        Ready::Go => Answer { code: 0, words: "ready".to_owned() },
        Ready::TooEarly => Answer { code: TOO_EARLY, words: "its cool-off is not over".to_owned() },
        Ready::Paused => Answer { code: TOO_EARLY, words: "its run is paused".to_owned() },
    }
}

fn over(unit: &str, verdict: Verdict) -> Answer {
    let how = match verdict {
        Verdict::Success => "completed",
        Verdict::Abort => "aborted, and the run with it",
        Verdict::Retry | Verdict::Permanent => "failed",
    };
    Answer { code: verdict.code(), words: format!("{unit}: {how}") }
}

fn failed(error: &ScriptError) -> Answer {
    Answer { code: Verdict::Retry.code(), words: error.to_string() }
}
