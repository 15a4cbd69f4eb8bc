#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use crate::decision::{Finding, Precompute, Severity};
use crate::json::Json;
use crate::policy::{ListMode, Rate, Ruled, ToolRule};
use crate::types::RuleRef;
use crate::verdict::{Outcome, Reason, Verdict};

use super::*;

const HASH: &str = "sha256:00aa";

fn at<T>(value: T, line: u64) -> Ruled<T> {
    Ruled { value, rule: RuleRef { id: format!("rule-{line}"), file: "policy.yaml".to_owned(), line } }
}

fn rule(server: &str, tool: &str, hash: Option<&str>) -> ToolRule {
    ToolRule { server: server.to_owned(), tool: tool.to_owned(), content_hash: hash.map(str::to_owned) }
}

fn enforced() -> McpPolicy {
    McpPolicy {
        enforce: true,
        server_policy_rule: Some(at((), 1).rule),
        tool_policy_rule: Some(at((), 2).rule),
        ..McpPolicy::default()
    }
}

fn called(guard: &mut Guard, server: &str, tool: &str, hash: Option<&str>, now: Duration) -> Verdict {
    let matter = SubjectKind::Call { tool, hash, unlisted: false, arguments: None };
    guard.decide(&ServerId(server.to_owned()), matter, now).verdict
}

fn sees(guard: &mut Guard, server: &str, name: &str, hash: &str) -> bool {
    let matter = SubjectKind::Definition { name, hash, definition: &Json::Null };
    !guard.decide(&ServerId(server.to_owned()), matter, Duration::ZERO).is_block()
}

fn call(policy: &McpPolicy, server: &str, tool: &str, hash: Option<&str>) -> (Outcome, Reason, u64) {
    let verdict = called(&mut Guard::new(policy), server, tool, hash, Duration::ZERO);
    (verdict.outcome, verdict.reason, verdict.rule.line)
}

#[test]
fn server_lists_allow_and_deny_servers() {
    let allow = McpPolicy {
        server_policy: ListMode::Allowlist,
        allowed_servers: vec![at("internal-*".to_owned(), 10), at("llm".to_owned(), 11)].into(),
        ..enforced()
    };
    let deny = McpPolicy {
        server_policy: ListMode::Denylist,
        denied_servers: vec![at("bad_?".to_owned(), 20)].into(),
        // A list of the other mode has no effect.
        allowed_servers: vec![at("bad_1".to_owned(), 21)].into(),
        ..enforced()
    };
    for (policy, server, outcome, reason, line) in [
        (&allow, "internal-db", Outcome::Allow, Reason::ServerAllowed, 10),
        (&allow, "llm", Outcome::Allow, Reason::ServerAllowed, 11),
        (&allow, "llm2", Outcome::Block, Reason::ServerNotAllowlisted, 1),
        (&deny, "bad_1", Outcome::Block, Reason::ServerDenied, 20),
        (&deny, "bad_10", Outcome::Allow, Reason::NoRule, 1),
        (&enforced(), "any", Outcome::Allow, Reason::NoRule, 1),
    ] {
        let verdict = Guard::new(policy)
            .decide(&ServerId(server.to_owned()), SubjectKind::Server, Duration::ZERO)
            .verdict;
        assert_eq!((verdict.outcome, verdict.reason, verdict.rule.line), (outcome, reason, line), "{server}");
    }
}

