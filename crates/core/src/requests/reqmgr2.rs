//! Responses of ReqMgr2 to a lookup of a request by name, and their retries.
//!
//! For an unknown request it answers 200 with an empty list; its errors are HTML pages with machine-readable
//! headers (reference: services 3).

use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// The relevant parts of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReqmgrReply<'a> {
    pub status: u16,
    /// `X-Error-Detail`, if it describes the error.
    pub detail: Option<&'a str>,
    /// The target of a redirect.
    pub location: Option<&'a str>,
    pub body: &'a [u8],
}

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReqmgrRefusal {
    /// It has no request of that name.
    Unknown,
    /// The address of the request API does not exist.
    WrongAddress,
    /// This client is not authenticated or not authorized.
    Denied(String),
    /// It has an internal error, or is overloaded.
    Busy(String),
    /// It rejects the query.
    Refused(String),
    /// This is not a response of ReqMgr2.
    Unexpected(String),
}

impl ReqmgrRefusal {
    /// Whether a retry may succeed.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

impl fmt::Display for ReqmgrRefusal {
    /// Follows `ReqMgr2 at URL`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("has no request of that name"),
            Self::WrongAddress => f.write_str("answers 404: wrong address"),
            Self::Denied(why) => write!(f, "denies access: {why}"),
            Self::Busy(why) => write!(f, "is unavailable: {why}"),
            Self::Refused(why) => write!(f, "rejects the query: {why}"),
            Self::Unexpected(why) => write!(f, "sends an invalid response: {why}"),
        }
    }
}

/// Returns the document of the request with this name.
pub fn parse_document(name: &str, reply: &ReqmgrReply<'_>) -> Result<Value, ReqmgrRefusal> {
    match reply.status {
        200..=299 => find_document(name, reply.body),
        // Its frontend redirects unauthenticated clients to a login page.
        300..=399 => {
            let to =
                reply.location.map(|to| format!(", redirecting to {}", one_line(to))).unwrap_or_default();
            Err(ReqmgrRefusal::Denied(format!("{}{to}", describe_status(reply))))
        }
        401 | 403 | 407 => Err(ReqmgrRefusal::Denied(describe_status(reply))),
        404 => Err(ReqmgrRefusal::WrongAddress),
        408 | 425 | 429 | 500.. => Err(ReqmgrRefusal::Busy(describe_status(reply))),
        _ => Err(ReqmgrRefusal::Refused(describe_status(reply))),
    }
}

/// `403: not authorized`
fn describe_status(reply: &ReqmgrReply<'_>) -> String {
    match reply.detail.map(one_line).filter(|detail| !detail.is_empty()) {
        Some(detail) => format!("{}: {detail}", reply.status),
        None => format!("it answers {}", reply.status),
    }
}

/// Reduces a foreign text to one line for people.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    plain.trim().to_owned()
}

/// `{"result": [{NAME: {…}}]}`
fn find_document(name: &str, body: &[u8]) -> Result<Value, ReqmgrRefusal> {
    let odd = |why: &str| Err(ReqmgrRefusal::Unexpected(why.to_owned()));
    let answer: Value = serde_json::from_slice(body).map_err(|error| {
        let looks_like_page = body.trim_ascii_start().starts_with(b"<");
        let why = if looks_like_page { "it is an HTML page".to_owned() } else { error.to_string() };
        ReqmgrRefusal::Unexpected(why)
    })?;
    let Some(result) = answer.get("result").and_then(Value::as_array) else {
        return odd("it has no list `result`");
    };
    let entries: Option<Vec<&Map<String, Value>>> = result.iter().map(Value::as_object).collect();
    let Some(entries) = entries else { return odd("`result` contains other values than documents") };
    let mut documents = entries.into_iter().flatten();
    match (documents.next(), documents.next()) {
        (None, _) => Err(ReqmgrRefusal::Unknown),
        (Some((key, Value::Object(document))), None) if key == name => {
            let mut document = document.clone();
            let inside = document.entry("RequestName").or_insert_with(|| name.into());
            if inside.as_str() == Some(name) {
                return Ok(Value::Object(document));
            }
            odd(&format!("`RequestName` in the document of `{name}` is {}", one_line(&inside.to_string())))
        }
        (Some((key, _)), None) if key != name => odd(&format!("it is the document of `{}`", one_line(key))),
        (Some(_), None) => odd("the document is not an object"),
        (Some(_), Some(_)) => odd("it contains several requests"),
    }
}

/// Before the first retry.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(8);

