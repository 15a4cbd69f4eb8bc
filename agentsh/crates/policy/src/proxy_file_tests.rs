#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use super::proxy_file::*;

fn errors(text: &str) -> String {
    parse("proxy.json", text).map(|file| format!("{file:?}")).unwrap_err().render()
}

const WHOLE: &str = r#"{
  "servers": [
    {"id": "filesystem", "command": "npx", "args": ["-y", "server", ""], "env": {"A": "b"}},
    {"id": "web", "command": "uvx"},
    {"id": "far", "url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${FAR}"}}
  ],
  "allowed_domains": ["api.example.com", "*.Example.net", "localhost", "example.org:8443"],
  "allowed_tools": ["filesystem__read_*", "web__fetch", "canary__get_report"],
  "auditors": [
    {"provider": "anthropic", "model": "m", "api_key_env": "A_KEY", "timeout_ms": 5000},
    {"provider": "openai", "model": "n", "base_url": "http://127.0.0.1:9/v1/"}
  ],
  "audit_timeout_action": "allow"
}"#;

#[test]
fn every_documented_key_is_read_with_its_line() {
    let file = parse("proxy.json", WHOLE).unwrap();
    let ids: Vec<&str> = file.servers.iter().map(|server| server.value.id.as_str()).collect();
    assert_eq!(ids, ["filesystem", "web", "far"]);
    let ServerTransport::Command { args, env, .. } = &file.servers[0].value.way else { panic!() };
    assert_eq!((args.as_slice(), env["A"].as_str()), (&["-y", "server", ""].map(str::to_owned)[..], "b"));
    let ServerTransport::Url { url, headers } = &file.servers[2].value.way else { panic!() };
    assert_eq!(
        (url.as_str(), headers["Authorization"].as_str()),
        ("https://mcp.example.com/mcp", "Bearer ${FAR}")
    );
    assert_eq!(file.allowed_domains.len(), 4);
    assert!(file.allowed_domains[1].value.host.matches("a.example.net"));
    assert!(!file.allowed_domains[1].value.host.matches("example.net"));
    let tools: Vec<(&str, &str, u64)> = file
        .allowed_tools
        .iter()
        .map(|tool| (tool.value.server.as_str(), tool.value.tool.as_str(), tool.rule.line))
        .collect();
    assert_eq!(tools, [("filesystem", "read_*", 8), ("web", "fetch", 8), ("canary", "get_report", 8)]);
    assert_eq!(file.auditors[0].value.timeout_ms, 5000);
    assert_eq!(file.auditors[1].value.timeout_ms, 8000);
    assert_eq!(file.auditors[1].value.base_url.as_deref(), Some("http://127.0.0.1:9/v1"));
    assert_eq!(file.audit_timeout, AuditTimeout::Allow);
    assert_eq!(file.warnings, []);
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let shown =
        errors("{\n  \"servers\": [{\"id\": \"fs\", \"comand\": \"x\"}],\n  \"allowd_tools\": \"fs__*\"\n}");
    for part in [
        "unknown key `comand`",
        "proxy.json:2:28",
        "did you mean `command`?",
        "a server needs `command`",
        "unknown key `allowd_tools`",
        "proxy.json:3:3",
        "did you mean `allowed_tools`?",
        "not a key of the proxy configuration",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn proxy_configuration_errors_are_named() {
    let one = |rest: &str| format!("{{\"servers\":[{{\"id\":\"fs\",\"command\":\"x\"}}]{rest}}}");
    for (text, expected) in [
        ("".to_owned(), "not valid JSON"),
        ("{\"servers\":[],}".to_owned(), "not valid JSON"),
        ("{\"servers\":[],\"servers\":[{}]}".to_owned(), "written twice"),
        ("[]".to_owned(), "the proxy configuration must be a map"),
        (
            "{\"servers\":[{\"id\":\"far\",\"url\":\"ftp://a.example\"}]}".to_owned(),
            "not the address of a server",
        ),
        (
            "{\"servers\":[{\"id\":\"far\",\"url\":\"https://a.example\",\"command\":\"x\"}]}".to_owned(),
            "`command` is for a server that agentsh starts",
        ),
        (
            "{\"servers\":[{\"id\":\"fs\",\"command\":\"x\",\"headers\":{}}]}".to_owned(),
            "`headers` is for a server behind a `url`",
        ),
        (
            "{\"servers\":[{\"id\":\"far\",\"url\":\"https://a.example\",\"headers\":{\"A B\":\"x\"}}]}"
                .to_owned(),
            "not the name of a header",
        ),
        ("{}".to_owned(), "there is no list of `servers`"),
        ("{\"servers\":{}}".to_owned(), "must be a list"),
        ("{\"servers\":[1]}".to_owned(), "must be a map"),
        ("{\"servers\":[{\"id\":\"Fs\",\"command\":\"x\"}]}".to_owned(), "not a server id"),
        ("{\"servers\":[{\"id\":\"a b\",\"command\":\"x\"}]}".to_owned(), "not a server id"),
        ("{\"servers\":[{\"id\":7,\"command\":\"x\"}]}".to_owned(), "must be text"),
        ("{\"servers\":[{\"id\":\"canary\",\"command\":\"x\"}]}".to_owned(), "reserved"),
        ("{\"servers\":[{\"id\":\"canary_\",\"command\":\"x\"}]}".to_owned(), "reserved"),
        ("{\"servers\":[{\"id\":\"fs\",\"command\":\"x\",\"args\":\"-y\"}]}".to_owned(), "must be a list"),
        (
            "{\"servers\":[{\"id\":\"fs\",\"command\":\"x\",\"env\":{\"A\":1}}]}".to_owned(),
            "put it in quotes",
        ),
        (
            "{\"servers\":[{\"id\":\"a\",\"command\":\"x\"},{\"id\":\"a\",\"command\":\"x\"}]}".to_owned(),
            "two servers have the id `a`",
        ),
        (
            "{\"servers\":[{\"id\":\"a\",\"command\":\"x\"},{\"id\":\"a__b\",\"command\":\"x\"}]}".to_owned(),
            "cannot be told apart",
        ),
        (one(",\"allowed_tools\":\"fs__*\""), "must be a list"),
        (one(",\"allowed_tools\":[\"sf__*\"]"), "not a tool of any server"),
        (one(",\"allowed_tools\":[\"fs__*_x\"]"), "has a wildcard in the middle"),
        (one(",\"allowed_domains\":[\"https://a.example\"]"), "is a URL"),
        (one(",\"allowed_domains\":[\"*\"]"), "would allow too much"),
        (one(",\"audit_timeout_action\":\"alow\""), "did you mean `allow`?"),
        (
            one(",\"auditors\":[{\"provider\":\"openai\",\"model\":\"m\",\"api_key_env\":\"K\"}]"),
            "there must be two auditors",
        ),
        (
            one(",\"auditors\":[{\"provider\":\"opnai\",\"model\":\"m\",\"api_key_env\":\"K\"},{}]"),
            "did you mean `openai`?",
        ),
    ] {
        let shown = errors(&text);
        assert!(shown.contains(expected), "{text}\n{shown}");
    }
}
