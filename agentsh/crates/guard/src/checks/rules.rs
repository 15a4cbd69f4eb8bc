//! `rules`: calls that are recorded, asked about or refused by their content and their origin.

use std::collections::BTreeMap;

use crate::decision::{Caller, Check, Finding, Report, Severity, Subject, SubjectKind};
use crate::json::{self, Json};
use crate::policy::domain::Host;
use crate::policy::risk::{self, Names, Risk};
use crate::policy::{CallRule, Condition, ConditionPlace, McpPolicy, RuleAction, Ruled, Test, glob};
use crate::types::ToolId;
use crate::verdict::{Outcome, Reason, Verdict};
use agentsh_dlp::destination;

/// Tools whose risk is known from their definition; of others the name alone counts.
const MAX_TOOLS: usize = 20_000;

#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<Ruled<CallRule>>,
    risks: BTreeMap<ToolId, Risk>,
    names: Names,
}

impl Rules {
    #[must_use]
    pub fn new(policy: &McpPolicy) -> Self {
        let names = policy.risk_names.as_ref().map_or_else(Names::default, |names| names.value);
        Self { rules: policy.rules.to_vec(), risks: BTreeMap::new(), names }
    }

    fn risk(&self, subject: &Subject<'_>, tool: &str) -> Risk {
        let id = ToolId { server: subject.server.clone(), tool: tool.to_owned() };
        self.risks.get(&id).copied().unwrap_or_else(|| risk::of_name(tool, self.names))
    }

    fn judge_call(&self, subject: &Subject<'_>, method: &str, said: &Json<'_>, report: &mut Report) {
        let name = subject.matter.name();
        for (at, Ruled { value: rule, rule: place }) in self.rules.iter().enumerate() {
            let is_named = glob::matches(&rule.server, &subject.server.0)
                && glob::matches(&rule.method, method)
                && glob::matches(&rule.tool, name);
            if !is_named || rule.risk.is_some_and(|least| self.risk(subject, name) < least) {
                continue;
            }
            if !rule.is_from(subject.caller.map(|caller| caller.address)) {
                continue;
            }
            let Some(pointer) = matching_place(&rule.when, said, subject.caller) else { continue };
            let outcome = match rule.action {
                RuleAction::Audit => Outcome::Alert,
                RuleAction::Ask => Outcome::Ask,
                RuleAction::Block => Outcome::Block,
            };
            let detector = rule.name.clone().unwrap_or_else(|| format!("rules[{at}]"));
            let verdict = Verdict::new(outcome, Reason::PolicyRule, place.clone());
            let severity = if outcome == Outcome::Block { Severity::High } else { Severity::Medium };
            let what = rule.reason.clone().unwrap_or_else(|| format!("the rule '{detector}' matches"));
            let found = Finding::new(verdict, Some("policy-rule"), &detector, severity, what);
            report.find(Finding { pointer, ..found });
        }
    }
}

impl Check for Rules {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        if self.rules.is_empty() {
            return;
        }
        match subject.matter {
            SubjectKind::Definition { name, definition, .. } if self.risks.len() < MAX_TOOLS => {
                let id = ToolId { server: subject.server.clone(), tool: name.to_owned() };
                // A risk is never lowered: a server cannot make its tool look harmless later.
                let before = self.risks.get(&id).copied().unwrap_or(Risk::Low);
                self.risks.insert(id, before.max(risk::risk(definition, self.names)));
            }
            SubjectKind::Call { arguments, .. } | SubjectKind::ModelCall { arguments, .. } => {
                self.judge_call(subject, "tools/call", arguments.unwrap_or(&Json::Null), report);
            }
            SubjectKind::Request { method, params } => {
                self.judge_call(subject, method, params.unwrap_or(&Json::Null), report);
            }
            _ => {}
        }
    }
}

/// The place where the last condition holds; empty if there is no condition. None: one of them does not hold.
fn matching_place(when: &[Condition], said: &Json<'_>, caller: Option<&Caller>) -> Option<String> {
    let mut place = String::new();
    for condition in when {
        place = match &condition.place {
            ConditionPlace::Path(path) => at_path(condition, path, said)?,
            ConditionPlace::Header(name) => in_header(&condition.test, name, caller?)?,
            ConditionPlace::Anywhere => {
                let mut found = None;
                strings(said, &mut String::new(), None, &mut |pointer, key, value| {
                    if found.is_none() && matches_test(&condition.test, key, value) {
                        found = Some(pointer.to_owned());
                    }
                });
                found?
            }
        };
    }
    Some(place)
}

