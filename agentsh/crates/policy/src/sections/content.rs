//! `sandbox.mcp.content`: what happens to servers' texts that try to instruct a model.

use std::collections::BTreeMap;

use agentsh_base::words;

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::section::{Section, set_key};
use crate::sections::McpPolicy;
use crate::types::RuleRef;

/// The file of rules that the gateway always has, whatever a policy says.
pub const GATEWAY: &str = "gateway";

words! {
    /// The outcome for a text with a finding. From the mildest to the strictest.
    #[derive(PartialOrd, Ord)]
    pub enum OnFinding {
        /// Not searched.
        Off = "off",
        /// It goes through, and is recorded.
        Alert = "alert",
        /// Like `alert`, with a warning in front of a result.
        Advise = "advise",
        Block = "block",
    }
}

words! {
    /// The hidden HTML that is removed from results. From the mildest to the strictest.
    #[derive(PartialOrd, Ord)]
    pub enum HiddenHtml {
        Keep = "keep",
        /// In results in which an instruction is near certain.
        Suspicious = "suspicious",
        Remove = "remove",
    }
}

/// The policy in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentPolicy {
    /// Listed tools: `block` hides the tool.
    pub definitions: OnFinding,
    /// Results.
    pub results: OnFinding,
    /// Requests of servers (sampling, elicitation).
    pub requests: OnFinding,
    /// Arguments of calls.
    pub arguments: OnFinding,
    /// Terminal control is taken out of results, and hidden HTML where `hidden_html` is not written.
    pub sanitize: bool,
    /// None: `suspicious` where `sanitize` is on.
    hidden_html: Option<HiddenHtml>,
    /// The place where each key was written.
    pub written: BTreeMap<&'static str, RuleRef>,
}

impl Default for ContentPolicy {
    /// A scan's finding is a guess: it is reported and refuses nothing, except requests of servers to a client.
    fn default() -> Self {
        Self {
            definitions: OnFinding::Alert,
            results: OnFinding::Advise,
            requests: OnFinding::Block,
            arguments: OnFinding::Alert,
            sanitize: true,
            hidden_html: None,
            written: BTreeMap::new(),
        }
    }
}

impl ContentPolicy {
    #[must_use]
    pub fn hidden_html(&self) -> HiddenHtml {
        let default = if self.sanitize { HiddenHtml::Suspicious } else { HiddenHtml::Keep };
        self.hidden_html.unwrap_or(default)
    }

    /// Harmful commands are refused whatever the policy says, because a gateway's clients are not the user's own agents.
    pub fn at_gateway(&mut self) {
        if self.arguments < OnFinding::Block {
            let id = "sandbox.mcp.content.arguments".to_owned();
            self.arguments = OnFinding::Block;
            self.written.insert("arguments", RuleRef { id, file: GATEWAY.to_owned(), line: 0 });
        }
    }

    /// The place where a key was written, or its default.
    #[must_use]
    pub fn rule(&self, key: &str) -> RuleRef {
        let default = || RuleRef::default_rule(&format!("sandbox.mcp.content.{key}"));
        self.written.get(key).cloned().unwrap_or_else(default)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    definitions: Option<Ruled<OnFinding>>,
    results: Option<Ruled<OnFinding>>,
    requests: Option<Ruled<OnFinding>>,
    arguments: Option<Ruled<OnFinding>>,
    sanitize: Option<Ruled<bool>>,
    hidden_html: Option<Ruled<HiddenHtml>>,
}

const CONTENT: &[Key] = keys! {
    /// What happens to a tool whose definition contains instructions to the model. Hidden characters in a definition
    /// hide the tool unless this is `off`.
    "definitions": Kind::Word(&["block", "alert", "off"]), default: "alert", example: "block";
    /// What happens to a result that contains instructions to the model; `advise` puts a sentence in front of it.
    "results": Kind::Word(&["block", "advise", "alert", "off"]), default: "advise", example: "block";
    /// What happens to a request of a server (sampling, elicitation) that contains instructions to the model.
    "requests": Kind::Word(&["block", "alert", "off"]), default: "block", example: "alert";
    /// What happens to a call with a harmful command in its arguments, such as a reverse shell.
    "arguments": Kind::Word(&["block", "alert", "off"]), default: "alert", example: "block";
    /// Whether terminal control characters are removed from servers' texts, and hidden HTML as `hidden_html` says by
    /// default.
    "sanitize": Kind::Flag, default: "true", example: "false";
    /// Whether HTML that a page does not show (comments, hidden elements and inputs, `noscript`, frames without a size)
    /// is removed from results: always, if an instruction is near certain, or never. An agent that edits pages needs
    /// their comments.
    "hidden_html": Kind::Word(&["remove", "suspicious", "keep"]), default: "suspicious", example: "remove";
};

impl Section<McpPolicy> for Content {
    const KEYS: &'static [Key] = keys! {
        /// Texts of servers that try to instruct a model. A finding is a guess, so little is refused by default.
        "content": Kind::Map(CONTENT);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "content", CONTENT) else { return Self::default() };
        Self {
            definitions: reader.word(fields.find("definitions"), OnFinding::WORDS),
            results: reader.word(fields.find("results"), OnFinding::WORDS),
            requests: reader.word(fields.find("requests"), OnFinding::WORDS),
            arguments: reader.word(fields.find("arguments"), OnFinding::WORDS),
            sanitize: reader.boolean(fields.find("sanitize")),
            hidden_html: reader.word(fields.find("hidden_html"), HiddenHtml::WORDS),
        }
    }

    fn merge(&self, below: &mut McpPolicy) {
        let in_force = &mut below.content;
        let written = &mut in_force.written;
        set_key("definitions", &self.definitions, &mut in_force.definitions, written);
        set_key("results", &self.results, &mut in_force.results, written);
        set_key("requests", &self.requests, &mut in_force.requests, written);
        set_key("arguments", &self.arguments, &mut in_force.arguments, written);
        set_key("sanitize", &self.sanitize, &mut in_force.sanitize, written);
        if let Some(hidden) = &self.hidden_html {
            in_force.hidden_html = Some(hidden.value);
            written.insert("hidden_html", hidden.rule.clone());
        }
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let message = "less is looked for with this file than without it";
        let before = &base.content;
        narrowing.refuse_if(&self.definitions, |own| *own < before.definitions, message);
        narrowing.refuse_if(&self.results, |own| *own < before.results, message);
        narrowing.refuse_if(&self.requests, |own| *own < before.requests, message);
        narrowing.refuse_if(&self.arguments, |own| *own < before.arguments, message);
        narrowing.refuse_if(&self.sanitize, |own| !own && before.sanitize, message);
        narrowing.refuse_if(&self.hidden_html, |own| *own < before.hidden_html(), message);
        self.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let content = &policy.content;
        for (key, value) in [
            ("definitions", content.definitions.as_str().to_owned()),
            ("results", content.results.as_str().to_owned()),
            ("requests", content.requests.as_str().to_owned()),
            ("arguments", content.arguments.as_str().to_owned()),
            ("sanitize", content.sanitize.to_string()),
        ] {
            lines.add(&format!("{name}.content.{key}"), value, &content.rule(key));
        }
        if let Some(hidden) = content.hidden_html {
            lines.add(&format!("{name}.content.hidden_html"), hidden.as_str(), &content.rule("hidden_html"));
        }
    }
}
