//! Dispatches the client's messages to servers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::json::{self, Json};
use crate::store::words::Action;
use crate::store::{Event, Recorder};
use crate::types::{RuleRef, ServerId};

use super::super::client::Client;
use super::super::connection::{Connection, Side};
use super::super::framing::Frame;
use super::super::from_client::{cancelled_id, progress_token};
use super::super::jsonrpc::{self, Id, Message, Shape};
use super::super::pending::MAX_PENDING;
use super::super::pending::SUBSCRIPTION;
use super::super::reject::InvalidMessage;
use super::super::reply::{self, ErrorReply};
use super::super::upstream::Upstream;
use super::in_flight::{
    Attempt, ClientRequest, CollectedLists, Dispatch, GatheredRequest, METHOD_NOT_FOUND, SERVER_TIMEOUT,
    START_SERVER_TIMEOUT,
};
use super::route::{self, Route};
use super::{Aggregate, OWN_ID};

/// From the start of the proxy: for the handshake and everything that a client requests before it considers the proxy
/// ready. Codex waits 10 s and ignores list changes, Claude Code 30 s, and people take 5 s for a hang.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(4);
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// The same while no server has answered: without one, an answer is useless.
const FIRST_TIMEOUT: Duration = Duration::from_secs(8);
/// How long to wait for a server that was late before.
const LATE_TIMEOUT: Duration = Duration::from_secs(15);
/// Limit of bytes that wait for one server.
const MAX_BACKLOG: usize = 64 << 20;

