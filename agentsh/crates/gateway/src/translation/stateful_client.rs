//! A client with sessions and a server without. Answers the handshake from `server/discover`, adds its data to each
//! request, and turns `input_required` into requests to the client.

use std::collections::{BTreeMap, HashMap};

use crate::json::{self, Json};
use crate::mcp::jsonrpc::{Id, Key, Message, classify};

use super::edit_json::{self, answer, error, line, notification, parse_valid, request, set, strip_id_prefix};
use super::{OWN_ID_PREFIX, Step};
use crate::message::{CAPABILITIES, STATEFUL, STATELESS, SUBSCRIPTION, VERSION};

const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Limit of input rounds per request.
const MAX_ROUNDS: u32 = 16;
/// Limit of questions per answer.
const MAX_ASKED: usize = 16;
const MAX_URIS: usize = 1000;
const INTERNAL_ERROR: i32 = -32603;

#[derive(Default)]
enum Phase {
    #[default]
    New,
    /// The server has the client's `initialize`.
    Greeting,
    /// The server refused it with this, and was asked for its protocol.
    Asking(Vec<u8>),
    Ready,
    /// It speaks the client's protocol.
    Straight,
}

#[derive(Default)]
pub struct StatefulClient {
    phase: Phase,
    /// The client's `initialize`: id, revision, capabilities and name, as JSON.
    id: String,
    version: String,
    capabilities: String,
    client: String,
    level: Option<String>,
    serial: u64,
    /// Running requests, by the server's id.
    running: HashMap<Key, Running>,
    /// Open questions: by agentsh's id, with request and name.
    asked: HashMap<String, (Key, String)>,
    /// Lists that the server announced as changing.
    listed: Vec<&'static str>,
    uris: Vec<String>,
    /// The listening request.
    listening: Option<String>,
}

struct Running {
    /// The client's own id.
    id: String,
    key: Key,
    /// The request as sent.
    text: Vec<u8>,
    rounds: u32,
    /// The server's state to return, as JSON.
    state: Option<String>,
    answers: BTreeMap<String, String>,
    lacking: usize,
}

