//! One verification: hashes what a server offers, asks the registry, waits for a person if the mode says so, and
//! stores the result.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use url::Url;

use agentsh_base::json::{self, Json};
use agentsh_base::types::ServerId;
use agentsh_fleet::Signer;
use agentsh_guard::outline::is_same_but;
use agentsh_mcp::{RegistryVerifier, VerificationOutcome, hashes};
use agentsh_policy::{FLEET_REGISTRY, OnUnreachable, RegistryMode};
use agentsh_registrar::{Approval, Client, ClientError, Verdict};
use agentsh_registry::{Captured, Interface, difference};
use agentsh_store::words::InterfaceWord;
use agentsh_store::{Event, escape};

use super::answers::{self, VerificationOutcome as Last};
use super::{Registered, RegistryStatus, Settings};
use agentsh_content::content::since_1970;
use agentsh_content::interface_pins::InterfacePins;
use agentsh_host::{Facts, Record, outgoing};

/// Lines of a difference that the user is shown.
const MAX_LINES: usize = 40;
/// How long an answer counts where the registry cannot be asked.
const MAX_AGE: Duration = Duration::from_secs(30 * 86_400);

#[derive(Clone)]
pub struct Asker(Rc<Inner>);

struct Inner {
    facts: Rc<Facts>,
    record: Rc<Record>,
    known: Registered,
    pins: InterfacePins,
    settings: Settings,
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Asker")
    }
}

impl Asker {
    /// None: no registry is asked.
    #[must_use]
    pub fn new(
        facts: &Rc<Facts>,
        record: &Rc<Record>,
        known: &Registered,
        pins: &InterfacePins,
    ) -> Option<Self> {
        let settings = known.settings()?.clone();
        let (facts, record) = (Rc::clone(facts), Rc::clone(record));
        Some(Self(Rc::new(Inner { facts, record, known: known.clone(), pins: pins.clone(), settings })))
    }
}

impl RegistryVerifier for Asker {
    fn ask(
        &self,
        server: &ServerId,
        offered: Result<Captured, String>,
    ) -> Pin<Box<dyn Future<Output = VerificationOutcome>>> {
        let (asker, server) = (self.clone(), server.clone());
        Box::pin(async move { asker.0.verify_server(server, offered).await })
    }

    fn has_seen(&self, server: &ServerId, hash: &str) -> bool {
        self.0.known.has_seen(server, hash)
    }
}

/// The interface that a question is about.
struct OfferedInterface {
    interface: Interface,
    /// Every entry, by its hash.
    seen: BTreeSet<String>,
}

/// The next step after an answer.
enum AskOutcome {
    Stands(InterfaceWord, String),
    Ask { recorded: Option<String>, diff: String, why: String },
}

impl Inner {
    async fn verify_server(
        self: Rc<Self>,
        server: ServerId,
        offered: Result<Captured, String>,
    ) -> VerificationOutcome {
        let read = offered.and_then(|captured| {
            let interface = agentsh_registry::read(&captured).map_err(|error| error.to_string())?;
            Ok(OfferedInterface { interface, seen: hashes(&captured) })
        });
        let offered = match read {
            Ok(offered) => offered,
            Err(why) => {
                let interface = Interface { name: String::new(), components: Vec::new() };
                let none = OfferedInterface { interface, seen: BTreeSet::new() };
                self.store_status(&server, &none, InterfaceWord::Invalid, format!("it has no hash: {why}"));
                return VerificationOutcome::Decided;
            }
        };
        let client = match self.client() {
            Ok(client) => client,
            Err(why) => {
                self.unreachable(&server, &offered, &why);
                return VerificationOutcome::Decided;
            }
        };
        match self.ask(&client, &server, &offered.interface).await {
            Ok(AskOutcome::Stands(word, what)) => self.store_status(&server, &offered, word, what),
            Ok(AskOutcome::Ask { recorded, diff, why }) => {
                match client.request(&offered.interface, recorded.as_deref(), &diff).await {
                    Ok(Approval { id, status, .. }) if status == "rejected" => {
                        self.store_status(
                            &server,
                            &offered,
                            InterfaceWord::Rejected,
                            not_approved(id, &status),
                        );
                    }
                    Ok(approval) => return self.wait_for(client, server, offered, &approval, &diff, &why),
                    Err(error) => self.record_failure(&server, &offered, &error),
                }
            }
            Err(error) => self.record_failure(&server, &offered, &error),
        }
        VerificationOutcome::Decided
    }

