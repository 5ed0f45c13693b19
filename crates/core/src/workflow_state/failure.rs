//! Failures as stored beside the result of an attempt: diagnosis, retry decision, and reason.

use super::RetryDecision;
use crate::classify::{FailureClassifier, FailureEvidence, TerminationCause};
use crate::failure_signature::FailureSignature;
use windlass_types::FailureClass;
use windlass_types::worker_messages::return_code;

/// A failed attempt, stored together with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    pub diagnosis: FailureDiagnosis,
    pub next: FailureDisposition,
    /// Reason for what happens next; `None` if no handler was involved.
    pub reason: Option<String>,
    /// The end of its log.
    pub log_tail: Option<String>,
}

/// The diagnosis of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureDiagnosis {
    pub class: FailureClass,
    /// Its signature, including the message common to all failures of the group.
    pub signature: FailureSignature,
    /// The classification rule that matched; `None` if none did.
    pub rule: Option<String>,
    /// The most relevant line of its log, verbatim.
    pub log_line: Option<String>,
}

/// What happens to the job after the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureDisposition {
    /// It is retried because of its handler.
    Retry,
    /// It runs again without using up a retry: the job was not the cause.
    Excused,
    /// Waits for a decision.
    PendingFailed,
    /// Nothing: the job has failed, or was terminated.
    Final,
}

impl FailureDisposition {
    pub const ALL: [Self; 4] = [Self::Retry, Self::Excused, Self::PendingFailed, Self::Final];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Excused => "excused",
            Self::PendingFailed => "pending_failed",
            Self::Final => "final",
        }
    }
}

impl From<&RetryDecision> for FailureDisposition {
    fn from(decision: &RetryDecision) -> Self {
        match decision {
            RetryDecision::Final(_) => Self::Final,
            RetryDecision::AskOperator(_) => Self::PendingFailed,
            RetryDecision::Retry(_) => Self::Retry,
        }
    }
}

impl FailureDiagnosis {
    pub fn from_evidence(classifier: &FailureClassifier, evidence: &FailureEvidence<'_>) -> Self {
        let found = classifier.classify(evidence);
        let signature = FailureSignature::from_classification(evidence, &found);
        Self { class: found.class, signature, rule: found.rule, log_line: found.line }
    }

    /// For an attempt whose worker died: no details are known.
    pub fn for_orphan() -> Self {
        let evidence = FailureEvidence {
            cause: TerminationCause::Orphaned,
            ..FailureEvidence::from_exit(return_code::ORPHANED, "")
        };
        Self::from_evidence(FailureClassifier::standard(), &evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphan_has_the_class_infrastructure() {
        let orphan = FailureDiagnosis::for_orphan();
        assert_eq!((orphan.class, &*orphan.signature.message), (FailureClass::Infrastructure, "orphaned"));
        assert_eq!(orphan.rule.as_deref(), Some("worker-died"));
    }

    #[test]
    fn diagnosis_keeps_the_original_log_line() {
        let evidence =
            FailureEvidence::from_exit(1, "IOError: [Errno 111] Connection refused by 10.0.0.7:5432\n");
        let found = FailureDiagnosis::from_evidence(FailureClassifier::standard(), &evidence);
        assert_eq!(found.class, FailureClass::Transient);
        assert!(found.log_line.unwrap().contains("10.0.0.7:5432"));
        assert!(!found.signature.message.contains("5432"), "{}", found.signature.message);
    }
}
