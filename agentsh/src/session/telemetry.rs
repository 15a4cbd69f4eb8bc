//! The receivers of a session's events, for [`agentsh_telemetry`]. A receiver that cannot be used is reported, and the
//! session continues.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use url::Url;

use agentsh_agents::expand;
use agentsh_egress::target::{Rules, Target};
use agentsh_host::outgoing;
use agentsh_host::{Facts, Record};
use agentsh_policy::{EventWebhook, OtlpProtocol, Ruled, TelemetryPolicy, place};
use agentsh_store::Subscription;
use agentsh_telemetry::file::Lines;
use agentsh_telemetry::otlp::{self, Addresses, Encoding};
use agentsh_telemetry::subscriber::{Hook, Settings, Subscriber};
use agentsh_telemetry::syslog::Syslog;
use agentsh_telemetry::webhook;

/// Limit of the environment's timeout, in milliseconds.
const MAX_TIMEOUT: u64 = 60_000;

type Environment = BTreeMap<String, String>;

/// Starts all receivers; None if none is configured.
pub fn start(
    facts: &Facts,
    record: &Record,
    subscription: impl FnOnce() -> Subscription,
) -> Option<Subscriber> {
    let policy = &facts.policy.telemetry;
    let mut problems = Vec::new();
    let settings = settings(policy, facts, &mut problems);
    let subscriber = (!settings.is_empty())
        .then(|| Subscriber::start(subscription(), facts.id, settings, outgoing::client));
    let subscriber = subscriber.transpose().unwrap_or_else(|error| {
        problems.push(format!("cannot start its thread: {error}"));
        None
    });
    for problem in problems {
        record.note(&format!("telemetry: {problem}"));
    }
    subscriber
}

fn settings(policy: &TelemetryPolicy, facts: &Facts, problems: &mut Vec<String>) -> Settings {
    let env = &facts.context.env;
    let mut settings = Settings::default();
    match otlp(policy, env) {
        Ok(otlp) => settings.otlp = otlp,
        Err(why) => problems.push(format!("nothing is sent to the OTLP receiver: {why}")),
    }
    let resolved = |path: &str| place::resolve(path, &facts.paths());
    if let Some(Ruled { value, rule }) = &policy.file {
        match Lines::open(&resolved(value)) {
            Ok(lines) => settings.file = Some(lines),
            Err(why) => problems.push(format!("'{value}' of {rule} gets no events: {why}")),
        }
    }
    if let Some((path, rule)) = policy.syslog.as_ref().and_then(|on| Some((on.value.as_ref()?, &on.rule))) {
        match Syslog::open(&resolved(path)) {
            Ok(syslog) => settings.syslog = Some(syslog),
            Err(why) => problems.push(format!("the syslog '{path}' of {rule} gets no events: {why}")),
        }
    }
    for Ruled { value, rule } in &policy.webhooks {
        match hook(value, env) {
            Ok(hook) => settings.webhooks.push(hook),
            Err(why) => problems.push(format!("the webhook of {rule} gets no events: {why}")),
        }
    }
    settings
}

fn hook(written: &EventWebhook, env: &Environment) -> Result<Hook, String> {
    let url = address(&written.url)?;
    let secret = match &written.secret_env {
        None => None,
        // Not unsigned if a signature is configured.
        Some(name) => {
            let value = env.get(name).filter(|value| !value.is_empty());
            Some(value.ok_or_else(|| format!("the variable {name} is not set"))?.clone().into_bytes())
        }
    };
    Ok(Hook { settings: webhook::Settings::new(url, secret), events: written.events.clone() })
}

