//! Tools for requests: status, errors, and commands of operators.

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
    /// Only requests in these statuses, comma-separated: `held`, `active`, `queued`, `completed`, …
    status: Option<String>,
    /// Only requests with a matching name; `*` matches any text.
    name: Option<String>,
    /// Maximum number of requests. Default: 50, maximum: 500.
    limit: Option<u64>,
    /// Number of requests to skip. Default: 0.
    offset: Option<u64>,
}

pub(super) fn list_requests(session: &AgentSession, args: &ListRequestsInput) -> ToolResult {
    let page = PageRange::new(args.offset, args.limit);
    let asked = RequestToolCall::List {
        status: args.status.clone(),
        name: args.name.clone(),
        offset: page.offset,
        limit: page.fetch_limit(),
    };
    match session.actions.perform_request_call(&asked)? {
        Value::Array(rows) => Ok(page.render_page(rows, |row| row)),
        other => Ok(other),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestInput {
    /// Name of the request.
    request_name: String,
}

pub(super) fn get_request(session: &AgentSession, args: &RequestInput) -> ToolResult {
    session.actions.perform_request_call(&RequestToolCall::Show { name: args.request_name.clone() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestErrorsInput {
    /// Name of the request.
    request_name: String,
    /// Count all rounds. Default: the current round and its rescues.
    #[serde(default)]
    all_rounds: bool,
}

pub(super) fn get_request_errors(session: &AgentSession, args: &RequestErrorsInput) -> ToolResult {
    let asked = RequestToolCall::Errors { name: args.request_name.clone(), all_rounds: args.all_rounds };
    let mut answer = session.actions.perform_request_call(&asked)?;
    if let Value::Object(fields) = &mut answer {
        fields.insert("note".to_owned(), json!(output_redaction::OUTPUT_NOTICE));
    }
    Ok(answer)
}

/// All fields of a release. Absent fields are not sent.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseRequestInput {
    /// Name of the request.
    #[serde(skip_serializing)]
    request_name: String,
    /// Reason in one sentence; it is recorded.
    reason: String,
    /// Run the failed work units again within the same round instead of leaving them to the next round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rescue: bool,
    /// Sites to ban for this request for a limited time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    site_bans: Vec<String>,
    /// Duration of the bans in seconds. Default: the server's setting for automatic bans.
    #[serde(skip_serializing_if = "Option::is_none")]
    ban_seconds: Option<i64>,
    /// Memory of a job (all cores together), in MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_mb: Option<i64>,
    /// Seconds per event, for rounds planned from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_per_event_sec: Option<f64>,
    /// Number of retries of a processing job.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_count: Option<i64>,
    /// Share of failed work units (0 to 1) from which the request is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_hold_threshold: Option<f64>,
    /// Maximum number of automatic rescues of a round after failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_rescue_attempts: Option<i64>,
    /// Input files to exclude from now on, by logical name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    excluded_files: Vec<String>,
    /// Must be true. Ask your user first, and explain what will happen.
    #[serde(default, skip_serializing)]
    confirm: bool,
}

pub(super) fn release_request(session: &AgentSession, args: &ReleaseRequestInput) -> ToolResult {
    let body = serde_json::to_value(args).map_err(|why| ToolError::new(why.to_string()))?;
    let name = check_confirmed(session, &args.request_name, args.confirm, "release it")?;
    session.actions.perform_request_call(&RequestToolCall::Release { name, body })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EndRequestInput {
    /// Name of the request.
    request_name: String,
    /// Reason in one sentence; it is recorded.
    reason: String,
    /// Must be true. Ask your user first, and explain what will happen.
    #[serde(default)]
    confirm: bool,
}

pub(super) fn stop_request(session: &AgentSession, args: &EndRequestInput) -> ToolResult {
    let name = check_confirmed(session, &args.request_name, args.confirm, "stop its run cleanly")?;
    session.actions.perform_request_call(&RequestToolCall::Stop { name, reason: args.reason.clone() })
}

pub(super) fn fail_request(session: &AgentSession, args: &EndRequestInput) -> ToolResult {
    let what = "fail it permanently, and end its running jobs";
    let name = check_confirmed(session, &args.request_name, args.confirm, what)?;
    session.actions.perform_request_call(&RequestToolCall::Fail { name, reason: args.reason.clone() })
}

/// Returns the name of the request if the command is confirmed.
fn check_confirmed(
    session: &AgentSession,
    name: &str,
    confirm: bool,
    what: &str,
) -> Result<String, ToolError> {
    let shown = session.actions.perform_request_call(&RequestToolCall::Show { name: name.to_owned() })?;
    if confirm {
        return Ok(name.to_owned());
    }
    let status = shown["status"].as_str().unwrap_or("unknown");
    Err(ToolError::new(format!("nothing was done. Request {name} is {status}; this would {what}."))
        .with_hint("ask your user; with their approval call this again with confirm: true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_body_has_only_given_fields() {
        let args = json!({"request_name": "reco", "reason": "mended", "site_bans": ["T2_A"], "ban_seconds": 60, "confirm": true});
        let release: ReleaseRequestInput = serde_json::from_value(args).unwrap();
        let expected = json!({"reason": "mended", "site_bans": ["T2_A"], "ban_seconds": 60});
        assert_eq!(serde_json::to_value(&release).unwrap(), expected);
        let unknown = json!({"request_name": "reco", "reason": "", "force": true});
        assert!(serde_json::from_value::<ReleaseRequestInput>(unknown).is_err());
    }
}
