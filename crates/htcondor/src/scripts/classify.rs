//! Classification of failed attempts.
//!
//! The first source that knows something decides: DAGMan if no job ended, HTCondor if it held or removed the job,
//! the last line of Windlass's payload, the code of the report, and finally the rules for any process. Those are
//! last also because they take the longest to compile, and a script runs for every attempt.

use super::attempt::{DagmanReturn, NodeAttempt};
use crate::parsers::events::JobHold;
use std::time::Duration;
use windlass_core::classify::{FailureClassifier, FailureEvidence, TerminationCause, cms_exit_codes};
use windlass_payload::LoggedFailure;
use windlass_types::payload::check_lfn;
use windlass_types::settings::FailureCause;
use windlass_types::worker_messages::{ProcessExit, return_code};
use windlass_types::{Bytes, FailureClass, Resources};

/// The classification of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassifiedFailure {
    pub(super) class: FailureClass,
    /// The CMS code if a report has one; otherwise as a shell would return it.
    pub(super) code: i32,
    pub(super) cause: Option<FailureCause>,
    /// One sentence, without its full stop.
    pub(super) why: String,
}

impl ClassifiedFailure {
    fn new(class: FailureClass, code: i32, why: impl Into<String>) -> Self {
        Self { class, code, cause: None, why: why.into() }
    }

    fn with_cause(self, cause: FailureCause) -> Self {
        Self { cause: Some(cause), ..self }
    }
}

/// Failures of the schedd and its machine are transient and not those of a site: the infrastructure class counts
/// against the site where it happened, and can have it banned.
const SCHEDD_FAILURE_CLASS: FailureClass = FailureClass::Transient;

/// Classifies a failed attempt, which was limited to the resources it requested; `None` if it did not fail.
pub(super) fn classify_failure(attempt: &NodeAttempt, asked: Option<Resources>) -> Option<ClassifiedFailure> {
    let exit = match attempt.returned {
        DagmanReturn::NotSubmitted => {
            let why = "the schedd did not accept the job; see the end of dagman.out";
            return Some(ClassifiedFailure::new(SCHEDD_FAILURE_CLASS, DagmanReturn::NOT_SUBMITTED, why));
        }
        DagmanReturn::Lost(number) => {
            let why = format!("DAGMan lost track of the job ({number})");
            return Some(ClassifiedFailure::new(SCHEDD_FAILURE_CLASS, number, why));
        }
        DagmanReturn::Removed => return Some(classify_removal(attempt)),
        DagmanReturn::Exit(exit) => exit,
    };
    let reported = attempt.report.as_ref().map_or(0, |report| report.cmssw.exit_code);
    match (exit, reported, &attempt.missing_report) {
        (ProcessExit::Code(0), 0, None) => None,
        (ProcessExit::Code(0), 0, Some(missing)) => {
            let why = format!("the job exited with 0 but left no {missing}");
            let classified =
                ClassifiedFailure::new(FailureClass::Transient, return_code::MISSING_OUTPUT, why);
            Some(classified.with_cause(FailureCause::MissingOutput))
        }
        _ => Some(classify_exit(attempt, exit, asked)),
    }
}

/// DAGMan removes held jobs, so the hold is the reason.
fn classify_removal(attempt: &NodeAttempt) -> ClassifiedFailure {
    match (&attempt.job_log.hold, &attempt.job_log.removal) {
        (Some(hold), _) => classify_hold(hold),
        (None, Some(reason)) if mentions_time(reason) => {
            let why = format!("the job was removed: {reason}");
            ClassifiedFailure::new(FailureClass::Timeout, return_code::TIMEOUT, why)
                .with_cause(FailureCause::Timeout)
        }
        (None, reason) => {
            let reason = reason.as_deref().unwrap_or("the log does not say why");
            ClassifiedFailure::new(
                FailureClass::Transient,
                DagmanReturn::REMOVED,
                format!("the job was removed: {reason}"),
            )
        }
    }
}

/// Codes of holds, as documented by HTCondor.
mod hold_code {
    pub(super) const STARTD_POLICY: i32 = 21;
    /// The subcode of `HOLD_IF_MEMORY_EXCEEDED`.
    pub(super) const OVER_MEMORY: i32 = 102;
    pub(super) const OUT_OF_RESOURCES: i32 = 34;
    pub(super) const JOB_DURATION: i32 = 46;
    pub(super) const EXECUTE_DURATION: i32 = 47;

    /// Causes on the side of the schedd: held by a user (1), by a policy of the job (3, 5) or of the schedd (26,
    /// 27); an invalid credential (4), directory (14), log (22), account (23) or shadow (17, 24, 48); submitted
    /// on hold or with files still being spooled (15, 16); or transferred files over the limit (32, 33).
    pub(super) const SCHEDD_SIDE: [i32; 16] = [1, 3, 4, 5, 14, 15, 16, 17, 22, 23, 24, 26, 27, 32, 33, 48];
    /// Failed file transfers. The reason says which side failed.
    pub(super) const TRANSFER: [i32; 2] = [12, 13];
}

