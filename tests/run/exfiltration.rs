//! Data of one server does not reach another through an agent under `agentsh run`, if the policy forbids it.

use serde_json::{Value, json};

use crate::support::sandbox::{script, script_with};
use crate::support::{Mode, Outcome, Peer, Place};

const MEMO: &str = "Minutes of the harvest council: the orchard at Lindenau goes to the Brandt family before winter, \
                    the price of 310 thousand crowns was agreed orally, and nobody in the village knows of it yet.";

pub fn two_servers(place: &Place) -> String {
    let entry = json!({"command": place.program("fixture_server"), "args": []});
    place.write(
        place.home.join(".claude.json"),
        json!({"mcpServers": {"files": entry, "mail": entry}}).to_string(),
    );
    place.write("memo.txt", MEMO).to_str().unwrap().to_owned()
}

pub fn call(server: &str, tool: &str, arguments: Value) -> Value {
    json!({"server": server, "tool": tool, "arguments": arguments})
}

#[test]
#[ignore = "takes long"]
fn agent_does_not_carry_text_of_one_server_to_another() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let memo = two_servers(&place);
        let steps = json!([
            call("files", "read_file", json!({"path": memo})),
            call("mail", "echo", json!({"text": MEMO[30..140].to_uppercase()})),
            call("files", "echo", json!({"text": MEMO})),
            call("mail", "echo", json!({"text": "see https://collect.example.net/x"})),
            call("mail", "echo", json!({"text": "see https://api.example.com/x"})),
        ]);
        place.policy(
            "version: 1\nsandbox:\n  mcp:\n    exfiltration:\n      marker: off\n      \
             allowed_domains: [api.example.com]\n",
        );
        let answers = script(&place, &steps);
        assert_eq!(answers.text(0), MEMO, "{mode:?}");
        assert!(
            answers.error(1).contains("'read_file' of server 'files'")
                && answers.error(1).contains("to allow it"),
            "{}",
            answers.error(1)
        );
        assert_eq!(answers.text(2), MEMO);
        assert!(
            answers.error(3).contains("policy.yaml:6 (sandbox.mcp.exfiltration.allowed_domains)"),
            "{}",
            answers.error(3)
        );
        assert_eq!(answers.text(4), "see https://api.example.com/x");
        let found = place.detections();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(!json!(found).to_string().contains("Lindenau"));
        assert_eq!((&found[0]["source_server"], &found[0]["action"]), (&json!("files"), &json!("block")));
        // Without the section the call continues, and is recorded.
        place.policy("version: 1\n");
        assert_eq!(script(&place, &steps).text(1), MEMO[30..140].to_uppercase());
        let told = place.detections();
        let told: Vec<(&Value, &Value)> =
            told.iter().skip(2).map(|found| (&found["reason"], &found["action"])).collect();
        let alert = json!("alert");
        assert!(told.contains(&(&json!("tainted-data"), &alert)), "{told:?}");
        let other = json!([
            call("files", "read_file", json!({"path": memo})),
            call("mail", "echo", json!({"text": "in words of my own: the farm is sold"})),
            call("mail", "echo", json!({"text": "and once more, in other words"})),
        ]);
        let before = place.detections().len();
        script(&place, &other);
        let told: Vec<Value> =
            place.detections().iter().skip(before).map(|found| found["reason"].clone()).collect();
        assert_eq!(told, [json!("private-to-external")], "once for the pair");
        place.policy("version: 1\nsandbox: {mcp: {exfiltration: {enabled: false}}}\n");
        let before = place.detections().len();
        assert_eq!(script(&place, &steps).text(1), MEMO[30..140].to_uppercase());
        assert_eq!(place.detections().len(), before);
        // With `alert` the call continues.
        place.policy("version: 1\nsandbox: {mcp: {exfiltration: {on_detection: alert, marker: off}}}\n");
        assert_eq!(script(&place, &steps).text(1), MEMO[30..140].to_uppercase());
        assert_eq!(place.detections().last().unwrap()["action"], "alert");
    }
}

