//! The signed policy of an organisation: made, fetched, in force, and refused when it is wrong.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http_server::{HttpServer, Reply};
use crate::support::{Mode, Outcome, Peer, Place};

const POLICY: &str = "version: 1\nagent: {env_allow: [OFFICE], network: {allow: [good.example]}}\nsandbox:\n  mcp:\n    \
    tool_policy: denylist\n    denied_tools:\n      - {server: fixture, tool: add}\n\
    tests: [{tool: fixture/add, expect: deny}]\n";

fn run(place: &Place, words: &[&str]) -> Outcome {
    Outcome::of(&mut place.agentsh(words))
}

fn bundle(place: &Place, words: &[&str]) -> Outcome {
    run(place, &[&["policy", "bundle"], words].concat())
}

/// Signs a policy with the key of this name; gives the file.
fn sign(place: &Place, key: &str, version: u32, expires: &str, policy: &str, more: &[&str]) -> PathBuf {
    let file = place.write(format!("v{version}.yaml"), policy);
    let output = place.project.join(format!("{key}-{version}.bundle"));
    let _ = std::fs::remove_file(&output);
    let version = version.to_string();
    let fixed =
        ["sign", file.to_str().unwrap(), "--name", "acme", "--version", &version, "--expires", expires];
    let rest = ["--key", key, "--output", output.to_str().unwrap()];
    bundle(place, &[&fixed[..], more, &rest].concat()).expect_code(0);
    output
}

const LOCKS: [&str; 4] = ["--lock", "agent.network", "--lock", "sandbox.mcp.denied_tools"];

/// A key, and an organisation that signs with it and publishes in `published`.
fn organisation(place: &Place) -> PathBuf {
    let public = bundle(place, &["keygen", "acme.key"]).expect_code(0).stdout;
    let source = place.project.join("published");
    let text = format!("name: acme\nsource: {source:?}\nkeys: [{:?}]\n", public.trim());
    place.write(place.home.join(".config/agentsh/organisation.yaml"), text);
    source
}

fn publish(place: &Place, source: &PathBuf, bundle: &PathBuf) -> Outcome {
    std::fs::copy(bundle, source).unwrap();
    place.own(source);
    self::bundle(place, &["pull"])
}

/// A place where version 2 is in force.
fn enrolled(mode: Mode) -> (Place, PathBuf) {
    let place = Place::new(mode);
    let source = organisation(&place);
    let signed = sign(&place, "acme.key", 2, "90d", POLICY, &LOCKS);
    publish(&place, &source, &signed).expect_code(0);
    (place, source)
}

#[test]
fn a_bundle_is_a_layer_whose_rules_are_named() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let source = organisation(&place);
        let early = place.shell("true");
        assert_eq!(early.code, 125, "{mode:?} {early}");
        assert!(early.stderr.contains("agentsh policy bundle pull"), "{early}");
        let signed = sign(&place, "acme.key", 2, "90d", POLICY, &LOCKS);
        bundle(&place, &["verify", signed.to_str().unwrap()]).expect_code(0);
        publish(&place, &source, &signed).expect_code(0);

        place.set("OFFICE", "yes");
        place.set("MINE", "mine");
        place.user_policy("agent: {env_allow: [MINE]}\n");
        assert_eq!(place.shell("echo $OFFICE $MINE").stdout, "yes mine\n");
        let shown = run(&place, &["policy", "show"]).expect_code(0).stdout;
        let kept = place.home.join(".local/state/agentsh/bundles/acme.bundle");
        for line in [
            "# organisation 'acme' version 2, until ".to_owned(),
            "locked: agent.network, sandbox.mcp.denied_tools".to_owned(),
            format!("# organisation: {}:7 (agent.env_allow[0])", kept.display()),
            "# user: ".to_owned(),
        ] {
            assert!(shown.contains(&line), "{line}: {shown}");
        }
        // The line is that of the file that is kept.
        let text = std::fs::read_to_string(&kept).unwrap();
        assert!(text.lines().nth(6).unwrap().contains("OFFICE"), "{text}");
        let mut peer = Peer::ready(&place, &[]);
        let refused = peer.call("add", json!({"a": 1, "b": 2})).to_string();
        assert!(refused.contains("acme.bundle:12 (sandbox.mcp.denied_tools[0])"), "{refused}");
        peer.finish();
        let found = &place.events("policy_bundle")[0];
        assert_eq!(
            (&found["name"], &found["version"], &found["state"]),
            (&json!("acme"), &json!(2), &json!("in-force"))
        );
        assert!(run(&place, &["report"]).stdout.contains("'acme' version 2: in-force"));
    }
}

#[test]
fn learn_is_refused_where_the_network_is_locked() {
    let (place, _) = enrolled(Mode::Invoker);
    let refused = run(&place, &["run", "--learn", "learned.yaml", "--", "/bin/true"]).expect_code(125);
    assert!(refused.stderr.contains("`agent.network` is locked"), "{refused}");
    assert!(!place.project.join("learned.yaml").exists());
}

