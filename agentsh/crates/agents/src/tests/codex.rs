use super::*;

const USER: &str = r#"
model = "gpt-5"
[mcp_servers.fs]
command = "npx"
args = ["-y", "fs"]
env = { TOKEN = "secret" }
startup_timeout_sec = 20
tools = { read = { approval_mode = "approve" } }

[mcp_servers."off"]
command = "x"
enabled = false
"#;

fn adapt(world: &World, argv: &[&str]) -> Launch {
    world.adapt(codex_cli(), argv)
}

fn with_user() -> World {
    let world = World::new();
    world.write(&world.home(".codex/config.toml"), USER);
    world
}

fn trusted(world: &World) -> String {
    format!(
        "[projects.{:?}]\ntrust_level = \"trusted\"\n[projects.\"/other\"]\ntrust_level = \"trusted\"\n",
        world.project("")
    )
}

const SANDBOX: [&str; 2] = ["-c", "sandbox_mode=\"danger-full-access\""];

#[test]
fn codex_configuration_is_copied_with_bridges() {
    let world = with_user();
    let launch = adapt(&world, &["codex", "exec", "hi"]);
    assert_eq!(names(&launch), ["fs"]);
    assert_eq!(command(&launch, "fs"), "npx");
    assert_eq!((origin(&launch, "fs").line, origin(&launch, "fs").scope), (3, Scope::User));
    let config = toml_of(injected(&launch, ".codex/config.toml"));
    assert_eq!(config["model"].as_str(), Some("gpt-5"));
    let fs = config["mcp_servers"]["fs"].as_table().unwrap();
    assert_eq!(fs["command"].as_str(), Some("/run/agentsh/agentsh"));
    assert_eq!(fs["args"].as_array().unwrap()[1].as_str(), Some("fs"));
    assert_eq!(fs["env"].as_table().unwrap().len(), 1, "the server's own variables stay out");
    assert_eq!(fs["startup_timeout_sec"].as_integer(), Some(20));
    assert_eq!(fs["tools"]["read"]["approval_mode"].as_str(), Some("approve"));
    assert!(config["mcp_servers"].get("off").is_none());
    assert!(!String::from_utf8_lossy(injected(&launch, "config.toml")).contains("secret"));
    assert_eq!(launch.argv, ["codex", SANDBOX[0], SANDBOX[1], "exec", "hi"]);
}

#[test]
fn codex_terminal_interface_does_not_check_for_updates() {
    let world = with_user();
    let off = ["-c", "check_for_update_on_startup=false"];
    assert_eq!(adapt(&world, &["codex"]).argv, ["codex", SANDBOX[0], SANDBOX[1], off[0], off[1]]);
    let own = ["codex", "-c", "check_for_update_on_startup=true"];
    assert!(!adapt(&world, &own).argv.contains(&off[1].to_owned()));
}

#[test]
fn server_overrides_are_parsed_and_removed_from_the_command() {
    let world = with_user();
    for argv in [
        &["codex", "-c", "mcp_servers.fs.command=other", "exec", "hi"][..],
        &["codex", "exec", "-cmcp_servers.fs.command=\"other\"", "hi"],
        &["codex", "exec", "--config=mcp_servers.fs={command=\"other\"}", "hi"],
        &["codex", "exec", "--config", "mcp_servers={fs={command=\"other\"}}", "hi"],
    ] {
        let launch = adapt(&world, argv);
        assert_eq!(command(&launch, "fs"), "other", "{argv:?}");
        assert_eq!(args(&launch, "fs"), ["-y", "fs"], "merged, not replaced");
        assert_eq!(origin(&launch, "fs").scope, Scope::CommandLine);
        assert!(!launch.argv.iter().any(|word| word.contains("other")), "{:?}", launch.argv);
        assert_eq!(launch.argv.last().unwrap(), "hi");
    }
    let launch = adapt(&world, &["codex", "exec", "-c", "mcp_servers.fs.enabled=false", "hi"]);
    assert!(launch.servers.is_empty());
    // The words in its place end the list of images.
    let launch =
        adapt(&world, &["codex", "exec", "-i", "a.png", "-c", "mcp_servers.fs.enabled=false", "prompt"]);
    assert_eq!(launch.argv[4..], ["-i", "a.png", "-c", "mcp_servers={}", "prompt"]);
    let launch =
        adapt(&world, &["codex", "exec", "-c", "model=\"o3\"", "--", "-c", "mcp_servers.fs.command=x"]);
    assert_eq!(launch.argv[4..], ["-c", "model=\"o3\"", "--", "-c", "mcp_servers.fs.command=x"]);
    assert_eq!(command(&launch, "fs"), "npx");
}