#[test]
fn tool_lists_match_by_pattern_and_hash() {
    let allow = McpPolicy {
        tool_policy: ListMode::Allowlist,
        allowed_tools: vec![
            at(rule("db", "query_*", Some("SHA256:x")), 29),
            at(rule("db", "query_*", Some("00AA")), 30),
            at(rule("*", "read", Some("")), 31),
        ]
        .into(),
        ..enforced()
    };
    let deny = McpPolicy {
        tool_policy: ListMode::Denylist,
        denied_tools: vec![at(rule("*", "exec_*", None), 40), at(rule("db", "drop", Some(HASH)), 41)].into(),
        ..enforced()
    };
    for (policy, server, tool, hash, expected) in [
        (&allow, "db", "query_a", Some(HASH), (Outcome::Allow, Reason::ToolAllowed, 30)),
        (&allow, "db", "query_a", Some("sha256:ff"), (Outcome::Block, Reason::ToolNotAllowlisted, 2)),
        (&allow, "db", "query_a", None, (Outcome::Block, Reason::ToolNotAllowlisted, 2)),
        (&allow, "db2", "query_a", Some(HASH), (Outcome::Block, Reason::ToolNotAllowlisted, 2)),
        (&allow, "x", "read", None, (Outcome::Allow, Reason::ToolAllowed, 31)),
        (&deny, "x", "exec_sh", None, (Outcome::Block, Reason::ToolDenied, 40)),
        (&deny, "x", "read", None, (Outcome::Allow, Reason::NoRule, 2)),
        (&deny, "db", "drop", Some(HASH), (Outcome::Block, Reason::ToolDenied, 41)),
        (&deny, "db", "drop", Some("sha256:ff"), (Outcome::Allow, Reason::NoRule, 2)),
        (&deny, "db", "drop", None, (Outcome::Block, Reason::ToolDenied, 41)),
    ] {
        assert_eq!(call(policy, server, tool, hash), expected, "{server} {tool} {hash:?}");
    }
}

#[test]
fn the_server_is_judged_before_the_tool() {
    let policy = McpPolicy {
        server_policy: ListMode::Denylist,
        denied_servers: vec![at("evil".to_owned(), 5)].into(),
        tool_policy: ListMode::Allowlist,
        allowed_tools: vec![at(rule("*", "*", None), 6)].into(),
        ..enforced()
    };
    assert_eq!(call(&policy, "evil", "read", None), (Outcome::Block, Reason::ServerDenied, 5));
    assert_eq!(call(&policy, "good", "read", None), (Outcome::Allow, Reason::ToolAllowed, 6));
}

#[test]
fn a_policy_that_is_not_enforced_only_alerts() {
    let policy = McpPolicy {
        enforce: false,
        tool_policy: ListMode::Denylist,
        denied_tools: vec![at(rule("*", "exec", None), 7)].into(),
        ..McpPolicy::default()
    };
    assert_eq!(call(&policy, "x", "exec", None), (Outcome::Alert, Reason::ToolDenied, 7));
    assert!(sees(&mut Guard::new(&policy), "x", "exec", HASH));
}

#[test]
fn fail_closed_wants_a_tool_that_is_listed_and_allowed() {
    let policy = McpPolicy {
        fail_closed: true,
        tool_policy: ListMode::Denylist,
        denied_tools: vec![at(rule("*", "exec", None), 7)].into(),
        allowed_tools: vec![at(rule("*", "read", None), 8)].into(),
        written: [("fail_closed".to_owned(), at((), 3).rule)].into(),
        ..enforced()
    };
    let unknown = (Outcome::Block, Reason::UnknownTool, 3);
    assert_eq!(call(&policy, "x", "read", Some(HASH)), (Outcome::Allow, Reason::NoRule, 2));
    assert_eq!(call(&policy, "x", "read", None), unknown);
    assert_eq!(call(&policy, "x", "write", Some(HASH)), unknown);
    assert_eq!(call(&policy, "x", "exec", Some(HASH)), (Outcome::Block, Reason::ToolDenied, 7));
    assert_eq!(call(&policy, "x", "w", None).2, 3);
}

