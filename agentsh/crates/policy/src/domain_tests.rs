#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use proptest::prelude::*;

use super::domain::*;
use super::model::HostPattern;

#[test]
fn domain_patterns_match_the_hosts_of_the_table() {
    for (pattern, host, expected) in [
        ("example.com", "example.com", true),
        ("example.com", "EXAMPLE.com.", true),
        ("example.com", "notexample.com", false),
        ("example.com", "example.com.evil.test", false),
        ("example.com", "a.example.com", false),
        ("example.com", "example.com..", false),
        ("example.com", "example.com\0.evil.test", false),
        ("*.example.com", "a.example.com", true),
        ("*.example.com", "a.b.example.com", false),
        ("*.example.com", "example.com", false),
        ("*.example.com", "aexample.com", false),
        ("*.example.com", ".example.com", false),
        ("**.example.com", "a.b.example.com", true),
        ("**.example.com", "a.example.com", true),
        ("**.example.com", "example.com", false),
        ("**.example.com", "xexample.com", false),
        ("bücher.example", "xn--bcher-kva.example", true),
        ("xn--bcher-kva.example", "BÜCHER.example", true),
        ("faß.example", "fass.example", false),
        ("example.com", "example。com", true),
        ("10.0.0.0/8", "10.255.1.2", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.0.0.0/8", "::ffff:10.1.1.1", true),
        ("10.0.0.0/8", "10.1", false),
        ("192.0.2.7", "192.0.2.7", true),
        ("192.0.2.7", "192.0.2.8", false),
        ("fd00::/8", "fd12::1", true),
        ("fd00::/8", "[fd12::1]", true),
        ("0.0.0.0/0", "203.0.113.9", true),
        ("0.0.0.0/0", "::1", false),
        ("::ffff:192.0.2.7", "192.0.2.7", true),
    ] {
        assert_eq!(parse_pattern(pattern).unwrap().matches(host), expected, "{pattern} on {host}");
    }
}

#[test]
fn malformed_domain_patterns_are_refused() {
    for text in [
        "",
        ".",
        "*",
        "**",
        "*.com",
        "**.com",
        "a.*.com",
        "*a.com",
        "https://example.com",
        "example.com/path",
        "exa mple.com",
        "user@example.com",
        "localhost",
        "127.0.0.1",
        "127.0.0.0/8",
        "::1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/+8",
        "10.0.0.0/",
        "a..b",
        "::ffff:10.0.0.0/104",
        "example.com%00",
        "\u{202e}moc.example",
        "*.*.example.com",
    ] {
        assert!(parse_rule(text).is_err(), "{text:?} was accepted");
    }
    for text in ["example.com:", "example.com:0", "example.com:65536", "example.com:+80", "[::2", "[::2]x"] {
        assert!(parse_rule(text).is_err(), "{text:?} was accepted");
    }
}

#[test]
fn domain_rule_matches_its_ports() {
    let rule = parse_rule("example.com:8443").unwrap();
    assert!(rule.matches("example.com", 8443));
    assert!(!rule.matches("example.com", 443));
    let rule = parse_rule("example.com").unwrap();
    assert!(rule.matches("example.com", 443) && rule.matches("example.com", 80));
    assert!(!rule.matches("example.com", 22));
    assert_eq!(parse_rule("[2001:db8::1]:22").unwrap().ports, [22]);
    assert!(parse_rule("2001:db8::1").unwrap().ports.is_empty());
}

#[test]
fn domain_pattern_covers_the_narrower_patterns_of_the_table() {
    for (outer, inner, expected) in [
        ("**.example.com", "*.example.com", true),
        ("**.example.com", "**.a.example.com", true),
        ("**.example.com", "example.com", false),
        ("*.example.com", "a.example.com", true),
        ("*.example.com", "**.example.com", false),
        ("*.example.com", "*.a.example.com", false),
        ("example.com", "example.com:443", true),
        ("example.com:443", "example.com", false),
        ("10.0.0.0/8", "10.1.0.0/16", true),
        ("10.1.0.0/16", "10.0.0.0/8", false),
    ] {
        let covers = parse_rule(outer).unwrap().covers(&parse_rule(inner).unwrap());
        assert_eq!(covers, expected, "{outer} over {inner}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in ".{0,60}") {
        let _ = parse_rule(&text);
        let _ = normalise(&text);
    }

    #[test]
    fn domain_rule_round_trips(text in "(\\*\\.|\\*\\*\\.)?[a-z0-9_-]{1,8}\\.[a-z]{2,5}(:[1-9][0-9]{0,3})?") {
        if let Ok(rule) = parse_rule(&text) {
            prop_assert_eq!(parse_rule(&rule.to_string()).unwrap(), rule);
        }
    }

    #[test]
    fn domain_normalisation_is_idempotent(text in "[a-zA-ZäöüÄ.。-]{1,20}") {
        if let Ok(Host::Name(name)) = normalise(&text) {
            prop_assert_eq!(normalise(&name), Ok(Host::Name(name.clone())));
        }
    }

    #[test]
    fn a_wildcard_never_matches_its_own_apex_or_a_longer_word(word in "[a-z]{1,6}", more in "[a-z]{1,6}") {
        let apex = format!("{word}.example");
        for pattern in [HostPattern::OneLabel(apex.clone()), HostPattern::AnyDepth(apex.clone())] {
            prop_assert!(!pattern.matches(&apex));
            let glued = format!("{}{}", more, apex);
            prop_assert!(!pattern.matches(&glued));
        }
    }
}
