//! Host and port of an address in a configuration.

use std::net::IpAddr;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Lower case; a literal IPv6 address without brackets.
    pub host: String,
    pub port: u16,
}

impl Address {
    /// A URL, `host:port` or a host alone; `port` is what it means when it names none. None when it is not an address.
    #[must_use]
    pub fn parse(text: &str, port: u16) -> Option<Self> {
        Self::list(text, port).into_iter().next()
    }

    /// Like [`Address::parse`], for several hosts separated by commas, as in database URLs.
    #[must_use]
    pub fn list(text: &str, port: u16) -> Vec<Self> {
        let (port, rest) = match text.split_once("://") {
            Some(("http", rest)) => (80, rest),
            Some(("https", rest)) => (443, rest),
            Some((_, rest)) => (port, rest),
            None => (port, text),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let hosts = authority.rsplit('@').next().unwrap_or_default();
        hosts.split(',').filter_map(|host| parse_address(host, port)).collect()
    }

    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

fn parse_address(text: &str, port: u16) -> Option<Address> {
    let (host, written) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match written.filter(|written| !written.is_empty()) {
        Some(written) => written.parse().ok()?,
        None => port,
    };
    let plain =
        |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter) || !letter.is_ascii();
    let valid = !host.is_empty() && host.len() <= 255 && host.chars().all(plain) && port != 0;
    valid.then(|| Address { host: host.to_lowercase(), port })
}

/// A URL for messages and records: without what may be a key.
#[must_use]
pub fn shown_url(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut parsed) => {
            parsed.set_query(None);
            parsed.set_fragment(None);
            // Only a URL without a host has no place for them.
            let _ = parsed.set_username("").and_then(|()| parsed.set_password(None));
            parsed.to_string()
        }
        Err(_) => "a URL that cannot be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_what_people_write() {
        for (text, expected) in [
            ("https://registry.example/npm/", Some(("registry.example", 443))),
            ("http://127.0.0.1:4873", Some(("127.0.0.1", 4873))),
            ("http://user:p@ss@Host.Example:8080/x?y", Some(("host.example", 8080))),
            ("postgresql://u:p@db.example/app", Some(("db.example", 9))),
            ("redis://[::1]:6379", Some(("::1", 6379))),
            ("db.example:5432", Some(("db.example", 5432))),
            ("db.example", Some(("db.example", 9))),
            ("https://", None),
            ("https://a b/", None),
            ("host:99999", None),
            ("[::1", None),
            ("", None),
        ] {
            let found = Address::parse(text, 9);
            let found = found.as_ref().map(|address| (address.host.as_str(), address.port));
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(Address::list("mongodb://u:p@a.example:1,b.example/db", 27017).len(), 2);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,60}") {
            let _ = Address::list(&text, 1);
        }
    }
}
