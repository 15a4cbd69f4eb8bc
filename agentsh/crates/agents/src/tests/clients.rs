use crate::clients::{CLIENTS, Client};
use crate::dialect::Start;

use super::*;

const HERE: &str = "config";

fn start() -> Start {
    Start {
        command: "agentsh".to_owned(),
        args: vec!["mcp".to_owned(), "run".to_owned()],
        env: BTreeMap::new(),
    }
}

#[test]
fn server_is_added_to_each_client_once() {
    for client in CLIENTS {
        let name = client.name;
        let text = client.snippet("fs", &start()).unwrap();
        assert!(text.contains("agentsh") && text.contains("fs"), "{name}: {text}");
        let again = client.with_server(&text, Path::new(HERE), "fs", &start()).unwrap();
        assert!(again.done.is_empty() && again.text == text, "{name}: {again:?}");
        let more = client.with_server(&text, Path::new(HERE), "other", &start()).unwrap();
        assert!(more.text.contains("other") && more.text.contains("fs"), "{name}: {more:?}");
    }
}

#[test]
fn wrapping_a_client_configuration_can_be_undone() {
    for (name, text) in [
        (
            "claude",
            "{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"fs\": {\n      \"type\": \"stdio\",\n      \"command\": \"npx\",\n      \"args\": [\n        \"-y\",\n        \"x\"\n      ],\n      \"env\": {\n        \"TOKEN\": \"t\"\n      }\n    }\n  }\n}\n",
        ),
        (
            "opencode",
            "{\n    \"mcp\": {\n        \"fs\": {\n            \"type\": \"local\",\n            \"command\": [\n                \"npx\",\n                \"x\"\n            ],\n            \"environment\": {\n                \"TOKEN\": \"t\"\n            }\n        }\n    }\n}\n",
        ),
        (
            "codex",
            "# mine\nmodel = \"m\" # this one\n\n[mcp_servers.fs]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\nenv = { TOKEN = \"t\" }\nstartup_timeout_sec = 9\n",
        ),
    ] {
        let client = Client::named(name).unwrap();
        let wrapped = client.wrap_servers(text, Path::new(HERE), "/usr/bin/agentsh").unwrap();
        assert_eq!(wrapped.done, ["fs"], "{name}");
        let flat: String = wrapped.text.split_whitespace().collect();
        assert!(
            flat.contains("\"mcp\",\"run\",\"--id\",\"fs\",\"--env\",\"TOKEN\",\"--\",\"npx\""),
            "{name}: {flat}"
        );
        assert!(!name.eq("codex") || wrapped.text.contains("# this one"), "{}", wrapped.text);
        let again = client.wrap_servers(&wrapped.text, Path::new(HERE), "/usr/bin/agentsh").unwrap();
        assert!(again.done.is_empty() && again.text == wrapped.text, "{name}: {again:?}");
        let back = client.without_agentsh(&wrapped.text, Path::new(HERE)).unwrap();
        assert_eq!(back.text, text, "{name}");
    }
}

#[test]
fn client_configuration_that_cannot_be_wrapped_says_why() {
    let client = Client::named("cursor").unwrap();
    let text = r#"{"mcpServers": {"web": {"url": "https://x"}, "odd": {}, "ours": {"command": "agentsh", "args": ["proxy"]}}}"#;
    let changed = client.wrap_servers(text, Path::new(HERE), "agentsh").unwrap();
    assert_eq!(changed.text, text);
    assert_eq!(changed.left.len(), 3);
    assert!(changed.left[0].1.contains("a remote server"), "{changed:?}");
    for (text, message) in [
        ("[]", "not a JSON object"),
        ("{\"mcpServers\": 1}", "is not an object"),
        ("{", "not valid JSON"),
        ("{ // mine\n\"mcpServers\": {\"a\": {\"command\": \"x\"}}}", "comments"),
    ] {
        let error = client.wrap_servers(text, Path::new(HERE), "agentsh").unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn client_configuration_is_the_first_file_that_exists() {
    let world = World::new();
    let client = Client::named("cline").unwrap();
    let (home, config) = (world.path("home"), world.home(".config"));
    assert!(client.file(&home, &config).starts_with(&config));
    let own = world.home(".cline/data/settings/cline_mcp_settings.json");
    world.write(&own, "{}");
    assert_eq!(client.file(&home, &config), own);
}
