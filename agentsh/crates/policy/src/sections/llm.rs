//! `llm`: the channel between the agent and its model.

use std::time::Duration;

use agentsh_base::dollars;

use super::network;
use super::prelude::*;
use crate::glob;
use crate::model::RequestRule;

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

word_values!(Sentences, OnSecret, Credentials);

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
        self.timeout.as_ref().map_or(Duration::from_secs(600), |time| Duration::from_millis(time.value))
    }

    /// The rule that lets a request pass unread; `target` is its path and query.
    #[must_use]
    pub fn passes(&self, method: &str, target: &str) -> Option<&Ruled<RequestRule>> {
        self.allow.iter().find(|rule| rule.value.matches(method, target))
    }
}

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

table! {
    /// The policy in force, each key with its place if it was written.
    struct LlmPolicy;

    /// Whether the tool calls in a model's answers are judged before the agent sees them. For that, TLS of the model's
    /// hosts ends at the session's certificate authority, which the agent has to trust: Claude Code and Codex do, other
    /// agents are untested and need `true`. `false`: nothing is read.
    pub enabled: One<bool> = Kind::Flag, default: "for Claude Code and Codex, and for every model without TLS",
        example: "true";
    /// What happens to an answer that contains the first distinctive sentence (30 to 240 bytes) of the system prompt.
    /// `replace`, also written `true`: text is streamed, and replaced from that sentence on. `hold`: no text is
    /// streamed before the whole answer was searched, so the agent never gets the beginning of such an answer. `false`:
    /// no search.
    pub canary: One<OnLeak> = Kind::Either(&[Kind::Flag, Kind::Word(&["replace", "hold"])]), default: "false",
        example: "hold" => read on_leak => show |word| word.as_str();
    /// Whether only the first distinctive sentence of the system prompt is searched for, or all of them (at most 64).
    pub canary_sentences: One<Sentences> = Kind::Word(&["first", "every"]), default: "first", example: "every";
    /// With `canary`: whether a random word, one for each session, is appended to the system prompt of every request
    /// and searched for as well. It detects copies of a prompt's end, and prompts without a distinctive sentence.
    pub canary_word: One<bool> = Kind::Flag, default: "false", example: "true";
    /// With `canary`: whether decoded forms of an answer (base64, hexadecimal digits, reversed words and the like) are
    /// searched too. An answer then waits until it is complete.
    pub canary_decoded: One<bool> = Kind::Flag, default: "false", example: "true";
    /// What the agent gets in place of such an answer.
    pub replacement: One<String> = Kind::Text,
        default: "`[Response withheld: the model attempted to reveal protected instructions.]`",
        example: "\"I can't share my system instructions.\"" => show |text| format!("{text:?}");
    /// How long a model may be silent before its answer ends with an error.
    pub timeout: One<u64> = Kind::Duration, default: "10m", example: "2m";
    /// Requests to the model's host, as `METHOD /path`, that pass unread although agentsh does not know them. All other
    /// unknown requests there are refused.
    pub allow: Entries<RequestRule> = Kind::List(&Kind::Text),
        default: "what the built-in policies of Claude Code and Codex list",
        example: "[\"POST /api/telemetry/**\"]" => read network::request => show ToString::to_string;
    /// What happens to a request to the model that contains keys, passwords or tokens: their kinds are recorded, they
    /// are replaced by `[REDACTED KIND]`, or the request is refused.
    pub secrets: One<OnSecret> = Kind::Word(&["off", "log", "redact", "block"]), default: "log",
        example: "redact";
    /// The same for single kinds, by the name in the tag.
    pub secret_kinds: Named<OnSecret> = Kind::Names(&Kind::Word(&["off", "log", "redact", "block"])),
        default: "`EMAIL` and `PHONE` are off, every other kind is as `secrets` says",
        example: "{EMAIL: redact, PASSWORD: block}";
    /// With `broker` the agent has a placeholder for the API key in its environment, and the session adds the key to
    /// requests.
    pub credentials: One<Credentials> = Kind::Word(&["pass", "broker"]), default: "pass", example: "broker";
    /// Limits of a session. Every budget whose pattern matches the model applies.
    pub budgets: Entries<Budget> = Kind::List(&Kind::Map(BUDGET)), default: "none",
        example: "[{model: \"*\", max_tokens: 2000000, rpm: 60}]" => read budget => show ToString::to_string;
    /// Prices of tokens. The first line whose pattern matches the model counts.
    pub prices: Entries<Price> = Kind::List(&Kind::Map(PRICE)), default: "none",
        example: "[{model: \"claude-*\", input: \"3.00\", output: \"15.00\"}]"
        => read price => show ToString::to_string;
}

