//! `sandbox.mcp.secrets`: what happens to secrets and personal data in arguments and results.

use super::prelude::*;
use super::rules::{Pattern, pattern};
use crate::diagnostic::one_of;

words! {
    /// The outcome for a value. From the mildest to the strictest.
    #[derive(Default, PartialOrd, Ord)]
    pub enum OnSecret {
        /// Not searched.
        Off = "off",
        /// The value passes, and this is recorded.
        #[default]
        Audit = "audit",
        /// A tag replaces it.
        Redact = "redact",
        /// The call or the result is refused.
        Block = "block",
    }
}

const WORD: Kind = Kind::Word(&["off", "audit", "redact", "block"]);

/// Kinds that identify a person.
pub const PERSONAL: [&str; 5] = ["CREDIT CARD", "EMAIL", "IBAN", "PHONE", "SSN"];
/// Kinds that open something.
pub const CREDENTIALS: &[&str] = texts! {
    "ANTHROPIC KEY" "API KEY" "AWS KEY" "AWS SECRET KEY" "BEARER TOKEN" "CONNECTION STRING" "GCP KEY"
    "GITHUB TOKEN" "GITLAB TOKEN" "JWT" "NPM TOKEN" "OPENAI KEY" "PASSWORD" "PRIVATE KEY" "PYPI TOKEN"
    "SECRET" "SERVICE ACCOUNT" "SLACK TOKEN" "SLACK WEBHOOK" "STRIPE KEY"
};

/// A pattern of the policy's own.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomSecret {
    /// The name in the tag, in capitals.
    pub kind: String,
    pub pattern: Pattern,
    pub action: OnSecret,
    /// What `redact` puts in its place.
    pub replacement: String,
}

word_values!(OnSecret);

impl SecretPolicy {
    /// The outcome for a value of this kind, and its rule.
    #[must_use]
    pub fn action(&self, kind: &str, is_argument: bool) -> (OnSecret, RuleRef) {
        let (key, all) = match is_argument {
            true => ("arguments", &self.arguments),
            false => ("results", &self.results),
        };
        let written = self.kinds.get(kind).or(all.as_ref());
        written.map_or_else(
            || (OnSecret::default(), RuleRef::default_rule(&format!("sandbox.mcp.secrets.{key}"))),
            |written| (written.value, written.rule.clone()),
        )
    }

    /// Whether anything is looked for at all.
    #[must_use]
    pub fn looks(&self, is_argument: bool) -> bool {
        let all = if is_argument { &self.arguments } else { &self.results };
        all.as_ref().is_none_or(|all| all.value != OnSecret::Off)
            || self.kinds.values().any(|kind| kind.value != OnSecret::Off)
            || !self.custom.is_empty()
    }
}

const CUSTOM: &[Key] = keys! {
    /// Its name in the tag: letters, digits, spaces and hyphens.
    "name": Kind::Text, default: "required";
    /// A regular expression (of the crate `regex`: linear time, without look-around).
    "pattern": Kind::Text, default: "required";
    /// What happens to a match.
    "action": WORD, default: "redact";
    /// What `redact` writes instead.
    "replacement": Kind::Text, default: "`[REDACTED NAME]`";
};

table! {
    /// The policy in force, each key with its place if it was written. `kinds` are as in the tag.
    struct SecretPolicy;

    /// What happens to a secret in what an agent sends to a server.
    pub arguments: One<OnSecret> = WORD, default: "audit", example: "redact";
    /// What happens to a secret in what a server sends; `redact` puts `[REDACTED KIND]` in its place.
    pub results: One<OnSecret> = WORD, default: "audit", example: "redact";
    /// The same for one kind in both directions, such as `email`, `credit-card` or `private-key`.
    pub kinds: Named<OnSecret> = Kind::Names(&WORD), default: "none", example: "{private-key: block}"
        => whole kinds;
    /// Your own kinds.
    pub custom: Entries<CustomSecret> = Kind::List(&Kind::Map(CUSTOM)), default: "empty",
        example: "[{name: ticket, pattern: \"TICKET-[0-9]{6}\", action: redact}]"
        => read custom => show ToString::to_string;
}