impl<R: Recorder + Clone, U: Upstream + 'static> Aggregate<R, U> {
    pub(super) async fn on_client_frame(&mut self, frame: Frame<'_>) {
        if let Some(fault) = InvalidMessage::if_oversized(&frame, self.front.max_line_bytes) {
            return self.reject(fault).await;
        }
        let Frame::Line(line) = frame else { return };
        let tree = match json::read(line) {
            Ok(tree) => tree,
            Err(error) => return self.reject(InvalidMessage::unreadable(line, &error)).await,
        };
        match jsonrpc::classify(&tree) {
            Err(error) => {
                let fault = InvalidMessage::envelope(line, error);
                self.reject(fault).await;
            }
            Ok(Message::Request { id, method, .. }) => self.on_request(line.len(), tree, id, &method).await,
            Ok(Message::Notification { method, .. }) => self.on_notification(line.len(), tree, &method).await,
            Ok(Message::Response { id, .. }) => self.on_response(line.len(), tree, id).await,
        }
    }

    async fn on_request(&mut self, bytes: usize, tree: Json<'_>, id: Id, method: &str) {
        let is_parked = self.unlisted.iter().any(|(parked, _)| parked.key == id.key);
        if is_parked || self.board.flights.contains_key(&id.key) {
            let detail = "a request with this id is still running".to_owned();
            self.record_rejection("duplicate-id", &detail, bytes).await;
            let message = format!("the message was not forwarded: {detail}");
            return self.refuse(&id, reply::INVALID_REQUEST, message, "duplicate-id");
        }
        if self.board.flights.len() >= MAX_PENDING {
            let message = format!("{MAX_PENDING} requests are already running; wait for an answer");
            return self.refuse(&id, reply::TOO_MANY_REQUESTS, message, "too-many-requests");
        }
        let params = tree.member("params");
        if method == "initialize" {
            let version = params.and_then(|params| params.member("protocolVersion")?.as_text());
            self.board.requested = version.map(std::borrow::Cow::into_owned);
        }
        match route::find(&self.board, method, params) {
            Route::Here => {
                self.board.to_client.push_answer(|out| {
                    let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}", id.spelled);
                    out.extend_from_slice(text.as_bytes());
                });
            }
            Route::Own(tool) => self.call_own(&id, &tool, params).await,
            Route::Nobody { why, unknown_method } => {
                let (code, reason) = match unknown_method {
                    true => (METHOD_NOT_FOUND, "unknown-method"),
                    false => (reply::INVALID_PARAMS, "invalid-params"),
                };
                self.refuse(&id, code, why, reason);
            }
            Route::One { .. } if method == "tools/call" && self.lists_first(&tree) => {
                let parked: usize = self.unlisted.iter().map(|(_, message)| message.len()).sum();
                if self.unlisted.len() >= MAX_PENDING || parked + bytes > MAX_BACKLOG {
                    let message = "too many calls wait until all servers have listed their tools".to_owned();
                    return self.refuse(&id, reply::TOO_MANY_REQUESTS, message, "too-many-requests");
                }
                self.unlisted.push((id, tree.to_compact().into_bytes()));
            }
            Route::One { server, name } => {
                // A server without a handshake may never answer.
                let deadline = self.board.is_late(server).then(|| Instant::now() + SERVER_TIMEOUT);
                self.add(&id, method, params, Dispatch::One(server), deadline);
                match name {
                    None => self.deliver(server, bytes, &tree, id, method).await,
                    Some((path, name)) => {
                        let mut tree: Json<'_> = tree;
                        if let Some(place) = value_at(&mut tree, path) {
                            *place = Json::String(&name);
                        }
                        self.deliver(server, bytes, &tree, id, method).await;
                    }
                }
            }
            Route::Try { mut servers, any_error } => {
                let Some(current) = servers.pop_front() else {
                    return self.refuse(
                        &id,
                        METHOD_NOT_FOUND,
                        format!("no server knows '{method}'"),
                        "no-server",
                    );
                };
                // Only if another server could still answer.
                let message = if servers.is_empty() { Vec::new() } else { tree.to_compact().into_bytes() };
                let attempt = Attempt { current, rest: servers, message, any_error, kept: None };
                self.add(&id, method, params, Dispatch::Try(attempt), None);
                self.deliver(current, bytes, &tree, id, method).await;
            }
            Route::All { what, servers, cursors } => {
                self.ask_all(bytes, tree, id, method, what, servers, cursors).await;
            }
        }
    }

    /// Whether a call has to wait until all servers have listed their tools: a name that two have is known only then.
    fn lists_first(&mut self, call: &Json<'_>) -> bool {
        if !self.has_listed {
            let hosts = self.hosts.iter_mut().enumerate();
            // One that does not answer the handshake would delay the others.
            let here = hosts.filter(|(server, _)| !self.board.is_late(*server));
            self.has_listed =
                here.filter_map(|(_, host)| host.connection.list_ahead(call).then_some(())).count() == 0;
        }
        !self.has_listed
    }

    /// Judges the calls that waited. A server that could not list its tools delays no call again.
    pub(super) async fn go_on_listed(&mut self) {
        if self.unlisted.is_empty() || self.hosts.iter().any(|host| host.connection.is_listing()) {
            return;
        }
        self.has_listed = true;
        for (_, message) in std::mem::take(&mut self.unlisted) {
            self.on_client_frame(Frame::Line(&message)).await;
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one request and of where it goes")]
    async fn ask_all(
        &mut self,
        bytes: usize,
        tree: Json<'_>,
        id: Id,
        method: &str,
        what: GatheredRequest,
        servers: Vec<usize>,
        cursors: BTreeMap<usize, String>,
    ) {
        let now = Instant::now();
        let gather = CollectedLists {
            what,
            waiting: servers.iter().copied().collect(),
            answers: BTreeMap::new(),
            errors: BTreeMap::new(),
            first_until: self.started + FIRST_TIMEOUT,
            is_overdue: false,
            late_until: now + LATE_TIMEOUT,
        };
        let limit = if what.is_hello() { HANDSHAKE_TIMEOUT } else { START_TIMEOUT };
        let is_start = now < self.started + FIRST_TIMEOUT;
        let of_server = if is_start { START_SERVER_TIMEOUT } else { SERVER_TIMEOUT };
        let until = (now + of_server).max(self.started + limit);
        // A subscription has no answer until it ends.
        let deadline = (method != SUBSCRIPTION).then_some(until);
        self.add(&id, method, tree.member("params"), Dispatch::All(gather), deadline);
        if servers.is_empty() {
            return self.board.finish(&id.key);
        }
        for server in servers {
            match cursors.get(&server) {
                None => self.deliver(server, bytes, &tree, id.clone(), method).await,
                Some(cursor) => {
                    let mut tree: Json<'_> = tree.clone();
                    if let Some(place) = value_at(&mut tree, &["params", "cursor"]) {
                        *place = Json::String(cursor);
                    }
                    self.deliver(server, bytes, &tree, id.clone(), method).await;
                }
            }
        }
    }

    /// Passes a request to a server's connection, which judges it.
    async fn deliver(&mut self, server: usize, bytes: usize, tree: &Json<'_>, id: Id, method: &str) {
        let Some(host) = self.hosts.get_mut(server) else { return };
        let mut seat = self.board.client_of_server(server);
        let parked = self.parked.get(server).map_or(0, |lines| lines.iter().map(Vec::len).sum());
        let Connection { to_server, held, audits, .. } = &host.connection;
        if to_server.waiting() + held.len() + audits.bytes() + parked > MAX_BACKLOG {
            let message =
                format!("server '{}' does not accept requests; try again later", seat.board.id_of(server));
            let error = ErrorReply {
                code: reply::TOO_MANY_REQUESTS,
                message,
                reason: "server-does-not-read",
                rule: None,
            };
            return seat.error(Some(&id), &error);
        }
        if host.is_dying() {
            if let Some(lines) = self.parked.get_mut(server) {
                lines.push(tree.to_compact().into_bytes());
            }
            return;
        }
        host.connection.client_request(&mut seat, bytes, tree, id, method, tree.member("params")).await;
    }

    /// Tries the next server after a failure.
    pub(super) async fn try_next(&mut self) {
        while let Some(key) = self.board.retries.pop() {
            let Some(ClientRequest { way: Dispatch::Try(attempt), id, method, .. }) =
                self.board.flights.get_mut(&key)
            else {
                continue;
            };
            let Some(next) = attempt.rest.pop_front() else { continue };
            attempt.current = next;
            let (id, method) = (id.clone(), method.clone());
            let message = match attempt.rest.is_empty() {
                true => std::mem::take(&mut attempt.message),
                false => attempt.message.clone(),
            };
            // agentsh wrote it.
            let Ok(tree) = json::read(&message) else { continue };
            self.deliver(next, message.len(), &tree, id, &method).await;
        }
    }

    /// Cancels requests at servers.
    pub(super) async fn cancel(&mut self, given_up: Vec<(usize, Id)>) {
        for (server, id) in given_up {
            let mut text = Vec::new();
            reply::write_cancelled(&mut text, &id.spelled, "timed out");
            // agentsh wrote it.
            let Ok(tree) = json::read(&text) else { continue };
            self.notify(server, text.len(), &tree, "notifications/cancelled").await;
        }
    }

    async fn on_notification(&mut self, bytes: usize, tree: Json<'_>, method: &str) {
        let params = tree.member("params");
        match method {
            "tools/call" => {
                let detail = "`tools/call` without an `id`".to_owned();
                self.reject(InvalidMessage::invalid(bytes, "invalid-request", detail, None, Shape::Request))
                    .await;
            }
            "notifications/cancelled" => {
                let Some(id) = cancelled_id(params) else { return };
                self.unlisted.retain(|(parked, _)| parked.key != id.key);
                for server in self.board.servers_of(&id.key) {
                    self.notify(server, bytes, &tree, method).await;
                }
                self.board.remove(&id.key);
            }
            "notifications/progress" => {
                let token = params.and_then(|params| Id::from_json(params.member("progressToken")?).ok());
                let Some((server, spelled)) = token.and_then(|token| self.board.asked.token(&token.key))
                else {
                    return;
                };
                let Ok(token) = json::read(spelled.as_bytes()) else { return };
                let mut tree: Json<'_> = tree;
                if let Some(place) = value_at(&mut tree, &["params", "progressToken"]) {
                    *place = token;
                }
                self.notify(server, bytes, &tree, method).await;
            }
            _ => {
                for server in 0..self.hosts.len() {
                    self.notify(server, bytes, &tree, method).await;
                }
            }
        }
    }

    async fn notify(&mut self, server: usize, bytes: usize, tree: &Json<'_>, method: &str) {
        let Some(host) = self.hosts.get_mut(server) else { return };
        let mut seat = self.board.client_of_server(server);
        host.connection.client_notification(&mut seat, bytes, tree, method, tree.member("params")).await;
    }

    async fn on_response(&mut self, bytes: usize, tree: Json<'_>, id: Option<Id>) {
        let Some((server, asked)) = id.as_ref().and_then(|id| self.board.asked.take(&id.key)) else {
            // An error without a request is for no server in particular.
            if id.is_some() {
                let detail = "an answer to a request that no server sent".to_owned();
                self.reject(InvalidMessage::invalid(
                    bytes,
                    "unasked-response",
                    detail,
                    None,
                    Shape::Response,
                ))
                .await;
            }
            return;
        };
        let Ok(spelled) = json::read(asked.spelled.as_bytes()) else { return };
        let mut tree: Json<'_> = tree;
        if let Some(place) = tree.member_mut("id") {
            *place = spelled;
        }
        let Some(host) = self.hosts.get_mut(server) else { return };
        host.connection
            .client_response(&mut self.board.client_of_server(server), bytes, &tree, Some(asked.clone()))
            .await;
    }

    async fn call_own(&mut self, id: &Id, tool: &str, params: Option<&Json<'_>>) {
        let outcome = self.front.own.call(tool, params.and_then(|params| params.member("arguments")));
        // `Recorder::broken` reports a failed store.
        let _ = self.record.commit(called(tool, id.to_value(), outcome.as_ref().err())).await;
        match outcome {
            Err(error) => self.board.to_client.error(Some(id), &error),
            Ok(result) => self.board.to_client.push_answer(|out| {
                let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.spelled);
                out.extend_from_slice(head.as_bytes());
                out.extend_from_slice(result.as_bytes());
                out.push(b'}');
            }),
        }
    }

    /// Records and answers a message that is not forwarded.
    async fn reject(&mut self, fault: InvalidMessage) {
        self.record_rejection(fault.reason, &fault.detail, fault.bytes as usize).await;
        if fault.shape.is_answer() {
            // The server that asked gets an error.
            if let Some((server, asked)) = fault.id.as_ref().and_then(|id| self.board.asked.take(&id.key))
                && let Some(host) = self.hosts.get_mut(server)
            {
                host.connection.from_server.answer(&asked.key);
                host.connection.error_to_server(Some(&asked.spelled), &fault.to_asker("the client"));
            }
            return;
        }
        let id = fault.id.as_ref().filter(|id| !self.board.flights.contains_key(&id.key));
        self.board.to_client.error(id, &fault.to_sender());
    }

    async fn record_rejection(&self, reason: &str, detail: &str, bytes: usize) {
        // `Recorder::broken` reports a failed store.
        let _ = self.record.commit(rejected(reason, detail, bytes as u64)).await;
    }

    fn refuse(&mut self, id: &Id, code: i32, message: String, reason: &'static str) {
        self.board.to_client.error(Some(id), &ErrorReply { code, message, reason, rule: None });
    }

    fn add(
        &mut self,
        id: &Id,
        method: &str,
        params: Option<&Json<'_>>,
        way: Dispatch,
        deadline: Option<Instant>,
    ) {
        let token = progress_token(params).map(|token| token.key);
        self.board.add(ClientRequest { id: id.clone(), method: method.into(), token, way, deadline });
    }
}

/// The event for a call of the proxy's own tool. Arguments may contain a key and are omitted.
#[must_use]
pub fn called(tool: &str, jsonrpc_id: Value, refused: Option<&ErrorReply>) -> Event {
    Event::McpToolCallIntercepted {
        server_id: ServerId(OWN_ID.to_owned()),
        tool_name: tool.chars().take(128).collect(),
        jsonrpc_id,
        tool_hash: None,
        action: if refused.is_some() { Action::Block } else { Action::Allow },
        reason: refused.map_or("no-rule", |error| error.reason).to_owned(),
        rule: RuleRef::default_rule("proxy.own_tools"),
    }
}

/// The event for a client message that reaches no server.
pub(crate) fn rejected(reason: &str, detail: &str, bytes: u64) -> Event {
    Event::McpMessageRejected {
        server_id: ServerId(OWN_ID.to_owned()),
        from: Side::Client.sender(),
        reason: reason.to_owned(),
        detail: detail.to_owned(),
        bytes,
    }
}

/// The value at a path of member names.
fn value_at<'t, 'a>(tree: &'t mut Json<'a>, path: &[&str]) -> Option<&'t mut Json<'a>> {
    path.iter().try_fold(tree, |value, name| value.member_mut(name))
}
