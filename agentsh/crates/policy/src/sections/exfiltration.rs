//! `sandbox.mcp.exfiltration`, and `flow` of a server.

use super::prelude::*;
use crate::domain::{self, HostError};
use crate::model::{
    DataSink, DataSource, ExfiltrationPolicy, FlowPair, FlowRule, HostPattern, MarkerPlace, NetworkRule,
    OnFlow,
};
use crate::table::{Field, word_for};

table! {
    /// What one file writes. A `marker` of None: no marker is made.
    struct Exfiltration with rule;

    /// Whether arguments and results are searched.
    enabled: One<bool> = Kind::Flag, default: "true", example: "true";
    /// What happens to a call in which something was found. `ask`: it waits for a person, see docs/approvals.md.
    on_detection: One<OnFlow> = Kind::Word(&["block", "ask", "alert", "allow"]),
        default: "block if the section is present, else alert", example: "ask" => words ACTIONS;
    /// What happens to a call that sends data off this machine after private data was read from another server, whether
    /// or not the call carries a copy. A call with only a few numbers, yes or no, or words of a public server passes.
    /// The limit is 48 bits in one call and 1024 bits to one server in a session, of which 16 bits may be yes, no and
    /// numbers that no server offered.
    on_private_to_external: One<OnFlow> = Kind::Word(&["block", "ask", "alert", "allow"]),
        default: "ask where a person can answer, else alert once for each pair of servers", example: "ask"
        => words ACTIONS;
    /// Pairs of servers between which data may go: names or patterns.
    allow: Entries<FlowPair> = Kind::List(&Kind::Map(PAIR)), default: "empty",
        example: "[{from: git, to: github}]"
        => read pair => show ToString::to_string;
    /// What holds between some servers in place of `on_private_to_external`: the first entry that names both.
    pairs: Entries<FlowRule> = Kind::List(&Kind::Map(RULE)), default: "empty",
        example: "[{from: \"*\", to: tickets, on_private_to_external: block, values: [open, closed]}]"
        => read flow_rule => show ToString::to_string;
    /// Number of refused flows from one server to another after which nothing from the first may reach the second in
    /// this session, unless a person allows it.
    close_after: One<u64> = Kind::Number(1, u32::MAX as u64), default: "3", example: "3";
    /// What happens to a call to a server that sends data off this machine, after private data was read from another
    /// server, when it carries a compressed file (zip, gzip, PDF and the like), which is not opened, or 256 or more
    /// unreadable bytes.
    on_opaque: One<OnFlow> = Kind::Word(&["block", "ask", "alert", "allow"]),
        default: "what `on_detection` says for what is packed, else alert", example: "ask" => words ACTIONS;
    /// Where the invisible marker is put in prose of results; `off` changes no result.
    marker: One<Option<MarkerPlace>> = Kind::Word(&["off", "suffix", "prefix", "both", "random_word_boundary"]),
        default: "suffix if the section is present, else off", example: "suffix" => words PLACES;
    /// Hosts that arguments may name. With this list they may name no other host.
    allowed_domains: Entries<NetworkRule> = Kind::List(&Kind::Text),
        default: "every host that the server's network rules allow",
        example: "[\"*.example.com\"]" => read allowed_domain => show ToString::to_string;
}

const PAIR: &[Key] = keys! {
    /// Whose results.
    "from": Kind::Text, default: "required";
    /// Whose arguments.
    "to": Kind::Text, default: "required";
};

const RULE: &[Key] = keys! {
    /// Whose results: a name or a pattern.
    "from": Kind::Text, default: "required";
    /// Whose arguments: a name or a pattern.
    "to": Kind::Text, default: "required";
    /// As the key of the same name in the section. `allow` passes calls that carry no copy.
    "on_private_to_external": Kind::Word(&["block", "ask", "alert", "allow"]), default: "that of the section";
    /// Texts that may be sent: a call with nothing else in it passes, like a call with only a few numbers.
    "values": Kind::List(&Kind::Text), default: "none";
};

/// `flow` of a server.
pub const FLOW: &[Key] = keys! {
    /// Label of its results. `shareable`: prose and code may go to other servers, secrets and personal data may not.
    "source": Kind::Word(&["private", "shareable", "public"]), default: "what its profile says, else private",
        example: "public";
    /// Label of data that is sent to it: does it stay on this machine?
    "sink": Kind::Word(&["local", "external"]), default: "what its profile says, else external",
        example: "local";
};

const ACTIONS: [(&str, OnFlow); 4] =
    [("block", OnFlow::Block), ("ask", OnFlow::Ask), ("alert", OnFlow::Alert), ("allow", OnFlow::Allow)];
const PLACES: [(&str, Option<MarkerPlace>); 5] = [
    ("off", None),
    ("suffix", Some(MarkerPlace::Suffix)),
    ("prefix", Some(MarkerPlace::Prefix)),
    ("both", Some(MarkerPlace::Both)),
    ("random_word_boundary", Some(MarkerPlace::Between)),
];

