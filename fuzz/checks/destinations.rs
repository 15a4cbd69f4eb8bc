//! Each found host is in the text, in one spelling; no text before it hides an address on its own line; an unlisted
//! host is not allowed.

use super::dlp::destination::{Destination, Target, find, find_in_views, judge};
use super::dlp::text::{Decoded, Limits};
use super::policy::domain::{Host, normalise, parse_rule};
use super::policy::{NetworkRule, Ruled};
use super::types::RuleRef;

/// Keys of a text, which differ in meaning.
const KEYS: [Option<&str>; 6] =
    [None, Some("url"), Some("command"), Some("path"), Some("text"), Some("host")];

pub fn check(data: &[u8]) {
    let Some((key, bytes)) = data.split_first() else { return };
    let key = KEYS[usize::from(*key) % KEYS.len()];
    let text = String::from_utf8_lossy(bytes);
    let rules: Vec<Ruled<NetworkRule>> = ["good.example.com", "*.cdn.example.org", "192.0.2.0/24"]
        .iter()
        .filter_map(|text| parse_rule(text).ok())
        .map(|value| Ruled { value, rule: RuleRef::default_rule("allowed_domains") })
        .collect();
    let mut found = Vec::new();
    find(&text, key, &mut |destination| found.push(destination));
    for destination in &found {
        well_formed(destination, &text);
        let allowed = !judge(destination, &rules).is_forbidden();
        let listed = |host: &Host| match host {
            Host::Name(name) => {
                name == "good.example.com"
                    || name.strip_suffix(".cdn.example.org").is_some_and(|label| !label.contains('.'))
            }
            Host::Address(address) => match address {
                std::net::IpAddr::V4(v4) => v4.octets().starts_with(&[192, 0, 2]),
                std::net::IpAddr::V6(_) => false,
            },
        };
        let may = match &destination.target {
            Target::Host(host) => listed(host) || destination.form.as_str() == "mail",
            Target::Unreadable(_) => false,
        };
        assert_eq!(allowed, may, "{destination:?}");
    }
    // Each byte can begin a few forms, no more.
    assert!(found.len() <= 16 * text.len() + 16, "{} found in {} bytes", found.len(), text.len());

    let mut seen = Vec::new();
    find_in_views(&text, &Decoded::of(&text, &Limits::default()), key, &mut |destination| {
        well_formed(&destination, &text);
        seen.push(destination);
    });
    for destination in &found {
        assert!(seen.contains(destination), "not found among the views: {destination:?}");
    }

    let planted = format!("{text}\nhttps://planted.example.net/x\n");
    let mut is_there = false;
    find(&planted, key, &mut |destination| {
        is_there |=
            matches!(&destination.target, Target::Host(Host::Name(name)) if name == "planted.example.net");
    });
    assert!(is_there, "the text in front hides an address");
}

fn well_formed(destination: &Destination, text: &str) {
    assert!(text.get(destination.at.clone()).is_some(), "{destination:?}");
    if let Some(scheme) = &destination.scheme {
        assert_eq!(*scheme, scheme.to_ascii_lowercase());
    }
    match &destination.target {
        Target::Host(host @ Host::Name(name)) => assert_eq!(normalise(name).as_ref(), Ok(host)),
        Target::Host(Host::Address(address)) => assert_eq!(*address, address.to_canonical()),
        Target::Unreadable(shown) => assert!(shown.chars().count() <= 80, "{shown}"),
    }
}
