//! A cloned repository can contain anything.

use super::*;

fn project(content: impl AsRef<[u8]>) -> World {
    let world = World::new();
    world.write(&world.project(".mcp.json"), content);
    world
}

#[test]
fn bad_entries_of_the_project_are_refused_one_by_one() {
    let world = project(
        r#"{"mcpServers": {
        "ok": {"command": "x"},
        "number": {"command": 5},
        "list": [],
        "none": {},
        "empty": {"command": ""},
        "args": {"command": "x", "args": "y"},
        "arg": {"command": "x", "args": [1]},
        "env": {"command": "x", "env": {"A": 1}},
        "envname": {"command": "x", "env": {"A=B": "1"}},
        "nul": {"command": "x\u0000y"},
        "type": {"type": "carrier-pigeon"},
        "typed": {"type": 5, "command": "x"},
        "two": {"command": "x", "url": "https://x"},
        "": {"command": "x"},
        "../up": {"command": "x"},
        "..": {"command": "x"},
        "line\nbreak": {"command": "x"},
        "esc\u001b[2J": {"command": "x"},
        "rtl\u202egnp": {"command": "x"},
        "--help": {"command": "x"}
    }}"#,
    );
    let launch = world.adapt(claude_code(), &["claude"]);
    assert_eq!(names(&launch), ["ok"]);
    assert_eq!(launch.refused.len(), 19);
    let place = format!("{}:3: ", world.project(".mcp.json").display());
    assert!(reason(&launch, "number").starts_with(&place), "{}", reason(&launch, "number"));
    for (id, reason) in &launch.refused {
        let hidden = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!id.0.chars().any(hidden) && !reason.chars().any(hidden), "{id:?} {reason:?}");
    }
}

#[test]
fn bad_entry_of_the_user_is_an_error_with_its_line() {
    let world = World::new();
    world.write(
        &world.home(".claude.json"),
        "{\n\"mcpServers\": {\n\"a\": {\"command\": \"x\"},\n\"b\": {\"command\": 5}}}",
    );
    let error = world.try_adapt(claude_code(), &["claude"]).unwrap_err().to_string();
    assert!(error.contains(".claude.json:4: MCP server \"b\": its command is not a string; "), "{error}");
    let world = World::new();
    world.write(&world.home(".codex/config.toml"), "model = \"x\"\n[mcp_servers.b]\ncommand = 5\n");
    let error = world.try_adapt(codex_cli(), &["codex"]).unwrap_err().to_string();
    assert!(error.contains("config.toml:2: MCP server \"b\""), "{error}");
}

#[test]
fn malformed_project_file_does_not_stop_the_launch() {
    let huge = format!(r#"{{"mcpServers": {{"x": {{"command": "{}"}}}}}}"#, "a".repeat(1 << 20));
    let many: String = (0..300).map(|n| format!(r#""s{n}": {{"command": "x"}},"#)).collect();
    let many = format!(r#"{{"mcpServers": {{{}}}}}"#, many.trim_end_matches(','));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let contents: [&[u8]; 9] = [
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{\"mcpServers\": 5}",
        huge.as_bytes(),
        many.as_bytes(),
        deep.as_bytes(),
        b"{\"mcpServers\": {\"a\": {\"command\": \"x\"}, \"a\": {\"command\": \"y\"}}}",
    ];
    for content in contents {
        let world = project(content);
        let launch = world.adapt(claude_code(), &["claude"]);
        assert!(launch.servers.is_empty());
        assert!(
            launch
                .notes
                .iter()
                .any(|note| note.contains(".mcp.json") && note.contains("none of its servers")),
            "{:?}",
            launch.notes
        );
    }
}

#[test]
fn special_files_as_configuration_do_not_block_the_launch() {
    let world = World::new();
    let path = world.project(".mcp.json");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let launch = world.adapt(claude_code(), &["claude"]);
    assert!(launch.notes.iter().any(|note| note.contains("not a regular file")));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(world.adapt(claude_code(), &["claude"]).servers.is_empty());
    let config = world.project(".codex/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &config).unwrap();
    let launch = world.adapt(codex_cli(), &["codex", "--trust"]);
    assert_eq!(replacement(&launch, &config), b"");
}

#[test]
fn a_bad_project_file_of_codex_is_covered() {
    let world = World::new();
    let path = world.project(".codex/config.toml");
    for content in ["= 5", "mcp_servers = 5", "[mcp_servers]\nx = 5", "[mcp_servers.x]\ncommand = [1]"] {
        world.write(&path, content);
        let launch = world.adapt(codex_cli(), &["codex", "--trust"]);
        assert!(launch.servers.is_empty(), "{content}");
        assert_eq!(replacement(&launch, &path), b"", "{content}");
        assert!(!launch.notes.is_empty());
    }
}

#[test]
fn hostile_text_costs_linear_time() {
    let braces = "${".repeat(100_000);
    let defaults = "${a:-".repeat(100_000);
    let world =
        project(format!(r#"{{"mcpServers": {{"x": {{"command": "{braces}", "args": ["{defaults}"]}}}}}}"#));
    assert_eq!(command(&world.adapt(claude_code(), &["claude"]), "x"), braces);
}

#[test]
fn large_user_state_file_is_read() {
    let world = World::new();
    let filler = "x".repeat(3 << 20);
    world.write(
        &world.home(".claude.json"),
        format!(r#"{{"filler": "{filler}", "mcpServers": {{"a": {{"command": "x"}}}}}}"#),
    );
    assert_eq!(names(&world.adapt(claude_code(), &["claude"])), ["a"]);
}
