//! What servers offer, compared with what a registry says of it: whoever is asked (`ask`) writes down how a server stands,
//! and the check here goes by it, entry by entry.

mod answers;
mod ask;
mod settings;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::guard::{Check, Finding, Matter, Offer, Outcome, Reason, Report, Severity, Subject, Verdict};
use crate::policy::domain::{self, Host};
use crate::policy::{InterfacePolicy, NetworkPolicy};
use crate::types::{RuleRef, ServerId};

pub use ask::Asker;
pub use settings::{Settings, SettingsError};

/// How one server stands.
#[derive(Clone, Debug, Default)]
enum Standing {
    #[default]
    NotAsked,
    /// A person is asked.
    Waiting,
    /// The registry vouches for what was seen.
    Good,
    /// It does not. `always`: whatever `enforce` says.
    Bad { why: String, always: bool },
}

#[derive(Debug, Default)]
struct Known {
    standing: Standing,
    /// Hash of every entry that was asked about.
    seen: BTreeSet<String>,
    /// An alert about how it stands was given.
    is_told: bool,
}

/// What every connection of a session shares.
#[derive(Clone, Debug)]
pub struct Registered(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Option<Settings>,
    servers: RefCell<BTreeMap<ServerId, Known>>,
}

impl Registered {
    /// With what policy and environment ask for.
    ///
    /// # Errors
    /// When they ask for something that is not known.
    pub fn new(policy: &InterfacePolicy, env: &BTreeMap<String, String>) -> Result<Self, SettingsError> {
        let settings = Settings::of(policy, env)?;
        Ok(Self(Rc::new(Inner { settings, servers: RefCell::default() })))
    }

    /// No registry is asked.
    #[must_use]
    pub fn unasked() -> Self {
        Self(Rc::new(Inner { settings: None, servers: RefCell::default() }))
    }

    /// None: no registry is asked.
    #[must_use]
    pub fn settings(&self) -> Option<&Settings> {
        self.0.settings.as_ref()
    }

    /// The rules of a sandbox without the registry: who is judged by it must not write into it.
    #[must_use]
    pub fn shut(&self, rules: NetworkPolicy) -> NetworkPolicy {
        let Some((settings, (host, port))) =
            self.0.settings.as_ref().and_then(|settings| Some((settings, settings.place()?)))
        else {
            return rules;
        };
        let mut rules = rules;
        let Ok(host) = domain::normalise(&host) else { return rules };
        if crate::net::allow::is_local(&host) {
            rules.loopback.retain(|open| open.value != port);
        }
        if let Host::Address(address) = &host
            && address.is_loopback()
        {
            return rules;
        }
        rules.shut.push(crate::policy::Ruled { value: (host, port), rule: settings.rule.clone() });
        rules
    }

    fn note(&self, server: &ServerId, standing: Standing) {
        let mut servers = self.0.servers.borrow_mut();
        let known = servers.entry(server.clone()).or_default();
        known.standing = standing;
        known.is_told = false;
    }

    fn note_seen(&self, server: &ServerId, seen: BTreeSet<String>) {
        self.0.servers.borrow_mut().entry(server.clone()).or_default().seen = seen;
    }

    fn has_seen(&self, server: &ServerId, hash: &str) -> bool {
        self.0.servers.borrow().get(server).is_some_and(|known| known.seen.contains(hash))
    }
}

impl Check for Registered {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        let Some(settings) = &self.0.settings else { return };
        let entry = match subject.matter {
            // No hash of the registry covers templates.
            Matter::Offer { kind: Offer::Template, .. } => return,
            Matter::Definition { hash, .. } | Matter::Offer { hash, .. } => Some(hash),
            Matter::Call { .. } => None,
            Matter::Request { method, .. }
                if method.starts_with("prompts/get") || method == "resources/read" =>
            {
                None
            }
            _ => return,
        };
        let mut servers = self.0.servers.borrow_mut();
        let known = servers.entry(subject.server.clone()).or_default();
        let what = match &known.standing {
            Standing::Good => match entry {
                Some(hash) if !known.seen.contains(hash) => {
                    "the server showed something else when the registry was asked".to_owned()
                }
                _ => return,
            },
            Standing::NotAsked => "the registry was not asked about this server yet".to_owned(),
            Standing::Waiting => "a person is still asked whether the server may offer this".to_owned(),
            Standing::Bad { why, .. } => why.clone(),
        };
        let always = matches!(known.standing, Standing::Bad { always: true, .. });
        let outcome = if settings.enforce || always { Outcome::Block } else { Outcome::Alert };
        // One alert says it all.
        if outcome == Outcome::Alert && std::mem::replace(&mut known.is_told, true) {
            return;
        }
        report.find(finding(outcome, settings.rule.clone(), what));
    }
}

fn finding(outcome: Outcome, rule: RuleRef, what: String) -> Finding {
    Finding {
        verdict: Verdict::new(outcome, Reason::InterfaceNotVouched, rule),
        category: Some("interface-registry".to_owned()),
        detector: Reason::InterfaceNotVouched.code().to_owned(),
        severity: Severity::High,
        source: None,
        destination: None,
        context: String::new(),
        pointer: String::new(),
        decoded: Vec::new(),
        what,
    }
}
