//! `rules`: calls that are recorded, asked about or refused by their content and sender, not only by the tool's name.

use std::net::IpAddr;

use ipnet::IpNet;

use super::network::block;
use super::prelude::*;
use crate::risk::Risk;

/// Headers that say who a client is. No rule sees them, so that none of them is recorded.
pub const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

/// Largest compiled pattern, in bytes.
const MAX_PATTERN: usize = 1 << 20;

words! {
    /// The outcome of a rule.
    pub enum RuleAction {
        /// Goes on, and is recorded as an alert.
        Audit = "audit",
        Ask = "ask",
        Block = "block",
    }
}

/// One rule. All of its conditions must match.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRule {
    pub name: Option<String>,
    /// Patterns of names.
    pub server: String,
    pub tool: String,
    pub method: String,
    /// At least this.
    pub risk: Option<Risk>,
    /// Networks of clients of a gateway; empty for everybody.
    pub from: Vec<IpNet>,
    pub not_from: Vec<IpNet>,
    pub when: Vec<Condition>,
    pub action: RuleAction,
    pub reason: Option<String>,
}

/// Something about the parameters of a call, or about the request that brought it to a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub place: ConditionPlace,
    pub test: Test,
}

/// The place of a condition's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionPlace {
    /// Every string of the arguments.
    Anywhere,
    /// JSON pointer into the arguments; a step `*` is every item or member.
    Path(String),
    /// A header, in lower case.
    Header(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// The text, or the number or word as JSON writes it.
    Equals(String),
    Matches(Pattern),
    /// Names a host that this pattern fits.
    Host(String),
    /// There is a value at the path, or such a header.
    Exists(bool),
}

/// A regular expression of linear time, compiled.
#[derive(Clone, Debug)]
pub struct Pattern(pub regex::Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

const CONDITION: &[Key] = keys! {
    /// JSON pointer into the arguments, such as `/query`; a step `*` is every item.
    "path": Kind::Text, default: "every string of the arguments";
    /// A header of a gateway client's request, instead of a `path`. Credentials (`Authorization`, `X-Api-Key`,
    /// `Cookie`) cannot be used.
    "header": Kind::Text, default: "none";
    /// The value, as text.
    "equals": Kind::Text, default: "anything";
    /// A regular expression (of the crate `regex`: linear time, without look-around) that is found in the value.
    "matches": Kind::Text, default: "anything";
    /// A host, or a pattern, that the value names.
    "host": Kind::Text, default: "anything";
    /// Whether there is a value.
    "exists": Kind::Flag, default: "does not matter";
};

const RULE: &[Key] = keys! {
    /// For messages and the record.
    "name": Kind::Text, default: "none";
    /// A server, or a pattern.
    "server": Kind::Text, default: "`*`";
    /// A tool, or a pattern.
    "tool": Kind::Text, default: "`*`";
    /// A method of the protocol, or a pattern. Except for `tools/call`, `path` starts at `params`.
    "method": Kind::Text, default: "`tools/call`";
    /// At least this: `high` for names like delete, exec or write and for destructiveHint, `medium` for create, update,
    /// send.
    "risk": Kind::Word(&["low", "medium", "high"]), default: "any";
    /// Networks (`10.0.0.0/8`) of clients of the gateway. The rule does not apply to clients that are started here,
    /// because they have no address.
    "from": Kind::Whole(&Kind::Text), default: "everywhere";
    /// The same for all other networks.
    "not_from": Kind::Whole(&Kind::Text), default: "nowhere";
    /// Conditions on arguments and headers; all of them must hold.
    "when": Kind::Whole(&Kind::Map(CONDITION)), default: "always";
    /// `audit` records an alert, `ask` waits for a person (see `approvals`), `block` refuses.
    "action": Kind::Word(&["audit", "ask", "block"]), default: "required";
    /// Told to the agent and to the person who is asked.
    "reason": Kind::Text, default: "none";
};

table! {
    /// What one file writes.
    struct Rules;

    /// Rules about the content of calls: a call that matches is recorded, asked about or refused. The strictest
    /// matching rule decides; no rule allows what another check refuses.
    rules: Entries<CallRule> = Kind::List(&Kind::Map(RULE)), default: "empty",
        example: "[{server: \"db*\", when: [{path: /sql, matches: \"(?i)\\\\bdrop\\\\b\"}], action: ask}]"
        => read rule => show CallRule::shown;
}

impl Section<McpPolicy> for Rules {
    in_table! { McpPolicy [rules]: read merge describe }

    /// A rule can only restrict.
    fn narrow(&self, base: &mut McpPolicy, _: &mut Narrowing<'_>) {
        base.rules.add(&self.rules);
    }
}

impl CallRule {
    /// Whether it applies to a client at this address. A rule about networks does not apply to a client without an address.
    #[must_use]
    pub fn is_from(&self, address: Option<IpAddr>) -> bool {
        if self.from.is_empty() && self.not_from.is_empty() {
            return true;
        }
        let Some(address) = address.map(|address| address.to_canonical()) else { return false };
        let is_in = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&address));
        (self.from.is_empty() || is_in(&self.from)) && !is_in(&self.not_from)
    }

    /// On one line.
    fn shown(&self) -> String {
        let mut text = format!("{} {}/{}", self.action.as_str(), self.server, self.tool);
        if self.method != CALL {
            text.push_str(&format!(" ({})", self.method));
        }
        if let Some(risk) = self.risk {
            text.push_str(&format!(" of risk {}", risk.as_str()));
        }
        for (word, networks) in [("from", &self.from), ("not from", &self.not_from)] {
            if !networks.is_empty() {
                let shown: Vec<String> = networks.iter().map(ToString::to_string).collect();
                text.push_str(&format!(" {word} {}", shown.join(" ")));
            }
        }
        for Condition { place, test } in &self.when {
            let path = match place {
                ConditionPlace::Anywhere => "any text".to_owned(),
                ConditionPlace::Path(path) => path.clone(),
                ConditionPlace::Header(name) => format!("the header {name}"),
            };
            text.push_str(&match test {
                Test::Equals(value) => format!(", {path} = {value:?}"),
                Test::Matches(pattern) => format!(", {path} ~ /{}/", pattern.0.as_str()),
                Test::Host(host) => format!(", {path} names {host}"),
                Test::Exists(true) => format!(", {path} exists"),
                Test::Exists(false) => format!(", {path} does not exist"),
            });
        }
        text
    }
}