/// None without a receiver.
///
/// # Errors
/// Why the configured exporter cannot be used.
fn otlp(policy: &TelemetryPolicy, env: &Environment) -> Result<Option<otlp::Settings>, String> {
    let variable = |name: &str| env.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let kinds = ["TRACES", "LOGS", "METRICS"];
    let own = |kind: &str| variable(&format!("OTEL_EXPORTER_OTLP_{kind}_ENDPOINT"));
    let base = policy.otlp.endpoint.as_ref().map(|endpoint| endpoint.value.as_str());
    let is_named = base.is_some();
    let base = base.or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
    if base.is_none() && kinds.into_iter().all(|kind| own(kind).is_none()) {
        return Ok(None);
    }
    let encoding = match (
        &policy.otlp.protocol,
        variable("OTEL_EXPORTER_OTLP_PROTOCOL").map(|text| (text, OtlpProtocol::named(text))),
    ) {
        (Some(written), _) => encoding(written.value),
        // The environment's protocol may not fit this receiver.
        (None, Some((_, Some(OtlpProtocol::Grpc) | None))) if is_named => Encoding::Protobuf,
        (None, Some((_, Some(said)))) => encoding(said),
        (None, None) => Encoding::Protobuf,
        (None, Some((other, None))) => {
            return Err(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is '{other}', but agentsh supports only `grpc`, `http/protobuf` \
                 and `http/json`; write `telemetry: {{otlp: {{endpoint: URL, protocol: grpc}}}}` in the policy"
            ));
        }
    };
    let to = |kind: &str| -> Result<Option<Url>, String> {
        if variable(&format!("OTEL_{kind}_EXPORTER")) == Some("none") {
            return Ok(None);
        }
        let own = own(kind).filter(|_| !is_named);
        if encoding == Encoding::Grpc {
            let Some(text) = own.or(base) else { return Ok(None) };
            let mut url = address(text)?;
            url.set_path(otlp::call(kind));
            return Ok(Some(url));
        }
        if let Some(whole) = own {
            return address(whole).map(Some);
        }
        let Some(base) = base else { return Ok(None) };
        let mut url = address(base)?;
        let path = format!("{}/v1/{}", url.path().trim_end_matches('/'), kind.to_ascii_lowercase());
        url.set_path(&path);
        Ok(Some(url))
    };
    let addresses = Addresses { traces: to("TRACES")?, logs: to("LOGS")?, metrics: to("METRICS")? };
    let mut lines: Vec<(String, String)> = Vec::new();
    if !is_named {
        lines.extend(pairs("OTEL_EXPORTER_OTLP_HEADERS", variable("OTEL_EXPORTER_OTLP_HEADERS"))?);
    }
    for (name, value) in &policy.otlp.headers {
        let filled = expand::expand_in_session(&value.value, env).map_err(|missing| {
            format!("its header '{name}' needs the variable {missing}, which is not set")
        })?;
        lines.push((name.clone(), filled));
    }
    let headers = lines.iter().map(|(name, value)| header(name, value)).collect::<Result<_, _>>()?;
    let within = match variable("OTEL_EXPORTER_OTLP_TIMEOUT") {
        None => otlp::REQUEST_TIMEOUT,
        Some(text) => {
            let number = text.parse::<u64>().ok().filter(|number| (1..=MAX_TIMEOUT).contains(number));
            let number = number.ok_or_else(|| {
                format!("OTEL_EXPORTER_OTLP_TIMEOUT is '{text}'; it must be from 1 to {MAX_TIMEOUT} ms")
            })?;
            Duration::from_millis(number)
        }
    };
    let is_packed = match variable("OTEL_EXPORTER_OTLP_COMPRESSION").filter(|_| !is_named) {
        None | Some("none") => false,
        Some("gzip") => true,
        Some(other) => {
            return Err(format!(
                "OTEL_EXPORTER_OTLP_COMPRESSION is '{other}', but agentsh supports only `gzip` and `none`"
            ));
        }
    };
    let resource = pairs("OTEL_RESOURCE_ATTRIBUTES", variable("OTEL_RESOURCE_ATTRIBUTES"))?;
    let named = resource.iter().find(|(name, _)| name == "service.name").map(|(_, value)| value.clone());
    let service = variable("OTEL_SERVICE_NAME").map(str::to_owned).or(named);
    let own = ["service.name", "service.version", "service.instance.id", "os.type"];
    Ok(Some(otlp::Settings {
        addresses,
        headers,
        encoding,
        within,
        is_packed,
        service: service.unwrap_or_else(|| "agentsh".to_owned()),
        resource: resource.into_iter().filter(|(name, _)| !own.contains(&name.as_str())).collect(),
    }))
}

fn encoding(protocol: OtlpProtocol) -> Encoding {
    match protocol {
        OtlpProtocol::Grpc => Encoding::Grpc,
        OtlpProtocol::HttpProtobuf => Encoding::Protobuf,
        OtlpProtocol::HttpJson => Encoding::Json,
    }
}

fn address(text: &str) -> Result<Url, String> {
    // Its path or query may contain a key, so it is not repeated.
    Target::parse(text, &Rules::user_configured())
        .map(|target| target.url().clone())
        .map_err(|why| format!("its URL cannot be used: {why}"))
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let unusable = || format!("'{}' and its value are not a valid header", agentsh_store::escape::line(name));
    let mut value = HeaderValue::from_str(value).map_err(|_| unusable())?;
    value.set_sensitive(true);
    Ok((HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable())?, value))
}

