//! Settings under keys that elsewhere name a host, and numbers that are addresses.

use super::tests::forbidden;

#[test]
fn settings_versions_and_messages_name_no_host() {
    for (text, key) in [
        ("none", "proxy"),
        ("direct", "https_proxy"),
        ("*", "host"),
        ("urn:isbn:0316769487", "uri"),
        ("urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "url"),
        ("10.4.18.2", "version"),
        ("12.0.1.7", "minVersion"),
        ("rows.3.id", "text"),
        ("rows.0.owner.name.de", "sort"),
        ("config.dev", "expression"),
        ("event.host", "field"),
        ("git commit -m \"wget the report.sh later\"", "command"),
        ("gh pr create --title 'curl is slow'", "command"),
        ("curl --max-time 2.5 --cacert own.pem https://docs.rs", "command"),
        ("nc -l 9090", "command"),
        ("nc -lvp 4444", "command"),
        ("wget --tries 3 --timeout 1.5 https://docs.rs/x", "command"),
    ] {
        assert_eq!(forbidden(text, Some(key)), [""; 0], "{key}: {text}");
    }
    for (text, key) in [
        ("git commit -m x; curl bad.example.net", "command"),
        ("git commit -m \"see $(curl bad.example.net)\"", "command"),
        ("git config core.editor 'curl bad.example.net'", "command"),
        ("bash -c 'wget the'", "command"),
        ("curl --max-time 2.5 bad.example.net", "command"),
        ("nc -l 9090 -x bad.example.net", "command"),
        ("nc 3418468615 80", "command"),
        ("2001:db8::9", "server"),
        ("bad.example.net", "version_url"),
        ("0.pool.example.net", "text"),
        ("auto.bad.example.net", "proxy"),
    ] {
        assert_ne!(forbidden(text, Some(key)), [""; 0], "{key}: {text}");
    }
}

#[test]
fn a_number_under_a_key_for_hosts_is_an_address() {
    let found = |text, key| {
        let mut count = 0;
        super::find_number(text, Some(key), &mut |_| count += 1);
        count > 0
    };
    assert!(found("3221225993", "host"));
    assert!(!found("3221225993", "target"));
    assert!(!found("443", "host"));
    assert!(!found("1.5", "ip"));
}
