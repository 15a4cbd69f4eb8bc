//! Which addresses a server behind a URL may have.

use url::{Host, Url};

use crate::egress::target::Rules;
use crate::session::Facts;
use crate::types::ServerId;

/// Public addresses over TLS; and this machine where the user says so, and the networks that the server's rules name.
pub fn rules(facts: &Facts, id: &ServerId, url: &str, users_word: bool) -> Rules {
    let mut rules = Rules::default();
    let Ok(url) = Url::parse(url) else { return rules };
    let port = url.port_or_known_default().unwrap_or(443);
    rules.loopback = users_word && is_here(&url);
    if let Some(server) = facts.policy.mcp.servers.get(id) {
        let network = &server.process.network;
        rules.loopback |= is_here(&url) && network.loopback.iter().any(|open| open.value == port);
        let host = url.host_str().unwrap_or_default();
        let named = network.allow.iter().filter(|rule| rule.value.matches(host, port));
        rules.permitted =
            named.flat_map(|rule| rule.value.addresses.iter().map(|block| block.value)).collect();
    }
    rules
}

pub fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
