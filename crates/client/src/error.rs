//! Errors of calls.

use crate::trust;
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url} is not a server address: {why}")]
    BadUrl { url: String, why: String },
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is invalid: {why}", path.display())]
    Pem { path: PathBuf, why: String },
    #[error("cannot set up the connection: {source}")]
    Setup { source: reqwest::Error },
    #[error("cannot reach the server at {url}: {}", innermost_cause(source))]
    Unreachable { url: String, source: reqwest::Error },
    #[error("{} is readable by other users and therefore not used", path.display())]
    NotPrivate { path: PathBuf },
    #[error("{}: {why}", path.display())]
    Keyring { path: PathBuf, why: String },
    #[error("refusing to send a token to {url} unencrypted")]
    PlainHttp { url: String },
    /// An error response of the server.
    #[error("{0}")]
    Rejected(Box<ProblemDetails>),
    #[error("cannot parse the response of {url}, which may be another version: {source}")]
    Response { url: String, source: serde_json::Error },
}

/// An error response in the server's words (`application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ProblemDetails {
    pub status: u16,
    /// Stable code, for programs.
    pub code: String,
    pub detail: String,
    pub hint: Option<String>,
    /// Errors by field, if a document is rejected.
    pub errors: Vec<RejectedField>,
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

/// An error in a field of a request body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RejectedField {
    pub field: String,
    pub reason: String,
    pub remedy: Option<String>,
}

impl std::fmt::Display for ProblemDetails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl ClientError {
    /// Whether the same call may succeed later: the server is unavailable or busy, or failed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Rejected(problem) => matches!(problem.status, 408 | 425 | 429 | 500 | 502..),
            Self::BadUrl { .. }
            | Self::File { .. }
            | Self::Pem { .. }
            | Self::Setup { .. }
            | Self::NotPrivate { .. }
            | Self::Keyring { .. }
            | Self::PlainHttp { .. }
            | Self::Response { .. } => false,
        }
    }

    /// Returns what to do about the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotPrivate { path } => Some(format!(
                "`chmod 600 {0}`, and create new tokens: other users may have read it",
                path.display()
            )),
            Self::PlainHttp { .. } => {
                Some("use https://, or --insecure-http if the network is trusted".to_owned())
            }
            Self::Rejected(problem) => problem.hint.clone(),
            Self::Unreachable { url, source } => {
                Some(suggest_remedy(url, &innermost_cause(source)).to_owned())
            }
            Self::Response { .. } => {
                Some("is this the address of a windlass server? It has no path: http://HOST:PORT".to_owned())
            }
            _ => None,
        }
    }

    /// Whether no process listens at the address: there is no server.
    pub fn is_server_absent(&self) -> bool {
        let Self::Unreachable { source, .. } = self else { return false };
        let causes = std::iter::successors(std::error::Error::source(source), |cause| cause.source());
        let kinds = causes.filter_map(|cause| cause.downcast_ref::<io::Error>().map(io::Error::kind));
        // A missing socket, or one without a listening process.
        kinds
            .into_iter()
            .any(|kind| matches!(kind, io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
    }

    /// Whether the server does not know the token: it may be that of an earlier server.
    pub fn is_unknown_token(&self) -> bool {
        self.problem().is_some_and(|problem| problem.status == 401 && problem.code == "bad_credentials")
    }

    pub fn problem(&self) -> Option<&ProblemDetails> {
        match self {
            Self::Rejected(problem) => Some(problem),
            _ => None,
        }
    }

    /// Returns the error code of the server.
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str())
    }

    /// Returns when the server asks to retry.
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem()?.retry_after
    }
}

/// Returns the root cause, which is the most specific: `Connection refused` rather than `error sending
/// request`.
fn innermost_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() { "no answer in time".to_owned() } else { trust::innermost_source(error) }
}

/// Returns a hint by the text of a connection error; libraries report the cause only as text.
fn suggest_remedy(url: &str, cause: &str) -> &'static str {
    let is_any = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    if is_any(&["InvalidContentType"]) {
        "this server does not use TLS: use an address with http://"
    } else if url.starts_with("http:") && is_any(&["HTTP version", "invalid HTTP"]) {
        "this server uses TLS: use an address with https://"
    } else if is_any(&["UnknownIssuer", "CaUsedAsEndEntity", "SelfSigned"]) {
        "set --ca-file or WINDLASS_CA_FILE to the certificate of the CA that issued the server's certificate"
    } else if is_any(&["NotValidForName", "not valid for name"]) {
        "use a host name that is in the server's certificate"
    } else if is_any(&["CertificateRequired", "certificate required"]) {
        "this server requires a client certificate: --cert and --key, or WINDLASS_CERT and WINDLASS_KEY"
    } else {
        "is the server running, and is the address right?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_errors_have_matching_hints() {
        for (url, cause, word) in [
            ("https://a", "received corrupt message of type InvalidContentType", "http://"),
            ("http://a", "invalid HTTP version parsed", "https://"),
            ("https://a", "invalid peer certificate: UnknownIssuer", "--ca-file"),
            ("https://a", "received fatal alert: CertificateRequired", "--cert"),
            ("https://a", "Connection refused", "running"),
        ] {
            assert!(suggest_remedy(url, cause).contains(word), "{cause}");
        }
    }

    #[test]
    fn transient_statuses_are_distinguished_from_permanent() {
        let refused =
            |status| ClientError::Rejected(Box::new(ProblemDetails { status, ..ProblemDetails::default() }));
        for (status, passes) in
            [(401, false), (404, false), (409, false), (429, true), (500, true), (501, false), (503, true)]
        {
            assert_eq!(refused(status).is_transient(), passes, "{status}");
        }
    }
}
