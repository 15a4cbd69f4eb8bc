//! Security advisories, from their formats to the record, the results and the refusal.

use minisign::KeyPair;
use serde_json::{Value, json};

use super::registry::Registry;
use super::{has_npm, place};
use crate::support::browser::Ui;
use crate::support::http_server::{HttpServer, Reply};
use crate::support::sandbox::{Answers, script_with};
use crate::support::{Mode, Outcome, Place};

/// An MCP server with one tool.
const SERVER: &str = "const answers = {initialize: {protocolVersion: '2025-06-18', capabilities: {tools: {}}, serverInfo: {name: 'x', \
     version: '1'}}, 'tools/list': {tools: [{name: 'x', inputSchema: {type: 'object'}}]}, 'tools/call': {content: \
     [{type: 'text', text: 'ok'}]}};\n\
     require('readline').createInterface({input: process.stdin}).on('line', line => {\n\
     const {id, method} = JSON.parse(line); if (id === undefined) return;\n\
     process.stdout.write(JSON.stringify({jsonrpc: '2.0', id, result: answers[method] || {}}) + '\\n'); });\n";

/// `old` needs a package with a hole, `new` the one without it.
fn servers(place: &Place, registry: &mut Registry) {
    registry.publish("left", "1.1.9", "", &json!({}));
    registry.publish("left", "1.2.0", "", &json!({}));
    registry.publish("greeter", "1.0.0", SERVER, &json!({"dependencies": {"left": "1.1.9"}}));
    registry.publish("greeter", "2.0.0", SERVER, &json!({"dependencies": {"left": "1.2.0"}}));
    let server = |spec: &str| json!({"command": "npx", "args": ["-y", spec]});
    let config = json!({"mcpServers": {"old": server("greeter@1.0.0"), "new": server("greeter@2.0.0")}});
    place.write(place.home.join(".claude.json"), config.to_string());
}

fn records(place: &Place) {
    let record = json!({"schema_version": "1.6.0", "id": "GHSA-aaaa-bbbb-cccc", "aliases": ["CVE-2026-4242"],
        "modified": "2026-03-01T00:00:00Z", "published": "2026-02-01T00:00:00Z", "summary": "left pads with your tokens",
        "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N"}],
        "affected": [{"package": {"ecosystem": "npm", "name": "left", "purl": "pkg:npm/left"},
            "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "1.2.0"}]}],
            "database_specific": {"source": "https://advisories.example"}}]});
    let other = json!({"id": "PYSEC-2026-1", "modified": "2026-03-01T00:00:00Z",
        "affected": [{"package": {"ecosystem": "PyPI", "name": "left"}, "versions": ["1.1.9", "1.2.0"]}]});
    place.write("osv/GHSA-aaaa-bbbb-cccc.json", record.to_string());
    place.write("osv/PYSEC-2026-1.json", other.to_string());
    let kev = json!({"title": "Known attacked", "catalogVersion": "2026.03.01", "dateReleased": "2026-03-01T00:00:00Z",
        "count": 1, "vulnerabilities": [{"cveID": "CVE-2026-4242", "vendorProject": "left", "product": "left",
            "vulnerabilityName": "left token disclosure", "dateAdded": "2026-03-01", "shortDescription": "It leaks.",
            "requiredAction": "Update.", "dueDate": "2026-03-22", "knownRansomwareCampaignUse": "Unknown", "notes": ""}]});
    place.write("kev.json", kev.to_string());
}

fn update(place: &Place, source: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["advisories", "update", "--source", source]))
}

fn call_both(place: &Place) -> Answers {
    let ask = |server: &str| json!({"server": server, "tool": "x", "arguments": {}});
    script_with(place, &["--quiet"], &json!([ask("old"), ask("new")]))
}

fn report(place: &Place) -> String {
    Outcome::of(&mut place.agentsh(&["report"])).stdout
}

