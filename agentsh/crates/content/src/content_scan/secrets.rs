//! Secrets and personal data in a text. The journal gets kind, place and a keyed hash that is the same for the same
//! value within a session; never the value.

use std::collections::BTreeMap;
use std::ops::Range;

use sha2::{Digest, Sha256};

use agentsh_base::json::Json;
use agentsh_base::types::RuleRef;
use agentsh_guard::{Finding, Outcome, Reason, Report, Severity, Subject, Verdict};
use agentsh_policy::{CREDENTIALS, CustomSecret, OnSecret, Ruled, SecretPolicy, kind_word};

use agentsh_scan::{Channel, Scan};
use agentsh_secrets::certain::find_in_views;

use super::{MAX_COUNT, Text};

#[derive(Debug)]
pub(super) struct Secrets {
    policy: SecretPolicy,
    /// None: the system gives no random numbers, and nothing is hashed.
    key: Option<Key>,
}

struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

#[derive(Default)]
pub(super) struct Found {
    pub findings: Vec<Finding>,
    /// Kinds that get a tag.
    pub redacted: Vec<String>,
}

/// Values of one kind in one text.
struct SecretGroup {
    action: OnSecret,
    rule: RuleRef,
    count: usize,
    pointer: String,
    hash: String,
}

impl Secrets {
    pub fn new(policy: &SecretPolicy) -> Self {
        Self { policy: policy.clone(), key: agentsh_base::random::bytes().ok().map(Key) }
    }

    pub fn without_kept(&self, text: &str) -> String {
        crate::recorded::without_kept(&self.policy, text)
    }

    pub fn searches_channel(&self, channel: Channel) -> bool {
        self.policy.looks(channel == Channel::Outbound)
    }

    pub fn redacts_own(&self) -> bool {
        self.policy.custom.iter().any(|custom| custom.value.action == OnSecret::Redact)
    }

    /// The places of the policy's own kinds that agentsh replaces, with the replacements.
    pub fn own_places(&self, text: &str) -> Vec<(Range<usize>, String)> {
        let redacting = self.policy.custom.iter().filter(|custom| custom.value.action == OnSecret::Redact);
        redacting
            .flat_map(|custom| {
                let places = custom.value.pattern.0.find_iter(text);
                places.map(|place| (place.range(), custom.value.replacement.clone()))
            })
            .collect()
    }

    /// The secrets of a scan, by kind.
    pub fn find(&self, subject: &Subject<'_>, scan: &Scan, text: &Text<'_>) -> Found {
        let is_argument = text.channel == Channel::Outbound;
        let mut seen: BTreeMap<String, SecretGroup> = BTreeMap::new();
        if self.policy.looks(is_argument) {
            for redaction in &scan.redactions {
                let (action, rule) = self.policy.action(redaction.kind, is_argument);
                let first = || {
                    let value = text_at(text.value, &redaction.pointer);
                    let value = value.as_deref().and_then(|text| text.get(redaction.start..redaction.end));
                    (redaction.pointer.clone(), self.hash(redaction.kind, value.unwrap_or_default()))
                };
                note(&mut seen, redaction.kind, action, &rule, 1, first);
            }
        }
        self.find_custom_kinds(text.value, &mut seen);
        let mut found = Found::default();
        for (kind, seen) in seen {
            if seen.action == OnSecret::Redact {
                found.redacted.push(kind.clone());
            }
            if found.findings.len() < MAX_COUNT && seen.action != OnSecret::Off {
                found.findings.push(finding(subject, &kind, seen, text));
            }
        }
        found
    }

