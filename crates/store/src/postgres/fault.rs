//! What PostgreSQL says when something goes wrong, in our words.

use crate::Error;
use crate::error::Fault;
use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use tokio_postgres::error::{DbError, SqlState};

/// What went wrong, as far as it matters what to do about it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    text: String,
    /// The name of which there may be only one.
    taken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nobody is there, or nobody any more.
    Unreachable,
    /// Somebody is there and does not let us in.
    Unwelcome,
    /// Somebody is there and does not prove who it is.
    Untrusted,
    /// It will pass: no space, no memory, too slow, in each other's way.
    Passing,
    Taken,
    /// A value that it does not take.
    Refused,
    Internal,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub(super) fn unreachable(text: impl Into<String>) -> Self {
        Self { kind: Kind::Unreachable, text: text.into(), taken: None }
    }

    /// The connection was lost while something was being committed that may be tried again.
    pub(crate) fn lost_in_doubt() -> Self {
        Self::unreachable("the connection was lost during a commit")
    }

    /// The connection is gone; what was under way on it is undone, unless it was being committed.
    pub(crate) fn is_lost(&self) -> bool {
        self.kind == Kind::Unreachable
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.kind == Kind::Taken
    }

    pub(crate) fn taken_name(&self) -> Option<String> {
        self.taken.clone()
    }

    /// What is refused at the door will be refused again, except that somebody is still starting up or shutting down.
    pub(super) fn while_connecting(self) -> Self {
        let kind = match self.kind {
            Kind::Internal | Kind::Refused => Kind::Unwelcome,
            other => other,
        };
        Self { kind, ..self }
    }

    pub(crate) fn explain(self, url: &str) -> Error {
        let url = url.to_owned();
        match self.kind {
            Kind::Unreachable => Error::Unreachable { url, source: Arc::new(self) },
            Kind::Unwelcome => Error::Unwelcome { url, source: Arc::new(self) },
            Kind::Untrusted => Error::Untrusted { url, source: Arc::new(self) },
            Kind::Passing => Error::Strained { url, source: Arc::new(self) },
            Kind::Taken | Kind::Refused => Error::Refused { source: Arc::new(self) },
            Kind::Internal => Error::Internal { source: Arc::new(self) },
        }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        fault_of(&error)
    }
}

pub(super) fn fault_of(error: &tokio_postgres::Error) -> Fault {
    let failure = match error.as_db_error() {
        Some(said) => {
            let kind = kind_of(said.code());
            let taken = (kind == Kind::Taken).then(|| taken_name(said)).flatten();
            let text = format!("{} ({})", said.message(), said.code().code());
            Failure { kind, text, taken }
        }
        None if error.source().is_some_and(<dyn std::error::Error>::is::<WrongType>) => {
            Failure { kind: Kind::Internal, text: whole(error), taken: None }
        }
        None if is_bad_certificate(error) => {
            Failure { kind: Kind::Untrusted, text: whole(error), taken: None }
        }
        None => Failure::unreachable(whole(error)),
    };
    Fault::Postgres(failure)
}

/// The handshake failed because of what the other side shows, and will fail again.
fn is_bad_certificate(error: &tokio_postgres::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let tls = source.and_then(std::io::Error::get_ref).and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

/// The error and what lies behind it.
fn whole(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn kind_of(state: &SqlState) -> Kind {
    let code = state.code();
    match (code.get(..2).unwrap_or_default(), code) {
        (_, "23505") => Kind::Taken,
        // Ended by an administrator, by a restart, or not ready yet.
        (_, "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04") | ("08", _) => Kind::Unreachable,
        // 25: not in this state of the transaction, or not while it is a standby; the next one may find another.
        (_, "57014" | "55P03") | ("25" | "40" | "53" | "58", _) => Kind::Passing,
        ("22" | "23", _) => Kind::Refused,
        // Not let in, no such database, or not allowed to do this in it: whoever set it up can help.
        ("28" | "3D", _) | (_, "42501") => Kind::Unwelcome,
        _ => Kind::Internal,
    }
}

/// `… (workflow_id, name)=(5, solve) …`, in whatever language.
fn taken_name(said: &DbError) -> Option<String> {
    name_in(said.detail()?)
}

fn name_in(detail: &str) -> Option<String> {
    let (columns, values) = detail.split_once(")=(")?;
    let value = &values[..values.rfind(')')?];
    if columns.ends_with(", name") { value.split_once(", ").map(|(_, name)| name.to_owned()) } else { None }
}

/// A value and a column that do not fit each other: a mistake of ours.
#[derive(Debug)]
pub(super) struct WrongType(pub(super) String);

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongType {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taken_name_is_found() {
        let name = |detail| name_in(detail);
        assert_eq!(name("Key (workflow_id, name)=(5, a, (b)) already exists."), Some("a, (b)".into()));
        assert_eq!(name("Key (job_id, run_id, attempt_id)=(5, 1, 1) already exists."), None);
    }
}