#[test]
fn exfiltration_labels_of_the_policy_decide() {
    let place = Place::new(Mode::Invoker);
    let memo = two_servers(&place);
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": MEMO})),
    ]);
    for labels in ["{id: files, flow: {source: public}}", "{id: mail, flow: {sink: local}}"] {
        place.policy(&format!(
            "version: 1\nsandbox: {{mcp: {{exfiltration: {{marker: off}}, servers: [{labels}]}}}}\n"
        ));
        assert_eq!(script(&place, &steps).text(1), MEMO, "{labels}");
    }
}

/// Servers `files`, `mail` and `wiki`.
pub fn three_servers(place: &Place) -> String {
    let entry = json!({"command": place.program("fixture_server"), "args": []});
    let all = json!({"mcpServers": {"files": entry, "mail": entry, "wiki": entry}});
    let memo = two_servers(place);
    place.write(place.home.join(".claude.json"), all.to_string());
    memo
}

#[test]
fn exfiltration_pairs_and_shareable_sources_allow_narrowly() {
    let place = Place::new(Mode::Invoker);
    let memo = three_servers(&place);
    let secret = place.write("key.txt", "the key is AKIAZ3MSJV4WWNKWCUZS, keep it");
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": MEMO})),
        call("wiki", "echo", json!({"text": MEMO})),
        call("files", "read_file", json!({"path": secret})),
        call("mail", "echo", json!({"text": "AKIAZ3MSJV4WWNKWCUZS"})),
    ]);
    let policy = |more: &str| {
        place.policy(&format!(
            "version: 1\nsandbox:\n  mcp:\n    exfiltration: {{marker: off, {more}}}\n    servers: [{{id: files, flow: {{source: \
             shareable}}}}, {{id: mail, flow: {{source: public}}}}]\n"
        ))
    };
    policy("on_detection: block");
    let answers = script(&place, &steps);
    assert_eq!((answers.text(1), answers.text(2)), (MEMO, MEMO), "prose may be shared");
    assert!(answers.error(4).contains("allow: [{from: files, to: mail}]"), "{}", answers.error(4));
    place.policy(
        "version: 1\nsandbox: {mcp: {exfiltration: {marker: off, allow: [{from: files, to: mail}], on_private_to_external: block}, servers: [{id: mail, flow: {source: public}}]}}\n",
    );
    let answers = script(&place, &steps);
    assert_eq!((answers.text(1), answers.text(4)), (MEMO, "AKIAZ3MSJV4WWNKWCUZS"));
    assert!(answers.error(2).contains("server 'files'"), "{}", answers.error(2));
}

#[test]
fn call_after_a_private_read_is_judged_without_a_copy() {
    let place = Place::new(Mode::Invoker);
    let memo = three_servers(&place);
    place
        .policy("version: 1\nsandbox: {mcp: {exfiltration: {marker: off, on_private_to_external: block}, servers: [{id: mail, flow: {source: public}}]}}\n");
    let steps = json!([
        call("mail", "echo", json!({"text": "before anything was read"})),
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": "in words of my own: the farm is sold"})),
        call("mail", "add", json!({"a": 2, "b": 40})),
        call("files", "echo", json!({"text": "back to where it came from"})),
    ]);
    let answers = script(&place, &steps);
    assert_eq!(answers.text(0), "before anything was read");
    assert!(
        answers.error(2).contains("'read_file' of server 'files' returned private data")
            && answers.error(2).contains("on_private_to_external"),
        "{}",
        answers.error(2)
    );
    assert_eq!((answers.text(3), answers.text(4)), ("42", "back to where it came from"));
}

