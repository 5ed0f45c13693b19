//! Whether a step succeeded: first by its job report, then by the end of its process.

use super::step_environment::StepInput;
use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::report::{FrameworkError, JobReport};
use crate::step_process::{EndedProcess, StepControl};
use windlass_types::worker_messages::ProcessExit;
use windlass_types::{FailureClass, signal_name};

/// Why it failed, if it did. A process has eight bits of its code; the report has all of it.
pub(super) fn find_failure(
    ended: &EndedProcess,
    report: Option<&JobReport>,
    control: &StepControl,
    inputs: &[StepInput],
) -> Option<PayloadFailure> {
    if let Some(signal) = control.ended_by() {
        return Some(signal_failure(signal, "the job was told to end"));
    }
    let reported = report.and_then(|report| Some((report, report.last_error()?)));
    match (reported, ended.exit) {
        (Some((report, error)), _) => Some(report_failure(report, error, inputs)),
        (None, ProcessExit::Code(0)) => None,
        (None, ProcessExit::Code(code)) => {
            Some(PayloadFailure::new(code, format!("ended with exit code {code}")))
        }
        (None, ProcessExit::Signal(signal)) => Some(signal_failure(signal, "it was ended")),
    }
}

fn signal_failure(signal: i32, what: &str) -> PayloadFailure {
    let name = signal_name(signal).unwrap_or_else(|| format!("signal {signal}"));
    let failure = PayloadFailure::new(ProcessExit::Signal(signal).return_code(), format!("{what} by {name}"));
    PayloadFailure { signal: Some(signal), ..failure }
}

fn report_failure(report: &JobReport, error: &FrameworkError, inputs: &[StepInput]) -> PayloadFailure {
    let message = if error.text.is_empty() { &error.kind } else { &error.text };
    let failure = PayloadFailure::new(
        error.status,
        format!("exit status {}: {}", error.status, truncate_text(message)),
    );
    let class = exit_codes::classify_exit_code(error.status, message);
    let names: Vec<(String, String)> =
        inputs.iter().map(|input| (input.lfn.clone(), input.path.to_string_lossy().into_owned())).collect();
    let blamed = report.bad_inputs(names.iter().map(|(lfn, path)| (lfn.as_str(), path.as_str())));
    // Only with a data failure is a file named in passing a bad one.
    let bad_inputs = if class == Some(FailureClass::Data) { blamed } else { Vec::new() };
    PayloadFailure { class, bad_inputs, ..failure }
}

/// Space for the message in a log line.
const MAX_CHARS: usize = 600;

fn truncate_text(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}
