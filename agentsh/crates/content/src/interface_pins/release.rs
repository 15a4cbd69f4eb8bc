//! Approvals of changed interfaces: the question, the new pin, and the notification that it is shown now.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use agentsh_base::json::Json;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::UsedEntry;
use agentsh_mcp::ReleaseCounts;
use agentsh_store::{InterfacePin, Offered, PinStore, StoreError, WhichInterface};

use super::{InterfacePins, Key, TrustedDefinition};

/// Limit of pending questions about entries. Others are asked when they are listed again.
const MAX_ASKED: usize = 16;
/// Maximum for one server, so that one with endless changes does not block the others.
const MAX_OF_ONE: usize = 4;

/// A definition that is not the trusted version, and cannot be called before it is shown.
#[derive(Clone, Debug)]
pub struct WithheldEntry {
    pub server: ServerId,
    pub kind: Offered,
    /// Empty for instructions.
    pub name: String,
    /// The hash of the definition that is offered now.
    pub hash: String,
    /// What differs from the pin.
    pub what: String,
    pub rule: RuleRef,
    /// The entry is hidden from the agent. Otherwise it is shown, and recorded as changed.
    pub is_hidden: bool,
}

/// Begins to ask about an entry; None: no person can be asked.
type AskReview = dyn Fn(WithheldEntry) -> Option<AbortHandle>;

/// The pending questions about hidden entries, and the connections that are notified of released ones.
#[derive(Default)]
pub(super) struct Releases {
    asks: Option<Rc<AskReview>>,
    /// The pending questions.
    asked: BTreeMap<(ServerId, Key), AbortHandle>,
    heard: BTreeMap<ServerId, watch::Sender<ReleaseCounts>>,
}

impl std::fmt::Debug for Releases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Releases").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Releases {
    pub fn ask(&mut self, withheld: WithheldEntry) {
        let Some(asks) = &self.asks else { return };
        let of_one = self.asked.keys().filter(|(server, _)| *server == withheld.server).count();
        let is_full = self.asked.len() >= MAX_ASKED || of_one >= MAX_OF_ONE;
        let entry = (withheld.server.clone(), (withheld.kind, withheld.name.clone()));
        if let Entry::Vacant(place) = self.asked.entry(entry)
            && !is_full
            && let Some(question) = asks(withheld)
        {
            place.insert(question);
        }
    }
}

impl InterfacePins {
    /// From now on `asks` gets each withheld entry, once until [`InterfacePins::end_question`] says that the question is
    /// over. It must not use the pins before it returns.
    pub fn ask_by(&self, asks: Rc<AskReview>) {
        self.0.borrow_mut().releases.asks = Some(asks);
    }

    /// The question about it is over.
    pub fn end_question(&self, withheld: &WithheldEntry) {
        let entry = (withheld.server.clone(), (withheld.kind, withheld.name.clone()));
        self.0.borrow_mut().releases.asked.remove(&entry);
    }

    /// The session ends: questions are taken back. False: there were none.
    pub fn ask_no_more(&self) -> bool {
        let releases = &mut self.0.borrow_mut().releases;
        releases.asks = None;
        let asked = std::mem::take(&mut releases.asked);
        asked.values().for_each(AbortHandle::abort);
        !asked.is_empty()
    }

    /// For a connection with this server.
    #[must_use]
    pub fn watch_releases(&self, server: &ServerId) -> watch::Receiver<ReleaseCounts> {
        let heard = &mut self.0.borrow_mut().releases.heard;
        heard.entry(server.clone()).or_insert_with(|| watch::channel(ReleaseCounts::default()).0).subscribe()
    }

    /// Tells clients of this server to list its tools again.
    pub fn relist(&self, server: &ServerId) {
        if let Some(heard) = self.0.borrow().releases.heard.get(server) {
            heard.send_modify(|released| released.tools += 1);
        }
    }

    /// The definition that is offered now, of an entry that is not what was trusted; None also where clients are offered
    /// different ones.
    #[must_use]
    pub fn offered_definition(&self, server: &ServerId, kind: Offered, name: &str) -> Option<String> {
        let state = self.0.borrow();
        let drifted = &state.servers.get(server)?.drifted;
        let of_it = |key: &Key| key.0 == kind && key.1 == name;
        let mut hashes = drifted.iter().filter(|((_, key), _)| of_it(key)).map(|(_, (hash, _))| hash);
        let first = hashes.next()?;
        hashes.all(|hash| hash == first).then(|| first.clone())
    }

