//! Host names and patterns in a policy, and whether a host matches.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use ipnet::IpNet;

use super::model::{HostPattern, NetworkRule, RequestRule};

/// Ports of a rule that names none.
pub const DEFAULT_PORTS: [u16; 2] = [443, 80];

/// The destination of a connection, normalised for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// Lower case, IDNA-mapped, without a trailing dot.
    Name(String),
    Address(IpAddr),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the host name is empty")]
    Empty,
    #[error("`{0}` is not a host name")]
    Invalid(String),
    #[error("`{0}` looks like an address in a spelling that programs read differently")]
    OddAddress(String),
    #[error("`{0}` is a URL or a path; write only the host, as `example.com`")]
    Url(String),
    #[error("`{0}` would allow too much: a wildcard needs at least two labels after it")]
    TooWide(String),
    #[error("`{0}`: a wildcard must be the whole first label: `*.` or `**.`")]
    Wildcard(String),
    #[error("`{0}` is this machine; open one of its ports with `loopback: [PORT]`")]
    Loopback(String),
    #[error("`{0}` is not a port; ports are 1 to 65535")]
    Port(String),
    #[error("`{0}` is not an address block: the prefix length is wrong")]
    Prefix(String),
    #[error("`{0}` has bits set behind its prefix length; did you mean `{1}`?")]
    HostBits(String, String),
}

impl Host {
    /// Whether it is this machine itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }
}

/// The one spelling of a host that a program asks for.
///
/// # Errors
/// When it is not a host at all, or an address in an old spelling such as `127.1` or `0x7f000001`.
pub fn normalise(host: &str) -> Result<Host, HostError> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = IpAddr::from_str(bare) {
        return Ok(Host::Address(address.to_canonical()));
    }
    name(host).map(Host::Name)
}

/// One entry of `network.allow` as text: `host`, `host:port`, an address or a block of them.
///
/// # Errors
/// Says what is wrong with it.
pub fn parse_rule(text: &str) -> Result<NetworkRule, HostError> {
    let (host, port) = split_port(text)?;
    Ok(NetworkRule::plain(parse_pattern(host)?, port.into_iter().collect()))
}

/// `host:port`, with `[...]` around an IPv6 address that is followed by a port.
///
/// # Errors
/// When the port is not a number from 1 to 65535.
pub fn split_port(text: &str) -> Result<(&str, Option<u16>), HostError> {
    let invalid = || HostError::Invalid(shown(text));
    if let Some(inside) = text.strip_prefix('[') {
        let (address, rest) = inside.split_once(']').ok_or_else(invalid)?;
        return match rest.strip_prefix(':') {
            Some(number) => Ok((address, Some(port(number)?))),
            None if rest.is_empty() => Ok((address, None)),
            None => Err(invalid()),
        };
    }
    if text.contains("://") {
        return Err(HostError::Url(shown(text)));
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, number)) => Ok((host, Some(port(number)?))),
        None => Ok((text, None)),
    }
}

/// A host without a port, as a policy writes it.
///
/// # Errors
/// Says what is wrong with it.
pub fn parse_pattern(text: &str) -> Result<HostPattern, HostError> {
    if text.contains("://") {
        return Err(HostError::Url(shown(text)));
    }
    if let Some((address, prefix)) = text.split_once('/') {
        return block(text, address, prefix);
    }
    if let Ok(address) = IpAddr::from_str(text) {
        let address = address.to_canonical();
        return loopback_address(address, text)
            .map_or(Ok(HostPattern::Net(address, full_length(address))), Err);
    }
    for (prefix, any_depth) in [("**.", true), ("*.", false)] {
        if let Some(rest) = text.strip_prefix(prefix) {
            let apex = wildcard_name(text, rest)?;
            return Ok(if any_depth { HostPattern::AnyDepth(apex) } else { HostPattern::OneLabel(apex) });
        }
    }
    if text.contains('*') {
        return Err(if text.trim_matches('*').is_empty() {
            HostError::TooWide(shown(text))
        } else {
            HostError::Wildcard(shown(text))
        });
    }
    let name = name(text)?;
    if name == "localhost" || name.ends_with(".localhost") {
        return Err(HostError::Loopback(name));
    }
    Ok(HostPattern::Exact(name))
}

