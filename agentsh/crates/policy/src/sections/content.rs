//! `sandbox.mcp.content`: what happens to servers' texts that try to instruct a model.

use super::prelude::*;

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

word_values!(OnFinding, HiddenHtml);

/// A scan's finding is a guess: by default it is reported and refuses nothing, except requests of servers to a client.
impl ContentPolicy {
    /// The outcome for a definition: `block` hides the tool.
    #[must_use]
    pub fn definitions(&self) -> OnFinding {
        in_force(&self.definitions, OnFinding::Alert)
    }

    #[must_use]
    pub fn results(&self) -> OnFinding {
        in_force(&self.results, OnFinding::Advise)
    }

    /// The outcome for requests of servers (sampling, elicitation).
    #[must_use]
    pub fn requests(&self) -> OnFinding {
        in_force(&self.requests, OnFinding::Block)
    }

    /// The outcome for arguments of calls.
    #[must_use]
    pub fn arguments(&self) -> OnFinding {
        in_force(&self.arguments, OnFinding::Alert)
    }

    /// Terminal control is taken out of results, and hidden HTML where `hidden_html` is not written.
    #[must_use]
    pub fn sanitize(&self) -> bool {
        in_force(&self.sanitize, true)
    }

    #[must_use]
    pub fn hidden_html(&self) -> HiddenHtml {
        let default = if self.sanitize() { HiddenHtml::Suspicious } else { HiddenHtml::Keep };
        in_force(&self.hidden_html, default)
    }

    /// Harmful commands are refused whatever the policy says, because a gateway's clients are not the user's own agents.
    pub fn at_gateway(&mut self) {
        if self.arguments() < OnFinding::Block {
            let id = "sandbox.mcp.content.arguments".to_owned();
            let rule = RuleRef { id, file: GATEWAY.to_owned(), line: 0 };
            self.arguments = Some(Ruled { value: OnFinding::Block, rule });
        }
    }

    /// The place where a key was written, or its default.
    #[must_use]
    pub fn rule(&self, key: &str) -> RuleRef {
        let default = || RuleRef::default_rule(&format!("sandbox.mcp.content.{key}"));
        self.rule_of(key).cloned().unwrap_or_else(default)
    }
}

table! {
    /// The policy in force, each key with its place if it was written.
    struct ContentPolicy;

    /// What happens to a tool whose definition contains instructions to the model. Hidden characters in a definition
    /// hide the tool unless this is `off`.
    pub(super) definitions: One<OnFinding> = Kind::Word(&["block", "alert", "off"]), default: "alert",
        example: "block";
    /// What happens to a result that contains instructions to the model; `advise` puts a sentence in front of it.
    pub(super) results: One<OnFinding> = Kind::Word(&["block", "advise", "alert", "off"]), default: "advise",
        example: "block";
    /// What happens to a request of a server (sampling, elicitation) that contains instructions to the model.
    requests: One<OnFinding> = Kind::Word(&["block", "alert", "off"]), default: "block", example: "alert";
    /// What happens to a call with a harmful command in its arguments, such as a reverse shell.
    arguments: One<OnFinding> = Kind::Word(&["block", "alert", "off"]), default: "alert", example: "block";
    /// Whether terminal control characters are removed from servers' texts, and hidden HTML as `hidden_html` says by
    /// default.
    sanitize: One<bool> = Kind::Flag, default: "true", example: "false";
    /// Whether HTML that a page does not show (comments, hidden elements and inputs, `noscript`, frames without a size)
    /// is removed from results: always, if an instruction is near certain, or never. An agent that edits pages needs
    /// their comments.
    hidden_html: One<HiddenHtml> = Kind::Word(&["remove", "suspicious", "keep"]), default: "suspicious",
        example: "remove";
}

impl Section<McpPolicy> for ContentPolicy {
    const KEYS: &'static [Key] = keys! {
        /// Texts of servers that try to instruct a model. A finding is a guess, so little is refused by default.
        "content": Kind::Map(Self::TABLE);
    };

    in_table! { McpPolicy (content): read merge }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let (before, message) = (&base.content, "less is looked for with this file than without it");
        narrowing.refuse_if(&self.definitions, |own| *own < before.definitions(), message);
        narrowing.refuse_if(&self.results, |own| *own < before.results(), message);
        narrowing.refuse_if(&self.requests, |own| *own < before.requests(), message);
        narrowing.refuse_if(&self.arguments, |own| *own < before.arguments(), message);
        narrowing.refuse_if(&self.sanitize, |own| !own && before.sanitize(), message);
        narrowing.refuse_if(&self.hidden_html, |own| *own < before.hidden_html(), message);
        Section::merge(self, base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let content = &policy.content;
        for (key, value) in [
            ("definitions", content.definitions().as_str()),
            ("results", content.results().as_str()),
            ("requests", content.requests().as_str()),
            ("arguments", content.arguments().as_str()),
            ("sanitize", if content.sanitize() { "true" } else { "false" }),
        ] {
            lines.add(&format!("{name}.content.{key}"), value, &content.rule(key));
        }
        content.describe_keys(&["hidden_html"], &format!("{name}.content"), lines);
    }
}
