//! Requests: how they stand, what went wrong in them, and what operators do about that.

use super::ToolResult;
use super::page::PageRange;
use crate::agent_session::{AgentSession, ToolError};
use crate::output_redaction;
use crate::requests::RequestToolCall;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListRequestsInput {
    /// Only those in this status: `held`, `active`, `queued`, `completed`, …; several with commas.
    status: Option<String>,
    /// Only those whose name is like this; `*` stands for anything.
    name: Option<String>,
    /// At most so many (50; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
}

pub(super) fn list_requests(desk: &AgentSession, args: &ListRequestsInput) -> ToolResult {
    let page = PageRange::new(args.offset, args.limit);
    let asked = RequestToolCall::List {
        status: args.status.clone(),
        name: args.name.clone(),
        offset: page.offset,
        limit: page.fetch_limit(),
    };
    match desk.actions.perform_request_call(&asked)? {
        Value::Array(rows) => Ok(page.render_page(rows, |row| row)),
        other => Ok(other),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestInput {
    request_name: String,
}

pub(super) fn get_request(desk: &AgentSession, args: &RequestInput) -> ToolResult {
    desk.actions.perform_request_call(&RequestToolCall::Show { name: args.request_name.clone() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestErrorsInput {
    request_name: String,
    /// Over all its rounds; otherwise the present one and its rescues.
    #[serde(default)]
    all_rounds: bool,
}

pub(super) fn get_request_errors(desk: &AgentSession, args: &RequestErrorsInput) -> ToolResult {
    let asked = RequestToolCall::Errors { name: args.request_name.clone(), all_rounds: args.all_rounds };
    let mut answer = desk.actions.perform_request_call(&asked)?;
    if let Value::Object(fields) = &mut answer {
        fields.insert("note".to_owned(), json!(output_redaction::OUTPUT_NOTICE));
    }
    Ok(answer)
}

/// All that a release can say. What is not said is not sent on.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseRequestInput {
    #[serde(skip_serializing)]
    request_name: String,
    /// Why, in a sentence. It is kept.
    reason: String,
    /// Try what failed once more within the same round, instead of leaving it to the next one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rescue: bool,
    /// Sites that get nothing more of it for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    site_bans: Vec<String>,
    /// For so long; otherwise as long as sites are banned by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    ban_seconds: Option<i64>,
    /// What a job gets, all its cores together.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_mb: Option<i64>,
    /// How long an event takes, for the rounds that are planned from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_per_event_sec: Option<f64>,
    /// How often a processing job is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_count: Option<i64>,
    /// From this share of failed work units on it is held, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_hold_threshold: Option<f64>,
    /// So often a round is rescued after failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_rescue_attempts: Option<i64>,
    /// Input files that are not to be read any more, by their logical names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    excluded_files: Vec<String>,
    /// Must be true. Ask your user first, and say what will happen.
    #[serde(default, skip_serializing)]
    confirm: bool,
}

pub(super) fn release_request(desk: &AgentSession, args: &ReleaseRequestInput) -> ToolResult {
    let body = serde_json::to_value(args).map_err(|why| ToolError::new(why.to_string()))?;
    let name = check_confirmed(desk, &args.request_name, args.confirm, "let it go on")?;
    desk.actions.perform_request_call(&RequestToolCall::Release { name, body })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EndRequestInput {
    request_name: String,
    /// Why, in a sentence. It is kept.
    reason: String,
    /// Must be true. Ask your user first, and say what will happen.
    #[serde(default)]
    confirm: bool,
}

pub(super) fn stop_request(desk: &AgentSession, args: &EndRequestInput) -> ToolResult {
    let name = check_confirmed(desk, &args.request_name, args.confirm, "stop its run cleanly")?;
    desk.actions.perform_request_call(&RequestToolCall::Stop { name, reason: args.reason.clone() })
}

pub(super) fn fail_request(desk: &AgentSession, args: &EndRequestInput) -> ToolResult {
    let what = "give it up for good, and end what runs of it";
    let name = check_confirmed(desk, &args.request_name, args.confirm, what)?;
    desk.actions.perform_request_call(&RequestToolCall::Fail { name, reason: args.reason.clone() })
}

/// The name of the request, if it is meant.
fn check_confirmed(desk: &AgentSession, name: &str, confirm: bool, what: &str) -> Result<String, ToolError> {
    let shown = desk.actions.perform_request_call(&RequestToolCall::Show { name: name.to_owned() })?;
    if confirm {
        return Ok(name.to_owned());
    }
    let status = shown["status"].as_str().unwrap_or("unknown");
    Err(ToolError::new(format!("nothing was done. Request {name} is {status}; this would {what}."))
        .with_hint("ask your user; if that is wanted, call this again with confirm: true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_says_what_was_said_and_nothing_else() {
        let args = json!({"request_name": "reco", "reason": "mended", "site_bans": ["T2_A"], "ban_seconds": 60, "confirm": true});
        let release: ReleaseRequestInput = serde_json::from_value(args).unwrap();
        let expected = json!({"reason": "mended", "site_bans": ["T2_A"], "ban_seconds": 60});
        assert_eq!(serde_json::to_value(&release).unwrap(), expected);
        let unknown = json!({"request_name": "reco", "reason": "", "force": true});
        assert!(serde_json::from_value::<ReleaseRequestInput>(unknown).is_err());
    }
}