#[test]
fn calls_are_limited_per_server_and_refusals_cost_nothing() {
    let mut policy = McpPolicy {
        tool_policy: ListMode::Denylist,
        denied_tools: vec![at(rule("*", "exec", None), 7)].into(),
        ..enforced()
    };
    policy.rate_limits.default = Some(at(Rate { calls_per_minute: 60, burst: 2 }, 50));
    policy
        .rate_limits
        .per_server
        .insert(ServerId("slow".into()), at(Rate { calls_per_minute: 6, burst: 1 }, 51));
    let mut guard = Guard::new(&policy);
    let mut call =
        |server: &str, tool: &str, ms: u64| called(&mut guard, server, tool, None, Duration::from_millis(ms));
    assert_eq!(call("a", "read", 0).outcome, Outcome::Allow);
    for _ in 0..5 {
        assert_eq!(call("a", "exec", 0).reason, Reason::ToolDenied);
    }
    assert_eq!(call("a", "read", 0).outcome, Outcome::Allow);
    let refused = call("a", "read", 0);
    assert_eq!(
        (refused.outcome, refused.reason, refused.rule.line),
        (Outcome::Block, Reason::RateLimited, 50)
    );
    assert_eq!(refused.remedy(), "try again in 1.0 s");
    assert_eq!(call("b", "read", 0).outcome, Outcome::Allow);
    assert_eq!(call("slow", "read", 0).outcome, Outcome::Allow);
    let slow = call("slow", "read", 1);
    assert_eq!((slow.rule.line, slow.remedy().as_str()), (51, "try again in 10.0 s"));
    assert_eq!(call("a", "read", 1000).outcome, Outcome::Allow);
}

#[test]
fn a_rate_limit_counts_even_when_the_lists_are_not_enforced() {
    let mut policy = McpPolicy::default();
    policy.rate_limits.default = Some(at(Rate { calls_per_minute: 1, burst: 1 }, 50));
    let mut guard = Guard::new(&policy);
    assert_eq!(called(&mut guard, "x", "t", None, Duration::ZERO).outcome, Outcome::Allow);
    assert_eq!(called(&mut guard, "x", "t", None, Duration::ZERO).outcome, Outcome::Block);
}

#[test]
fn lists_of_the_project_narrow_and_never_widen() {
    let project = McpPolicy {
        tool_policy: ListMode::Denylist,
        denied_tools: vec![at(rule("*", "write", None), 9)].into(),
        allowed_tools: vec![at(rule("*", "exec", None), 10)].into(),
        ..enforced()
    };
    let policy = McpPolicy {
        tool_policy: ListMode::Denylist,
        denied_tools: vec![at(rule("*", "exec", None), 7)].into(),
        narrowed_by: Some(Box::new(project)),
        ..enforced()
    };
    assert_eq!(call(&policy, "x", "write", None), (Outcome::Block, Reason::ToolDenied, 9));
    assert_eq!(call(&policy, "x", "exec", None), (Outcome::Block, Reason::ToolDenied, 7));
    assert_eq!(call(&policy, "x", "read", None).0, Outcome::Allow);
}

#[test]
fn tool_list_of_a_proxy_file_is_a_separate_layer() {
    let text = r#"{"servers": [{"id": "filesystem", "command": "npx"}, {"id": "web", "command": "uvx"}],
        "allowed_tools": ["filesystem__read_*", "web__fetch"]}"#;
    let file = crate::policy::proxy_file::parse("proxy.json", text).unwrap();
    let mut guard = Guard::new(&file.narrow(&McpPolicy::default()));
    let mut sees = |server: &str, tool: &str| sees(&mut guard, server, tool, "");
    assert!(sees("filesystem", "read_file") && sees("web", "fetch"));
    assert!(!sees("filesystem", "write_file") && !sees("web", "post"));
}

/// A new check needs only a file like this, and a line in the list.
#[derive(Debug)]
struct LongestArgument(usize);

impl Check for LongestArgument {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        let SubjectKind::Call { arguments: Some(Json::Object(members)), .. } = subject.matter else { return };
        if members.iter().any(|(_, value)| matches!(value, Json::String(raw) if raw.len() > self.0)) {
            let rule = RuleRef::default_rule("longest_argument");
            report.rule(Verdict::new(Outcome::Block, Reason::ToolDenied, rule));
        }
    }
}

