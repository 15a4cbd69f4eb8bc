//! `llm`: the channel between the agent and its model.

use std::collections::BTreeMap;
use std::time::Duration;

use agentsh_base::{dollars, words};

use crate::describe::Lines;
use crate::glob;
use crate::keys::{Key, Kind, keys};
use crate::model::{RequestRule, Ruled};
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::section::{Section, merge_keys, merge_list, rules_of};
use crate::sections::{Policy, network};
use crate::types::RuleRef;
use crate::yaml::Value;

/// The policy in force, each key with its place if it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LlmPolicy {
    /// None: only if the model is reached without TLS, or the agent is known to trust the session's authority.
    pub enabled: Option<Ruled<bool>>,
    pub canary: Option<Ruled<OnLeak>>,
    pub canary_sentences: Option<Ruled<Sentences>>,
    /// A random word is put into every system prompt, and looked for.
    pub canary_word: Option<Ruled<bool>>,
    /// Decoded forms of an answer are searched too.
    pub canary_decoded: Option<Ruled<bool>>,
    pub replacement: Option<Ruled<String>>,
    /// How long a model may say nothing, in milliseconds.
    pub timeout_ms: Option<Ruled<u64>>,
    /// Requests to the model's host that pass although agentsh does not know their route.
    pub allow: Vec<Ruled<RequestRule>>,
    /// The outcome for a request with secrets; None: they are recorded.
    pub secrets: Option<Ruled<OnSecret>>,
    /// The outcome for one kind, by the name in its tag (`EMAIL`).
    pub secret_kinds: BTreeMap<String, Ruled<OnSecret>>,
    pub credentials: Option<Ruled<Credentials>>,
    pub budgets: Vec<Ruled<Budget>>,
    pub prices: Vec<Ruled<Price>>,
}

words! {
    /// The outcome for an answer that reveals the system prompt. Strictest last.
    #[derive(PartialOrd, Ord)]
    pub enum OnLeak {
        /// Not searched.
        Pass = "false",
        /// The text from that sentence on is replaced; the agent keeps what was streamed before.
        Replace = "replace",
        /// All of it is replaced: no text is forwarded before the whole was searched.
        Hold = "hold",
    }
}

words! {
    /// The sentences of the system prompt that the canary searches for.
    #[derive(Default)]
    pub enum Sentences {
        /// The first distinctive sentence.
        #[default]
        First = "first",
        /// Every distinctive sentence.
        Every = "every",
    }
}

words! {
    /// The outcome for secrets in a request to the model. Strictest last.
    #[derive(Default, PartialOrd, Ord)]
    pub enum OnSecret {
        Off = "off",
        #[default]
        Log = "log",
        Redact = "redact",
        Block = "block",
    }
}

words! {
    /// Who has the key to the model's API.
    #[derive(Default)]
    pub enum Credentials {
        /// In the agent's environment.
        #[default]
        Pass = "pass",
        /// With the session, which puts it on the wire. The agent has a placeholder.
        Broker = "broker",
    }
}

/// The budget of a session for the models that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Glob over the model's name.
    pub model: String,
    pub max_tokens: Option<u64>,
    /// In millionths of a dollar.
    pub max_cost: Option<u64>,
    pub requests_per_minute: Option<u64>,
    pub tokens_per_minute: Option<u64>,
}

/// The price of tokens of matching models, in millionths of a dollar for a million tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    pub model: String,
    pub input: u64,
    pub output: u64,
}

impl Budget {
    #[must_use]
    pub fn is_for(&self, model: &str) -> bool {
        glob::matches(&self.model, model)
    }
}

impl Price {
    #[must_use]
    pub fn is_for(&self, model: &str) -> bool {
        glob::matches(&self.model, model)
    }
}

impl LlmPolicy {
    /// The outcome for a secret of this kind.
    #[must_use]
    pub fn on_secret(&self, kind: &str) -> OnSecret {
        let of_kind = self.secret_kinds.get(kind).map(|word| word.value);
        of_kind.unwrap_or_else(|| match kind {
            // Every repository log contains them.
            "EMAIL" | "PHONE" => OnSecret::Off,
            _ => self.secrets.as_ref().map(|word| word.value).unwrap_or_default(),
        })
    }

    /// A rule that would cover less than it says if uncounted or unsearched requests went to the model's host.
    #[must_use]
    pub fn bound(&self) -> Option<&RuleRef> {
        let changes = |word: &&Ruled<OnSecret>| word.value >= OnSecret::Redact;
        let secrets = self.secrets.iter().chain(self.secret_kinds.values()).find(changes);
        let keys = self.credentials.as_ref().filter(|word| word.value == Credentials::Broker);
        let budget = self.budgets.first().map(|budget| &budget.rule);
        budget.or(secrets.map(|word| &word.rule)).or(keys.map(|word| &word.rule))
    }

