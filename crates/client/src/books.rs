//! The books of a server, as a store: every command works on them as on a file.

use crate::{Client, Error, TIMEOUT};
use std::io::Read;
use std::time::Duration;
use windlass_store::wire::error::{Elsewhere, Sort};
use windlass_store::wire::{Level, Remote, Request, Transport};
use windlass_store::{Error as StoreError, Location};
use windlass_types::Timestamp;

/// A store whose books a server keeps.
pub type RemoteStore = Remote<ServerBooks>;

/// The way to them.
#[derive(Clone, Debug)]
pub struct ServerBooks(Client);

/// So long a workflow may take to arrive and be made.
const CREATE: Duration = Duration::from_mins(30);
/// A read that met a passing trouble is tried again after these.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_secs(2)];

impl Client {
    pub fn books(&self) -> RemoteStore {
        Remote::new(ServerBooks(self.clone()))
    }
}

impl ServerBooks {
    fn ask(&self, request: &Request) -> Result<Vec<u8>, Error> {
        let post = self.0.http.post(self.0.address("/api/v1/books")).json(request);
        self.0.body(post, TIMEOUT)
    }
}

impl Transport for ServerBooks {
    fn location(&self) -> Location {
        Location::Server(self.0.url().to_owned())
    }

    fn call(&self, request: &Request, _now: Timestamp) -> Result<Vec<u8>, StoreError> {
        let mut answer = self.ask(request);
        // Whether a change that got no answer was made, nobody knows here.
        if request.access().level == Level::Read {
            for pause in PAUSES {
                match &answer {
                    Err(error) if error.may_pass_soon() => {
                        std::thread::sleep(error.retry_after().unwrap_or(pause));
                    }
                    _ => break,
                }
                answer = self.ask(request);
            }
        }
        answer.map_err(StoreError::from)
    }

    fn create(&self, lines: Box<dyn Read + Send>, _now: Timestamp) -> Result<Vec<u8>, StoreError> {
        let post = self.0.http.post(self.0.address("/api/v1/books/create"));
        let post =
            post.header("content-type", "application/x-ndjson").body(reqwest::blocking::Body::new(lines));
        Ok(self.0.body(post, CREATE)?)
    }
}

impl Error {
    /// The server is there and asks for a moment, or hung up in the middle. One that nobody listens for is not waited
    /// for: somebody sits in front of this.
    fn may_pass_soon(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => !source.is_connect() && !source.is_timeout(),
            _ => self.is_passing() && self.retry_after().is_none_or(|wait| wait <= Duration::from_secs(5)),
        }
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        let (sort, code, hint) = match &error {
            Error::Unreachable { .. } => (
                Sort::Surroundings,
                "unreachable",
                Some("`windlass serve` starts one; --url or WINDLASS_URL names another"),
            ),
            Error::Refused(problem) => return refusal(problem).into(),
            Error::Answer { .. } => {
                (Sort::Surroundings, "not_understood", Some("use the windlass that the server is of"))
            }
            Error::BadUrl { .. } => (Sort::Wrong, "bad_url", Some("for example http://127.0.0.1:8080")),
            Error::PlainHttp { .. } => (Sort::Wrong, "plain_http", None),
            Error::File { .. }
            | Error::Pem { .. }
            | Error::Setup { .. }
            | Error::NotPrivate { .. }
            | Error::Keyring { .. } => (Sort::Surroundings, "setup", None),
        };
        let (code, hint) = (code.to_owned(), error.hint().or(hint.map(str::to_owned)));
        Elsewhere { sort, code, message: error.to_string(), hint }.into()
    }
}

fn refusal(problem: &crate::Problem) -> Elsewhere {
    // Windlass says what it means; whatever answers there without a code has never heard of this.
    let is_stranger = problem.code.is_empty() && !matches!(problem.status, 401 | 403 | 408 | 429 | 502..=504);
    let sort = match problem.status {
        _ if is_stranger => Sort::Surroundings,
        404 | 410 => Sort::Missing,
        400 | 413 | 422 => Sort::Wrong,
        401 | 403 => Sort::Forbidden,
        429 | 502..=504 => Sort::Surroundings,
        500.. => Sort::Internal,
        _ => Sort::Refused,
    };
    let (message, own) = match problem.status {
        401 => (
            format!("the server does not know you: {}", problem.detail),
            Some(
                "WINDLASS_TOKEN is taken first, then what `windlass login` kept; whoever runs the server makes tokens: `windlass token create`",
            ),
        ),
        _ if is_stranger => (
            "whatever answers there is no windlass server, or one of another version".to_owned(),
            Some("check --url or WINDLASS_URL; `windlass ping` says who answers"),
        ),
        _ => (problem.detail.clone(), None),
    };
    let code =
        if problem.code.is_empty() { format!("http_{}", problem.status) } else { problem.code.clone() };
    // What the server advises is for those who write requests themselves.
    let own = own.map(str::to_owned);
    let hint =
        if problem.status == 401 { own.or(problem.hint.clone()) } else { problem.hint.clone().or(own) };
    Elsewhere { sort, code, message, hint }
}