impl HostPattern {
    /// Whether `host`, as a program asked for it, is meant. A host that is not valid never is.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        normalise(host).is_ok_and(|host| self.matches_host(&host))
    }

    /// Like [`Self::matches`], for a normalised host.
    #[must_use]
    pub fn matches_host(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(wanted), Host::Name(name)) => wanted == name,
            (Self::OneLabel(apex), Host::Name(name)) => {
                labels_before(name, apex).is_some_and(|labels| !labels.contains('.'))
            }
            (Self::AnyDepth(apex), Host::Name(name)) => labels_before(name, apex).is_some(),
            // The unspecified address reaches this machine, so it is in no block.
            (Self::Net(network, prefix), Host::Address(address)) => {
                !address.is_unspecified() && in_block(*network, *prefix, *address)
            }
            (Self::Net(..), Host::Name(_)) | (_, Host::Address(_)) => false,
        }
    }

    /// Whether this rule matches everything that `inner` matches.
    #[must_use]
    pub fn covers(&self, inner: &Self) -> bool {
        match (self, inner) {
            (Self::AnyDepth(apex), Self::OneLabel(other) | Self::AnyDepth(other)) => {
                apex == other || labels_before(other, apex).is_some()
            }
            (Self::OneLabel(apex), Self::OneLabel(other)) => apex == other,
            (_, Self::Exact(name)) => self.matches_host(&Host::Name(name.clone())),
            (Self::Net(network, prefix), Self::Net(other, other_prefix)) => {
                prefix <= other_prefix && in_block(*network, *prefix, *other)
            }
            _ => false,
        }
    }
}

impl NetworkRule {
    /// A rule without any of the extra conditions.
    #[must_use]
    pub fn plain(host: HostPattern, ports: Vec<u16>) -> Self {
        Self { host, ports, any_tcp: false, inspect: false, requests: Vec::new(), addresses: Vec::new() }
    }

    /// The ports it opens.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        if self.ports.is_empty() { &DEFAULT_PORTS } else { &self.ports }
    }

    #[must_use]
    pub fn matches(&self, host: &str, port: u16) -> bool {
        self.ports().contains(&port) && self.host.matches(host)
    }

    /// Whether everything that `inner` opens is open here too.
    #[must_use]
    pub fn covers(&self, inner: &Self) -> bool {
        self.host.covers(&inner.host)
            && inner.ports().iter().all(|port| self.ports().contains(port))
            && self.permits_conditions_of(inner)
    }

    /// Whether everything that passes the conditions of `inner`, except host and ports, passes the ones here too.
    #[must_use]
    pub fn permits_conditions_of(&self, inner: &Self) -> bool {
        let any_request = self.requests.is_empty();
        let is_listed = |request: &RequestRule| self.requests.iter().any(|own| own.value.covers(request));
        let requests = any_request
            || (!inner.requests.is_empty() && inner.requests.iter().all(|request| is_listed(&request.value)));
        let is_permitted = |block: &IpNet| self.addresses.iter().any(|own| own.value.contains(block));
        (self.any_tcp || !inner.any_tcp)
            && (inner.inspect || !self.inspect)
            && requests
            && inner.addresses.iter().all(|block| is_permitted(&block.value))
    }

    /// Whether the conditions are the same, host and ports aside.
    #[must_use]
    pub fn has_conditions_of(&self, other: &Self) -> bool {
        self.permits_conditions_of(other) && other.permits_conditions_of(self)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::OneLabel(apex) => write!(f, "*.{apex}"),
            Self::AnyDepth(apex) => write!(f, "**.{apex}"),
            Self::Net(address, prefix) if *prefix == full_length(*address) => write!(f, "{address}"),
            Self::Net(address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

impl fmt::Display for NetworkRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v6 = matches!(self.host, HostPattern::Net(IpAddr::V6(_), _));
        match self.ports.as_slice() {
            [] => write!(f, "{}", self.host)?,
            [port] if v6 => write!(f, "[{}]:{port}", self.host)?,
            [port] => write!(f, "{}:{port}", self.host)?,
            ports => write!(f, "{} ports {ports:?}", self.host)?,
        }
        if self.any_tcp {
            f.write_str(" (any TCP)")?;
        }
        if self.inspect {
            f.write_str(" (inspected")?;
            for (at, request) in self.requests.iter().enumerate() {
                write!(f, "{} {}", if at == 0 { ":" } else { "," }, request.value)?;
            }
            f.write_str(")")?;
        }
        if !self.addresses.is_empty() {
            let blocks: Vec<String> =
                self.addresses.iter().take(MAX_SHOWN_BLOCKS).map(|block| block.value.to_string()).collect();
            write!(f, " (may lead to {}", blocks.join(", "))?;
            match self.addresses.len() - blocks.len() {
                0 => f.write_str(")")?,
                more => write!(f, " and {more} more networks)")?,
            }
        }
        Ok(())
    }
}

