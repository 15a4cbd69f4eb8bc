//! What is asked of whoever looks into arguments and results.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::guard::flow::Labels;
use crate::guard::taint::marker::Position;
use crate::policy::{ExfiltrationPolicy, MarkerPlace, NetworkRule, OnFlow, Ruled};
use crate::types::{RuleRef, ServerId};

/// What happens when something is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseMode {
    /// It is recorded and goes on.
    Log,
    /// It is recorded and refused.
    Halt,
    /// It waits for a person.
    Ask,
    /// It is recorded, told to the webhook, and goes on.
    Alert,
}

impl ResponseMode {
    #[must_use]
    pub fn of_policy(action: OnFlow) -> Self {
        match action {
            OnFlow::Block => Self::Halt,
            OnFlow::Ask => Self::Ask,
            OnFlow::Alert => Self::Alert,
            OnFlow::Allow => Self::Log,
        }
    }
}

/// Where the marker stands.
#[must_use]
pub fn position(place: MarkerPlace) -> Position {
    match place {
        MarkerPlace::Suffix => Position::Suffix,
        MarkerPlace::Prefix => Position::Prefix,
        MarkerPlace::Both => Position::Both,
        MarkerPlace::Between => Position::Between,
    }
}

/// The hosts that arguments may name.
#[derive(Clone, Debug)]
pub struct Destinations {
    pub allowed: Vec<Ruled<NetworkRule>>,
    /// Where the list stands.
    pub rule: RuleRef,
}

impl Destinations {
    #[must_use]
    pub fn of(allowed: &[Ruled<NetworkRule>], rule: RuleRef) -> Self {
        Self { allowed: allowed.to_vec(), rule }
    }
}

#[derive(Debug)]
pub struct Settings {
    pub mode: ResponseMode,
    pub lifetime: Duration,
    /// None: no result is changed.
    pub marker: Option<Position>,
    /// None: destinations are left to the network of the servers.
    pub destinations: Option<Destinations>,
    /// What is known of each server; one that is missing is private and leaves.
    pub labels: Rc<RefCell<BTreeMap<ServerId, Labels>>>,
    /// What the policy says of pairs of servers.
    pub policy: ExfiltrationPolicy,
    /// What becomes of a call after a private read where the policy says nothing of it. None: it goes.
    pub unwritten: Option<Unwritten>,
}

/// What becomes of a call after a private read where nobody wrote anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// A person is asked, who is there.
    Ask,
    /// The first one is told for each pair of servers.
    TellOnce,
}

impl Settings {
    /// What `sandbox.mcp.exfiltration` asks for.
    #[must_use]
    pub fn of_policy(policy: &ExfiltrationPolicy, labels: Rc<RefCell<BTreeMap<ServerId, Labels>>>) -> Self {
        let domains = policy.allowed_domains.as_ref();
        Self {
            mode: ResponseMode::of_policy(policy.on_detection),
            lifetime: LIFETIME,
            marker: policy.marker.map(position),
            destinations: domains.map(|list| Destinations::of(&list.value, list.rule.clone())),
            labels,
            policy: policy.clone(),
            unwritten: None,
        }
    }

    /// As [`Settings::of_policy`], for `run` and `mcp run`: gentle where nobody wrote the section. `can_ask`: a person may
    /// be there.
    #[must_use]
    pub fn in_run(
        policy: &ExfiltrationPolicy,
        labels: Rc<RefCell<BTreeMap<ServerId, Labels>>>,
        can_ask: bool,
    ) -> Self {
        Self {
            mode: ResponseMode::of_policy(policy.in_run()),
            marker: policy.marker_in_run().map(position),
            unwritten: Some(if can_ask { Unwritten::Ask } else { Unwritten::TellOnce }),
            ..Self::of_policy(policy, labels)
        }
    }
}

/// How long a result is remembered unless somebody says otherwise.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// As the reports of `@exfil/canary` write it.
#[must_use]
pub fn action_taken(mode: ResponseMode) -> &'static str {
    match mode {
        ResponseMode::Log => "logged",
        ResponseMode::Halt => "halted",
        ResponseMode::Ask => "asked",
        ResponseMode::Alert => "alerted",
    }
}
