//! Pending requests of the client, and the servers that still have to answer. Request ids are unchanged; each server
//! sees only its own. [`ServerRequests`] has the requests of servers.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::json::{self, Json};
use crate::store::Event;
use crate::store::words::{Action, Severity};
use crate::types::{RuleRef, ServerId, ToolId};

use super::super::client::Client;
use super::super::connection::Side;
use super::super::jsonrpc::{Id, Key};
use super::super::outbox::Outbox;
use super::super::reply::{self, ErrorReply};
use super::merge::{self, List};
use super::owners::Owners;
use super::server_client::is_unknown_method;
use super::server_requests::ServerRequests;

/// How long to wait for a server before answering without it; its later answer is announced. A server without a
/// handshake has as long for any request.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(3);
/// Minimum for a server at the start, if others used up the time.
pub const START_SERVER_TIMEOUT: Duration = Duration::from_secs(1);
/// JSON-RPC: method not found.
pub const METHOD_NOT_FOUND: i32 = -32601;

#[derive(Default)]
pub struct InFlight {
    pub ids: Vec<String>,
    pub to_client: Outbox,
    pub flights: HashMap<Key, ClientRequest>,
    pub owners: Owners,
    /// The announced capabilities of each server; None before.
    pub capabilities: Vec<Option<Vec<String>>>,
    /// Requests to send to the next server.
    pub retries: Vec<Key>,
    /// To be recorded and reported.
    pub events: Vec<Event>,
    pub notes: Vec<String>,
    /// The proxy's own entries of `tools/list`, as JSON.
    pub own_tools: Vec<String>,
    own_names: Vec<String>,
    /// The revision that the client requested.
    pub requested: Option<String>,
    pub asked: ServerRequests,
    /// Requests of the client by their progress token.
    tokens: HashMap<Key, Key>,
    /// Servers that were late with the handshake, with its id.
    late: BTreeMap<usize, Key>,
    /// The same for lists: the newest request per server and method.
    late_lists: BTreeMap<(usize, Box<str>), Key>,
    /// Servers that answered a list late: next time the proxy waits for them.
    slow: BTreeSet<usize>,
    /// The last tools of each server, for a client that lists them again while the server is slow.
    last_tools: BTreeMap<usize, Vec<u8>>,
    deadlines: BTreeMap<Key, Instant>,
}

pub struct ClientRequest {
    pub id: Id,
    pub method: Box<str>,
    pub token: Option<Key>,
    pub way: Dispatch,
    /// When to answer with the parts that have arrived.
    pub deadline: Option<Instant>,
}

pub enum Dispatch {
    One(usize),
    /// One server after another, until one succeeds.
    Try(Attempt),
    /// All at once.
    All(CollectedLists),
}

pub struct Attempt {
    pub current: usize,
    pub rest: VecDeque<usize>,
    pub message: Vec<u8>,
    /// Continue after any error, not only "method not found".
    pub any_error: bool,
    /// The most specific error so far.
    pub kept: Option<Vec<u8>>,
}

pub struct CollectedLists {
    pub what: GatheredRequest,
    pub waiting: BTreeSet<usize>,
    pub answers: BTreeMap<usize, Vec<u8>>,
    /// Errors of servers, and agentsh's own about them.
    pub errors: BTreeMap<usize, (Vec<u8>, bool)>,
    /// Until then some server must have answered.
    pub first_until: Instant,
    /// Overdue without any answer.
    pub is_overdue: bool,
    /// Until when to wait for servers that were late before.
    pub late_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatheredRequest {
    Initialize,
    Discover,
    /// The first page also has the proxy's own tools.
    List(List, bool),
    /// One answer is enough.
    Any,
}

impl GatheredRequest {
    /// The first request of a client.
    pub fn is_hello(self) -> bool {
        matches!(self, Self::Initialize | Self::Discover)
    }
}

impl InFlight {
    pub fn new(ids: Vec<String>, own_tools: Vec<String>) -> Self {
        Self {
            capabilities: vec![None; ids.len()],
            ids,
            own_names: own_tools.iter().filter_map(|tool| name_of(tool)).collect(),
            own_tools,
            ..Self::default()
        }
    }

