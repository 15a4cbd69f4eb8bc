#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use super::Policy;
use super::diagnostic::{PolicyError, Source};
use super::domain::normalise;
use super::model::NetworkPolicy;
use super::{narrow, parse, read};

fn good(allow: &str) -> NetworkPolicy {
    let text = format!("agent: {{network: {{allow: [{allow}]}}}}");
    parse("p.yaml", &text).unwrap_or_else(|error| panic!("{}", error.render())).agent.network
}

fn mistake(allow: &str) -> String {
    let text = format!("version: 1\nagent:\n  network:\n    allow:\n{allow}");
    match parse("p.yaml", &text) {
        Ok(_) => panic!("accepted: {allow}"),
        Err(error) => error.render(),
    }
}

fn narrowed(base: &str, project: &str) -> Result<Policy, PolicyError> {
    let wrap = |allow: &str| format!("agent: {{network: {{allow: [{allow}]}}}}");
    let base = parse("base.yaml", &wrap(base)).unwrap_or_else(|error| panic!("{}", error.render()));
    let text = wrap(project);
    let source = Source { name: ".agentsh.yaml", text: &text };
    let raw = read::read(source, false).map_err(PolicyError::Invalid)?;
    narrow::narrow(base, &raw, source).map_err(PolicyError::Invalid)
}

fn deciding(network: &NetworkPolicy, host: &str, port: u16) -> String {
    let rule = network.rule_for(&normalise(host).unwrap(), port);
    rule.map_or_else(|| "none".to_owned(), |rule| rule.value.to_string())
}

const INSPECTED: &str = r#"{host: api.example.com, inspect: true, allow: ["GET /repos/**"]}"#;

#[test]
fn network_conditions_are_read() {
    let network = good(&format!(
        "{INSPECTED}, {{host: db.internal, port: 5432, protocol: tcp, addresses: [10.0.0.0/8, \"fd00::/8\", 192.168.1.7]}}"
    ));
    let first = &network.allow[0].value;
    assert!(first.inspect && !first.any_tcp);
    assert_eq!(first.requests[0].value.to_string(), "GET /repos/**");
    assert_eq!(first.requests[0].rule.to_string(), "p.yaml:1 (agent.network.allow[0].allow[0])");
    let blocks: Vec<String> = network.allow[1].value.addresses.iter().map(|b| b.value.to_string()).collect();
    assert_eq!(blocks, ["10.0.0.0/8", "fd00::/8", "192.168.1.7/32"]);
    assert_eq!(first.to_string(), "api.example.com (inspected: GET /repos/**)");
    assert_eq!(
        network.allow[1].value.to_string(),
        "db.internal:5432 (any TCP) (may lead to 10.0.0.0/8, fd00::/8, 192.168.1.7/32)"
    );
    assert!(!good("api.example.com").allow[0].value.inspect);
}

#[test]
fn network_rule_errors_name_their_place() {
    for (allow, part) in [
        ("      - host: a.test\n        allow: [\"GET /\"]\n", "add `inspect: true`"),
        ("      - host: a.test\n        inspect: true\n        allow: []\n", "no request through"),
        ("      - host: a.test\n        inspect: true\n        allow: [\"GET\"]\n", "GET /repos/**"),
        ("      - host: a.test\n        inspect: true\n        allow: [\"GET /../x\"]\n", "`..`"),
        ("      - host: a.test\n        inspect: sometimes\n", "true or false"),
        (
            "      - host: a.test\n        port: 1\n        protocol: tcp\n        inspect: true\n",
            "nothing to inspect",
        ),
        ("      - host: 10.0.0.0/8\n        inspect: true\n", "by name"),
        ("      - host: 10.0.0.0/8\n        addresses: [10.0.0.0/8]\n", "has no effect where"),
        ("      - host: a.test\n        addresses: [10.0.0.1/8]\n", "did you mean `10.0.0.0/8`?"),
        ("      - host: a.test\n        addresses: [inner]\n", "not an address block"),
        ("      - host: a.test\n        addresses: 10.0.0.0/8\n", "brackets"),
        ("      - host: a.test\n        inspekt: true\n", "did you mean `inspect`?"),
        ("      - a.test\n      - host: a.test\n        inspect: true\n", "line 5 takes precedence"),
        (
            "      - host: a.test\n        ports: [443, 8443]\n      - host: a.test\n        port: 443\n        protocol: tcp\n",
            "is given twice",
        ),
    ] {
        let text = mistake(allow);
        assert!(text.contains(part) && text.contains("p.yaml:"), "{allow}\n{text}");
    }
    // Twice the same does no harm.
    good("a.test, a.test, {host: a.test, port: 8080, protocol: tcp}");
}

