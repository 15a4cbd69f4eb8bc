//! The codes of refusals that happen behind the door: which of ThornGuard's steps a stable reason of the proxy belongs to.
//! They stand in a header and in the record; the reason and its rule are in the answer itself.

use crate::json;

/// Longer answers are no refusals.
const LONGEST: usize = 64 << 10;

/// The code of an answer that is a refusal of the proxy, or an error of the way to the server.
pub fn of_answer(answer: &[u8]) -> Option<&'static str> {
    if answer.len() > LONGEST {
        return None;
    }
    let tree = json::read(answer).ok()?;
    let data = tree.member("error")?.member("data")?;
    let reason = data.member("reason")?.as_text()?;
    let rule = data.member("rule").and_then(json::Json::as_text).unwrap_or_default();
    of(&reason, &rule)
}

fn of(reason: &str, rule: &str) -> Option<&'static str> {
    Some(match reason {
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
        | "audit-failed" => "BLOCKED_POLICY",
        "destination-not-allowed" => "BLOCKED_CUSTOM_DOMAIN",
        // A command in arguments; what a server says is judged by other rules.
        "content-suspicious" if rule.contains("content.arguments") => "BLOCKED_MALICIOUS",
        "content-suspicious" | "not-classified" => "TOOL_POISONING_DETECTED",
        "approval-denied" | "approval-timed-out" | "nobody-to-ask" => "BLOCKED_APPROVAL",
        "interface-changed" => "BLOCKED_TOOL_QUARANTINE",
        "interface-added" | "interface-not-pinned" | "interface-not-vouched" | "tool-not-listed" => {
            "BLOCKED_TOOL_REVIEW"
        }
        "secret-found" => "BLOCKED_PII",
        "rate-limited" | "burst" | "too-many-requests" => "BLOCKED_RATE_LIMIT",
        "unusual" => "ANOMALY_DETECTED",
        "upstream-failed"
        | "server-ended"
        | "server-not-started"
        | "start-failed"
        | "timed-out"
        | "server-does-not-read"
        | "oversized-line" => "UPSTREAM_ERROR",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_proxy_has_a_code_and_an_error_of_the_server_has_none() {
        let of = |data: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32001,"message":"x","data":{data}}}}}"#
            );
            of_answer(text.as_bytes())
        };
        assert_eq!(of(r#"{"reason":"policy-rule"}"#), Some("BLOCKED_POLICY"));
        let by = |rule: &str| of(&format!(r#"{{"reason":"content-suspicious","rule":"{rule}"}}"#));
        assert_eq!(by("p.yaml:3 (sandbox.mcp.content.arguments)"), Some("BLOCKED_MALICIOUS"));
        assert_eq!(by("p.yaml:3 (sandbox.mcp.content.results)"), Some("TOOL_POISONING_DETECTED"));
        assert_eq!(of(r#"{"reason":"of-the-server"}"#), None);
        assert_eq!(of("1"), None);
        assert_eq!(
            of_answer(br#"{"jsonrpc":"2.0","id":1,"result":{"data":{"reason":"policy-rule"}}}"#),
            None
        );
    }
}
