//! A typed, blocking client of a Windlass server, used by the command line and by workers.
//!
//! [`Client`] has the address, the credentials, and the parsing of errors. Calls are grouped by topic:
//! [`worker_calls`] for workers, [`Client::store`] for a store, [`Client::follow_events`] for events. Calls are
//! not retried here: only the caller knows which ones may be, and [`ClientError::is_transient`] tells when that
//! is useful. Store reads and event streams are safe to repeat and retry by themselves.

mod access_groups;
mod allocations;
mod error;
mod events;
mod keyring;
mod nodes;
mod remote_store;
mod requests;
mod server_commands;
mod tokens;
mod trust;
pub mod worker_calls;

pub use error::{ClientError, ProblemDetails, RejectedField};
pub use events::{EventStreamOptions, RelocateServer, ServerEventStream};
pub use keyring::{Keyring, SavedServer, origin};
pub use nodes::NodeQuarantineInfo;
pub use remote_store::{HttpStoreTransport, RemoteStore};
pub use requests::{DagListOptions, DagNodeListOptions, RequestListOptions};
pub use server_commands::{ServerHealth, WorkerInfo};
pub use trust::ServerTrust;

use reqwest::StatusCode;
use reqwest::blocking::{RequestBuilder, Response};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use windlass_types::worker_messages::TORC_PREFIX;

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of an ordinary call.
pub const CALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Reads the token of a server again from its source. `None`: no server is recorded there with this address.
pub type TokenLookup = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Address and credentials.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// `http://HOST:PORT` or `https://…`, with or without a path before `/api/v1`.
    pub url: String,
    pub token: Option<String>,
    /// For a discovered token that ends with its server: if the server rejects it, the current one is looked
    /// up.
    pub token_lookup: Option<TokenLookup>,
    /// User name and password, if there is no token.
    pub password: Option<(String, String)>,
    pub trust: ServerTrust,
    /// Permit sending the token or password unencrypted.
    pub insecure_http: bool,
}