#[test]
fn guard_accepts_an_additional_check() {
    let mut guard = Guard::new(&McpPolicy::default());
    guard.add(LongestArgument(4));
    let mut outcome = |text: &str| {
        let arguments = crate::json::read(text.as_bytes()).unwrap();
        let matter =
            SubjectKind::Call { tool: "t", hash: None, unlisted: false, arguments: Some(&arguments) };
        guard.decide(&ServerId("x".to_owned()), matter, Duration::ZERO).verdict.outcome
    };
    assert_eq!(outcome(r#"{"a":"1234"}"#), Outcome::Allow);
    assert_eq!(outcome(r#"{"a":"12345"}"#), Outcome::Block);
}

fn finding(outcome: Outcome, what: &str) -> Finding {
    let verdict = Verdict::new(outcome, Reason::Tainted, RuleRef::default_rule(what));
    Finding::new(verdict, None, "d", Severity::High, what.to_owned())
}

#[test]
fn the_strictest_wins_and_every_finding_stays() {
    let rule = |outcome, line| Verdict::new(outcome, Reason::ToolAllowed, at((), line).rule);
    let mut report = Report::default();
    report.rule(rule(Outcome::Allow, 1));
    report.find(finding(Outcome::Allow, "logged"));
    report.find(finding(Outcome::Alert, "first"));
    report.find(finding(Outcome::Alert, "second"));
    assert!(!report.is_blocked());
    let mut decision = report.fold();
    assert_eq!(decision.findings.len(), 3);
    assert_eq!(decision.deciding_finding().unwrap().what, "first");
    decision.add(finding(Outcome::Block, "third"));
    assert_eq!(decision.deciding_finding().unwrap().what, "third");
    // A person's answer cannot take a refusal back.
    decision.answer(rule(Outcome::Allow, 2));
    assert!(decision.is_block());

    let mut report = Report::default();
    report.rule(rule(Outcome::Allow, 1));
    report.rule(rule(Outcome::Ask, 3));
    let mut decision = report.fold();
    assert_eq!((decision.verdict.outcome, decision.verdict.rule.line), (Outcome::Ask, 3));
    decision.answer(rule(Outcome::Allow, 4));
    assert_eq!((decision.verdict.outcome, decision.verdict.rule.line), (Outcome::Allow, 4));
}

/// A check that remembers nothing, and reports the thread on which it ran.
#[derive(Debug)]
struct Where;

impl Precompute for Where {
    fn inspect(&self, subject: &Subject<'_>, report: &mut Report) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        report.find(finding(Outcome::Alert, &format!("{} on {thread}", subject.matter.name())));
    }
}

#[test]
fn precomputed_findings_count_once_and_other_checks_still_run() {
    let mut guard = Guard::new(&McpPolicy::default());
    guard.add(LongestArgument(4));
    guard.add(std::sync::Arc::new(Where));
    let server = ServerId("x".to_owned());
    let (short, long) = (Json::String("1234"), crate::json::read(br#"{"a":"12345"}"#).unwrap());
    let call =
        |arguments| SubjectKind::Call { tool: "t", hash: None, unlisted: false, arguments: Some(arguments) };
    let mut there = |matter: SubjectKind<'_>| {
        let errand = guard.offload_job(&server, matter, Duration::ZERO).unwrap();
        let thread = std::thread::Builder::new().name("there".to_owned());
        let seen = thread.spawn(move || errand.run()).unwrap().join().unwrap();
        let first = guard.decide_parts(&server, &[(matter, &seen)], Duration::ZERO);
        (first, guard.decide_parts(&server, &[(matter, &seen)], Duration::ZERO))
    };
    let (first, again) = there(call(&short));
    assert_eq!(first.findings[0].what, "t on there");
    assert_ne!(again.findings[0].what, "t on there");
    let (refused, _) = there(call(&long));
    assert!(refused.is_block() && refused.findings.is_empty(), "nobody is asked after a refusal");
    assert!(guard.offload_job(&server, SubjectKind::Server, Duration::ZERO).is_none());
}

/// Counts what passed, and refuses what a message carries next to its call.
#[derive(Debug)]
struct Counting(std::rc::Rc<std::cell::Cell<u32>>);

impl Check for Counting {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        if matches!(subject.matter, SubjectKind::Around { .. }) {
            report.find(finding(Outcome::Block, "beside"));
        }
    }

    fn record_passed(&mut self, _: &Subject<'_>) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn call_refused_for_its_metadata_is_not_counted_as_passed() {
    let mut guard = Guard::new(&McpPolicy::default());
    let passed = std::rc::Rc::default();
    guard.add(Counting(std::rc::Rc::clone(&passed)));
    let (server, nothing, value) =
        (ServerId("x".to_owned()), PrecomputedFindings::default(), Json::String("v"));
    let call = SubjectKind::Call { tool: "t", hash: None, unlisted: false, arguments: Some(&value) };
    let beside = SubjectKind::Around { name: "t", rest: &value };
    let refused = guard.decide_parts(&server, &[(call, &nothing), (beside, &nothing)], Duration::ZERO);
    assert!(refused.is_block() && passed.get() == 0);
    assert!(!guard.decide(&server, call, Duration::ZERO).is_block() && passed.get() == 1);
}

#[test]
fn a_call_in_a_models_answer_is_judged_as_one_on_the_wire_and_counts_once() {
    let policy =
        |text: &str| crate::policy::parse("p.yaml", &format!("sandbox: {{mcp: {{{text}}}}}")).unwrap().mcp;
    let said = |guard: &mut Guard, server: &str, tool: &str| {
        let matter = SubjectKind::ModelCall { tool, arguments: None };
        guard.decide(&ServerId(server.to_owned()), matter, Duration::ZERO).verdict.reason
    };
    let made = |guard: &mut Guard, server: &str, tool: &str| {
        called(guard, server, tool, Some(HASH), Duration::ZERO).reason
    };
    let limits = "rate_limits: {enabled: true, default_rpm: 1, default_burst: 2}";
    let burst = "cross_server: {enabled: true, burst: {max_calls: 2, window: 1h}}";
    for (text, refused) in [(limits, Reason::RateLimited), (burst, Reason::Burst)] {
        let mut guard = Guard::new(&policy(text));
        for tool in ["a", "b"] {
            assert_eq!(said(&mut guard, "x", tool), Reason::NoRule, "{text}");
        }
        assert_eq!(said(&mut guard, "x", "a"), refused);
        // Each of the two that were let through is made, once.
        for (tool, reason) in [("b", Reason::NoRule), ("b", refused), ("c", refused), ("a", Reason::NoRule)] {
            assert_eq!(made(&mut guard, "x", tool), reason, "{text}: {tool}");
        }
    }
    let mut guard = Guard::new(&policy("cross_server: {enabled: true, read_then_send: {enabled: true}}"));
    assert_eq!(said(&mut guard, "mail", "send"), Reason::NoRule);
    assert_eq!(said(&mut guard, "notes", "read"), Reason::NoRule);
    assert_eq!(said(&mut guard, "mail", "send"), Reason::ReadThenSend);
    // A rule with a hash counts once the tool was listed.
    let mut guard = Guard::new(&policy(&format!(
        "enforce_policy: true, tool_policy: denylist, denied_tools: [{{server: x, tool: t, content_hash: \"{HASH}\"}}]"
    )));
    assert_eq!(said(&mut guard, "x", "t"), Reason::ToolDenied);
    assert!(sees(&mut guard, "x", "t", "sha256:00bb"));
    assert_ne!(said(&mut guard, "x", "t"), Reason::ToolDenied);
    assert!(!sees(&mut guard, "x", "t", HASH));
    assert_eq!(said(&mut guard, "x", "t"), Reason::ToolDenied);
    // What a listing hid, by whichever check.
    let mut guard = Guard::new(&McpPolicy::default());
    guard.add(Hides);
    assert!(!sees(&mut guard, "x", "t", HASH) && said(&mut guard, "x", "t") == Reason::InterfaceChanged);
    assert_eq!(said(&mut guard, "x", "other"), Reason::NoRule);
}

/// A check that refuses, like a pin that does not match.
#[derive(Debug)]
struct Hides;

impl Check for Hides {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        if let SubjectKind::Definition { .. } = subject.matter {
            let found = finding(Outcome::Block, "changed");
            let verdict = Verdict { reason: Reason::InterfaceChanged, ..found.verdict.clone() };
            report.find(Finding { verdict, ..found });
        }
    }
}
