//! `sandbox.mcp.classifier`: the user's own model that rates how likely a text gives orders to an agent.

use super::content::OnFinding;
use super::prelude::*;

words! {
    /// How the endpoint is spoken to.
    pub enum ClassifierFormat {
        /// `{"inputs": TEXT}`, answered with labels and scores, or one score.
        Json = "json",
        /// A chat completion.
        OpenAi = "openai",
    }
}

words! {
    /// The outcome for a text that could not be classified.
    #[derive(PartialOrd, Ord)]
    pub enum OnUnavailable {
        Pass = "pass",
        Block = "block",
    }
}

word_values!(ClassifierFormat, OnUnavailable);

/// Labels that mean an attack, as known models call them.
const LABELS: [&str; 5] = ["INJECTION", "JAILBREAK", "MALICIOUS", "UNSAFE", "LABEL_1"];

impl ClassifierPolicy {
    #[must_use]
    pub fn format(&self) -> ClassifierFormat {
        in_force(&self.format, ClassifierFormat::Json)
    }

    /// From 0.0 to 1.0.
    #[must_use]
    pub fn threshold(&self) -> f64 {
        share(in_force(&self.threshold, 800))
    }

    /// For everything that one message asks, in milliseconds.
    #[must_use]
    pub fn timeout_ms(&self) -> u64 {
        in_force(&self.timeout, 1000)
    }

    /// Texts that are shorter are not classified, in bytes.
    #[must_use]
    pub fn min_bytes(&self) -> u64 {
        in_force(&self.min_bytes, 1)
    }

    #[must_use]
    pub fn action(&self) -> OnFinding {
        in_force(&self.action, OnFinding::Advise)
    }

    #[must_use]
    pub fn on_unavailable(&self) -> OnUnavailable {
        in_force(&self.on_unavailable, OnUnavailable::Pass)
    }

    /// The labels that count, in lower case.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        match self.labels.is_empty() {
            false => self.labels.iter().map(|label| label.value.to_lowercase()).collect(),
            true => LABELS.iter().map(|label| label.to_lowercase()).collect(),
        }
    }

    /// The rule in a refusal.
    #[must_use]
    pub fn action_rule(&self) -> RuleRef {
        self.rule_of(self.action.as_ref().map(|own| &own.rule), "action")
    }

    /// The rule of a refusal for a text that was not classified.
    #[must_use]
    pub fn unavailable_rule(&self) -> RuleRef {
        self.rule_of(self.on_unavailable.as_ref().map(|own| &own.rule), "on_unavailable")
    }

    fn rule_of(&self, own: Option<&RuleRef>, key: &str) -> RuleRef {
        let of_section = self.url.as_ref().map(|url| url.rule.clone());
        let default = || RuleRef::default_rule(&format!("sandbox.mcp.classifier.{key}"));
        own.cloned().or(of_section).unwrap_or_else(default)
    }
}

