//! Entries that were hidden in a listing are refused on use, because a client may know the name from elsewhere.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::decision::used_entry::{matches_template, pattern};
use crate::decision::{Decision, Finding, Offer, Subject, SubjectKind, UsedEntry};
use crate::types::ServerId;

/// Maximum number of hidden entries of one server. A server that hides more is refused as a whole.
const MAX_COUNT: usize = 4096;
/// Maximum length of a remembered reason, in characters.
const MAX_WHAT: usize = 300;

/// The hash of an entry's name: names may be long, and there may be many.
type Key = [u8; 16];

#[derive(Debug, Default)]
pub(crate) struct Hidden {
    servers: BTreeMap<ServerId, Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Why, by entry.
    found: BTreeMap<Key, Finding>,
    /// URIs of hidden templates as patterns of names.
    templates: BTreeMap<Key, String>,
    /// Why the first one was hidden that there was no room for.
    surplus: Option<Finding>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Tool,
    Offer(Offer),
}

impl Hidden {
    /// Takes down what becomes of an entry of a listing.
    pub fn note(&mut self, subject: &Subject<'_>, decision: &Decision) {
        let (kind, name) = match subject.matter {
            SubjectKind::Definition { name, .. } => (Kind::Tool, name),
            SubjectKind::Offer { kind, name, .. } if kind != Offer::Instructions => (Kind::Offer(kind), name),
            _ => return,
        };
        let key = key(kind, name);
        // Entries hidden by a list of the policy are refused by that list.
        let Some(found) = decision.deciding_finding().filter(|_| decision.is_block()) else {
            if let Some(entries) = self.servers.get_mut(subject.server) {
                entries.found.remove(&key);
                entries.templates.remove(&key);
            }
            return;
        };
        let found = Finding {
            what: found.what.chars().take(MAX_WHAT).collect(),
            context: found.context.chars().take(MAX_WHAT).collect(),
            ..found.clone()
        };
        let entries = self.servers.entry(subject.server.clone()).or_default();
        if entries.found.len() >= MAX_COUNT && !entries.found.contains_key(&key) {
            entries.surplus.get_or_insert(found);
            return;
        }
        if matches!(kind, Kind::Offer(Offer::Template)) {
            entries.templates.insert(key, pattern(name));
        }
        entries.found.insert(key, found);
    }

    /// Why this must not be used.
    pub fn refusal(&self, subject: &Subject<'_>) -> Option<Finding> {
        let entries = self.servers.get(subject.server)?;
        let used = match subject.matter {
            SubjectKind::Call { tool, .. } | SubjectKind::ModelCall { tool, .. } => {
                entries.found.get(&key(Kind::Tool, tool))
            }
            matter => entries.hidden_entry(&matter.uses()?),
        };
        used.or(entries.surplus.as_ref()).cloned()
    }
}

impl Entries {
    fn hidden_entry(&self, used: &UsedEntry) -> Option<&Finding> {
        let entry = self.found.get(&key(Kind::Offer(used.kind), &used.name));
        match used.kind {
            Offer::Resource => entry.or_else(|| {
                let fits = self.templates.iter().find(|(_, pattern)| matches_template(pattern, &used.name));
                self.found.get(fits?.0)
            }),
            Offer::Template => {
                let uri = UsedEntry { kind: Offer::Resource, name: used.name.clone() };
                entry.or_else(|| self.hidden_entry(&uri))
            }
            Offer::Prompt | Offer::Instructions => entry,
        }
    }
}

