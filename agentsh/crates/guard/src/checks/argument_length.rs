//! `max_argument_bytes`: the maximum length of an argument.

use crate::decision::{Check, Finding, Report, Severity, Subject};
use crate::policy::{McpPolicy, Ruled};
use crate::verdict::{Outcome, Reason, Verdict};

#[derive(Clone, Debug)]
pub struct ArgumentLength {
    most: Option<Ruled<u64>>,
}

impl ArgumentLength {
    #[must_use]
    pub fn new(policy: &McpPolicy) -> Self {
        Self { most: policy.max_argument_bytes.clone() }
    }
}

impl Check for ArgumentLength {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        let (Some(most), Some(arguments)) = (&self.most, subject.matter.arguments()) else { return };
        for (raw, value) in arguments.as_object().unwrap_or_default() {
            let bytes = value.to_compact().len() as u64;
            if bytes <= most.value {
                continue;
            }
            let name = crate::json::unescape(raw);
            let what = format!(
                "the argument '{}' has {bytes} bytes; the maximum is {}",
                name.escape_debug(),
                most.value
            );
            let verdict = Verdict::new(Outcome::Block, Reason::PolicyRule, most.rule.clone());
            let (category, detector) = (Some("policy-rule"), "max-argument-bytes");
            report.find(Finding {
                pointer: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
                ..Finding::new(verdict, category, detector, Severity::Medium, what)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use crate::decision::SubjectKind;
    use crate::guard::Guard;
    use crate::types::ServerId;
    use crate::verdict::Outcome;

    #[test]
    fn the_longest_argument_decides_and_is_named() {
        let policy = crate::policy::parse("p.yaml", "sandbox: {mcp: {max_argument_bytes: 8}}").unwrap();
        let asked = |text: &str| {
            let arguments = crate::json::read(text.as_bytes()).unwrap();
            let matter =
                SubjectKind::Call { tool: "t", hash: None, arguments: Some(&arguments), unlisted: false };
            let mut guard = Guard::new(&policy.mcp);
            let decision = guard.decide(&ServerId("s".to_owned()), matter, std::time::Duration::ZERO);
            (decision.verdict.outcome, decision.findings.first().map(|found| found.pointer.clone()))
        };
        assert_eq!(asked(r#"{"a":"123456","b":[1,2]}"#), (Outcome::Allow, None));
        assert_eq!(asked(r#"{"a":"1","b/c":"1234567"}"#), (Outcome::Block, Some("/b~1c".to_owned())));
        assert_eq!(asked(r#"{"a":[1,2,3,4,5]}"#), (Outcome::Block, Some("/a".to_owned())));
        assert_eq!(asked("null"), (Outcome::Allow, None));
    }
}
