//! What the books keep of a failure beside the result of its attempt: what it was, and what happened next, and why.

use super::Sequel;
use crate::classify::{Cause, Classifier, Evidence};
use crate::signature::Signature;
use windlass_types::FailureClass;
use windlass_types::work::return_code;

/// A failed attempt, told whole with its end. Those that succeed have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub diagnosis: Diagnosis,
    pub next: Next,
    /// Why that is next; `None` where there is nothing to say, because nobody made a rule.
    pub why: Option<String>,
    /// The end of what it said.
    pub last_words: Option<String>,
}

/// What a failure was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    pub class: FailureClass,
    /// What it has in common with others, and the message that all of them share.
    pub signature: Signature,
    /// The rule of classification that spoke; `None` where none did.
    pub rule: Option<String>,
    /// The most telling line of what it said, as it was said.
    pub line: Option<String>,
}

/// What happens to the job after the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// It is tried again because its handler says so.
    Retry,
    /// It runs again and that counts for nothing: it was not the job's failure.
    Excused,
    /// Somebody is to say.
    PendingFailed,
    /// Nothing: the job has failed, or was terminated.
    Final,
}

impl Next {
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

impl From<&Sequel> for Next {
    fn from(sequel: &Sequel) -> Self {
        match sequel {
            Sequel::Final(_) => Self::Final,
            Sequel::Ask(_) => Self::PendingFailed,
            Sequel::Again(_) => Self::Retry,
        }
    }
}

impl Diagnosis {
    pub fn of(classifier: &Classifier, evidence: &Evidence<'_>) -> Self {
        let found = classifier.classify(evidence);
        let signature = Signature::of(evidence, &found);
        Self { class: found.class, signature, rule: found.rule, line: found.line }
    }

    /// Of an attempt whose worker died. Nobody saw more of it.
    pub fn of_orphan() -> Self {
        let evidence = Evidence { cause: Cause::Orphaned, ..Evidence::of_exit(return_code::ORPHANED, "") };
        Self::of(Classifier::standard(), &evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_is_the_infrastructures() {
        let orphan = Diagnosis::of_orphan();
        assert_eq!((orphan.class, &*orphan.signature.message), (FailureClass::Infrastructure, "orphaned"));
        assert_eq!(orphan.rule.as_deref(), Some("worker-died"));
    }

    #[test]
    fn what_it_said_is_kept_beside_what_all_of_them_said() {
        let evidence = Evidence::of_exit(1, "IOError: [Errno 111] Connection refused by 10.0.0.7:5432\n");
        let found = Diagnosis::of(Classifier::standard(), &evidence);
        assert_eq!(found.class, FailureClass::Transient);
        assert!(found.line.unwrap().contains("10.0.0.7:5432"));
        assert!(!found.signature.message.contains("5432"), "{}", found.signature.message);
    }
}