impl std::fmt::Debug for ClientOptions {
    /// Omits the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientOptions").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A client of a server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    url: String,
    /// The current token, shared by all clones.
    token: Arc<RwLock<Option<String>>>,
    token_lookup: Option<TokenLookup>,
    password: Option<(String, String)>,
    trust: ServerTrust,
    http: reqwest::blocking::Client,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Client {
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let url = without_prefix(&options.url).to_owned();
        let bad = |why: &str| ClientError::BadUrl { url: url.clone(), why: why.to_owned() };
        let parsed = reqwest::Url::parse(&url).map_err(|error| bad(&error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(bad("it must begin with http:// or https:// and a host name"));
        }
        if (options.token.is_some() || options.password.is_some())
            && options.trust.socket.is_none()
            && !options.insecure_http
            && !keyring::is_private(&url)
        {
            return Err(ClientError::PlainHttp { url });
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have set it first, which is equivalent.
            rustls::crypto::ring::default_provider().install_default().ok();
        }
        let builder = reqwest::blocking::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(CALL_TIMEOUT)
            // The server sends no redirects, and the token must not be sent elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .tcp_keepalive(Duration::from_secs(30))
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        let builder = options.trust.apply(builder)?;
        let http = builder.build().map_err(|source| ClientError::Setup { source })?;
        let ClientOptions { token, token_lookup: find_token, password, trust, .. } = options;
        let token = Arc::new(RwLock::new(token));
        Ok(Self { url, token, token_lookup: find_token, password, trust, http })
    }

    /// Returns a client that does not look up the token again: the caller looks for the server when the token
    /// is rejected.
    #[must_use]
    pub fn without_token_lookup(&self) -> Self {
        Self { token: Arc::new(RwLock::new(self.token())), token_lookup: None, ..self.clone() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether both clients use the same address and token.
    pub fn is_same_server(&self, other: &Self) -> bool {
        self.url == other.url && self.token() == other.token() && self.trust == other.trust
    }

    /// Returns the token. Pass it only to processes of this user.
    pub fn token(&self) -> Option<String> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what a job needs to reach and verify this server, without our token; `None` if the server
    /// requires no authentication.
    pub fn server_for_jobs(&self) -> Option<SavedServer> {
        self.token()?;
        Some(SavedServer { url: self.url.clone(), token: String::new(), trust: self.trust.clone() })
    }

    /// `path` begins with a slash.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(self.http.get(self.url_for(path)), CALL_TIMEOUT)
    }

    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.post_within(path, body, CALL_TIMEOUT)
    }

    /// With a timeout for the whole call.
    pub fn post_within<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        time: Duration,
    ) -> Result<T, ClientError> {
        self.call(self.http.post(self.url_for(path)).json(body), time)
    }

    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(self.http.delete(self.url_for(path)), CALL_TIMEOUT)
    }

    fn url_for(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Sends a request with a path segment that may contain any character; `path` begins with a slash.
    fn url_for_name(&self, path: &str, name: &str) -> Result<reqwest::Url, ClientError> {
        let mut url = self.url_with_query(path, std::iter::empty())?;
        url.set_query(None);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push(name);
        }
        Ok(url)
    }

    fn url_with_query<'a>(
        &self,
        path: &str,
        query: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<reqwest::Url, ClientError> {
        let parsed = reqwest::Url::parse_with_params(&self.url_for(path), query);
        parsed.map_err(|error| ClientError::BadUrl { url: self.url.clone(), why: error.to_string() })
    }

    fn call<T: DeserializeOwned>(&self, request: RequestBuilder, time: Duration) -> Result<T, ClientError> {
        let answer = self.send(request.timeout(time))?;
        let bytes = answer.bytes().map_err(|error| self.unreachable_error(error))?;
        serde_json::from_slice(&bytes)
            .map_err(|source| ClientError::Response { url: self.url.clone(), source })
    }

    /// Returns the body of a store response; the store reports its own errors in it.
    fn fetch_body(&self, request: RequestBuilder, time: Duration) -> Result<Vec<u8>, ClientError> {
        let answer = self.send_with_token(request.timeout(time))?;
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/json") {
            return Err(ClientError::Rejected(Box::new(read_problem(answer.status().as_u16(), answer))));
        }
        Ok(answer.bytes().map_err(|error| self.unreachable_error(error))?.into())
    }

    /// Sends a request; any status other than success is an error.
    fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let answer = self.send_with_token(request)?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(ClientError::Rejected(Box::new(read_problem(answer.status().as_u16(), answer))))
    }

    /// Returns the response of the server or, after looking up the token again, of its successor. A call
    /// rejected for its token was not performed.
    fn send_with_token(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let token = self.token();
        let again = self.token_lookup.as_ref().and_then(|find| Some((find, request.try_clone()?)));
        let send = |request, token: Option<&str>| {
            self.with_credentials(request, token).send().map_err(|error| self.unreachable_error(error))
        };
        let answer = send(request, token.as_deref())?;
        let Some((find, again)) = again.filter(|_| answer.status() == StatusCode::UNAUTHORIZED) else {
            return Ok(answer);
        };
        let found = find();
        if found.is_none() || found == token {
            return Ok(answer);
        }
        self.token.write().unwrap_or_else(PoisonError::into_inner).clone_from(&found);
        send(again, found.as_deref())
    }

    fn with_credentials(&self, request: RequestBuilder, token: Option<&str>) -> RequestBuilder {
        match (token, &self.password) {
            (Some(token), _) => request.bearer_auth(token),
            (None, Some((user, password))) => request.basic_auth(user, Some(password)),
            (None, None) => request,
        }
    }

    fn unreachable_error(&self, source: reqwest::Error) -> ClientError {
        // The address may contain a password, and is printed separately.
        ClientError::Unreachable { url: self.url.clone(), source: source.without_url() }
    }
}

/// Removes the path of the API, as in the address of Torc's clients.
fn without_prefix(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    let prefixes = [TORC_PREFIX, "/api/v1"];
    prefixes.into_iter().find_map(|prefix| url.strip_suffix(prefix)).unwrap_or(url).trim_end_matches('/')
}

/// Parses an error response; of one that is not from the server (a proxy in between), as much as possible.
fn read_problem(status: u16, answer: Response) -> ProblemDetails {
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let reason = answer.status().canonical_reason().unwrap_or("refused").to_owned();
    let body: Option<ProblemDetails> =
        answer.bytes().ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let problem = body.unwrap_or_else(|| ProblemDetails { detail: reason, ..ProblemDetails::default() });
    ProblemDetails { status, retry_after: seconds.map(Duration::from_secs), ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_url_may_have_api_prefix() {
        for url in ["http://a:1", "http://a:1/", "http://a:1/api/v1", "http://a:1/torc-service/v1/"] {
            assert_eq!(without_prefix(url), "http://a:1");
        }
        assert_eq!(without_prefix("http://a/windlass/api/v1"), "http://a/windlass");
    }
}
