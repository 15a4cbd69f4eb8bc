//! Whether a destination is allowed: only if it is clearly listed.

use crate::policy::domain::Host;
use crate::policy::{NetworkRule, Ruled};
use crate::types::RuleRef;

use super::{Destination, Form, Target};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Judgement<'r> {
    Allowed(&'r RuleRef),
    /// A mail address whose host no rule names. A message to it leaves through the mail server, so its content
    /// decides, not the destination of a connection.
    Addressee,
    /// The name of a standard (a namespace), which many documents contain and no program connects to.
    Namespace,
    /// No rule names the host.
    NotListed,
    /// The host cannot be determined.
    Unreadable,
}

impl Judgement<'_> {
    /// Whether the call has to be refused.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::NotListed | Self::Unreadable)
    }
}

/// Judges by the first rule that names the host, and the port where it names one.
pub fn judge<'r>(destination: &Destination, allowed: &'r [Ruled<NetworkRule>]) -> Judgement<'r> {
    let Target::Host(host) = &destination.target else { return Judgement::Unreadable };
    let rule = allowed
        .iter()
        .find(|rule| rule.value.host.matches_host(host) && is_port_of(destination, &rule.value.ports));
    match rule {
        Some(rule) => Judgement::Allowed(&rule.rule),
        None if destination.form == Form::Mail => Judgement::Addressee,
        None if is_namespace(host) => Judgement::Namespace,
        None => Judgement::NotListed,
    }
}

/// Hosts whose addresses name vocabularies. Their operators would not help an attacker.
const NAMESPACES: [&str; 16] = [
    "www.w3.org",
    "w3.org",
    "json-schema.org",
    "schema.org",
    "xmlns.com",
    "purl.org",
    "schemas.xmlsoap.org",
    "schemas.microsoft.com",
    "schemas.openxmlformats.org",
    "schemas.android.com",
    "maven.apache.org",
    "ns.adobe.com",
    "www.sitemaps.org",
    "app.kubernetes.io",
    "helm.sh",
    "tempuri.org",
];

fn is_namespace(host: &Host) -> bool {
    matches!(host, Host::Name(name) if NAMESPACES.contains(&name.as_str()))
}

/// A host without scheme and port is only its name; a scheme says which port is meant.
fn is_port_of(destination: &Destination, ports: &[u16]) -> bool {
    let implied = match destination.scheme.as_deref() {
        Some("http" | "ws") => Some(80),
        Some("https" | "wss") => Some(443),
        Some("ftp") => Some(21),
        _ => None,
    };
    match destination.port.or(implied) {
        Some(port) => ports.is_empty() || ports.contains(&port),
        None => ports.is_empty() || destination.scheme.is_none(),
    }
}
