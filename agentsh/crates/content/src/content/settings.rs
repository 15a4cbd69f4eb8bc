//! Settings of the search in arguments and results.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_dlp::flow::Labels;
use agentsh_guard::Outcome;
use agentsh_policy::{ExfiltrationPolicy, MarkerPlace, NetworkRule, OnFlow, Ruled};

/// The hosts that arguments may name.
#[derive(Clone, Debug)]
pub struct Destinations {
    pub allowed: Vec<Ruled<NetworkRule>>,
    /// The place of the list.
    pub rule: RuleRef,
    /// A host outside of the list is refused, whatever is done about other findings.
    pub is_closed: bool,
}

impl Destinations {
    #[must_use]
    pub fn only_listed(allowed: &[Ruled<NetworkRule>], rule: RuleRef) -> Self {
        Self { is_closed: true, ..Self::of(allowed, rule) }
    }

    #[must_use]
    pub fn of(allowed: &[Ruled<NetworkRule>], rule: RuleRef) -> Self {
        Self { allowed: allowed.to_vec(), rule, is_closed: false }
    }
}

#[derive(Debug)]
pub struct Settings {
    /// The reaction to a copy that is about to leave.
    pub mode: OnFlow,
    pub lifetime: Duration,
    /// None: no result is changed.
    pub marker: Option<MarkerPlace>,
    /// None: destinations are left to the network of the servers.
    pub destinations: Option<Destinations>,
    /// The labels of each server; a missing one is private and external.
    pub labels: Rc<RefCell<BTreeMap<ServerId, Labels>>>,
    /// The policy about pairs of servers.
    pub policy: ExfiltrationPolicy,
    /// The outcome of a call after a private read if the policy says nothing. None: it passes.
    pub unwritten: Option<AfterReadAction>,
}

/// The default outcome of a call after a private read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterReadAction {
    /// A person is asked, and one is present.
    Ask,
    /// One alert for each pair of servers.
    TellOnce,
}

impl Settings {
    /// The settings of `sandbox.mcp.exfiltration`.
    #[must_use]
    pub fn of_policy(policy: &ExfiltrationPolicy, labels: Rc<RefCell<BTreeMap<ServerId, Labels>>>) -> Self {
        let domains = policy.allowed_domains.as_ref();
        Self {
            mode: policy.on_detection,
            lifetime: LIFETIME,
            marker: policy.marker,
            destinations: domains.map(|list| Destinations::of(&list.value, list.rule.clone())),
            labels,
            policy: policy.clone(),
            unwritten: None,
        }
    }

    /// Like [`Settings::of_policy`], for `run` and `mcp run`: alerts if the policy has no such section. `can_ask`: a person
    /// may answer.
    #[must_use]
    pub fn in_run(
        policy: &ExfiltrationPolicy,
        labels: Rc<RefCell<BTreeMap<ServerId, Labels>>>,
        can_ask: bool,
    ) -> Self {
        Self {
            mode: policy.in_run(),
            marker: policy.marker_in_run(),
            unwritten: Some(if can_ask { AfterReadAction::Ask } else { AfterReadAction::TellOnce }),
            ..Self::of_policy(policy, labels)
        }
    }
}

/// How long a result is remembered by default.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// The name in reports of `@exfil/canary`.
#[must_use]
pub fn action_taken(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Allow | Outcome::Rewrite => "logged",
        Outcome::Block => "halted",
        Outcome::Ask => "asked",
        Outcome::Alert => "alerted",
    }
}

/// The words of `CANARY_MCP_RESPONSE_MODE`; `ask` is of policies alone.
#[must_use]
pub fn response_mode(mode: OnFlow) -> &'static str {
    match mode {
        OnFlow::Allow => "log",
        OnFlow::Block => "halt",
        OnFlow::Ask => "ask",
        OnFlow::Alert => "alert",
    }
}