#[test]
#[ignore = "takes long"]
fn vulnerable_version_is_reported_everywhere_and_the_fixed_one_nowhere() {
    if !has_npm() {
        return;
    }
    for mode in Mode::all() {
        let mut registry = Registry::start();
        let place = place(mode, &registry);
        servers(&place, &mut registry);
        records(&place);
        update(&place, "osv").expect_code(0);
        update(&place, "kev.json").expect_code(0);
        let answers = call_both(&place);
        let about = |step: usize| answers.json[step]["result"]["_meta"]["agentsh/advisories"].clone();
        let ids = json!(["CVE-2026-4242", "GHSA-aaaa-bbbb-cccc"]);
        assert_eq!(
            about(0),
            json!({"active": 2, "highest": "critical", "ids": ids}),
            "{mode:?} {}",
            answers.outcome
        );
        assert_eq!(about(1), Value::Null);
        assert_eq!((answers.text(0), answers.text(1)), ("ok", "ok"));
        let events = place.events("mcp_advisory");
        let told: Vec<(&Value, &Value)> =
            events.iter().map(|event| (&event["server_id"], &event["kind"])).collect();
        assert_eq!(told, [(&json!("old"), &json!("vendor")), (&json!("old"), &json!("dependency"))]);
        assert_eq!((&events[1]["subject"], &events[1]["fixed"]), (&json!("npm:left@1.1.9"), &json!("1.2.0")));
        let report = report(&place);
        let line = "high: GHSA-aaaa-bbbb-cccc npm:left@1.1.9 (dependency) for 'old': left pads with your tokens; fixed in 1.2.0";
        let plain = report.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(line), "{report}");
        let listed = Outcome::of(&mut place.agentsh(&["advisories", "list", "--json"])).expect_code(1);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        let of = |index: usize| listed["servers"][index]["advisories"].as_array().unwrap().len();
        assert_eq!((&listed["servers"][0]["server_id"], of(0), of(1)), (&json!("new"), 0, 2), "{listed}");
        let shown =
            Outcome::of(&mut place.agentsh(&["advisories", "show", "GHSA-aaaa-bbbb-cccc"])).expect_code(0);
        assert!(shown.stdout.contains("left pads with your tokens"), "{shown}");
        Outcome::of(&mut place.agentsh(&["advisories", "show", "GHSA-none"])).expect_code(1);
        let ui = Ui::open(&place);
        let (page, other) = (ui.get("/server/old").body, ui.get("/server/new").body);
        assert!(page.contains("high: GHSA-aaaa-bbbb-cccc npm:left@1.1.9"), "{page}");
        assert!(!other.contains("GHSA-aaaa-bbbb-cccc"), "{other}");
    }
}

#[test]
#[ignore = "takes long"]
fn policy_blocks_exploited_packages_except_those_it_names() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    let place = place(Mode::Invoker, &registry);
    servers(&place, &mut registry);
    records(&place);
    update(&place, "osv").expect_code(0);
    update(&place, "kev.json").expect_code(0);
    place.user_policy("sandbox:\n  mcp:\n    advisories:\n      vendor: block\n");
    let answers = call_both(&place);
    let refused = answers.error(0);
    for part in [
        "policy.yaml:4",
        "CVE-2026-4242",
        "npm:left@1.1.9",
        "fixed in 1.2.0",
        "advisories: {ignore: [\"CVE-2026-4242\"]}",
    ] {
        assert!(refused.contains(part), "no {part} in {refused}");
    }
    assert_eq!(answers.text(1), "ok");
    assert_eq!(place.events("mcp_server_refused")[0]["reason"], "advisory");
    let laxer = [
        "{vendor: block, ignore: [cve-2026-4242]}",
        "{dependency: block, vendor: off, block_from: critical}",
        "{vendor: off}",
    ];
    for policy in laxer {
        place.user_policy(&format!("sandbox: {{mcp: {{advisories: {policy}}}}}\n"));
        assert_eq!(call_both(&place).text(0), "ok", "{policy}");
    }
    // A project can only restrict.
    place.user_policy("sandbox: {mcp: {advisories: {vendor: block}}}\n");
    place.write(".agentsh.yaml", "sandbox: {mcp: {advisories: {vendor: warn}}}\n");
    let wider = call_both(&place).outcome;
    assert_eq!(wider.code, 125, "{wider}");
    assert!(wider.stderr.contains("fewer advisories apply"), "{wider}");
}

