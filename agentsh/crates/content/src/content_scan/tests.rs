#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use agentsh_base::json;
use agentsh_base::types::ServerId;
use agentsh_guard::PrecomputedFinding;
use agentsh_policy::{OnSecret, Ruled};

use super::*;

/// A name cannot get a tag, so a policy that redacts refuses it.
#[test]
fn secret_anywhere_in_a_message_to_a_server_counts() {
    let key = concat!("ghp_", "Zk3mQ8vT1xLp7RwYb2NcHd6JsFg9AeUi4oKq");
    let mut policy = McpPolicy::default();
    policy.secrets.arguments = Some(Ruled { value: OnSecret::Redact, rule: RuleRef::default_rule("x") });
    let scan = ContentScan::new(&policy);
    let server = ServerId("s".to_owned());
    let outcome = |matter: SubjectKind<'_>| {
        let mut report = Report::default();
        let (audience, caller, now, turn, seen) =
            ("", None, Duration::ZERO, None, PrecomputedFinding::NOTHING);
        let subject =
            Subject { server: &server, matter, audience, caller, now, turn, is_promised: false, seen };
        scan.inspect(&subject, &mut report);
        (report.is_blocked(), report.rewrites().len())
    };
    let texts = [format!(r#"{{"a": "{key}"}}"#), format!(r#"{{"{key}": 1}}"#), r#"{"a": "b"}"#.to_owned()];
    let values: Vec<Json<'_>> = texts.iter().map(|text| json::read(text.as_bytes()).unwrap()).collect();
    let call =
        |arguments| SubjectKind::Call { tool: "t", hash: None, unlisted: false, arguments: Some(arguments) };
    assert_eq!(
        values.iter().map(|value| outcome(call(value))).collect::<Vec<_>>(),
        [(false, 1), (true, 0), (false, 0)]
    );
    let request = |value| SubjectKind::Request { method: "resources/read", params: Some(value) };
    let around = |value| SubjectKind::Around { name: "t", rest: value };
    for value in &values[..2] {
        assert!(outcome(request(value)).0 && outcome(around(value)).0, "{value:?}");
    }
    assert!(!outcome(request(&values[2])).0 && !outcome(around(&values[2])).0);
}
