//! Bundles of policy that an enrolled host fetches by itself, from the server that it forwards to.

use std::path::PathBuf;

use super::{Server, forward, session};
use crate::support::http_server::{HttpServer, Reply};
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

    // Older, expired, and damaged: the last valid one stays in force, with a message.
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
        assert!(doctor.stdout.contains("a newer one was refused"), "{doctor}");
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
    assert!(within(std::time::Duration::from_secs(90), || version() == 3), "{}", version());
}

/// Before a bundle goes out: what it would have refused, host by host.
#[test]
#[ignore = "takes long"]
fn a_bundle_is_tried_on_what_all_hosts_did() {
    super::on_both(|at, database| {
        let server = Server::start(at, database, &[]);
        server.login(at, "viewer");
        let places = [Place::new(Mode::Invoker), Place::new(Mode::Invoker), Place::new(Mode::Invoker)];
        let twin = HttpServer::start(|_| Reply::json("{}"));
        for (host, name) in places.iter().zip(["talks", "adds", "connects"]) {
            server.enrol(host, name);
            match name {
                "talks" => session(host, 3),
                "adds" => {
                    let mut peer = Peer::ready(host, &[]);
                    peer.text("add", serde_json::json!({"a": 1, "b": 2}));
                    peer.finish();
                }
                _ => {
                    host.user_policy(&format!(
                        "version: 1\nagent: {{network: {{loopback: [{}]}}}}\n",
                        twin.port
                    ));
                    let url = format!("http://127.0.0.1:{}/", twin.port);
                    host.shell(&format!("curl -sS -o /dev/null --max-time 10 {url}")).expect_code(0);
                }
            }
            forward(host, &[]).expect_code(0);
        }
        let key =
            Outcome::of(&mut at.agentsh(&["policy", "bundle", "keygen", "acme.key"])).expect_code(0).stdout;
        let url = server.url();
        let tried = |file: &PathBuf, more: &[&str]| {
            let words = [
                "policy",
                "bundle",
                "try",
                file.to_str().unwrap(),
                "--public-key",
                key.trim(),
                "--fleet",
                &url,
            ];
            Outcome::of(&mut at.agentsh(&[&words[..], more].concat()))
        };
        let first = |file: &PathBuf, more: &[&str]| tried(file, &[more, &["--against", "none"]].concat());
        let stricter = sign(at, 1, "echo", "90d");
        let said: serde_json::Value =
            serde_json::from_str(&first(&stricter, &["--json"]).expect_code(1).stdout).unwrap();
        let hosts = said["hosts"].as_array().unwrap();
        let of = |name: &str| hosts.iter().find(|host| host["host"] == name).unwrap();
        let refused = of("talks")["refused"].as_array().unwrap();
        assert!(
            refused.len() == 1 && refused[0]["what"] == "call echo" && refused[0]["times"] == 3,
            "what was refused then is not counted: {said}"
        );
        assert!(refused[0]["rule"].as_str().unwrap().contains("sandbox.mcp.denied_tools"), "{said}");
        for other in ["adds", "connects"] {
            assert_eq!(
                (&of(other)["refused"], &of(other)["sessions"]),
                (&serde_json::json!([]), &1.into()),
                "{said}"
            );
        }
        let text = first(&stricter, &[]).expect_code(1).stdout;
        assert!(
            text.contains("talks: would be refused: fixture: call echo, 3 times in 1 sessions, by "),
            "{text}"
        );
        let one = first(&stricter, &["--host", "adds"]).expect_code(0).stdout;
        assert!(one.lines().count() == 2 && one.contains("\nadds: of 1 calls"), "{one}");
        // What a user's own file opened, in a section that the bundle locks.
        let policy = at.write("locks.yaml", "version: 1\n");
        let locks = at.project.join("locks.bundle");
        let _ = std::fs::remove_file(&locks);
        let words =
            ["policy", "bundle", "sign", policy.to_str().unwrap(), "--name", "acme", "--version", "2"];
        let rest = [
            "--expires",
            "90d",
            "--lock",
            "agent.network",
            "--key",
            "acme.key",
            "--output",
            locks.to_str().unwrap(),
        ];
        Outcome::of(&mut at.agentsh(&[&words[..], &rest].concat())).expect_code(0);
        let locked = first(&locks, &["--host", "connects"]).expect_code(1).stdout;
        assert!(
            locked.contains(&format!("the agent: connect to 127.0.0.1:{}, 1 times", twin.port)),
            "{locked}"
        );
        first(&locks, &["--host", "talks"]).expect_code(0);
        first(&locks, &["--host", "nobody"]).expect_code(1);
        against_another(at, twin.port, &tried);
        if !database.starts_with("postgres") {
            // A session that began before the time that is asked about, and one whose beginning is forgotten.
            let db = rusqlite::Connection::open(database).unwrap();
            let of = "WHERE type = 'session_started' AND host = (SELECT id FROM hosts WHERE name = 'talks')";
            let words = ["--host", "talks", "--days", "2"];
            let earlier = format!(
                "UPDATE events SET time = '2020-01-01T00:00:00.000000Z', id = id - (864000000000 << 11) {of}"
            );
            assert_eq!(db.execute(&earlier, []).unwrap(), 1);
            let whole = first(&stricter, &words).expect_code(1).stdout;
            assert!(whole.contains("call echo, 3 times in 1 sessions"), "{whole}");
            assert!(!whole.contains("was not examined"), "{whole}");
            assert_eq!(db.execute(&format!("DELETE FROM events {of}"), []).unwrap(), 1);
            let part = first(&stricter, &words).expect_code(0).stdout;
            assert!(part.contains("; more was not examined"), "{part}");
        }
    });
}

