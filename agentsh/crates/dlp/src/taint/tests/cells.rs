#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use serde_json::json;

use super::*;

const SAID: &str = r#"[{"name":"Ilse Marquardt","city":"Wolgast","amount":48211.5,"status":"pending"},
{"name":"Jonas Pfeil","city":"Anklam","amount":90377.25,"status":"pending"},
{"name":"Rieke Thoms","city":"Demmin","amount":13902.75,"status":"pending"}]"#;

fn cells(private: bool, text: &str) -> (Cells, Hasher) {
    let hasher = Hasher::new(&[7; 32]);
    let mut cells = Cells::default();
    let value = json!({"content": [{"type": "text", "text": text}]}).to_string();
    let value = json::read(value.as_bytes()).unwrap();
    cells.add(OriginId(1), private, &of_result(&hasher, private, &Leaves::of(&value)));
    (cells, hasher)
}

fn send(cells: &mut Cells, hasher: &Hasher, text: &str) -> bool {
    let value = json!({"body": text}).to_string();
    let value = json::read(value.as_bytes()).unwrap();
    let call = Leaves::of_call("post", &value);
    cells.find_carried(hasher, &call, std::iter::empty(), |_| true).iter().any(Carried::is_finding)
}

#[test]
fn table_cells_are_found_in_any_format() {
    for sent in [
        "- name: ILSE MARQUARDT\n  city: Wolgast\n  amount: 48211.5\n- name: Jonas Pfeil\n",
        "INSERT INTO p VALUES ('Ilse Marquardt','Wolgast',48211.5),('Jonas Pfeil','Anklam',90377.25)",
        "Wolgast / Anklam / Demmin / Rieke Thoms",
        "48211.5; 90377.25; 13902.75; Demmin",
    ] {
        let (mut cells, hasher) = cells(true, SAID);
        assert!(send(&mut cells, &hasher, sent), "{sent}");
    }
}

#[test]
fn table_rows_sent_one_by_one_are_counted_together() {
    let (mut cells, hasher) = cells(true, SAID);
    assert!(!send(&mut cells, &hasher, "Ilse Marquardt, Wolgast, 48211.5"));
    assert!(!send(&mut cells, &hasher, "Jonas Pfeil, Anklam, 90377.25"));
    assert!(send(&mut cells, &hasher, "Rieke Thoms, Demmin"));
    cells.forget();
    assert!(!send(&mut cells, &hasher, "Rieke Thoms"));
}

#[test]
fn few_or_public_cells_are_no_finding() {
    let (mut cells, hasher) = cells(true, SAID);
    assert!(!send(&mut cells, &hasher, "pending pending: Wolgast, Anklam and Demmin in Pomerania"));
    let value = json!({"text": SAID}).to_string();
    let value = json::read(value.as_bytes()).unwrap();
    cells.add(OriginId(2), false, &of_result(&hasher, false, &Leaves::of(&value)));
    assert!(!send(&mut cells, &hasher, SAID));
}

#[test]
fn csv_tables_and_settings_have_cells() {
    for said in [
        "name,city\nIlse Marquardt,Wolgast\nJonas Pfeil,Anklam\n",
        "| name | city |\n| Ilse Marquardt | Wolgast |\n| Jonas Pfeil | Anklam |\n",
        "- name: Ilse Marquardt\n  city: Wolgast\n- name: Jonas Pfeil\n  city: Anklam\n",
    ] {
        let (mut cells, hasher) = cells(true, said);
        assert!(send(&mut cells, &hasher, "Wolgast Ilse Marquardt, Anklam Jonas Pfeil"), "{said}");
    }
}

#[test]
fn remembered_cells_are_bounded() {
    let hasher = Hasher::new(&[7; 32]);
    let mut cells = Cells::default();
    for result in 0..40_u64 {
        let rows: Vec<u64> = (0..5000).map(|row| 1_000_000 + result * 5000 + row).collect();
        let value = json!({ "rows": rows }).to_string();
        let value = json::read(value.as_bytes()).unwrap();
        cells.add(OriginId(result), true, &of_result(&hasher, true, &Leaves::of(&value)));
    }
    assert!(cells.count <= MAX_CELLS && cells.origins.len() <= MAX_CELLS, "{}", cells.count);
}

#[test]
fn rereading_a_result_keeps_the_count_of_sent_cells() {
    let (mut cells, hasher) = cells(true, SAID);
    assert!(!send(&mut cells, &hasher, "Ilse Marquardt, Wolgast, 48211.5"));
    assert!(!send(&mut cells, &hasher, "Jonas Pfeil, Anklam, 90377.25"));
    let value = json!({"content": [{"type": "text", "text": SAID}]}).to_string();
    let value = json::read(value.as_bytes()).unwrap();
    cells.add(OriginId(2), true, &of_result(&hasher, true, &Leaves::of(&value)));
    assert!(send(&mut cells, &hasher, "Rieke Thoms, Demmin"));
}

#[test]
fn cells_in_decoded_text_count() {
    let (mut cells, hasher) = cells(true, SAID);
    let value = json::read(b"{\"a\": 1}").unwrap();
    let call = Leaves::of_call("post", &value);
    let view = [(1, "Ilse Marquardt; Wolgast; Jonas Pfeil; Anklam")];
    let carried = cells.find_carried(&hasher, &call, view.into_iter(), |_| true);
    assert!(carried.iter().any(Carried::is_finding));
}

/// The numbers in front of the lines of a trace name nothing, and words of configuration are everybody's.
#[test]
fn stack_trace_and_workflow_file_have_few_cells() {
    let trace = "panicked at src/tides.rs:88:31:\nattempt to subtract with overflow\n   0: rust_begin_unwind\n   1: \
        core::panicking::panic_fmt\n   2: ferrybook::tides::height\n   3: ferrybook::plan::departures\n   4: ferrybook::main\n";
    let workflow = "name: ci\non: [push, pull_request]\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      \
        - uses: actions/checkout@v4\n      - run: cargo test --all-features\n      - run: cargo clippy -- -D warnings\n";
    for text in [trace, workflow] {
        let (mut cells, hasher) = cells(true, text);
        assert!(!send(&mut cells, &hasher, text), "{text}");
    }
}
