//! Questions that an agent asks once per project or home are asked only once.

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place, eventually};

/// Shows what it was given, and leaves what Claude Code would and what it should not.
fn claude(place: &Place, left: &Value) {
    let text = left.to_string();
    place.script(
        "claude",
        &format!("#!/bin/sh\ncat ~/.claude.json 2>/dev/null\ncat > ~/.new <<'END'\n{text}\nEND\nmv ~/.new ~/.claude.json\n"),
    );
}

fn run(place: &Place, program: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", program])).expect_code(0)
}

#[test]
fn second_run_remembers_answers_and_the_users_file_gets_only_harmless_ones() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let project = place.project.to_str().unwrap().to_owned();
        let own = place.home.join(".claude.json");
        place
            .write(&own, r#"{"userID": "u", "theme": "dark", "numStartups": 10, "tipsHistory": {"old": 5}}"#);
        claude(
            &place,
            &json!({
                "userID": "other", "theme": "light", "numStartups": 3, "hasCompletedOnboarding": true,
                "tipsHistory": {"old": 1, "new": 2}, "env": {"X": "1"}, "apiKeyHelper": "evil",
                "mcpServers": {"evil": {"command": "x"}}, "lastOnboardingVersion": "$(evil)",
                "projects": {&project: {
                    "hasTrustDialogAccepted": true, "allowedTools": ["Bash"], "enabledMcpjsonServers": ["a"],
                    "hasCompletedProjectOnboarding": true, "mcpServers": {"evil": {"command": "x"}},
                }, "/other": {"hasTrustDialogAccepted": true}},
            }),
        );
        assert!(!run(&place, "./claude").stdout.contains("light"));
        let host: Value = serde_json::from_str(&std::fs::read_to_string(&own).unwrap()).unwrap();
        let expected = json!({
            "userID": "u", "theme": "light", "numStartups": 10, "tipsHistory": {"old": 5, "new": 2},
            "hasCompletedOnboarding": true, "projects": {&project: {"hasCompletedProjectOnboarding": true}},
        });
        assert_eq!(host, expected, "{mode:?}");
        let second = run(&place, "./claude");
        let seen: Value = serde_json::from_str(&second.stdout).unwrap();
        let of_project = &seen["projects"][&project];
        assert_eq!(seen["hasCompletedOnboarding"], true, "{second}");
        assert_eq!(of_project["hasTrustDialogAccepted"], true, "{mode:?} {second}");
        assert_eq!(of_project["enabledMcpjsonServers"], json!(["a"]), "{second}");
        assert!(of_project.get("allowedTools").is_none() && seen.get("env").is_none(), "{second}");
        assert!(seen["projects"].get("/other").is_none(), "{second}");
    }
}

