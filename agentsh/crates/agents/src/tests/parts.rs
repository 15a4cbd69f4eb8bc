use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use crate::expand::{Lookups, braces, editor};
use crate::{Scheme, endpoint, json};

#[test]
fn lines_of_keys_are_those_at_the_given_path() {
    let text = "{\"a\": {\"x\": \"mcpServers\"},\n \"list\": [{\"mcpServers\": {\"no\": 1}}],\n\"mcpServers\":\n {\"y\\u0031\": {\"y2\": {}},\n  \"\u{e9}\": \"b\\\"}\"}}";
    assert!(json::parse(text, Path::new("x")).is_ok());
    let lines = json::key_lines(text, &["mcpServers"]);
    assert_eq!(lines, BTreeMap::from([("y1".to_owned(), 4), ("\u{e9}".to_owned(), 5)]));
    assert_eq!(json::key_lines(text, &[])["list"], 2);
    assert!(json::key_lines(text, &["nothing"]).is_empty());
}

#[test]
fn endpoints_are_read_from_urls() {
    let parsed = endpoint::parse(" HTTPS://user@[2001:db8::1]:8443/x?y ", "u").unwrap();
    assert_eq!((parsed.scheme, parsed.host.as_str(), parsed.port), (Scheme::Https, "2001:db8::1", 8443));
    assert_eq!(endpoint::parse("http://a", "u").unwrap().port, 80);
    for bad in [
        "",
        "a.example",
        "https://",
        "https://a:b",
        "https://a:99999",
        "https://[::1",
        "https://a b",
        "file:///x",
    ] {
        assert!(endpoint::parse(bad, "u").is_err(), "{bad}");
    }
}

#[test]
fn errors_do_not_show_urls_that_could_hold_a_password() {
    let error = endpoint::parse("https://user:pa55@host:x", "ANTHROPIC_BASE_URL").unwrap_err();
    assert!(error.contains("ANTHROPIC_BASE_URL") && !error.contains("pa55"));
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in ".{0,200}") {
        let _ = json::parse(&text, Path::new("x"));
        let _ = json::key_lines(&text, &["a"]);
        let _ = endpoint::parse(&text, "u");
        let _ = braces(&text, &BTreeMap::new(), &mut Lookups::default());
    }

    #[test]
    fn json_parser_reads_the_same_as_serde_json(keys in prop::collection::btree_map("[a-c\"\\\\é]{1,3}", any::<i64>(), 0..6)) {
        let value = serde_json::json!({"m": keys, "n": [null, true, 1.5, "x"]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(json::parse(&text, Path::new("x")).unwrap(), value);
        let lines = json::key_lines(&text, &["m"]);
        prop_assert_eq!(lines.len(), keys.len());
        for key in keys.keys() {
            let written = Value::String(key.clone()).to_string();
            let line = usize::try_from(lines[key]).unwrap();
            prop_assert!(text.lines().nth(line - 1).unwrap().trim_start().starts_with(&written));
        }
    }

    #[test]
    fn text_without_variables_is_unchanged(text in "[^$]{0,80}") {
        prop_assert_eq!(braces(&text, &BTreeMap::new(), &mut Lookups::default()), text.clone());
        prop_assert_eq!(editor(&text, &BTreeMap::new(), &BTreeMap::new(), &mut Lookups::default()), text);
    }

    #[test]
    fn inserted_value_is_not_expanded_again(value in ".{0,20}", before in "[^$]{0,9}", after in "[^$]{0,9}") {
        let env = BTreeMap::from([("V".to_owned(), value.clone())]);
        let text = format!("{before}${{V}}{after}");
        prop_assert_eq!(braces(&text, &env, &mut Lookups::default()), format!("{before}{value}{after}"));
    }
}
