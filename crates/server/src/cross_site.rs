//! Rejects cross-site requests before any other processing.
//!
//! A browser adds credentials that a page does not know (a saved password, a client certificate), and with
//! `--no-auth` no credential is needed at all. Three checks protect every route:
//!
//! - a request that may change something must not come from a page of another origin (`Origin`,
//!   `Sec-Fetch-Site`);
//! - its body must have a media type that the route documents, none of which a form or a simple request can
//!   send;
//! - with `--no-auth` the `Host` must be a loopback name with the server's port, also for reads. Otherwise a
//!   page whose name resolves to 127.0.0.1 (DNS rebinding) would have the same origin as this server.

use crate::error::{API_PREFIX, ApiError, ApiResult, TORC_PREFIX};
use axum::body::HttpBody as _;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const JSON_MEDIA_TYPE: &str = "application/json";
/// Paths (without prefix) of routes whose bodies are not JSON. A test compares the list with the OpenAPI
/// document.
const NON_JSON_ROUTES: &[(&str, &str)] = &[("/store/create", "application/x-ndjson")];

/// Settings of the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrossSiteRules {
    /// Port of the server, if the `Host` of every request is checked.
    pub(crate) loopback_port: Option<u16>,
}

/// The middleware around every route.
pub(crate) async fn check_cross_site(
    State(rules): State<CrossSiteRules>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let has_body = !request.body().is_end_stream() && !declares_empty_body(request.headers());
    let checked = rules.check_request(request.method(), request.uri(), request.headers(), route, has_body);
    match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn declares_empty_body(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0")
}

impl CrossSiteRules {
    fn check_request(
        self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        route: Option<&str>,
        has_body: bool,
    ) -> ApiResult<()> {
        let host = request_host(uri, headers);
        if let Some(port) = self.loopback_port {
            check_host(host.as_ref(), port)?;
        }
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(());
        }
        check_origin(headers, host.as_ref())?;
        if has_body { check_media_type(headers, route) } else { Ok(()) }
    }
}

/// Returns the host that the request was addressed to; `None` if it is missing, unreadable or ambiguous.
fn request_host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut all = headers.get_all(HOST).iter();
    let first = all.next()?.to_str().ok()?.parse::<Authority>().ok()?;
    let is_one = all.next().is_none() && uri.authority().is_none_or(|named| is_same_authority(named, &first));
    is_one.then_some(first)
}

fn is_same_authority(one: &Authority, other: &Authority) -> bool {
    one.as_str().eq_ignore_ascii_case(other.as_str())
}

fn check_host(host: Option<&Authority>, port: u16) -> ApiResult<()> {
    let is_ours = host.is_some_and(|host| {
        let is_port = host.port_u16().map_or(matches!(port, 80 | 443), |named| named == port);
        is_port && is_loopback(host.host()) && !host.as_str().contains('@')
    });
    if is_ours {
        return Ok(());
    }
    let detail = "the Host header is not a loopback address with the server's port";
    Err(ApiError::new(StatusCode::FORBIDDEN, "foreign_host", detail).with_hint(format!(
        "a server with --no-auth accepts requests only at http://127.0.0.1:{port} and http://localhost:{port}"
    )))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Clients other than browsers send neither header.
fn check_origin(headers: &HeaderMap, host: Option<&Authority>) -> ApiResult<()> {
    let is_ours = |origin: &str| {
        let authority = origin.split_once("://").and_then(|(_, rest)| rest.parse::<Authority>().ok());
        authority.as_ref().zip(host).is_some_and(|(origin, host)| is_same_authority(origin, host))
    };
    let mut origins = headers.get_all(ORIGIN).iter();
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    let is_foreign = origins.any(|origin| !origin.to_str().is_ok_and(is_ours))
        || sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    if !is_foreign {
        return Ok(());
    }
    let detail = "a web page of another origin may not make changes";
    Err(ApiError::new(StatusCode::FORBIDDEN, "foreign_origin", detail)
        .with_hint("only pages of this server may; programs omit the headers Origin and Sec-Fetch-Site"))
}

fn check_media_type(headers: &HeaderMap, route: Option<&str>) -> ApiResult<()> {
    let expected = route_media_type(route.unwrap_or_default());
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    let media_type = first.and_then(|kind| kind.to_str().ok()?.split(';').next()).unwrap_or_default().trim();
    if second.is_none() && media_type.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let detail = format!("the body must be {expected}, with a matching content-type header");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail))
}

