//! `sandbox.mcp.classifier`: the user's own model that rates how likely a text gives orders to an agent.

use agentsh_base::words;

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::section::{Section, merge_keys, rules_of};
use crate::sections::McpPolicy;
use crate::sections::content::OnFinding;
use crate::types::RuleRef;

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

/// The policy in force, each key with its place if it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassifierPolicy {
    /// None: nothing is classified.
    pub url: Option<Ruled<String>>,
    format: Option<Ruled<ClassifierFormat>>,
    pub model: Option<Ruled<String>>,
    threshold: Option<Ruled<u64>>,
    timeout: Option<Ruled<u64>>,
    min_bytes: Option<Ruled<u64>>,
    action: Option<Ruled<OnFinding>>,
    on_unavailable: Option<Ruled<OnUnavailable>>,
    labels: Option<Vec<Ruled<String>>>,
    /// Another host than this machine.
    pub host: Option<Ruled<String>>,
    /// The variable that holds the key for it.
    pub key_env: Option<Ruled<String>>,
}

/// Labels that mean an attack, as known models call them.
const LABELS: [&str; 5] = ["INJECTION", "JAILBREAK", "MALICIOUS", "UNSAFE", "LABEL_1"];

impl ClassifierPolicy {
    #[must_use]
    pub fn format(&self) -> ClassifierFormat {
        self.format.as_ref().map_or(ClassifierFormat::Json, |format| format.value)
    }

    /// From 0.0 to 1.0.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "0 to 1000")]
    pub fn threshold(&self) -> f64 {
        self.threshold.as_ref().map_or(800, |share| share.value) as f64 / 1000.0
    }

    /// For everything that one message asks, in milliseconds.
    #[must_use]
    pub fn timeout_ms(&self) -> u64 {
        self.timeout.as_ref().map_or(1000, |timeout| timeout.value)
    }

    /// Texts that are shorter are not classified, in bytes.
    #[must_use]
    pub fn min_bytes(&self) -> u64 {
        self.min_bytes.as_ref().map_or(1, |bytes| bytes.value)
    }

    #[must_use]
    pub fn action(&self) -> OnFinding {
        self.action.as_ref().map_or(OnFinding::Advise, |action| action.value)
    }

    #[must_use]
    pub fn on_unavailable(&self) -> OnUnavailable {
        self.on_unavailable.as_ref().map_or(OnUnavailable::Pass, |word| word.value)
    }