impl Section<McpPolicy> for SecretPolicy {
    const KEYS: &'static [Key] = keys! {
        /// Secrets and personal data, in both directions. The journal has kind, place and a keyed hash of a secret, never the
        /// secret itself, and no value that is redacted or blocked. Identifiers of the protocol are never changed.
        "secrets": Kind::Map(Self::TABLE);
    };

    in_table! { McpPolicy (secrets): read merge }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let (before, message) = (&base.secrets, "less is looked for with this file than without it");
        for (own, all) in [(&self.arguments, &before.arguments), (&self.results, &before.results)] {
            narrowing.refuse_if(own, |own| *own < in_force(all, OnSecret::default()), message);
        }
        for (kind, own) in &self.kinds {
            if own.value < before.action(kind, true).0.max(before.action(kind, false).0) {
                narrowing.refuse(&own.rule, message);
            }
        }
        let mut custom = before.custom.clone();
        Section::merge(self, base);
        // Earlier patterns stay, whatever a project's list replaces.
        custom.add(&self.custom);
        base.secrets.custom = custom;
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let secrets = &policy.secrets;
        let name = format!("{name}.secrets");
        for (key, written) in [("arguments", &secrets.arguments), ("results", &secrets.results)] {
            let default = RuleRef::default_rule(&format!("sandbox.mcp.secrets.{key}"));
            let rule = written.as_ref().map_or(&default, |own| &own.rule);
            lines.add(&format!("{name}.{key}"), in_force(written, OnSecret::default()).as_str(), rule);
        }
        for (kind, action) in &secrets.kinds {
            lines.add(&format!("{name}.kinds.{}", kind_word(kind)), action.value.as_str(), &action.rule);
        }
        secrets.describe_keys(&["custom"], &name, lines);
    }
}

impl std::fmt::Display for CustomSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} /{}/", self.action.as_str(), self.kind, self.pattern.0.as_str())
    }
}

fn kinds(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Named<OnSecret> {
    let names = here.and_then(|here| reader.names(&here));
    let mut kinds = Named::new();
    for (name, here) in names.iter().flat_map(Fields::all) {
        let kind = name.to_uppercase().replace(['-', '_'], " ");
        if !known().any(|known| known == kind) {
            let words: Vec<String> = known().map(kind_word).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let help = format!("write {}", one_of(&words));
            reader.problem(&here, format!("'{name}' is not a kind of secret"), help);
        }
        if let Some(action) = reader.word(Some(here), OnSecret::WORDS) {
            kinds.insert(kind, action);
        }
    }
    kinds
}

/// Every kind that is looked for.
pub fn known() -> impl Iterator<Item = &'static str> {
    PERSONAL.into_iter().chain(CREDENTIALS.iter().copied())
}

/// A kind of secret as policies and the record write it: `credit-card`.
#[must_use]
pub fn kind_word(kind: &str) -> String {
    kind.to_lowercase().replace(' ', "-")
}

fn custom(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<CustomSecret> {
    const MAX_LENGTH: usize = 40;
    let fields = reader.map(here, CUSTOM)?;
    for key in ["name", "pattern"] {
        if fields.find(key).is_none() {
            reader.problem(here, format!("this kind of secret has no `{key}`"), None);
        }
    }
    let name = fields.find("name").and_then(|here| {
        let name = reader.text(&here)?;
        let is_tag = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, ' ' | '-' | '_');
        if name.len() > MAX_LENGTH || !name.chars().all(is_tag) {
            let what = format!("a name is at most {MAX_LENGTH} letters, digits, spaces and hyphens long");
            return reader.fault(&here, what, None);
        }
        Some(name.to_uppercase().replace('_', " "))
    });
    let pattern = fields.find("pattern").and_then(|here| {
        let pattern = pattern(reader, &here)?;
        if pattern.0.is_match("") {
            return reader.fault(&here, "this pattern matches an empty text", None);
        }
        Some(pattern)
    });
    let action =
        reader.word(fields.find("action"), OnSecret::WORDS).map_or(OnSecret::Redact, |action| action.value);
    let replacement = fields.find("replacement").and_then(|here| reader.text(&here));
    let kind = name?;
    let replacement = replacement.unwrap_or_else(|| format!("[REDACTED {kind}]"));
    Some(CustomSecret { kind, pattern: pattern?, action, replacement })
}
