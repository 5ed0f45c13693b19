//! The store of a server: every command works on it as on a database file.

use crate::{CALL_TIMEOUT, Client, ClientError};
use std::io::Read;
use std::time::Duration;
use windlass_store::rpc::rpc_error::{ErrorCategory, RemoteError};
use windlass_store::rpc::{AccessLevel, RpcStore, RpcTransport, StoreCall};
use windlass_store::{StoreError, StoreLocation};
use windlass_types::Timestamp;

/// A store on a server.
pub type RemoteStore = RpcStore<HttpStoreTransport>;

/// The HTTP transport of its calls.
#[derive(Clone, Debug)]
pub struct HttpStoreTransport(Client);

/// Timeout for uploading and creating a workflow.
const CREATE_TIMEOUT: Duration = Duration::from_mins(30);
/// Delays before retries of a read after a transient error.
const RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_secs(2)];

impl Client {
    pub fn store(&self) -> RemoteStore {
        RpcStore::new(HttpStoreTransport(self.clone()))
    }
}

impl HttpStoreTransport {
    fn send_call(&self, request: &StoreCall) -> Result<Vec<u8>, ClientError> {
        let post = self.0.http.post(self.0.url_for("/api/v1/store")).json(request);
        self.0.fetch_body(post, CALL_TIMEOUT)
    }
}

impl RpcTransport for HttpStoreTransport {
    fn location(&self) -> StoreLocation {
        StoreLocation::Server(self.0.url().to_owned())
    }

    fn call(&self, request: &StoreCall, _now: Timestamp) -> Result<Vec<u8>, StoreError> {
        let mut answer = self.send_call(request);
        // Not retried: it is unknown whether a change without a response was applied.
        if request.access().level == AccessLevel::Read {
            for pause in RETRY_PAUSES {
                match &answer {
                    Err(error) if error.is_retryable_now() => {
                        std::thread::sleep(error.retry_after().unwrap_or(pause));
                    }
                    _ => break,
                }
                answer = self.send_call(request);
            }
        }
        answer.map_err(StoreError::from)
    }

    fn send_new_workflow(&self, lines: Box<dyn Read + Send>, _now: Timestamp) -> Result<Vec<u8>, StoreError> {
        let post = self.0.http.post(self.0.url_for("/api/v1/store/create"));
        let post =
            post.header("content-type", "application/x-ndjson").body(reqwest::blocking::Body::new(lines));
        Ok(self.0.fetch_body(post, CREATE_TIMEOUT)?)
    }
}

impl ClientError {
    /// Whether to retry: the server asks for a pause, or closed the connection. An absent server is not waited
    /// for, because a user may be waiting.
    fn is_retryable_now(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => !source.is_connect() && !source.is_timeout(),
            _ => self.is_transient() && self.retry_after().is_none_or(|wait| wait <= Duration::from_secs(5)),
        }
    }
}

impl From<ClientError> for StoreError {
    fn from(error: ClientError) -> Self {
        let (sort, code, hint) = match &error {
            ClientError::Unreachable { .. } => (
                ErrorCategory::Unavailable,
                "unreachable",
                Some("start one with `windlass serve`, or name another with --url or WINDLASS_URL"),
            ),
            ClientError::Rejected(problem) => return rejected_call(problem).into(),
            ClientError::Response { .. } => (
                ErrorCategory::Unavailable,
                "not_understood",
                Some("use the same version of windlass as the server"),
            ),
            ClientError::BadUrl { .. } => {
                (ErrorCategory::Wrong, "bad_url", Some("example: http://127.0.0.1:8080"))
            }
            ClientError::PlainHttp { .. } => (ErrorCategory::Wrong, "plain_http", None),
            ClientError::File { .. }
            | ClientError::Pem { .. }
            | ClientError::Setup { .. }
            | ClientError::NotPrivate { .. }
            | ClientError::Keyring { .. } => (ErrorCategory::Unavailable, "setup", None),
        };
        let (code, hint) = (code.to_owned(), error.hint().or(hint.map(str::to_owned)));
        RemoteError { category: sort, code, message: error.to_string(), hint }.into()
    }
}

fn rejected_call(problem: &crate::ProblemDetails) -> RemoteError {
    // Windlass errors have a code; a response without one is not from a Windlass server, or from an older one.
    let is_stranger = problem.code.is_empty() && !matches!(problem.status, 401 | 403 | 408 | 429 | 502..=504);
    let sort = match problem.status {
        _ if is_stranger => ErrorCategory::Unavailable,
        404 | 410 => ErrorCategory::Missing,
        400 | 413 | 422 => ErrorCategory::Wrong,
        401 | 403 => ErrorCategory::Forbidden,
        429 | 502..=504 => ErrorCategory::Unavailable,
        500.. => ErrorCategory::Internal,
        _ => ErrorCategory::Refused,
    };
    let (message, own) = match problem.status {
        401 => (
            format!("authentication failed: {}", problem.detail),
            Some(
                "tokens are taken from WINDLASS_TOKEN, then from `windlass auth login`; the operator of the server creates them: `windlass auth token create`",
            ),
        ),
        _ if is_stranger => (
            "the address does not belong to a windlass server, or to one of another version".to_owned(),
            Some("check --url or WINDLASS_URL; `windlass auth ping` shows what answers"),
        ),
        _ => (problem.detail.clone(), None),
    };
    let code =
        if problem.code.is_empty() { format!("http_{}", problem.status) } else { problem.code.clone() };
    // The server's hint is meant for clients that construct requests themselves.
    let own = own.map(str::to_owned);
    let hint =
        if problem.status == 401 { own.or(problem.hint.clone()) } else { problem.hint.clone().or(own) };
    RemoteError { category: sort, code, message, hint }
}
