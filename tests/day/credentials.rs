//! Secrets of the user on the wire, and placeholders inside: git, curl and tools that read variables work with a forge that
//! wants a token, which is nowhere inside.

use super::has;
use crate::support::forge::{TOKEN, forge};
use crate::support::{Mode, Outcome, Place};

/// The only rule of the agent's network is the one of its credential.
pub fn policy(place: &Place, allow: &str) {
    place.user_policy(&format!(
        "agent:\n  credentials:\n    - {{host: \"allowed.test:8443\", from: \"env:FORGE_TOKEN\"{allow}}}\n"
    ));
}

/// `agentsh run -- sh -c SCRIPT`, with what agentsh says to the user.
pub fn inside(place: &Place, script: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script]))
}

fn heard(place: &Place) -> String {
    std::fs::read_to_string(place.internet_log()).unwrap_or_default()
}

/// The token is nowhere that the agent, or a reader of the record, can see.
fn holds_no_token(place: &Place, outcome: &Outcome) {
    assert!(!outcome.stdout.contains(TOKEN) && !outcome.stderr.contains(TOKEN), "{outcome}");
    let record = std::fs::read(place.home.join(".local/state/agentsh/agentsh.db")).unwrap();
    assert!(
        !record.windows(TOKEN.len()).any(|bytes| bytes == TOKEN.as_bytes()),
        "the token is in the record"
    );
}

const URL: &str = "https://allowed.test:8443/git/private.git";

fn everywhere(test: impl Fn(&Place)) {
    for mode in Mode::all() {
        for backend in ["auto", "userns"] {
            test(&forge(mode, backend));
        }
    }
}

#[test]
#[ignore = "takes long"]
fn a_private_repository_is_cloned_and_fetched_without_its_token() {
    if !has("git") {
        return;
    }
    everywhere(|place| {
        policy(place, "");
        // The command line is recorded.
        let (first, second) = TOKEN.split_at(9);
        let pieces = format!("{first}''{second}");
        let script = format!(
            "set -e; git clone -q {URL} copy; cat copy/file; git -C copy fetch -q origin; \
             git -C copy fetch -q ssh://git@allowed.test/git/private.git; \
             printf 'host=allowed.test:8443\\nprotocol=https\\n\\n' | git credential fill | grep password; \
             echo \"env $FORGE_TOKEN\"; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c {pieces} || true; \
             grep -rl {pieces} ~ /tmp /etc 2>/dev/null || true"
        );
        let outcome = inside(place, &script).expect_code(0);
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        let [content, password, env, matches] = lines.as_slice() else { panic!("{outcome}") };
        assert_eq!((*content, *matches), ("one", "0"), "{outcome}");
        assert!(password.starts_with("password=agentsh_") && env.starts_with("env agentsh_"), "{outcome}");
        holds_no_token(place, &outcome);
        // It was on the wire, as the user's.
        let log = heard(place);
        assert!(log.contains(&format!("Basic x-access-token:{TOKEN}")) && !log.contains("agentsh_"), "{log}");
        let uses = place.events("credential_used");
        let fetched = |event: &&serde_json::Value| {
            event["method"] == "POST" && event["path"] == "/git/private.git/git-upload-pack"
        };
        let used = uses.iter().find(fetched).unwrap_or_else(|| panic!("{uses:?}"));
        assert_eq!((used["host"].as_str(), used["port"].as_u64()), (Some("allowed.test"), Some(8443)));
        assert_eq!(used["rule"]["line"], 3, "{used}");
    });
}

/// A secret can only be found in an uncompressed answer; chunked answers are passed unchanged.
#[test]
fn answers_of_a_host_with_a_secret_are_not_compressed() {
    if !has("curl") {
        return;
    }
    let place = forge(Mode::Invoker, "userns");
    policy(&place, "");
    let script = "set -e; get() { curl -sSf \"$@\"; echo; }; get --compressed https://allowed.test:8443/encoding; \
                  get -H \"Authorization: Bearer $FORGE_TOKEN\" -H 'Accept-Encoding: br' https://allowed.test:8443/encoding; \
                  get -H 'Authorization: none' 'https://allowed.test:8443/echo?chunks'";
    let outcome = inside(&place, script).expect_code(0);
    assert_eq!(outcome.stdout, "identity\nidentity\nnone\n", "{outcome}");
}

#[test]
#[ignore = "takes long"]
fn push_needs_its_own_rule() {
    if !has("git") {
        return;
    }
    everywhere(|place| {
        policy(place, "");
        let script = format!(
            "set -e; git clone -q {URL} copy; cd copy; echo two >> file; \
             git -c user.name=A -c user.email=a@b.example commit -qam two; git push -q origin HEAD:main"
        );
        let outcome = inside(place, &script);
        assert_ne!(outcome.code, 0, "{outcome}");
        assert!(outcome.stderr.contains("POST /git/private.git/git-receive-pack"), "{outcome}");
        assert!(outcome.stderr.contains("policy.yaml:3"), "{outcome}");
        assert!(!heard(place).contains("receive-pack"), "{}", heard(place));
        holds_no_token(place, &outcome);
        std::fs::remove_dir_all(place.project.join("copy")).unwrap();
        // Following its advice makes it work.
        policy(
            place,
            ", allow: [\"GET /**\", \"HEAD /**\", \"POST /**/git-upload-pack\", \"POST /git/private.git/git-receive-pack\"]",
        );
        let outcome = inside(place, &script).expect_code(0);
        holds_no_token(place, &outcome);
        let uses = place.events("credential_used");
        assert!(uses.iter().any(|used| used["path"] == "/git/private.git/git-receive-pack"), "{uses:?}");
    });
}

