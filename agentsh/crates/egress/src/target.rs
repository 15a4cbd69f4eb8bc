//! Where a URL leads, and whether agentsh may connect: parsed once for both check and connection.
//!
//! Parsed as the WHATWG specifies for browsers. A text that this parser would repair (a backslash, a line break, a missing
//! slash) is refused, because other parsers read it differently (decision 59).

use std::cell::Cell;
use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, SyntaxViolation, Url};

use super::resolve::{Answer, Lookup, ResolveError};
use super::{special_names, special_use};

/// Maximum number of names between the requested one and its addresses.
pub const MAX_CHAIN: usize = 8;

/// Maximum number of redirections of one request.
pub const MAX_REDIRECTS: usize = 3;

/// The allowed destinations besides public addresses over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// `http:` and `https:` to this machine.
    pub loopback: bool,
    /// Blocks that are not public and allowed anyway.
    pub permitted: Vec<IpNet>,
    /// The user named the address, so it may be anywhere.
    pub anywhere: bool,
}

impl Rules {
    /// For an address that the user wrote in an own setting: anywhere, in plain text on this machine alone.
    #[must_use]
    pub fn user_configured() -> Self {
        Self { loopback: true, permitted: Vec::new(), anywhere: true }
    }

    fn permits(&self, address: IpAddr) -> bool {
        let plain = address.to_canonical();
        self.anywhere
            || (self.loopback && plain.is_loopback())
            || self.permitted.iter().any(|block| block.contains(&plain))
    }
}

/// A URL that may be asked, if what its host resolves to is allowed as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    url: Url,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("it is not a URL: {0}")]
    NoUrl(String),
    #[error("other programs may parse it differently: {0}")]
    Ambiguous(&'static str),
    #[error("it contains a user name or a password; put them into a header")]
    Credentials,
    #[error("'{0}:' is not https")]
    Scheme(String),
    #[error("http is allowed only to this machine, and '{0}' is not known to be this machine")]
    PlainText(String),
    #[error("'{0}' is not a host name")]
    Name(String),
    #[error("port 0 cannot be connected to")]
    Port,
    #[error("'{name}' is not public ({why})")]
    SpecialName { name: String, why: &'static str },
    #[error("{address} is not public ({why})")]
    Special { address: IpAddr, why: &'static str },
    #[error("'{name}' resolves to {address}, which is not public ({why})")]
    LeadsTo { name: String, address: IpAddr, why: &'static str },
    #[error("'{name}' resolves to '{alias}', which is not public ({why})")]
    Alias { name: String, alias: String, why: &'static str },
    #[error("'{0}' is an alias of itself")]
    Loop(String),
    #[error("'{name}' resolves through {count} aliases; at most {MAX_CHAIN} are followed")]
    Chain { name: String, count: usize },
    #[error("it is redirected more than {MAX_REDIRECTS} times")]
    Redirects,
    #[error("it is redirected from https to http")]
    Weaker,
    #[error("it is redirected to another service of this machine, port {0}")]
    Elsewhere(u16),
    #[error("it sends messages on to {0}: if you trust that server, name this URL")]
    OtherOrigin(String),
    #[error("'{name}': {why}")]
    Unresolved { name: String, why: ResolveError },
}

impl TargetError {
    /// Stable code: `insecure-target` for what would go in plain text, else `target-not-public`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Scheme(_) | Self::PlainText(_) | Self::Weaker => "insecure-target",
            Self::Unresolved { .. } => "target-not-resolved",
            Self::OtherOrigin(_) => "other-origin",
            _ => "target-not-public",
        }
    }

    /// Whether allowing an address would allow it.
    #[must_use]
    pub fn is_about_address(&self) -> bool {
        matches!(
            self,
            Self::SpecialName { .. } | Self::Special { .. } | Self::LeadsTo { .. } | Self::Alias { .. }
        )
    }
}

impl Target {
    /// # Errors
    /// What the text alone shows to be refused.
    pub fn parse(text: &str, rules: &Rules) -> Result<Self, TargetError> {
        Self::of(read(text, None)?, rules)
    }

    /// Where a redirection from here leads: three of them at most, none from TLS to plain text, and none to another service
    /// of this machine.
    ///
    /// # Errors
    /// Like [`Target::parse`], and when the redirection itself is not followed.
    pub fn redirected(&self, location: &str, before: usize, rules: &Rules) -> Result<Self, TargetError> {
        if before >= MAX_REDIRECTS {
            return Err(TargetError::Redirects);
        }
        let next = Self::of(read(location, Some(&self.url))?, rules)?;
        if next.is_plain() && !self.is_plain() {
            return Err(TargetError::Weaker);
        }
        // An allowed service of this machine does not allow other services of it.
        if next.is_loopback() && !(self.is_loopback() && next.port() == self.port()) {
            return Err(TargetError::Elsewhere(next.port()));
        }
        Ok(next)
    }

    /// Like [`Target::parse`], for a parsed URL.
    ///
    /// # Errors
    /// Like [`Target::parse`].
    pub fn of(url: Url, rules: &Rules) -> Result<Self, TargetError> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::Credentials);
        }
        let plain = match url.scheme() {
            "https" => false,
            "http" => true,
            other => return Err(TargetError::Scheme(other.to_owned())),
        };
        if plain && !rules.loopback {
            return Err(TargetError::Scheme("http".to_owned()));
        }
        if url.port() == Some(0) {
            return Err(TargetError::Port);
        }
        let target = Self { url };
        match target.literal_address() {
            Some(address) => {
                if plain && !address.to_canonical().is_loopback() {
                    return Err(TargetError::PlainText(address.to_string()));
                }
                check_literal(address, rules)?;
            }
            None => target.check_name(rules)?,
        }
        Ok(target)
    }

    fn check_name(&self, rules: &Rules) -> Result<(), TargetError> {
        let name = self.name();
        if !special_names::is_name(name) {
            return Err(TargetError::Name(name.to_owned()));
        }
        if rules.anywhere || !rules.permitted.is_empty() || (rules.loopback && is_localhost(name)) {
            return Ok(());
        }
        match special_names::special(name) {
            Some(why) => Err(TargetError::SpecialName { name: name.to_owned(), why }),
            None => Ok(()),
        }
    }

    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The address, where the host is one.
    #[must_use]
    pub fn literal_address(&self) -> Option<IpAddr> {
        match self.url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            _ => None,
        }
    }

    fn is_loopback(&self) -> bool {
        self.literal_address()
            .map_or_else(|| is_localhost(self.name()), |address| address.to_canonical().is_loopback())
    }

    /// The host as it is asked for: without a dot at its end.
    #[must_use]
    pub fn name(&self) -> &str {
        let host = self.url.host_str().unwrap_or_default();
        host.strip_suffix('.').unwrap_or(host)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(443)
    }

    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.url.scheme() == "http"
    }

    /// The addresses to connect to.
    ///
    /// # Errors
    /// When the name cannot be resolved, or has an address that is not allowed.
    pub async fn resolve(&self, rules: &Rules, lookup: &Lookup) -> Result<Vec<IpAddr>, TargetError> {
        match self.literal_address() {
            Some(address) => Ok(vec![address.to_canonical()]),
            None => self.addresses(lookup(self.name().to_owned()).await, rules),
        }
    }

    /// Whether both are one origin: scheme, host and port.
    #[must_use]
    pub fn same_origin(&self, other: &Self) -> bool {
        self.url.origin() == other.url.origin()
    }

    /// This, where it is what the user named: the same origin, or the same host with TLS.
    ///
    /// # Errors
    /// For any other.
    pub fn of_origin(self, named: &Self) -> Result<Self, TargetError> {
        let is_upgrade = named.is_plain() && !self.is_plain() && named.name() == self.name();
        if is_upgrade || self.same_origin(named) {
            Ok(self)
        } else {
            Err(TargetError::OtherOrigin(self.url.into()))
        }
    }

    /// The addresses to connect to, from the resolver's answer: all of them, or none. A name with one address that is not
    /// allowed is not asked at its others.
    ///
    /// # Errors
    /// The first address or name that is not allowed.
    pub fn addresses(
        &self,
        answer: Result<Answer, ResolveError>,
        rules: &Rules,
    ) -> Result<Vec<IpAddr>, TargetError> {
        let name = || self.name().to_owned();
        let answer = answer.map_err(|why| TargetError::Unresolved { name: name(), why })?;
        self.check_chain(&answer.chain, rules)?;
        for address in &answer.addresses {
            if let Some(why) = special_use::special(*address)
                && !rules.permits(*address)
            {
                return Err(TargetError::LeadsTo { name: name(), address: *address, why });
            }
            if self.is_plain() && !address.to_canonical().is_loopback() {
                return Err(TargetError::PlainText(name()));
            }
        }
        if answer.addresses.is_empty() {
            return Err(TargetError::Unresolved { name: name(), why: ResolveError::NotFound });
        }
        Ok(answer.addresses)
    }

    fn check_chain(&self, chain: &[String], rules: &Rules) -> Result<(), TargetError> {
        let name = self.name();
        if chain.len() > MAX_CHAIN {
            return Err(TargetError::Chain { name: name.to_owned(), count: chain.len() });
        }
        for (index, alias) in chain.iter().enumerate() {
            if alias == name || chain.iter().take(index).any(|earlier| earlier == alias) {
                return Err(TargetError::Loop(name.to_owned()));
            }
            if rules.anywhere || !rules.permitted.is_empty() {
                continue;
            }
            if let Some(why) = special_names::special(alias) {
                return Err(TargetError::Alias { name: name.to_owned(), alias: alias.clone(), why });
            }
        }
        Ok(())
    }
}

