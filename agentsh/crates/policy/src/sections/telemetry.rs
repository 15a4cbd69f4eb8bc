//! `telemetry`: receivers of a session's events, in addition to the journal.

use std::collections::BTreeMap;

use agentsh_base::words;

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::section::{Section, merge_keys, merge_list, rules_of};
use crate::sections::Policy;
use crate::sections::credentials::is_variable;

/// Maximum number of headers in the requests to a receiver.
const MAX_HEADERS: usize = 32;
/// Longest path of a socket.
const MAX_SOCKET: usize = 107;
/// The socket to which programs of this machine send log messages.
const SYSLOG: &str = "/dev/log";

/// The policy in force, each key with its place if it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TelemetryPolicy {
    /// Base of the addresses of an OTLP receiver; None: what the environment names.
    pub endpoint: Option<Ruled<String>>,
    /// The protocol; None: that of the environment if it names the receiver, else Protocol Buffers over HTTP.
    pub protocol: Option<Ruled<OtlpProtocol>>,
    /// The headers of its requests by name; variables are still `${NAME}`.
    pub headers: BTreeMap<String, Ruled<String>>,
    /// Takes every event as a line of JSON. `~` is still unexpanded.
    pub file: Option<Ruled<String>>,
    /// The datagram socket of a syslog; None inside where it is off.
    pub syslog: Option<Ruled<Option<String>>>,
    pub webhooks: Vec<Ruled<EventWebhook>>,
}

words! {
    /// How an OTLP receiver is spoken to.
    pub enum OtlpProtocol {
        Grpc = "grpc",
        HttpProtobuf = "http/protobuf",
        HttpJson = "http/json",
    }
}

impl OtlpProtocol {
    /// The value of `OTEL_EXPORTER_OTLP_PROTOCOL`.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == text).map(|(_, protocol)| *protocol)
    }
}

/// An address that gets events, one request each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventWebhook {
    pub url: String,
    /// The variable whose value signs the requests.
    pub secret_env: Option<String>,
    /// Globs over the types of events. Never empty.
    pub events: Vec<String>,
}

impl std::fmt::Display for EventWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.url, self.events.join(", "))?;
        self.secret_env.iter().try_for_each(|name| write!(f, "; signed with {name}"))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    endpoint: Option<Ruled<String>>,
    protocol: Option<Ruled<OtlpProtocol>>,
    headers: BTreeMap<String, Ruled<String>>,
    file: Option<Ruled<String>>,
    syslog: Option<Ruled<Option<String>>>,
    webhooks: List<EventWebhook>,
}

const OTLP: &[Key] = keys! {
    /// Base URL of an OTLP receiver: `https:`, or `http:` on this machine. `/v1/traces`, `/v1/logs` and `/v1/metrics`
    /// are added to its path; over gRPC its path is not used.
    "endpoint": Kind::Text,
        default: "`OTEL_EXPORTER_OTLP_ENDPOINT` of the caller's environment, else nothing is sent",
        example: "\"https://otel.example:4318\"";
    /// Protocol of the receiver.
    "protocol": Kind::Word(&["grpc", "http/protobuf", "http/json"]),
        default: "`http/protobuf`; `OTEL_EXPORTER_OTLP_PROTOCOL` where the endpoint is the environment's",
        example: "grpc";
    /// Headers of the requests. `${NAME}` is a variable of the caller's environment.
    "headers": Kind::Names(&Kind::Text),
        default: "`OTEL_EXPORTER_OTLP_HEADERS` where the endpoint is the environment's",
        example: "{Authorization: \"Bearer ${OTEL_TOKEN}\"}";
};

const WEBHOOK: &[Key] = keys! {
    /// Gets a POST for each event: `https:`, or `http:` on this machine.
    "url": Kind::Text, example: "\"https://hooks.example/in\"";
    /// Variable of the caller's environment whose value signs the requests (HMAC-SHA256).
    "secret_env": Kind::Text, default: "requests are not signed", example: "HOOK_SECRET";
    /// Patterns for event types.
    "events": Kind::List(&Kind::Text), example: "[mcp_tool_call_intercepted, \"net_*\"]";
};

