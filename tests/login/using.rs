//! Sessions send the token, renew it, and ask for a login.

use serde_json::json;

use super::{configured, log_in, peer};
use crate::support::authority::{Authority, MARK};
use crate::support::http_server::{HttpServer, Reply, handshake};
use crate::support::sandbox::script;
use crate::support::{Mode, Peer, Place};

#[test]
fn an_agent_uses_a_login_that_it_never_sees() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let authority = Authority::start();
        configured(&place, &authority);
        let steps = json!([{"server": "far", "tool": "read", "arguments": {}}]);
        let answers = script(&place, &steps);
        assert!(answers.outcome.stderr.contains("agentsh login far"), "{}", answers.outcome);

        log_in(&place, &["far"]).expect_code(0);
        let state = place.home.join(".local/state/agentsh/logins");
        let steps = json!([
            {"server": "far", "tool": "read", "arguments": {}},
            {"attempt": format!("list {}", state.display())},
            {"attempt": format!("tcp 127.0.0.1:{}", authority.mcp.port)},
        ]);
        let answers = script(&place, &steps);
        assert_eq!(answers.text(0), "from afar", "{}", answers.outcome);
        for answer in &answers.json[1..3] {
            assert!(!answer.as_str().unwrap().starts_with("DONE"), "{answer}");
        }
        let last = authority.mcp.asked().pop().unwrap();
        assert!(last.header("authorization").unwrap().contains(MARK));
        // Neither files nor what a process has of its own holds it.
        let (first, rest) = MARK.split_at(1);
        let found = place.shell(&format!(
            "grep -rls -e '[{first}]{rest}' \"$HOME\" /tmp /run /etc /var /dev/shm; \
             cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | grep -ace '[{first}]{rest}'; exit 0"
        ));
        assert_eq!(found.stdout.trim(), "0", "{found}");
    }
}

#[test]
fn token_is_renewed_after_it_expired() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    assert_eq!(peer.text("read", json!({})), "from afar");
    authority.state().expire();
    assert_eq!(peer.text("read", json!({})), "from afar");
    let traded = authority.traded();
    assert_eq!((traded.len(), traded[1]["grant_type"].as_str()), (2, "refresh_token"));
    assert_eq!(traded[1]["resource"], authority.mcp.url());
    let (code, errors) = peer.finish();
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(place.events("server_login").iter().any(|event| event["what"] == "renewed"));
}

#[test]
fn token_is_renewed_before_it_expires() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    authority.state().tokens.insert("expires_in", json!(0));
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    assert_eq!(peer.text("read", json!({})), "from afar");
    assert!(authority.traded().len() > 1);
    let refused =
        authority.mcp.asked().iter().filter(|asked| asked.header("authorization").is_none()).count();
    // The knock of the login, and what it asked about the server.
    assert_eq!(refused, 2);
}

/// Two sessions with one login: a refresh token is valid once, and both continue.
#[test]
fn sessions_share_a_renewed_token() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let mut peers = [peer(&place, &authority), peer(&place, &authority)];
    for peer in &mut peers {
        peer.shake_hands();
        peer.text("read", json!({}));
    }
    authority.state().expire();
    let ids: Vec<_> = peers
        .iter_mut()
        .map(|peer| peer.ask("tools/call", json!({"name": "read", "arguments": {}})))
        .collect();
    for (peer, id) in peers.iter_mut().zip(&ids) {
        let answer = peer.answer(id);
        assert!(answer["result"].is_object(), "{answer}\n{}", peer.errors());
    }
    assert_eq!(authority.traded().len(), 2, "renewed once");
}

