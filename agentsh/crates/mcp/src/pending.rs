//! Requests of one direction that have no answer yet, and for a while those that will not get one.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tokio::time::Instant;

use crate::guard::Offer;

use super::jsonrpc::{Id, Key};

/// Requests in flight in one direction.
pub const MAX_PENDING: usize = 65_536;
/// Requests that were given up and are still remembered.
const MAX_CLOSED: usize = 4096;
/// As much of a method's name as events and errors show.
const MAX_METHOD: usize = 256;

/// Methods of the protocol that bring content in.
const OF_PROTOCOL: [&str; 3] = ["prompts/get", "resources/read", "completion/complete"];

/// Has no answer until it ends.
pub const SUBSCRIPTION: &str = "subscriptions/listen";

/// What has to be done with the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Initialize,
    ToolsList,
    /// A listing of something else, with the name of the member that lists it.
    Offers(Offer),
    /// With the name of the tool.
    ToolCall(Box<str>),
    /// Something else that brings content in, with the method.
    Content(Box<str>),
    /// A listing that we ask for, and that nobody else gets.
    OwnList,
    /// The same of anything that a server offers.
    OwnOffer,
    Other,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub id: Id,
    pub method: Box<str>,
    pub kind: Kind,
    token: Option<Key>,
    deadline: Option<Deadline>,
}

type Deadline = (Instant, u64);

/// What an answer belongs to.
#[derive(Debug)]
pub enum Answer {
    Open(Entry),
    /// The asking side cancelled it, but the answer was on its way: it may still be delivered.
    Cancelled(Kind),
    /// The asking side was already told that there is no answer.
    Expired,
    /// It was answered already.
    Repeated,
    Unknown,
}