impl Section<McpPolicy> for Exfiltration {
    const KEYS: &'static [Key] = keys! {
        /// Data of one server in calls of another one. See docs/exfiltration.md.
        "exfiltration": Kind::Map(Self::TABLE);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let mut own: Self = Table::read_at(reader, fields.find("exfiltration"));
        // A line of `inspect` about destinations says nothing about copies.
        if reader.is_front && own.on_detection.is_none() {
            own.rule = None;
        }
        own
    }

    /// A written section turns it on, unless a layer says otherwise.
    fn merge(&self, below: &mut McpPolicy) {
        let in_force = &mut below.exfiltration;
        merge_key(&self.on_private_to_external, &mut in_force.on_private_to_external);
        let Some(section) = &self.rule else { return };
        in_force.rule.clone_from(section);
        in_force.enabled |= !in_force.written.contains_key("enabled");
        let written = &mut in_force.written;
        set_key("enabled", &self.enabled, &mut in_force.enabled, written);
        set_key("on_detection", &self.on_detection, &mut in_force.on_detection, written);
        set_key("marker", &self.marker, &mut in_force.marker, written);
        Field::merge(&self.allow, &mut in_force.allow);
        Field::merge(&self.pairs, &mut in_force.pairs);
        merge_keys!(self => in_force; close_after, on_opaque);
        if let Some(rule) = self.rule_of("allowed_domains") {
            let lower = in_force.allowed_domains.take().filter(|_| !self.allowed_domains.replaces());
            let mut domains = lower.unwrap_or(Ruled { value: Vec::new(), rule: rule.clone() });
            domains.value.extend(self.allowed_domains.iter().cloned());
            in_force.allowed_domains = Some(domains);
        }
    }

    fn narrow(&self, _: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let destinations = self.on_private_to_external.as_ref().map(|action| &action.rule);
        if let Some(rule) = self.rule.as_ref().or(destinations) {
            narrowing.refuse(rule, "a policy inside the project cannot change the search");
        }
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let in_force: &ExfiltrationPolicy = &policy.exfiltration;
        for (key, value) in [
            ("enabled", in_force.enabled.to_string()),
            ("on_detection", in_force.in_run().as_str().to_owned()),
            ("marker", word_for(&PLACES, &in_force.marker_in_run()).to_owned()),
        ] {
            let rule = in_force.written.get(key).unwrap_or(&in_force.rule);
            lines.add(&format!("{name}.exfiltration.{key}"), value, rule);
        }
        let key = |key: &str| format!("{name}.exfiltration.{key}");
        let section = &in_force.on_private_to_external;
        lines.list(&key("on_private_to_external"), section, |action| action.as_str());
        lines.list(&key("allow"), &in_force.allow, ToString::to_string);
        lines.list(&key("pairs"), &in_force.pairs, ToString::to_string);
        lines.list(&key("close_after"), &in_force.close_after, ToString::to_string);
        lines.list(&key("on_opaque"), &in_force.on_opaque, |action| action.as_str());
        let domains = in_force.allowed_domains.iter().flat_map(|domains| &domains.value);
        lines.list(&key("allowed_domains"), domains, ToString::to_string);
    }
}

fn pair(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<FlowPair> {
    let fields = reader.map(here, PAIR)?;
    let mut text = |name: &str| fields.find(name).and_then(|here| reader.text(&here));
    let (Some(from), Some(to)) = (text("from"), text("to")) else {
        return reader.fault(here, "a pair needs `from` and `to`", None);
    };
    Some(FlowPair { from, to })
}

fn flow_rule(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<FlowRule> {
    let fields = reader.map(here, RULE)?;
    let mut text = |name: &str| fields.find(name).and_then(|here| reader.text(&here));
    let (from, to) = (text("from"), text("to"));
    let action = reader.word(fields.find("on_private_to_external"), &ACTIONS).map(|action| action.value);
    let values = reader.texts(fields.find("values"));
    let (Some(from), Some(to)) = (from, to) else {
        return reader.fault(here, "a pair needs `from` and `to`", None);
    };
    if action.is_none() && values.is_empty() {
        return reader.fault(here, "this pair has no effect", "write `on_private_to_external` or `values`");
    }
    Some(FlowRule { pair: FlowPair { from, to }, action, values })
}

/// A host that arguments may name.
pub fn allowed_domain(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<NetworkRule> {
    let text = reader.text(here)?;
    match domain::parse_rule(&text) {
        Ok(rule) => Some(rule),
        // In an argument of a tool it is a name like any other.
        Err(HostError::Loopback(name)) => {
            let host = name.parse().map_or(HostPattern::Exact(name.clone()), |address: std::net::IpAddr| {
                HostPattern::Net(address, if address.is_ipv4() { 32 } else { 128 })
            });
            Some(NetworkRule::plain(host, Vec::new()))
        }
        Err(error) => reader.fault(here, error.to_string(), "write `example.com` or `*.example.com`"),
    }
}

pub type Flow = (Option<Ruled<DataSource>>, Option<Ruled<DataSink>>);

/// `flow: {source: private, sink: external}`
pub fn flow(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Flow {
    let Some(flow) = here.and_then(|here| reader.map(&here, FLOW)) else {
        return (None, None);
    };
    let sinks = [("local", DataSink::Local), ("external", DataSink::External)];
    let source = reader.word(flow.find("source"), DataSource::WORDS);
    (source, reader.word(flow.find("sink"), &sinks))
}