/// Returns the media type of the body that a route accepts.
fn route_media_type(route: &str) -> &'static str {
    let bare =
        [API_PREFIX, TORC_PREFIX].iter().find_map(|prefix| route.strip_prefix(prefix)).unwrap_or(route);
    NON_JSON_ROUTES.iter().find(|(path, _)| *path == bare).map_or(JSON_MEDIA_TYPE, |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const OPEN: CrossSiteRules = CrossSiteRules { loopback_port: Some(8080) };
    const SECURED: CrossSiteRules = CrossSiteRules { loopback_port: None };

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    fn code(
        rules: CrossSiteRules,
        method: &Method,
        pairs: &[(&'static str, &'static str)],
        has_body: bool,
    ) -> u16 {
        let uri = Uri::from_static("/api/v1/jobs");
        let checked = rules.check_request(method, &uri, &headers(pairs), Some("/api/v1/jobs"), has_body);
        checked.map_or_else(|error| error.status.as_u16(), |()| 200)
    }

    #[test]
    fn unauthenticated_host_is_loopback_with_server_port() {
        for (host, expected) in [
            ("127.0.0.1:8080", 200),
            ("127.0.0.53:8080", 200),
            ("localhost:8080", 200),
            ("LOCALHOST:8080", 200),
            ("[::1]:8080", 200),
            ("127.0.0.1", 403),
            ("127.0.0.1:80", 403),
            ("127.0.0.1:8081", 403),
            ("evil.example:8080", 403),
            ("localhost.evil.example:8080", 403),
            ("127.0.0.1.evil.example:8080", 403),
            ("evil@localhost:8080", 403),
            ("192.0.2.1:8080", 403),
            ("0.0.0.0:8080", 403),
            ("", 403),
        ] {
            for method in [Method::GET, Method::POST] {
                assert_eq!(code(OPEN, &method, &[("host", host)], false), expected, "{method} {host}");
                assert_eq!(code(SECURED, &method, &[("host", host)], false), 200, "{method} {host}");
            }
        }
        let two = [("host", "localhost:8080"), ("host", "evil.example")];
        assert_eq!(code(OPEN, &Method::GET, &two, false), 403);
        assert_eq!(code(OPEN, &Method::GET, &[], false), 403);
    }

    #[test]
    fn absolute_target_must_match_host_header() {
        let uri = Uri::from_static("http://evil.example:8080/api/v1/jobs");
        let host = headers(&[("host", "localhost:8080")]);
        assert!(OPEN.check_request(&Method::GET, &uri, &host, None, false).is_err());
    }

    #[test]
    fn changes_from_pages_of_other_origins_are_rejected() {
        for (name, value, expected) in [
            ("origin", "http://localhost:8080", 200),
            ("origin", "https://localhost:8080", 200),
            ("origin", "http://localhost:8081", 403),
            ("origin", "http://localhost", 403),
            ("origin", "http://evil.example", 403),
            ("origin", "null", 403),
            ("origin", "", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "none", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            for rules in [OPEN, SECURED] {
                let pairs = [("host", "localhost:8080"), (name, value)];
                for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                    assert_eq!(code(rules, &method, &pairs, false), expected, "{method} {name}: {value}");
                }
                assert_eq!(code(rules, &Method::GET, &pairs, false), 200, "{name}: {value}");
            }
        }
    }

    #[test]
    fn body_requires_json_content_type() {
        for (kind, expected) in [
            ("application/json", 200),
            ("Application/JSON; charset=utf-8", 200),
            ("text/plain", 415),
            ("text/plain;application/json", 415),
            ("application/x-www-form-urlencoded", 415),
            ("multipart/form-data", 415),
            ("", 415),
        ] {
            let pairs = [("host", "localhost:8080"), ("content-type", kind)];
            assert_eq!(code(OPEN, &Method::POST, &pairs, true), expected, "{kind}");
            assert_eq!(code(OPEN, &Method::POST, &pairs, false), 200, "no body: {kind}");
        }
        assert_eq!(code(OPEN, &Method::POST, &[("host", "localhost:8080")], true), 415);
    }

    /// As the document says, so it is checked: a route with a body of another media type is not forgotten.
    #[test]
    fn media_types_match_the_openapi_document() {
        let document = serde_json::to_value(crate::build_openapi()).unwrap();
        let mut others = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let Some(content) = operation["requestBody"]["content"].as_object() else { continue };
                let expected = route_media_type(path);
                assert_eq!(content.keys().collect::<Vec<_>>(), [expected], "{method} {path}");
                others += usize::from(expected != JSON_MEDIA_TYPE);
            }
        }
        assert_eq!(others, NON_JSON_ROUTES.len());
    }
}
