//! Wrong configurations: the proxy does not start, and says where the mistake is and what to do.

use serde_json::json;

use crate::support::{Mode, Outcome, Peer, Place};

#[test]
fn proxy_configuration_mistakes_stop_the_start_with_their_line() {
    let place = Place::new(Mode::Invoker);
    for (text, parts) in [
        ("{", vec!["not valid JSON", "proxy.json:1"]),
        (
            "{\"servers\":[],\n\"alowed_domains\":[]}",
            vec!["unknown key", "proxy.json:2:1", "allowed_domains"],
        ),
        (
            "{\"servers\":[\n{\"id\":\"a\",\"command\":\"x\"},\n{\"id\":\"a__b\",\"command\":\"x\"}]}",
            vec!["cannot be told apart", "proxy.json:3"],
        ),
        ("{\"servers\":[{\"id\":\"Files\",\"command\":\"x\"}]}", vec!["`Files` is not a server id"]),
        ("{\"servers\":[{\"id\":\"1st\",\"command\":\"x\"}]}", vec!["`1st` is not a server id"]),
        ("{\"servers\":[],\"allowed_domains\":[\"*.com\"]}", vec!["would allow too much"]),
        (
            "{\"servers\":[],\"auditors\":[{\"provider\":\"mistral\",\n\"timeout_ms\":99}]}",
            vec!["write `anthropic`, `openai` or `google`", "99 is not between 100 and 600000"],
        ),
        (
            "{\"servers\":[{\"id\":\"a\",\"command\":\"x\"},\n{\"id\":\"a\",\"command\":\"y\"}]}",
            vec!["proxy.json:2", "`a`"],
        ),
        ("{\"servers\":[{\"id\":\"canary\",\"command\":\"x\"}]}", vec!["reserved", "canary__get_report"]),
        (
            "{\"servers\":[{\"id\":\"a\",\"command\":\"x\"}],\"allowed_tools\":\"a__*\"}",
            vec!["must be a list", "put it in brackets"],
        ),
        (
            "{\"mcpServers\":\n{\"a\":{\"command\":\"x\"}}}",
            vec!["what clients write", "proxy.json:1", "\"servers\": [{"],
        ),
        (
            "{\"servers\":[\n{\"id\":\"a\",\"url\":\"ftp://x.example/mcp\"}]}",
            vec!["not the address of a server", "proxy.json:2"],
        ),
        (" \n", vec!["it is empty", "\"servers\": [{"]),
        (
            "{\"servers\":[],\"auditors\":[{\"provider\":\"openai\",\"model\":\"m\",\"api_key_env\":\"K\"}]}",
            vec!["two auditors"],
        ),
    ] {
        let config = place.write("proxy.json", text);
        let outcome = Outcome::of(&mut place.agentsh(&["proxy", "--config", config.to_str().unwrap()]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{text}");
        for part in parts {
            assert!(outcome.stderr.contains(part), "{part}\n{}", outcome.stderr);
        }
    }
}

#[test]
fn a_file_or_setting_that_cannot_be_used_is_named() {
    let place = Place::new(Mode::Invoker);
    let refused = |command: &mut std::process::Command, part: &str| {
        let outcome = Outcome::of(command);
        assert_eq!(outcome.code, 125, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(part), "{part}\n{}", outcome.stderr);
    };
    refused(&mut place.agentsh(&["proxy", "--config", "missing.json"]), "missing.json");
    refused(&mut place.agentsh(&["proxy", "--config", "."]), "it is a directory");
    refused(&mut place.agentsh(&["proxy", "--config", "/dev/null"]), "it is not a plain file");
    place.write("latin.json", b"{\"servers\":\n[\xe9]}");
    refused(&mut place.agentsh(&["proxy", "--config", "latin.json"]), "line 2 is not UTF-8");
    place.write("marked.json", "\u{feff}{\"servers\": []}");
    let marked = Outcome::of(&mut place.agentsh(&["proxy", "--config", "marked.json"]));
    assert_eq!((marked.code, marked.stderr.as_str()), (0, ""));
    let config = place.write("proxy.json", json!({"servers": []}).to_string());
    for (name, value, part) in [
        ("CANARY_MCP_RESPONSE_MODE", "off", "log, halt or alert"),
        ("CANARY_MCP_TOKEN_TTL", "59", "60 to 86400"),
        ("CANARY_MCP_TOKEN_TTL", "86401", "60 to 86400"),
        ("CANARY_MCP_ALERT_WEBHOOK", "http://hooks.example.com/x", "must be an https:// address"),
        ("CANARY_MCP_RESPONSE_MODE", "alert", "CANARY_MCP_ALERT_WEBHOOK"),
    ] {
        let mut command = place.agentsh(&["proxy", "--config", config.to_str().unwrap()]);
        refused(command.env(name, value), part);
    }
}

/// What is only a warning is on record whatever the level.
#[test]
fn log_level_decides_which_messages_are_printed() {
    let place = Place::new(Mode::Invoker);
    let config =
        place.write("proxy.json", "{\"servers\": [{\"id\": \"gone\", \"command\": \"/nowhere/server\"}]}");
    let at = |level: &str| {
        let mut command = place.agentsh(&["proxy", "--config", config.to_str().unwrap()]);
        command.env("CANARY_MCP_LOG_LEVEL", level);
        command
    };
    for level in ["", "debug", "info", "warn", "error"] {
        let mut peer = Peer::start(&mut at(level));
        peer.request(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "suite", "version": "1"}}),
        );
        let (_, errors) = peer.finish();
        assert_eq!(errors.contains("/nowhere/server"), level != "error", "{level}: {errors}");
        assert!(level != "error" || errors.is_empty(), "{errors}");
    }
    assert!(place.events("mcp_server_unavailable").len() >= 5);
    let refused = Outcome::of(&mut at("verbose")).expect_code(125);
    assert!(refused.stderr.contains("debug, info, warn or error"), "{refused}");
}