#[test]
fn expired_login_is_asked_for_once_and_the_session_continues() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    let url = authority.mcp.url();
    log_in(&place, &[&url]).expect_code(0);
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    assert_eq!(peer.text("read", json!({})), "from afar");
    authority.state().expire();
    authority.state().revoke();
    for _ in 0..3 {
        let answer = peer.call("read", json!({}));
        let message = answer["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("`agentsh login {url}`")), "{answer}");
    }
    // A refresh token that was refused is not sent again and again.
    assert_eq!(authority.traded().len(), 2);
    log_in(&place, &[&url]).expect_code(0);
    assert_eq!(peer.text("read", json!({})), "from afar");
    let (_, errors) = peer.finish();
    assert_eq!(errors.matches("no longer accepts the login").count(), 1, "{errors}");
    assert!(!errors.contains(MARK));
}

/// The clocks of the two servers differ: a token is over for the one as soon as the other has given it.
#[test]
fn a_token_that_is_never_taken_is_not_renewed_without_end() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    // Its stream has been asked for: what follows is about the call alone.
    let is_asked = || authority.mcp.asked().iter().any(|asked| asked.method == "GET" && asked.path == "/mcp");
    assert!(crate::support::eventually(is_asked));
    assert_eq!(peer.text("read", json!({})), "from afar");
    authority.state().expire();
    authority.state().opens_nothing = true;
    let answer = peer.call("read", json!({}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("no longer accepts the login (HTTP 401)") && message.contains("clock"),
        "{answer}"
    );
    assert_eq!(authority.traded().len(), 2, "renewed once");
    let calls = authority.mcp.asked().iter().filter(|asked| asked.rpc() == "tools/call").count();
    assert_eq!(calls, 3, "the one before, and this one twice");
    // Events are on disk a moment later.
    let failed = || place.events("mcp_server_unavailable").iter().any(|event| event["tool_name"] == "read");
    assert!(crate::support::eventually(failed));
    let words = || place.events("server_login").iter().map(|event| event["what"].clone()).collect::<Vec<_>>();
    let is_told = || words().contains(&json!("renewed")) && words().contains(&json!("wanted"));
    assert!(crate::support::eventually(is_told), "{:?}", words());
    authority.state().opens_nothing = false;
    assert_eq!(peer.text("read", json!({})), "from afar");
}

#[test]
fn unreachable_authorization_server_is_reported() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    authority.state().expire();
    authority.state().token_reply = Some(|| Reply::status(503));
    let answer = peer.call("read", json!({}));
    assert!(answer["error"]["message"].as_str().unwrap().contains("cannot renew its login"), "{answer}");
    authority.state().token_reply = None;
    assert_eq!(peer.text("read", json!({})), "from afar");
}

#[test]
fn missing_scopes_are_named_with_the_command_that_requests_them() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    let url = authority.mcp.url();
    log_in(&place, &[&url]).expect_code(0);
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    assert_eq!(peer.text("read", json!({})), "from afar");
    let answer = peer.call("write", json!({}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("'files:write'"), "{answer}");
    assert!(message.contains(&format!("`agentsh login {url} --scope files:write`")), "{answer}");
    log_in(&place, &[&url, "--scope", "files:write"]).expect_code(0);
    assert_eq!(peer.text("write", json!({})), "from afar");
    assert_eq!(peer.text("read", json!({})), "from afar");
    assert_eq!(
        place.listed(&["login", "--list", "--json"])[0]["scopes"],
        json!(["files:read", "files:write"])
    );
}

#[test]
fn token_is_sent_only_to_its_own_origin_and_server() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let other = HttpServer::start(|_| Reply::status(401));
    let mut command = place.agentsh(&["mcp", "run", "--id", "far", "--url", &other.url()]);
    let answer = Peer::start(&mut command).shake_hands();
    assert!(answer["error"]["message"].as_str().unwrap().contains("agentsh login"), "{answer}");
    assert!(other.asked().iter().all(|asked| asked.header("authorization").is_none()));
    // The same server, which sends its clients on.
    static TO: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    TO.set(other.url()).unwrap();
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    authority.state().elsewhere = TO.get().map(String::as_str);
    let heard = other.asked().len();
    let answer = peer.call("read", json!({}));
    assert!(answer["error"].is_object(), "{answer}");
    // To another service of this machine it is not even sent on.
    assert_eq!(other.asked().len(), heard, "{answer}");
}