#[test]
fn untrusted_codex_project_starts_no_servers() {
    let world = with_user();
    let path = world.project(".codex/config.toml");
    world.write(
        &path,
        "model = \"m\"\n[mcp_servers.evil]\ncommand = \"evil\"\n[mcp_servers.fs]\nargs = [\"evil\"]\n",
    );
    let launch = adapt(&world, &["codex"]);
    assert_eq!(names(&launch), ["fs"]);
    assert_eq!(args(&launch, "fs"), ["-y", "fs"]);
    assert_eq!(replacement(&launch, &path), b"model = \"m\"\n");
    assert!(launch.notes.iter().any(|note| note.contains("not trusted")));
}

#[test]
fn trusted_codex_project_adds_servers_and_changes_none_of_the_users() {
    let world = with_user();
    let trust = trusted(&world);
    world.write(&world.home(".codex/config.toml"), format!("{USER}\n{trust}"));
    let path = world.project(".codex/config.toml");
    world.write(&path, "\n[mcp_servers.mine]\ncommand = \"x\"\n[mcp_servers.fs]\nargs = [\"theirs\"]\n");
    let launch = adapt(&world, &["codex"]);
    assert_eq!(names(&launch), ["fs", "mine"]);
    assert_eq!(args(&launch, "fs"), ["-y", "fs"]);
    assert_eq!(origin(&launch, "fs").scope, Scope::User);
    assert_eq!(origin(&launch, "mine").scope, Scope::Project);
    assert_eq!(origin(&launch, "mine").line, 2);
    assert_eq!(replacement(&launch, &path), b"");
    let config = toml_of(injected(&launch, ".codex/config.toml"));
    assert_eq!(config["projects"].as_table().unwrap().len(), 1, "other projects stay out");
}

#[test]
fn trust_given_on_the_command_line_counts_and_directories_are_followed() {
    let world = with_user();
    world.write(&world.project(".codex/config.toml"), "[mcp_servers.outer]\ncommand = \"x\"\n");
    world.write(&world.project("sub/.codex/config.toml"), "[mcp_servers.inner]\ncommand = \"x\"\n");
    assert_eq!(names(&adapt(&world, &["codex", "exec", "--trust", "hi"])), ["fs", "outer"]);
    assert_eq!(
        names(&adapt(&world, &["codex", "exec", "--trust", "-C", "sub", "hi"])),
        ["fs", "inner", "outer"]
    );
    let launch = adapt(&world, &["codex", "--cd=sub"]);
    assert_eq!(launch.replaced.len(), 2);
}

#[test]
fn codex_profile_is_a_layer_over_the_configuration() {
    let world = with_user();
    world.write(&world.home(".codex/work.config.toml"), "model = \"w\"\n[mcp_servers.w]\ncommand = \"w\"\n");
    let launch = adapt(&world, &["codex", "-p", "work"]);
    assert_eq!(names(&launch), ["fs", "w"]);
    assert_eq!(injected(&launch, ".codex/work.config.toml"), b"model = \"w\"\n");
    assert!(toml_of(injected(&launch, ".codex/config.toml"))["mcp_servers"].get("w").is_some());
    assert!(world.try_adapt(codex_cli(), &["codex", "--profile", "../../x"]).is_err());
}

#[test]
fn bridges_are_overrides_without_a_configuration_file() {
    let mut world = with_user();
    world.policy_server("pol", "x");
    let launch =
        adapt(&world, &["codex", "exec", "--ignore-user-config", "-c", "mcp_servers.cl.command=\"y\"", "hi"]);
    assert_eq!(names(&launch), ["cl", "pol"]);
    assert!(launch.files.is_empty());
    let values: Vec<&String> = launch.argv.iter().filter(|word| word.contains("bridge")).collect();
    assert_eq!(values.len(), 2, "in front, and where the user's stood: the last one counts");
    assert_eq!(values[0], values[1]);
    let (key, value) = values[0].split_once('=').unwrap();
    assert_eq!(key, "mcp_servers");
    assert!(!value.contains('\n'));
    let parsed: toml::Table = format!("x = {value}").parse().unwrap();
    assert_eq!(parsed["x"]["cl"]["args"].as_array().unwrap()[1].as_str(), Some("cl"));
    assert_eq!(parsed["x"].as_table().unwrap().len(), 2);
}

