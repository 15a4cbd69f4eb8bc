//! Compares what servers offer with their pins, and says what to record.

mod differences;
mod release;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::SystemTime;

use tokio::sync::{Mutex, Notify};

use agentsh_base::json::Json;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::outline::outline;
use agentsh_guard::{
    Check, Finding, Offer, Outcome, Reason, Report, Severity, Subject, SubjectKind, UsedEntry, Verdict,
};
use agentsh_policy::{OnChange, Pinning};
use agentsh_store::{InterfacePin, MAX_DEFINITION, Offered, PinStore, StoreError, TrustedBy, WhichInterface};

use differences::Ignored;
use release::Releases;
pub use release::WithheldEntry;

/// Entries of one server that are compared; a listing of more is refused beyond it.
const MAX_ENTRIES: usize = 20_000;

type Key = (Offered, String);
/// Hash and canonical definition.
type TrustedDefinition = (String, Option<String>);

/// The state that all connections of a session share.
#[derive(Clone, Debug)]
pub struct InterfacePins(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    pinning: Pinning,
    servers: BTreeMap<ServerId, KnownServer>,
    /// Hashes of the entries that a person approved in a registry, by server.
    approved: BTreeMap<ServerId, BTreeSet<String>>,
    /// Changed definitions, and those seen for the first time that a person has to trust.
    waiting: Vec<InterfacePin>,
    /// Something waits to be stored.
    unstored: Rc<Notify>,
    /// Only one task stores at a time.
    storing: Rc<Mutex<()>>,
    releases: Releases,
}

/// The pins of one server.
#[derive(Debug, Default)]
struct KnownServer {
    scope: String,
    basis: String,
    /// For each entry, the trusted definitions by audience.
    pins: BTreeMap<Key, BTreeMap<String, TrustedDefinition>>,
    /// It had no pin when the session met it: all that it offers is seen for the first time.
    is_new: bool,
    /// Changed definitions about which a person is asked: about each use, or about the definition itself if it is withheld.
    drifted: BTreeMap<(String, Key), TrustedDefinition>,
    /// The skeletons of the names of tools and prompts.
    shapes: BTreeMap<Key, String>,
    /// The definition of each entry that was written down last, by its hash.
    told: BTreeMap<(String, Key), String>,
}

impl InterfacePins {
    #[must_use]
    pub fn new(pinning: &Pinning) -> Self {
        let pinning = pinning.clone();
        Self(Rc::new(RefCell::new(State {
            pinning,
            servers: BTreeMap::new(),
            approved: BTreeMap::new(),
            waiting: Vec::new(),
            unstored: Rc::default(),
            storing: Rc::default(),
            releases: Releases::default(),
        })))
    }

    /// A server is about to start, or a client begins a session with it: reads what is trusted at this time. `basis`
    /// is that of [`basis`], or the origin of its URL.
    ///
    /// # Errors
    /// When the pins cannot be read: the server must not start.
    pub async fn expect(
        &self,
        store: &PinStore,
        server: &ServerId,
        scope: &str,
        basis: &str,
    ) -> Result<(), StoreError> {
        let Pinning { enabled, pin_binary, on_change, .. } = self.0.borrow().pinning;
        if !enabled {
            return Ok(());
        }
        // This session's observations first: a restarted server is compared with them.
        self.flush(store).await?;
        let which = WhichInterface {
            server: Some(server.0.clone()),
            scope: Some(scope.to_owned()),
            ..WhichInterface::default()
        };
        let (pins, _) = store.interfaces(which).await?;
        // A changed program brings new definitions only where a person has to accept it first; an origin is
        // configured by the user.
        let is_accepted = pin_binary && matches!(on_change, OnChange::Block | OnChange::Ask);
        let is_kept = |pin: &&InterfacePin| {
            !is_accepted && [basis, &pin.basis].iter().all(|one| one.starts_with(OF_PROGRAM))
        };
        let kept = pins.iter().find(is_kept).map(|pin| pin.basis.clone());
        let basis = kept.as_deref().unwrap_or(basis);
        let trusted: Vec<_> = pins.into_iter().filter(|pin| pin.basis == basis).collect();
        let servers = &mut self.0.borrow_mut().servers;
        let before = servers.remove(server).filter(|one| one.scope == scope && one.basis == basis);
        let mut known = before.unwrap_or_else(|| KnownServer {
            scope: scope.to_owned(),
            basis: basis.to_owned(),
            is_new: trusted.is_empty(),
            ..KnownServer::default()
        });
        for pin in trusted {
            let key = (pin.kind, pin.name);
            known.shapes.insert(name_skeleton(&key), key.1.clone());
            let by_audience = known.pins.entry(key.clone()).or_default();
            let entry = (pin.audience, key);
            // A person may have trusted a definition that was refused in this session. Otherwise the session's own
            // trust counts.
            let is_trusted_now = known.drifted.get(&entry).is_some_and(|(refused, _)| *refused == pin.hash);
            if is_trusted_now {
                known.drifted.remove(&entry);
            }
            if is_trusted_now || !by_audience.contains_key(&entry.0) {
                by_audience.insert(entry.0, (pin.hash, pin.definition));
            }
        }
        servers.insert(server.clone(), known);
        Ok(())
    }

