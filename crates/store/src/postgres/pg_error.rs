//! Classification of PostgreSQL errors.

use crate::StoreError;
use crate::error::SqlError;
use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use tokio_postgres::error::{DbError, SqlState};

/// An error of PostgreSQL with its class.
#[derive(Clone, Debug)]
pub(crate) struct PgError {
    kind: PgErrorKind,
    text: String,
    /// The value that violates a unique constraint.
    duplicate_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PgErrorKind {
    /// No connection, or no longer one.
    Unreachable,
    /// The server denies access.
    AccessDenied,
    /// The identity of the server cannot be verified.
    Untrusted,
    /// Temporary: out of space or memory, timeout, conflict.
    Transient,
    Duplicate,
    /// A value that PostgreSQL rejects.
    Refused,
    Internal,
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for PgError {}

impl PgError {
    pub(super) fn unreachable(text: impl Into<String>) -> Self {
        Self { kind: PgErrorKind::Unreachable, text: text.into(), duplicate_name: None }
    }

    /// The connection was lost during a commit that can be retried.
    pub(crate) fn retryable_connection_loss() -> Self {
        Self::unreachable("the connection was lost during a commit")
    }

    /// Whether the connection is lost; its transaction is rolled back unless it was committing.
    pub(crate) fn is_connection_lost(&self) -> bool {
        self.kind == PgErrorKind::Unreachable
    }

    pub(crate) fn is_duplicate(&self) -> bool {
        self.kind == PgErrorKind::Duplicate
    }

    pub(crate) fn duplicate_name(&self) -> Option<String> {
        self.duplicate_name.clone()
    }

    /// Connection attempts that are denied will be denied again, unless the server is starting up or shutting
    /// down.
    pub(super) fn while_connecting(self) -> Self {
        let kind = match self.kind {
            PgErrorKind::Internal | PgErrorKind::Refused => PgErrorKind::AccessDenied,
            other => other,
        };
        Self { kind, ..self }
    }

    pub(crate) fn into_store_error(self, url: &str) -> StoreError {
        let url = url.to_owned();
        match self.kind {
            PgErrorKind::Unreachable => StoreError::Unreachable { url, source: Arc::new(self) },
            PgErrorKind::AccessDenied => StoreError::AccessDenied { url, source: Arc::new(self) },
            PgErrorKind::Untrusted => StoreError::Untrusted { url, source: Arc::new(self) },
            PgErrorKind::Transient => StoreError::Overloaded { url, source: Arc::new(self) },
            PgErrorKind::Duplicate | PgErrorKind::Refused => StoreError::Refused { source: Arc::new(self) },
            PgErrorKind::Internal => StoreError::Internal { source: Arc::new(self) },
        }
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        convert_error(&error)
    }
}

pub(super) fn convert_error(error: &tokio_postgres::Error) -> SqlError {
    let failure = match error.as_db_error() {
        Some(said) => {
            let kind = classify_state(said.code());
            let taken = (kind == PgErrorKind::Duplicate).then(|| parse_duplicate_name(said)).flatten();
            let text = format!("{} ({})", said.message(), said.code().code());
            PgError { kind, text, duplicate_name: taken }
        }
        None if error.source().is_some_and(<dyn std::error::Error>::is::<ColumnTypeMismatch>) => {
            PgError { kind: PgErrorKind::Internal, text: render_error_chain(error), duplicate_name: None }
        }
        None if is_bad_certificate(error) => {
            PgError { kind: PgErrorKind::Untrusted, text: render_error_chain(error), duplicate_name: None }
        }
        None => PgError::unreachable(render_error_chain(error)),
    };
    SqlError::Postgres(failure)
}

/// Whether the TLS handshake failed because of the certificate and will fail again.
fn is_bad_certificate(error: &tokio_postgres::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let tls = source.and_then(std::io::Error::get_ref).and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

/// The error and its causes.
fn render_error_chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn classify_state(state: &SqlState) -> PgErrorKind {
    let code = state.code();
    match (code.get(..2).unwrap_or_default(), code) {
        (_, "23505") => PgErrorKind::Duplicate,
        // Terminated by an administrator or a restart, or not ready yet.
        (_, "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04") | ("08", _) => {
            PgErrorKind::Unreachable
        }
        // 25: invalid transaction state, for example on a standby; a retry may find another.
        (_, "57014" | "55P03") | ("25" | "40" | "53" | "58", _) => PgErrorKind::Transient,
        ("22" | "23", _) => PgErrorKind::Refused,
        // Access denied, no such database, or missing privilege: the administrator of the database can help.
        ("28" | "3D", _) | (_, "42501") => PgErrorKind::AccessDenied,
        _ => PgErrorKind::Internal,
    }
}

/// `… (workflow_id, name)=(5, solve) …`, in any language.
fn parse_duplicate_name(said: &DbError) -> Option<String> {
    parse_name_in_detail(said.detail()?)
}

fn parse_name_in_detail(detail: &str) -> Option<String> {
    let (columns, values) = detail.split_once(")=(")?;
    let value = &values[..values.rfind(')')?];
    if columns.ends_with(", name") { value.split_once(", ").map(|(_, name)| name.to_owned()) } else { None }
}

/// A value that does not match its column: an internal error.
#[derive(Debug)]
pub(super) struct ColumnTypeMismatch(pub(super) String);

impl fmt::Display for ColumnTypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ColumnTypeMismatch {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_name_is_parsed_from_the_detail() {
        let name = |detail| parse_name_in_detail(detail);
        assert_eq!(name("Key (workflow_id, name)=(5, a, (b)) already exists."), Some("a, (b)".into()));
        assert_eq!(name("Key (job_id, run_id, attempt_id)=(5, 1, 1) already exists."), None);
    }
}
