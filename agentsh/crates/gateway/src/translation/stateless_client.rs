//! A client without sessions and a server with them. Requests of clients with equal capabilities share one server
//! session. Questions of the server are returned as `input_required` and answered when the request is repeated.

use std::collections::{HashMap, VecDeque};

use crate::json::{self, Json};
use crate::mcp::jsonrpc::{Id, Key, Message, classify};

use super::edit_json::{
    self, answer, error, line, notification, parse_valid, request, set, set_default, strip_id_prefix,
};
use super::listeners::{Listeners, own_id};
use super::{OWN_ID_PREFIX, Step};
use crate::keys::random_hex;
use crate::message::{CAPABILITIES, STATELESS, VERSION};

const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Limit of lines that wait for protocol discovery.
const MAX_QUEUED: usize = 256;
/// Limit of requests that wait for the client's input; the oldest is dropped.
const MAX_PARKED: usize = 64;
/// Methods that only exist with sessions.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
/// Methods whose results have a TTL.
const METHODS_WITH_TTL: [&str; 5] =
    ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"];
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
const UNSUPPORTED_VERSION: i32 = -32022;

#[derive(Default)]
enum Phase {
    /// No answer yet.
    #[default]
    New,
    /// Asked whether the server works without sessions.
    Asking,
    /// Sent `initialize`.
    Greeting,
    Ready,
    /// It speaks the client's protocol.
    Straight,
}

#[derive(Default)]
pub struct StatelessClient {
    phase: Phase,
    queue: VecDeque<Vec<u8>>,
    /// Capabilities and name of the first client, as JSON.
    capabilities: String,
    client: String,
    /// The server's own description, as JSON.
    server: ServerDescription,
    serial: u64,
    running: HashMap<Key, Running>,
    parked: VecDeque<(String, PendingInput)>,
    listeners: Listeners,
    level: Option<String>,
    /// The request of a question is unknown, and another key must not answer it.
    asks_nobody: bool,
}

#[derive(Default)]
struct ServerDescription {
    capabilities: String,
    info: String,
    instructions: Option<String>,
    has_logging: bool,
}

/// A request at the server.
struct Running {
    order: u64,
    method: String,
    /// The id for which the client waits; None while it is asked.
    waits: Option<String>,
    /// The answer, if it came before the client's input.
    done: Option<Vec<u8>>,
    /// Further questions of the server.
    asks: VecDeque<(String, String)>,
}

/// Input that the client has to return.
struct PendingInput {
    request: Key,
    /// The server's request id, as written.
    ask: String,
}

const INPUT_ID_PREFIX: &str = "input";

impl StatelessClient {
    pub fn for_everybody() -> Self {
        Self { asks_nobody: true, ..Self::default() }
    }

    pub fn is_passthrough(&self) -> bool {
        matches!(self.phase, Phase::Straight)
    }

