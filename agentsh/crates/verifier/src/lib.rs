//! Compares what servers offer with a registry: `ask` stores the result for a server, and the check here applies it,
//! entry by entry.

mod answers;
mod ask;
mod settings;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::{
    Check, Finding, Offer, Outcome, Reason, Report, Severity, Subject, SubjectKind, Verdict,
};
use agentsh_policy::InterfacePolicy;

pub use ask::Asker;
pub use settings::{Settings, SettingsError};

/// The registry's verdict on one server.
#[derive(Clone, Debug, Default)]
enum RegistryStatus {
    #[default]
    NotAsked,
    /// A person is asked.
    Waiting,
    /// The registry vouches for what was seen.
    Good,
    /// The registry does not vouch for it. `always`: refused regardless of `enforce`.
    Bad { why: String, always: bool },
}

#[derive(Debug, Default)]
struct RegisteredServer {
    standing: RegistryStatus,
    /// Hash of every entry that the verdict covers.
    seen: BTreeSet<String>,
    /// An alert about its status was raised.
    is_told: bool,
}

/// The state shared by all connections of a session.
#[derive(Clone, Debug)]
pub struct Registered(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Option<Settings>,
    servers: RefCell<BTreeMap<ServerId, RegisteredServer>>,
}

impl Registered {
    /// Reads the settings from the policy and the environment.
    ///
    /// # Errors
    /// When the settings ask for something unknown.
    pub fn new(
        policy: &InterfacePolicy,
        env: &BTreeMap<String, String>,
        state: &Path,
    ) -> Result<Self, SettingsError> {
        let settings = Settings::of(policy, env, || agentsh_fleet::key_files::enrolled_host(state))?;
        Ok(Self(Rc::new(Inner { settings, servers: RefCell::default() })))
    }

    /// No registry is asked.
    #[must_use]
    pub fn without_registry() -> Self {
        Self(Rc::new(Inner { settings: None, servers: RefCell::default() }))
    }

    /// None: no registry is asked.
    #[must_use]
    pub fn settings(&self) -> Option<&Settings> {
        self.0.settings.as_ref()
    }

    /// What was seen takes effect once the registry has answered about it: until then, other connections use the
    /// earlier answer.
    fn note(&self, server: &ServerId, seen: &BTreeSet<String>, standing: RegistryStatus) {
        let known = RegisteredServer { standing, seen: seen.clone(), is_told: false };
        self.0.servers.borrow_mut().insert(server.clone(), known);
    }

    fn has_seen(&self, server: &ServerId, hash: &str) -> bool {
        self.0.servers.borrow().get(server).is_some_and(|known| known.seen.contains(hash))
    }
}

/// Requests that use nothing of a server: its handshake, its listings, which are judged entry by entry, and its notices.
const OF_CONNECTION: [&str; 8] = [
    "initialize",
    "server/discover",
    "ping",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "logging/setLevel",
];

impl Check for Registered {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        let Some(settings) = &self.0.settings else { return };
        let entry = match subject.matter {
            // The registry's hash does not cover templates: they share the status of the server.
            SubjectKind::Offer { kind: Offer::Template, .. } => None,
            SubjectKind::Definition { hash, .. } | SubjectKind::Offer { hash, .. } => Some(hash),
            SubjectKind::Call { hash, .. } => hash,
            SubjectKind::Request { method, .. } if !OF_CONNECTION.contains(&method) => None,
            _ => return,
        };
        let mut servers = self.0.servers.borrow_mut();
        let known = servers.entry(subject.server.clone()).or_default();
        let what = match &known.standing {
            RegistryStatus::Good => match entry {
                Some(hash) if !known.seen.contains(hash) => {
                    "the server's offer changed while the registry was asked".to_owned()
                }
                _ => return,
            },
            RegistryStatus::NotAsked => "the registry has not been asked about this server yet".to_owned(),
            RegistryStatus::Waiting => "a person has to approve what the server offers".to_owned(),
            RegistryStatus::Bad { why, .. } => why.clone(),
        };
        let is_used = matches!(subject.matter, SubjectKind::Call { .. } | SubjectKind::Request { .. });
        let always = match known.standing {
            RegistryStatus::Bad { always, .. } => always,
            // What a person is asked about cannot be used meanwhile.
            RegistryStatus::Waiting => is_used,
            _ => false,
        };
        let outcome = if settings.enforce || always { Outcome::Block } else { Outcome::Alert };
        // One alert is enough.
        if outcome == Outcome::Alert && std::mem::replace(&mut known.is_told, true) {
            return;
        }
        report.find(finding(outcome, settings.rule.clone(), what));
    }
}

