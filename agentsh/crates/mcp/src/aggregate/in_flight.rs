//! What the client asked for and who still has to answer it. Ids of the client's requests are kept as they are: each
//! server only sees those that were sent to it. What servers ask is [`ServerRequests`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use crate::json::{self, Json};
use crate::store::Event;
use crate::types::{ServerId, ToolId};

use super::super::connection::Side;
use super::super::jsonrpc::{Id, Key};
use super::super::outbox::Outbox;
use super::super::reply::{self, ErrorReply};
use super::merge::{self, List};
use super::owners::Owners;
use super::server_requests::ServerRequests;

/// JSON-RPC: nobody has this method.
pub const METHOD_NOT_FOUND: i32 = -32601;

pub struct InFlight {
    pub ids: Vec<String>,
    pub to_client: Outbox,
    pub flights: HashMap<Key, Flight>,
    pub owners: Owners,
    /// What each server announced; None until it did.
    pub capabilities: Vec<Option<Vec<String>>>,
    /// Requests that the next server has to be asked.
    pub retries: Vec<Key>,
    /// To be recorded and told.
    pub events: Vec<Event>,
    pub notes: Vec<String>,
    /// What the proxy adds to `tools/list`, as JSON texts.
    pub own_tools: Vec<String>,
    own_names: Vec<String>,
    /// The revision that the client asked for.
    pub requested: Option<String>,
    pub asked: ServerRequests,
    /// Requests of the client by their progress token.
    tokens: HashMap<Key, Key>,
    /// Servers that had not answered the handshake when the client was answered, and under which id.
    late: BTreeMap<usize, Key>,
    deadlines: BTreeMap<Key, Instant>,
}

/// A request of the client that is not answered yet.
pub struct Flight {
    pub id: Id,
    pub method: Box<str>,
    pub token: Option<Key>,
    pub way: Way,
    /// When the answer is put together from what is there.
    pub deadline: Option<Instant>,
}

pub enum Way {
    One(usize),
    /// One after another, until one knows.
    Try(Try),
    /// All at once.
    All(Gather),
}

pub struct Try {
    pub current: usize,
    pub rest: VecDeque<usize>,
    pub message: Vec<u8>,
    /// Any error leads on, not only "no such method".
    pub any_error: bool,
    /// The most telling error so far.
    pub kept: Option<Vec<u8>>,
}

pub struct Gather {
    pub what: What,
    pub waiting: BTreeSet<usize>,
    pub answers: BTreeMap<usize, Vec<u8>>,
    /// Errors of servers, and ours about them.
    pub errors: BTreeMap<usize, (Vec<u8>, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Initialize,
    Discover,
    /// The page that starts everything has our own tools as well.
    List(List, bool),
    /// An answer of any of them will do.
    Any,
}

impl InFlight {
    pub fn new(ids: Vec<String>, own_tools: Vec<String>) -> Self {
        Self {
            capabilities: vec![None; ids.len()],
            ids,
            to_client: Outbox::default(),
            flights: HashMap::new(),
            owners: Owners::default(),
            retries: Vec::new(),
            events: Vec::new(),
            notes: Vec::new(),
            own_names: own_tools.iter().filter_map(|tool| name_of(tool)).collect(),
            own_tools,
            requested: None,
            asked: ServerRequests::default(),
            tokens: HashMap::new(),
            late: BTreeMap::new(),
            deadlines: BTreeMap::new(),
        }
    }

    pub fn id_of(&self, server: usize) -> ServerId {
        ServerId(self.ids.get(server).cloned().unwrap_or_default())
    }

    pub fn is_own(&self, tool: &str) -> bool {
        self.own_names.iter().any(|own| own == tool)
    }

    pub fn add(&mut self, flight: Flight) {
        if let Some(token) = &flight.token {
            self.tokens.insert(token.clone(), flight.id.key.clone());
        }
        if let Some(at) = flight.deadline {
            self.deadlines.insert(flight.id.key.clone(), at);
        }
        self.flights.insert(flight.id.key.clone(), flight);
    }