    pub fn on_client_message(&mut self, text: &[u8], steps: &mut Vec<Step>) {
        let Ok(tree) = json::read(text) else { return };
        match self.phase {
            Phase::Straight => steps.push(Step::ToServer(text.to_vec())),
            Phase::Ready => self.take(tree, steps),
            Phase::New => {
                let meta = tree.member("params").and_then(|params| params.member("_meta"));
                let said = |name: &str| meta.and_then(|meta| meta.member(name)).map(Json::to_compact);
                self.capabilities = said(CAPABILITIES).unwrap_or_else(|| "{}".to_owned());
                self.client =
                    said(CLIENT).unwrap_or_else(|| r#"{"name":"agentsh-gateway","version":"1"}"#.to_owned());
                let params = format!(
                    r#"{{"_meta":{{"{VERSION}":"{STATELESS}","{CLIENT}":{},"{CAPABILITIES}":{}}}}}"#,
                    self.client, self.capabilities
                );
                steps.push(Step::ToServer(request(
                    &format!("{OWN_ID_PREFIX}discover"),
                    "server/discover",
                    &params,
                )));
                self.phase = Phase::Asking;
                self.queue.push_back(text.to_vec());
            }
            Phase::Asking | Phase::Greeting => {
                if self.queue.len() < MAX_QUEUED {
                    self.queue.push_back(text.to_vec());
                } else if let Ok(Message::Request { id, .. }) = classify(&tree) {
                    let why = "too many requests are waiting for the server to start";
                    steps.push(Step::ToClient(error(&id.spelled, INTERNAL_ERROR, why)));
                }
            }
        }
    }

    /// The server may not know the question: sends the older handshake too. The first answer counts.
    pub fn on_silence(&mut self, steps: &mut Vec<Step>) {
        if matches!(self.phase, Phase::Asking) {
            self.send_initialize(steps);
        }
    }

    pub fn on_server_message(&mut self, text: &[u8], steps: &mut Vec<Step>) {
        let Ok(tree) = json::read(text) else { return };
        let id = match classify(&tree) {
            Ok(Message::Response { id: Some(id), .. }) => id,
            Ok(Message::Request { id, method, params }) => {
                let params = params.map_or_else(|| "{}".to_owned(), Json::to_compact);
                return self.on_request(&id, &method, params, steps);
            }
            Ok(Message::Notification { method, .. }) => {
                let method = method.into_owned();
                return self.listeners.forward_notification(&method, tree, steps);
            }
            _ => return,
        };
        match strip_id_prefix(&id, OWN_ID_PREFIX) {
            Some("discover") => self.on_discovered(&tree, steps),
            Some("initialize") => self.on_greeted(&tree, steps),
            // An answer to a subscription or log level.
            Some(_) => {}
            None => self.on_answer(&id.key, tree, steps),
        }
    }

    fn on_discovered(&mut self, tree: &Json<'_>, steps: &mut Vec<Step>) {
        if !matches!(self.phase, Phase::Asking | Phase::Greeting) {
            return;
        }
        let versions = tree.member("result").and_then(|result| result.member("supportedVersions"));
        let speaks = versions
            .and_then(Json::as_array)
            .is_some_and(|all| all.iter().any(|version| version.as_text().as_deref() == Some(STATELESS)));
        if speaks {
            self.phase = Phase::Straight;
            steps.extend(self.queue.drain(..).map(Step::ToServer));
        } else if matches!(self.phase, Phase::Asking) {
            self.send_initialize(steps);
        }
    }

    fn send_initialize(&mut self, steps: &mut Vec<Step>) {
        self.phase = Phase::Greeting;
        let params = format!(
            r#"{{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}"#,
            self.capabilities, self.client
        );
        steps.push(Step::ToServer(request(&format!("{OWN_ID_PREFIX}initialize"), "initialize", &params)));
    }

    fn on_greeted(&mut self, tree: &Json<'_>, steps: &mut Vec<Step>) {
        if !matches!(self.phase, Phase::Greeting) {
            return;
        }
        let Some(result) = tree.member("result") else {
            // The next client tries again.
            self.phase = Phase::New;
            for text in std::mem::take(&mut self.queue) {
                let Ok(queued) = json::read(&text) else { continue };
                let Ok(Message::Request { id, .. }) = classify(&queued) else { continue };
                let mut told = tree.clone();
                set(&mut told, "id", parse_valid(&id.spelled));
                steps.push(Step::ToClient(line(&told)));
            }
            return;
        };
        let said = |name: &str| result.member(name).map(Json::to_compact);
        self.server = ServerDescription {
            capabilities: said("capabilities").unwrap_or_else(|| "{}".to_owned()),
            info: said("serverInfo").unwrap_or_else(|| "{}".to_owned()),
            instructions: said("instructions"),
            has_logging: result.member("capabilities").is_some_and(|all| all.member("logging").is_some()),
        };
        self.phase = Phase::Ready;
        steps.push(Step::ToServer(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec()));
        for text in std::mem::take(&mut self.queue) {
            if let Ok(queued) = json::read(&text) {
                self.take(queued, steps);
            }
        }
    }

    /// Handles a client message.
    fn take(&mut self, mut tree: Json<'_>, steps: &mut Vec<Step>) {
        let (id, method) = match classify(&tree) {
            Ok(Message::Request { id, method, .. }) => (id, method.into_owned()),
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    let id = params.and_then(|params| Id::from_json(params.member("requestId")?).ok());
                    if id.is_some_and(|id| self.cancel(&id.key, steps)) {
                        return;
                    }
                }
                return steps.push(Step::ToServer(line(&tree)));
            }
            _ => return,
        };
        let params = tree.member("params");
        let meta = params.and_then(|params| params.member("_meta"));
        let version = meta.and_then(|meta| meta.member(VERSION)?.as_text());
        if version.as_deref() != Some(STATELESS) {
            let asked = json::escape_text(version.as_deref().unwrap_or_default());
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{UNSUPPORTED_VERSION},"message":"this protocol version is not supported","data":{{"supported":["{STATELESS}"],"requested":"{asked}"}}}}}}"#,
                id.spelled
            );
            return steps.push(Step::ToClient(text.into_bytes()));
        }
        if method == "server/discover" {
            return steps.push(Step::ToClient(answer(&id.spelled, &self.discovered())));
        }
        if method == "subscriptions/listen" {
            return self.listeners.begin(&id, params, &mut self.serial, steps);
        }
        if REMOVED.contains(&method.as_str()) {
            let why = format!("the revision {STATELESS} has no {method}");
            return steps.push(Step::ToClient(error(&id.spelled, METHOD_NOT_FOUND, &why)));
        }
        if let Some(state) = params.and_then(|params| params.member("requestState")) {
            let state = state.as_text().unwrap_or_default().into_owned();
            return self.go_on(&id, &state, params, steps);
        }
        let level = meta.and_then(|meta| meta.member(LEVEL)).map(Json::to_compact);
        self.set_level(level, steps);
        self.serial += 1;
        let running = Running {
            order: self.serial,
            method,
            waits: Some(id.spelled.to_string()),
            done: None,
            asks: VecDeque::new(),
        };
        self.running.insert(id.key, running);
        strip(&mut tree);
        steps.push(Step::ToServer(line(&tree)));
    }

    fn discovered(&self) -> String {
        let ServerDescription { capabilities, info, instructions, .. } = &self.server;
        let instructions =
            instructions.as_ref().map(|text| format!(r#","instructions":{text}"#)).unwrap_or_default();
        format!(
            r#"{{"resultType":"complete","supportedVersions":["{STATELESS}"],"capabilities":{capabilities}{instructions},"ttlMs":0,"cacheScope":"private","_meta":{{"{SERVER}":{info}}}}}"#
        )
    }

    fn set_level(&mut self, level: Option<String>, steps: &mut Vec<Step>) {
        if !self.server.has_logging || level.is_none() || level == self.level {
            return;
        }
        if let Some(word) = &level {
            let id = own_id(&mut self.serial, "level");
            let params = format!(r#"{{"level":{word}}}"#);
            steps.push(Step::ToServer(request(&id, "logging/setLevel", &params)));
        }
        self.level = level;
    }

    /// The client returns its input.
    fn go_on(&mut self, id: &Id, state: &str, params: Option<&Json<'_>>, steps: &mut Vec<Step>) {
        let at = self.parked.iter().position(|(known, _)| known == state);
        let Some((_, parked)) = at.and_then(|at| self.parked.remove(at)) else {
            let why = "no pending request has this requestState; start again";
            return steps.push(Step::ToClient(error(&id.spelled, INVALID_PARAMS, why)));
        };
        let given = params.and_then(|params| params.member("inputResponses")?.member(INPUT_ID_PREFIX));
        steps.push(Step::ToServer(match given {
            Some(given) => answer(&parked.ask, &given.to_compact()),
            None => error(&parked.ask, INTERNAL_ERROR, "the client did not answer"),
        }));
        let Some(running) = self.running.get_mut(&parked.request) else { return };
        running.waits = Some(id.spelled.to_string());
        if let Some(done) = running.done.take() {
            self.running.remove(&parked.request);
            return steps.push(Step::ToClient(done_as(&done, &id.spelled)));
        }
        if let Some((ask, what)) = running.asks.pop_front() {
            self.ask(&parked.request, ask, &what, steps);
        }
    }

    /// The server asks the client.
    fn on_request(&mut self, id: &Id, method: &str, params: String, steps: &mut Vec<Step>) {
        if method == "ping" {
            return steps.push(Step::ToServer(answer(&id.spelled, "{}")));
        }
        if self.asks_nobody {
            let why = "the endpoint has `shared: everybody`: no client can be asked; with `shared: key` a client can answer";
            return steps.push(Step::ToServer(error(&id.spelled, METHOD_NOT_FOUND, why)));
        }
        let what = format!(r#"{{"method":"{}","params":{params}}}"#, json::escape_text(method));
        // With a session, the request of a question is unknown: takes the newest.
        let newest = self.running.iter_mut().filter(|(_, running)| running.done.is_none());
        let Some((key, running)) = newest.max_by_key(|(_, running)| running.order) else {
            let why = "no client request is open that could be asked";
            return steps.push(Step::ToServer(error(&id.spelled, INTERNAL_ERROR, why)));
        };
        if running.waits.is_none() {
            running.asks.push_back((id.spelled.to_string(), what));
            return;
        }
        let key = key.clone();
        self.ask(&key, id.spelled.to_string(), &what, steps);
    }

    fn ask(&mut self, request: &Key, ask: String, what: &str, steps: &mut Vec<Step>) {
        let Some(running) = self.running.get_mut(request) else { return };
        let Some(waits) = running.waits.take() else { return };
        let Ok(state) = random_hex::<16>() else {
            running.waits = Some(waits);
            return steps.push(Step::ToServer(error(
                &ask,
                INTERNAL_ERROR,
                "the system's random number generator failed",
            )));
        };
        let result = format!(
            r#"{{"resultType":"input_required","inputRequests":{{"{INPUT_ID_PREFIX}":{what}}},"requestState":"{state}"}}"#
        );
        steps.push(Step::ToClient(answer(&waits, &result)));
        self.parked.push_back((state, PendingInput { request: request.clone(), ask }));
        if self.parked.len() > MAX_PARKED
            && let Some((_, oldest)) = self.parked.pop_front()
        {
            self.give_up(&oldest.request, &oldest.ask, steps);
        }
    }

    fn give_up(&mut self, request: &Key, ask: &str, steps: &mut Vec<Step>) {
        steps.push(Step::ToServer(error(ask, INTERNAL_ERROR, "the client did not retry")));
        if self.running.remove(request).is_some() {
            let params = format!(r#"{{"requestId":{}}}"#, key_text(request));
            steps.push(Step::ToServer(notification("notifications/cancelled", &params)));
        }
    }

    fn on_answer(&mut self, key: &Key, tree: Json<'_>, steps: &mut Vec<Step>) {
        let Some(running) = self.running.get_mut(key) else { return };
        let info = self.server.info.clone();
        // Shorter lifetime for the inserted values.
        let mut tree = tree;
        if let Some(result) = tree.member_mut("result") {
            set_default(result, "resultType", Json::String("complete"));
            if METHODS_WITH_TTL.contains(&running.method.as_str()) {
                set_default(result, "ttlMs", Json::Number("0"));
                set_default(result, "cacheScope", Json::String("private"));
            }
            if let Some(meta) = edit_json::object(result, "_meta") {
                set_default(meta, SERVER, parse_valid(&info));
            }
        }
        let done = line(&tree);
        match running.waits.take() {
            Some(waits) => {
                self.running.remove(key);
                steps.push(Step::ToClient(done_as(&done, &waits)));
            }
            None => running.done = Some(done),
        }
    }

    /// Ends a listener, or a request that waits for its client. False: the server has it.
    fn cancel(&mut self, key: &Key, steps: &mut Vec<Step>) -> bool {
        if self.listeners.end(key, &mut self.serial, steps) {
            return true;
        }
        let known = key_text(key);
        // Under its first id, if it was repeated.
        let first = self.running.iter().find(|(_, running)| running.waits.as_deref() == Some(&known));
        let Some(first) = first.map(|(first, _)| first.clone()) else { return false };
        self.running.remove(&first);
        let params = format!(r#"{{"requestId":{}}}"#, key_text(&first));
        steps.push(Step::ToServer(notification("notifications/cancelled", &params)));
        true
    }
}

/// Removes what a server with sessions gets once.
fn strip(tree: &mut Json<'_>) {
    let Some(params) = tree.member_mut("params") else { return };
    let Some(meta) = params.member_mut("_meta") else { return };
    edit_json::remove(meta, &[VERSION, CLIENT, CAPABILITIES, LEVEL]);
    if meta.as_object().is_some_and(<[_]>::is_empty) {
        edit_json::remove(params, &["_meta"]);
    }
}

fn done_as(done: &[u8], id: &str) -> Vec<u8> {
    let Ok(mut tree) = json::read(done) else { return done.to_vec() };
    set(&mut tree, "id", parse_valid(id));
    line(&tree)
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Number(raw) => raw.to_string(),
        Key::Text(text) => format!("\"{}\"", json::escape_text(text)),
    }
}