    /// With the token of the policy, or as the host that the fleet knows.
    fn client(&self) -> Result<Client, String> {
        let (http, base) = (outgoing::client()?, &self.settings.base);
        let Some(host) = &self.settings.host else {
            return Ok(Client::new(http, base, self.settings.token.clone()));
        };
        let signer = Signer::of(host).map_err(|error| error.to_string())?;
        let sign = move |method: &Method, url: &Url, body: &[u8]| signer.lines(method, url, body);
        Ok(Client::with_signature(http, base, Arc::new(sign)))
    }

    async fn ask(
        &self,
        client: &Client,
        server: &ServerId,
        interface: &Interface,
    ) -> Result<AskOutcome, ClientError> {
        let mode = self.settings.mode;
        let name = escape::line(&interface.name);
        if let Some(expected) = self.expected(server).filter(|expected| *expected != interface.name)
            && mode != RegistryMode::Register
        {
            let what = format!(
                "it calls itself '{name}' and was registered as '{}'; `interface: {{names: {{{server}: \
                 NAME}}}}` decides which name counts",
                escape::line(&expected)
            );
            return Ok(AskOutcome::Stands(InterfaceWord::Changed, what));
        }
        if interface.name.is_empty() {
            return Ok(AskOutcome::Stands(InterfaceWord::Invalid, "it does not say its name".to_owned()));
        }
        if mode == RegistryMode::Register {
            client.register(interface).await?;
            return Ok(AskOutcome::Stands(InterfaceWord::Registered, String::new()));
        }
        let (word, what, recorded, before) = match client.verify(interface).await? {
            Verdict::Same => return Ok(AskOutcome::Stands(InterfaceWord::Same, String::new())),
            Verdict::Unknown { .. } if mode == RegistryMode::Auto => {
                client.register(interface).await?;
                return Ok(AskOutcome::Stands(InterfaceWord::Registered, "at first sight".to_owned()));
            }
            Verdict::Unknown { .. } => {
                (InterfaceWord::Unknown, format!("'{name}' is not registered"), None, Vec::new())
            }
            Verdict::Changed { recorded, components } => {
                if self.may_differ(server, &components, &recorded, interface) {
                    let what = format!(
                        "it matches the registered hash {recorded}, except for parts that may change"
                    );
                    return Ok(AskOutcome::Stands(InterfaceWord::Same, what));
                }
                let hash = interface.hash();
                let what = format!(
                    "'{name}' is registered with hash {recorded}, and what it offers hashes to {hash}"
                );
                (InterfaceWord::Changed, what, Some(recorded), components)
            }
        };
        let live: Vec<String> = interface.components.iter().map(|one| one.canonical.clone()).collect();
        let diff = difference(&before, &live);
        if mode == RegistryMode::Approval {
            return Ok(AskOutcome::Ask { recorded, diff, why: what });
        }
        Ok(AskOutcome::Stands(word, if before.is_empty() { what } else { format!("{what}\n{diff}") }))
    }

    /// Whether two interfaces differ in nothing but what `version_pinning` lets change.
    fn may_differ(&self, server: &ServerId, before: &[String], recorded: &str, live: &Interface) -> bool {
        let pinning = &self.facts.policy.mcp.pinning;
        if pinning.ignore.is_empty() && pinning.ignore_in.is_empty() {
            return false;
        }
        // The received interface must have the recorded hash.
        agentsh_registry::hash(before.iter().map(String::as_str)) == recorded
            && same_but(before, live, |name| pinning.ignored(&server.0, name))
    }

    /// The registered name of the server.
    fn expected(&self, server: &ServerId) -> Option<String> {
        let named = self.settings.names.get(&server.0).cloned();
        named.or_else(|| self.last(server).map(|last| last.name))
    }