#[test]
fn invalid_bundle_leaves_the_last_valid_one_in_force() {
    let (place, source) = enrolled(Mode::Invoker);
    bundle(&place, &["keygen", "other.key"]).expect_code(0);
    let good = sign(&place, "acme.key", 3, "90d", POLICY, &LOCKS);
    let changed = place
        .write("changed", std::fs::read_to_string(&good).unwrap().replace("good.example", "evil.example"));
    let manifest = place
        .write("manifest", std::fs::read_to_string(&good).unwrap().replace("\"version\":3", "\"version\":9"));
    let wider = POLICY.replace("allow: [good.example]", "allow: [good.example, \"**.example.net\"]");
    let undenied = POLICY
        .replace("tool: add}\n", "tool: crash}\n")
        .replace("tests: [{tool: fixture/add, expect: deny}]\n", "");
    let all = |policy: &str, more: &[&str], version| sign(&place, "acme.key", version, "90d", policy, more);
    let cases = [
        (changed, "signature"),
        (manifest, "signature"),
        (sign(&place, "other.key", 4, "90d", POLICY, &LOCKS), "signature"),
        (sign(&place, "acme.key", 1, "90d", POLICY, &LOCKS), "it is version 1, but version 2 is in force"),
        (sign(&place, "acme.key", 5, "2020-01-01T00:00:00Z", POLICY, &LOCKS), "it expired at 2020-01-01"),
        (all(&wider, &LOCKS, 6), "it opens"),
        (all(&undenied, &LOCKS, 7), "it opens something that its test denies"),
        (all(POLICY, &LOCKS[..2], 8), "it opens"),
        (place.write("nothing", "version: 1\n"), "it is not a bundle"),
        (place.write("empty", ""), "it is not a bundle"),
    ];
    for (file, why) in &cases {
        let refused = publish(&place, &source, file);
        assert_eq!(refused.code, 1, "{why}: {refused}");
        assert!(refused.stderr.contains(why), "{why}: {refused}");
        assert!(refused.stderr.contains("version 2 stays in force"), "{refused}");
    }
    let run_one = place.shell("true");
    assert_eq!(run_one.code, 0, "{run_one}");
    assert!(
        run_one.stderr.contains("policy of the organisation 'acme', version 2: a newer one was refused"),
        "{run_one}"
    );
    let report = run(&place, &["report"]).stdout;
    assert!(
        report.contains("'acme' version 2: refused: a newer one was refused: it is not a bundle"),
        "{report}"
    );
    let status: Value =
        serde_json::from_str(&bundle(&place, &["status", "--json"]).expect_code(0).stdout).unwrap();
    assert_eq!((&status["version"], status["refused"].is_string()), (&json!(2), true), "{status}");

    // A deliberate widening is declared, and a valid bundle ends the warning.
    let widens = [&LOCKS[..], &["--widen", "agent.network"]].concat();
    publish(&place, &source, &all(&wider, &widens, 6)).expect_code(0);
    assert!(
        run(&place, &["policy", "explain", "--connect", "any.example.net:443"]).stdout.starts_with("allowed")
    );
    assert!(!place.shell("true").stderr.contains("refused"));

    // The server does not answer, and the stored bundle was modified.
    std::fs::remove_file(&source).unwrap();
    bundle(&place, &["pull"]).expect_code(125);
    assert_eq!(place.shell("true").code, 0);
    let kept = place.home.join(".local/state/agentsh/bundles/acme.bundle");
    let text = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(&kept, text.replace("tool: add", "tool: none")).unwrap();
    let damaged = place.shell("true");
    assert_eq!(damaged.code, 125, "{damaged}");
    assert!(damaged.stderr.contains("signature"), "{damaged}");
}

#[test]
fn locked_section_can_only_be_narrowed() {
    let (place, _source) = enrolled(Mode::Invoker);
    let refused = |policy: &str, words: &[&str], why: &str| {
        place.user_policy(policy);
        let outcome = run(&place, &[&["run", "--quiet"], words, &["--", "true"]].concat());
        assert_eq!(outcome.code, 125, "{policy} {outcome}");
        assert!(outcome.stderr.contains(why), "{why}: {outcome}");
    };
    let network = "agent: {network: {allow: [evil.example]}}\n";
    refused(network, &[], "your organisation locks this section");
    refused(network, &[], "policy.yaml:1");
    refused("sandbox: {mcp: {tool_policy: none}, }\nextends: none\n", &[], "`extends` would leave out");
    refused("version: 1\n", &["--allow", "evil.example"], "your organisation locks this section");
    refused("version: 1\n", &["--policy", "observe"], "which your organisation locks");
    place.write("more.yaml", network);
    refused("version: 1\n", &["--policy", "more.yaml"], "more.yaml:1");
    place.user_policy("agent: {env_allow: [MINE]}\nsandbox: {mcp: {tool_policy: denylist, denied_tools: [{server: fixture, tool: echo}]}}\n");
    let mut peer = Peer::ready(&place, &[]);
    for tool in ["add", "echo"] {
        let answer = peer.call(tool, json!({"text": "x", "a": 1, "b": 1}));
        assert_eq!(answer["error"]["data"]["reason"], "tool-denied", "{answer}");
    }
    peer.finish();
    // An earlier approval must not prevent the start.
    place.write(place.home.join(".config/agentsh/approved.yaml"), network);
    let outcome = place.shell("true");
    assert_eq!(outcome.code, 0, "{outcome}");
    assert!(
        outcome.stderr.contains("approved.yaml:1") && outcome.stderr.contains("not in force"),
        "{outcome}"
    );
    assert!(
        run(&place, &["policy", "explain", "--connect", "evil.example:443"]).stdout.starts_with("denied")
    );
}