    /// A person approved all that a server offers, in a registry: its entries with these hashes replace their pins.
    pub fn approve(&self, server: &ServerId, hashes: &BTreeSet<String>) {
        self.0.borrow_mut().approved.insert(server.clone(), hashes.clone());
    }

    /// The hash that a tool was trusted with, or `hash` where this definition is the same but for the order of sets; None also
    /// where it is not the same for all clients.
    #[must_use]
    pub fn hash_of(
        &self,
        server: &ServerId,
        tool: &str,
        (hash, definition): (&str, &Json<'_>),
    ) -> Option<String> {
        let state = self.0.borrow();
        let known = state.servers.get(server)?;
        let trusted = known.pins.get(&(Offered::Tool, tool.to_owned()))?.values();
        let mut hashes = trusted.map(|trusted| {
            if Ignored::default().is_trusted(trusted, hash, definition) { hash } else { &trusted.0 }
        });
        let first = hashes.next()?;
        hashes.all(|hash| hash == first).then(|| first.to_owned())
    }

    /// Whether a prompt or a resource of a server may be refused for its definition: one is trusted, or none is by itself.
    #[must_use]
    pub fn judges_offers(&self, server: &ServerId) -> bool {
        let state = self.0.borrow();
        let is_offer = |(kind, _): &Key| !matches!(kind, Offered::Tool | Offered::Instructions);
        let has_pin = |known: &KnownServer| known.pins.keys().any(is_offer);
        state.pinning.enabled
            && (!state.pinning.auto_trust_first || state.servers.get(server).is_some_and(has_pin))
    }

    /// Stores new observations, and reports a failure.
    pub async fn keep(&self, store: &PinStore, tell: impl Fn(&str)) {
        if let Err(error) = self.flush(store).await {
            tell(&format!("cannot store what servers offered: {error}"));
        }
    }

    /// Waits until there is something to store.
    pub async fn wait_for_unstored(&self) {
        let unstored = Rc::clone(&self.0.borrow().unstored);
        unstored.notified().await;
    }

    /// # Errors
    /// When it is not on disk.
    pub async fn flush(&self, store: &PinStore) -> Result<(), StoreError> {
        let storing = Rc::clone(&self.0.borrow().storing);
        let _one = storing.lock().await;
        // They are removed only once they are stored, because a task that waits for that may be aborted.
        let waiting = self.0.borrow().waiting.clone();
        let count = waiting.len();
        let (trusted, changed) = waiting.into_iter().partition(|pin| pin.trusted_by.is_some());
        let stored = store.note_interfaces(trusted, changed).await;
        self.0.borrow_mut().waiting.drain(..count);
        stored
    }
}

impl State {
    /// Compares one entry, and remembers it if new entries are trusted.
    fn compare(
        &mut self,
        subject: &Subject<'_>,
        key: Key,
        (hash, definition): (&str, &Json<'_>),
        report: &mut Report,
    ) {
        let (server, audience) = (subject.server, subject.audience);
        let pinning = &self.pinning;
        let Some(known) = self.servers.get_mut(server) else { return };
        let row = |trusted_by| InterfacePin {
            server_id: server.clone(),
            scope: known.scope.clone(),
            basis: known.basis.clone(),
            audience: audience.to_owned(),
            kind: key.0,
            name: key.1.clone(),
            hash: hash.to_owned(),
            definition: outline(definition, MAX_DEFINITION),
            at: timestamp_text(),
            trusted_by,
        };
        let pointers = pinning.ignored(&server.0, &key.1);
        let ignored = Ignored { pointers, is_resource: key.0 == Offered::Resource };
        let is_same = |trusted: &TrustedDefinition| ignored.is_trusted(trusted, hash, definition);
        let pins = known.pins.get(&key);
        // A definition trusted for these clients counts only for them.
        let own = pins.and_then(|pins| pins.get(audience));
        let is_trusted = own.map_or_else(|| pins.is_some_and(|pins| pins.values().any(is_same)), is_same);
        if is_trusted {
            known.drifted.remove(&(audience.to_owned(), key));
            return;
        }
        if self.approved.get(server).is_some_and(|approved| approved.contains(hash)) {
            let pin = row(Some(TrustedBy::User));
            let trusted = (pin.hash.clone(), pin.definition.clone());
            known.drifted.remove(&(audience.to_owned(), key.clone()));
            known.pins.entry(key).or_default().insert(audience.to_owned(), trusted);
            self.waiting.push(pin);
            self.unstored.notify_one();
            return;
        }
        let (reason, what) = match own.or_else(|| pins.and_then(|pins| pins.values().next())) {
            Some((_, before)) => {
                let differs = ignored.difference(before.as_deref(), definition);
                // Also within one listing: two entries with one name.
                let what = match (own, known.is_new) {
                    (Some(_), true) => {
                        format!(
                            "the server offered two definitions with this name in this session, which differ {differs}"
                        )
                    }
                    (Some(_), false) => format!("its definition changed since it was trusted {differs}"),
                    (None, _) => format!(
                        "its definition changed since it was trusted {differs}, and was never listed to a client with this capability"
                    ),
                };
                (Reason::InterfaceChanged, what)
            }
            None if !pinning.auto_trust_first => {
                (Reason::InterfaceNotPinned, "it was never trusted".to_owned())
            }
            None if known.pins.len() >= MAX_ENTRIES => {
                (Reason::InterfaceNotPinned, format!("the server offers more than {MAX_ENTRIES} entries"))
            }
            None => {
                let twin = known.shapes.get(&name_skeleton(&key)).filter(|_| !known.is_new).cloned();
                let pin = row(Some(TrustedBy::FirstUse));
                if twin.is_none() {
                    let is_news = !known.is_new && key.0 != Offered::Resource;
                    known.shapes.insert(name_skeleton(&key), key.1.clone());
                    let trusted = (pin.hash.clone(), pin.definition.clone());
                    known.pins.entry(key.clone()).or_default().insert(audience.to_owned(), trusted);
                    self.waiting.push(pin);
                    self.unstored.notify_one();
                    if is_news {
                        let what = "the server did not offer it when it was trusted".to_owned();
                        report.find(finding(Outcome::Alert, Reason::InterfaceAdded, pinning, what));
                    }
                    return;
                }
                let twin = twin.unwrap_or_default();
                (Reason::InterfaceChanged, format!("its name looks like '{twin}', which was trusted"))
            }
        };
        let outcome = match pinning.on_change {
            OnChange::Block => Outcome::Block,
            // The entry is shown, and agentsh asks about each use.
            OnChange::Ask | OnChange::Alert => Outcome::Alert,
            OnChange::Allow => Outcome::Allow,
        };
        let row = row(None);
        // Instructions have no use that could wait, so the question is asked at once.
        let is_used = key.0 != Offered::Instructions;
        let is_asked_at_once = reason == Reason::InterfaceChanged
            && (outcome == Outcome::Block || pinning.on_change == OnChange::Ask && !is_used);
        if (is_asked_at_once || pinning.on_change == OnChange::Ask) && known.drifted.len() < MAX_ENTRIES {
            let offered = (row.hash.clone(), row.definition.clone());
            known.drifted.insert((audience.to_owned(), key.clone()), offered);
        }
        let found = finding(outcome, reason, pinning, what);
        if is_asked_at_once {
            let (what, rule) = (found.what.clone(), found.verdict.rule.clone());
            let (server, hash, is_hidden) = (server.clone(), hash.to_owned(), outcome == Outcome::Block);
            let (kind, name) = key.clone();
            self.releases.ask(WithheldEntry { server, kind, name, hash, what, rule, is_hidden });
        }
        // Once for each change: a client may list again and again. A person is asked about the current definition.
        let entry = (audience.to_owned(), key);
        let is_news = known.told.get(&entry).is_none_or(|last| last != hash);
        if is_news && (known.told.len() < MAX_ENTRIES || known.told.contains_key(&entry)) {
            known.told.insert(entry, hash.to_owned());
            self.waiting.push(row);
            self.unstored.notify_one();
        }
        if outcome != Outcome::Allow {
            report.find(found);
        }
    }
}

impl State {
    /// A call of a tool that changed, or that no listing shows.
    fn call(&self, subject: &Subject<'_>, tool: &str, unlisted: bool, report: &mut Report) {
        let is_it = |(kind, name): &Key| *kind == Offered::Tool && name == tool;
        let known = self.servers.get(subject.server);
        self.report_use(known.is_some_and(|known| known.drifted.keys().any(|(_, key)| is_it(key))), report);
        let outcome = match self.pinning.unlisted {
            OnChange::Block | OnChange::Ask => Outcome::Block,
            OnChange::Alert => Outcome::Alert,
            OnChange::Allow => return,
        };
        if unlisted {
            let what = "the server lists no tool of this name".to_owned();
            report.find(finding(outcome, Reason::ToolNotListed, &self.pinning, what));
        }
    }

