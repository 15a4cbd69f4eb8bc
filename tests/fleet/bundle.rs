//! Bundles of policy that an enrolled host fetches by itself, from the server that it forwards to.

use std::path::PathBuf;

use super::{Server, forward, session};
use crate::support::{Mode, Outcome, Peer, Place, within};

fn sign(place: &Place, version: u32, denied: &str, expires: &str) -> PathBuf {
    let policy = format!(
        "version: 1\nsandbox: {{mcp: {{enforce_policy: true, tool_policy: denylist, denied_tools: [{{server: fixture, tool: {denied}}}]}}}}\n"
    );
    let policy = place.write(format!("v{version}.yaml"), policy);
    let output = place.project.join(format!("{version}-{denied}.bundle"));
    let words = [
        "policy",
        "bundle",
        "sign",
        policy.to_str().unwrap(),
        "--name",
        "acme",
        "--version",
        &version.to_string(),
        "--expires",
        expires,
        "--lock",
        "sandbox.mcp.denied_tools",
        "--key",
        "acme.key",
        "--output",
        output.to_str().unwrap(),
    ]
    .map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    output
}

#[test]
fn an_enrolled_host_fetches_its_policy_by_itself() {
    let at = Place::new(Mode::Invoker);
    let folder = at.home.join("bundles");
    at.write(folder.join("none"), "");
    let public =
        Outcome::of(&mut at.agentsh(&["policy", "bundle", "keygen", "acme.key"])).expect_code(0).stdout;
    let publish = |file: &PathBuf| {
        std::fs::copy(file, folder.join("acme")).unwrap();
        at.own(&folder.join("acme"));
    };
    let mut server = Server::start(
        &at,
        at.home.join("fleet.db").to_str().unwrap(),
        &["--bundles", folder.to_str().unwrap()],
    );
    let host = Place::new(Mode::Invoker);
    session(&host, 1);
    server.enrol(&host, "laptop");
    let text =
        format!("name: acme\nsource: \"{}/v1/bundles/acme\"\nkeys: [{:?}]\n", server.url(), public.trim());
    host.write(host.home.join(".config/agentsh/organisation.yaml"), text);
    publish(&sign(&at, 2, "add", "90d"));
    forward(&host, &[]).expect_code(0);

    let kept = host.home.join(".local/state/agentsh/bundles/acme.bundle");
    let version = || {
        let text = std::fs::read_to_string(&kept).unwrap_or_default();
        (1..9).find(|number| text.contains(&format!("\"version\":{number},"))).unwrap_or_default()
    };
    assert_eq!(version(), 2, "{:?}", std::fs::read_to_string(&kept));
    let is_refused = |tool: &str, arguments: serde_json::Value| {
        let mut peer = Peer::ready(&host, &[]);
        let answer = peer.request("tools/call", serde_json::json!({"name": tool, "arguments": arguments}));
        peer.finish();
        answer.get("error").is_some() || answer["result"]["isError"] == true
    };
    assert!(is_refused("add", serde_json::json!({"a": 1, "b": 2})), "the organisation denies it");

    // Older, expired, and damaged: the last good one stays, and it is said.
    let good = std::fs::read(folder.join("acme")).unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let broken = at.write("broken.bundle", &damaged);
    for (file, word) in [(sign(&at, 1, "echo", "90d"), "older"), (broken, "sign")] {
        publish(&file);
        let said = forward(&host, &[]).expect_code(0);
        assert!(said.stderr.contains("refused") && said.stderr.contains(word), "{said}");
        assert!(said.stderr.contains("version 2 stays in force"), "{said}");
        assert_eq!(version(), 2);
        let doctor = Outcome::of(&mut host.agentsh(&["fleet", "doctor"])).expect_code(1);
        assert!(doctor.stdout.contains("another one was refused"), "{doctor}");
    }
    assert!(is_refused("add", serde_json::json!({"a": 1, "b": 2})), "the last good one is in force");

    // Without a server the one that is kept holds, and the forwarder that a session starts fetches the next one.
    server.end();
    assert!(is_refused("add", serde_json::json!({"a": 1, "b": 2})));
    publish(&sign(&at, 3, "echo", "90d"));
    assert!(server.again());
    std::fs::remove_file(host.home.join(".local/state/agentsh/fleet/fetched")).unwrap();
    crate::support::processes::end_below(&host.home.join(".local/state/agentsh"));
    session(&host, 0);
    assert!(within(std::time::Duration::from_secs(20), || version() == 3), "{}", version());
}