fn in_header(test: &Test, name: &str, caller: &Caller) -> Option<String> {
    let values = caller.headers.get(name).map(Vec::as_slice).unwrap_or_default();
    let is_so = match test {
        Test::Exists(wanted) => values.is_empty() != *wanted,
        test => values.iter().any(|value| matches_test(test, None, &Json::String(&json::escape_text(value)))),
    };
    is_so.then(|| format!("header {name}"))
}

fn at_path(condition: &Condition, path: &str, said: &Json<'_>) -> Option<String> {
    let mut values = vec![(String::new(), None, said)];
    for step in path.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let mut below = Vec::new();
        for (pointer, key, value) in values {
            match value {
                Json::Object(members) => {
                    for (raw, member) in members {
                        let name = crate::json::unescape(raw);
                        if step == "*" || name == step {
                            below.push((format!("{pointer}/{name}"), Some(name.to_string()), member));
                        }
                    }
                }
                Json::Array(items) => {
                    for (at, item) in items.iter().enumerate() {
                        if step == "*" || step.parse() == Ok(at) {
                            below.push((format!("{pointer}/{at}"), key.clone(), item));
                        }
                    }
                }
                _ => {}
            }
        }
        values = below;
    }
    if let Test::Exists(wanted) = condition.test {
        let place = values.first().map_or(path.to_owned(), |(pointer, ..)| pointer.clone());
        return (values.is_empty() != wanted).then_some(place);
    }
    values.into_iter().find_map(|(pointer, key, value)| {
        let mut found = matches_test(&condition.test, key.as_deref(), value).then(|| pointer.clone());
        // A text deeper inside counts too: an argument can be wrapped.
        strings(value, &mut pointer.clone(), key.as_deref(), &mut |place, key, value| {
            if found.is_none() && matches_test(&condition.test, key, value) {
                found = Some(place.to_owned());
            }
        });
        found
    })
}

fn matches_test(test: &Test, key: Option<&str>, value: &Json<'_>) -> bool {
    let text = match value.as_text() {
        Some(text) => text,
        None if matches!(value, Json::Object(_) | Json::Array(_)) => return false,
        None => value.to_compact().into(),
    };
    match test {
        Test::Equals(wanted) => *wanted == *text,
        Test::Matches(pattern) => pattern.0.is_match(&text),
        Test::Host(wanted) => {
            let mut fits = false;
            destination::find(&text, key, &mut |found| {
                if let destination::Target::Host(host) = found.target {
                    let host = match host {
                        Host::Name(name) => name,
                        Host::Address(address) => address.to_string(),
                    };
                    fits |= glob::matches(&wanted.to_ascii_lowercase(), &host);
                }
            });
            fits
        }
        Test::Exists(wanted) => *wanted,
    }
}

