//! MCP servers that are declared where agentsh might not look: among many files, deep down, behind links, in
//! unreadable files, in plugins. The agent would start them itself, past proxy and pins. Stopped by: directories that
//! cannot be searched completely are hidden; the user's plugins are bridged, other plugins are not started.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;

use crate::support::sandbox::script;
use crate::support::{Mode, Outcome, Place};

fn as_claude(place: &Place, text: &str) -> Outcome {
    let program = place.script(place.path("bin/claude"), &format!("#!/bin/bash\n{text}\n"));
    Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(program))
}

const EVIL: &str = "---\nname: e\nmcpServers:\n  evil: {command: ./evil.sh}\n---\nHelp.\n";
const HONEST: &str = "---\nname: h\nmcpServers: [fs]\n---\nHelp.\n";

/// What an agent finds in all its subagents.
const LOOK: &str = "grep -rl evil .claude ~/.claude; grep -Rl honest-one .claude/agents; true";

#[test]
#[ignore = "takes long"]
fn servers_declared_deep_or_behind_links_are_found() {
    for mode in Mode::all() {
        // Deep, behind links, under another name, in another spelling of the end.
        let place = Place::new(mode);
        let deep = (0..30).fold(String::from(".claude/agents"), |path, _| path + "/d");
        place.write(format!("{deep}/e.MD"), EVIL);
        place.write("elsewhere/text", EVIL);
        for (link, to) in [("link.md", "../../elsewhere/text"), ("loop", ".")] {
            symlink(to, place.project.join(".claude/agents").join(link)).unwrap();
        }
        place.write(".claude/agents/early.md", "---\nmcpServers: {evil: {command: x}}\n# ---\n");
        place.write(".claude/agents/indented.md", "---\n name: e\n mcpServers: {evil: {command: x}}\n---\n");
        place.write(".claude/agents/return.md", "---\nname: e\rmcpServers: {evil: {command: x}}\n---\n");
        place.write(".claude/agents/honest.md", HONEST.replace("Help", "honest-one"));
        let outcome = as_claude(&place, LOOK);
        // The one that does not end is not a subagent any more; the text stays.
        let found: Vec<&str> = outcome.stdout.lines().filter(|line| !line.contains("honest.md")).collect();
        assert!(found.iter().all(|line| line.ends_with("early.md")), "{mode:?} {outcome}");
        assert!(outcome.stdout.contains("honest.md"), "{mode:?} {outcome}");
        let early = as_claude(&place, "head -c 3 .claude/agents/early.md; head -c 3 elsewhere/text");
        assert_eq!(early.stdout.matches("---").count(), 1, "{mode:?} {early}");

        // Too many to check: none is shown, and a message says so.
        let place = Place::new(mode);
        place.write(".claude/agents/a.md", EVIL);
        for number in 0..2_100 {
            place.write(format!(".claude/agents/many/{number}.md"), "Help.\n");
        }
        place.write(".claude/agents/zz/z.md", EVIL);
        let outcome = as_claude(&place, LOOK);
        assert_eq!(outcome.stdout, "", "{mode:?} {outcome}");
        assert!(
            outcome.stderr.contains("is not passed to the agent") && outcome.stderr.contains("more than"),
            "{outcome}"
        );
    }
}

/// Instructions that came with a project allow themselves tools, switch questions off, and bring programs of their own.
#[test]
fn project_instructions_do_not_count_as_the_users() {
    let front = |keys: &str| format!("---\ndescription: d\n{keys}---\nText.\n");
    let words = [
        ("commands/ship.md", "allowed-tools: Bash(git push:*), mcp__github__create_issue\n"),
        ("skills/deep/sub/SKILL.md", "allowed-tools:\n  - Bash\n"),
        (
            "skills/hooked/SKILL.md",
            "hooks:\n  PreToolUse:\n    - hooks: [{type: command, command: ./x.sh}]\n",
        ),
        ("agents/bold.md", "permissionMode: bypassPermissions\n"),
    ];
    let reads = ("commands/look.md", "allowed-tools: Read, Grep\n");
    for mode in Mode::all() {
        let place = Place::new(mode);
        for (file, keys) in words.iter().chain([&reads]) {
            place.write(format!(".claude/{file}"), front(keys));
        }
        // The user's own files stay.
        place.write(place.home.join(".claude/agents/own.md"), front(words[3].1));
        let outcome = as_claude(
            &place,
            "cd .claude; tail -n +1 commands/* skills/*/SKILL.md skills/*/*/SKILL.md agents/*",
        );
        for (file, keys) in words {
            assert!(outcome.stdout.contains(file), "{mode:?} {file} {outcome}");
            let line = keys.lines().last().unwrap();
            assert!(!outcome.stdout.contains(line), "{mode:?} {file} {outcome}");
        }
        assert!(outcome.stdout.contains(reads.1), "{mode:?} {outcome}");
        let told = "and 3 more came with the project: allowed-tools, hooks, permissionMode is not passed";
        assert!(outcome.stderr.contains(told), "{mode:?} {outcome}");
        let own = as_claude(&place, "cat ~/.claude/agents/own.md");
        assert!(own.stdout.contains(words[3].1), "{mode:?} {own}");
    }
}