    /// How long a model may say nothing.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout_ms.as_ref().map_or(Duration::from_secs(600), |time| Duration::from_millis(time.value))
    }

    /// The rule that lets a request pass unread; `target` is its path and query.
    #[must_use]
    pub fn passes(&self, method: &str, target: &str) -> Option<&Ruled<RequestRule>> {
        self.allow.iter().find(|rule| rule.value.matches(method, target))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Llm {
    enabled: Option<Ruled<bool>>,
    canary: Option<Ruled<OnLeak>>,
    canary_sentences: Option<Ruled<Sentences>>,
    canary_word: Option<Ruled<bool>>,
    canary_decoded: Option<Ruled<bool>>,
    replacement: Option<Ruled<String>>,
    timeout_ms: Option<Ruled<u64>>,
    allow: List<RequestRule>,
    secrets: Option<Ruled<OnSecret>>,
    secret_kinds: BTreeMap<String, Ruled<OnSecret>>,
    credentials: Option<Ruled<Credentials>>,
    budgets: List<Budget>,
    prices: List<Price>,
}

const ON_LEAK: [(&str, OnLeak); 2] = [("replace", OnLeak::Replace), ("hold", OnLeak::Hold)];

const COUNT: Kind = Kind::Number(1, u32::MAX as u64);
/// Tokens of a session.
const MAX_TOKENS: u64 = 1 << 40;

const BUDGET: &[Key] = keys! {
    /// Pattern for the model's name.
    "model": Kind::Text, default: "`*`", example: "claude-*";
    /// Input and output tokens of a session.
    "max_tokens": Kind::Number(1, MAX_TOKENS), default: "no limit", example: "2000000";
    /// Dollars of a session. A model without a line in `prices` is refused then.
    "max_cost_usd": Kind::Text, default: "no limit", example: "\"5.00\"";
    /// Requests a minute.
    "rpm": COUNT, default: "no limit", example: "60";
    /// Input and output tokens per minute.
    "tpm": Kind::Number(1, MAX_TOKENS), default: "no limit", example: "200000";
};

const PRICE: &[Key] = keys! {
    /// Pattern for the model's name.
    "model": Kind::Text, default: "`*`", example: "claude-*";
    /// Dollars per million input tokens.
    "input": Kind::Text, example: "\"3.00\"";
    /// Dollars per million output tokens.
    "output": Kind::Text, example: "\"15.00\"";
};

const LLM: &[Key] = keys! {
    /// Whether the tool calls in a model's answers are judged before the agent sees them. For that, TLS of the model's
    /// hosts ends at the session's certificate authority, which the agent has to trust: Claude Code and Codex do, other
    /// agents are untested and need `true`. `false`: nothing is read.
    "enabled": Kind::Flag, default: "for Claude Code and Codex, and for every model without TLS",
        example: "true";
    /// What happens to an answer that contains the first distinctive sentence (30 to 240 bytes) of the system prompt.
    /// `replace`, also written `true`: text is streamed, and replaced from that sentence on. `hold`: no text is
    /// streamed before the whole answer was searched, so the agent never gets the beginning of such an answer. `false`:
    /// no search.
    "canary": Kind::Either(&[Kind::Flag, Kind::Word(&["replace", "hold"])]), default: "false",
        example: "hold";
    /// Whether only the first distinctive sentence of the system prompt is searched for, or all of them (at most 64).
    "canary_sentences": Kind::Word(&["first", "every"]), default: "first", example: "every";
    /// With `canary`: whether a random word, one for each session, is appended to the system prompt of every request
    /// and searched for as well. It detects copies of a prompt's end, and prompts without a distinctive sentence.
    "canary_word": Kind::Flag, default: "false", example: "true";
    /// With `canary`: whether decoded forms of an answer (base64, hexadecimal digits, reversed words and the like) are
    /// searched too. An answer then waits until it is complete.
    "canary_decoded": Kind::Flag, default: "false", example: "true";
    /// What the agent gets in place of such an answer.
    "replacement": Kind::Text,
        default: "`[Response withheld: the model attempted to reveal protected instructions.]`",
        example: "\"I can't share my system instructions.\"";
    /// How long a model may be silent before its answer ends with an error.
    "timeout": Kind::Duration, default: "10m", example: "2m";
    /// Requests to the model's host, as `METHOD /path`, that pass unread although agentsh does not know them. All other
    /// unknown requests there are refused.
    "allow": Kind::List(&Kind::Text), default: "what the built-in policies of Claude Code and Codex list",
        example: "[\"POST /api/telemetry/**\"]";
    /// What happens to a request to the model that contains keys, passwords or tokens: their kinds are recorded, they
    /// are replaced by `[REDACTED KIND]`, or the request is refused.
    "secrets": Kind::Word(&["off", "log", "redact", "block"]), default: "log", example: "redact";
    /// The same for single kinds, by the name in the tag.
    "secret_kinds": Kind::Names(&Kind::Word(&["off", "log", "redact", "block"])),
        default: "`EMAIL` and `PHONE` are off, every other kind is as `secrets` says",
        example: "{EMAIL: redact, PASSWORD: block}";
    /// With `broker` the agent has a placeholder for the API key in its environment, and the session adds the key to
    /// requests.
    "credentials": Kind::Word(&["pass", "broker"]), default: "pass", example: "broker";
    /// Limits of a session. Every budget whose pattern matches the model applies.
    "budgets": Kind::List(&Kind::Map(BUDGET)), default: "none",
        example: "[{model: \"*\", max_tokens: 2000000, rpm: 60}]";
    /// Prices of tokens. The first line whose pattern matches the model counts.
    "prices": Kind::List(&Kind::Map(PRICE)), default: "none",
        example: "[{model: \"claude-*\", input: \"3.00\", output: \"15.00\"}]";
};

impl Section<Policy> for Llm {
    const KEYS: &'static [Key] = keys! {
        /// Checks between the agent and its model.
        "llm": Kind::Map(LLM), example: "{enabled: true, canary: true}";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "llm", LLM) else { return Self::default() };
        Self {
            enabled: reader.boolean(fields.find("enabled")),
            canary: fields.find("canary").and_then(|here| match here.node.value {
                Value::Bool(true) => Some(reader.ruled(&here, OnLeak::Replace)),
                Value::Bool(false) => Some(reader.ruled(&here, OnLeak::Pass)),
                _ => reader.word(Some(here), &ON_LEAK),
            }),
            canary_sentences: reader.word(fields.find("canary_sentences"), Sentences::WORDS),
            canary_word: reader.boolean(fields.find("canary_word")),
            canary_decoded: reader.boolean(fields.find("canary_decoded")),
            replacement: reader.one(fields.find("replacement"), Reader::text),
            timeout_ms: reader.duration(fields.find("timeout")),
            allow: reader.adding(fields.find("allow"), network::request),
            secrets: reader.word(fields.find("secrets"), OnSecret::WORDS),
            secret_kinds: reader
                .named(fields.find("secret_kinds"), |reader, here| reader.word(Some(here), OnSecret::WORDS)),
            credentials: reader.word(fields.find("credentials"), Credentials::WORDS),
            budgets: reader.adding(fields.find("budgets"), budget),
            prices: reader.adding(fields.find("prices"), price),
        }
    }

    fn merge(&self, below: &mut Policy) {
        let below = &mut below.llm;
        merge_keys!(self => below; enabled, canary, canary_sentences, canary_word, canary_decoded, replacement);
        merge_keys!(self => below; timeout_ms, secrets, credentials);
        merge_list(&self.allow, &mut below.allow);
        below.secret_kinds.extend(self.secret_kinds.clone());
        merge_list(&self.budgets, &mut below.budgets);
        // A higher layer's price for a model takes precedence.
        let mut below_prices = std::mem::take(&mut below.prices);
        merge_list(&self.prices, &mut below.prices);
        if !self.prices.as_ref().is_some_and(|list| list.replaces) {
            below.prices.append(&mut below_prices);
        }
    }

    /// A project cannot switch off checks.
    fn narrow(&self, base: &mut Policy, narrowing: &mut Narrowing<'_>) {
        let llm = &mut base.llm;
        for (wanted, in_force) in [
            (&self.enabled, &mut llm.enabled),
            (&self.canary_word, &mut llm.canary_word),
            (&self.canary_decoded, &mut llm.canary_decoded),
        ] {
            match wanted {
                Some(wanted) if wanted.value => *in_force = Some(wanted.clone()),
                Some(wanted) => {
                    narrowing.refuse(&wanted.rule, "this file would switch off checks of the model's answers")
                }
                None => {}
            }
        }
        let in_force = llm.canary.as_ref().map_or(OnLeak::Replace, |own| own.value);
        match &self.canary {
            Some(wanted) if wanted.value >= in_force => llm.canary = Some(wanted.clone()),
            Some(wanted) => narrowing.refuse(&wanted.rule, "this file would loosen `canary`"),
            None => {}
        }
        match &self.canary_sentences {
            Some(wanted) if wanted.value == Sentences::Every => llm.canary_sentences = Some(wanted.clone()),
            Some(wanted) => narrowing.refuse(&wanted.rule, "only the user sets the canary"),
            None => {}
        }
        match &self.secrets {
            Some(wanted) if wanted.value >= llm.secrets.as_ref().map_or(OnSecret::Log, |own| own.value) => {
                llm.secrets = Some(wanted.clone());
            }
            Some(wanted) => narrowing.refuse(&wanted.rule, "this file would treat secrets less strictly"),
            None => {}
        }
        for (kind, wanted) in &self.secret_kinds {
            if wanted.value >= llm.on_secret(kind) {
                llm.secret_kinds.insert(kind.clone(), wanted.clone());
            } else {
                narrowing.refuse(&wanted.rule, "this file would treat secrets less strictly");
            }
        }
        // A further budget restricts.
        llm.budgets.extend(self.budgets.iter().flat_map(|list| list.value.iter().cloned()));
        let belongs = rules_of!(self; replacement, timeout_ms, credentials, prices);
        narrowing.refuse_all(belongs, "only the user can set this");
        let Some(list) = &self.allow else { return };
        for entry in &list.value {
            if !llm.allow.iter().any(|outer| outer.value.covers(&entry.value)) {
                narrowing.refuse(&entry.rule, format!("this file would let `{}` pass unread", entry.value));
            }
        }
        llm.allow.clone_from(&list.value);
    }

    fn describe(policy: &Policy, _: &str, lines: &mut Lines) {
        let llm = &policy.llm;
        lines.list("llm.enabled", &llm.enabled, ToString::to_string);
        lines.list("llm.canary_word", &llm.canary_word, ToString::to_string);
        lines.list("llm.canary_decoded", &llm.canary_decoded, ToString::to_string);
        lines.list("llm.canary", &llm.canary, |word| word.as_str());
        lines.list("llm.canary_sentences", &llm.canary_sentences, |word| word.as_str());
        lines.list("llm.replacement", &llm.replacement, |text| format!("{text:?}"));
        lines.list("llm.timeout", &llm.timeout_ms, |timeout| format!("{timeout} ms"));
        lines.list("llm.allow", &llm.allow, ToString::to_string);
        lines.list("llm.secrets", &llm.secrets, |word| word.as_str());
        for (kind, word) in &llm.secret_kinds {
            lines.add(&format!("llm.secret_kinds.{kind}"), word.value.as_str(), &word.rule);
        }
        lines.list("llm.credentials", &llm.credentials, |word| word.as_str());
        lines.list("llm.budgets", &llm.budgets, ToString::to_string);
        lines.list("llm.prices", &llm.prices, |price| {
            format!("{}: {} in, {} out", price.model, dollars(price.input), dollars(price.output))
        });
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limits = [
            self.max_tokens.map(|tokens| format!("{tokens} tokens")),
            self.max_cost.map(dollars),
            self.requests_per_minute.map(|requests| format!("{requests} requests a minute")),
            self.tokens_per_minute.map(|tokens| format!("{tokens} tokens a minute")),
        ];
        let limits: Vec<String> = limits.into_iter().flatten().collect();
        write!(f, "{}: {}", self.model, limits.join(", "))
    }
}

