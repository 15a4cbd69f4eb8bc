//! Open requests of one direction, and for a while those that were abandoned.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tokio::time::Instant;

use crate::guard::Offer;

use super::jsonrpc::{Id, Key};

/// Limit of open requests per direction.
pub const MAX_PENDING: usize = 65_536;
/// Limit of remembered requests that were abandoned.
const MAX_CLOSED: usize = 4096;
/// Recorded length of a method.
const MAX_METHOD: usize = 256;

/// Protocol methods that bring content.
const OF_PROTOCOL: [&str; 3] = ["prompts/get", "resources/read", "completion/complete"];

/// Not answered until it ends.
pub const SUBSCRIPTION: &str = "subscriptions/listen";

/// How to handle the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Initialize,
    ToolsList,
    /// Another listing, with its member.
    Offers(Offer),
    /// With the name of the tool.
    ToolCall(Box<str>),
    /// Other content, with the method.
    Content(Box<str>),
    /// agentsh's own listing.
    OwnList,
    /// agentsh's own listing of anything offered.
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

/// The request of an answer.
#[derive(Debug)]
pub enum Answer {
    Open(Entry),
    /// Cancelled, but the answer was on its way: it may be delivered.
    Cancelled(Kind),
    /// The requester already got an error.
    Expired,
    /// It was answered already.
    Repeated,
    Unknown,
}

impl Answer {
    /// The request's id, if the answer's is spelled differently, which some clients do not match.
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
    /// Whether a request with this id can be added.
    pub fn check(&self, key: &Key) -> Result<(), InsertError> {
        if self.open.contains_key(key) {
            return Err(InsertError::Duplicate);
        }
        if self.open.len() >= MAX_PENDING { Err(InsertError::Full) } else { Ok(()) }
    }

    /// Adds a request; `token` is its progress token, which extends `deadline`.
    pub fn insert(
        &mut self,
        id: Id,
        method: &str,
        kind: Kind,
        token: Option<Key>,
        deadline: Option<Instant>,
    ) {
        let key = id.key.clone();
        // A reused id means the new request.
        self.closed.remove(&key);
        let deadline = deadline.map(|at| self.add_deadline(at, &key));
        if let Some(token) = &token {
            self.tokens.insert(token.clone(), key.clone());
        }
        let method = method.chars().take(MAX_METHOD).collect::<String>().into();
        self.open.insert(key, Entry { id, method, kind, token, deadline });
    }

    /// Takes the request of an answer, by its id or its other spelling.
    pub fn answer(&mut self, key: &Key) -> Answer {
        if let Some(key) = self.find(key)
            && let Some(entry) = self.take(&key)
        {
            self.close(key, Closed::Answered);
            return Answer::Open(entry);
        }
        let key = if self.closed.contains_key(key) { Some(key.clone()) } else { key.other_spelling() };
        let closed = key.and_then(|key| self.closed.get_mut(&key));
        match closed.map(|closed| std::mem::replace(closed, Closed::Answered)) {
            Some(Closed::Cancelled(kind)) => Answer::Cancelled(kind),
            Some(Closed::Expired) => Answer::Expired,
            Some(Closed::Answered) => Answer::Repeated,
            None => Answer::Unknown,
        }
    }

    /// The open request of an answer.
    pub fn find(&self, key: &Key) -> Option<Key> {
        if self.is_open(key) {
            return Some(key.clone());
        }
        key.other_spelling().filter(|twin| self.is_open(twin))
    }

    /// Whether this request's answer must be an object.
    pub fn wants_object(&self, key: &Key) -> bool {
        let entry = self.find(key).and_then(|key| self.open.get(&key));
        entry.is_some_and(|entry| match &entry.kind {
            Kind::OwnList | Kind::OwnOffer | Kind::Other => false,
            // Extension methods may be answered with anything.
            Kind::Content(method) => OF_PROTOCOL.contains(&&**method),
            _ => true,
        })
    }

    /// Cancels all requests except those with a waiter.
    pub fn cancel_unless(&mut self, is_waited_for: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.open.keys().filter(|key| !is_waited_for(key)).cloned().collect();
        keys.iter().for_each(|key| self.cancel(key));
    }

    /// The requester cancelled it.
    pub fn cancel(&mut self, key: &Key) {
        if let Some(entry) = self.take(key) {
            self.close(key.clone(), Closed::Cancelled(entry.kind));
        }
    }

    /// Gives up a request: a later answer is dropped.
    pub fn give_up(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.take(key)?;
        self.close(key.clone(), Closed::Expired);
        Some(entry)
    }

    /// Gives up all requests.
    pub fn give_up_all(&mut self) -> Vec<Entry> {
        let mut keys: Vec<Key> = self.open.keys().cloned().collect();
        keys.sort();
        keys.iter().filter_map(|key| self.give_up(key)).collect()
    }

    /// Takes all requests, and forgets those abandoned: the peer is gone.
    pub fn take_all(&mut self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = std::mem::take(self).open.into_values().collect();
        entries.sort_by(|left, right| left.id.key.cmp(&right.id.key));
        entries
    }

    pub fn is_open(&self, key: &Key) -> bool {
        self.open.contains_key(key)
    }

    /// Whether a request of such a kind is open.
    pub fn any(&self, fits: impl Fn(&Kind) -> bool) -> bool {
        self.open.values().any(|entry| fits(&entry.kind))
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// The only open request, if there is one.
    pub fn only_request(&self) -> Option<Key> {
        if self.open.len() == 1 { self.open.keys().next().cloned() } else { None }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|((at, _), _)| *at)
    }

    /// One overdue request.
    pub fn overdue(&self, now: Instant) -> Option<Key> {
        self.deadlines.first_key_value().filter(|((at, _), _)| *at <= now).map(|(_, key)| key.clone())
    }

    /// Sets a deadline for all requests without one, except subscriptions.
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

    /// Extends the deadline of the request with this token.
    pub fn extend_by_token(&mut self, token: &Key, deadline: Instant) {
        let key = self.tokens.get(token).or_else(|| self.tokens.get(&token.other_spelling()?));
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