table! {
    /// The policy in force, each key with its place if it was written.
    struct ClassifierPolicy;

    /// The endpoint. On this machine, unless `host` names another one.
    pub url: One<String> = Kind::Text, default: "none: nothing is classified",
        example: "\"http://127.0.0.1:8080/predict\""
        => read url;
    /// The host of `url` once more, if it is not this machine, because servers' texts are sent to it.
    pub host: One<String> = Kind::Text, default: "this machine", example: "classifier.corp.example";
    /// `json` sends `{"inputs": TEXT}` and reads a score, or labels with scores; `openai` asks a chat model.
    format: One<ClassifierFormat> = Kind::Word(&["json", "openai"]), default: "json", example: "openai";
    /// The model's name, for `openai`.
    pub model: One<String> = Kind::Text, default: "none", example: "guard";
    /// Variable of the caller's environment that holds the key of the endpoint.
    pub key_env: One<String> = Kind::Text, default: "none", example: "CLASSIFIER_KEY";
    /// Labels of the answer that mean an attack.
    labels: Whole<String> = Kind::Whole(&Kind::Text),
        default: "INJECTION, JAILBREAK, MALICIOUS, UNSAFE, LABEL_1",
        example: "[INJECTION]" => whole labels;
    /// The score from which a text is suspicious.
    threshold: One<u64> = Kind::Share, default: "0.8", example: "0.9";
    /// How long one message waits for all answers of the classifier.
    timeout: One<u64> = Kind::Duration, default: "1s", example: "2s" => read timeout;
    /// Shorter texts are not classified.
    min_bytes: One<u64> = Kind::Number(1, 1 << 20), default: "1", example: "64";
    /// What happens to a suspicious text: `advise` puts a sentence in front of a result; `block` refuses a result, and
    /// removes an entry with such a definition from its listing.
    action: One<OnFinding> = Kind::Word(&["block", "advise", "alert"]), default: "advise", example: "block"
        => words ACTIONS;
    /// What happens to a text when the endpoint gives no usable answer.
    on_unavailable: One<OnUnavailable> = Kind::Word(&["pass", "block"]), default: "pass", example: "block";
}

const CHOSEN: &str = "only the user chooses the classifier";

impl Section<McpPolicy> for ClassifierPolicy {
    const KEYS: &'static [Key] = keys! {
        /// A classification model that rates results and definitions, with secrets replaced. Nothing leaves the machine
        /// unless `host` says so.
        "classifier": Kind::Map(Self::TABLE);
    };

    in_table! { McpPolicy (classifier): read merge }

    /// The user chooses who gets servers' texts; a project can only make the outcome stricter.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        narrowing.refuse_all(rules_of!(self; url, host, model, key_env, format, timeout, labels), CHOSEN);
        let (before, message) = (&base.classifier, "less is looked for with this file than without it");
        narrowing.refuse_if(&self.threshold, |_| self.threshold() > before.threshold(), message);
        narrowing.refuse_if(&self.min_bytes, |_| self.min_bytes() > before.min_bytes(), message);
        narrowing.refuse_if(&self.action, |action| *action < before.action(), message);
        narrowing.refuse_if(&self.on_unavailable, |word| *word < before.on_unavailable(), message);
        Section::merge(self, base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        policy.classifier.describe_keys(SHOWN, &format!("{name}.classifier"), lines);
    }

    fn warn(policy: &McpPolicy, warnings: &mut Vec<Ruled<String>>) {
        let own = &policy.classifier;
        if let (None, Some(host)) = (&own.url, &own.host) {
            let value = "nothing is classified: `classifier` has no `url`".to_owned();
            warnings.push(Ruled { value, rule: host.rule.clone() });
        }
    }
}

const ACTIONS: [(&str, OnFinding); 3] =
    [("block", OnFinding::Block), ("advise", OnFinding::Advise), ("alert", OnFinding::Alert)];

/// The order in which they are shown.
const SHOWN: &[&str] = texts! {
    "url" "host" "model" "key_env" "format" "threshold" "timeout" "min_bytes" "action" "on_unavailable" "labels"
};

fn url(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let url = reader.text(here)?;
    if !url.starts_with("http://") && !url.starts_with("https://") {
        let help = "write `http://127.0.0.1:PORT/PATH`, or `https://HOST/PATH`";
        return reader.fault(here, "this is not an http or https URL", help);
    }
    Some(url)
}

fn timeout(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u64> {
    let timeout = reader.milliseconds(here)?;
    if !(10..=60_000).contains(&timeout) {
        return reader.fault(here, "the timeout is between 10ms and 60s", None);
    }
    Some(timeout)
}

fn labels(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Whole<String> {
    let list = reader.list(here.clone(), Reader::text).map(|list| list.value);
    if let (Some(here), Some([])) = (&here, list.as_deref()) {
        reader.problem(here, "without a label nothing would ever be suspicious", None);
    }
    list.unwrap_or_default()
}