fn budget(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Budget> {
    let fields = reader.map(here, BUDGET)?;
    let mut number =
        |name: &str, most: u64| reader.number(fields.find(name), 1, most).map(|found| found.value);
    let (max_tokens, requests, tokens) =
        (number("max_tokens", MAX_TOKENS), number("rpm", u64::from(u32::MAX)), number("tpm", MAX_TOKENS));
    let max_cost = amount(reader, &fields, "max_cost_usd")?;
    let model = pattern(reader, &fields)?;
    if max_tokens.or(requests).or(tokens).or(max_cost).is_none() {
        return reader.fault(here, "this budget limits nothing", "add `max_tokens: 1000000`");
    }
    Some(Budget { model, max_tokens, max_cost, requests_per_minute: requests, tokens_per_minute: tokens })
}

fn price(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Price> {
    let fields = reader.map(here, PRICE)?;
    let model = pattern(reader, &fields)?;
    let (input, output) = (amount(reader, &fields, "input")?, amount(reader, &fields, "output")?);
    let (Some(input), Some(output)) = (input, output) else {
        return reader.fault(here, "a price has `input` and `output`", None);
    };
    Some(Price { model, input, output })
}

fn pattern(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<String> {
    fields.find("model").map_or_else(|| Some("*".to_owned()), |here| reader.text(&here))
}

/// Dollars with at most six decimals, in millionths. `Some(None)`: it is not written; `None`: it cannot be read.
fn amount(reader: &mut Reader<'_>, fields: &Fields<'_>, name: &str) -> Option<Option<u64>> {
    let Some(here) = fields.find(name) else { return Some(None) };
    let text = reader.text(&here)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let micros = (digits(whole) && digits(fraction) && whole.len() <= 9 && fraction.len() <= 6)
        .then(|| format!("{whole}{fraction:0<6}").parse::<u64>().ok())
        .flatten();
    if micros.is_none() {
        let help = "write dollars in quotes, such as `\"3.00\"`";
        return reader.fault(&here, format!("`{text}` is not an amount of dollars"), help);
    }
    Some(micros)
}