/// Calls that the bundle in force allows and the next one does not are counted, and the bundle in force is identified
/// correctly.
fn against_another(at: &Place, port: u16, tried: &impl Fn(&PathBuf, &[&str]) -> Outcome) {
    let signed = |version: &str, policy: &str| {
        let policy = at.write(format!("allows-{version}.yaml"), policy);
        let bundle = at.project.join(format!("allows-{version}.bundle"));
        let _ = std::fs::remove_file(&bundle);
        let words =
            ["policy", "bundle", "sign", policy.to_str().unwrap(), "--name", "acme", "--version", version];
        let rest = ["--expires", "90d", "--key", "acme.key", "--output", bundle.to_str().unwrap()];
        Outcome::of(&mut at.agentsh(&[&words[..], &rest].concat())).expect_code(0);
        bundle
    };
    let sixth = signed("6", &format!("version: 1\nagent: {{network: {{loopback: [{port}]}}}}\n"));
    let seventh = signed("7", "version: 1\n");
    let on = ["--host", "connects"];
    let unknown = tried(&seventh, &on);
    assert!(unknown.code == 2 && unknown.stderr.contains("no organisation is configured here"), "{unknown}");
    let dropped =
        tried(&seventh, &["--host", "connects", "--against", sixth.to_str().unwrap()]).expect_code(1);
    let said = dropped.stdout;
    assert!(said.starts_with("'acme' version 7 is compared with 'acme' version 6 ("), "{said}");
    assert!(said.contains(&format!("the agent: connect to 127.0.0.1:{port}, 1 times")), "{said}");
    let none = tried(&seventh, &["--host", "connects", "--against", "none"]).expect_code(0).stdout;
    assert!(
        none.starts_with("'acme' version 7 is compared with what is allowed without a bundle\n"),
        "{none}"
    );
    // The one that is kept here, which has to be of the same organisation, and readable.
    let key = std::fs::read_to_string(at.project.join("acme.key.pub")).unwrap();
    let key = key.lines().nth(1).unwrap().to_owned();
    let named = |name: &str| {
        let text = format!("name: {name}\nsource: {:?}\nkeys: [{key:?}]\n", sixth.to_str().unwrap());
        at.write(at.home.join(".config/agentsh/organisation.yaml"), text);
    };
    named("other");
    let other = tried(&seventh, &on);
    assert!(other.code == 2 && other.stderr.contains("the organisation here is 'other'"), "{other}");
    named("acme");
    let unknown = tried(&seventh, &on);
    assert!(unknown.code == 2 && unknown.stderr.contains("was fetched here yet"), "{unknown}");
    Outcome::of(&mut at.agentsh(&["policy", "bundle", "pull"])).expect_code(0);
    let kept = tried(&seventh, &["--host", "connects", "--json"]).expect_code(1).stdout;
    let said: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(
        (&said["against"]["bundle"], &said["against"]["version"]),
        (&"acme".into(), &6.into()),
        "{said}"
    );
    assert_eq!(said["hosts"][0]["refused"].as_array().unwrap().len(), 1, "{said}");
    tried(&sixth, &on).expect_code(0);
    let file = at.home.join(".local/state/agentsh/bundles/acme.bundle");
    let mut damaged = std::fs::read(&file).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let damaged = tried(&seventh, &on);
    assert!(damaged.code == 125 && damaged.stderr.contains("bundle pull"), "{damaged}");
    for file in [file, at.home.join(".config/agentsh/organisation.yaml")] {
        std::fs::remove_file(file).unwrap();
    }
}