#[test]
fn exfiltration_pair_rule_lists_values_that_may_pass() {
    let place = Place::new(Mode::Invoker);
    let memo = three_servers(&place);
    place.policy(
        "version: 1\nsandbox:\n  mcp:\n    exfiltration:\n      marker: off\n      on_private_to_external: block\n      pairs:\n        \
         - {from: \"*\", to: mail, on_private_to_external: allow}\n        - {from: files, to: wiki, values: [in review]}\n    servers: [{id: mail, flow: {source: public}}]\n",
    );
    let mut nested = json!("yes");
    for _ in 0..60 {
        nested = json!([nested, true]);
    }
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": "in words of my own: the farm is sold"})),
        call("wiki", "echo", json!({"text": "in review"})),
        call("wiki", "echo", json!({"text": "in words of my own"})),
        call("wiki", "echo", json!({"text": nested})),
    ]);
    let answers = script(&place, &steps);
    assert_eq!(answers.text(1), "in words of my own: the farm is sold");
    assert_eq!(answers.text(2), "in review");
    for step in [3, 4] {
        assert!(
            answers.error(step).contains("policy.yaml:6 (sandbox.mcp.exfiltration.on_private_to_external)"),
            "{}",
            answers.error(step)
        );
    }
}

/// The refusals name the data, its source, and who can allow it and how.
#[test]
fn exfiltration_refusals_match_their_snapshots() {
    let place = Place::new(Mode::Invoker);
    let memo = two_servers(&place);
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {marker: off, on_private_to_external: block, close_after: 1}}}\n");
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": "in words of my own"})),
        call("mail", "echo", json!({"text": MEMO})),
        call("mail", "echo", json!({"text": "in words of my own"})),
    ]);
    let answers = script(&place, &steps);
    let home = place.home.display().to_string();
    let told: Vec<String> = (1..4).map(|step| answers.error(step).replace(&home, "~")).collect();
    let told = told.join("\n\n");
    let told = told.replace(|letter: char| letter.is_ascii_digit(), "0");
    insta::assert_snapshot!(told);
}

/// Refusals about values, hosts, and secrets of project files.
#[test]
fn exfiltration_refusals_of_values_and_places_match_their_snapshots() {
    let place = Place::new(Mode::Invoker);
    two_servers(&place);
    let secret = place.write("key.txt", "the key is AKIAZ3MSJV4WWNKWCUZS, keep it");
    place.write(".env", "CARRIER_API_KEY=kX7pQ2vT9mL4wZ8rB3nY6cD1\n");
    place.policy(
        "version: 1\nsandbox: {mcp: {exfiltration: {marker: off, allowed_domains: [api.example.com]}, servers: [{id: files, flow: {source: shareable}}]}}\n",
    );
    let steps = json!([
        call("files", "read_file", json!({"path": secret})),
        call("mail", "echo", json!({"text": "AKIAZ3MSJV4WWNKWCUZS"})),
        call("mail", "echo", json!({"text": "see https://collect.example.net/x"})),
        call("mail", "echo", json!({"text": "kX7pQ2vT9mL4wZ8rB3nY6cD1"})),
    ]);
    let answers = script(&place, &steps);
    let home = place.home.display().to_string();
    let told: Vec<String> = (1..4).map(|step| answers.error(step).replace(&home, "~")).collect();
    insta::assert_snapshot!(told.join("\n\n"));
}

/// The data flow is drawn in the report, and both the report and the summary name its places.
#[test]
fn report_draws_data_flows_between_servers() {
    let place = Place::new(Mode::Invoker);
    let memo = two_servers(&place);
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {marker: off, on_detection: alert, allowed_domains: [api.example.com]}}}\n");
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": MEMO})),
        call("mail", "echo", json!({"text": "see https://collect.example.net/x"})),
    ]);
    let answers = script_with(&place, &[], &steps);
    let summary = answers.outcome.stderr.replace('\n', " ");
    assert!(
        summary.contains("data: ")
            && summary.contains("files -> mail")
            && summary.contains("agentsh mcp detections --session"),
        "{summary}"
    );
    let report = Outcome::of(&mut place.agentsh(&["report"])).expect_code(0).stdout;
    assert!(report.contains("files -> mail: 1 copy; 1 passed, 0 refused"), "{report}");
    assert!(report.contains("mail -> collect.example.net"), "{report}");
    assert!(report.contains("agentsh mcp detections --session"), "{report}");
    let page = Outcome::of(&mut place.agentsh(&["report", "--format", "html"])).expect_code(0).stdout;
    assert!(page.contains("What went from where to where") && page.contains("<svg"), "{page}");
}