#[test]
fn every_source_and_every_header() {
    if !has("curl") {
        return;
    }
    for mode in Mode::all() {
        let place = forge(mode, "userns");
        let mode_600 = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = place.write(place.home.join(name), text);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        mode_600(".netrc", "machine v4.test login ada password netrc-secret-1\n");
        mode_600("token", "file-secret-2\n");
        mode_600(".npmrc", "registry = https://v4.test:8443/npm/\n//v4.test:8443/:_authToken=never-inside\n");
        place.script(place.home.join("bin/gh"), "#!/bin/sh\necho \"gh-secret-for-$4\"\n");
        place.script(
            place.home.join("bin/secret-tool"),
            "#!/bin/sh\n[ \"$1 $2 $3\" = 'lookup server other.test' ] && echo keyring-secret-3\n",
        );
        place.set("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", place.home.join("bin").display()));
        place.user_policy(
            "agent:\n  credentials:\n    - {host: \"v4.test:8443\", from: netrc}\n    \
             - {host: \"v6.test:8443\", from: \"file:~/token\", as: [FILE_TOKEN]}\n    \
             - {host: \"allowed.test:8443\", from: gh}\n    \
             - {host: \"other.test:8443\", from: keyring, as: [RING_TOKEN]}\n    \
             - {host: \"deep.wild.test:8443\", from: \"env:MISSING\"}\n",
        );
        let script = "get() { curl -sSf -o /dev/null \"$@\"; }; set -e; get -n https://v4.test:8443/a; \
                      get -H \"Private-Token: $FILE_TOKEN\" https://v6.test:8443/b; \
                      get -H \"Authorization: token $GH_ENTERPRISE_TOKEN\" https://allowed.test:8443/c; \
                      get -H \"X-Api-Key: $RING_TOKEN\" https://other.test:8443/d; cat ~/.npmrc; cat ~/token || echo none";
        let outcome = inside(&place, script).expect_code(0);
        let log = heard(&place);
        for line in [
            "auth GET /a HTTP/1.1 authorization Basic ada:netrc-secret-1",
            "auth GET /b HTTP/1.1 private-token file-secret-2",
            "auth GET /c HTTP/1.1 authorization token gh-secret-for-allowed.test",
            "auth GET /d HTTP/1.1 x-api-key keyring-secret-3",
        ] {
            assert!(log.contains(line), "{line}: {log}");
        }
        assert!(outcome.stdout.contains("registry = https://v4.test:8443/npm/"), "{outcome}");
        assert!(outcome.stdout.contains("//v4.test:8443/:_authToken=agentsh_"), "{outcome}");
        assert!(!outcome.stdout.contains("never-inside") && outcome.stdout.ends_with("none\n"), "{outcome}");
        assert!(
            outcome.stderr.contains("no credential for 'deep.wild.test': the variable MISSING"),
            "{outcome}"
        );
    }
}

/// The real `gh`, signed in outside to a server of one's own: inside it has a placeholder, which it takes for a token.
#[test]
#[ignore = "takes long"]
fn gh_works_without_its_token() {
    if !has("gh") {
        return;
    }
    for mode in Mode::all() {
        let place = forge(mode, "userns");
        place.write(
            place.home.join(".config/gh/hosts.yml"),
            format!("allowed.test:\n    oauth_token: {TOKEN}\n    user: ada\n    git_protocol: https\n"),
        );
        let rule = |allow: &str| {
            place.user_policy(&format!(
                "agent:\n  credentials:\n    - {{host: \"allowed.test:8443\", from: gh{allow}}}\n"
            ))
        };
        let (first, second) = TOKEN.split_at(9);
        let script = format!(
            "gh auth status; gh api user; gh pr list -R ada/one; code=$?; env | grep ENTERPRISE; \
             grep -rl {first}''{second} ~ /tmp 2>/dev/null; exit $code"
        );
        // Reading by POST needs its own rule: the same path can also change data.
        rule("");
        let outcome = inside(&place, &script);
        assert_ne!(outcome.code, 0, "{mode:?}: {outcome}");
        assert!(outcome.stderr.contains("POST /api/graphql"), "{mode:?}: {outcome}");
        assert!(outcome.stdout.contains("\"login\":\"ada\""), "{mode:?}: {outcome}");
        rule(", allow: [\"GET /**\", \"POST /api/graphql\"]");
        let outcome = inside(&place, &script).expect_code(0);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(
            said.contains("Logged in to allowed.test:8443 as ada (GH_ENTERPRISE_TOKEN)"),
            "{mode:?}: {outcome}"
        );
        assert!(
            said.contains("Double it") && said.contains("GH_ENTERPRISE_TOKEN=agentsh_"),
            "{mode:?}: {outcome}"
        );
        assert!(!said.contains("hosts.yml"), "the user's file is not inside: {outcome}");
        holds_no_token(&place, &outcome);
        assert!(
            heard(&place).contains(&format!("auth POST /api/graphql HTTP/1.1 authorization token {TOKEN}"))
        );
        let uses = place.events("credential_used");
        assert!(
            uses.iter().any(|used| used["path"] == "/api/graphql" && used["rule"]["line"] == 3),
            "{uses:?}"
        );
    }
}