#[test]
fn a_later_override_replaces_an_earlier_one_of_the_same_key() {
    let world = with_user();
    let argv =
        ["codex", "-c", "mcp_servers.a={command=\"x\",args=[\"1\"]}", "-c", "mcp_servers.a={command=\"y\"}"];
    let launch = adapt(&world, &argv);
    assert_eq!((command(&launch, "a"), args(&launch, "a").len()), ("y", 0));
    let launch = adapt(&world, &["codex", "-c", "mcp_servers.a={command=\"x\"}", "-c", "mcp_servers={}"]);
    assert_eq!(names(&launch), ["fs"]);
}

#[test]
fn remote_servers_become_bridges_and_oddly_named_ones_are_refused() {
    let mut world = World::new();
    world.write(
        &world.home(".codex/config.toml"),
        "[mcp_servers.web]\nurl = \"https://x\"\nhttp_headers = {A = \"B\"}\n",
    );
    world.policy_server("a.b", "x");
    let launch = adapt(&world, &["codex"]);
    assert_eq!(names(&launch), ["web"]);
    assert!(reason(&launch, "a.b").contains("Codex does not start"));
    let config = toml_of(injected(&launch, "config.toml"));
    let entry = &config["mcp_servers"]["web"];
    assert!(entry.get("command").is_some() && entry.get("url").is_none(), "{entry}");
    assert!(entry.get("http_headers").is_none(), "{entry}");
}

#[test]
fn named_variables_are_taken_from_the_users_environment() {
    let mut world = World::new();
    world.set("GH", "value");
    world.set("OPENAI_API_KEY", "sk");
    let entry = "[mcp_servers.x]\ncommand = \"x\"\nenv_vars = [\"GH\", {name = \"GONE\"}]\ncwd = \"/srv\"\n";
    world.write(&world.home(".codex/config.toml"), entry);
    world.write(
        &world.project(".codex/config.toml"),
        "[mcp_servers.thief]\ncommand=\"x\"\nenv_vars=[\"OPENAI_API_KEY\"]\n",
    );
    let launch = adapt(&world, &["codex", "--trust"]);
    let Transport::Stdio { env, cwd, .. } = &launch.servers[&ServerId("x".to_owned())].transport else {
        panic!()
    };
    assert_eq!(env.iter().collect::<Vec<_>>(), [(&"GH".to_owned(), &"value".to_owned())]);
    assert_eq!(cwd.as_deref(), Some("/srv"));
    assert!(reason(&launch, "thief").contains("OPENAI_API_KEY"));
}