    pub fn id_of(&self, server: usize) -> ServerId {
        ServerId(self.ids.get(server).cloned().unwrap_or_default())
    }

    pub fn is_own(&self, tool: &str) -> bool {
        self.own_names.iter().any(|own| own == tool)
    }

    pub fn add(&mut self, flight: ClientRequest) {
        if let Some(token) = &flight.token {
            self.tokens.insert(token.clone(), flight.id.key.clone());
        }
        if let Some(at) = flight.deadline {
            self.deadlines.insert(flight.id.key.clone(), at);
        }
        self.flights.insert(flight.id.key.clone(), flight);
    }

    /// Removes a request; a later answer is dropped.
    pub fn remove(&mut self, key: &Key) -> Option<ClientRequest> {
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

    /// The servers that still have to answer a request.
    pub fn servers_of(&self, key: &Key) -> Vec<usize> {
        match self.flights.get(key).map(|flight| &flight.way) {
            Some(Dispatch::One(server)) => vec![*server],
            Some(Dispatch::Try(attempt)) => vec![attempt.current],
            Some(Dispatch::All(gather)) => gather.waiting.iter().copied().collect(),
            None => Vec::new(),
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.values().min().copied()
    }

    /// Answers overdue requests with the parts that have arrived. Returns the requests to cancel at servers.
    pub fn expire(&mut self, now: Instant) -> Vec<(usize, Id)> {
        let due: Vec<Key> =
            self.deadlines.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        let mut given_up = Vec::new();
        for key in due {
            let Some(ClientRequest { way, method, id, .. }) = self.flights.get_mut(&key) else { continue };
            let gather = match way {
                Dispatch::All(gather) => gather,
                Dispatch::One(server) => {
                    let server = *server;
                    given_up.extend(self.give_up_silent(server, &key));
                    continue;
                }
                Dispatch::Try(_) => continue,
            };
            if gather.answers.is_empty() && now < gather.first_until {
                gather.is_overdue = true;
                self.deadlines.insert(key, gather.first_until);
                continue;
            }
            let slow = |server: &usize| now < gather.late_until && self.slow.contains(server);
            let (kept, missing): (BTreeSet<usize>, BTreeSet<usize>) =
                std::mem::take(&mut gather.waiting).into_iter().partition(slow);
            let is_over = kept.is_empty();
            gather.waiting = kept;
            if gather.what == GatheredRequest::Discover {
                gather.errors.extend(missing.iter().map(|server| (*server, (unknown_yet(id), false))));
            }
            let (method, what, late_until) = (method.clone(), gather.what, gather.late_until);
            if what == GatheredRequest::List(List::Tools, true) {
                let known = self.last_tools.iter().filter(|(server, _)| missing.contains(server));
                gather.answers.extend(known.map(|(server, tools)| (*server, tools.clone())));
            }
            let stands_in: BTreeSet<usize> = gather.answers.keys().copied().collect();
            for server in missing {
                if !stands_in.contains(&server) {
                    self.tell_missing(server, &method, "it has not answered yet");
                }
                if what == GatheredRequest::Initialize {
                    self.late.insert(server, key.clone());
                } else if matches!(what, GatheredRequest::List(..)) {
                    self.late_lists.insert((server, method.clone()), key.clone());
                }
            }
            if is_over {
                self.finish(&key);
            } else {
                self.deadlines.insert(key, late_until);
            }
        }
        given_up
    }

    /// Gives up a request to a server that has answered nothing yet, not even the handshake.
    fn give_up_silent(&mut self, server: usize, key: &Key) -> Option<(usize, Id)> {
        self.deadlines.remove(key);
        if !self.is_late(server) {
            return None;
        }
        let ClientRequest { id, method, .. } = self.remove(key)?;
        let server_id = self.id_of(server);
        let message =
            format!("server '{server_id}' has not answered `initialize` yet; '{method}' was cancelled");
        let error = ErrorReply { code: reply::TIMED_OUT, message, reason: "timed-out", rule: None };
        self.to_client.error(Some(&id), &error);
        self.events.push(Event::McpRequestTimedOut {
            server_id,
            method: method.to_string(),
            jsonrpc_id: id.to_value(),
            after_ms: u64::try_from(SERVER_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
        });
        Some((server, id))
    }

    /// Reports that a server is missing from an answer.
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

    /// Reports addresses that two servers list.
    fn tell_shared(&mut self) {
        for (first, other, uri) in std::mem::take(&mut self.owners.shared) {
            let (first, other) = (self.id_of(first), self.id_of(other));
            self.notes.push(format!(
                "servers '{first}' and '{other}' both list the resource '{uri}': it is read from '{first}'"
            ));
            self.events.push(Event::McpContentDetected {
                server_id: other,
                tool_name: uri.into(),
                jsonrpc_id: serde_json::Value::Null,
                category: "resource-shadowing".to_owned(),
                detector: "same_uri".to_owned(),
                action: Action::Alert,
                severity: Severity::Medium,
                reason: "resource-shadowed".to_owned(),
                rule: RuleRef::default_rule("proxy.resources"),
                pointer: String::new(),
                context: String::new(),
                description: None,
                other_server: Some(first),
                other_tool: None,
            });
        }
    }

    pub fn settle_gather(&mut self, server: usize, key: &Key, reply: Vec<u8>, error: Option<(String, bool)>) {
        let Some(ClientRequest { way: Dispatch::All(gather), method, .. }) = self.flights.get_mut(key) else {
            return;
        };
        if !gather.waiting.remove(&server) {
            return;
        }
        let is_done = gather.waiting.is_empty();
        let told = match error {
            None => {
                gather.answers.insert(server, reply);
                if std::mem::take(&mut gather.is_overdue) {
                    self.deadlines.insert(key.clone(), Instant::now() + START_SERVER_TIMEOUT);
                }
                None
            }
            Some((why, ours)) => {
                gather.errors.insert(server, (reply, ours));
                (gather.what != GatheredRequest::Any).then(|| (method.to_string(), why))
            }
        };
        if let Some((method, why)) = told {
            self.tell_missing(server, &method, &why);
        }
        if is_done {
            self.finish(key);
        }
    }

    /// Removes a tool from pending listings; false: it is in none.
    pub fn take_back(&mut self, tool: &ToolId) -> bool {
        let Some(server) = self.ids.iter().position(|id| *id == tool.server.0) else { return false };
        let mut is_taken = false;
        for flight in self.flights.values_mut() {
            if let Dispatch::All(CollectedLists {
                what: GatheredRequest::List(List::Tools, _), answers, ..
            }) = &mut flight.way
                && let Some(answer) = answers.get_mut(&server)
                && let Some(without) = merge::without_tool(answer, &tool.tool)
            {
                *answer = without;
                is_taken = true;
            }
        }
        is_taken
    }

    /// Builds the answer.
    pub fn finish(&mut self, key: &Key) {
        let Some(ClientRequest { way: Dispatch::All(gather), id, .. }) = self.remove(key) else { return };
        let CollectedLists { what, answers, errors, .. } = gather;
        let mut out = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.spelled).into_bytes();
        let legacy = errors.values().find(|(_, ours)| !ours);
        let refused = match what {
            // A server without tools is not the reason why there are none.
            GatheredRequest::List(List::Tools, _) if answers.is_empty() => {
                errors.values().find(|(error, _)| {
                    let tree = json::read(error);
                    !tree.is_ok_and(|tree| tree.member("error").is_some_and(is_unknown_method))
                })
            }
            GatheredRequest::Initialize | GatheredRequest::List(..) | GatheredRequest::Any
                if answers.is_empty() =>
            {
                errors.values().next()
            }
            // If a server only knows the older handshake, all have to use it.
            GatheredRequest::Discover => legacy.or(errors.values().next().filter(|_| answers.is_empty())),
            _ => None,
        };
        if let Some((error, _)) = refused {
            return self.to_client.push_answer(|client| client.extend_from_slice(error));
        }
        match what {
            GatheredRequest::Initialize => {
                self.learn(&answers);
                merge::write_hello(&self.ids, &answers, self.requested.as_deref(), &mut out);
            }
            GatheredRequest::Discover => {
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
            GatheredRequest::List(list, is_first) => {
                if is_first && list == List::Tools {
                    self.last_tools.extend(answers.iter().map(|(server, tools)| (*server, tools.clone())));
                }
                let own = if is_first && list == List::Tools { self.own_tools.as_slice() } else { &[] };
                merge::write_list(list, &self.ids, &answers, own, &mut self.owners, &mut out);
                self.tell_shared();
            }
            GatheredRequest::Any => match answers.values().next() {
                Some(answer) => out.clone_from(answer),
                None => out.extend_from_slice(b"{}"),
            },
        }
        if what != GatheredRequest::Any || answers.is_empty() {
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

    /// Whether a server may have this capability: announced, or unknown yet.
    pub fn may_have(&self, server: usize, capability: &str) -> bool {
        if self.is_late(server) {
            return false;
        }
        let announced = self.capabilities.get(server).and_then(Option::as_ref);
        announced.is_none_or(|names| names.iter().any(|name| name == capability))
    }

    /// Whether the client was answered without this server, which is still silent.
    pub fn is_late(&self, server: usize) -> bool {
        self.late.contains_key(&server)
    }

    /// The request of a progress token.
    pub fn of_token(&self, token: &Key) -> Option<&Key> {
        self.tokens.get(token)
    }

    /// A late answer: announces the server's lists to the client.
    pub fn join_late(&mut self, server: usize, key: &Key, tree: &Json<'_>) {
        if self.late.get(&server) == Some(key) {
            self.late.remove(&server);
            let names = merge::announced(tree).unwrap_or_default();
            for list in ["tools", "prompts", "resources"] {
                if names.iter().any(|name| name == list) {
                    self.announce(list);
                }
            }
            if let Some(place) = self.capabilities.get_mut(server) {
                *place = Some(names);
            }
            return;
        }
        let mut late = self.late_lists.iter().filter(|((at, _), known)| *at == server && *known == key);
        let Some(late) = late.next().map(|(late, _)| late.clone()) else { return };
        self.late_lists.remove(&late);
        if tree.member("result").is_some()
            && let Some(list) = List::of(&late.1).filter(|list| *list != List::Tasks)
        {
            self.slow.insert(server);
            self.announce(list.capability());
        }
    }

    fn announce(&mut self, list: &str) {
        let text = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{list}/list_changed\"}}");
        self.to_client.push(|out| out.extend_from_slice(text.as_bytes()));
    }

    /// Tries the next server, or answers with the most specific error.
    pub fn next_attempt(&mut self, key: &Key, error: Vec<u8>, telling: bool) {
        let Some(ClientRequest { way: Dispatch::Try(attempt), .. }) = self.flights.get_mut(key) else {
            return;
        };
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

/// The answer to a client of the newer protocol while it is unknown whether all servers support it: use the older
/// handshake.
fn unknown_yet(id: &Id) -> Vec<u8> {
    let message = "not every server behind this proxy has answered yet".to_owned();
    let error = ErrorReply { code: METHOD_NOT_FOUND, message, reason: "no-common-revision", rule: None };
    let mut text = Vec::new();
    reply::write_error(&mut text, Some(&id.spelled), &error);
    text
}

fn name_of(tool: &str) -> Option<String> {
    Some(json::read(tool.as_bytes()).ok()?.member("name")?.as_text()?.into_owned())
}
