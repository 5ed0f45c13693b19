//! A typed client of a Windlass server: plain blocking calls, used by the command line and by workers.
//!
//! [`Client`] knows where the server is, who we are, and how to read its refusals. Calls are grouped by what they are
//! about: [`fleet`] is what workers say, [`Client::books`] is a store, [`Client::follow`] are events as they happen. Calls
//! are not repeated here: only the caller knows what may be, and [`Error::is_passing`] says when that is worth it. Reading
//! the books and following events, which may, go on by themselves.

mod allocations;
mod books;
mod error;
mod events;
pub mod fleet;
mod groups;
mod keyring;
mod nodes;
mod requests;
mod tokens;
mod trust;
mod verbs;

pub use books::{RemoteStore, ServerBooks};
pub use error::{Error, FieldFault, Problem};
pub use events::{EventStream, Follow, Relocate};
pub use keyring::{Kept, Keyring, origin};
pub use nodes::Node;
pub use requests::{DagQuery, NodeQuery, RequestQuery};
pub use trust::Trust;
pub use verbs::{Health, Worker};

use reqwest::blocking::{RequestBuilder, Response};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use windlass_types::work::TORC_PREFIX;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an ordinary call may take.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Where the server is and who calls.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// `http://HOST:PORT` or `https://…`, with or without a path in front of `/api/v1`.
    pub url: String,
    pub token: Option<String>,
    /// Name and password, where there is no token.
    pub password: Option<(String, String)>,
    pub trust: Trust,
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
    token: Option<String>,
    password: Option<(String, String)>,
    trust: Trust,
    http: reqwest::blocking::Client,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Client {
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        let url = without_prefix(&options.url).to_owned();
        let bad = |why: &str| Error::BadUrl { url: url.clone(), why: why.to_owned() };
        let parsed = reqwest::Url::parse(&url).map_err(|error| bad(&error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(bad("it begins with http:// or https:// and the name of a host"));
        }
        if (options.token.is_some() || options.password.is_some())
            && options.trust.socket.is_none()
            && !options.insecure_http
            && !keyring::is_private(&url)
        {
            return Err(Error::PlainHttp { url });
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else may have come first, which is as good.
            rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        }
        let builder = reqwest::blocking::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(TIMEOUT)
            // Our server sends nobody elsewhere, and a token is for nobody else.
            .redirect(reqwest::redirect::Policy::none())
            .tcp_keepalive(Duration::from_secs(30))
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        let builder = options.trust.apply(builder)?;
        let http = builder.build().map_err(|source| Error::Setup { source })?;
        let ClientOptions { token, password, trust, .. } = options;
        Ok(Self { url, token, password, trust, http })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether calls go to the same place, with the same token.
    pub fn is_same_way(&self, other: &Self) -> bool {
        self.url == other.url && self.token == other.token && self.trust == other.trust
    }

    /// To be handed on to nobody but this user's own processes.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// What a job needs to find this server and to know that it is the right one, without our token; `None` where no token is
    /// asked for.
    pub fn to_keep_for_jobs(&self) -> Option<Kept> {
        self.token.as_ref()?;
        Some(Kept { url: self.url.clone(), token: String::new(), trust: self.trust.clone() })
    }

    /// `path` begins with a slash.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(self.http.get(self.address(path)), TIMEOUT)
    }

    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.post_within(path, body, TIMEOUT)
    }

    /// The whole call may take so long.
    pub fn post_within<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        time: Duration,
    ) -> Result<T, Error> {
        self.call(self.http.post(self.address(path)).json(body), time)
    }

    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(self.http.delete(self.address(path)), TIMEOUT)
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// For names that may hold any character; `path` begins with a slash.
    fn address_of(&self, path: &str, name: &str) -> Result<reqwest::Url, Error> {
        let mut url = self.address_with(path, std::iter::empty())?;
        url.set_query(None);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push(name);
        }
        Ok(url)
    }

    fn address_with<'a>(
        &self,
        path: &str,
        query: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<reqwest::Url, Error> {
        let parsed = reqwest::Url::parse_with_params(&self.address(path), query);
        parsed.map_err(|error| Error::BadUrl { url: self.url.clone(), why: error.to_string() })
    }

    fn call<T: DeserializeOwned>(&self, request: RequestBuilder, time: Duration) -> Result<T, Error> {
        let answer = self.send(request.timeout(time))?;
        let bytes = answer.bytes().map_err(|error| self.unreachable(error))?;
        serde_json::from_slice(&bytes).map_err(|source| Error::Answer { url: self.url.clone(), source })
    }

    /// The body of an answer from the books, which speak for themselves also when they refuse.
    fn body(&self, request: RequestBuilder, time: Duration) -> Result<Vec<u8>, Error> {
        let answer =
            self.introduced(request.timeout(time)).send().map_err(|error| self.unreachable(error))?;
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/json") {
            return Err(Error::Refused(Box::new(problem(answer.status().as_u16(), answer))));
        }
        Ok(answer.bytes().map_err(|error| self.unreachable(error))?.into())
    }

    /// Sends a request; what is not a success is a refusal.
    fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let answer = self.introduced(request).send().map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(Error::Refused(Box::new(problem(answer.status().as_u16(), answer))))
    }

    fn introduced(&self, request: RequestBuilder) -> RequestBuilder {
        match (&self.token, &self.password) {
            (Some(token), _) => request.bearer_auth(token),
            (None, Some((user, password))) => request.basic_auth(user, Some(password)),
            (None, None) => request,
        }
    }

    fn unreachable(&self, source: reqwest::Error) -> Error {
        // The address may hold a password, and is told anyway.
        Error::Unreachable { url: self.url.clone(), source: source.without_url() }
    }
}

/// Whoever has the address of a contract, as Torc's clients do, means the server.
fn without_prefix(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    let prefixes = [TORC_PREFIX, "/api/v1"];
    prefixes.into_iter().find_map(|prefix| url.strip_suffix(prefix)).unwrap_or(url).trim_end_matches('/')
}

/// What the server says is wrong; if it is not the server that answers (a proxy in between), as much as can be told.
fn problem(status: u16, answer: Response) -> Problem {
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let reason = answer.status().canonical_reason().unwrap_or("refused").to_owned();
    let body: Option<Problem> = answer.bytes().ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let said = body.unwrap_or_else(|| Problem { detail: reason, ..Problem::default() });
    Problem { status, retry_after: seconds.map(Duration::from_secs), ..said }
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
