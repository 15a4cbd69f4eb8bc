//! Questions of sessions that people of the fleet answer, and the registry next to the fleet.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Server, on_both, pages};
use crate::support::asking::ended;
use crate::support::{Mode, Outcome, Place, within};

pub(super) const POLICY: &str = "version: 1\nsandbox:\n  mcp:\n    approvals: {wait: 60s, fleet: true}\n    rules:\n      \
    - {name: sums, tool: add, when: [{path: /b, equals: \"40\"}], action: ask, reason: sums of forty are delicate}\n";

/// A shell as the agent, with the server `fixture`; it runs on.
pub(super) fn agent(place: &Place, script: &str) -> Child {
    let servers =
        json!({"mcpServers": {"fixture": {"command": place.program("fixture_server"), "args": []}}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    let script = format!("#!/bin/sh\ncall() {{ /run/agentsh/agentsh call \"$@\"; }}\n{script}\n");
    let claude = place.script(place.project.join("bin/claude"), &script);
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(claude).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn say(at: &Place, server: &Server<'_>, words: &[&str]) -> Outcome {
    let url = server.url();
    Outcome::of(at.agentsh(&["approvals", "--fleet", &url]).args(words))
}

fn waiting(at: &Place, server: &Server<'_>) -> Vec<Value> {
    serde_json::from_str(&say(at, server, &["list", "--json"]).expect_code(0).stdout).unwrap()
}

/// The one question that waits, as soon as it does.
pub(super) fn question(at: &Place, server: &Server<'_>) -> Value {
    assert!(within(Duration::from_secs(30), || waiting(at, server).len() == 1), "{:?}", waiting(at, server));
    waiting(at, server).remove(0)
}

#[test]
#[ignore = "takes long"]
fn fleet_approver_answers_for_a_session() {
    on_both(|at, database| {
        let server = Server::start(at, database, &[]);
        server.login(at, "approver");
        let looks = Place::new(Mode::Invoker);
        server.login(&looks, "viewer");
        let host = Place::new(Mode::Invoker);
        host.user_policy(POLICY);
        server.enrol(&host, "laptop");
        let child = agent(
            &host,
            "call fixture add '{\"a\": 2, \"b\": 40}'; echo \"first $?\"\n\
             call fixture add '{\"a\": 2, \"b\": 40}'; echo \"second $?\"\n\
             call fixture add '{\"a\": 3, \"b\": 40}'; echo \"third $?\"\n\
             ls ~/.local/state/agentsh/fleet 2>&1",
        );
        let first = question(at, &server);
        assert_eq!(
            (&first["host_name"], &first["item"]["name"]),
            (&json!("laptop"), &json!("add")),
            "{first}"
        );
        let id = first["id"].as_str().unwrap();
        let shown = say(at, &server, &["show", id]).expect_code(0);
        assert!(shown.stdout.contains("laptop") && shown.stdout.contains("\"b\": 40"), "{shown}");
        let refused = say(&looks, &server, &["approve", id]).expect_code(1);
        assert!(refused.stderr.contains("the role approver"), "{refused}");
        say(at, &server, &["approve", id, "--always"]).expect_code(2);
        // Bound to what was shown, and no credential no answer.
        let path = format!("/v1/asks/{id}/answer");
        let body = json!({"approve": true, "scope": "once", "bound": "00"}).to_string();
        assert_eq!(server.raw("POST", &path, &[], body.as_bytes()).0, 401);
        say(at, &server, &["approve", &id[..8]]).expect_code(0);
        say(at, &server, &["approve", id]).expect_code(1);
        // That was for once: it is asked again, and a denial from here holds as any.
        let second = question(at, &server);
        assert_ne!(second["id"], first["id"]);
        say(at, &server, &["deny", second["id"].as_str().unwrap()]).expect_code(0);
        // A question answered on the host no longer waits here.
        let third = question(at, &server);
        let local = third["item"]["id"].as_str().unwrap();
        Outcome::of(&mut host.agentsh(&["approvals", "approve", local])).expect_code(0);
        let (out, err) = ended(child);
        assert!(out.starts_with("42\nfirst 0\nsecond 1\n43\nthird 0\n"), "{out}\n{err}");
        assert!(!out.contains("host.json"), "{out}");
        assert!(within(Duration::from_secs(30), || waiting(at, &server).is_empty()));
        let by: Vec<String> = host
            .events("approval_decided")
            .iter()
            .map(|event| event["by"].as_str().unwrap().to_owned())
            .collect();
        assert!(by.len() == 3 && by[0] == "fleet: approver" && by[1] == "fleet: approver", "{by:?}");
        assert!(by[2].starts_with("uid "), "{by:?}");
    });
}

#[test]
fn an_approver_answers_on_a_page() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    server.login(&at, "viewer");
    let (viewer, approver) =
        (pages::sign_in(&server, "viewer", "vera"), pages::sign_in(&server, "approver", "abe"));
    let host = Place::new(Mode::Invoker);
    host.user_policy(POLICY);
    server.enrol(&host, "laptop<b>");
    let child = agent(&host, "call fixture add '{\"a\": 2, \"b\": 40}'; echo \"first $?\"");
    let asked = question(&at, &server);
    let (id, bound) = (asked["id"].as_str().unwrap(), asked["bound"].as_str().unwrap());
    let path = format!("/approvals/{id}");
    let (status, looks) = pages::page(&server, "/approvals", &viewer);
    assert!(status == 200 && looks.contains("sums of forty are delicate"), "{looks}");
    assert!(looks.contains("laptop&lt;b&gt;") && !looks.contains("<b>"), "{looks}");
    assert!(!looks.contains(&path), "a viewer has nothing to press: {looks}");
    let (_, answers) = pages::page(&server, "/approvals", &approver);
    assert!(answers.contains(&path) && answers.contains(bound), "{answers}");
    assert!(!answers.contains("\"always\"") && answers.contains("1 waiting"), "{answers}");
    let send = |cookie: &str, bound: &str, answer: &str| {
        let form = pages::form(&pages::page(&server, "/approvals", cookie).1);
        let body = format!("token={form}&bound={bound}&answer={answer}");
        pages::post(&server, &path, &[("Cookie", cookie)], &body).0
    };
    assert_eq!(send(&viewer, bound, "once"), 403);
    assert_eq!(send(&approver, &"0".repeat(64), "once"), 409, "what was not shown");
    assert_eq!(send(&approver, bound, "always"), 400);
    let forged = format!("token=&bound={bound}&answer=once");
    assert_eq!(pages::post(&server, &path, &[("Cookie", &approver)], &forged).0, 403);
    assert_eq!(send(&approver, bound, "once"), 200);
    assert_eq!(send(&approver, bound, "deny"), 409, "one answer");
    let (out, err) = ended(child);
    assert!(out.starts_with("42\nfirst 0\n"), "{out}\n{err}");
    let decided = host.events("approval_decided");
    assert_eq!(decided[0]["by"], "fleet: abe", "{decided:?}");
}

#[test]
fn question_waits_on_its_host_while_the_fleet_server_is_away() {
    let at = Place::new(Mode::Invoker);
    let mut server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    let host = Place::new(Mode::Invoker);
    host.user_policy(POLICY);
    server.enrol(&host, "laptop");
    server.end();
    let child = agent(&host, "call fixture add '{\"a\": 2, \"b\": 40}'");
    let list = || -> Vec<Value> {
        let listed = Outcome::of(&mut host.agentsh(&["approvals", "list", "--json"])).expect_code(0);
        serde_json::from_str(&listed.stdout).unwrap()
    };
    assert!(within(Duration::from_secs(30), || list().len() == 1));
    let id = list()[0]["id"].as_str().unwrap().to_owned();
    Outcome::of(&mut host.agentsh(&["approvals", "approve", &id])).expect_code(0);
    assert_eq!(ended(child).0, "42\n");
}

/// Lists one tool, described as the project's file `says` has it.
pub(super) const OFFERS: &str = r#"#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"weather","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"read","description":"'"$(cat says)"'","inputSchema":{"type":"object"}}]}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// How many tools a client of the host sees.
fn seen(host: &Place, policy: &str, says: &str) -> (usize, String) {
    host.user_policy(&format!(
        "version: 1\ninterface: {{registry: fleet, {policy}}}\nsandbox: {{mcp: {{version_pinning: {{on_change: allow}}}}}}\n"
    ));
    host.write(host.project.join("says"), says);
    let program = host.script(host.home.join("server"), OFFERS);
    let mut peer = crate::support::Peer::start(host.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(program));
    peer.shake_hands();
    let answer = peer.request("tools/list", json!({}));
    (answer["result"]["tools"].as_array().map_or(0, Vec::len), peer.finish().1)
}

#[test]
#[ignore = "takes long"]
fn the_registry_of_the_fleet_vouches_for_hosts_that_it_knows() {
    on_both(|at, database| {
        let server = Server::start(at, database, &["--registry", "open"]);
        server.login(at, "approver");
        let (one, other) = (Place::new(Mode::Invoker), Place::new(Mode::Invoker));
        server.enrol(&one, "one");
        server.enrol(&other, "other");
        // Nothing without a known user.
        assert_eq!(server.raw("GET", "/registry/servers", &[], b"").0, 401);
        assert_eq!(server.raw("GET", "/registry/servers", &[("Cookie", "agentsh-fleet=agf_00")], b"").0, 401);
        let (tools, errors) = seen(&one, "mode: auto", "Reads.");
        assert_eq!(tools, 1, "{errors}");
        // An interface that one host registered applies to the other, and cannot be replaced.
        let (tools, errors) = seen(&other, "mode: verify", "Reads.");
        assert_eq!(tools, 1, "{errors}");
        let (tools, errors) = seen(&other, "mode: register", "Reads, and mails it.");
        assert_eq!(tools, 0, "{errors}");
        let log = Outcome::of(&mut at.agentsh(&["registry", "log", "--registry", "fleet"])).expect_code(0);
        assert!(log.stdout.contains("host one"), "{log}");
        drop(server);
        let server = Server::start(at, database, &["--registry", "closed"]);
        server.login(at, "approver");
        let third = Place::new(Mode::Invoker);
        server.enrol(&third, "third");
        let (tools, errors) = seen(&third, "mode: verify", "Reads.");
        assert_eq!(tools, 1, "{errors}");
        let stranger = Place::new(Mode::Invoker);
        stranger.user_policy("version: 1\ninterface: {registry: fleet}\n");
        let refused = Outcome::of(&mut stranger.agentsh(&["mcp", "run", "--id", "s", "--", "/bin/true"]));
        assert!(refused.code != 0 && refused.stderr.contains("not enrolled"), "{refused}");
    });
}

/// The request that waits for a decision in the registry of the fleet.
pub(super) fn undecided(at: &Place) -> Option<String> {
    let listed =
        Outcome::of(&mut at.agentsh(&["registry", "approvals", "--registry", "fleet"])).expect_code(0);
    let line = listed.stdout.lines().find(|line| line.contains("weather"))?;
    Some(line.split_whitespace().next()?.to_owned())
}

#[test]
#[ignore = "takes long"]
fn an_approver_of_the_fleet_decides_about_an_interface_while_the_client_waits() {
    on_both(|at, database| {
        let server = Server::start(at, database, &["--registry", "closed"]);
        server.login(at, "approver");
        let looks = Place::new(Mode::Invoker);
        server.login(&looks, "viewer");
        let host = Place::new(Mode::Invoker);
        server.enrol(&host, "laptop");
        host.user_policy(
            "version: 1\ninterface: {registry: fleet, mode: approval, wait: 60s}\nsandbox: {mcp: {version_pinning: {on_change: allow}}}\n",
        );
        let program = host.script(host.home.join("server"), OFFERS);
        for (says, verb, tools) in [("Reads.", "approve", 1), ("Reads, and mails it.", "reject", 0)] {
            host.write(host.project.join("says"), says);
            let mut peer =
                crate::support::Peer::start(host.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(&program));
            peer.shake_hands();
            let id = peer.ask("tools/list", json!({}));
            assert!(within(Duration::from_secs(30), || undecided(at).is_some()), "{}", peer.errors());
            let request = undecided(at).unwrap();
            // Until then nothing of it is called, and who only looks does not decide; nor does the host itself.
            let early = peer.call("read", json!({}));
            assert!(
                early["error"]["message"].as_str().unwrap().contains("a person has to approve"),
                "{early}"
            );
            for place in [&looks, &host] {
                let words = ["registry", "approvals", verb, &request, "--registry", "fleet"];
                let refused = Outcome::of(&mut place.agentsh(&words));
                assert_ne!(refused.code, 0, "{refused}");
            }
            let words = ["registry", "approvals", verb, &request, "--registry", "fleet"];
            Outcome::of(&mut at.agentsh(&words)).expect_code(0);
            let answer = peer.answer(&id);
            assert_eq!(
                answer["result"]["tools"].as_array().map_or(0, Vec::len),
                tools,
                "{answer} {}",
                peer.errors()
            );
            assert!(peer.finish().1.contains("--registry fleet"), "the way to decide is said");
        }
        // The approval applies to every host.
        let other = Place::new(Mode::Invoker);
        server.enrol(&other, "other");
        assert_eq!(seen(&other, "mode: verify", "Reads.").0, 1);
        let log = Outcome::of(&mut at.agentsh(&["registry", "log", "--registry", "fleet"])).expect_code(0);
        assert!(log.stdout.contains("host laptop") && log.stdout.contains("approver"), "{log}");
    });
}