#[test]
fn codex_sandbox_is_off_unless_the_user_chose_one() {
    let world = World::new();
    for argv in [
        &["codex", "exec", "-s", "read-only"][..],
        &["codex", "exec", "--sandbox=workspace-write"],
        &["codex", "exec", "-c", "sandbox_mode='read-only'", "hi"],
        &["codex", "exec", "--approve-for-me"],
    ] {
        let launch = adapt(&world, argv);
        assert_eq!(launch.argv, argv);
        assert!(launch.notes.iter().any(|note| note.contains("may fail")), "{argv:?}");
    }
    let argv = ["codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "hi"];
    assert_eq!(adapt(&world, &argv).argv, argv);
    let launch = adapt(&world, &["codex", "exec", "-a", "never", "hi"]);
    assert!(!launch.argv.iter().any(|word| word.contains("approval")));
}

#[test]
fn system_configuration_layers_are_covered() {
    let world = with_user();
    let (system, managed) =
        (world.path("etc/codex/config.toml"), world.path("etc/codex/managed_config.toml"));
    world.write(&system, "[mcp_servers.sys]\ncommand = \"s\"\n[mcp_servers.fs]\ncommand = \"s\"\n");
    world.write(&managed, "[mcp_servers.fs]\ncommand = \"m\"\n");
    let launch = adapt(&world, &["codex", "-c", "mcp_servers.fs.command=c"]);
    assert_eq!((command(&launch, "sys"), command(&launch, "fs")), ("s", "m"));
    assert_eq!((replacement(&launch, &system), replacement(&launch, &managed)), (&b""[..], &b""[..]));
}

#[test]
fn codex_roles_lose_their_servers() {
    let world = World::new();
    let role = "name = \"r\"\n[mcp_servers.x]\ncommand = \"x\"\n";
    world.write(&world.home(".codex/agents/r.toml"), role);
    world.write(&world.project(".codex/agents/p.toml"), role);
    world.write(&world.project(".codex/agents/broken.toml"), "= x");
    let launch = adapt(&world, &["codex"]);
    assert_eq!(injected(&launch, ".codex/agents/r.toml"), b"name = \"r\"\n");
    assert_eq!(replacement(&launch, &world.project(".codex/agents/p.toml")), b"name = \"r\"\n");
    assert_eq!(replacement(&launch, &world.project(".codex/agents/broken.toml")), b"");
}

#[test]
fn codex_endpoints_follow_the_provider() {
    let check =
        |config: &str, env: &[(&str, &str)], auth: Option<&str>, argv: &[&str], expected: &[(&str, u16)]| {
            let mut world = World::new();
            world.write(&world.home(".codex/config.toml"), config);
            env.iter().for_each(|(name, value)| world.set(name, value));
            if let Some(auth) = auth {
                world.write(&world.home(".codex/auth.json"), auth);
            }
            assert_eq!(hosts(&adapt(&world, argv)), expected, "{config} {env:?} {argv:?}");
        };
    let codex = ["codex"];
    let chatgpt = [("chatgpt.com", 443), ("auth.openai.com", 443), ("api.openai.com", 443)];
    check("", &[("OPENAI_API_KEY", "k")], None, &codex, &[("api.openai.com", 443)]);
    check(
        "",
        &[("OPENAI_API_KEY", "k")],
        Some(r#"{"tokens": {}, "OPENAI_API_KEY": null}"#),
        &codex,
        &chatgpt,
    );
    check("", &[], Some(r#"{"OPENAI_API_KEY": "sk"}"#), &codex, &[("api.openai.com", 443)]);
    check("", &[], None, &codex, &chatgpt);
    check("openai_base_url = \"https://gate.example:8443/v1\"", &[], None, &codex, &[("gate.example", 8443)]);
    let mock = "[model_providers.mock]\nbase_url = \"http://127.0.0.1:8111/v1\"\nenv_key = \"MOCK\"\n";
    check(mock, &[], None, &["codex", "-c", "model_provider=mock"], &[("127.0.0.1", 8111)]);
    check("", &[], None, &["codex", "--oss"], &[("localhost", 11434)]);
    check("", &[], None, &["codex", "--oss", "--local-provider", "lmstudio"], &[("localhost", 1234)]);
    let mut world = World::new();
    world.set("MOCK", "key");
    world.write(&world.home(".codex/config.toml"), format!("model_provider = \"mock\"\n{mock}"));
    assert_eq!(adapt(&world, &codex).env["MOCK"], "key");
}

#[test]
fn home_state_of_codex_omits_databases_and_sockets() {
    let mut world = with_user();
    for name in ["auth.json", "AGENTS.md", "skills/x/SKILL.md", "state_5.sqlite", "app-server/control.sock"] {
        world.write(&world.home(&format!(".codex/{name}")), "{}");
    }
    let launch = adapt(&world, &["codex"]);
    assert_eq!(state(&launch, ".codex/auth.json").unwrap().access, Access::Login(&[]));
    assert_eq!(state(&launch, ".codex/AGENTS.md").unwrap().access, Access::ReadOnly);
    assert_eq!(state(&launch, ".codex/skills").unwrap().access, Access::Private);
    for absent in [".codex", ".codex/state_5.sqlite", ".codex/app-server", ".codex/config.toml"] {
        assert!(state(&launch, absent).is_none(), "{absent}");
    }
    let moved = world.path("elsewhere");
    world.write(&moved.join("config.toml"), "[mcp_servers.there]\ncommand = \"x\"\n");
    world.set("CODEX_HOME", &moved.to_string_lossy());
    assert_eq!(names(&adapt(&world, &["codex"])), ["there"]);
}
