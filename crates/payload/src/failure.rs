//! Why a job of a work unit failed, in the forms for its log, its report and its exit code.

use crate::exit_codes;
use std::fmt;
use std::io;
use std::path::Path;
use windlass_types::FailureClass;
use windlass_types::payload::ProcessingFailure;

/// A failure of a payload job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadFailure {
    /// The code of the job report if there is one, else of the process; 128 + n for a signal.
    pub code: i32,
    pub signal: Option<i32>,
    pub step: Option<String>,
    pub message: String,
    /// Known for codes of CMS and for errors of the payload itself. Otherwise the output of the step decides.
    pub class: Option<FailureClass>,
    pub bad_inputs: Vec<String>,
}

impl PayloadFailure {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        let message = message.into();
        let class = exit_codes::classify_exit_code(code, &message);
        Self { code, signal: None, step: None, message, class, bad_inputs: Vec::new() }
    }

    /// An operation on that file failed in the file system.
    pub fn from_io(code: i32, doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(code, format!("cannot {doing} {}: {error}", path.display()))
    }

    #[must_use]
    pub fn with_class(self, class: FailureClass) -> Self {
        Self { class: Some(class), ..self }
    }

    #[must_use]
    pub fn with_bad_inputs(self, bad_inputs: Vec<String>) -> Self {
        Self { bad_inputs, ..self }
    }

    /// The exit status of the process.
    pub fn process_code(&self) -> u8 {
        exit_codes::process_code(self.code, self.class)
    }

    pub fn to_report(&self) -> ProcessingFailure {
        ProcessingFailure {
            step: self.step.clone(),
            exit_code: self.code,
            signal: self.signal,
            message: self.message.clone(),
        }
    }
}

/// The beginning of the last line of a failed job.
const LOG_LINE_PREFIX: &str = "windlass payload: ";

/// The last line on stderr. The default rules of classification look for its class.
impl fmt::Display for PayloadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LOG_LINE_PREFIX)?;
        if let Some(class) = self.class {
            write!(f, "{class} failure {}: ", self.code)?;
        }
        if let Some(step) = &self.step {
            write!(f, "step {step}: ")?;
        }
        // A single line, so that tools that read logs by line keep the class.
        f.write_str(&self.message.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl std::error::Error for PayloadFailure {}

/// The failure that the last line of a payload job describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedFailure {
    pub class: FailureClass,
    pub code: i32,
    pub message: String,
}

impl LoggedFailure {
    /// Searches the end of a log for the line, the inverse of [`Failure`]'s text.
    pub fn from_log_tail(log: &str) -> Option<Self> {
        let line = log.trim_end().lines().last()?.strip_prefix(LOG_LINE_PREFIX)?;
        let (head, message) = line.split_once(": ")?;
        let (class, code) = head.split_once(" failure ")?;
        let class = FailureClass::ALL.into_iter().find(|known| known.as_str() == class)?;
        Some(Self { class, code: code.parse().ok()?, message: message.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::classify::{FailureClassifier, FailureEvidence};

    fn class_of_line(line: &str) -> FailureClass {
        let tail = format!("step 17 of 200\ncurl: (7) Connection refused\n{line}\n");
        FailureClassifier::standard().classify(&FailureEvidence::from_exit(1, &tail)).class
    }

    #[test]
    fn failure_class_is_read_from_last_line() {
        for class in FailureClass::ALL.into_iter().filter(|class| *class != FailureClass::Unknown) {
            let text = "cannot read /store/a\nConnection refused, No space left on device";
            let failure = PayloadFailure {
                step: Some("RECO".to_owned()),
                ..PayloadFailure::new(8021, text).with_class(class)
            };
            let line = failure.to_string();
            assert_eq!(line.lines().count(), 1);
            assert_eq!(class_of_line(&line), class, "{line}");
            let logged = LoggedFailure::from_log_tail(&format!("step 17 of 200\n{line}\n\n")).unwrap();
            assert_eq!((logged.class, logged.code), (class, 8021));
            assert!(logged.message.starts_with("step RECO: cannot read /store/a"), "{}", logged.message);
        }
    }

    #[test]
    fn unknown_failure_class_follows_step_output() {
        let failure = PayloadFailure {
            step: Some("RECO".to_owned()),
            ..PayloadFailure::new(7, "ended with exit code 7")
        };
        assert_eq!(failure.to_string(), "windlass payload: step RECO: ended with exit code 7");
        assert_eq!(class_of_line(&failure.to_string()), FailureClass::Transient);
        for other in [&failure.to_string(), "", "windlass payload: odd failure 1: x", "data failure 8021: x"]
        {
            assert_eq!(LoggedFailure::from_log_tail(other), None, "{other}");
        }
    }
}
