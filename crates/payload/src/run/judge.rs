//! Whether a step went well: what its job report says, then how its process ended.

use super::environment::StepInput;
use crate::codes;
use crate::failure::Failure;
use crate::report::{FrameworkError, JobReport};
use crate::step::{Control, Ended};
use windlass_types::work::Exit;
use windlass_types::{FailureClass, signal_name};

/// Why it failed, if it did. A process knows eight bits of its code; the report knows all of it.
pub(super) fn verdict(
    ended: &Ended,
    report: Option<&JobReport>,
    control: &Control,
    inputs: &[StepInput],
) -> Option<Failure> {
    if let Some(signal) = control.ended_by() {
        return Some(by_signal(signal, "the job was told to end"));
    }
    let told = report.and_then(|report| Some((report, report.error()?)));
    match (told, ended.exit) {
        (Some((report, error)), _) => Some(by_report(report, error, inputs)),
        (None, Exit::Code(0)) => None,
        (None, Exit::Code(code)) => Some(Failure::new(code, format!("ended with exit code {code}"))),
        (None, Exit::Signal(signal)) => Some(by_signal(signal, "it was ended")),
    }
}

fn by_signal(signal: i32, what: &str) -> Failure {
    let name = signal_name(signal).unwrap_or_else(|| format!("signal {signal}"));
    let failure = Failure::new(Exit::Signal(signal).return_code(), format!("{what} by {name}"));
    Failure { signal: Some(signal), ..failure }
}

fn by_report(report: &JobReport, error: &FrameworkError, inputs: &[StepInput]) -> Failure {
    let said = if error.text.is_empty() { &error.kind } else { &error.text };
    let failure = Failure::new(error.status, format!("exit status {}: {}", error.status, cut(said)));
    let class = codes::class_of(error.status, said);
    let names: Vec<(String, String)> =
        inputs.iter().map(|input| (input.lfn.clone(), input.path.to_string_lossy().into_owned())).collect();
    let blamed = report.bad_inputs(names.iter().map(|(lfn, path)| (lfn.as_str(), path.as_str())));
    // Only where data is at fault is a file that is named in passing a bad one.
    let bad_inputs = if class == Some(FailureClass::Data) { blamed } else { Vec::new() };
    Failure { class, bad_inputs, ..failure }
}

/// A line of a log has room for this much.
const MAX_CHARS: usize = 600;

fn cut(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}
