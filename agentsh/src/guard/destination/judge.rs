//! Whether a destination is allowed. Whatever is not clearly listed is not.

use crate::policy::{HostPattern, Ruled};
use crate::types::RuleRef;

use super::{Destination, Form, Target};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Judgement<'r> {
    Allowed(&'r RuleRef),
    /// A mail address whose host no rule names. A message to it leaves through the server that sends mail, so
    /// that what it carries decides, not where a connection goes.
    Addressee,
    /// No rule names the host.
    NotListed,
    /// Nobody can say what the host is.
    Unreadable,
}

impl Judgement<'_> {
    /// Whether the call has to be refused.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::NotListed | Self::Unreadable)
    }
}

/// Judges by the first rule that names the host. Ports are not looked at: the network layer does.
pub fn judge<'r>(destination: &Destination, allowed: &'r [Ruled<HostPattern>]) -> Judgement<'r> {
    let Target::Host(host) = &destination.target else { return Judgement::Unreadable };
    let rule = allowed.iter().find(|pattern| pattern.value.matches_host(host));
    match rule {
        Some(rule) => Judgement::Allowed(&rule.rule),
        None if destination.form == Form::Mail => Judgement::Addressee,
        None => Judgement::NotListed,
    }
}
