//! Requests: how they stand, what went wrong in them, and what operators do about that.

use super::Answer;
use super::page::Page;
use crate::desk::{Desk, Trouble};
use crate::requests::AboutRequests;
use crate::shown;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    /// Only those in this status: `held`, `active`, `queued`, `completed`, …; several with commas.
    status: Option<String>,
    /// Only those whose name is like this; `*` stands for anything.
    name: Option<String>,
    /// At most so many (50; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
}

pub(super) fn list(desk: &Desk, args: &List) -> Answer {
    let page = Page::new(args.offset, args.limit);
    let asked = AboutRequests::List {
        status: args.status.clone(),
        name: args.name.clone(),
        offset: page.offset,
        limit: page.asked(),
    };
    match desk.hands.requests(&asked)? {
        Value::Array(rows) => Ok(page.show(rows, |row| row)),
        other => Ok(other),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct One {
    request_name: String,
}

pub(super) fn get(desk: &Desk, args: &One) -> Answer {
    desk.hands.requests(&AboutRequests::Show { name: args.request_name.clone() })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Errors {
    request_name: String,
    /// Over all its rounds; otherwise the present one and its rescues.
    #[serde(default)]
    all_rounds: bool,
}

pub(super) fn errors(desk: &Desk, args: &Errors) -> Answer {
    let asked = AboutRequests::Errors { name: args.request_name.clone(), all_rounds: args.all_rounds };
    let mut answer = desk.hands.requests(&asked)?;
    if let Value::Object(fields) = &mut answer {
        fields.insert("note".to_owned(), json!(shown::NOTE));
    }
    Ok(answer)
}

/// All that a release can say. What is not said is not sent on.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
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

pub(super) fn release(desk: &Desk, args: &Release) -> Answer {
    let body = serde_json::to_value(args).map_err(|why| Trouble::refused(why.to_string()))?;
    let name = confirmed(desk, &args.request_name, args.confirm, "let it go on")?;
    desk.hands.requests(&AboutRequests::Release { name, body })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ended {
    request_name: String,
    /// Why, in a sentence. It is kept.
    reason: String,
    /// Must be true. Ask your user first, and say what will happen.
    #[serde(default)]
    confirm: bool,
}

pub(super) fn stop(desk: &Desk, args: &Ended) -> Answer {
    let name = confirmed(desk, &args.request_name, args.confirm, "stop its run cleanly")?;
    desk.hands.requests(&AboutRequests::Stop { name, reason: args.reason.clone() })
}

pub(super) fn fail(desk: &Desk, args: &Ended) -> Answer {
    let what = "give it up for good, and end what runs of it";
    let name = confirmed(desk, &args.request_name, args.confirm, what)?;
    desk.hands.requests(&AboutRequests::Fail { name, reason: args.reason.clone() })
}

/// The name of the request, if it is meant.
fn confirmed(desk: &Desk, name: &str, confirm: bool, what: &str) -> Result<String, Trouble> {
    let shown = desk.hands.requests(&AboutRequests::Show { name: name.to_owned() })?;
    if confirm {
        return Ok(name.to_owned());
    }
    let status = shown["status"].as_str().unwrap_or("unknown");
    Err(Trouble::refused(format!("nothing was done. Request {name} is {status}; this would {what}."))
        .with_hint("ask your user; if that is wanted, call this again with confirm: true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_says_what_was_said_and_nothing_else() {
        let args = json!({"request_name": "reco", "reason": "mended", "site_bans": ["T2_A"], "ban_seconds": 60, "confirm": true});
        let release: Release = serde_json::from_value(args).unwrap();
        let expected = json!({"reason": "mended", "site_bans": ["T2_A"], "ban_seconds": 60});
        assert_eq!(serde_json::to_value(&release).unwrap(), expected);
        let unknown = json!({"request_name": "reco", "reason": "", "force": true});
        assert!(serde_json::from_value::<Release>(unknown).is_err());
    }
}