const TELEMETRY: &[Key] = keys! {
    /// An OpenTelemetry receiver of traces, logs and metrics.
    "otlp": Kind::Map(OTLP), example: "{endpoint: \"https://otel.example:4318\"}";
    /// Gets every event as a line of JSON. It is created with mode 0600 and appended to.
    "file": Kind::Text, default: "none", example: "\"~/agentsh-events.jsonl\"";
    /// Every event goes to the syslog of this machine (`/dev/log`), or to the datagram socket of this path.
    "syslog": Kind::Either(&[Kind::Flag, Kind::Text]), default: "false", example: "true";
    /// Addresses that get single events.
    "webhooks": Kind::List(&Kind::Map(WEBHOOK)), default: "none",
        example: "[{url: \"https://hooks.example/in\", secret_env: HOOK_SECRET, events: [\"net_*\"]}]";
};

impl Section<Policy> for Telemetry {
    const KEYS: &'static [Key] = keys! {
        /// Who receives a session's events while it runs, in addition to the journal.
        "telemetry": Kind::Map(TELEMETRY), example: "{file: \"~/agentsh-events.jsonl\"}";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "telemetry", TELEMETRY) else { return Self::default() };
        let otlp = reader.within(&fields, "otlp", OTLP);
        let endpoint = reader.one(otlp.as_ref().and_then(|otlp| otlp.find("endpoint")), address);
        let protocol = otlp.as_ref().and_then(|otlp| reader.word(otlp.find("protocol"), OtlpProtocol::WORDS));
        Self {
            endpoint,
            protocol,
            headers: otlp.map(|otlp| headers(reader, &otlp)).unwrap_or_default(),
            file: reader.one(fields.find("file"), absolute),
            syslog: fields.find("syslog").and_then(|here| syslog(reader, &here)),
            webhooks: reader.adding(fields.find("webhooks"), webhook),
        }
    }

    fn merge(&self, below: &mut Policy) {
        let below = &mut below.telemetry;
        below.headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        merge_keys!(self => below; endpoint, protocol, file, syslog);
        merge_list(&self.webhooks, &mut below.webhooks);
    }

    /// A repository can neither receive telemetry of its user nor turn it off.
    fn narrow(&self, _: &mut Policy, narrowing: &mut Narrowing<'_>) {
        let written = rules_of!(self; endpoint, protocol, file, syslog, webhooks);
        let headers = self.headers.values().map(|value| Some(&value.rule));
        let message = "only the user decides who receives a session's events";
        narrowing.refuse_all(written.into_iter().chain(headers), message);
    }

    fn describe(policy: &Policy, _: &str, lines: &mut Lines) {
        let telemetry = &policy.telemetry;
        lines.list("telemetry.otlp.endpoint", &telemetry.endpoint, Clone::clone);
        lines.list("telemetry.otlp.protocol", &telemetry.protocol, |protocol| protocol.as_str());
        for (name, value) in &telemetry.headers {
            let shown = if value.value.contains("${") { value.value.as_str() } else { "(a text)" };
            lines.add(&format!("telemetry.otlp.headers.{name}"), shown, &value.rule);
        }
        lines.list("telemetry.file", &telemetry.file, Clone::clone);
        lines.list("telemetry.syslog", &telemetry.syslog, |path| {
            path.as_deref().unwrap_or("false").to_owned()
        });
        lines.list("telemetry.webhooks", &telemetry.webhooks, ToString::to_string);
    }
}

/// Only obvious mistakes of the URL are found here; the rest when it is used.
pub(crate) fn address(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let url = reader.text(here)?;
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    if !is_web || url.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        let help = "write `https://HOST/PATH`, or `http://127.0.0.1:PORT/PATH`";
        return reader.fault(here, "this is not an http or https URL", help);
    }
    Some(url)
}

