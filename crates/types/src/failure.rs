//! Classes of failures.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A label on a failure. It causes no retry by itself; rules of failure handlers may refer to it.
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

    /// A description for users who choose a class.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Transient => "may go away by itself: network, busy service, lock",
            Self::Permanent => "fails every time: error in the program, its options or its environment",
            Self::Data => "input is missing, damaged or invalid",
            Self::Infrastructure => "machine or its services: disks, nodes, batch system",
            Self::Memory => "out of memory; a larger memory limit may help",
            Self::Timeout => "out of time; a longer time limit may help",
            Self::Unknown => "no known cause",
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
    fn names_and_json_agree_and_round_trip() {
        for class in FailureClass::ALL {
            assert_eq!(class.as_str().parse(), Ok(class));
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
            assert_eq!(format!("{class:<15}|"), format!("{:<15}|", class.as_str()));
        }
    }

    #[test]
    fn unknown_class_error_lists_all_classes() {
        let said = "transiet".parse::<FailureClass>().unwrap_err().to_string();
        assert!(said.contains("`transiet`"), "{said}");
        assert!(FailureClass::ALL.iter().all(|class| said.contains(class.as_str())), "{said}");
    }
}