fn read(text: &str, base: Option<&Url>) -> Result<Url, TargetError> {
    let violation = Cell::new(None);
    let note = |found: SyntaxViolation| {
        if is_ambiguous(found) && violation.get().is_none() {
            violation.set(Some(found));
        }
    };
    let parsed = Url::options().base_url(base).syntax_violation_callback(Some(&note)).parse(text);
    let url = parsed.map_err(|error| TargetError::NoUrl(error.to_string()))?;
    match violation.get() {
        Some(found) => Err(TargetError::Ambiguous(found.description())),
        None => Ok(url),
    }
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

fn check_literal(address: IpAddr, rules: &Rules) -> Result<(), TargetError> {
    if rules.permits(address) {
        return Ok(());
    }
    // A resolver may translate an IPv4 address for this network; there is no reason to write a translated one into a policy.
    let why = special_use::special(address)
        .or_else(|| special_use::is_translated(address).then_some("IPv4 translated to IPv6, RFC 6052"));
    why.map_or(Ok(()), |why| Err(TargetError::Special { address, why }))
}

/// Faults that readers repair in different ways, or not at all. The others change no host.
fn is_ambiguous(violation: SyntaxViolation) -> bool {
    matches!(
        violation,
        SyntaxViolation::Backslash
            | SyntaxViolation::C0SpaceIgnored
            | SyntaxViolation::ExpectedDoubleSlash
            | SyntaxViolation::NullInFragment
            | SyntaxViolation::TabOrNewlineIgnored
            | SyntaxViolation::UnencodedAtSign
    )
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