    /// Secrets in parts of a message to a server that cannot be changed, because they name something: members' names, and,
    /// without `names_only`, all texts. What would get a tag is refused.
    pub fn find_fixed(&self, subject: &Subject<'_>, value: &Json<'_>, names_only: bool, report: &mut Report) {
        let looks = self.policy.looks(true);
        if !looks && self.policy.custom.is_empty() {
            return;
        }
        let fixed = |action| if action == OnSecret::Redact { OnSecret::Block } else { action };
        let mut seen: BTreeMap<String, SecretGroup> = BTreeMap::new();
        super::custom::texts(value, &mut String::new(), &mut |pointer, text, is_name| {
            if names_only && !is_name {
                return;
            }
            for Ruled { value: custom, rule } in &self.policy.custom {
                let Some(value) = custom.pattern.0.find(text) else { continue };
                let first = || (pointer.to_owned(), self.hash(&custom.kind, value.as_str()));
                note(&mut seen, &custom.kind, fixed(custom.action), rule, 1, first);
            }
            for secret in if looks { find_in_views(text) } else { Vec::new() } {
                let (action, rule) = self.policy.action(secret.kind, true);
                let action = fixed(action);
                let hash = || self.hash(secret.kind, text.get(secret.value.clone()).unwrap_or_default());
                note(&mut seen, secret.kind, action, &rule, 1, || (pointer.to_owned(), hash()));
            }
        });
        let text = Text { value, path: Vec::new(), channel: Channel::Outbound, what: "its message" };
        let counted = seen.into_iter().filter(|(_, seen)| seen.action != OnSecret::Off).take(MAX_COUNT);
        counted.for_each(|(kind, seen)| report.find(finding(subject, &kind, seen, &text)));
    }

    /// Kinds of the policy's own.
    fn find_custom_kinds(&self, value: &Json<'_>, seen: &mut BTreeMap<String, SecretGroup>) {
        if self.policy.custom.is_empty() {
            return;
        }
        super::custom::texts(value, &mut String::new(), &mut |pointer, text, _| {
            for Ruled { value: CustomSecret { kind, pattern, action, .. }, rule } in &self.policy.custom {
                let mut values = pattern.0.find_iter(text);
                let Some(value) = values.next() else { continue };
                let first = || (pointer.to_owned(), self.hash(kind, value.as_str()));
                note(seen, kind, *action, rule, 1 + values.count(), first);
            }
        });
    }

    /// The hash by which a value is recognised again in this session.
    fn hash(&self, kind: &str, value: &str) -> String {
        let Some(Key(key)) = self.key.as_ref().filter(|_| !value.is_empty()) else { return String::new() };
        let digest =
            Sha256::new_with_prefix(key).chain_update(kind).chain_update([0]).chain_update(value).finalize();
        digest.iter().take(8).fold(" ".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }
}

fn note(
    seen: &mut BTreeMap<String, SecretGroup>,
    kind: &str,
    action: OnSecret,
    rule: &RuleRef,
    count: usize,
    first: impl FnOnce() -> (String, String),
) {
    if let Some(known) = seen.get_mut(kind) {
        known.count += count;
        return;
    }
    let (pointer, hash) = first();
    seen.insert(kind.to_owned(), SecretGroup { action, rule: rule.clone(), count, pointer, hash });
}

fn finding(subject: &Subject<'_>, kind: &str, seen: SecretGroup, text: &Text<'_>) -> Finding {
    let is_credential = CREDENTIALS.contains(&kind);
    let outcome = match seen.action {
        OnSecret::Block => Outcome::Block,
        OnSecret::Redact => Outcome::Rewrite,
        // A credential that leaves raises an alert.
        _ if is_credential && text.channel == Channel::Outbound => Outcome::Alert,
        _ => Outcome::Allow,
    };
    let count = if seen.count > 1 { format!(" {} times", seen.count) } else { String::new() };
    let severity = if is_credential { Severity::High } else { Severity::Low };
    let verdict = Verdict::new(outcome, Reason::SecretFound, seen.rule);
    let what = format!("{} contains {kind}", text.what);
    Finding {
        source: Some(super::source(subject)),
        context: format!("[REDACTED {kind}]{}{count}", seen.hash),
        pointer: seen.pointer,
        ..Finding::new(verdict, Some("secret"), &kind_word(kind), severity, what)
    }
}

/// The text at a JSON pointer.
fn text_at<'v>(value: &'v Json<'_>, pointer: &str) -> Option<std::borrow::Cow<'v, str>> {
    let mut value = value;
    for step in pointer.split('/').skip(1) {
        value = match value {
            Json::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            _ => value.member(&step.replace("~1", "/").replace("~0", "~"))?,
        };
    }
    value.as_text()
}
