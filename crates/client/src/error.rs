//! What can go wrong with a call.

use crate::trust;
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url} is no address of a server: {why}")]
    BadUrl { url: String, why: String },
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is not what it should be: {why}", path.display())]
    Pem { path: PathBuf, why: String },
    #[error("cannot set up the connection: {source}")]
    Setup { source: reqwest::Error },
    #[error("cannot reach the server at {url}: {}", innermost_cause(source))]
    Unreachable { url: String, source: reqwest::Error },
    #[error("{} is readable by others, so it is not used", path.display())]
    NotPrivate { path: PathBuf },
    #[error("{}: {why}", path.display())]
    Keyring { path: PathBuf, why: String },
    #[error("a token is not sent to {url} in the clear, where others can read it")]
    PlainHttp { url: String },
    /// The server said no, and why.
    #[error("{0}")]
    Rejected(Box<ProblemDetails>),
    #[error("the answer of {url} is not understood, it may be another version: {source}")]
    Response { url: String, source: serde_json::Error },
}

/// A refusal, as the server words it (`application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ProblemDetails {
    pub status: u16,
    /// Stable: programs go by it.
    pub code: String,
    pub detail: String,
    pub hint: Option<String>,
    /// Field by field, where a document is refused.
    pub errors: Vec<RejectedField>,
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

/// What is wrong with a field of what was sent.
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
    /// Worth trying again, unchanged: the server is away, busy, or in trouble.
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

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotPrivate { path } => Some(format!(
                "`chmod 600 {0}`, and make new tokens: whoever could read it may have",
                path.display()
            )),
            Self::PlainHttp { .. } => {
                Some("use https://, or say --insecure-http if nobody else is on the way".to_owned())
            }
            Self::Rejected(problem) => problem.hint.clone(),
            Self::Unreachable { url, source } => {
                Some(suggest_remedy(url, &innermost_cause(source)).to_owned())
            }
            Self::Response { .. } => Some(
                "is this the address of a windlass server? It is given without a path: http://HOST:PORT"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// Nobody listens at the address: there is no server.
    pub fn is_server_absent(&self) -> bool {
        let Self::Unreachable { source, .. } = self else { return false };
        let causes = std::iter::successors(std::error::Error::source(source), |cause| cause.source());
        let kinds = causes.filter_map(|cause| cause.downcast_ref::<io::Error>().map(io::Error::kind));
        // A socket that is gone, or that no process listens at any more.
        kinds
            .into_iter()
            .any(|kind| matches!(kind, io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
    }

    /// The server does not know the token: it may be of the server before.
    pub fn is_unknown_token(&self) -> bool {
        self.problem().is_some_and(|problem| problem.status == 401 && problem.code == "bad_credentials")
    }

    pub fn problem(&self) -> Option<&ProblemDetails> {
        match self {
            Self::Rejected(problem) => Some(problem),
            _ => None,
        }
    }

    /// The server's code, if it refused.
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str())
    }

    /// When the server wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem()?.retry_after
    }
}

/// The cause of causes, which says most: `Connection refused` rather than `error sending request`.
fn innermost_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() { "it does not answer in time".to_owned() } else { trust::innermost_source(error) }
}

/// What to do, by what went wrong with the connection. Those who make it say it in words only.
fn suggest_remedy(url: &str, cause: &str) -> &'static str {
    let is_any = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    if is_any(&["InvalidContentType"]) {
        "this server speaks no TLS: the address begins with http://"
    } else if url.starts_with("http:") && is_any(&["HTTP version", "invalid HTTP"]) {
        "this server speaks TLS: the address begins with https://"
    } else if is_any(&["UnknownIssuer", "CaUsedAsEndEntity", "SelfSigned"]) {
        "--ca-file or WINDLASS_CA_FILE names the certificate of the authority that gave the server its own"
    } else if is_any(&["NotValidForName", "not valid for name"]) {
        "name the server as its certificate does"
    } else if is_any(&["CertificateRequired", "certificate required"]) {
        "this server asks for a certificate: --cert and --key, or WINDLASS_CERT and WINDLASS_KEY"
    } else {
        "is the server running, and is the address right?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_with_a_connection_has_its_remedy() {
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
    fn what_passes_and_what_does_not() {
        let refused =
            |status| ClientError::Rejected(Box::new(ProblemDetails { status, ..ProblemDetails::default() }));
        for (status, passes) in
            [(401, false), (404, false), (409, false), (429, true), (500, true), (501, false), (503, true)]
        {
            assert_eq!(refused(status).is_transient(), passes, "{status}");
        }
    }
}
