//! Parses an authority (`user:password@host:port`) as WHATWG does.

use std::net::IpAddr;

use url::Url;

use super::Target;
use crate::policy::domain::{Host, normalise};

pub(super) struct Authority {
    pub target: Target,
    pub port: Option<u16>,
}

/// Reads an authority without slashes in front of it. None when it is empty: `http://` alone names nothing.
pub(super) fn read(authority: &str) -> Option<Authority> {
    if authority.is_empty() {
        return None;
    }
    // The scheme decides how hosts are read, and programs for other schemes read them as those of the web do.
    let url = Url::parse(&format!("https://{authority}/"));
    let Some(host) = url.as_ref().ok().and_then(|url| url.host()) else {
        return Some(Authority { target: unreadable(authority), port: None });
    };
    // The parser leaves out the port that its scheme implies.
    let written = authority.rsplit(':').next().and_then(|port| port.parse().ok());
    let port = url.as_ref().ok().and_then(Url::port).or(written.filter(|port| *port == 443));
    let target = match host {
        url::Host::Ipv4(address) => Target::Host(Host::Address(IpAddr::V4(address))),
        url::Host::Ipv6(address) => Target::Host(Host::Address(IpAddr::V6(address).to_canonical())),
        url::Host::Domain(name) => named(name),
    };
    Some(Authority { target, port })
}

/// The target of a host name alone.
pub(super) fn named(name: &str) -> Target {
    normalise(name).map_or_else(|_| unreadable(name), Target::Host)
}

pub(super) fn unreadable(text: &str) -> Target {
    Target::Unreadable(text.chars().take(80).collect())
}