fn key(kind: Kind, name: &str) -> Key {
    let tag = match kind {
        Kind::Tool => "tool",
        Kind::Offer(offer) => offer.as_str(),
    };
    let digest = Sha256::new().chain_update(tag).chain_update([0]).chain_update(name).finalize();
    let mut key = Key::default();
    key.copy_from_slice(&digest[..16]);
    key
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::time::Duration;

    use super::*;
    use crate::decision::{Check, Report, Severity};
    use crate::guard::Guard;
    use crate::json;
    use crate::policy::McpPolicy;
    use crate::types::RuleRef;
    use crate::verdict::{Outcome, Reason, Verdict};

    /// Hides what has a description.
    #[derive(Debug)]
    struct Hides;

    impl Check for Hides {
        fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
            let (SubjectKind::Definition { definition, .. } | SubjectKind::Offer { definition, .. }) =
                subject.matter
            else {
                return;
            };
            if definition.member("description").is_some() {
                let rule = RuleRef::default_rule("test");
                let verdict = Verdict::new(Outcome::Block, Reason::ContentSuspicious, rule);
                let what = "it is hidden".to_owned();
                report.find(Finding::new(verdict, Some("test"), "", Severity::High, what));
            }
        }
    }

    struct Case {
        guard: Guard,
        server: ServerId,
    }

    impl Case {
        fn new() -> Self {
            let mut guard = Guard::new(&McpPolicy::default());
            guard.add(Hides);
            Self { guard, server: ServerId("s".to_owned()) }
        }

        fn decide(&mut self, matter: SubjectKind<'_>) -> bool {
            self.guard.decide(&self.server, matter, Duration::ZERO).is_block()
        }

        fn list(&mut self, kind: Option<Offer>, name: &str, is_hidden: bool) -> bool {
            let definition = if is_hidden { r#"{"description":"x"}"# } else { "{}" };
            let definition = &json::read(definition.as_bytes()).unwrap();
            self.decide(match kind {
                None => SubjectKind::Definition { name, hash: "", definition },
                Some(kind) => SubjectKind::Offer { kind, name, hash: "", definition },
            })
        }

        fn call(&mut self, tool: &str) -> bool {
            self.decide(SubjectKind::Call { tool, hash: None, unlisted: false, arguments: None })
        }

        fn request(&mut self, method: &str, params: &str) -> bool {
            let params = json::read(params.as_bytes()).unwrap();
            self.decide(SubjectKind::Request { method, params: Some(&params) })
        }
    }

    #[test]
    fn a_hidden_tool_is_refused_until_a_listing_shows_it() {
        let mut case = Case::new();
        assert!(!case.list(None, "a", false) && case.list(None, "b", true));
        assert!(!case.call("a") && case.call("b") && !case.call("c"));
        assert!(!case.list(None, "b", false) && !case.call("b"));
    }

    #[test]
    fn prompts_resources_and_templates_are_refused_too() {
        let mut case = Case::new();
        case.list(Some(Offer::Prompt), "p", true);
        case.list(Some(Offer::Resource), "file:///a", true);
        case.list(Some(Offer::Template), "note:///{id}/text{?q}", true);
        for (method, params, refused) in [
            ("prompts/get", r#"{"name":"p"}"#, true),
            ("prompts/get", r#"{"name":"q"}"#, false),
            ("resources/read", r#"{"uri":"file:///a"}"#, true),
            ("resources/read", r#"{"uri":"file:///b"}"#, false),
            ("resources/read", r#"{"uri":"note:///7/text"}"#, true),
            ("resources/subscribe", r#"{"uri":"note:///7/text?q=1"}"#, true),
            ("resources/read", r#"{"uri":"note:///7"}"#, false),
            ("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"p"}}"#, true),
            ("completion/complete", r#"{"ref":{"type":"ref/resource","uri":"note:///{id}/text{?q}"}}"#, true),
            ("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"q"}}"#, false),
            ("ping", "{}", false),
        ] {
            assert_eq!(case.request(method, params), refused, "{method} {params}");
        }
        assert!(!case.call("p"));
    }

    #[test]
    fn a_server_that_hides_more_than_is_remembered_is_refused() {
        let mut case = Case::new();
        for at in 0..MAX_COUNT {
            case.list(None, &format!("t{at}"), true);
        }
        assert!(!case.call("honest"));
        case.list(None, "one more", true);
        assert!(case.call("honest") && case.request("prompts/get", r#"{"name":"p"}"#));
        assert!(!case.request("ping", "{}"));
    }
}
