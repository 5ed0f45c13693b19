//! Queries and commands on requests. The store of a session has no requests: the actions of the session perform
//! the calls with the permissions of its user.

use serde_json::Value;

/// A query or a command. Commands require the confirmation of the agent's user, which is checked before.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestToolCall {
    /// Returns a list of requests by name.
    List {
        status: Option<String>,
        name: Option<String>,
        offset: u64,
        limit: u64,
    },
    Show {
        name: String,
    },
    Errors {
        name: String,
        all_rounds: bool,
    },
    /// The body of `POST /requests/NAME/release`.
    Release {
        name: String,
        body: Value,
    },
    Stop {
        name: String,
        reason: String,
    },
    Fail {
        name: String,
        reason: String,
    },
}