/// Networks that a rule is shown with: those of the user may be over a hundred.
const MAX_SHOWN_BLOCKS: usize = 3;

/// Lower case, IDNA-mapped, no trailing dot, every label valid.
fn name(text: &str) -> Result<String, HostError> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    // No name in the domain system is longer, and a shorter bound keeps the mapping cheap.
    if text.len() > 1024 {
        return Err(HostError::Invalid(shown(text)));
    }
    let mapped = Uts46::new()
        .to_ascii(text.as_bytes(), AsciiDenyList::URL, Hyphens::Allow, DnsLength::Verify)
        .map_err(|_| HostError::Invalid(shown(text)))?;
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if !mapped.bytes().all(allowed) || mapped.split('.').any(|label| label.is_empty()) {
        return Err(HostError::Invalid(shown(text)));
    }
    let last = mapped.rsplit('.').next().unwrap_or("");
    let hexadecimal = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if hexadecimal || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HostError::OddAddress(shown(text)));
    }
    Ok(mapped.into_owned())
}

fn wildcard_name(text: &str, rest: &str) -> Result<String, HostError> {
    if rest.contains('*') {
        return Err(HostError::Wildcard(shown(text)));
    }
    let apex = name(rest)?;
    if !apex.contains('.') {
        return Err(HostError::TooWide(shown(text)));
    }
    Ok(apex)
}

fn block(text: &str, address: &str, prefix: &str) -> Result<HostPattern, HostError> {
    let address = IpAddr::from_str(address).map_err(|_| HostError::Url(shown(text)))?;
    let wrong = || HostError::Prefix(shown(text));
    if prefix.len() > 3 || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
    if prefix > full_length(address) {
        return Err(wrong());
    }
    // A block of IPv4 addresses in IPv6 clothes would never match: hosts are compared as IPv4.
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(HostError::Invalid(shown(text)));
    }
    let network = masked(address, prefix);
    if network != address {
        return Err(HostError::HostBits(shown(text), format!("{network}/{prefix}")));
    }
    loopback_address(network, text).map_or(Ok(HostPattern::Net(network, prefix)), Err)
}

fn loopback_address(address: IpAddr, text: &str) -> Option<HostError> {
    address.is_loopback().then(|| HostError::Loopback(shown(text)))
}

fn in_block(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    full_length(network) == full_length(address) && masked(address.to_canonical(), prefix) == network
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

fn full_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The labels before `.apex`, if there are any.
fn labels_before<'n>(name: &'n str, apex: &str) -> Option<&'n str> {
    name.strip_suffix(apex)?.strip_suffix('.').filter(|labels| !labels.is_empty())
}

fn port(text: &str) -> Result<u16, HostError> {
    let wrong = || HostError::Port(shown(text));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}
