//! The client for ReqMgr2, from which requests are imported by name. It only reads.
//!
//! All credentials are files that other programs renew (a proxy lasts a day, a token an hour), so they are read
//! for every query.

mod tls;

use reqwest::blocking::{Client, Response};
use reqwest::header::{ACCEPT, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde_json::Value;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windlass_core::requests::document::{self, DocumentProblem};
use windlass_core::requests::reqmgr2::{self, ReqmgrRefusal, ReqmgrReply};

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Documents with long lists of luminosity sections have a few megabytes.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// Its address, and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reqmgr2Client {
    /// The part before `/data/request`: `https://cmsweb.cern.ch:8443/reqmgr2`.
    pub url: String,
    /// The client certificate and chain, or a proxy. PEM.
    pub cert: Option<PathBuf>,
    /// Its private key; `None`: it is in the same file.
    pub key: Option<PathBuf>,
    /// Trusted authorities besides those of the system: a file, or a directory of files.
    pub authorities: Option<PathBuf>,
    /// A file with a token.
    pub token: Option<PathBuf>,
    /// Timeout of a query for one request, including all retries.
    pub timeout: Duration,
}

impl Reqmgr2Client {
    /// As long as a user waits for a command.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    pub fn from_url(url: impl Into<String>) -> Self {
        let timeout = Self::DEFAULT_TIMEOUT;
        Self { url: url.into(), cert: None, key: None, authorities: None, token: None, timeout }
    }

    /// Checks the configuration: the address is valid, and the files exist and have the right content.
    pub fn check(&self) -> Result<(), Reqmgr2Error> {
        self.request_url("x")?;
        self.read_token()?;
        self.build_client().map(|_| ())
    }

    /// The document of a request. Blocks; temporary errors are retried until the timeout.
    pub fn fetch_request(&self, name: &str) -> Result<Value, Reqmgr2Error> {
        if let Some(fault) = document::check_request_name("request_name", name) {
            return Err(Reqmgr2Error::Name(fault));
        }
        let (url, token, client) = (self.request_url(name)?, self.read_token()?, self.build_client()?);
        let begun = Instant::now();
        let mut asked = 0;
        loop {
            let left = self.timeout.saturating_sub(begun.elapsed());
            asked += 1;
            let failed = match self.try_fetch(&client, &url, token.as_deref(), name, left) {
                Ok(document) => return Ok(document),
                Err(failed) => failed,
            };
            let again = failed.is_transient.then(|| {
                let spent = begun.elapsed();
                reqmgr2::retry_delay(asked, spent, self.timeout, failed.retry_after)
            });
            let Some(pause) = again.flatten() else { return Err(failed.error) };
            tracing::debug!(request = name, error = %failed.error, "retrying ReqMgr2");
            std::thread::sleep(pause);
        }
    }

    fn try_fetch(
        &self,
        client: &Client,
        url: &Url,
        token: Option<&str>,
        name: &str,
        time: Duration,
    ) -> Result<Value, FetchFailure> {
        let mut request = client.get(url.clone()).header(ACCEPT, "application/json").timeout(time);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().map_err(|error| self.unreachable_error(&error))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = self.read_body(answer)?;
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let reply = ReqmgrReply {
            status: status.as_u16(),
            detail: text("x-error-detail"),
            location: text(LOCATION.as_str()),
            body: &body,
        };
        reqmgr2::parse_document(name, &reply).map_err(|refusal| FetchFailure {
            is_transient: refusal.is_transient(),
            retry_after: parse_retry_after(status, &headers),
            error: Reqmgr2Error::Refusal { url: self.url.clone(), name: name.to_owned(), refusal },
        })
    }

    fn read_body(&self, answer: Response) -> Result<Vec<u8>, FetchFailure> {
        let mut body = Vec::new();
        match answer.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut body) {
            Ok(_) if body.len() as u64 > MAX_DOCUMENT_BYTES => {
                Err(FetchFailure::permanent(Reqmgr2Error::TooLarge { url: self.url.clone() }))
            }
            Ok(_) => Ok(body),
            Err(error) => Err(self.unreachable_error(&error)),
        }
    }

    fn unreachable_error(&self, error: &(dyn std::error::Error + 'static)) -> FetchFailure {
        let (url, why) = (self.url.clone(), root_cause(error));
        // Certificate errors do not go away with a retry.
        if tls::is_trust_error(error) {
            return FetchFailure::permanent(Reqmgr2Error::UntrustedServer { url, why });
        }
        FetchFailure { is_transient: true, retry_after: None, error: Reqmgr2Error::Unreachable { url, why } }
    }

    fn request_url(&self, name: &str) -> Result<Url, Reqmgr2Error> {
        let bad = |why: &str| Reqmgr2Error::Address { url: self.url.clone(), why: why.to_owned() };
        let mut url = Url::parse(&self.url).map_err(|error| bad(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad("it must begin with http:// or https:// and the name of a host"));
        }
        if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
            return Err(bad("it must be a host and a path only"));
        }
        let base = url.path().trim_end_matches('/').to_owned();
        let base = base.strip_suffix("/data").unwrap_or(&base);
        url.set_path(&format!("{base}/data/request"));
        url.query_pairs_mut().append_pair("name", name);
        Ok(url)
    }

    fn read_token(&self) -> Result<Option<String>, Reqmgr2Error> {
        let Some(path) = &self.token else { return Ok(None) };
        let url = self.request_url("x")?;
        if url.scheme() != "https" && !is_loopback(&url) {
            return Err(Reqmgr2Error::Unencrypted { url: self.url.clone() });
        }
        let text = read_file(path)?;
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return Err(Reqmgr2Error::File { path: path.clone(), why: "it contains no token".to_owned() });
        }
        Ok(Some(text))
    }

    fn build_client(&self) -> Result<Client, Reqmgr2Error> {
        let config = tls::build_tls_config(self)?;
        let builder = Client::builder()
            .tls_backend_preconfigured(config)
            .connect_timeout(CONNECT_TIMEOUT)
            // A token must not be sent to another host, and a redirect for unknown users does not lead to a
            // document.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        let setup =
            |error: reqwest::Error| Reqmgr2Error::Address { url: self.url.clone(), why: root_cause(&error) };
        builder.build().map_err(setup)
    }
}