fn finding(outcome: Outcome, rule: RuleRef, what: String) -> Finding {
    let verdict = Verdict::new(outcome, Reason::InterfaceNotVouched, rule);
    let detector = verdict.reason.code();
    Finding::new(verdict, Some("interface-registry"), detector, Severity::High, what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::time::Duration;

    use super::*;
    use agentsh_base::json;
    use agentsh_guard::PrecomputedFinding;

    fn registered() -> Registered {
        let env = [("KIJI_SAFEGUARD_MODE", "verify"), ("KIJI_SAFEGUARD_ENFORCE", "1")];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Registered::new(&InterfacePolicy::default(), &env, Path::new("/nowhere")).unwrap()
    }

    fn server() -> ServerId {
        ServerId("s".to_owned())
    }

    fn seen(hashes: &[&str]) -> BTreeSet<String> {
        hashes.iter().map(|hash| (*hash).to_owned()).collect()
    }

    fn is_refused(registered: &Registered, matter: SubjectKind<'_>) -> bool {
        let server = server();
        let mut report = Report::default();
        let now = Duration::ZERO;
        let (audience, caller, turn, seen) = ("", None, None, PrecomputedFinding::NOTHING);
        let subject =
            Subject { server: &server, matter, audience, caller, now, turn, is_promised: false, seen };
        registered.clone().judge(&subject, &mut report);
        report.is_blocked()
    }

    #[test]
    fn tool_is_usable_only_as_the_registry_verified_it() {
        let definition = json::read(b"{}").unwrap();
        let registered = registered();
        let listing = |hash| SubjectKind::Definition { name: "t", hash, definition: &definition };
        let call = |hash| SubjectKind::Call { tool: "t", hash, unlisted: false, arguments: None };
        assert!(is_refused(&registered, listing("a")) && is_refused(&registered, call(Some("a"))));
        registered.note(&server(), &seen(&["a"]), RegistryStatus::Good);
        assert!(!is_refused(&registered, listing("a")) && is_refused(&registered, listing("b")));
        assert!(!is_refused(&registered, call(Some("a"))) && !is_refused(&registered, call(None)));
        assert!(is_refused(&registered, call(Some("b"))));
        assert!(registered.has_seen(&server(), "a") && !registered.has_seen(&server(), "b"));
    }

    #[test]
    fn server_that_was_not_verified_gets_no_request_but_those_of_its_connection() {
        let registered = registered();
        let request = |method| SubjectKind::Request { method, params: None };
        let used = ["prompts/get", "resources/read", "completion/complete", "resources/subscribe", "x/y"];
        registered.note(
            &server(),
            &seen(&[]),
            RegistryStatus::Bad { why: "changed".to_owned(), always: true },
        );
        assert!(used.iter().all(|method| is_refused(&registered, request(method))));
        assert!(OF_CONNECTION.iter().all(|method| !is_refused(&registered, request(method))));
        registered.note(&server(), &seen(&[]), RegistryStatus::Good);
        assert!(!used.iter().any(|method| is_refused(&registered, request(method))));
    }

    #[test]
    fn registry_verdict_of_templates_is_that_of_their_server() {
        let definition = json::read(b"{}").unwrap();
        let registered = registered();
        let matter =
            SubjectKind::Offer { kind: Offer::Template, name: "x:{y}", hash: "c", definition: &definition };
        assert!(is_refused(&registered, matter), "nobody was asked");
        registered.note(&server(), &seen(&["a"]), RegistryStatus::Waiting);
        assert!(is_refused(&registered, matter), "a person is asked");
        registered.note(
            &server(),
            &seen(&["a"]),
            RegistryStatus::Bad { why: "changed".to_owned(), always: false },
        );
        assert!(is_refused(&registered, matter), "it changed");
        registered.note(&server(), &seen(&["a"]), RegistryStatus::Good);
        assert!(!is_refused(&registered, matter));
    }
}