fn absolute(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let path = reader.text(here)?;
    if !path.starts_with('/') && !path.starts_with("~/") {
        let help = "write a path that starts with `/` or `~/`";
        return reader.fault(here, "this is not an absolute path", help);
    }
    Some(path)
}

fn headers(reader: &mut Reader<'_>, otlp: &Fields<'_>) -> BTreeMap<String, Ruled<String>> {
    let Some(here) = otlp.find("headers") else { return BTreeMap::new() };
    let names = reader.names(&here);
    let mut found = BTreeMap::new();
    for (name, here) in names.iter().flat_map(Fields::all).take(MAX_HEADERS) {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            reader.problem(&here, "this is not a header name", None);
        } else if let Some(value) = reader.text(&here) {
            found.insert(name.to_owned(), reader.ruled(&here, value));
        }
    }
    found
}

fn syslog(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Ruled<Option<String>>> {
    if let crate::yaml::Value::Text(_) = &here.node.value {
        let path = absolute(reader, here)?;
        if path.len() > MAX_SOCKET {
            return reader.fault(here, format!("the path of a socket has at most {MAX_SOCKET} bytes"), None);
        }
        return Some(reader.ruled(here, Some(path)));
    }
    let flag = reader.boolean(Some(Here { node: here.node, path: here.path.clone(), line: here.line }))?;
    Some(Ruled { value: flag.value.then(|| SYSLOG.to_owned()), rule: flag.rule })
}

fn webhook(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<EventWebhook> {
    let fields = reader.map(here, WEBHOOK)?;
    let events = reader.texts(fields.find("events"));
    let secret = fields.find("secret_env");
    let secret_env = secret.as_ref().and_then(|here| reader.text(here));
    if let (Some(here), Some(name)) = (&secret, &secret_env)
        && !is_variable(name)
    {
        return reader.fault(here, "this is not a variable name", "write `secret_env: NAME`");
    }
    let Some(url) = fields.find("url") else {
        return reader.fault(here, "a webhook has a `url`", None);
    };
    let url = address(reader, &url)?;
    if events.is_empty() {
        let help = "add `events: [\"*\"]`, or the types that are wanted";
        return reader.fault(here, "this webhook gets no event", help);
    }
    Some(EventWebhook { url, secret_env, events })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

    use crate::parse;

    #[test]
    fn telemetry_section_is_read() {
        let text = "telemetry:\n  otlp: {endpoint: \"https://otel.example\", headers: {X-Key: \"${KEY}\"}}\n  \
            syslog: /run/log.sock\n  webhooks: [{url: \"http://127.0.0.1:9/\", events: [\"net_*\"]}]\n";
        let policy = parse("p.yaml", text).unwrap_or_else(|error| panic!("{}", error.render()));
        let telemetry = policy.telemetry;
        assert_eq!(telemetry.endpoint.unwrap().value, "https://otel.example");
        assert_eq!(telemetry.headers["X-Key"].value, "${KEY}");
        assert_eq!(telemetry.syslog.unwrap().value.as_deref(), Some("/run/log.sock"));
        assert_eq!(telemetry.webhooks[0].value.events, ["net_*"]);
    }

    #[test]
    fn malformed_telemetry_sections_are_refused() {
        for (text, why) in [
            ("{otlp: {endpoint: otel.example}}", "not an http or https URL"),
            ("{otlp: {headers: {\"a b\": x}}}", "not a header name"),
            ("{otlp: {protocol: http}}", "grpc"),
            ("{file: events.jsonl}", "absolute path"),
            ("{webhooks: [{url: \"https://a.example\"}]}", "gets no event"),
            ("{webhooks: [{events: [\"*\"]}]}", "has a `url`"),
            (
                "{webhooks: [{url: \"https://a.example\", secret_env: \"A B\", events: [\"*\"]}]}",
                "not a variable name",
            ),
            ("{prometheus: true}", "unknown key"),
        ] {
            let error = parse("p.yaml", &format!("telemetry: {text}\n")).unwrap_err().render();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