const CALL: &str = "tools/call";

fn rule(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<CallRule> {
    let fields = reader.map(here, RULE)?;
    let mut text = |name: &str| fields.find(name).and_then(|here| reader.text(&here));
    let (name, server, tool, method, reason) =
        (text("name"), text("server"), text("tool"), text("method"), text("reason"));
    let Some(action) = reader.word(fields.find("action"), RuleAction::WORDS) else {
        if fields.find("action").is_none() {
            reader.problem(here, "this rule has no action", "write `action: audit`, `ask` or `block`");
        }
        return None;
    };
    let risk = reader.word(fields.find("risk"), Risk::WORDS).map(|risk| risk.value);
    let mut networks = |name: &str| -> Vec<IpNet> {
        reader.all(fields.find(name), block).iter().map(IpNet::trunc).collect()
    };
    let (from, not_from) = (networks("from"), networks("not_from"));
    let when = reader.all(fields.find("when"), condition);
    Some(CallRule {
        name,
        server: server.unwrap_or_else(|| "*".to_owned()),
        tool: tool.unwrap_or_else(|| "*".to_owned()),
        method: method.unwrap_or_else(|| CALL.to_owned()),
        risk,
        from,
        not_from,
        when,
        action: action.value,
        reason,
    })
}

fn condition(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Condition> {
    let fields = reader.map(here, CONDITION)?;
    let path = fields.find("path").and_then(|here| {
        let path = reader.text(&here)?;
        if !path.starts_with('/') {
            return reader.fault(&here, "a path begins with a slash, such as `/query`", None);
        }
        Some(ConditionPlace::Path(path))
    });
    let header = fields.find("header").and_then(|here| {
        let name = reader.text(&here)?.to_ascii_lowercase();
        if CREDENTIAL_HEADERS.contains(&name.as_str()) {
            return reader.fault(&here, "no rule sees the credentials of a client", None);
        }
        Some(ConditionPlace::Header(name))
    });
    if fields.find("header").is_some() && fields.find("path").is_some() {
        return reader.fault(here, "a condition has a `path` or a `header`, and not both", None);
    }
    let place = path.or(header);
    let equals = fields.find("equals").and_then(|here| reader.any_text(&here)).map(Test::Equals);
    let matches = fields.find("matches").and_then(|here| pattern(reader, &here)).map(Test::Matches);
    let host = fields.find("host").and_then(|here| reader.text(&here)).map(Test::Host);
    let exists = reader.boolean(fields.find("exists")).map(|flag| Test::Exists(flag.value));
    let count =
        ["equals", "matches", "host", "exists"].iter().filter(|name| fields.find(name).is_some()).count();
    if count != 1 {
        let message = "a condition needs exactly one of `equals`, `matches`, `host` and `exists`";
        return reader.fault(here, message, None);
    }
    let is_placed = ["path", "header"].iter().any(|name| fields.find(name).is_some());
    if place.is_none() && (fields.find("exists").is_some() || is_placed) {
        if !is_placed {
            reader.problem(here, "`exists` needs a `path` or a `header`", None);
        }
        return None;
    }
    let test = equals.or(matches).or(host).or(exists)?;
    Some(Condition { place: place.unwrap_or(ConditionPlace::Anywhere), test })
}

/// Reads a regular expression of linear time and bounded size.
pub(crate) fn pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Pattern> {
    let text = reader.text(here)?;
    let built = regex::RegexBuilder::new(&text).size_limit(MAX_PATTERN).build();
    match built {
        Ok(pattern) => Some(Pattern(pattern)),
        Err(error) => {
            let error = error.to_string();
            let why =
                error.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned();
            reader.fault(here, format!("this is not a regular expression: {why}"), None)
        }
    }
}
