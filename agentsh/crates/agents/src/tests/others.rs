//! Agents that are described by a table.

use super::*;

fn kind(name: &str) -> Kind {
    Kind::named(name).unwrap_or_else(|| panic!("{name} is not known"))
}

#[test]
fn agent_kind_is_recognised_by_its_program() {
    for (program, name) in [
        ("gemini", "gemini"),
        ("/x/node_modules/@google/gemini-cli/bundle/gemini.js", "gemini"),
        ("opencode", "opencode"),
        ("/x/opencode-linux-x64/bin/opencode", "opencode"),
        ("qwen", "qwen"),
        ("copilot", "copilot"),
        ("cursor-agent", "cursor"),
        ("aider", "aider"),
        ("goose", "goose"),
        ("cline", "cline"),
        ("amp", "amp"),
        ("pi", "pi"),
        ("droid", "droid"),
        ("crush", "crush"),
        ("kimi", "kimi"),
        ("vibe", "vibe"),
        ("gemini-like", "generic"),
    ] {
        assert_eq!(Kind::of(program).name(), name, "{program}");
    }
    let names: BTreeSet<&str> = Kind::all().map(Kind::name).collect();
    assert_eq!(names.len(), Kind::all().count(), "names are directories");
}

#[test]
fn base_urls_of_the_users_configuration_are_endpoints() {
    for (agent, file, text) in [
        ("pi", ".pi/agent/models.json", r#"{"providers": {"own": {"baseUrl": "http://127.0.0.1:8081/v1"}}}"#),
        ("kimi", ".kimi/config.toml", "[providers.own]\nbase_url = \"http://127.0.0.1:8081/v1\"\n"),
        ("vibe", ".vibe/config.toml", "[[providers]]\napi_base = \"http://127.0.0.1:8081/v1\"\n"),
    ] {
        let world = World::new();
        world.write(&world.home(file), text);
        assert!(hosts(&world.adapt(kind(agent), &[agent])).contains(&("127.0.0.1", 8081)), "{agent}");
    }
}

/// For each agent: the files in which it declares servers, and what it reads from the copy.
#[test]
fn servers_of_the_user_and_of_the_project_become_bridges() {
    let common = |word: &str| {
        format!(
            r#"{{"{word}": {{"own": {{"command": "mine", "args": ["a"]}}, "off": {{"command": "x", "disabled": true}}}}, "theme": "dark"}}"#
        )
    };
    let opencode = r#"{"mcp": {"own": {"type": "local", "command": ["mine", "a"], "environment": {"K": "{env:V}"}}, "off": {"type": "local", "command": ["x"], "enabled": false}}, "theme": "dark"}"#.to_owned();
    let goose = "extensions:\n  own: {type: stdio, cmd: mine, args: [a], enabled: true}\n  developer: {type: builtin, enabled: true}\n  off: {type: stdio, cmd: x, enabled: false}\ntheme: dark\n".to_owned();
    for (agent, file, text, key, project) in [
        (
            "gemini",
            ".gemini/settings.json",
            common("mcpServers"),
            "mcpServers",
            Some(".gemini/settings.json"),
        ),
        ("qwen", ".qwen/settings.json", common("mcpServers"), "mcpServers", Some(".qwen/settings.json")),
        ("opencode", ".config/opencode/opencode.json", opencode, "mcp", Some("opencode.json")),
        ("copilot", ".copilot/mcp-config.json", common("mcpServers"), "mcpServers", Some(".mcp.json")),
        ("cursor", ".cursor/mcp.json", common("mcpServers"), "mcpServers", Some(".cursor/mcp.json")),
        ("goose", ".config/goose/config.yaml", goose, "extensions", None),
        ("cline", ".cline/data/settings/cline_mcp_settings.json", common("mcpServers"), "mcpServers", None),
        (
            "amp",
            ".config/amp/settings.json",
            common("amp.mcpServers"),
            "amp.mcpServers",
            Some(".amp/settings.json"),
        ),
    ] {
        let mut world = World::new();
        world.set("V", "value");
        world.write(&world.home(file), &text);
        if let Some(project) = project {
            let entry = if agent == "opencode" {
                r#"{"type": "local", "command": ["theirs"]}"#
            } else {
                r#"{"command": "theirs"}"#
            };
            let text = format!(
                r#"{{"{key}": {{"proj": {entry}, "own": {entry}}}, "provider": {{"x": 1}}, "theme": "x"}}"#
            );
            world.write(&world.project(project), text);
        }
        let launch = world.adapt(kind(agent), &[agent]);
        let expected: &[&str] = if project.is_some() { &["own", "proj"] } else { &["own"] };
        assert_eq!(names(&launch), expected, "{agent}");
        assert_eq!((command(&launch, "own"), args(&launch, "own").len()), ("mine", 1), "{agent}");
        assert_eq!(
            origin(&launch, "own").scope,
            Scope::User,
            "{agent}: one of the user's own is not replaced"
        );
        let copy = json_of(injected(&launch, file));
        assert_eq!(copy["theme"], "dark", "{agent}");
        for name in expected {
            let text = copy[key][*name].to_string();
            assert!(
                text.contains("/run/agentsh/agentsh") && text.contains("AGENTSH_SOCKET"),
                "{agent}: {text}"
            );
            assert!(!text.contains("mine"), "{agent}: {text}");
        }
        if let Some(project) = project {
            assert_eq!(origin(&launch, "proj").scope, Scope::Project, "{agent}");
            let covered = json_of(replacement(&launch, &world.project(project)));
            assert_eq!(covered, serde_json::json!({"theme": "x"}), "{agent}");
            assert!(
                launch
                    .notes
                    .iter()
                    .any(|note| note.contains("which came with the project; to use it, move it to")),
                "{agent}: {:?}",
                launch.notes
            );
        }
        assert_eq!(copy[key].get("developer").is_some(), agent == "goose");
    }
}

#[test]
fn a_new_user_gets_a_list_of_the_policys_servers() {
    for agent in ["gemini", "opencode", "qwen", "copilot", "cursor", "goose", "cline", "amp"] {
        let mut world = World::new();
        let quiet = world.adapt(kind(agent), &[agent]).files;
        assert!(quiet.iter().all(|file| !String::from_utf8_lossy(&file.content).contains("mcp")), "{agent}");
        world.policy_server("pol", "p");
        let launch = world.adapt(kind(agent), &[agent]);
        assert_eq!(launch.files.len(), 1, "{agent}: {:?}", launch.files);
        assert!(String::from_utf8_lossy(&launch.files[0].content).contains("\"pol\""), "{agent}");
    }
}

#[test]
fn model_endpoints_follow_the_users_variables_and_settings() {
    for (agent, variable, value, host, port) in [
        ("gemini", "GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9", "127.0.0.1", 9),
        ("gemini", "GEMINI_API_KEY", "k", "generativelanguage.googleapis.com", 443),
        ("opencode", "ANTHROPIC_API_KEY", "k", "api.anthropic.com", 443),
        ("opencode", "OPENAI_BASE_URL", "http://localhost:11434/v1", "localhost", 11434),
        ("qwen", "OPENAI_BASE_URL", "http://127.0.0.1:8/v1", "127.0.0.1", 8),
        ("copilot", "X", "", "api.githubcopilot.com", 443),
        ("copilot", "COPILOT_PROVIDER_BASE_URL", "http://127.0.0.1:7", "127.0.0.1", 7),
        ("cursor", "X", "", "api2.cursor.sh", 443),
        ("aider", "OLLAMA_API_BASE", "http://127.0.0.1:11434", "127.0.0.1", 11434),
        ("aider", "OPENROUTER_API_KEY", "k", "openrouter.ai", 443),
        ("goose", "OLLAMA_HOST", "localhost:11434", "localhost", 11434),
        ("cline", "CLINE_API_KEY", "k", "api.cline.bot", 443),
        ("amp", "AMP_URL", "https://amp.example", "amp.example", 443),
    ] {
        let mut world = World::new();
        world.set(variable, value);
        let launch = world.adapt(kind(agent), &[agent]);
        assert!(hosts(&launch).contains(&(host, port)), "{agent} {variable}: {:?}", launch.endpoints);
    }
    let world = World::new();
    let file = world.home(".config/opencode/opencode.json");
    world.write(
        &file,
        r#"{"provider": {"mine": {"options": {"baseURL": "http://127.0.0.1:1234/v1"}}}} // end"#,
    );
    world.write(
        &world.home(".local/share/opencode/auth.json"),
        r#"{"anthropic": {"type": "api", "key": "k"}}"#,
    );
    let launch = world.adapt(kind("opencode"), &["opencode"]);
    assert_eq!(hosts(&launch), [("127.0.0.1", 1234), ("api.anthropic.com", 443)]);
    let launch = World::new().adapt(kind("aider"), &["aider"]);
    assert!(launch.notes.iter().any(|note| note.contains("--allow HOST")), "{:?}", launch.notes);
}

#[test]
fn agents_own_sandbox_is_off_and_its_briefing_names_agentsh() {
    let mut world = World::new();
    world.told = Some("in a sandbox".to_owned());
    world.write(&world.home(".gemini/settings.json"), r#"{"tools": {"sandbox": "docker", "shell": {}}}"#);
    world.write(&world.home(".gemini/GEMINI.md"), "be brief\n");
    let launch = world.adapt(kind("gemini"), &["gemini"]);
    assert_eq!(launch.env["GEMINI_SANDBOX"], "false");
    assert_eq!(
        json_of(injected(&launch, ".gemini/settings.json")),
        serde_json::json!({"tools": {"shell": {}}, "privacy": {"usageStatisticsEnabled": false}})
    );
    assert_eq!(injected(&launch, "GEMINI.md"), b"be brief\n\nin a sandbox\n");
    let launch = world.adapt(kind("opencode"), &["opencode"]);
    let copy = json_of(injected(&launch, "opencode/opencode.json"));
    assert_eq!(copy["instructions"], serde_json::json!(["/run/agentsh/inject/briefing.md"]));
    let launch = world.adapt(kind("aider"), &["aider", "--message", "x"]);
    assert_eq!(launch.argv[1..], ["--message", "x", "--read", "/run/agentsh/inject/briefing.md"]);
}

#[test]
fn a_bad_file_of_the_project_is_covered_and_one_of_the_user_is_an_error() {
    let world = World::new();
    let path = world.project(".gemini/settings.json");
    world.write(&path, "{");
    let launch = world.adapt(kind("gemini"), &["gemini"]);
    assert_eq!(replacement(&launch, &path), b"{}\n");
    assert!(launch.notes.iter().any(|note| note.contains("not valid JSON")), "{:?}", launch.notes);
    world.write(&world.home(".gemini/settings.json"), "{\n\"mcpServers\": []}");
    let error = world.try_adapt(kind("gemini"), &["gemini"]).unwrap_err().to_string();
    assert!(error.contains("not an object"), "{error}");
}

#[test]
fn project_server_gets_no_variables_the_user_did_not_approve() {
    let mut world = World::new();
    world.set("SECRET", "s3cret");
    let path = world.project(".gemini/settings.json");
    world.write(&path, r#"{"mcpServers": {"a": {"command": "x", "args": ["$SECRET", "${SECRET}"]}, "web": {"url": "https://x"}}}"#);
    let launch = world.adapt(kind("gemini"), &["gemini"]);
    assert!(!args(&launch, "a").concat().contains("s3cret"), "{launch:?}");
    assert!(reason(&launch, "web").contains("a remote server"));
    world.agreed.insert(crate::agreement::key(&path, &std::fs::read_to_string(&path).unwrap()));
    let launch = world.adapt(kind("gemini"), &["gemini"]);
    assert!(args(&launch, "a").concat().contains("s3cret"), "{launch:?}");
}

/// OpenCode lists its servers under `mcp`: a list under another key is one that it never reads.
#[test]
fn server_list_is_written_under_the_key_that_the_agent_reads() {
    for (file, key) in [
        (".config/opencode/opencode.json", "mcp"),
        (".config/zed/settings.json", "context_servers"),
        (".config/Code/User/mcp.json", "servers"),
        (".config/thing.json", "mcpServers"),
    ] {
        let mut world = World::new();
        let path = world.home(file);
        world.write(&path, "{\"a\": 1}");
        world.generic = Some(path.clone());
        assert!(world.adapt(unknown(), &["x"]).replaced.is_empty(), "{file}: nothing to say");
        world.policy_server("pol", "p");
        let document = json_of(replacement(&world.adapt(unknown(), &["x"]), &path));
        let keys: Vec<&String> = document.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["a", key], "{file}");
    }
}

/// Goose's secrets for extensions stay outside.
#[test]
fn goose_secrets_of_extensions_stay_outside() {
    let world = World::new();
    let config = |name: &str| world.home(&format!(".config/goose/{name}"));
    world.write(
        &config("secrets.yaml"),
        "OPENAI_API_KEY: k\nOWN_KEY: o\noauth_credentials_x: t\nGITHUB_TOKEN: g\n",
    );
    world.write(&config("custom_providers/own.json"), r#"{"api_key_env": "OWN_KEY"}"#);
    let launch = world.adapt(Kind::of("goose"), &["goose"]);
    let given = launch.files.iter().find(|file| file.path.ends_with("secrets.yaml")).unwrap();
    let given: Value = serde_json::from_slice(&given.content).unwrap();
    assert_eq!(given, serde_json::json!({"OPENAI_API_KEY": "k", "OWN_KEY": "o"}));
}
