use super::*;

fn with_config(content: &str) -> (World, PathBuf) {
    let mut world = World::new();
    let path = world.home(".cursor/mcp.json");
    world.write(&path, content);
    world.generic = Some(path.clone());
    (world, path)
}

#[test]
fn generic_agent_without_a_configuration_file_is_unchanged() {
    let mut world = World::new();
    let launch = world.adapt(unknown(), &["aider", "--x"]);
    assert_eq!(launch, Launch { argv: vec!["aider".to_owned(), "--x".to_owned()], ..Launch::default() });
    world.policy_server("p", "x");
    assert!(world.adapt(unknown(), &["aider"]).notes[0].contains("agent.mcp_config"));
}

#[test]
fn server_list_is_rewritten_and_other_members_are_kept() {
    let (mut world, path) = with_config(
        r#"{"theme": "dark", "big": 12345678901234567890, "mcpServers": {
            "a b.c": {"command": "npx", "args": ["${env:X}", "${workspaceFolder}/y"], "env": {"K": "${env:GONE}"},
                      "autoApprove": ["t"], "disabled": false, "envFile": ".env"},
            "web": {"url": "https://x"}, "gem": {"httpUrl": "https://x"}}}"#,
    );
    world.set("X", "x1");
    world.policy_server("pol", "p");
    let launch = world.adapt(unknown(), &["cursor"]);
    assert_eq!(names(&launch), ["a b.c", "gem", "pol", "web"]);
    assert_eq!(args(&launch, "a b.c"), ["x1".to_owned(), format!("{}/y", world.project("").display())]);
    assert_eq!((origin(&launch, "a b.c").line, origin(&launch, "a b.c").scope), (2, Scope::User));
    let text = String::from_utf8(replacement(&launch, &path).to_vec()).unwrap();
    assert!(text.contains("12345678901234567890"), "{text}");
    let document = json_of(text.as_bytes());
    assert_eq!(document["theme"], "dark");
    let entry = &document["mcpServers"]["a b.c"];
    assert_eq!(entry["args"], serde_json::json!(["bridge", "a b.c"]));
    assert_eq!(entry["autoApprove"], serde_json::json!(["t"]));
    assert!(entry.get("envFile").is_none());
    assert_eq!(document["mcpServers"].as_object().unwrap().len(), 4);
    assert!(!text.contains("https://x"), "{text}");
}

#[test]
fn vs_code_server_list_is_recognised() {
    let (mut world, path) = with_config(
        r#"{"inputs": [], "servers": {"s": {"type": "stdio", "command": "x"},
            "asks": {"command": "x", "env": {"T": "${input:token}"}}}}"#,
    );
    world.policy_server("new", "p");
    let launch = world.adapt(unknown(), &["code"]);
    assert_eq!(names(&launch), ["new", "s"]);
    assert!(reason(&launch, "asks").contains("${input:...}"));
    let document = json_of(replacement(&launch, &path));
    assert_eq!(document["servers"]["s"]["type"], "stdio");
    assert_eq!(document["servers"]["new"]["args"][1], "new");
    assert!(document["servers"].get("asks").is_none());
}

#[test]
fn configuration_file_in_the_project_has_project_scope() {
    let mut world = World::new();
    let path = world.project(".vscode/mcp.json");
    world.write(&path, r#"{"servers": {"ok": {"command": "x"}, "bad": {"command": 1}}}"#);
    world.generic = Some(path);
    let launch = world.adapt(unknown(), &["code"]);
    assert_eq!(origin(&launch, "ok").scope, Scope::Project);
    assert!(reason(&launch, "bad").contains("command is not a string"));
}

#[test]
fn mcp_configuration_that_cannot_be_rewritten_is_an_error() {
    for (content, message) in [
        ("{\n  // mine\n  \"mcpServers\": []}", "not an object"),
        ("{\n\"a\": 1, /* x */ \"mcpServers\": {\"a\": 1}}", ":2: MCP server \"a\""),
        ("{\"mcpServers\": {}, \"servers\": {}}", "both"),
        ("[]", "not a JSON object"),
        ("{\"mcpServers\": []}", "not an object"),
        ("{\"mcpServers\": {\"a\": {\"command\": \"x\"}, \"a\": {\"command\": \"y\"}}}", "duplicate key"),
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
    ] {
        let (world, _) = with_config(content);
        let error = world.try_adapt(unknown(), &["x"]).unwrap_err().to_string();
        assert!(error.contains(message), "{content}: {error}");
    }
    let mut world = World::new();
    world.generic = Some(world.home("gone.json"));
    assert!(world.try_adapt(unknown(), &["x"]).unwrap_err().to_string().contains("no such file"));
}