/// Returns the delay before the next retry, by the number of attempts and the elapsed time; `None`: no more
/// retries. Respects the delay that the server asked for.
pub fn retry_delay(
    asked: u32,
    spent: Duration,
    limit: Duration,
    requested: Option<Duration>,
) -> Option<Duration> {
    let doubled = FIRST_DELAY.saturating_mul(1 << asked.saturating_sub(1).min(8)).min(MAX_DELAY);
    let pause = requested.map_or(doubled, |requested| requested.max(doubled));
    (spent.saturating_add(pause) < limit).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reply(status: u16, body: &[u8]) -> ReqmgrReply<'_> {
        ReqmgrReply { status, body, ..ReqmgrReply::default() }
    }

    #[test]
    fn document_is_read_from_the_answer() {
        let name = "user_r_1";
        let body = json!({"result": [{name: {"RequestName": name, "Memory": 2000}}]}).to_string();
        let document = parse_document(name, &reply(200, body.as_bytes())).unwrap();
        assert_eq!(document, json!({"RequestName": name, "Memory": 2000}));
    }

    #[test]
    fn document_without_a_name_gets_the_requested_name() {
        let body = json!({"result": [{"a": {"Memory": 1}}]}).to_string();
        let document = parse_document("a", &reply(200, body.as_bytes())).unwrap();
        assert_eq!(document, json!({"RequestName": "a", "Memory": 1}));
    }

    #[test]
    fn invalid_answers_have_specific_errors() {
        let table: &[(&str, &str)] = &[
            (r#"{"result": []}"#, "has no request of that name"),
            (r#"{"result": [{}]}"#, "has no request of that name"),
            ("<html>log in</html>", "it is an HTML page"),
            ("{", "sends an invalid response: EOF while parsing an object at line 1 column 1"),
            ("[]", "it has no list `result`"),
            (r#"{"result": {}}"#, "it has no list `result`"),
            (r#"{"result": ["a"]}"#, "`result` contains other values than documents"),
            (r#"{"result": [{"b": {}}]}"#, "it is the document of `b`"),
            (r#"{"result": [{"a": {}}, {"b": {}}]}"#, "it contains several requests"),
            (r#"{"result": [{"a": null}]}"#, "the document is not an object"),
            (r#"{"result": [{"a": {"RequestName": "b"}}]}"#, "`RequestName` in the document of `a` is \"b\""),
        ];
        for (body, words) in table {
            let refusal = parse_document("a", &reply(200, body.as_bytes())).unwrap_err();
            assert!(refusal.to_string().ends_with(words), "{body}: {refusal}");
            assert!(!refusal.is_transient(), "{body}");
        }
    }

    #[test]
    fn refusals_are_distinguished_by_http_status() {
        let detail = Some("no\nrole");
        let table = [
            (302, ReqmgrRefusal::Denied("302: no role, redirecting to https://login".to_owned()), false),
            (401, ReqmgrRefusal::Denied("401: no role".to_owned()), false),
            (403, ReqmgrRefusal::Denied("403: no role".to_owned()), false),
            (404, ReqmgrRefusal::WrongAddress, false),
            (400, ReqmgrRefusal::Refused("400: no role".to_owned()), false),
            (429, ReqmgrRefusal::Busy("429: no role".to_owned()), true),
            (500, ReqmgrRefusal::Busy("500: no role".to_owned()), true),
            (503, ReqmgrRefusal::Busy("503: no role".to_owned()), true),
        ];
        for (status, expected, is_passing) in table {
            let reply = ReqmgrReply { status, detail, location: Some("https://login"), body: b"<html>" };
            assert_eq!(parse_document("a", &reply), Err(expected.clone()), "{status}");
            assert_eq!(expected.is_transient(), is_passing, "{status}");
        }
        let bare = parse_document("a", &reply(403, b"")).unwrap_err();
        assert_eq!(bare.to_string(), "denies access: it answers 403");
    }

    #[test]
    fn retry_delays_double_within_the_limit() {
        let limit = Duration::from_secs(30);
        let pauses: Vec<u64> = (1..8)
            .map_while(|asked| retry_delay(asked, Duration::ZERO, limit, None))
            .map(|pause| pause.as_millis() as u64)
            .collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(retry_delay(1, Duration::from_secs(29), limit, None), Some(FIRST_DELAY));
        assert_eq!(
            retry_delay(2, Duration::from_secs(29), limit, None),
            None,
            "the time limit would be exceeded"
        );
        let requested = |seconds| retry_delay(1, Duration::ZERO, limit, Some(Duration::from_secs(seconds)));
        assert_eq!(requested(0), Some(FIRST_DELAY));
        assert_eq!(requested(20), Some(Duration::from_secs(20)));
        assert_eq!(requested(60), None, "the delay is too long");
        assert_eq!(retry_delay(u32::MAX, Duration::MAX, limit, None), None);
    }
}