    /// Something is used.
    fn report_use(&self, is_drifted: bool, report: &mut Report) {
        if is_drifted {
            let is_asked = self.pinning.on_change == OnChange::Ask;
            let outcome = if is_asked { Outcome::Ask } else { Outcome::Block };
            let what = "its definition differs from the trusted one".to_owned();
            report.find(finding(outcome, Reason::InterfaceChanged, &self.pinning, what));
        }
    }

    fn request(&self, subject: &Subject<'_>, report: &mut Report) {
        let Some(known) = self.servers.get(subject.server) else { return };
        let Some(used) = subject.matter.uses() else { return };
        self.report_use(known.drifted_entry(&used).is_some(), report);
        // What a server does not list was never trusted either.
        if !self.pinning.auto_trust_first && !known.has_pin(&used) {
            let outcome = match self.pinning.on_change {
                OnChange::Block => Outcome::Block,
                OnChange::Ask => Outcome::Ask,
                OnChange::Alert => Outcome::Alert,
                OnChange::Allow => return,
            };
            let what = "it was never trusted".to_owned();
            report.find(finding(outcome, Reason::InterfaceNotPinned, &self.pinning, what));
        }
    }
}

impl KnownServer {
    /// The used entry if it differs from the trusted one. For any audience, because a request names its own.
    fn drifted_entry(&self, used: &UsedEntry) -> Option<&Key> {
        // Resources are before templates.
        self.drifted.keys().map(|(_, key)| key).find(|key| is_entry(key, used))
    }