    /// The entry that a request uses, if it differs from the trusted one.
    #[must_use]
    pub fn drifted_entry_in_request(
        &self,
        server: &ServerId,
        method: &str,
        params: &Json<'_>,
    ) -> Option<(Offered, String)> {
        let used = UsedEntry::from_request(method, params)?;
        self.0.borrow().servers.get(server)?.drifted_entry(&used).cloned()
    }

    /// A person approved the new definition of an entry: it counts as trusted in this session, and clients list
    /// again. False if the server offers another definition meanwhile.
    #[must_use]
    pub fn accept(&self, server: &ServerId, (kind, name): (Offered, &str), hash: &str) -> bool {
        let mut state = self.0.borrow_mut();
        let Some(known) = state.servers.get_mut(server) else { return false };
        let entry: Key = (kind, name.to_owned());
        let is_it = |key: &Key, offered: &TrustedDefinition| *key == entry && offered.0 == hash;
        let accepted: Vec<(String, TrustedDefinition)> = known
            .drifted
            .iter()
            .filter(|((_, key), offered)| is_it(key, offered))
            .map(|((audience, _), offered)| (audience.clone(), offered.clone()))
            .collect();
        if accepted.is_empty() {
            return false;
        }
        known.drifted.retain(|(_, key), offered| !is_it(key, offered));
        known.pins.entry(entry).or_default().extend(accepted);
        if let Some(heard) = state.releases.heard.get(server) {
            heard.send_modify(|released| match kind {
                Offered::Tool => released.tools += 1,
                Offered::Prompt => released.prompts += 1,
                Offered::Resource | Offered::Template => released.resources += 1,
                // They come with the next handshake.
                Offered::Instructions => {}
            });
        }
        true
    }

    /// Whether that definition is what a person could look at: the one that waits in the store. `for_good` makes it the pin
    /// of every session.
    ///
    /// # Errors
    /// When it is not on disk, or another definition of this name waits too: the person may have seen that one.
    pub async fn confirm(
        &self,
        store: &PinStore,
        server: &ServerId,
        ((kind, name), hash): ((Offered, &str), &str),
        for_good: bool,
    ) -> Result<(), String> {
        const OTHERS: &str = "the server also offers another definition with that name";
        let failed = |error: StoreError| error.to_string();
        let scope = self.0.borrow().servers.get(server).map(|known| known.scope.clone());
        let Some(scope) = scope else { return Err("the server has ended".to_owned()) };
        self.flush(store).await.map_err(failed)?;
        let (server, name) = (Some(server.0.clone()), Some(name.to_owned()));
        let which = WhichInterface { server, scope: Some(scope), name, kind: Some(kind) };
        if for_good {
            let trusted = store.trust_interfaces(which, Some(hash.to_owned())).await.map_err(failed)?;
            return if trusted.is_empty() { Err(OTHERS.to_owned()) } else { Ok(()) };
        }
        let (_, offered) = store.interfaces(which).await.map_err(failed)?;
        let is_it = |row: &InterfacePin| row.hash == hash;
        if offered.is_empty() || !offered.iter().all(is_it) { Err(OTHERS.to_owned()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn changes_of_one_server_leave_room_for_questions_about_others() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&told);
        let asks: Rc<AskReview> = Rc::new(move |withheld: WithheldEntry| {
            heard.borrow_mut().push(withheld.server.0);
            Some(tokio::spawn(std::future::pending::<()>()).abort_handle())
        });
        let mut releases = Releases { asks: Some(asks), ..Releases::default() };
        for (server, names) in [("many", 40), ("one", 1), ("two", 2)] {
            for name in 0..names {
                releases.ask(WithheldEntry {
                    server: ServerId(server.to_owned()),
                    kind: Offered::Resource,
                    name: format!("note:///{name}"),
                    hash: String::new(),
                    what: String::new(),
                    rule: RuleRef::default_rule("x"),
                    is_hidden: true,
                });
            }
        }
        assert_eq!(*told.borrow(), ["many", "many", "many", "many", "one", "two", "two"]);
    }
}
