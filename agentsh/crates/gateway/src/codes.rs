//! Every refusal of the gateway: its code, for a header, the journal and the error, and its HTTP status. The codes are
//! those of ThornGuard's steps.

use hyper::StatusCode;

use crate::json::{self, Json};

/// Refusals are shorter.
const MAX_LENGTH: usize = 64 << 10;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// A page of another origin, or an unknown host name.
    Origin,
    /// No key, or an unknown one.
    Unauthenticated,
    /// A key or token without this permission.
    Unauthorized,
    /// The token cannot be verified now.
    Unverifiable,
    Network,
    /// More requests or sessions than the gateway allows.
    Rate,
    /// More calls than the policy allows.
    PolicyRate,
    Malformed,
    NotAcceptable,
    TooSlow,
    TooLong,
    MediaType,
    /// No such session.
    NoSession,
    /// The request names no session.
    SessionMissing,
    /// The session has ended.
    Ended,
    /// An open request has this id.
    SameId,
    TooManyOpen,
    TooManyConnections,
    Internal,
    /// The session ended before an answer.
    BrokenOff,
    /// The server's URL is not encrypted.
    InsecureTarget,
    /// The server's address is not public, or unresolvable.
    Ssrf,
    Policy,
    Domain,
    /// A harmful command.
    Malicious,
    Approval,
    ToolPoisoning,
    /// A changed tool waits for approval.
    ToolReviewRequired,
    /// A tool that was not approved.
    ToolReview,
    ToolQuarantine,
    Pii,
    Anomaly,
    /// The server, or the connection to it, failed. The answer is a server error.
    Upstream,
}

impl Code {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.parts().0
    }

    /// The HTTP status for a refusal. A protocol error has 200.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.parts().1
    }

    fn parts(self) -> (&'static str, StatusCode) {
        match self {
            Self::Origin => ("BLOCKED_ORIGIN", StatusCode::FORBIDDEN),
            Self::Unauthenticated => ("BLOCKED_AUTH", StatusCode::UNAUTHORIZED),
            Self::Unauthorized => ("BLOCKED_AUTH", StatusCode::FORBIDDEN),
            Self::Unverifiable => ("BLOCKED_AUTH", StatusCode::SERVICE_UNAVAILABLE),
            Self::Network => ("BLOCKED_IP_WHITELIST", StatusCode::FORBIDDEN),
            Self::Rate => ("BLOCKED_RATE_LIMIT", StatusCode::TOO_MANY_REQUESTS),
            Self::PolicyRate => ("BLOCKED_RATE_LIMIT", StatusCode::OK),
            Self::Malformed => ("BLOCKED_MALFORMED", StatusCode::BAD_REQUEST),
            Self::NotAcceptable => ("BLOCKED_MALFORMED", StatusCode::NOT_ACCEPTABLE),
            Self::TooSlow => ("BLOCKED_MALFORMED", StatusCode::REQUEST_TIMEOUT),
            Self::TooLong => ("BLOCKED_MALFORMED", StatusCode::PAYLOAD_TOO_LARGE),
            Self::MediaType => ("BLOCKED_MALFORMED", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Self::NoSession => ("NO_SESSION", StatusCode::NOT_FOUND),
            Self::SessionMissing => ("NO_SESSION", StatusCode::BAD_REQUEST),
            Self::Ended => ("NOT_SENT", StatusCode::NOT_FOUND),
            Self::SameId => ("NOT_SENT", StatusCode::BAD_REQUEST),
            Self::TooManyOpen => ("NOT_SENT", StatusCode::TOO_MANY_REQUESTS),
            Self::TooManyConnections => ("TOO_MANY_CONNECTIONS", StatusCode::SERVICE_UNAVAILABLE),
            Self::Internal => ("INTERNAL_ERROR", StatusCode::INTERNAL_SERVER_ERROR),
            Self::BrokenOff => ("UPSTREAM_ERROR", StatusCode::BAD_GATEWAY),
            Self::InsecureTarget => ("BLOCKED_INSECURE_TARGET", StatusCode::BAD_REQUEST),
            Self::Ssrf => ("BLOCKED_SSRF", StatusCode::FORBIDDEN),
            Self::Policy => ("BLOCKED_POLICY", StatusCode::OK),
            Self::Domain => ("BLOCKED_CUSTOM_DOMAIN", StatusCode::OK),
            Self::Malicious => ("BLOCKED_MALICIOUS", StatusCode::BAD_REQUEST),
            Self::Approval => ("BLOCKED_APPROVAL", StatusCode::OK),
            Self::ToolPoisoning => ("TOOL_POISONING_DETECTED", StatusCode::OK),
            Self::ToolReviewRequired => ("TOOL_REVIEW_REQUIRED", StatusCode::OK),
            Self::ToolReview => ("BLOCKED_TOOL_REVIEW", StatusCode::OK),
            Self::ToolQuarantine => ("BLOCKED_TOOL_QUARANTINE", StatusCode::OK),
            Self::Pii => ("BLOCKED_PII", StatusCode::OK),
            Self::Anomaly => ("ANOMALY_DETECTED", StatusCode::OK),
            Self::Upstream => ("UPSTREAM_ERROR", StatusCode::OK),
        }
    }

    /// The code of an error from the proxy or the connection to the server.
    pub(crate) fn of_answer(answer: &[u8]) -> Option<Self> {
        if answer.len() > MAX_LENGTH {
            return None;
        }
        Self::of_error(&json::read(answer).ok()?)
    }

    fn of_error(answer: &Json<'_>) -> Option<Self> {
        let data = answer.member("error")?.member("data")?;
        let reason = data.member("reason")?.as_text()?;
        let rule = data.member("rule").and_then(Json::as_text).unwrap_or_default();
        Self::of_refusal(&reason, &rule)
    }

    /// The code for a reason of the proxy and its rule.
    fn of_refusal(reason: &str, rule: &str) -> Option<Self> {
        let is_about_changes = rule.contains(".version_pinning");
        Some(match reason {
            "insecure-target" => Self::InsecureTarget,
            "target-not-public" | "target-not-resolved" | "other-origin" => Self::Ssrf,
            "server-denied"
            | "server-not-allowlisted"
            | "tool-denied"
            | "tool-not-allowlisted"
            | "unknown-tool"
            | "policy-rule"
            | "request-not-allowed"
            | "tainted-data"
            | "private-to-external"
            | "read-then-send"
            | "cross-server-flow"
            | "tool-shadowed"
            | "server-name-similar"
            | "audit-flagged"
            | "audit-timed-out"
            | "audit-failed" => Self::Policy,
            "destination-not-allowed" => Self::Domain,
            // A command in arguments; other rules judge texts of servers.
            "content-suspicious" if rule.contains("content.arguments") => Self::Malicious,
            "content-suspicious" | "not-classified" => Self::ToolPoisoning,
            "approval-timed-out" | "nobody-to-ask" if is_about_changes => Self::ToolReviewRequired,
            "approval-denied" if is_about_changes => Self::ToolReview,
            "approval-denied" | "approval-timed-out" | "nobody-to-ask" => Self::Approval,
            "interface-changed" => Self::ToolQuarantine,
            "interface-added" | "interface-not-pinned" | "interface-not-vouched" | "tool-not-listed" => {
                Self::ToolReview
            }
            "secret-found" => Self::Pii,
            "rate-limited" | "burst" | "too-many-requests" => Self::PolicyRate,
            "unusual" => Self::Anomaly,
            "upstream-failed"
            | "server-ended"
            | "server-not-started"
            | "start-failed"
            | "timed-out"
            | "server-does-not-read"
            | "oversized-line" => Self::Upstream,
            _ => return None,
        })
    }
}