#[test]
fn policy_show_prints_labels_of_every_origin() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nsandbox: {mcp: {servers: [{id: wiki, flow: {source: public}}, {id: notes, command: npx, args: [-y, \"@modelcontextprotocol/server-memory\"]}]}}\n",
    );
    let shown = Outcome::of(&mut place.agentsh(&["policy", "show"])).expect_code(0).stdout;
    let line = |start: &str| {
        let found = shown.lines().find(|line| line.contains(start));
        found.unwrap_or_else(|| panic!("{start}: {shown}")).to_owned()
    };
    assert!(line("servers.wiki.flow.source: public").contains("policy.yaml:2"));
    assert!(line("servers.wiki.flow.sink: external").contains("no profile and no label"));
    if std::process::Command::new("npx").arg("--version").output().is_err() {
        return crate::support::skip("the profile of a package: npx is not installed");
    }
    assert!(line("servers.notes.flow.sink: local").contains("profile"), "{shown}");
}

#[test]
fn after_three_refusals_a_pair_is_closed_and_others_are_not() {
    let place = Place::new(Mode::Invoker);
    let memo = three_servers(&place);
    place
        .policy("version: 1\nsandbox: {mcp: {exfiltration: {marker: off, on_private_to_external: allow}}}\n");
    let refused = call("mail", "echo", json!({"text": MEMO}));
    let harmless = |server: &str| call(server, "echo", json!({"text": "nothing of it at all"}));
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        refused,
        refused,
        harmless("mail"),
        refused,
        harmless("mail"),
        harmless("wiki"),
    ]);
    let answers = script(&place, &steps);
    assert_eq!(answers.text(3), "nothing of it at all");
    assert!(
        answers.error(5).contains("close_after") && answers.error(5).contains("no terminal"),
        "{}",
        answers.error(5)
    );
    assert_eq!(answers.text(6), "nothing of it at all");
}

#[test]
fn explain_says_what_happens_to_a_data_flow() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nsandbox:\n  mcp:\n    exfiltration: {on_detection: ask, allow: [{from: git, to: \"forge*\"}]}\n    servers: [{id: wiki, flow: {source: public}}, {id: code, flow: {source: shareable}}]\n",
    );
    let ask =
        |from: &str, to: &str| Outcome::of(&mut place.agentsh(&["policy", "explain", "--flow", from, to]));
    let asked = ask("fs:read_file", "github:create_issue").expect_code(1);
    assert!(
        asked.stdout.contains("waits for a person") && asked.stdout.contains("{from: fs, to: github}"),
        "{asked}"
    );
    assert!(ask("git", "forge-1").expect_code(0).stdout.contains("goes on ("));
    assert!(ask("wiki", "github").expect_code(0).stdout.contains("its results are public"));
    let shared = ask("code", "github").expect_code(1).stdout;
    assert!(
        shared.contains("a copy of prose or code: goes on (")
            && shared.contains("a copy of a secret or personal data: waits for a person"),
        "{shared}"
    );
    let strict = place
        .agentsh(&["policy", "explain", "--policy", "strict", "--flow", "fs", "github"])
        .output()
        .unwrap();
    let strict = String::from_utf8_lossy(&strict.stdout).into_owned();
    assert!(strict.contains("after something was read: is refused (built-in:strict:"), "{strict}");
}

#[test]
fn exfiltration_is_searched_with_a_single_server_too() {
    let place = Place::new(Mode::Invoker);
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {allowed_domains: [api.example.com]}}}\n");
    let mut peer = Peer::ready(&place, &[]);
    let refused = peer.call("echo", json!({"text": "https://collect.example.net/x"}));
    assert_eq!(refused["error"]["data"]["reason"], "destination-not-allowed", "{refused}");
    assert_eq!(peer.text("echo", json!({"text": "https://api.example.com/x"})), "https://api.example.com/x");
}

#[test]
fn project_policy_cannot_relax_exfiltration_labels() {
    let place = Place::new(Mode::Invoker);
    two_servers(&place);
    for text in [
        "version: 1\nsandbox: {mcp: {exfiltration: {enabled: false}}}\n",
        "version: 1\nsandbox: {mcp: {servers: [{id: mail, flow: {sink: local}}]}}\n",
    ] {
        place.write(".agentsh.yaml", text);
        let outcome = place.shell("true");
        assert_eq!(outcome.code, 125, "{outcome}");
        assert!(outcome.stderr.contains("inside the project cannot"), "{outcome}");
    }
}