const LISTED: [(&str, &str); 3] =
    [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")];

impl StatefulClient {
    pub fn is_passthrough(&self) -> bool {
        matches!(self.phase, Phase::Straight)
    }

    pub fn on_client_message(&mut self, text: &[u8], steps: &mut Vec<Step>) {
        if !matches!(self.phase, Phase::Ready) {
            if matches!(self.phase, Phase::New) {
                self.remember(text);
            }
            return steps.push(Step::ToServer(text.to_vec()));
        }
        let Ok(tree) = json::read(text) else { return };
        match classify(&tree) {
            Ok(Message::Request { id, method, params }) => {
                let method = method.into_owned();
                self.on_request(id, &method, params, text, steps);
            }
            Ok(Message::Notification { method, params }) => match method.as_ref() {
                "notifications/initialized" => self.listen(steps),
                "notifications/roots/list_changed" => {}
                "notifications/cancelled" => {
                    let id = params.and_then(|params| Id::from_json(params.member("requestId")?).ok());
                    if let Some(id) = id {
                        self.cancel(&id.key, steps);
                    }
                }
                _ => steps.push(Step::ToServer(text.to_vec())),
            },
            Ok(Message::Response { id: Some(id), .. }) => {
                if let Some((request, name)) =
                    strip_id_prefix(&id, OWN_ID_PREFIX).and_then(|own| self.asked.remove(own))
                {
                    self.on_given(&request, name, &tree, steps);
                }
            }
            _ => {}
        }
    }

    pub fn on_server_message(&mut self, text: &[u8], steps: &mut Vec<Step>) {
        let Ok(tree) = json::read(text) else { return };
        let (id, is_error) = match classify(&tree) {
            Ok(Message::Response { id: Some(id), is_error }) => (id, is_error),
            Ok(Message::Notification { method, .. }) => {
                let is_own = method == "notifications/subscriptions/acknowledged";
                if !is_own {
                    self.on_notification(tree, steps);
                }
                return;
            }
            _ => return steps.push(Step::ToClient(text.to_vec())),
        };
        match (&self.phase, strip_id_prefix(&id, OWN_ID_PREFIX)) {
            (Phase::Greeting, _) if *id.spelled == *self.id => self.on_greeted(&tree, is_error, text, steps),
            (Phase::Asking(_), Some("discover")) => self.on_discovered(&tree, steps),
            (Phase::Ready, Some(name)) if self.listening.as_deref() == Some(name) => self.listening = None,
            (Phase::Ready, _) if self.running.contains_key(&id.key) => self.on_answer(&id.key, tree, steps),
            // From a replaced stream.
            (Phase::Ready, Some(_)) => {}
            _ => steps.push(Step::ToClient(text.to_vec())),
        }
    }

    /// Keeps the client's description, which the server needs in each request.
    fn remember(&mut self, text: &[u8]) {
        let Ok(tree) = json::read(text) else { return };
        let Ok(Message::Request { id, method, params }) = classify(&tree) else { return };
        if method != "initialize" {
            return;
        }
        let said = |name: &str| params.and_then(|params| params.member(name)).map(Json::to_compact);
        self.id = id.spelled.to_string();
        self.version = said("protocolVersion").unwrap_or_default().trim_matches('"').to_owned();
        self.capabilities = said("capabilities").unwrap_or_else(|| "{}".to_owned());
        self.client =
            said("clientInfo").unwrap_or_else(|| r#"{"name":"agentsh-gateway","version":"1"}"#.to_owned());
        self.phase = Phase::Greeting;
    }

    fn on_greeted(&mut self, tree: &Json<'_>, is_error: bool, text: &[u8], steps: &mut Vec<Step>) {
        // agentsh's own refusal has a reason: the server was not asked.
        let is_ours = tree.member("error").and_then(|error| error.member("data")?.member("reason")).is_some();
        if !is_error || is_ours {
            self.phase = if is_error { Phase::New } else { Phase::Straight };
            return steps.push(Step::ToClient(text.to_vec()));
        }
        self.phase = Phase::Asking(text.to_vec());
        let params = format!(r#"{{"_meta":{}}}"#, self.meta());
        steps.push(Step::ToServer(request(&format!("{OWN_ID_PREFIX}discover"), "server/discover", &params)));
    }

    fn on_discovered(&mut self, tree: &Json<'_>, steps: &mut Vec<Step>) {
        let Phase::Asking(refusal) = std::mem::take(&mut self.phase) else { return };
        let result = tree.member("result");
        let versions = result.and_then(|result| result.member("supportedVersions")?.as_array());
        let speaks = versions
            .is_some_and(|all| all.iter().any(|version| version.as_text().as_deref() == Some(STATELESS)));
        let Some(result) = result.filter(|_| speaks) else {
            return steps.push(Step::ToClient(refusal));
        };
        let capabilities = result.member("capabilities");
        let changes = |name: &str| {
            let said = capabilities.and_then(|all| all.member(name)?.member("listChanged"));
            said.is_some_and(|is| *is == Json::Bool(true))
        };
        self.listed = LISTED.iter().filter(|(name, _)| changes(name)).map(|(_, wanted)| *wanted).collect();
        let info = result.member("_meta").and_then(|meta| meta.member(SERVER));
        let info = info.or_else(|| result.member("serverInfo"));
        let info = info.map_or_else(|| r#"{"name":"server","version":""}"#.to_owned(), Json::to_compact);
        let instructions = result.member("instructions").map(Json::to_compact);
        let instructions = instructions.map(|text| format!(r#","instructions":{text}"#)).unwrap_or_default();
        // The client itself refuses an unknown one.
        let version = STATEFUL.into_iter().find(|known| *known == self.version).unwrap_or(STATEFUL[3]);
        let capabilities = capabilities.map_or_else(|| "{}".to_owned(), Json::to_compact);
        let result = format!(
            r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{info}{instructions}}}"#
        );
        steps.push(Step::ToClient(answer(&self.id, &result)));
        self.phase = Phase::Ready;
    }

    fn meta(&self) -> String {
        let level = self.level.as_ref().map(|level| format!(r#","{LEVEL}":{level}"#)).unwrap_or_default();
        format!(
            r#"{{"{VERSION}":"{STATELESS}","{CLIENT}":{},"{CAPABILITIES}":{}{level}}}"#,
            self.client, self.capabilities
        )
    }

    fn on_request(
        &mut self,
        id: Id,
        method: &str,
        params: Option<&Json<'_>>,
        text: &[u8],
        steps: &mut Vec<Step>,
    ) {
        let said = |name: &str| params.and_then(|params| params.member(name));
        let uri = said("uri").and_then(Json::as_text).map(std::borrow::Cow::into_owned);
        match method {
            "ping" => {}
            "logging/setLevel" => self.level = said("level").map(Json::to_compact),
            "resources/subscribe" => {
                if let Some(uri) = uri.filter(|uri| self.uris.len() < MAX_URIS && !self.uris.contains(uri)) {
                    self.uris.push(uri);
                    self.listen(steps);
                }
            }
            "resources/unsubscribe" => {
                self.uris.retain(|known| Some(known) != uri.as_ref());
                self.listen(steps);
            }
            "initialize" => {
                let why = "the session is already initialized";
                return steps.push(Step::ToClient(error(&id.spelled, INTERNAL_ERROR, why)));
            }
            _ => {
                let text = self.with_meta(text);
                let running = Running {
                    id: id.spelled.to_string(),
                    key: id.key.clone(),
                    text: text.clone(),
                    rounds: 0,
                    state: None,
                    answers: BTreeMap::new(),
                    lacking: 0,
                };
                self.running.insert(id.key, running);
                return steps.push(Step::ToServer(text));
            }
        }
        steps.push(Step::ToClient(answer(&id.spelled, "{}")));
    }

    /// The request with the client's metadata.
    fn with_meta(&self, text: &[u8]) -> Vec<u8> {
        let own = self.meta();
        let Ok(mut tree) = json::read(text) else { return text.to_vec() };
        if let Some(params) = edit_json::object(&mut tree, "params")
            && let Some(meta) = edit_json::object(params, "_meta")
            && let Json::Object(members) = parse_valid(&own)
        {
            members.into_iter().for_each(|(name, value)| set(meta, name, value));
        }
        line(&tree)
    }

    fn own_id(&mut self, what: &str) -> String {
        self.serial += 1;
        format!("{what}-{}", self.serial)
    }

    fn on_answer(&mut self, key: &Key, tree: Json<'_>, steps: &mut Vec<Step>) {
        let result = tree.member("result");
        let kind = result.and_then(|result| result.member("resultType")?.as_text());
        if kind.as_deref() == Some("input_required") {
            return self.on_wanted(key, &tree, steps);
        }
        let Some(running) = self.running.remove(key) else { return };
        let mut tree = tree;
        if let Some(result) = tree.member_mut("result") {
            edit_json::remove(result, &["resultType"]);
        }
        set(&mut tree, "id", parse_valid(&running.id));
        steps.push(Step::ToClient(line(&tree)));
    }

    /// The server needs input before it answers.
    fn on_wanted(&mut self, key: &Key, tree: &Json<'_>, steps: &mut Vec<Step>) {
        let Some(mut running) = self.running.remove(key) else { return };
        running.rounds += 1;
        let result = tree.member("result");
        running.state = result.and_then(|result| result.member("requestState")).map(Json::to_compact);
        let wanted =
            result.and_then(|result| result.member("inputRequests")?.as_object()).unwrap_or_default();
        if running.rounds > MAX_ROUNDS || wanted.len() > MAX_ASKED {
            let why = "the server sent too many requests to the client";
            return steps.push(Step::ToClient(error(&running.id, INTERNAL_ERROR, why)));
        }
        running.answers.clear();
        running.lacking = wanted.len();
        if wanted.is_empty() {
            return self.repeat_request(running, steps);
        }
        for (raw, wanted) in wanted {
            let name = json::unescape(raw).into_owned();
            let method = wanted.member("method").and_then(Json::as_text).unwrap_or_default();
            let params = wanted.member("params").map_or_else(|| "{}".to_owned(), Json::to_compact);
            let id = self.own_id("ask");
            steps.push(Step::ToClient(request(
                &format!("{OWN_ID_PREFIX}{id}"),
                &json::escape_text(&method),
                &params,
            )));
            self.asked.insert(id, (key.clone(), name));
        }
        self.running.insert(key.clone(), running);
    }

    /// The client returned input.
    fn on_given(&mut self, request: &Key, name: String, tree: &Json<'_>, steps: &mut Vec<Step>) {
        let Some(mut running) = self.running.remove(request) else { return };
        let Some(given) = tree.member("result").map(Json::to_compact) else {
            // Its refusal ends the request.
            self.asked.retain(|_, (other, _)| other != request);
            let mut told = tree.clone();
            set(&mut told, "id", parse_valid(&running.id));
            return steps.push(Step::ToClient(line(&told)));
        };
        running.answers.insert(name, given);
        running.lacking = running.lacking.saturating_sub(1);
        if running.lacking == 0 {
            return self.repeat_request(running, steps);
        }
        self.running.insert(request.clone(), running);
    }

    /// Repeats the request with the input, under a new id.
    fn repeat_request(&mut self, mut running: Running, steps: &mut Vec<Step>) {
        let id = format!("{OWN_ID_PREFIX}{}", self.own_id("again"));
        let spelled = format!("\"{id}\"");
        let all: Vec<String> = running
            .answers
            .iter()
            .map(|(name, given)| format!("\"{}\":{given}", json::escape_text(name)))
            .collect();
        let given = format!("{{{}}}", all.join(","));
        let text = {
            let Ok(mut tree) = json::read(&running.text) else { return };
            set(&mut tree, "id", parse_valid(&spelled));
            if let Some(params) = edit_json::object(&mut tree, "params") {
                edit_json::remove(params, &["requestState", "inputResponses"]);
                if let Some(state) = &running.state {
                    set(params, "requestState", parse_valid(state));
                }
                if !running.answers.is_empty() {
                    set(params, "inputResponses", parse_valid(&given));
                }
            }
            line(&tree)
        };
        running.answers.clear();
        self.running.insert(Key::Text(id.into()), running);
        steps.push(Step::ToServer(text));
    }

    fn cancel(&mut self, client: &Key, steps: &mut Vec<Step>) {
        let found = self.running.iter().find(|(_, running)| running.key == *client);
        let Some(key) = found.map(|(key, _)| key.clone()) else { return };
        let waits = self.running.remove(&key).is_some_and(|running| running.lacking > 0);
        self.asked.retain(|_, (request, _)| *request != key);
        if waits {
            // The server has answered; nothing is running.
            return;
        }
        steps.push(Step::ToServer(cancelled(&key)));
    }

    /// Subscribes to announced lists, and to the client's resources.
    fn listen(&mut self, steps: &mut Vec<Step>) {
        if let Some(before) = self.listening.take() {
            steps.push(Step::ToServer(cancelled(&Key::Text(format!("{OWN_ID_PREFIX}{before}").into()))));
        }
        let mut wanted: Vec<String> = self.listed.iter().map(|name| format!(r#""{name}":true"#)).collect();
        if !self.uris.is_empty() {
            let all: Vec<String> =
                self.uris.iter().map(|uri| format!("\"{}\"", json::escape_text(uri))).collect();
            wanted.push(format!(r#""resourceSubscriptions":[{}]"#, all.join(",")));
        }
        if wanted.is_empty() {
            return;
        }
        let id = self.own_id("listen");
        let params = format!(r#"{{"_meta":{},"notifications":{{{}}}}}"#, self.meta(), wanted.join(","));
        steps.push(Step::ToServer(request(&format!("{OWN_ID_PREFIX}{id}"), "subscriptions/listen", &params)));
        self.listening = Some(id);
    }

    fn on_notification(&self, mut tree: Json<'_>, steps: &mut Vec<Step>) {
        if let Some(params) = tree.member_mut("params")
            && let Some(meta) = params.member_mut("_meta")
        {
            edit_json::remove(meta, &[SUBSCRIPTION]);
            if meta.as_object().is_some_and(<[_]>::is_empty) {
                edit_json::remove(params, &["_meta"]);
            }
        }
        steps.push(Step::ToClient(line(&tree)));
    }
}

fn cancelled(key: &Key) -> Vec<u8> {
    let id = match key {
        Key::Number(raw) => raw.to_string(),
        Key::Text(text) => format!("\"{}\"", json::escape_text(text)),
    };
    notification("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#))
}