/// Claude Code makes a lock and a new file next to its settings, and renames: what it asked once is known the next time, and
/// nothing of it reaches the project.
#[test]
fn claude_code_permissions_are_kept_for_the_project() {
    for mode in Mode::all() {
        for text in [None, Some(r#"{"permissions": {"deny": ["Read(x)"]}, "hooks": {"Stop": []}}"#)] {
            let place = Place::new(mode);
            place.write(".git/HEAD", "ref: refs/heads/main\n");
            place.make_directory(&place.project.join(".git/objects"));
            place.make_directory(&place.project.join(".git/refs"));
            place.make_directory(&place.home.join(".claude"));
            if let Some(text) = text {
                place.write(".claude/settings.local.json", text);
                place.write(".claude/commands/a.md", "as it was");
            }
            let answers = json!({
                "permissions": {"allow": ["Bash(make thing *)"], "defaultMode": "bypassPermissions"},
                "enabledMcpjsonServers": ["a"], "hooks": {"Stop": ["evil"]}, "env": {"X": "1"},
            });
            place.script(
                "claude",
                &format!(
                    "#!/bin/sh\ncd .claude || exit 9\ncat settings.local.json commands/a.md 2>/dev/null\n\
                     mkdir settings.local.json.lock && printf '%s' '{answers}' > settings.local.json.tmp &&\n\
                     mv settings.local.json.tmp settings.local.json && rmdir settings.local.json.lock || exit 8\n\
                     echo x > commands/a.md\nmkdir -p skills/s && echo mine > skills/s/SKILL.md\ntrue\n"
                ),
            );
            let first = run(&place, "./claude");
            assert!(!first.stdout.contains("make thing"), "{first}");
            // Refused was what is the project's, and not what is the agent's own.
            let refused = first.stderr.contains("refused to change .claude/commands/a.md");
            assert_eq!(refused, text.is_some(), "{mode:?} {first}");
            assert!(!first.stderr.contains("settings.local.json.tmp"), "{mode:?} {first}");
            assert!(
                !first.stdout.contains("hooks") && first.stdout.contains("Read(x)") == text.is_some(),
                "{first}"
            );
            let second = run(&place, "./claude");
            assert!(second.stdout.contains("Bash(make thing *)"), "{mode:?} {text:?} {second}");
            assert!(second.stdout.contains("enabledMcpjsonServers"), "{second}");
            for foreign in ["bypassPermissions", "evil", "env"] {
                assert!(!second.stdout.contains(foreign), "{foreign} {second}");
            }
            let settings = place.project.join(".claude/settings.local.json");
            assert_eq!(std::fs::read_to_string(settings).ok().as_deref(), text, "{mode:?}");
            if text.is_some() {
                let command = place.project.join(".claude/commands/a.md");
                assert_eq!(std::fs::read_to_string(command).unwrap(), "as it was");
            }
            assert!(!place.project.join(".claude/skills").exists(), "{mode:?}");
            // Files that it made next to them are not lost.
            let skill = place.project.join(".claude/skills/s/SKILL.md").display().to_string();
            Outcome::of(&mut place.agentsh(&["undo", &skill])).expect_code(0);
            assert_eq!(std::fs::read_to_string(&skill).unwrap(), "mine\n");
        }
    }
}

/// Files of the directory that the policy hides stay hidden, and remembered answers about them are not given back.
#[test]
fn files_hidden_beside_claude_settings_stay_hidden() {
    for mode in Mode::all() {
        for (deny, shown) in
            [(".claude/commands/private", "open\n"), (".claude/commands", ""), (".claude", "")]
        {
            let place = Place::new(mode);
            place.make_directory(&place.home.join(".claude"));
            place.write(".claude/settings.local.json", r#"{"permissions": {"deny": ["SECRET"]}}"#);
            place.write(".claude/commands/private/x", "SECRET");
            place.write(".claude/commands/open", "open\n");
            place.user_policy(&format!("agent: {{filesystem: {{deny: [{deny}]}}}}\n"));
            let script = "#!/bin/sh\ncat .claude/commands/private/x .claude/commands/open 2>/dev/null\n\
                          [ -s .claude/settings.local.json ] && echo settings >&2\ntrue\n";
            place.script("claude", script);
            let outcome = run(&place, "./claude");
            assert_eq!(outcome.stdout, shown, "{mode:?} {deny} {outcome}");
            assert_eq!(outcome.stderr.contains("settings\n"), deny != ".claude", "{mode:?} {deny} {outcome}");
        }
    }
}

/// If the user lets the agent write the directory, it writes the project's own.
#[test]
fn claude_code_writes_the_projects_own_settings_where_that_is_allowed() {
    let place = Place::new(Mode::Invoker);
    place.make_directory(&place.home.join(".claude"));
    place.make_directory(&place.project.join(".claude"));
    place.script("claude", "#!/bin/sh\nmkdir -p .claude/skills; echo '{}' > .claude/settings.local.json\n");
    Outcome::of(&mut place.agentsh(&["policy", "allow", "--write", ".claude"])).expect_code(0);
    run(&place, "./claude");
    assert!(place.project.join(".claude/skills").exists());
    assert!(place.project.join(".claude/settings.local.json").exists());
}

/// The user works outside meanwhile: what he writes stays.
#[test]
fn settings_changed_outside_during_the_run_stay() {
    let place = Place::new(Mode::Invoker);
    let own = place.home.join(".claude.json");
    place.write(&own, r#"{"theme": "dark"}"#);
    place.script(
        "claude",
        "#!/bin/sh\necho ready\nread -r go\nprintf '{\"theme\": \"dark\", \"hasCompletedOnboarding\": true}' > ~/.claude.json\n",
    );
    let mut peer = crate::support::Peer::start(&mut place.agentsh(&["run", "--quiet", "--", "./claude"]));
    assert_eq!(peer.next_line(), b"ready\n");
    place.write(&own, r#"{"theme": "daltonized", "userID": "new"}"#);
    peer.send_line(b"go");
    peer.close();
    assert!(peer.child.wait().unwrap().success());
    let host: Value = serde_json::from_str(&std::fs::read_to_string(&own).unwrap()).unwrap();
    assert_eq!(host, json!({"theme": "daltonized", "userID": "new", "hasCompletedOnboarding": true}));
}

#[test]
fn settings_file_that_the_agent_replaces_is_not_read() {
    let place = Place::new(Mode::Invoker);
    let own = place.home.join(".claude.json");
    let text = r#"{"theme": "dark"}"#;
    for left in [
        "ln -s /etc/passwd ~/.claude.json",
        "mkfifo ~/.claude.json",
        "mkdir ~/.claude.json",
        "printf '{\"theme\": \"light\", \"theme\": \"x\"}' > ~/.claude.json",
        "head -c 20000000 /dev/zero > ~/.claude.json",
    ] {
        place.write(&own, text);
        place.script("claude", &format!("#!/bin/sh\nrm ~/.claude.json; {left}\n"));
        run(&place, "./claude");
        assert_eq!(std::fs::read_to_string(&own).unwrap(), text, "{left}");
    }
}

#[test]
fn codex_trusts_a_project_once() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let project = place.project.display().to_string();
        let own = place.home.join(".codex/config.toml");
        let text = "# mine\nmodel = \"m\"\n";
        place.write(&own, text);
        place.script(
            "codex",
            &format!(
                "#!/bin/sh\ncat ~/.codex/config.toml\nprintf 'model_provider = \"evil\"\\n[projects.\"{project}\"]\\ntrust_level = \"trusted\"\\n[notice]\\nhide_rate_limit_model_nudge = true\\n' > ~/.codex/config.toml\n"
            ),
        );
        assert!(!run(&place, "./codex").stdout.contains("trusted"));
        let host = std::fs::read_to_string(&own).unwrap();
        assert!(host.starts_with(text) && host.contains("hide_rate_limit_model_nudge = true"), "{host}");
        assert!(!host.contains("evil") && !host.contains("trusted"), "{host}");
        let second = run(&place, "./codex").stdout;
        assert!(
            second.contains("trust_level = \"trusted\"") && !second.contains("evil"),
            "{mode:?} {second}"
        );
    }
}

#[test]
fn gemini_trusts_a_folder_once() {
    let place = Place::new(Mode::Invoker);
    let project = place.project.display().to_string();
    place.script(
        "gemini",
        &format!("#!/bin/sh\ncat ~/.gemini/trustedFolders.json 2>/dev/null\nprintf '{{\"{project}\": \"TRUST_FOLDER\", \"/\": \"TRUST_FOLDER\"}}' > ~/.gemini/trustedFolders.json\n"),
    );
    assert_eq!(run(&place, "./gemini").stdout, "");
    assert!(!place.home.join(".gemini/trustedFolders.json").exists());
    let second: Value = serde_json::from_str(&run(&place, "./gemini").stdout).unwrap();
    assert_eq!(second, json!({project: "TRUST_FOLDER"}));
}

const CREDENTIALS: &str = ".claude/.credentials.json";

/// What Claude Code stores about its account, and next to it what it stores about remote servers.
fn credentials(token: &str, expires: u64, plan: &str) -> Value {
    json!({
        "claudeAiOauth": {"accessToken": token, "refreshToken": format!("r-{token}"), "expiresAt": expires,
            "scopes": ["user:inference"], "subscriptionType": plan},
        "mcpOAuth": {"linear|1": {"serverUrl": "https://mcp.example/sse", "accessToken": "MCP-SECRET"}},
    })
}

fn stored(place: &Place) -> Value {
    serde_json::from_str(&std::fs::read_to_string(place.home.join(CREDENTIALS)).unwrap()).unwrap()
}

/// A program that shows its credentials, or writes them in place as Claude Code does.
fn with_login(mode: Mode) -> Place {
    let place = Place::new(mode);
    let path = place.write(place.home.join(CREDENTIALS), credentials("one", 10, "max").to_string());
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    place.script(
        "claude",
        &format!(
            "#!/bin/sh\nwhile read -r line; do case $line in\nshow) cat ~/{CREDENTIALS}; echo;;\n\
             *) printf %s \"$line\" >~/{CREDENTIALS};;\nesac; done\n"
        ),
    );
    place
}

/// Inside are no tokens of remote servers. A renewal of the login goes back, and nothing else: another account is reported.
#[test]
fn login_is_copied_inside_and_only_its_renewal_is_written_back() {
    for mode in Mode::all() {
        let mut evil = credentials("two", 20, "max");
        evil["mcpOAuth"]["linear|1"]["serverUrl"] = "https://evil.example".into();
        evil["mcpOAuth"]["new"] = json!({"accessToken": "x"});
        for (written, is_renewal) in [
            (evil, true),
            (credentials("other", 20, "pro"), false),
            (json!({"claudeAiOauth": {"accessToken": "other", "expiresAt": 20}}), false),
            (json!({}), false),
        ] {
            let place = with_login(mode);
            let input = format!("show\n{written}\n");
            let mut command = place.agentsh(&["run", "--", "./claude"]);
            let outcome = Outcome::with_input(&mut command, input.as_bytes()).expect_code(0);
            assert!(
                outcome.stdout.contains("r-one") && !outcome.stdout.contains("MCP"),
                "{mode:?} {outcome}"
            );
            let (token, expires) = if is_renewal { ("two", 20) } else { ("one", 10) };
            assert_eq!(stored(&place), credentials(token, expires, "max"), "{mode:?} {written}");
            let mode_bits =
                std::os::unix::fs::MetadataExt::mode(&place.home.join(CREDENTIALS).metadata().unwrap());
            assert_eq!(mode_bits & 0o777, 0o600);
            let told = place.events("guard_changed").iter().any(|event| event["what"] == "refused");
            let is_told = outcome.stderr.contains("not a renewal of the same account");
            assert!(told != is_renewal && is_told != is_renewal, "{mode:?} {written} {outcome}");
            let copies = place.home.join(".local/state/agentsh/agents/claude");
            let copies = std::fs::read_dir(copies).unwrap().flatten();
            let mut copies = copies.flat_map(|project| std::fs::read_dir(project.path()).unwrap()).flatten();
            assert!(!copies.any(|entry| entry.file_name().to_string_lossy().starts_with("copies")));
        }
    }
}

/// A renewal reaches the file and a second session while both run; other members that are written outside stay, and an older copy
/// undoes nothing.
#[test]
fn a_renewed_login_reaches_other_sessions() {
    for mode in Mode::all() {
        let place = with_login(mode);
        let start = || Peer::start(&mut place.agentsh(&["run", "--quiet", "--", "./claude"]));
        let (mut one, mut other) = (start(), start());
        let shows = |peer: &mut Peer, token: &str| {
            let peer = std::cell::RefCell::new(peer);
            eventually(|| {
                let mut peer = peer.borrow_mut();
                peer.send_line(b"show");
                String::from_utf8_lossy(&peer.next_line()).contains(token)
            })
        };
        assert!(shows(&mut one, "r-one") && shows(&mut other, "r-one"), "{mode:?}");
        let mut outside = credentials("one", 10, "max");
        outside["mcpOAuth"]["new"] = json!({"accessToken": "later"});
        place.write(place.home.join(CREDENTIALS), outside.to_string());
        one.send_line(credentials("two", 20, "max").to_string().as_bytes());
        assert!(shows(&mut other, "r-two"), "{mode:?}");
        let now = stored(&place);
        assert_eq!(now["claudeAiOauth"], credentials("two", 20, "max")["claudeAiOauth"], "{mode:?}");
        assert_eq!(now["mcpOAuth"]["new"]["accessToken"], "later", "{mode:?}");
        other.send_line(credentials("late", 15, "max").to_string().as_bytes());
        assert_eq!(other.finish().0, 0);
        assert_eq!(one.finish().0, 0);
        assert_eq!(stored(&place), now, "{mode:?}");
    }
}

/// Cline replaces its file of providers by renaming another onto it. The choice of a provider that the user has, and of its
/// model, is kept; keys, addresses and other providers are not.
#[test]
fn cline_provider_and_model_are_kept() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let providers = |used: &str, model: &str, key: &str| {
            json!({"version": 1, "lastUsedProvider": used, "providers": {
                "anthropic": {"settings": {"provider": "anthropic", "apiKey": key, "model": model}},
                "groq": {"settings": {"provider": "groq", "apiKey": "k"}},
            }})
        };
        let settings = place.home.join(".cline/data/settings");
        let own =
            place.write(settings.join("providers.json"), providers("anthropic", "one", "k").to_string());
        place.write(settings.join("global-settings.json"), r#"{"telemetryOptOut": true}"#);
        place.write(settings.join("others-tokens.json"), "SECRET");
        let mut chosen = providers("groq", "vendor/two-1.5:free", "other");
        chosen["providers"]["groq"]["settings"]["baseUrl"] = "https://evil.example".into();
        chosen["providers"]["new"] = json!({"settings": {"provider": "new"}});
        place.write("chosen", chosen.to_string());
        let script = "#!/bin/sh\ncd ~/.cline/data/settings || exit 9\ncat *\ncp $OLDPWD/$1 p.tmp && mv p.tmp providers.json\n";
        place.script("cline", script);
        let run = |file: &str| {
            Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "./cline", file])).expect_code(0)
        };
        let outcome = run("chosen");
        assert!(outcome.stdout.contains("apiKey") && outcome.stdout.contains("telemetryOptOut"), "{outcome}");
        assert!(!outcome.stdout.contains("SECRET") && outcome.stderr.is_empty(), "{mode:?} {outcome}");
        let stored = || -> Value { serde_json::from_str(&std::fs::read_to_string(&own).unwrap()).unwrap() };
        let mut expected = providers("groq", "vendor/two-1.5:free", "k");
        assert_eq!(stored(), expected, "{mode:?}");
        // One that the user does not have is not kept.
        chosen["lastUsedProvider"] = "new".into();
        chosen["providers"]["anthropic"]["settings"]["model"] = "one".into();
        place.write("chosen", chosen.to_string());
        run("chosen");
        expected["providers"]["anthropic"]["settings"]["model"] = "one".into();
        assert_eq!(stored(), expected, "{mode:?}");
        let copies = place.home.join(".local/state/agentsh/agents/cline");
        let copies = std::fs::read_dir(copies).unwrap().flatten();
        let mut copies = copies.flat_map(|project| std::fs::read_dir(project.path()).unwrap()).flatten();
        assert!(!copies.any(|entry| entry.file_name().to_string_lossy().starts_with("copies")));
    }
}

