//! `sandbox.mcp.classifier`: the user's own model that rates how likely a text gives orders to an agent.

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::section::{Section, merge_key};
use crate::sections::McpPolicy;
use crate::sections::content::OnFinding;
use crate::types::RuleRef;

/// How the endpoint is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifierFormat {
    /// `{"inputs": TEXT}`, answered with labels and scores, or one score.
    Json,
    /// A chat completion.
    OpenAi,
}

/// The outcome for a text that could not be classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnUnavailable {
    Pass,
    Block,
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

impl Section<McpPolicy> for Classifier {
    const KEYS: &'static [Key] = keys! {
        /// A classification model that rates results and definitions, with secrets replaced. Nothing leaves the machine
        /// unless `host` says so.
        "classifier": Kind::Map(CLASSIFIER);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = fields.find("classifier").and_then(|here| reader.map(&here, CLASSIFIER)) else {
            return Self::default();
        };
        let text = |reader: &mut Reader<'_>, key: &str| {
            let here = fields.find(key)?;
            let text = reader.text(&here)?;
            Some(reader.ruled(&here, text))
        };
        let written = ClassifierPolicy {
            url: text(reader, "url"),
            host: text(reader, "host"),
            model: text(reader, "model"),
            key_env: text(reader, "key_env"),
            format: reader.word(
                fields.find("format"),
                &[("json", ClassifierFormat::Json), ("openai", ClassifierFormat::OpenAi)],
            ),
            labels: labels(reader, fields.find("labels")).map(|list| list.value),
            threshold: reader.share(fields.find("threshold")),
            timeout: reader.duration(fields.find("timeout")),
            min_bytes: reader.number(fields.find("min_bytes"), 1, 1 << 20),
            action: reader.word(
                fields.find("action"),
                &[("block", OnFinding::Block), ("advise", OnFinding::Advise), ("alert", OnFinding::Alert)],
            ),
            on_unavailable: reader.word(
                fields.find("on_unavailable"),
                &[("pass", OnUnavailable::Pass), ("block", OnUnavailable::Block)],
            ),
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
        merge_key(&own.url, &mut below.url);
        merge_key(&own.host, &mut below.host);
        merge_key(&own.model, &mut below.model);
        merge_key(&own.key_env, &mut below.key_env);
        merge_key(&own.format, &mut below.format);
        merge_key(&own.threshold, &mut below.threshold);
        merge_key(&own.timeout, &mut below.timeout);
        merge_key(&own.min_bytes, &mut below.min_bytes);
        merge_key(&own.action, &mut below.action);
        merge_key(&own.on_unavailable, &mut below.on_unavailable);
        if own.labels.is_some() {
            below.labels.clone_from(&own.labels);
        }
    }

    /// The user chooses who gets servers' texts; a project can only make the outcome stricter.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let own = &self.written;
        let chosen = [
            own.url.as_ref().map(|own| &own.rule),
            own.host.as_ref().map(|own| &own.rule),
            own.model.as_ref().map(|own| &own.rule),
            own.key_env.as_ref().map(|own| &own.rule),
            own.format.as_ref().map(|own| &own.rule),
            own.timeout.as_ref().map(|own| &own.rule),
            own.labels.as_ref().and_then(|own| own.first()).map(|own| &own.rule),
        ];
        for rule in chosen.into_iter().flatten() {
            narrowing.refuse(rule, "only the user chooses the classifier");
        }
        let before = &base.classifier;
        let laxer = [
            own.threshold.as_ref().filter(|_| own.threshold() > before.threshold()).map(|own| &own.rule),
            own.min_bytes.as_ref().filter(|_| own.min_bytes() > before.min_bytes()).map(|own| &own.rule),
            own.action.as_ref().filter(|own| own.value < before.action()).map(|own| &own.rule),
            own.on_unavailable
                .as_ref()
                .filter(|own| own.value < before.on_unavailable())
                .map(|own| &own.rule),
        ];
        for rule in laxer.into_iter().flatten() {
            narrowing.refuse(rule, "less is looked for with this file than without it");
        }
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
        let texts =
            [("url", &own.url), ("host", &own.host), ("model", &own.model), ("key_env", &own.key_env)];
        for (word, text) in texts {
            if let Some(text) = text {
                lines.add(&key(word), text.value.clone(), &text.rule);
            }
        }
        if let Some(format) = &own.format {
            let word = if format.value == ClassifierFormat::Json { "json" } else { "openai" };
            lines.add(&key("format"), word, &format.rule);
        }
        if let Some(threshold) = &own.threshold {
            lines.add(&key("threshold"), own.threshold().to_string(), &threshold.rule);
        }
        if let Some(timeout) = &own.timeout {
            lines.add(&key("timeout"), format!("{} ms", timeout.value), &timeout.rule);
        }
        if let Some(bytes) = &own.min_bytes {
            lines.add(&key("min_bytes"), bytes.value.to_string(), &bytes.rule);
        }
        if let Some(action) = &own.action {
            lines.add(&key("action"), action.value.as_str(), &action.rule);
        }
        if let Some(word) = &own.on_unavailable {
            let value = if word.value == OnUnavailable::Pass { "pass" } else { "block" };
            lines.add(&key("on_unavailable"), value, &word.rule);
        }
        if let Some(labels) = &own.labels {
            lines.list(&key("labels"), labels, Clone::clone);
        }
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
    let list = reader.list(here.clone(), |reader, here| reader.text(here));
    if let (Some(here), Some(list)) = (&here, &list)
        && list.value.is_empty()
    {
        reader.problem(here, "without a label nothing would ever be suspicious", None);
    }
    list
}
