//! CORS for the configured origins.

use hyper::StatusCode;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};

use super::admission::{Refusal, check_origin};
use super::config::Config;
use super::reply::{self, Answer};

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, DELETE, OPTIONS");
/// Response headers that a page may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Mcp-Session-Id, WWW-Authenticate, Retry-After, x-agentsh-log-id, x-agentsh-trace-id, x-agentsh-code, \
     x-agentsh-active-advisories, x-agentsh-highest-advisory-severity",
);
/// Seconds for which a browser caches the permission.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The requesting page's origin, if permitted.
pub fn origin(config: &Config, headers: &HeaderMap) -> Option<HeaderValue> {
    check_origin(config, headers).ok()?;
    headers.get(ORIGIN).cloned()
}

/// The answer to OPTIONS, which has no key.
///
/// # Errors
/// When the page's origin is not permitted.
pub fn preflight(config: &Config, headers: &HeaderMap) -> Result<Answer, Refusal> {
    check_origin(config, headers)?;
    let mut answer = reply::empty(StatusCode::NO_CONTENT);
    answer.headers_mut().insert(ALLOW, METHODS);
    if headers.contains_key(ORIGIN) {
        answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        answer.headers_mut().insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        // Argument headers (`Mcp-Param-*`) have any name, so there is no list.
        let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        answer.headers_mut().extend(asked.map(|asked| (ACCESS_CONTROL_ALLOW_HEADERS, asked)));
    }
    Ok(answer)
}

/// The answer to other methods.
pub fn no_such_method() -> Answer {
    let mut answer = reply::empty(StatusCode::METHOD_NOT_ALLOWED);
    answer.headers_mut().insert(ALLOW, METHODS);
    answer
}

/// Lets the page read the response.
pub fn show(origin: Option<HeaderValue>, answer: &mut Answer) {
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Origin, Access-Control-Request-Headers"));
    if let Some(origin) = origin {
        answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        answer.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
}