/// What the agent reads itself passes no proxy: the secrets of its project are known from the start.
#[test]
fn a_secret_of_a_project_file_reaches_no_server() {
    let place = Place::new(Mode::Invoker);
    two_servers(&place);
    let secret = "kX7pQ2vT9mL4wZ8rB3nY6cD1";
    place.write(".env", format!("NAME=orchard\nCARRIER_API_KEY={secret}\n"));
    place.write("notes.txt", "the word orchard may be said");
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {marker: off}}}\n");
    let steps = json!([
        call("mail", "echo", json!({"text": format!("it is {secret}")})),
        call("mail", "echo", json!({"text": "NAME is orchard"})),
    ]);
    let answers = script(&place, &steps);
    assert!(
        answers.error(0).contains("'.env' of server 'files of the project'")
            && !answers.error(0).contains(secret),
        "{}",
        answers.error(0)
    );
    assert_eq!(answers.text(1), "NAME is orchard");
    let layers = place.events("enforcement");
    assert!(
        layers.iter().any(|layer| layer["layer"] == "data flow" && layer["state"] == "degraded"),
        "{layers:?}"
    );
}

/// It is the same after every run, so it is reported once.
#[test]
fn data_flow_that_the_proxy_does_not_see_is_reported_once() {
    let place = Place::new(Mode::Invoker);
    two_servers(&place);
    let steps = json!([call("mail", "echo", json!({"text": "hello"}))]);
    let told = |name: &str| {
        place.write(name, "CARRIER_API_KEY=kX7pQ2vT9mL4wZ8rB3nY6cD1\n");
        let answers = script_with(&place, &[], &steps);
        answers.outcome.stderr.contains("data flow (only secrets in the project's files)")
    };
    assert!(told("one.env"));
    assert!(!told(".env"));
}

const BLOCKS: &str =
    "version: 1\nsandbox:\n  mcp:\n    exfiltration:\n      marker: off\n      on_detection: block\n";

/// Two files, packed. None is opened, so that the archive itself is refused.
const ARCHIVE: &str = "UEsDBBQAAAAIAAAAIQBkxYhyNQAAADMAAAAKAAAAcmVhZG1lLnR4dAtKTc4sSC1WyE9TKMlIVSguzc1NLVJIS8ws0lFIyy9S \
     SC1LLapMyk+pVCjPyFdILM4u1gMAUEsDBBQAAAAIAAAAIQBfbHx2UQAAAGAAAAAFAAAAbS50eHQdy7ENgDAMBdFV/gBMQEkN \
     Q5jEAUvBlhwHxPZEtO90m2gPbrCCOBkn+c0tkKxrkjr/aJ6GZ1BgFc2s1HHYmML+vjhpDhS6pL7YuZgzHtFgnz5QSwECFAMU \
     AAAACAAAACEAZMWIcjUAAAAzAAAACgAAAAAAAAAAAAAAgAEAAAAAcmVhZG1lLnR4dFBLAQIUAxQAAAAIAAAAIQBfbHx2UQAA \
     AGAAAAAFAAAAAAAAAAAAAACAAV0AAABtLnR4dFBLBQYAAAAAAgACAGsAAADRAAAAAAA=";

#[test]
fn a_packed_file_does_not_reach_another_server() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let memo = two_servers(&place);
        let steps = json!([
            call("files", "read_file", json!({"path": memo})),
            call("mail", "echo", json!({"text": ARCHIVE})),
        ]);
        place.policy(BLOCKS);
        let answers = script(&place, &steps);
        let told = answers.error(1);
        assert!(
            told.contains("characters of compressed data, after 'read_file' of server 'files'"),
            "{told}"
        );
        place.policy(&format!("{BLOCKS}      on_opaque: alert\n"));
        assert_eq!(script(&place, &steps).text(1), ARCHIVE);
    }
}