    /// Takes a request out; its answer, should it come, is dropped.
    pub fn remove(&mut self, key: &Key) -> Option<Flight> {
        let flight = self.flights.remove(key)?;
        if flight.deadline.is_some() {
            self.deadlines.remove(key);
        }
        if let Some(token) = &flight.token
            && self.tokens.get(token) == Some(key)
        {
            self.tokens.remove(token);
        }
        Some(flight)
    }

    /// Servers that a request is at now.
    pub fn servers_of(&self, key: &Key) -> Vec<usize> {
        match self.flights.get(key).map(|flight| &flight.way) {
            Some(Way::One(server)) => vec![*server],
            Some(Way::Try(attempt)) => vec![attempt.current],
            Some(Way::All(gather)) => gather.waiting.iter().copied().collect(),
            None => Vec::new(),
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.values().min().copied()
    }

    /// Answers what has waited long enough with what is there.
    pub fn expire(&mut self, now: Instant) {
        let due: Vec<Key> =
            self.deadlines.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            let Some(Flight { way: Way::All(gather), method, .. }) = self.flights.get_mut(&key) else {
                continue;
            };
            let missing = std::mem::take(&mut gather.waiting);
            let (method, is_hello) = (method.to_string(), gather.what == What::Initialize);
            for server in missing {
                self.tell_missing(server, &method, "it has not answered yet");
                if is_hello {
                    self.late.insert(server, key.clone());
                }
            }
            self.finish(&key);
        }
    }

    /// Says that something lacks because of one server.
    fn tell_missing(&mut self, server: usize, method: &str, why: &str) {
        let id = self.id_of(server);
        self.notes.push(format!("server '{id}' is missing from the answer to {method}: {why}"));
        self.events.push(Event::McpServerUnavailable {
            server_id: id,
            method: method.to_owned(),
            detail: why.chars().take(1024).collect(),
            tool_name: None,
            jsonrpc_id: None,
        });
    }

    pub fn settle_gather(&mut self, server: usize, key: &Key, reply: Vec<u8>, error: Option<(String, bool)>) {
        let Some(Flight { way: Way::All(gather), method, .. }) = self.flights.get_mut(key) else { return };
        if !gather.waiting.remove(&server) {
            return;
        }
        let is_done = gather.waiting.is_empty();
        let told = match error {
            None => {
                gather.answers.insert(server, reply);
                None
            }
            Some((why, ours)) => {
                gather.errors.insert(server, (reply, ours));
                (gather.what != What::Any).then(|| (method.to_string(), why))
            }
        };
        if let Some((method, why)) = told {
            self.tell_missing(server, &method, &why);
        }
        if is_done {
            self.finish(key);
        }
    }

    /// Takes a tool out of the listings that are being put together; false: it is in none of them.
    pub fn take_back(&mut self, tool: &ToolId) -> bool {
        let Some(server) = self.ids.iter().position(|id| *id == tool.server.0) else { return false };
        let mut is_taken = false;
        for flight in self.flights.values_mut() {
            if let Way::All(Gather { what: What::List(List::Tools, _), answers, .. }) = &mut flight.way
                && let Some(answer) = answers.get_mut(&server)
                && let Some(without) = merge::without_tool(answer, &tool.tool)
            {
                *answer = without;
                is_taken = true;
            }
        }
        is_taken
    }

