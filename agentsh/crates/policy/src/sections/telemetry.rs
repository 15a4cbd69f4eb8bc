//! `telemetry`: receivers of a session's events, in addition to the journal.

use super::credentials::is_variable;
use super::prelude::*;

/// Maximum number of headers in the requests to a receiver.
const MAX_HEADERS: usize = 32;
/// Longest path of a socket.
const MAX_SOCKET: usize = 107;
/// The socket to which programs of this machine send log messages.
const SYSLOG: &str = "/dev/log";

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

word_values!(OtlpProtocol);

table! {
    /// The receiver of OpenTelemetry; without an `endpoint` the one that the environment names.
    struct OtlpPolicy;

    /// Base URL of an OTLP receiver: `https:`, or `http:` on this machine. `/v1/traces`, `/v1/logs` and `/v1/metrics`
    /// are added to its path; over gRPC its path is not used.
    pub endpoint: One<String> = Kind::Text,
        default: "`OTEL_EXPORTER_OTLP_ENDPOINT` of the caller's environment, else nothing is sent",
        example: "\"https://otel.example:4318\"" => read address;
    /// Protocol of the receiver.
    pub protocol: One<OtlpProtocol> = Kind::Word(&["grpc", "http/protobuf", "http/json"]),
        default: "`http/protobuf`; `OTEL_EXPORTER_OTLP_PROTOCOL` where the endpoint is the environment's",
        example: "grpc";
    /// Headers of the requests. `${NAME}` is a variable of the caller's environment.
    pub headers: Named<String> = Kind::Names(&Kind::Text),
        default: "`OTEL_EXPORTER_OTLP_HEADERS` where the endpoint is the environment's",
        example: "{Authorization: \"Bearer ${OTEL_TOKEN}\"}"
        => show |value| shown_header(value).to_owned() => whole headers;
}

const WEBHOOK: &[Key] = keys! {
    /// Gets a POST for each event: `https:`, or `http:` on this machine.
    "url": Kind::Text, example: "\"https://hooks.example/in\"";
    /// Variable of the caller's environment whose value signs the requests (HMAC-SHA256).
    "secret_env": Kind::Text, default: "requests are not signed", example: "HOOK_SECRET";
    /// Patterns for event types.
    "events": Kind::List(&Kind::Text), example: "[mcp_tool_call_intercepted, \"net_*\"]";
};

table! {
    /// The policy in force, each key with its place if it was written.
    struct TelemetryPolicy;

    /// An OpenTelemetry receiver of traces, logs and metrics.
    pub otlp: OtlpPolicy = Kind::Map(OtlpPolicy::TABLE), example: "{endpoint: \"https://otel.example:4318\"}";
    /// Gets every event as a line of JSON. It is created with mode 0600 and appended to.
    pub file: One<String> = Kind::Text, default: "none", example: "\"~/agentsh-events.jsonl\""
        => read absolute;
    /// Every event goes to the syslog of this machine (`/dev/log`), or to the datagram socket of this path.
    pub syslog: One<Option<String>> = Kind::Either(&[Kind::Flag, Kind::Text]), default: "false", example: "true"
        => read syslog => show |path| path.as_deref().unwrap_or("false").to_owned();
    /// Addresses that get single events.
    pub webhooks: Entries<EventWebhook> = Kind::List(&Kind::Map(WEBHOOK)), default: "none",
        example: "[{url: \"https://hooks.example/in\", secret_env: HOOK_SECRET, events: [\"net_*\"]}]"
        => read webhook => show ToString::to_string;
}

impl Section<Policy> for TelemetryPolicy {
    const KEYS: &'static [Key] = keys! {
        /// Who receives a session's events while it runs, in addition to the journal.
        "telemetry": Kind::Map(Self::TABLE), example: "{file: \"~/agentsh-events.jsonl\"}";
    };

    in_table! { Policy (telemetry): read merge describe }

    /// A repository can neither receive telemetry of its user nor turn it off.
    fn narrow(&self, _: &mut Policy, narrowing: &mut Narrowing<'_>) {
        let written = rules_of!(self.otlp; endpoint, protocol).chain(rules_of!(self; file, syslog, webhooks));
        let message = "only the user decides who receives a session's events";
        narrowing.refuse_all(written.chain(rules_of!(self.otlp; headers)), message);
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

fn headers(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Named<String> {
    let names = here.and_then(|here| reader.names(&here));
    let mut found = Named::new();
    for (name, here) in names.iter().flat_map(Fields::all).take(MAX_HEADERS) {
        if !is_header(name) {
            reader.problem(&here, "this is not a header name", None);
        } else if let Some(value) = reader.text(&here) {
            found.insert(name.to_owned(), reader.ruled(&here, value));
        }
    }
    found
}

/// Whether it is a name of HTTP.
pub(crate) fn is_header(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Of a value that holds a variable, the name; anything else may be a secret.
fn shown_header(value: &str) -> &str {
    if value.contains("${") { value } else { "(a text)" }
}

fn syslog(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Option<String>> {
    let Value::Text(_) = &here.node.value else {
        return reader.flag(here).map(|on| on.then(|| SYSLOG.to_owned()));
    };
    let path = absolute(reader, here)?;
    if path.len() > MAX_SOCKET {
        return reader.fault(here, format!("the path of a socket has at most {MAX_SOCKET} bytes"), None);
    }
    Some(Some(path))
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
        assert_eq!(telemetry.otlp.endpoint.unwrap().value, "https://otel.example");
        assert_eq!(telemetry.otlp.headers["X-Key"].value, "${KEY}");
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