/// The result of a single query.
struct FetchFailure {
    is_transient: bool,
    /// The requested delay before a retry.
    retry_after: Option<Duration>,
    error: Reqmgr2Error,
}

impl FetchFailure {
    const fn permanent(error: Reqmgr2Error) -> Self {
        Self { is_transient: false, retry_after: None, error }
    }
}

/// Why a request could not be fetched from ReqMgr2.
#[derive(Debug, thiserror::Error)]
pub enum Reqmgr2Error {
    #[error("{0}")]
    Name(DocumentProblem),
    #[error("{url} is not the address of a ReqMgr2: {why}")]
    Address { url: String, why: String },
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error("refusing to send a token to {url} without encryption")]
    Unencrypted { url: String },
    #[error("cannot reach ReqMgr2 at {url}: {why}")]
    Unreachable { url: String, why: String },
    #[error("TLS with ReqMgr2 at {url} failed: {why}")]
    UntrustedServer { url: String, why: String },
    #[error("ReqMgr2 at {url} {refusal}: `{name}`")]
    Refusal { url: String, name: String, refusal: ReqmgrRefusal },
    #[error("the answer of ReqMgr2 at {url} exceeds 64 MiB, so it is not the document of a request")]
    TooLarge { url: String },
}

impl Reqmgr2Error {
    /// The hint.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } | Self::Refusal { refusal: ReqmgrRefusal::Busy(_), .. } => {
                Some("nothing was imported; try again when it answers")
            }
            Self::UntrustedServer { .. } => Some(
                "its certificate must be signed by a trusted authority (--reqmgr2-ca), and the client certificate by one that ReqMgr2 \
                 trusts and not expired (--reqmgr2-cert)",
            ),
            Self::Refusal { refusal: ReqmgrRefusal::Denied(_), .. } => Some(
                "check --reqmgr2-cert or --reqmgr2-token-file: the credentials may be missing or expired",
            ),
            Self::Refusal { refusal: ReqmgrRefusal::Unknown, .. } => {
                Some("use the name that ReqMgr2 shows: USER_STRING_DATE_TIME_NUMBER")
            }
            Self::Refusal { refusal: ReqmgrRefusal::WrongAddress | ReqmgrRefusal::Unexpected(_), .. } => {
                Some("its address is the part before `/data/request`: https://HOST/reqmgr2")
            }
            Self::Unencrypted { .. } => Some("use https://"),
            _ => None,
        }
    }
}

fn parse_retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    (!status.is_success()).then(|| Duration::from_secs(seconds))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn read_file(path: &Path) -> Result<Vec<u8>, Reqmgr2Error> {
    std::fs::read(path).map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, error: &io::Error) -> Reqmgr2Error {
    Reqmgr2Error::File { path: path.to_owned(), why: format!("cannot be read: {error}") }
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    tls::error_causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reqmgr2_data_url_is_below_address() {
        for url in [
            "https://h:8443/reqmgr2",
            "https://h:8443/reqmgr2/",
            "https://h:8443/reqmgr2/data",
            "https://h:8443/reqmgr2/data/",
        ] {
            let address = Reqmgr2Client::from_url(url).request_url("a_b-1.2").unwrap();
            assert_eq!(address.as_str(), "https://h:8443/reqmgr2/data/request?name=a_b-1.2");
        }
        for wrong in ["", "h", "ftp://h/x", "https://u:p@h/reqmgr2", "https://h/reqmgr2?x=1", "file:///etc"] {
            assert!(
                matches!(Reqmgr2Client::from_url(wrong).check(), Err(Reqmgr2Error::Address { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn reqmgr2_fetch_rejects_invalid_names() {
        for wrong in ["", "a b", "a&status=new", "../x", "a/b"] {
            let error =
                Reqmgr2Client::from_url("http://127.0.0.1:1/reqmgr2").fetch_request(wrong).unwrap_err();
            assert!(matches!(error, Reqmgr2Error::Name(_)), "{wrong}: {error}");
        }
    }

    #[test]
    fn reqmgr2_token_is_validated_and_requires_encryption() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let with = |url: &str| Reqmgr2Client { token: Some(path.clone()), ..Reqmgr2Client::from_url(url) };
        assert!(matches!(with("https://h/reqmgr2").read_token(), Err(Reqmgr2Error::File { .. })));
        for (text, token) in [("abc.d-e\n", Some("abc.d-e")), ("", None), ("a b", None), ("a\nb", None)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(with("https://h/reqmgr2").read_token().ok().flatten().as_deref(), token, "{text:?}");
        }
        std::fs::write(&path, "abc").unwrap();
        assert!(matches!(with("http://h/reqmgr2").read_token(), Err(Reqmgr2Error::Unencrypted { .. })));
        for here in ["http://127.0.0.1:8246/reqmgr2", "http://[::1]:8246/reqmgr2", "http://localhost/reqmgr2"]
        {
            assert!(with(here).read_token().is_ok(), "{here}");
        }
    }
}