/// The order in which they are shown.
const SHOWN: &[&str] = texts! {
    "enabled" "canary_word" "canary_decoded" "canary" "canary_sentences" "replacement" "timeout" "allow" "secrets"
    "secret_kinds" "credentials" "budgets" "prices"
};

impl Section<Policy> for LlmPolicy {
    const KEYS: &'static [Key] = keys! {
        /// Checks between the agent and its model.
        "llm": Kind::Map(Self::TABLE), example: "{enabled: true, canary: true}";
    };

    in_table! { Policy (llm): read }

    fn merge(&self, below: &mut Policy) {
        let prices = std::mem::take(&mut below.llm.prices);
        Table::merge(self, &mut below.llm);
        // A higher layer's price for a model takes precedence.
        if !self.prices.replaces() {
            below.llm.prices.add(&prices);
        }
    }

    /// A project cannot switch off checks.
    fn narrow(&self, base: &mut Policy, narrowing: &mut Narrowing<'_>) {
        let llm = &mut base.llm;
        let message = "this file would switch off checks of the model's answers";
        narrowing.set(&self.enabled, &mut llm.enabled, |on| !on, message);
        narrowing.set(&self.canary_word, &mut llm.canary_word, |on| !on, message);
        narrowing.set(&self.canary_decoded, &mut llm.canary_decoded, |on| !on, message);
        let before = llm.canary.as_ref().map_or(OnLeak::Replace, |own| own.value);
        narrowing.set(&self.canary, &mut llm.canary, |own| *own < before, "this file would loosen `canary`");
        let (sentences, message) = (&mut llm.canary_sentences, "only the user sets the canary");
        narrowing.set(&self.canary_sentences, sentences, |own| *own != Sentences::Every, message);
        let before = llm.secrets.as_ref().map_or(OnSecret::Log, |own| own.value);
        let message = "this file would treat secrets less strictly";
        narrowing.set(&self.secrets, &mut llm.secrets, |own| *own < before, message);
        for (kind, wanted) in &self.secret_kinds {
            if wanted.value >= llm.on_secret(kind) {
                llm.secret_kinds.insert(kind.clone(), wanted.clone());
            } else {
                narrowing.refuse(&wanted.rule, message);
            }
        }
        // A further budget restricts.
        llm.budgets.add(&self.budgets);
        let belongs = rules_of!(self; replacement, timeout, credentials, prices);
        narrowing.refuse_all(belongs, "only the user can set this");
        let covered =
            |base: &[Ruled<RequestRule>], own: &RequestRule| base.iter().any(|outer| outer.value.covers(own));
        let message = |own: &RequestRule| format!("this file would let `{own}` pass unread");
        llm.allow.narrow(&self.allow, narrowing, covered, message);
    }

    fn describe(policy: &Policy, _: &str, lines: &mut Lines) {
        policy.llm.describe_keys(SHOWN, "llm", lines);
    }
}

fn on_leak(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<OnLeak> {
    match here.node.value {
        Value::Bool(true) => Some(OnLeak::Replace),
        Value::Bool(false) => Some(OnLeak::Pass),
        _ => reader.choice(here, &[("replace", OnLeak::Replace), ("hold", OnLeak::Hold)]),
    }
}

impl std::fmt::Display for Price {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} in, {} out", self.model, dollars(self.input), dollars(self.output))
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
