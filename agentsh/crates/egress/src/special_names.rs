//! Names that are not on the public internet. Pure.
//!
//! Such a name means this machine, a machine nearby, or nothing, even if it resolves to another address.

/// Last labels, each with why nothing below it is public.
const SUFFIXES: &[(&str, &str)] = &[
    ("alt", "not in the DNS, RFC 9476"),
    ("arpa", "infrastructure of the DNS, RFC 3172"),
    ("cluster", "inside a cluster"),
    ("consul", "inside a cluster"),
    ("corp", "private, RFC 6762"),
    ("domain", "private"),
    ("example", "documentation, RFC 6761"),
    ("home", "private, RFC 6762"),
    ("internal", "private, reserved by ICANN"),
    ("intranet", "private, RFC 6762"),
    ("invalid", "never exists, RFC 6761"),
    ("lan", "private, RFC 6762"),
    ("local", "this link, RFC 6762"),
    ("localdomain", "this machine"),
    ("localhost", "this machine, RFC 6761"),
    ("mail", "private, never delegated"),
    ("onion", "Tor, RFC 7686"),
    ("private", "private, RFC 6762"),
    ("svc", "inside a cluster"),
    ("test", "for tests, RFC 6761"),
];

/// Whole names, with everything below them, that clouds answer with the address of their metadata service.
const METADATA: &[&str] =
    &["metadata.goog", "metadata.packet.net", "metadata.platformequinix.com", "metadata.tencentyun.com"];

/// Why a name is not public; None for a public one. `name` is in lower case and ASCII, as the parser of URLs gives it, without
/// a dot at its end.
#[must_use]
pub fn special(name: &str) -> Option<&'static str> {
    let Some((_, last)) = name.rsplit_once('.') else {
        return Some("one label: a name of the local network");
    };
    if let Some((_, why)) = SUFFIXES.iter().find(|(suffix, _)| *suffix == last) {
        return Some(why);
    }
    let below =
        |parent: &str| name.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if METADATA.iter().any(|parent| below(parent)) || name.starts_with("instance-data.") {
        return Some("cloud metadata");
    }
    None
}

/// Whether a text can be in a DNS query.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|label| (1..=63).contains(&label.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_names_are_recognised_by_their_suffix() {
        for name in [
            "localhost",
            "a.localhost",
            "db.internal",
            "metadata.google.internal",
            "x.svc.cluster.local",
            "nas.home",
            "printer.lan",
            "router.home.arpa",
            "1.0.0.127.in-addr.arpa",
            "wpad.corp",
            "x.onion",
            "a.test",
            "metadata.goog",
            "v1.metadata.goog",
            "instance-data.eu-west-1.compute.amazonaws.com",
            "web.default.svc",
        ] {
            assert!(special(name).is_some(), "{name}");
        }
        for name in [
            "example.com",
            "internal.example.com",
            "localhost.example.com",
            "home.dev",
            "notmetadata.goog",
            "corp.com",
            "127.0.0.1.nip.io",
            "mcp.linear.app",
            "xn--bcher-kva.example.org",
            "local.host",
        ] {
            assert_eq!(special(name), None, "{name}");
        }
    }

    #[test]
    fn host_names_need_valid_labels() {
        assert!(is_name("a.b") && is_name(&"a".repeat(63)));
        assert!(!is_name("a..b") && !is_name("") && !is_name(".a") && !is_name(&"a".repeat(64)));
        assert!(!is_name(&"a.".repeat(130)));
    }
}