/// Every value that is neither a list nor a map, with its name. The reader limits the depth.
fn strings(
    value: &Json<'_>,
    pointer: &mut String,
    key: Option<&str>,
    see: &mut dyn FnMut(&str, Option<&str>, &Json<'_>),
) {
    let length = pointer.len();
    match value {
        Json::Object(members) => {
            for (raw, member) in members {
                let name = crate::json::unescape(raw);
                pointer.push('/');
                pointer.push_str(&name);
                strings(member, pointer, Some(&name), see);
                pointer.truncate(length);
            }
        }
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                pointer.push('/');
                pointer.push_str(&at.to_string());
                strings(item, pointer, key, see);
                pointer.truncate(length);
            }
        }
        _ => see(pointer, key, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Guard;
    use crate::types::ServerId;
    use std::time::Duration;

    fn outcome(rules: &str, tool: &str, arguments: &str) -> (Outcome, Option<String>) {
        let text = format!("version: 1\nextends: none\nsandbox: {{mcp: {{rules: {rules}}}}}\n");
        let policy =
            crate::policy::parse("test.yaml", &text).unwrap_or_else(|error| panic!("{}", error.render()));
        let mut guard = Guard::new(&policy.mcp);
        let arguments = json::read(arguments.as_bytes()).unwrap();
        let matter = SubjectKind::Call { tool, hash: None, unlisted: false, arguments: Some(&arguments) };
        let decision = guard.decide(&ServerId("db".to_owned()), matter, Duration::ZERO);
        (decision.verdict.outcome, decision.deciding_finding().map(|found| found.pointer.clone()))
    }

    #[test]
    fn every_condition_has_to_hold_and_the_strictest_rule_decides() {
        let rules = r#"[{server: "d*", when: [{path: /sql, matches: "(?i)\\bdrop\\b"}], action: ask},
                        {when: [{path: /env, equals: prod}, {path: /sql, matches: drop}], action: block},
                        {risk: high, action: audit}]"#;
        for (tool, arguments, wanted) in [
            ("query", r#"{"sql":"select 1"}"#, Outcome::Allow),
            ("query", r#"{"sql":"DROP table x"}"#, Outcome::Ask),
            ("query", r#"{"sql":"drop table x","env":"prod"}"#, Outcome::Block),
            ("query", r#"{"sql":"drop table x","env":"test"}"#, Outcome::Ask),
            ("query", r#"{"sql":["select 1",{"x":"drop table"}]}"#, Outcome::Ask),
            ("query", r#"{"other":"drop table x"}"#, Outcome::Allow),
            ("delete_row", "{}", Outcome::Alert),
        ] {
            assert_eq!(outcome(rules, tool, arguments).0, wanted, "{tool} {arguments}");
        }
        // `put` is in it, and is not a word of it.
        let rules = "[{risk: medium, action: block}]";
        assert_eq!(outcome(rules, "input_text", "{}").0, Outcome::Allow);
        let literal = format!("{rules}, risk_names: literal");
        assert_eq!(outcome(&literal, "input_text", "{}").0, Outcome::Block);
    }

    #[test]
    fn values_are_found_anywhere_by_pattern_by_host_and_by_being_there() {
        let rules = r#"[{when: [{host: "*.evil.example"}], action: block},
                        {when: [{path: "/items/*/id", equals: "7"}], action: ask},
                        {when: [{path: /force, exists: true}], action: audit}]"#;
        let deep = outcome(rules, "send", r#"{"a":[{"url":"https://x.EVIL.example/y"}]}"#);
        assert_eq!(deep, (Outcome::Block, Some("/a/0/url".to_owned())));
        let number = outcome(rules, "send", r#"{"items":[{"id":3},{"id":7}]}"#);
        assert_eq!(number, (Outcome::Ask, Some("/items/1/id".to_owned())));
        assert_eq!(outcome(rules, "send", r#"{"force":null}"#).0, Outcome::Alert);
        assert_eq!(outcome(rules, "send", r#"{"note":"evil.example"}"#).0, Outcome::Allow);
    }

    #[test]
    fn rule_about_clients_applies_only_at_a_gateway() {
        let rules =
            "[{tool: a, from: [10.0.0.0/8], action: block}, {tool: b, not_from: [10.0.0.0/8], action: block},
                      {tool: c, when: [{header: X-Team, exists: false}], action: block}]";
        let text = format!("version: 1\nextends: none\nsandbox: {{mcp: {{rules: {rules}}}}}\n");
        let policy =
            crate::policy::parse("test.yaml", &text).unwrap_or_else(|error| panic!("{}", error.render()));
        let mut guard = Guard::new(&policy.mcp);
        let mut refused = |address: Option<&str>| {
            let headers = std::collections::BTreeMap::new();
            let caller = address.map(|address| Caller { address: address.parse().unwrap(), headers });
            guard.for_caller(caller.map(std::rc::Rc::new));
            ["a", "b", "c"].map(|tool| {
                let matter = SubjectKind::Call { tool, hash: None, unlisted: false, arguments: None };
                guard.decide(&ServerId("s".to_owned()), matter, Duration::ZERO).is_block()
            })
        };
        assert_eq!(refused(None), [false, false, false]);
        assert_eq!(refused(Some("::ffff:10.1.2.3")), [true, false, true]);
        assert_eq!(refused(Some("192.0.2.1")), [false, true, true]);
    }
}
