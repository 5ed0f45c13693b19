//! What the books keep of a failure beside the result of its attempt: what it was, and what happened next, and why.

use super::RetryDecision;
use crate::classify::{FailureClassifier, FailureEvidence, TerminationCause};
use crate::failure_signature::FailureSignature;
use windlass_types::FailureClass;
use windlass_types::worker_messages::return_code;

/// A failed attempt, told whole with its end. Those that succeed have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    pub diagnosis: FailureDiagnosis,
    pub next: FailureDisposition,
    /// Why that is next; `None` where there is nothing to say, because nobody made a rule.
    pub reason: Option<String>,
    /// The end of what it said.
    pub log_tail: Option<String>,
}

/// What a failure was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureDiagnosis {
    pub class: FailureClass,
    /// What it has in common with others, and the message that all of them share.
    pub signature: FailureSignature,
    /// The rule of classification that spoke; `None` where none did.
    pub rule: Option<String>,
    /// The most telling line of what it said, as it was said.
    pub log_line: Option<String>,
}

/// What happens to the job after the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureDisposition {
    /// It is tried again because its handler says so.
    Retry,
    /// It runs again and that counts for nothing: it was not the job's failure.
    Excused,
    /// Somebody is to say.
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
    fn from(sequel: &RetryDecision) -> Self {
        match sequel {
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

    /// Of an attempt whose worker died. Nobody saw more of it.
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
    fn an_orphan_is_the_infrastructures() {
        let orphan = FailureDiagnosis::for_orphan();
        assert_eq!((orphan.class, &*orphan.signature.message), (FailureClass::Infrastructure, "orphaned"));
        assert_eq!(orphan.rule.as_deref(), Some("worker-died"));
    }

    #[test]
    fn what_it_said_is_kept_beside_what_all_of_them_said() {
        let evidence =
            FailureEvidence::from_exit(1, "IOError: [Errno 111] Connection refused by 10.0.0.7:5432\n");
        let found = FailureDiagnosis::from_evidence(FailureClassifier::standard(), &evidence);
        assert_eq!(found.class, FailureClass::Transient);
        assert!(found.log_line.unwrap().contains("10.0.0.7:5432"));
        assert!(!found.signature.message.contains("5432"), "{}", found.signature.message);
    }
}
