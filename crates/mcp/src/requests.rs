//! What agents ask about requests and have done to them. The books of a desk have no requests: whoever acts for the agent
//! asks those who keep them, in the name of its person.

use serde_json::Value;

/// A question, or something to be done. What is done needs a word of the agent's user, which is looked for before.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestToolCall {
    /// Answered with a list of them, by name.
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
    /// As the body of `POST /requests/NAME/release`.
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
