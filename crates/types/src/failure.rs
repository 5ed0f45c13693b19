//! What sort of failure it was.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A label on a failure. It retries nothing by itself; rules of failure handlers may name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    Transient,
    Permanent,
    Data,
    Infrastructure,
    Memory,
    Timeout,
    Unknown,
}

impl FailureClass {
    pub const ALL: [Self; 7] = [
        Self::Transient,
        Self::Permanent,
        Self::Data,
        Self::Infrastructure,
        Self::Memory,
        Self::Timeout,
        Self::Unknown,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Data => "data",
            Self::Infrastructure => "infrastructure",
            Self::Memory => "memory",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }

    /// For people who choose one.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Transient => "may go away by itself: a network, a busy service, a lock",
            Self::Permanent => {
                "happens again each time: a mistake in the program, its options or its environment"
            }
            Self::Data => "its input is missing, damaged or not what the program takes",
            Self::Infrastructure => "the machine or what it depends on: disks, nodes, the batch system",
            Self::Memory => "more memory than it had; more may help",
            Self::Timeout => "more time than it had; more may help",
            Self::Unknown => "nothing that is known",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown failure class `{0}`; known: transient, permanent, data, infrastructure, memory, timeout, unknown"
)]
pub struct ParseFailureClassError(pub String);

impl std::str::FromStr for FailureClass {
    type Err = ParseFailureClassError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|class| class.as_str() == text)
            .ok_or_else(|| ParseFailureClassError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_are_the_same_word_and_lead_back() {
        for class in FailureClass::ALL {
            assert_eq!(class.as_str().parse(), Ok(class));
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
            assert_eq!(format!("{class:<15}|"), format!("{:<15}|", class.as_str()));
        }
    }

    #[test]
    fn whoever_misspells_one_is_told_all() {
        let said = "transiet".parse::<FailureClass>().unwrap_err().to_string();
        assert!(said.contains("`transiet`"), "{said}");
        assert!(FailureClass::ALL.iter().all(|class| said.contains(class.as_str())), "{said}");
    }
}