/// `a=b,c=d` with `%XX`, as OpenTelemetry defines it.
fn pairs(variable: &str, text: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let entries = text.unwrap_or_default().split(',').filter(|entry| !entry.trim().is_empty());
    let pair = |entry: &str| {
        let (name, value) = entry.split_once('=')?;
        Some((percent_decoded(name.trim())?, percent_decoded(value.trim())?))
            .filter(|(name, _)| !name.is_empty())
    };
    let read: Option<Vec<_>> = entries.map(pair).collect();
    read.ok_or_else(|| format!("{variable} is not a list of `NAME=VALUE`, separated by commas"))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if let (b'%', Some(hex)) = (first, after.get(..2)) {
            bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn env(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn of(policy: &str, variables: &[(&str, &str)]) -> Result<Option<otlp::Settings>, String> {
        let policy = agentsh_policy::parse("p.yaml", policy).unwrap();
        otlp(&policy.telemetry, &env(variables))
    }

    #[test]
    fn the_environment_names_a_receiver_as_for_everybody() {
        assert!(of("version: 1\n", &[]).unwrap().is_none());
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/base/"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://logs.example/in"),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=y"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team=blue,service.name=other"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ];
        let settings = of("version: 1\n", &variables).unwrap().unwrap();
        assert_eq!(settings.addresses.traces.unwrap().as_str(), "http://127.0.0.1:4318/base/v1/traces");
        assert_eq!(settings.addresses.logs.unwrap().as_str(), "https://logs.example/in");
        assert!(settings.addresses.metrics.is_none());
        assert_eq!(settings.headers[0].1, "a b");
        assert_eq!((settings.service.as_str(), settings.encoding), ("other", Encoding::Json));
        assert_eq!(settings.resource, [("team".to_owned(), "blue".to_owned())]);
        let off = [variables[0], ("OTEL_SDK_DISABLED", "true")];
        assert!(of("version: 1\n", &off).unwrap().is_none());
    }

    #[test]
    fn grpc_has_one_address_for_its_calls() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://logs.example:4317/"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        let settings = of("version: 1\n", &variables).unwrap().unwrap();
        assert_eq!(settings.encoding, Encoding::Grpc);
        assert_eq!(
            settings.addresses.traces.unwrap().as_str(),
            "http://127.0.0.1:4317/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        );
        assert_eq!(
            settings.addresses.logs.unwrap().as_str(),
            "https://logs.example:4317/opentelemetry.proto.collector.logs.v1.LogsService/Export"
        );
    }

    #[test]
    fn telemetry_policy_wins_over_the_environment() {
        let policy = "telemetry: {otlp: {endpoint: \"https://a.example\", headers: {X-Key: \"k ${KEY}\"}}}\n";
        let others = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "for=others"),
            ("KEY", "v"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ];
        let settings = of(policy, &others).unwrap().unwrap();
        assert_eq!(settings.addresses.traces.unwrap().as_str(), "https://a.example/v1/traces");
        let names: Vec<_> = settings.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x-key"], "what is meant for another receiver is not sent to this one");
        assert_eq!(settings.headers[0].1, "k v");
        assert_eq!((settings.within, settings.is_packed), (Duration::from_millis(2500), false));
        assert!(of("version: 1\n", &others).unwrap().unwrap().is_packed);
        let grpc = policy.replace("headers", "protocol: grpc, headers");
        let settings = of(&grpc, &[others[3]]).unwrap().unwrap();
        assert_eq!(settings.encoding, Encoding::Grpc);
        assert!(settings.addresses.logs.unwrap().path().ends_with("LogsService/Export"));
        let json = "telemetry: {otlp: {protocol: http/json}}\n";
        assert_eq!(of(json, &others[..2]).unwrap().unwrap().encoding, Encoding::Json, "the policy says how");
    }

    #[test]
    fn telemetry_settings_that_cannot_be_used_say_why() {
        let policy = "telemetry: {otlp: {endpoint: \"https://a.example\", headers: {X-Key: \"${KEY}\"}}}\n";
        let why = |policy: &str, variables: &[(&str, &str)]| of(policy, variables).map(drop).unwrap_err();
        assert!(why(policy, &[]).contains("the variable KEY"));
        let plain = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://192.0.2.1:4318")];
        assert!(why("version: 1\n", &plain).contains("only to this machine"));
        let unknown =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a.example"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc2")];
        assert!(why("version: 1\n", &unknown).contains("http/protobuf"));
        for (name, value) in
            [("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"), ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")]
        {
            let odd = [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a.example"), (name, value)];
            assert!(why("version: 1\n", &odd).contains(value));
        }
        let odd = [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a.example"), ("OTEL_EXPORTER_OTLP_HEADERS", "x")];
        assert!(why("version: 1\n", &odd).contains("NAME=VALUE"));
    }
}
