//! Signal names as written in specs: `SIGTERM`, `term`, `15`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The signals of Linux by number, from 1, without the prefix `SIG`.
pub const SIGNAL_NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Parses the name or number of a Linux signal; `None` if it is unknown.
pub fn signal_number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<usize>() {
        return (1..=SIGNAL_NAMES.len()).contains(&number).then_some(number as i32);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    SIGNAL_NAMES.iter().position(|known| *known == name).map(|index| index as i32 + 1)
}

/// Returns the name of a signal, such as `SIGTERM` for 15; `None` if the number has no name.
pub fn signal_name(number: i32) -> Option<String> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    SIGNAL_NAMES.get(index).map(|name| format!("SIG{name}"))
}

/// A signal with a name. In JSON `"SIGKILL"`; also parsed without `SIG`, and from a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(i32);

impl Signal {
    pub fn new(number: i32) -> Option<Self> {
        signal_name(number).map(|_| Self(number))
    }

    pub const fn number(self) -> i32 {
        self.0
    }
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown signal `{0}`; write for example SIGKILL, SEGV or 11")]
pub struct ParseSignalError(pub String);

impl FromStr for Signal {
    type Err = ParseSignalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        signal_number(text).map(Self).ok_or_else(|| ParseSignalError(text.to_owned()))
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&signal_name(self.0).unwrap_or_default())
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum WrittenSignal {
            Number(i64),
            Text(String),
        }
        let text = match WrittenSignal::deserialize(deserializer)? {
            WrittenSignal::Number(number) => number.to_string(),
            WrittenSignal::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_parsed_by_name_and_number() {
        for text in ["SIGTERM", "TERM", "sigterm", "Term", "15"] {
            assert_eq!(signal_number(text), Some(15), "{text}");
        }
        assert_eq!((signal_number("SIGUSR1"), signal_number("SIGXCPU")), (Some(10), Some(24)));
        for text in ["", "SIG", "SIGTERN", "0", "32", "-9", "SIGSIGTERM"] {
            assert_eq!(signal_number(text), None, "{text}");
        }
    }

    #[test]
    fn every_signal_name_round_trips() {
        for number in 1..=31 {
            assert_eq!(signal_number(&signal_name(number).unwrap()), Some(number));
        }
        assert_eq!(
            serde_json::from_str::<Vec<Signal>>(r#"[9, "KILL", "SIGKILL", "9"]"#).unwrap(),
            [Signal(9); 4]
        );
        assert_eq!(serde_json::to_string(&Signal::new(11)).unwrap(), r#""SIGSEGV""#);
        assert!(serde_json::from_str::<Signal>("64").is_err());
        assert_eq!((signal_name(0), signal_name(32), signal_name(-1)), (None, None, None));
    }
}