    /// Puts the answer together.
    pub fn finish(&mut self, key: &Key) {
        let Some(Flight { way: Way::All(gather), id, .. }) = self.remove(key) else { return };
        let Gather { what, answers, errors, .. } = gather;
        let mut out = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.spelled).into_bytes();
        let legacy = errors.values().find(|(_, ours)| !ours);
        let refused = match what {
            What::Initialize | What::List(..) | What::Any if answers.is_empty() => errors.values().next(),
            // Whoever does not know the newer handshake has to be spoken to with the older one, by all.
            What::Discover => legacy.or(errors.values().next().filter(|_| answers.is_empty())),
            _ => None,
        };
        if let Some((error, _)) = refused {
            return self.to_client.push_answer(|client| client.extend_from_slice(error));
        }
        match what {
            What::Initialize => {
                self.learn(&answers);
                merge::write_hello(&self.ids, &answers, self.requested.as_deref(), &mut out);
            }
            What::Discover => {
                if !merge::write_discovered(&self.ids, &answers, &mut out) || answers.is_empty() {
                    let message =
                        "the servers behind this proxy have no revision of the protocol in common".to_owned();
                    let error = ErrorReply {
                        code: METHOD_NOT_FOUND,
                        message,
                        reason: "no-common-revision",
                        rule: None,
                    };
                    return self
                        .to_client
                        .push_answer(|out| reply::write_error(out, Some(&id.spelled), &error));
                }
                self.learn(&answers);
            }
            What::List(list, is_first) => {
                let own = if is_first && list == List::Tools { self.own_tools.as_slice() } else { &[] };
                merge::write_list(list, &self.ids, &answers, own, &mut self.owners, &mut out);
            }
            What::Any => match answers.values().next() {
                Some(answer) => out.clone_from(answer),
                None => out.extend_from_slice(b"{}"),
            },
        }
        if what != What::Any || answers.is_empty() {
            out.push(b'}');
        }
        self.to_client.push_answer(|client| client.extend_from_slice(&out));
    }

    fn learn(&mut self, answers: &BTreeMap<usize, Vec<u8>>) {
        for (server, answer) in answers {
            let announced = json::read(answer).ok().and_then(|tree| merge::announced(&tree));
            if let Some(place) = self.capabilities.get_mut(*server) {
                *place = Some(announced.unwrap_or_default());
            }
        }
    }

    /// Whether a server may have this: it said so, or said nothing yet.
    pub fn may_have(&self, server: usize, capability: &str) -> bool {
        if self.late.contains_key(&server) {
            return false;
        }
        let announced = self.capabilities.get(server).and_then(Option::as_ref);
        announced.is_none_or(|names| names.iter().any(|name| name == capability))
    }

    /// The request that a progress token is about.
    pub fn of_token(&self, token: &Key) -> Option<&Key> {
        self.tokens.get(token)
    }

    /// Whether the answer is the handshake of a server that the client was answered without.
    pub fn is_late(&self, server: usize, key: &Key) -> bool {
        self.late.get(&server) == Some(key)
    }

    /// A server that answered the handshake after the client was answered.
    pub fn join_late(&mut self, server: usize, tree: &Json<'_>) {
        self.late.remove(&server);
        let names = merge::announced(tree).unwrap_or_default();
        for list in ["tools", "prompts", "resources"] {
            if names.iter().any(|name| name == list) {
                let text =
                    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{list}/list_changed\"}}");
                self.to_client.push(|out| out.extend_from_slice(text.as_bytes()));
            }
        }
        if let Some(place) = self.capabilities.get_mut(server) {
            *place = Some(names);
        }
    }

    /// The next server is to be asked, or the client hears the most telling error.
    pub fn next_attempt(&mut self, key: &Key, error: Vec<u8>, telling: bool) {
        let Some(Flight { way: Way::Try(attempt), .. }) = self.flights.get_mut(key) else { return };
        if attempt.kept.is_none() && telling {
            attempt.kept = Some(error.clone());
        }
        if attempt.rest.is_empty() {
            let last = attempt.kept.take().unwrap_or(error);
            self.remove(key);
            self.to_client.push_answer(|out| out.extend_from_slice(&last));
        } else {
            self.retries.push(key.clone());
        }
    }

    pub fn reject_from_server(&mut self, server: usize, reason: &str, detail: String) {
        self.events.push(Event::McpMessageRejected {
            server_id: self.id_of(server),
            from: Side::Server.sender(),
            reason: reason.to_owned(),
            detail,
            bytes: 0,
        });
    }
}

fn name_of(tool: &str) -> Option<String> {
    Some(json::read(tool.as_bytes()).ok()?.member("name")?.as_text()?.into_owned())
}