#[test]
fn answer_that_contains_the_token_is_withheld() {
    let place = Place::new(Mode::Invoker);
    place.without_definitions();
    place.set("FAR_TOKEN", "t0ken-of-the-user");
    let server = HttpServer::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            let message = asked.message();
            let shown = match message["params"]["name"].as_str() {
                Some("echo") => asked.header("authorization").unwrap_or_default().to_owned(),
                _ => "t0ken of somebody".to_owned(),
            };
            let result = json!({"content": [{"type": "text", "text": shown}]});
            Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        })
    });
    let mut command = place.agentsh(&["mcp", "run", "--url", &server.url()]);
    let mut peer = Peer::start(command.args(["--header", "Authorization: Bearer ${FAR_TOKEN}"]));
    peer.shake_hands();
    assert_eq!(peer.text("other", json!({})), "t0ken of somebody");
    let answer = peer.call("echo", json!({})).to_string();
    assert!(answer.contains("withheld the answer") && !answer.contains("t0ken-of-the-user"), "{answer}");
}

#[test]
fn header_configured_by_the_user_wins_over_a_login() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let mut command = place.agentsh(&[
        "mcp",
        "run",
        "--url",
        &authority.mcp.url(),
        "--header",
        "Authorization: Bearer own",
    ]);
    let answer = Peer::start(&mut command).shake_hands();
    assert!(answer["error"]["message"].as_str().unwrap().contains("HTTP 401"), "{answer}");
    assert_eq!(authority.mcp.asked().pop().unwrap().header("authorization"), Some("Bearer own"));
}

/// A stub for the program that speaks to the desktop's store of secrets, with a file for each secret.
const SECRET_TOOL: &str = r#"#!/bin/sh
cd "$HOME/keyring" || exit 1
verb=$1
for word; do name=$word; done
case "$verb" in
  store) cat > "$name" ;;
  lookup) cat "$name" ;;
  clear) rm "$name" ;;
esac
"#;

#[test]
fn desktop_secret_store_holds_the_tokens_if_available() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    let keyring = place.home.join("keyring");
    place.make_directory(&keyring);
    place.script(place.home.join("bin/secret-tool"), SECRET_TOOL);
    place.set("PATH", format!("{}:/usr/bin:/bin", place.home.join("bin").display()));
    place.set("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let state = place.home.join(".local/state/agentsh");
    let search = |at: &std::path::Path| {
        let found = std::process::Command::new("grep").args(["-rl", MARK]).arg(at).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().count()
    };
    assert_eq!((search(&state), search(&keyring)), (0, 1));
    assert_eq!(place.listed(&["login", "--list", "--json"])[0]["is_renewed"], true);
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    authority.state().expire();
    assert_eq!(peer.text("read", json!({})), "from afar");
    assert_eq!((search(&state), search(&keyring)), (0, 1));
    peer.finish();
    // The keyring cannot be read: the message says so, and asks for no login.
    std::fs::rename(&keyring, place.home.join("away")).unwrap();
    let answer = self::peer(&place, &authority).shake_hands();
    assert!(answer["error"]["message"].as_str().unwrap().contains("`secret-tool lookup`"), "{answer}");
    // If the store takes no tokens, the file has them.
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    assert_eq!(search(&state), 1);
    assert_eq!(self::peer(&place, &authority).shake_hands()["result"]["serverInfo"]["name"], "far");
    std::fs::rename(place.home.join("away"), &keyring).unwrap();
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    assert_eq!((search(&state), search(&keyring)), (0, 1));
    let outcome =
        crate::support::Outcome::of(&mut place.agentsh(&["logout", &authority.mcp.url()])).expect_code(0);
    assert!(outcome.stderr.contains("revoked"), "{outcome}");
    assert_eq!(search(&keyring), 0);
}
