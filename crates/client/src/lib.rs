//! A typed client of a Windlass server: plain blocking calls, used by the command line and by workers.
//!
//! [`Client`] knows where the server is, who we are, and how to read its refusals. Calls are grouped by what they are
//! about: [`fleet`] is what workers say, [`Client::books`] is a store, [`Client::follow`] are events as they happen. Calls
//! are not repeated here: only the caller knows what may be, and [`Error::is_passing`] says when that is worth it. Reading
//! the books and following events, which may, go on by themselves.

mod allocations;
mod error;
mod events;
mod groups;
mod keyring;
mod nodes;
mod remote_store;
mod requests;
mod server_commands;
mod tokens;
mod trust;
pub mod worker_calls;

pub use error::{ClientError, ProblemDetails, RejectedField};
pub use events::{EventStream, EventStreamOptions, RelocateServer};
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

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an ordinary call may take.
pub const CALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Reads the token of a server once more where it was found. `None`: no server says there that it has this address.
pub type TokenLookup = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Where the server is and who calls.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// `http://HOST:PORT` or `https://…`, with or without a path in front of `/api/v1`.
    pub url: String,
    pub token: Option<String>,
    /// For a token that was found and ends with the server: when the server does not know it, the one that is there now is used.
    pub token_lookup: Option<TokenLookup>,
    /// Name and password, where there is no token.
    pub password: Option<(String, String)>,
    pub trust: ServerTrust,
    /// The token or password may be sent where others can read it.
    pub insecure_http: bool,
}

impl std::fmt::Debug for ClientOptions {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientOptions").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A server, as it is spoken to. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Client {
    url: String,
    /// All clones go on with a token that one of them has found.
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
            return Err(bad("it begins with http:// or https:// and the name of a host"));
        }
        if (options.token.is_some() || options.password.is_some())
            && options.trust.socket.is_none()
            && !options.insecure_http
            && !keyring::is_private(&url)
        {
            return Err(ClientError::PlainHttp { url });
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else may have come first, which is as good.
            rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        }
        let builder = reqwest::blocking::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(CALL_TIMEOUT)
            // Our server sends nobody elsewhere, and a token is for nobody else.
            .redirect(reqwest::redirect::Policy::none())
            .tcp_keepalive(Duration::from_secs(30))
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        let builder = options.trust.apply(builder)?;
        let http = builder.build().map_err(|source| ClientError::Setup { source })?;
        let ClientOptions { token, token_lookup: find_token, password, trust, .. } = options;
        let token = Arc::new(RwLock::new(token));
        Ok(Self { url, token, token_lookup: find_token, password, trust, http })
    }

    /// The same, which goes on with no other token: what the caller does when it is refused is to look for the server.
    #[must_use]
    pub fn without_token_lookup(&self) -> Self {
        Self { token: Arc::new(RwLock::new(self.token())), token_lookup: None, ..self.clone() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether calls go to the same place, with the same token.
    pub fn is_same_server(&self, other: &Self) -> bool {
        self.url == other.url && self.token() == other.token() && self.trust == other.trust
    }

    /// To be handed on to nobody but this user's own processes.
    pub fn token(&self) -> Option<String> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a job needs to find this server and to know that it is the right one, without our token; `None` where no token is
    /// asked for.
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

    /// The whole call may take so long.
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

    /// For names that may hold any character; `path` begins with a slash.
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

    /// The body of an answer from the books, which speak for themselves also when they refuse.
    fn fetch_body(&self, request: RequestBuilder, time: Duration) -> Result<Vec<u8>, ClientError> {
        let answer = self.send_with_token(request.timeout(time))?;
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/json") {
            return Err(ClientError::Rejected(Box::new(read_problem(answer.status().as_u16(), answer))));
        }
        Ok(answer.bytes().map_err(|error| self.unreachable_error(error))?.into())
    }

    /// Sends a request; what is not a success is a refusal.
    fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let answer = self.send_with_token(request)?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(ClientError::Rejected(Box::new(read_problem(answer.status().as_u16(), answer))))
    }

    /// What the server says to it, or the next server in its place. What was refused for its token was not done.
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
        // The address may hold a password, and is told anyway.
        ClientError::Unreachable { url: self.url.clone(), source: source.without_url() }
    }
}

/// Whoever has the address of a contract, as Torc's clients do, means the server.
fn without_prefix(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    let prefixes = [TORC_PREFIX, "/api/v1"];
    prefixes.into_iter().find_map(|prefix| url.strip_suffix(prefix)).unwrap_or(url).trim_end_matches('/')
}

/// What the server says is wrong; if it is not the server that answers (a proxy in between), as much as can be told.
fn read_problem(status: u16, answer: Response) -> ProblemDetails {
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let reason = answer.status().canonical_reason().unwrap_or("refused").to_owned();
    let body: Option<ProblemDetails> =
        answer.bytes().ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let said = body.unwrap_or_else(|| ProblemDetails { detail: reason, ..ProblemDetails::default() });
    ProblemDetails { status, retry_after: seconds.map(Duration::from_secs), ..said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_name_a_contract() {
        for url in ["http://a:1", "http://a:1/", "http://a:1/api/v1", "http://a:1/torc-service/v1/"] {
            assert_eq!(without_prefix(url), "http://a:1");
        }
        assert_eq!(without_prefix("http://a/windlass/api/v1"), "http://a/windlass");
    }
}