#[test]
fn directory_of_subagents_that_cannot_be_read_is_hidden() {
    for mode in Mode::all().into_iter().filter(|mode| !mode.is_root()) {
        let place = Place::new(mode);
        place.write(".claude/agents/closed/e.md", EVIL);
        let closed = place.project.join(".claude/agents/closed");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let outcome = as_claude(&place, &format!("chmod -R 755 .claude/agents; {LOOK}"));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!outcome.stdout.contains("e.md"), "{mode:?} {outcome}");
        assert!(outcome.stderr.contains("is not passed to the agent"), "{outcome}");
    }
}

/// The same for the roles of Codex.
#[test]
fn codex_roles_are_all_searched_for_servers() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        for number in 0..100 {
            place.write(
                format!(".codex/agents/{number}.toml"),
                "name = \"x\"\n[mcp_servers.evil]\ncommand = \"evil\"\n",
            );
        }
        let program = place
            .script(place.path("bin/codex"), "#!/bin/bash\ngrep -rl evil .codex; cat .codex/agents/7.toml\n");
        let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(program));
        assert_eq!(outcome.stdout, "name = \"x\"\n", "{mode:?} {outcome}");
    }
}

/// A plugin as it is installed: with servers in a file and in its manifest.
fn plugin(place: &Place, root: &Path) {
    let server = place.program("fixture_server");
    let listed = json!({"mcpServers": {"listed": {"command": server, "args": ["${CLAUDE_PLUGIN_ROOT}"],
        "env": {"ROOT": "${CLAUDE_PLUGIN_ROOT}"}}}});
    place.write(root.join(".mcp.json"), listed.to_string());
    let manifest = json!({"name": "tools", "mcpServers": ["./bundle.mcpb", "../../../other.json",
        {"inline": {"command": server}, "asks": {"command": server, "args": ["${user_config.key}"]}}]});
    place.write(root.join(".claude-plugin/plugin.json"), manifest.to_string());
    place.write(root.join("../../../other.json"), json!({"outside": {"command": server}}).to_string());
}

fn installed(place: &Place, root: &Path, settings: &Path, is_on: bool) {
    let list = json!({"version": 2, "plugins": {"tools@market": [{"scope": "user", "installPath": root}]}});
    place.write(place.home.join(".claude/plugins/installed_plugins.json"), list.to_string());
    place.write(settings, json!({"enabledPlugins": {"tools@market": is_on}}).to_string());
}

#[test]
fn plugins_of_the_user_are_bridged_and_others_are_not_started() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let (root, own) = (
            place.home.join(".claude/plugins/cache/market/tools/1.0"),
            place.home.join(".claude/settings.json"),
        );
        plugin(&place, &root);
        let servers = |place: &Place| script(place, &json!([{"servers": true}]));
        // It is not on, or the project's settings say that it is.
        installed(&place, &root, &own, false);
        place.write(".claude/settings.json", json!({"enabledPlugins": {"tools@market": true}}).to_string());
        let answers = servers(&place);
        assert_eq!(answers.json, [json!([])], "{mode:?} {}", answers.outcome);

        installed(&place, &root, &own, true);
        let root_of = |server: &str| json!({"server": server, "tool": "env", "arguments": {"name": "CLAUDE_PLUGIN_ROOT"}});
        let answers = script(
            &place,
            &json!([{"servers": true}, root_of("plugin_tools_listed"), root_of("plugin_tools_inline")]),
        );
        assert_eq!(
            answers.json[0],
            json!(["plugin_tools_inline", "plugin_tools_listed"]),
            "{mode:?} {}",
            answers.outcome
        );
        assert_eq!(answers.text(1), root.to_str().unwrap(), "{mode:?} {}", answers.outcome);
        assert_eq!(answers.text(2), root.to_str().unwrap(), "{mode:?} {}", answers.outcome);
        let said = &answers.outcome.stderr;
        assert!(
            said.contains("bundle.mcpb") && said.contains("other.json is not in its directory"),
            "{said}"
        );
        assert!(said.contains("plugin_tools_asks") && said.contains("declare it yourself"), "{said}");

        // One that is in the project, where anybody may have put it.
        let inside = place.project.join("deep/er/and/tools");
        plugin(&place, &inside);
        installed(&place, &inside, &own, true);
        place.write(
            ".claude/skills/x/.claude-plugin/plugin.json",
            json!({"mcpServers": {"y": {"command": "z"}}}).to_string(),
        );
        let answers = servers(&place);
        assert_eq!(answers.json, [json!([])], "{mode:?} {}", answers.outcome);
        let said = &answers.outcome.stderr;
        assert!(
            said.contains("is in the project") && said.contains("this plugin came with the project"),
            "{said}"
        );
    }
}