#[test]
fn the_most_precise_rule_decides() {
    let network = good(&format!(
        "\"**.example.com\", \"*.example.com\", {INSPECTED}, \"**.deep.example.com:80\", 10.0.0.0/8, \"10.1.0.0/16:443\""
    ));
    for (host, port, expected) in [
        ("api.example.com", 443, "api.example.com (inspected: GET /repos/**)"),
        ("www.example.com", 443, "*.example.com"),
        ("a.b.example.com", 443, "**.example.com"),
        ("a.deep.example.com", 80, "**.deep.example.com:80"),
        ("a.deep.example.com", 443, "**.example.com"),
        ("example.com", 443, "none"),
        ("10.1.2.3", 443, "10.1.0.0/16:443"),
        ("10.1.2.3", 80, "10.0.0.0/8"),
        ("api.example.com", 22, "none"),
    ] {
        let found = deciding(&network, host, port);
        assert!(found.starts_with(expected), "{host}:{port}: {found}");
    }
}

#[test]
fn project_cannot_remove_a_network_condition() {
    let wild = format!("\"**.example.com\", {INSPECTED}");
    for (base, project) in [
        (INSPECTED, "api.example.com"),
        (INSPECTED, "{host: api.example.com, inspect: true}"),
        (INSPECTED, "{host: api.example.com, inspect: true, allow: [\"* /**\"]}"),
        (INSPECTED, "{host: api.example.com, inspect: true, allow: [\"GET /repos/a\", \"GET /user\"]}"),
        // The wildcard would allow it, but it is not what decides about this name.
        (wild.as_str(), "api.example.com"),
        ("a.test", "{host: a.test, addresses: [10.0.0.0/8]}"),
        ("{host: a.test, addresses: [10.0.0.0/16]}", "{host: a.test, addresses: [10.0.0.0/8]}"),
        ("{host: a.test, addresses: [10.0.0.0/8]}", "{host: a.test, addresses: [\"fd00::/8\"]}"),
        (
            "\"*.example.com\", {host: api.example.com, port: 443}",
            "{host: api.example.com, port: 443, protocol: tcp}",
        ),
    ] {
        assert!(narrowed(base, project).is_err(), "{base} <- {project}");
    }
}

#[test]
fn project_can_narrow_a_network_rule() {
    for (base, project) in [
        ("api.example.com", INSPECTED),
        (INSPECTED, INSPECTED),
        (INSPECTED, "{host: api.example.com, port: 443, inspect: true, allow: [\"GET /repos/a/*\"]}"),
        ("{host: a.test, addresses: [10.0.0.0/8]}", "{host: a.test, addresses: [10.1.0.0/16]}"),
        ("{host: a.test, addresses: [10.0.0.0/8]}", "a.test"),
        ("{host: a.test, port: 22, protocol: tcp}", "\"a.test:22\""),
        ("\"*.example.com\", api.example.com", "api.example.com"),
    ] {
        assert!(narrowed(base, project).is_ok(), "{base} <- {project}");
    }
}

#[test]
fn a_stricter_rule_survives_a_wildcard_of_the_project() {
    let base = format!("\"**.example.com\", {INSPECTED}, other.test");
    let policy = narrowed(&base, "\"*.example.com\"").unwrap_or_else(|error| panic!("{}", error.render()));
    let network = policy.agent.network;
    assert!(deciding(&network, "api.example.com", 443).contains("inspected"));
    assert_eq!(deciding(&network, "www.example.com", 443), "*.example.com");
    assert_eq!(deciding(&network, "a.b.example.com", 443), "none");
    assert_eq!(deciding(&network, "other.test", 443), "none");
    // A host that the project excluded is not restored.
    let policy = narrowed(&base, "www.example.com").unwrap_or_else(|error| panic!("{}", error.render()));
    assert_eq!(deciding(&policy.agent.network, "api.example.com", 443), "none");
}
