//! What goes wrong in a command, as the user sees it: a message, a hint, and an exit code.
//!
//! Library errors become [`CliError`]s here and nowhere else, one `From` per library error.

use serde::Serialize;
use std::fmt;

/// The exit codes of `windlass`. Documented in `docs/exit-codes.md` and in `windlass --help`; scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Success = 0,
    JobsFailed = 1,
    Usage = 2,
    Interrupted = 3,
    Refused = 4,
    Environment = 5,
    Internal = 70,
}

impl Exit {
    pub(crate) const ALL: [Self; 7] = [
        Self::Success,
        Self::JobsFailed,
        Self::Usage,
        Self::Interrupted,
        Self::Refused,
        Self::Environment,
        Self::Internal,
    ];

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "everything asked for was done; all jobs completed",
            Self::JobsFailed => "the workflow ran, but some jobs did not complete",
            Self::Usage => "wrong usage, or an error in the spec file",
            Self::Interrupted => "interrupted before the end; `windlass resume` goes on",
            Self::Refused => "refused: in use by another process, or the database is from a newer version",
            Self::Environment => "trouble with the surroundings: damaged database, full disk, permissions",
            Self::Internal => "a bug in windlass",
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What sort of trouble it is; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The command line asks for something that is not there or makes no sense.
    User,
    /// The spec file has errors.
    Spec,
    /// Somebody else is at it, or it would destroy something.
    Refused,
    /// Ctrl-C or SIGTERM ended the command early.
    Interrupted,
    /// Files, disk, permissions, a damaged database.
    Io,
    /// A bug.
    Internal,
    /// Whoever read our output went away (`windlass jobs | head`): nothing to complain about.
    OutputClosed,
}

impl Kind {
    pub(crate) const fn exit(self) -> Exit {
        match self {
            Self::User | Self::Spec => Exit::Usage,
            Self::Refused => Exit::Refused,
            Self::Interrupted => Exit::Interrupted,
            Self::Io => Exit::Environment,
            Self::Internal => Exit::Internal,
            Self::OutputClosed => Exit::Success,
        }
    }
}

/// An error for the user: what happened, and what to do about it.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CliError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    pub(crate) fn user(message: impl Into<String>) -> Self {
        Self::new(Kind::User, message)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }

    pub(crate) fn io(message: impl Into<String>) -> Self {
        Self::new(Kind::Io, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_code() {
        for (kind, code) in [
            (Kind::User, 2),
            (Kind::Spec, 2),
            (Kind::Interrupted, 3),
            (Kind::Refused, 4),
            (Kind::Io, 5),
            (Kind::Internal, 70),
            (Kind::OutputClosed, 0),
        ] {
            assert_eq!(kind.exit().code(), code, "{kind:?}");
        }
    }
}