#[test]
fn expired_bundle_stays_in_force_with_a_warning() {
    let place = Place::new(Mode::Invoker);
    let source = organisation(&place);
    let soon = jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_secs(4)).unwrap().to_string();
    let signed = sign(&place, "acme.key", 1, &soon, POLICY, &LOCKS);
    let pulled = publish(&place, &source, &signed);
    assert_eq!(pulled.code, 0, "{pulled}");
    std::thread::sleep(Duration::from_secs(5));
    let outcome = place.shell("true");
    assert_eq!(outcome.code, 0, "{outcome}");
    assert!(outcome.stderr.contains("it stays in force"), "{outcome}");
    assert_eq!(place.events("policy_bundle")[0]["state"], "expired");
    assert!(run(&place, &["report"]).stdout.contains("'acme' version 1: expired"));
}

#[test]
fn a_bundle_is_tried_on_what_was_recorded() {
    let place = Place::new(Mode::Invoker);
    let server = HttpServer::start({
        let text = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let given = std::sync::Arc::clone(&text);
        move |asked| match asked.path.as_str() {
            "/v1/bundles/acme" => Reply::json(given.lock().unwrap().as_str()),
            path => {
                if let Some(file) = path.strip_prefix("/take?") {
                    *given.lock().unwrap() = std::fs::read_to_string(file).unwrap();
                }
                Reply::json("ok")
            }
        }
    });
    let public = bundle(&place, &["keygen", "acme.key"]).expect_code(0).stdout;
    let config = format!(
        "name: acme\nsource: \"http://127.0.0.1:{}/v1/bundles/acme\"\nkeys: [{:?}]\n",
        server.port,
        public.trim()
    );
    let mut peer = Peer::ready(&place, &[]);
    for text in ["a", "b"] {
        assert_eq!(peer.text("echo", json!({"text": text})), text);
    }
    peer.call("add", json!({"a": 1, "b": 2}));
    peer.finish();
    place.write(place.home.join(".config/agentsh/organisation.yaml"), config);
    let first = sign(&place, "acme.key", 1, "90d", "version: 1\n", &[]);
    let take = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    ask(take, &format!("/take?{}", first.display()));
    bundle(&place, &["pull"]).expect_code(0);
    let stricter = sign(
        &place,
        "acme.key",
        2,
        "90d",
        &POLICY.replace("tool: add", "tool: echo").replace("fixture/add", "fixture/echo"),
        &LOCKS,
    );
    let tried = bundle(&place, &["try", stricter.to_str().unwrap(), "--days", "7", "--json"]).expect_code(1);
    let tried: Value = serde_json::from_str(&tried.stdout).unwrap();
    let refused = tried["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 1, "{tried}");
    assert_eq!(
        (&refused[0]["who"], &refused[0]["what"], &refused[0]["times"]),
        (&json!("fixture"), &json!("call echo"), &json!(2))
    );
    assert!(tried["host"].is_string() && refused[0]["rule"].to_string().contains("denied_tools"), "{tried}");
    assert_eq!(tried["against"], json!({"bundle": "acme", "version": 1}));
    let same = bundle(&place, &["try", first.to_str().unwrap()]).expect_code(0).stdout;
    assert!(
        same.starts_with("'acme' version 1 is compared with what is in force here: 'acme' version 1\n"),
        "{same}"
    );
}

/// The documented order: a key, a bundle, and what it would refuse, before any host follows the organisation.
#[test]
fn a_bundle_is_tried_with_the_file_of_its_public_key() {
    let place = Place::new(Mode::Invoker);
    bundle(&place, &["keygen", "acme.key"]).expect_code(0);
    let signed = sign(&place, "acme.key", 7, "90d", POLICY, &LOCKS);
    let signed = signed.to_str().unwrap();
    let unknown = bundle(&place, &["try", signed]).expect_code(2);
    assert!(unknown.stderr.contains("--public-key"), "{unknown}");
    bundle(&place, &["try", signed, "--public-key", "acme.key.pub", "--days", "7"]).expect_code(0);
    bundle(&place, &["verify", signed, "--public-key", "acme.key.pub"]).expect_code(0);
    bundle(&place, &["keygen", "other.key"]).expect_code(0);
    bundle(&place, &["verify", signed, "--public-key", "other.key.pub"]).expect_code(1);
}

fn ask(mut stream: std::net::TcpStream, path: &str) {
    use std::io::{Read as _, Write as _};
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let _ = stream.read(&mut [0; 256]);
}