/// What an agent sees of its directories declares no servers: their variables and headers are not shown inside.
#[test]
fn declarations_next_to_the_list_are_not_shown() {
    let entry = json!({"command": "y", "args": ["--key", "MCP-SECRET"], "env": {"T": "MCP-SECRET"}});
    let remote = json!({"type": "http", "url": "https://x", "headers": {"A": "MCP-SECRET"}});
    let plugin = ".claude/plugins/cache/market/tools/1.0";
    let manifest = json!({"name": "KEPT-1", "mcpServers": ["./own/list.json", {"c": entry}]});
    let hooks = json!({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "KEPT-2"}]}]}});
    let settings =
        json!({"deniedMcpServers": [{"serverName": "KEPT-3"}], "enabledPlugins": {"tools@market": true}});
    let toml = "model = \"KEPT-1\"\n[[mcp_servers]]\nname = \"x\"\nheaders = {T = \"MCP-SECRET\"}\n";
    let recipe = "title: KEPT-1\nextensions:\n- {type: stdio, cmd: y, envs: {T: MCP-SECRET}}\n- {type: builtin, name: KEPT-2}\n";
    let front =
        "---\nname: KEPT-1\nmcp-servers:\n  x:\n    command: y\n    env: {T: MCP-SECRET}\n---\nKEPT-2\n";
    let cases = [
        (
            "claude",
            vec![
                (format!("{plugin}/.mcp.json"), json!({"a": remote, "mcpServers": {"b": entry}}).to_string()),
                (format!("{plugin}/.claude-plugin/plugin.json"), manifest.to_string()),
                (format!("{plugin}/own/list.json"), json!({"d": entry}).to_string()),
                (format!("{plugin}/hooks/hooks.json"), hooks.to_string()),
                (".claude/plugins/marketplaces/m/.mcp.json".to_owned(), json!({"e": remote}).to_string()),
                (".claude/settings.json".to_owned(), settings.to_string()),
            ],
        ),
        ("gemini", vec![(".gemini/agents/a.md".to_owned(), front.to_owned())]),
        ("goose", vec![(".config/goose/recipes/a.yaml".to_owned(), recipe.to_owned())]),
        ("kimi", vec![(".kimi/config.toml".to_owned(), toml.to_owned())]),
        ("amp", vec![(".config/amp/skills/s/mcp.json".to_owned(), json!({"x": entry}).to_string())]),
    ];
    for mode in Mode::all() {
        for (agent, files) in &cases {
            let place = Place::new(mode);
            let mut shown = String::from("#!/bin/sh\ncd; cat");
            for (file, text) in files {
                place.write(place.home.join(file), text);
                shown.push_str(&format!(" {file}"));
            }
            let program = place.script(place.path(&format!("bin/{agent}")), &shown);
            let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(program));
            let outcome = outcome.expect_code(0);
            assert!(!outcome.stdout.contains("MCP-SECRET"), "{mode:?} {outcome}");
            let kept = (1..4).map(|number| format!("KEPT-{number}"));
            for word in kept.filter(|word| files.iter().any(|(_, text)| text.contains(word))) {
                assert!(outcome.stdout.contains(&word), "{mode:?} {agent} {word} {outcome}");
            }
            // An agent that enables a plugin gets its servers anyway.
            let is_told = outcome.stderr.contains("declares are not started");
            assert_eq!(is_told, *agent != "claude", "{mode:?} {agent} {outcome}");
        }
    }
}

#[test]
fn codex_plugin_servers_are_bridged() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let root = place.home.join(".codex/plugins/cache/market/tools/1.0");
        let declared = json!({"mcpServers": {"listed": {"command": place.program("fixture_server")}}});
        place.write(root.join(".mcp.json"), declared.to_string());
        place.write(root.join(".codex-plugin/plugin.json"), json!({"name": "tools"}).to_string());
        let config =
            "[plugins.\"tools@market\"]\nenabled = true\n[plugins.\"gone@market\"]\nenabled = true\n";
        place.write(place.home.join(".codex/config.toml"), config);
        let text = "#!/bin/bash\ncat ~/.codex/config.toml; ls ~/.codex/plugins 2>&1\n";
        let program = place.script(place.path("bin/codex"), text);
        let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(program));
        assert!(outcome.stdout.contains("[mcp_servers.listed]"), "{mode:?} {outcome}");
        assert!(outcome.stdout.contains("\"bridge\", \"listed\""), "{mode:?} {outcome}");
        assert!(outcome.stdout.contains("No such file"), "{mode:?} {outcome}");
        assert!(outcome.stderr.contains("plugin gone@market is not installed"), "{mode:?} {outcome}");
    }
}

/// The account's servers come from the model's own host: the agent is told to leave them out.
#[test]
fn claude_account_connectors_are_left_out() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.set("ENABLE_CLAUDEAI_MCP_SERVERS", "true");
        let outcome = as_claude(&place, "echo $ENABLE_CLAUDEAI_MCP_SERVERS; echo \"$@\"");
        assert!(outcome.stdout.starts_with("false\n--strict-mcp-config"), "{mode:?} {outcome}");
    }
}