/// Whether the cause of the hold is independent of the site.
fn is_schedd_side(hold: &JobHold) -> bool {
    hold_code::SCHEDD_SIDE.contains(&hold.code)
        || hold_code::TRANSFER.contains(&hold.code) && hold.reason.contains("failure at access point")
}

fn classify_hold(hold: &JobHold) -> ClassifiedFailure {
    let why = format!("the job was held ({}/{}): {}", hold.code, hold.subcode, hold.reason);
    match (hold.code, hold.subcode) {
        (hold_code::STARTD_POLICY, hold_code::OVER_MEMORY) | (hold_code::OUT_OF_RESOURCES, _) => {
            out_of_memory(why)
        }
        (hold_code::JOB_DURATION | hold_code::EXECUTE_DURATION, _) => timed_out(why),
        _ if mentions_memory(&hold.reason) => out_of_memory(why),
        _ if mentions_time(&hold.reason) => timed_out(why),
        _ if is_schedd_side(hold) => ClassifiedFailure::new(SCHEDD_FAILURE_CLASS, DagmanReturn::REMOVED, why),
        _ => ClassifiedFailure::new(FailureClass::Infrastructure, DagmanReturn::REMOVED, why),
    }
}

fn out_of_memory(why: String) -> ClassifiedFailure {
    ClassifiedFailure::new(FailureClass::Memory, return_code::OUT_OF_MEMORY, why)
        .with_cause(FailureCause::OutOfMemory)
}

fn timed_out(why: String) -> ClassifiedFailure {
    ClassifiedFailure::new(FailureClass::Timeout, return_code::TIMEOUT, why).with_cause(FailureCause::Timeout)
}

/// Pools have policies of their own, with their own wording.
fn mentions_memory(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    reason.contains("memory")
        && ["exceed", "over", "limit", "out of"].iter().any(|word| reason.contains(word))
}

fn mentions_time(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["walltime", "wall time", "wall clock", "time limit", "runtime", "duration"]
        .iter()
        .any(|word| reason.contains(word))
}

/// The process ended by itself.
fn classify_exit(attempt: &NodeAttempt, exit: ProcessExit, asked: Option<Resources>) -> ClassifiedFailure {
    if let Some(LoggedFailure { class, code, message }) = LoggedFailure::from_log_tail(&attempt.stderr_tail) {
        return ClassifiedFailure::new(class, code, message);
    }
    let report = attempt.report.as_ref().map(|report| &report.cmssw).filter(|report| report.exit_code != 0);
    let text = report.and_then(|report| report.error_message.as_deref()).unwrap_or_default();
    if let Some(code) = report.map(|report| report.exit_code)
        && let Some(class) = cms_exit_codes::classify_exit_code(code, text)
    {
        return ClassifiedFailure::new(class, code, format!("exit code {code}: {text}"));
    }
    let code = report.map_or(exit.return_code(), |report| report.exit_code);
    let found = FailureClassifier::standard().classify(&FailureEvidence {
        return_code: code,
        signal: exit.signal(),
        cause: TerminationCause::Itself,
        tail: if attempt.stderr_tail.is_empty() { text } else { &attempt.stderr_tail },
        wall: Duration::from_secs(attempt.job_log.wall_sec.unwrap_or(0)),
        peak_memory: attempt.job_log.memory_mb.map(|mb| Bytes(mb.saturating_mul(1 << 20))),
        asked,
        node: None,
    });
    ClassifiedFailure::new(found.class, code, found.why)
}

/// LFNs of inputs that could not be read: those of the report, otherwise those in the reason.
pub(super) fn find_bad_inputs(attempt: &NodeAttempt, classified: &ClassifiedFailure) -> Vec<String> {
    let reported = attempt.report.as_ref().map_or(&[][..], |report| &report.bad_inputs);
    match classified.class {
        FailureClass::Data if reported.is_empty() => {}
        // A landing names the inputs it did not find, and leaves them to other sites.
        FailureClass::Data | FailureClass::Infrastructure => return reported.to_vec(),
        _ => return Vec::new(),
    }
    let mut named: Vec<String> = Vec::new();
    for word in classified.why.split(|c: char| c.is_whitespace() || ",;()[]\"'`".contains(c)) {
        let word = word.trim_end_matches(['.', ':']);
        if word.starts_with("/store/") && check_lfn(word).is_ok() && !named.iter().any(|name| name == word) {
            named.push(word.to_owned());
        }
    }
    named
}