    fn last(&self, server: &ServerId) -> Option<Last> {
        answers::find(&self.facts.context.state, &self.key(server))
    }

    fn key(&self, server: &ServerId) -> String {
        answers::key(&self.settings.base, &self.facts.context.project, &server.0)
    }

    /// Lets a person decide, for a bounded time.
    fn wait_for(
        self: Rc<Self>,
        client: Client,
        server: ServerId,
        offered: OfferedInterface,
        approval: &Approval,
        diff: &str,
        why: &str,
    ) -> VerificationOutcome {
        self.known.note(&server, &offered.seen, RegistryStatus::Waiting);
        self.record(&server, &offered.interface, InterfaceWord::Waiting, &format!("request {}", approval.id));
        let Settings { base, wait, host, .. } = &self.settings;
        let base = if host.is_some() { FLEET_REGISTRY } else { base.as_str() };
        self.record.announce(&format!(
            "server '{server}' waits at most {} s for a decision about its interface: {why}\n{}  `agentsh \
             registry approvals approve {} --registry {base}`, or `reject`",
            wait.as_secs(),
            display_text(diff),
            approval.id
        ));
        let (id, deadline) = (approval.id, Instant::now() + *wait);
        VerificationOutcome::Waiting(Box::pin(async move {
            let hash = offered.interface.hash();
            while Instant::now() < deadline {
                tokio::time::sleep(
                    self.settings.poll.min(deadline.saturating_duration_since(Instant::now())),
                )
                .await;
                // A failed request is repeated later.
                let Ok(now) = client.approval(id).await else { continue };
                if now.name != offered.interface.name || now.hash != hash {
                    let what = format!("the registry's request {id} has changed");
                    return self.store_status(&server, &offered, InterfaceWord::Invalid, what);
                }
                match now.status.as_str() {
                    "pending" => {}
                    "approved" => {
                        return self.store_status(&server, &offered, InterfaceWord::Approved, String::new());
                    }
                    word => {
                        return self.store_status(
                            &server,
                            &offered,
                            InterfaceWord::Rejected,
                            not_approved(id, word),
                        );
                    }
                }
            }
            let what = format!("no decision about request {id} within {} s", self.settings.wait.as_secs());
            self.store_status(&server, &offered, InterfaceWord::TimedOut, what);
        }))
    }

    /// The registry did not answer as it should.
    fn record_failure(&self, server: &ServerId, offered: &OfferedInterface, error: &ClientError) {
        match error {
            ClientError::Http(_) | ClientError::TimedOut => {
                self.unreachable(server, offered, &error.to_string())
            }
            ClientError::Status { status: 500.., .. } => {
                self.unreachable(server, offered, &error.to_string())
            }
            _ => self.store_status(server, offered, InterfaceWord::Invalid, error.to_string()),
        }
    }

    fn unreachable(&self, server: &ServerId, offered: &OfferedInterface, why: &str) {
        let now = since_1970().as_secs();
        let last = || {
            let last = self.last(server).filter(|last| last.name == offered.interface.name);
            last.filter(|last| last.hash == offered.interface.hash())
        };
        match self.settings.on_unreachable {
            OnUnreachable::Cached => match last() {
                Some(last) if now.saturating_sub(last.at) < MAX_AGE.as_secs() => {
                    self.store_status(server, offered, InterfaceWord::Cached, why.to_owned());
                }
                Some(_) => {
                    let days = MAX_AGE.as_secs() / 86_400;
                    let why = format!("{why}; the registry's last answer is older than {days} days");
                    self.store_status(server, offered, InterfaceWord::Unreachable, why);
                }
                None => self.store_status(server, offered, InterfaceWord::Unreachable, why.to_owned()),
            },
            OnUnreachable::Warn => {
                self.known.note(server, &offered.seen, RegistryStatus::Good);
                self.record(server, &offered.interface, InterfaceWord::Unreachable, why);
                self.record.note(&format!(
                    "no registry vouches for what server '{server}' offers: {}",
                    escape::line(why)
                ));
            }
            OnUnreachable::Block => {
                self.store_status(server, offered, InterfaceWord::Unreachable, why.to_owned());
            }
        }
    }