/// A refusal with its code (`error.data.code`). None: it is not a refusal.
pub(crate) fn with_refusal_code(answer: &[u8]) -> Option<Vec<u8>> {
    if answer.len() > MAX_LENGTH {
        return None;
    }
    let mut tree = json::read(answer).ok()?;
    let code = Json::String(Code::of_error(&tree)?.as_str());
    let data = tree.member_mut("error")?.member_mut("data")?;
    match (data.member("code").is_some(), data) {
        (true, data) => *data.member_mut("code")? = code,
        (false, Json::Object(members)) => members.push(("code", code)),
        (false, _) => return None,
    }
    Some(tree.to_compact().into_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn a_refusal_of_the_proxy_has_a_code_and_an_error_of_the_server_has_none() {
        let of = |data: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32001,"message":"x","data":{data}}}}}"#
            );
            assert_eq!(
                with_refusal_code(text.as_bytes()).is_some(),
                Code::of_answer(text.as_bytes()).is_some()
            );
            Code::of_answer(text.as_bytes()).map(Code::as_str)
        };
        assert_eq!(of(r#"{"reason":"policy-rule"}"#), Some("BLOCKED_POLICY"));
        let by = |reason: &str, rule: &str| of(&format!(r#"{{"reason":"{reason}","rule":"{rule}"}}"#));
        let of_content =
            |key: &str| by("content-suspicious", &format!("p.yaml:3 (sandbox.mcp.content.{key})"));
        assert_eq!(of_content("arguments"), Some("BLOCKED_MALICIOUS"));
        assert_eq!(of_content("results"), Some("TOOL_POISONING_DETECTED"));
        assert_eq!(by("nobody-to-ask", "p.yaml:3 (sandbox.mcp.rules)"), Some("BLOCKED_APPROVAL"));
        let pinned = "p.yaml:3 (sandbox.mcp.version_pinning)";
        assert_eq!(by("nobody-to-ask", pinned), Some("TOOL_REVIEW_REQUIRED"));
        assert_eq!(by("approval-denied", pinned), Some("BLOCKED_TOOL_REVIEW"));
        assert_eq!(of(r#"{"reason":"of-the-server"}"#), None);
        assert_eq!(of("1"), None);
        assert_eq!(
            Code::of_answer(br#"{"jsonrpc":"2.0","id":1,"result":{"data":{"reason":"policy-rule"}}}"#),
            None
        );
    }

    #[test]
    fn gateway_error_code_cannot_be_set_by_a_server() {
        let error = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"x","data":{"code":"FINE","reason":"unusual"}}}"#;
        let marked: serde_json::Value = serde_json::from_slice(&with_refusal_code(error).unwrap()).unwrap();
        assert_eq!(
            marked["error"]["data"],
            serde_json::json!({"code": "ANOMALY_DETECTED", "reason": "unusual"})
        );
    }
}