impl Answer {
    /// The id of the request, where the answer has another one: two numbers that are spelled differently are that to some.
    pub fn own_id(&self, answered: Option<&Id>) -> Option<Id> {
        match self {
            Self::Open(Entry { id, .. }) => {
                let differs = |answered: &Id| match &id.key {
                    Key::Number(_) => answered.spelled != id.spelled,
                    Key::Text(_) => answered.key != id.key,
                };
                answered.is_some_and(differs).then(|| id.clone())
            }
            _ => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum InsertError {
    Duplicate,
    Full,
}

#[derive(Clone, Debug)]
enum Closed {
    Cancelled(Kind),
    Expired,
    Answered,
}

#[derive(Debug, Default)]
pub struct Pending {
    open: HashMap<Key, Entry>,
    deadlines: BTreeMap<Deadline, Key>,
    tokens: HashMap<Key, Key>,
    closed: HashMap<Key, Closed>,
    closed_order: VecDeque<Key>,
    serial: u64,
}

impl Pending {
    /// Whether a request with this id could be added now.
    pub fn check(&self, key: &Key) -> Result<(), InsertError> {
        if self.open.contains_key(key) {
            return Err(InsertError::Duplicate);
        }
        if self.open.len() >= MAX_PENDING { Err(InsertError::Full) } else { Ok(()) }
    }

    /// Adds a request; `token` is the progress token that extends `deadline`.
    pub fn insert(
        &mut self,
        id: Id,
        method: &str,
        kind: Kind,
        token: Option<Key>,
        deadline: Option<Instant>,
    ) {
        let key = id.key.clone();
        // Whoever uses an id again means the new request.
        self.closed.remove(&key);
        let deadline = deadline.map(|at| self.add_deadline(at, &key));
        if let Some(token) = &token {
            self.tokens.insert(token.clone(), key.clone());
        }
        let method = method.chars().take(MAX_METHOD).collect::<String>().into();
        self.open.insert(key, Entry { id, method, kind, token, deadline });
    }

    /// Takes the request that an answer belongs to, by its id or by the other way to write that.
    pub fn answer(&mut self, key: &Key) -> Answer {
        if let Some(key) = self.find(key)
            && let Some(entry) = self.take(&key)
        {
            self.close(key, Closed::Answered);
            return Answer::Open(entry);
        }
        let key = if self.closed.contains_key(key) { Some(key.clone()) } else { key.twin() };
        let closed = key.and_then(|key| self.closed.get_mut(&key));
        match closed.map(|closed| std::mem::replace(closed, Closed::Answered)) {
            Some(Closed::Cancelled(kind)) => Answer::Cancelled(kind),
            Some(Closed::Expired) => Answer::Expired,
            Some(Closed::Answered) => Answer::Repeated,
            None => Answer::Unknown,
        }
    }

    /// The open request that an answer with this id belongs to.
    pub fn find(&self, key: &Key) -> Option<Key> {
        if self.is_open(key) {
            return Some(key.clone());
        }
        key.twin().filter(|twin| self.is_open(twin))
    }

    /// Whether this is the id of a request of the protocol, each of which is answered with an object.
    pub fn wants_object(&self, key: &Key) -> bool {
        let entry = self.find(key).and_then(|key| self.open.get(&key));
        entry.is_some_and(|entry| match &entry.kind {
            Kind::OwnList | Kind::OwnOffer | Kind::Other => false,
            // Methods of others are answered with anything.
            Kind::Content(method) => OF_PROTOCOL.contains(&&**method),
            _ => true,
        })
    }

    /// Drops interest in all requests but those that somebody waits for.
    pub fn cancel_unless(&mut self, is_waited_for: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.open.keys().filter(|key| !is_waited_for(key)).cloned().collect();
        keys.iter().for_each(|key| self.cancel(key));
    }

    /// The asking side does not want the answer any more.
    pub fn cancel(&mut self, key: &Key) {
        if let Some(entry) = self.take(key) {
            self.close(key.clone(), Closed::Cancelled(entry.kind));
        }
    }

    /// Gives a request up: its answer, should it come, is dropped.
    pub fn give_up(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.take(key)?;
        self.close(key.clone(), Closed::Expired);
        Some(entry)
    }

    /// Gives every request up.
    pub fn give_up_all(&mut self) -> Vec<Entry> {
        let mut keys: Vec<Key> = self.open.keys().cloned().collect();
        keys.sort();
        keys.iter().filter_map(|key| self.give_up(key)).collect()
    }

    /// Takes every request out, and forgets those given up: the peer that could answer is gone.
    pub fn take_all(&mut self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = std::mem::take(self).open.into_values().collect();
        entries.sort_by(|left, right| left.id.key.cmp(&right.id.key));
        entries
    }

    pub fn is_open(&self, key: &Key) -> bool {
        self.open.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// The request in flight, when there is exactly one.
    pub fn sole(&self) -> Option<Key> {
        if self.open.len() == 1 { self.open.keys().next().cloned() } else { None }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|((at, _), _)| *at)
    }

    /// One request whose time is over.
    pub fn overdue(&self, now: Instant) -> Option<Key> {
        self.deadlines.first_key_value().filter(|((at, _), _)| *at <= now).map(|(_, key)| key.clone())
    }

    /// Gives every request a deadline that has none; a subscription has no answer to wait for.
    pub fn limit_all(&mut self, at: Instant) {
        let lasts = |entry: &Entry| entry.deadline.is_some() || &*entry.method == SUBSCRIPTION;
        let keys: Vec<Key> =
            self.open.iter().filter(|(_, entry)| !lasts(entry)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let deadline = self.add_deadline(at, &key);
            if let Some(entry) = self.open.get_mut(&key) {
                entry.deadline = Some(deadline);
            }
        }
    }

    /// Moves the deadline of the request that has this progress token.
    pub fn extend_by_token(&mut self, token: &Key, deadline: Instant) {
        let key = self.tokens.get(token).or_else(|| self.tokens.get(&token.twin()?));
        if let Some(key) = key.cloned() {
            self.extend(&key, deadline);
        }
    }

    pub fn extend(&mut self, key: &Key, deadline: Instant) {
        let Some(old) = self.open.get(key).and_then(|entry| entry.deadline) else { return };
        self.deadlines.remove(&old);
        let new = self.add_deadline(deadline, key);
        if let Some(entry) = self.open.get_mut(key) {
            entry.deadline = Some(new);
        }
    }

    fn add_deadline(&mut self, at: Instant, key: &Key) -> Deadline {
        self.serial += 1;
        self.deadlines.insert((at, self.serial), key.clone());
        (at, self.serial)
    }

    fn take(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.open.remove(key)?;
        if let Some(deadline) = &entry.deadline {
            self.deadlines.remove(deadline);
        }
        if let Some(token) = &entry.token
            && self.tokens.get(token) == Some(key)
        {
            self.tokens.remove(token);
        }
        Some(entry)
    }

    fn close(&mut self, key: Key, how: Closed) {
        self.closed_order.push_back(key.clone());
        self.closed.insert(key, how);
        while self.closed_order.len() > MAX_CLOSED {
            if let Some(oldest) = self.closed_order.pop_front() {
                self.closed.remove(&oldest);
            }
        }
    }
}