    /// Stores the status of a server, and reports a change to the user.
    fn store_status(&self, server: &ServerId, offered: &OfferedInterface, word: InterfaceWord, what: String) {
        use InterfaceWord::{Approved, Cached, Registered as New, Rejected, Same};
        let first = what.lines().next().unwrap_or_default().to_owned();
        self.record(server, &offered.interface, word, &first);
        if word == Approved {
            self.pins.approve(server, &offered.seen);
        }
        if matches!(word, Same | New | Approved | Cached) {
            self.known.note(server, &offered.seen, RegistryStatus::Good);
            // An answer that was not confirmed does not become newer.
            if word == Cached {
                return;
            }
            let (name, hash) = (offered.interface.name.clone(), offered.interface.hash());
            let now = Last { name, hash, at: since_1970().as_secs() };
            let kept = answers::keep(&self.facts.context.state, &self.key(server), &now);
            if let Err(error) = kept {
                self.record
                    .note(&format!("cannot store the registry's answer about server '{server}': {error}"));
            }
            if word == New {
                self.record.note(&format!(
                    "server '{server}' ('{}') is registered at {} with hash {}",
                    escape::line(&offered.interface.name),
                    self.settings.base,
                    offered.interface.hash()
                ));
            }
            return;
        }
        let refused = self.settings.enforce || word == Rejected;
        let then =
            if refused { "is refused: the agent sees nothing that it offers" } else { "is not vouched for" };
        let shown = display_text(&what);
        let (what, diff) = shown.trim_end().split_once('\n').unwrap_or((shown.trim_end(), ""));
        let diff = if diff.is_empty() { String::new() } else { format!("\n{diff}") };
        self.record.note(&format!("server '{server}' {then}: {what} ({}){diff}", self.settings.rule));
        self.known.note(server, &offered.seen, RegistryStatus::Bad { why: first, always: word == Rejected });
    }

    fn record(&self, server: &ServerId, interface: &Interface, verdict: InterfaceWord, detail: &str) {
        self.record.journal.record(Event::McpInterfaceChecked {
            server_id: server.clone(),
            name: interface.name.chars().take(256).collect(),
            hash: if interface.name.is_empty() { String::new() } else { interface.hash() },
            registry: self.settings.base.clone(),
            verdict,
            detail: detail.chars().take(1024).collect(),
        });
    }
}

/// Whether each entry has its counterpart on the other side, with what is ignored of it left out.
fn same_but(before: &[String], live: &Interface, ignored: impl Fn(&str) -> Vec<String>) -> bool {
    let mut left: Vec<Json<'_>> = before.iter().filter_map(|text| json::read(text.as_bytes()).ok()).collect();
    let all = left.len() == before.len() && before.len() == live.components.len();
    all && live.components.iter().all(|one| {
        let Ok(now) = json::read(one.canonical.as_bytes()) else { return false };
        let text = |of: &Json<'_>, member: &str| {
            of.member(member).and_then(Json::as_text).map(|text| text.into_owned())
        };
        let name = text(&now, "name").or_else(|| text(&now, "uri")).unwrap_or_default();
        let ignored = ignored(&name);
        let twin = left.iter().position(|then| {
            ["type", "name", "uri"].iter().all(|member| text(then, member) == text(&now, member))
                && is_same_but(then, &now, &ignored)
        });
        twin.map(|at| left.swap_remove(at)).is_some()
    })
}

fn not_approved(id: i64, status: &str) -> String {
    format!("a person did not approve it: request {id} is {}", escape::line(status))
}

/// The lines of a text of others, bounded.
fn display_text(text: &str) -> String {
    let mut lines: Vec<String> =
        text.lines().take(MAX_LINES).map(|line| format!("{}\n", escape::line(line))).collect();
    if text.lines().nth(MAX_LINES).is_some() {
        lines.push("...\n".to_owned());
    }
    lines.concat()
}