    fn has_pin(&self, used: &UsedEntry) -> bool {
        self.pins.keys().any(|key| is_entry(key, used))
    }
}

impl Check for InterfacePins {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        let mut state = self.0.borrow_mut();
        if !state.pinning.enabled {
            return;
        }
        match subject.matter {
            SubjectKind::Definition { name, hash, definition } => {
                state.compare(subject, (Offered::Tool, name.to_owned()), (hash, definition), report);
            }
            SubjectKind::Offer { kind, name, hash, definition } => {
                state.compare(subject, (offered_kind(kind), name.to_owned()), (hash, definition), report);
            }
            SubjectKind::Call { tool, unlisted, .. } => state.call(subject, tool, unlisted, report),
            SubjectKind::Request { .. } => state.request(subject, report),
            _ => {}
        }
    }
}

fn is_entry((kind, name): &Key, used: &UsedEntry) -> bool {
    offer(*kind).is_some_and(|kind| used.is_of(kind, name))
}

fn offered_kind(offer: Offer) -> Offered {
    match offer {
        Offer::Prompt => Offered::Prompt,
        Offer::Resource => Offered::Resource,
        Offer::Template => Offered::Template,
        Offer::Instructions => Offered::Instructions,
    }
}

fn offer(kind: Offered) -> Option<Offer> {
    [Offer::Prompt, Offer::Resource, Offer::Template, Offer::Instructions]
        .into_iter()
        .find(|offer| offered_kind(*offer) == kind)
}

/// How the basis of a local server begins.
const OF_PROGRAM: &str = "sha256:";

/// The basis of a local server's pins: the digest of its program and its arguments.
#[must_use]
pub fn basis(digest: &str, arguments: &[String]) -> String {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new_with_prefix(digest);
    for argument in arguments {
        hash.update([0]);
        hash.update(argument);
    }
    hash.finalize().iter().fold(OF_PROGRAM.to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn finding(outcome: Outcome, reason: Reason, pinning: &Pinning, what: String) -> Finding {
    let rule = match reason {
        Reason::InterfaceNotPinned => "auto_trust_first",
        Reason::ToolNotListed => "unlisted",
        _ => "on_change",
    };
    let rule = pinning.written.get(rule).cloned().unwrap_or_else(|| RuleRef {
        id: format!("sandbox.mcp.version_pinning.{rule}"),
        ..pinning.rule.clone()
    });
    let severity = match reason {
        // Models invent names.
        Reason::ToolNotListed => Severity::Low,
        _ if outcome == Outcome::Block => Severity::Critical,
        _ => Severity::Low,
    };
    Finding::new(Verdict::new(outcome, reason, rule), Some("interface-pin"), reason.code(), severity, what)
}

/// The skeleton of a name, so that lookalikes are equal. A URI is read by programs, so it stays.
fn name_skeleton((kind, name): &Key) -> Key {
    let is_read = matches!(kind, Offered::Tool | Offered::Prompt);
    (*kind, if is_read { agentsh_guard::checks::name_skeleton(name) } else { name.clone() })
}

fn timestamp_text() -> String {
    jiff::Timestamp::try_from(SystemTime::now()).map(|time| time.to_string()).unwrap_or_default()
}