/// Files that Claude Code obeys later outside are reported: its memory, and transcripts other than the session's own.
#[test]
fn claude_code_memory_and_other_transcripts_are_reported() {
    for mode in Mode::all() {
        for is_honest in [true, false] {
            let place = Place::new(mode);
            let name =
                place.project.to_str().unwrap().replace(|sign: char| !sign.is_ascii_alphanumeric(), "-");
            let own = place.home.join(".claude/projects").join(name);
            place.write(own.join("old.jsonl"), "old\n");
            place.write(own.join("memory/MEMORY.md"), "as it was\n");
            let more = if is_honest {
                ""
            } else {
                "echo evil >memory/MEMORY.md; echo x >memory/b.md; echo x >evil.jsonl; echo x >'z\nagentsh: FORGED.jsonl'"
            };
            place.script(
                "claude",
                &format!("#!/bin/sh\ncd ~/.claude/projects/*/ && cat old.jsonl memory/MEMORY.md && echo x >new.jsonl\n{more}\n"),
            );
            let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "./claude"])).expect_code(0);
            assert_eq!(outcome.stdout, "old\nas it was\n", "{mode:?} {outcome}");
            assert!(own.join("new.jsonl").exists(), "{mode:?} {outcome}");
            for told in ["MEMORY.md; `agentsh undo` restores it", "b.md;", "3 transcripts", "evil.jsonl"] {
                assert_eq!(outcome.stderr.contains(told), !is_honest, "{mode:?} {told} {outcome}");
            }
            assert!(
                !outcome.stderr.lines().any(|line| line.starts_with("agentsh: FORGED")),
                "{mode:?} {outcome}"
            );
            assert_eq!(place.events("guard_changed").len(), if is_honest { 0 } else { 3 }, "{mode:?}");
            if !is_honest {
                for file in ["memory/MEMORY.md", "memory/b.md", "evil.jsonl"] {
                    let file = own.join(file).display().to_string();
                    Outcome::of(&mut place.agentsh(&["undo", &file])).expect_code(0);
                }
                assert_eq!(std::fs::read_to_string(own.join("memory/MEMORY.md")).unwrap(), "as it was\n");
                assert!(!own.join("memory/b.md").exists() && !own.join("evil.jsonl").exists(), "{mode:?}");
            }
        }
    }
}