/// Whose data, how much of it and where to: to the agent, on record and in the report.
#[test]
fn exfiltration_refusal_says_whose_data_would_leave_and_where() {
    let place = Place::new(Mode::Invoker);
    let memo = two_servers(&place);
    place.policy(
        "version: 1\nsandbox: {mcp: {exfiltration: {marker: off, allowed_domains: [api.example.com]}}}\n",
    );
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": format!("he says: {} -- and no more", &MEMO[30..140])})),
        call("mail", "echo", json!({"text": "see https://collect.example.net/x"})),
    ]);
    let answers = script(&place, &steps);
    let count = MEMO[30..140].chars().filter(|one| one.is_alphanumeric()).count();
    let copied = format!(
        "'echo' would send server 'mail' {count} letters and digits that 'read_file' of server 'files' gave"
    );
    let named = "'echo' would send to 'collect.example.net', which is not listed there".to_owned();
    for (step, sentence) in [(1, &copied), (2, &named)] {
        assert!(answers.error(step).contains(&format!(": {sentence}; ")), "{}", answers.error(step));
    }
    let found = place.detections().into_iter().filter(|found| found["type"] == "mcp_exfil_detected");
    let told: Vec<Value> = found.map(|found| found["detail"].clone()).collect();
    assert_eq!(told, [json!(copied), json!(named)]);
    let report = Outcome::of(&mut place.agentsh(&["report"])).expect_code(0).stdout;
    let folded = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(folded.contains(&copied) && folded.contains(&named), "{report}");
}

#[test]
fn interleaved_letters_do_not_reach_another_server() {
    let place = Place::new(Mode::Invoker);
    let memo = two_servers(&place);
    place.policy(BLOCKS);
    let between = |text: &str| {
        let letters = text.chars().filter(|one| !one.is_whitespace());
        letters.flat_map(|one| [one, 'q', 'v']).collect::<String>()
    };
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": between("in words of my own, nobody sold anything to anybody")})),
        call("mail", "echo", json!({"text": between(&MEMO[30..140])})),
    ]);
    let answers = script(&place, &steps);
    assert!(answers.text(1).starts_with("iqvnqv"), "{}", answers.text(1));
    assert!(answers.error(2).contains("'read_file' of server 'files'"), "{}", answers.error(2));
}

#[test]
fn values_of_a_table_do_not_reach_another_server_in_another_form() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        two_servers(&place);
        let table = "name,town,amount\nIlse Marquardt,Wolgast,48211.5\nJonas Pfeil,Anklam,90377.25\n\
                     Rieke Thoms,Demmin,13902.75\nHanno Brix,Ueckermuende,77120.5\n";
        let path = place.write("table.csv", table).to_str().unwrap().to_owned();
        let rows =
            ["(Wolgast; 48211.5)", "(Anklam; 90377.25)", "(Demmin; 13902.75)", "(Ueckermuende; 77120.5)"];
        let steps = json!([
            call("files", "read_file", json!({"path": path})),
            call("mail", "echo", json!({"text": "town: Wolgast"})),
            call(
                "mail",
                "echo",
                json!({"text": "INSERT INTO t VALUES ('Wolgast', 'Ilse Marquardt'), ('Anklam', 'Jonas Pfeil')"})
            ),
        ]);
        place.policy(BLOCKS);
        let answers = script(&place, &steps);
        assert_eq!(answers.text(1), "town: Wolgast", "{mode:?}");
        assert!(answers.error(2).contains("'read_file' of server 'files'"), "{}", answers.error(2));
        let found = place.detections();
        assert!(json!(found).to_string().contains("taint-cells"), "{found:?}");
        // One row for each call: what arrived before counts.
        let mut steps = vec![call("files", "read_file", json!({"path": path}))];
        steps.extend(rows.iter().map(|row| call("mail", "echo", json!({"text": row}))));
        let answers = script(&place, &json!(steps));
        assert_eq!(answers.text(3), rows[2], "{mode:?}");
        assert!(answers.error(4).contains("'read_file' of server 'files'"), "{}", answers.error(4));
    }
}