    /// The labels that count, in lower case.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        match &self.labels {
            Some(own) => own.iter().map(|label| label.value.to_lowercase()).collect(),
            None => LABELS.iter().map(|label| label.to_lowercase()).collect(),
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classifier {
    written: ClassifierPolicy,
}

const CLASSIFIER: &[Key] = keys! {
    /// The endpoint. On this machine, unless `host` names another one.
    "url": Kind::Text, default: "none: nothing is classified", example: "\"http://127.0.0.1:8080/predict\"";
    /// The host of `url` once more, if it is not this machine, because servers' texts are sent to it.
    "host": Kind::Text, default: "this machine", example: "classifier.corp.example";
    /// `json` sends `{"inputs": TEXT}` and reads a score, or labels with scores; `openai` asks a chat model.
    "format": Kind::Word(&["json", "openai"]), default: "json", example: "openai";
    /// The model's name, for `openai`.
    "model": Kind::Text, default: "none", example: "guard";
    /// Variable of the caller's environment that holds the key of the endpoint.
    "key_env": Kind::Text, default: "none", example: "CLASSIFIER_KEY";
    /// Labels of the answer that mean an attack.
    "labels": Kind::Whole(&Kind::Text), default: "INJECTION, JAILBREAK, MALICIOUS, UNSAFE, LABEL_1",
        example: "[INJECTION]";
    /// The score from which a text is suspicious.
    "threshold": Kind::Share, default: "0.8", example: "0.9";
    /// How long one message waits for all answers of the classifier.
    "timeout": Kind::Duration, default: "1s", example: "2s";
    /// Shorter texts are not classified.
    "min_bytes": Kind::Number(1, 1 << 20), default: "1", example: "64";
    /// What happens to a suspicious text: `advise` puts a sentence in front of a result; `block` refuses a result, and
    /// removes an entry with such a definition from its listing.
    "action": Kind::Word(&["block", "advise", "alert"]), default: "advise", example: "block";
    /// What happens to a text when the endpoint gives no usable answer.
    "on_unavailable": Kind::Word(&["pass", "block"]), default: "pass", example: "block";
};

const CHOSEN: &str = "only the user chooses the classifier";

impl Section<McpPolicy> for Classifier {
    const KEYS: &'static [Key] = keys! {
        /// A classification model that rates results and definitions, with secrets replaced. Nothing leaves the machine
        /// unless `host` says so.
        "classifier": Kind::Map(CLASSIFIER);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "classifier", CLASSIFIER) else { return Self::default() };
        let written = ClassifierPolicy {
            url: reader.one(fields.find("url"), Reader::text),
            host: reader.one(fields.find("host"), Reader::text),
            model: reader.one(fields.find("model"), Reader::text),
            key_env: reader.one(fields.find("key_env"), Reader::text),
            format: reader.word(fields.find("format"), ClassifierFormat::WORDS),
            labels: labels(reader, fields.find("labels")).map(|list| list.value),
            threshold: reader.share(fields.find("threshold")),
            timeout: reader.duration(fields.find("timeout")),
            min_bytes: reader.number(fields.find("min_bytes"), 1, 1 << 20),
            action: reader.word(
                fields.find("action"),
                &[("block", OnFinding::Block), ("advise", OnFinding::Advise), ("alert", OnFinding::Alert)],
            ),
            on_unavailable: reader.word(fields.find("on_unavailable"), OnUnavailable::WORDS),
        };
        if let (Some(url), Some(here)) = (&written.url, fields.find("url"))
            && !url.value.starts_with("http://")
            && !url.value.starts_with("https://")
        {
            let help = "write `http://127.0.0.1:PORT/PATH`, or `https://HOST/PATH`";
            reader.problem(&here, "this is not an http or https URL", help);
        }
        if let (Some(limit), Some(here)) = (&written.timeout, fields.find("timeout"))
            && !(10..=60_000).contains(&limit.value)
        {
            reader.problem(&here, "the timeout is between 10ms and 60s", None);
        }
        Self { written }
    }

    fn merge(&self, below: &mut McpPolicy) {
        let (own, below) = (&self.written, &mut below.classifier);
        merge_keys!(own => below; url, host, model, key_env, format, threshold, timeout, min_bytes, action, on_unavailable);
        if own.labels.is_some() {
            below.labels.clone_from(&own.labels);
        }
    }

    /// The user chooses who gets servers' texts; a project can only make the outcome stricter.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let own = &self.written;
        narrowing.refuse_all(rules_of!(own; url, host, model, key_env, format, timeout), CHOSEN);
        narrowing.refuse_all([own.labels.iter().flatten().next().map(|own| &own.rule)], CHOSEN);
        let (before, message) = (&base.classifier, "less is looked for with this file than without it");
        narrowing.refuse_if(&own.threshold, |_| own.threshold() > before.threshold(), message);
        narrowing.refuse_if(&own.min_bytes, |_| own.min_bytes() > before.min_bytes(), message);
        narrowing.refuse_if(&own.action, |action| *action < before.action(), message);
        narrowing.refuse_if(&own.on_unavailable, |word| *word < before.on_unavailable(), message);
        let stricter = ClassifierPolicy {
            threshold: own.threshold.clone(),
            min_bytes: own.min_bytes.clone(),
            action: own.action.clone(),
            on_unavailable: own.on_unavailable.clone(),
            ..ClassifierPolicy::default()
        };
        Self { written: stricter }.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let own = &policy.classifier;
        let key = |key: &str| format!("{name}.classifier.{key}");
        for (word, text) in
            [("url", &own.url), ("host", &own.host), ("model", &own.model), ("key_env", &own.key_env)]
        {
            lines.list(&key(word), text, Clone::clone);
        }
        lines.list(&key("format"), &own.format, |format| format.as_str());
        lines.list(&key("threshold"), &own.threshold, |_| own.threshold().to_string());
        lines.list(&key("timeout"), &own.timeout, |timeout| format!("{timeout} ms"));
        lines.list(&key("min_bytes"), &own.min_bytes, ToString::to_string);
        lines.list(&key("action"), &own.action, |action| action.as_str());
        lines.list(&key("on_unavailable"), &own.on_unavailable, |word| word.as_str());
        lines.list(&key("labels"), own.labels.iter().flatten(), Clone::clone);
    }

    fn warn(policy: &McpPolicy, warnings: &mut Vec<Ruled<String>>) {
        let own = &policy.classifier;
        if let (None, Some(host)) = (&own.url, &own.host) {
            let value = "nothing is classified: `classifier` has no `url`".to_owned();
            warnings.push(Ruled { value, rule: host.rule.clone() });
        }
    }
}

fn labels<'n>(reader: &mut Reader<'_>, here: Option<Here<'n>>) -> List<String> {
    let list = reader.list(here.clone(), Reader::text);
    if let (Some(here), Some(list)) = (&here, &list)
        && list.value.is_empty()
    {
        reader.problem(here, "without a label nothing would ever be suspicious", None);
    }
    list
}