#[test]
#[ignore = "takes long"]
fn deny_list_counts_once_enough_people_signed_it() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    let place = place(Mode::Invoker, &registry);
    servers(&place, &mut registry);
    let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate_unencrypted_keypair().unwrap()).collect();
    let list = |version: u64| {
        json!({"format": "agentsh-deny/1", "name": "watch", "version": version, "expires": "2099-01-01T00:00:00Z",
            "entries": [{"package": "npm:greeter", "versions": ["1.0.0"], "reason": "steals tokens"}]})
        .to_string()
    };
    let sign = |text: &str, keys: &[KeyPair]| {
        let one =
            |key: &KeyPair| minisign::sign(None, &key.sk, text.as_bytes(), None, None).unwrap().to_string();
        keys.iter().map(one).collect::<Vec<_>>().join("\n")
    };
    let signers: Vec<String> = keys.iter().map(|key| format!("{:?}", key.pk.to_base64())).collect();
    let policy = |keys: &str| {
        let signers = signers.join(", ");
        place.user_policy(&format!("sandbox: {{mcp: {{advisories: {{{keys}signers: [{signers}]}}}}}}\n"));
    };
    policy("community: block, quorum: 2, ");
    // From a file that one of them signed, then over HTTP with both.
    place.write("list.json", list(1));
    place.write("list.json.minisig", sign(&list(1), &keys[..1]));
    update(&place, "list.json").expect_code(0);
    assert_eq!(call_both(&place).text(0), "ok");
    let (text, signatures) = (list(2), sign(&list(2), &keys[..2]));
    let server = HttpServer::start(move |asked| match asked.path.as_str() {
        "/list.json" => Reply::json(&text),
        "/list.json.minisig" => Reply::json(&signatures),
        _ => Reply::status(404),
    });
    let url = format!("http://127.0.0.1:{}/list.json", server.port);
    update(&place, &url).expect_code(0);
    let answers = call_both(&place);
    assert!(answers.error(0).contains("2 signers warn: steals tokens"), "{}", answers.error(0));
    assert_eq!(answers.text(1), "ok");
    // Nothing of a request is sent to whoever publishes the list.
    let asked = server.asked();
    assert!(
        asked.iter().all(|asked| asked.body.is_empty() && asked.path.starts_with("/list.json")),
        "{asked:?}"
    );
    // Neither an older list nor one that somebody changed takes its place.
    let older = update(&place, "list.json").expect_code(125);
    assert!(older.stdout.contains("version 1, but version 2 is already stored"), "{older}");
    place.write("list.json", list(3).replace("1.0.0", "9.9.9"));
    let changed = update(&place, "list.json").expect_code(125);
    assert!(changed.stdout.contains("not signed by a key in"), "{changed}");
    assert!(call_both(&place).error(0).contains("steals tokens"));
    // Three, and a warning, unless something else is written.
    policy("");
    for (count, is_told) in [(2, false), (3, true)] {
        if is_told {
            place.write("list.json", list(count));
            place.write("list.json.minisig", sign(&list(count), &keys));
            update(&place, "list.json").expect_code(0);
        }
        let answers = call_both(&place);
        let told = &answers.json[0]["result"]["_meta"]["agentsh/advisories"];
        assert_eq!((answers.text(0), told.is_object()), ("ok", is_told), "{count}");
    }
}

#[test]
#[ignore = "takes long"]
fn advisory_status_page_is_shown_and_bad_sources_are_refused() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    let place = place(Mode::Invoker, &registry);
    servers(&place, &mut registry);
    let page = json!({"page": {"id": "x", "name": "Greetings"}, "status": {"indicator": "major", "description": "Major outage"}});
    let status = place.write("summary.json", page.to_string());
    place.user_policy(&format!(
        "sandbox: {{mcp: {{advisories: {{status: [{{source: {status:?}, servers: [old]}}]}}}}}}\n"
    ));
    Outcome::of(&mut place.agentsh(&["advisories", "update"])).expect_code(0);
    let answers = call_both(&place);
    let about = &answers.json[0]["result"]["_meta"]["agentsh/advisories"];
    assert_eq!(about["ids"], json!(["status:major"]), "{}", answers.outcome);
    assert!(report(&place).contains("Major outage"));
    for (name, text) in
        [("a.json", "{"), ("b.json", "{\"a\": 1}"), ("c.json", ""), ("d.json", "PK\u{3}\u{4}")]
    {
        place.write(name, text);
        let refused = update(&place, name).expect_code(125);
        assert!(refused.stdout.contains(&format!("not read: {name}")), "{refused}");
    }
    update(&place, "missing.json").expect_code(125);
}
