//! Handles the server's messages: read, classify, match with a request, inspect, forward.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

use agentsh_secrets::views::ansi;

use crate::guard::{Offer, Rewrite, SubjectKind};
use crate::json::{self, Json};
use crate::store::{Event, Recorder};

use super::advise::{Advice, put_about};
use super::classify::{Classified, ServerAnswer, Waiting};
use super::client::Client;
use super::connection::{Connection, Phase, Side};
use super::framing::Frame;
use super::from_client::{apply_rewrites, cancelled_id};
use super::jsonrpc::{self, Id, Message, Shape};
use super::pending::{Answer, InsertError, Kind};
use super::record::RecordSubject;
use super::reject::InvalidMessage;
use super::reply;

/// What to do after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    /// The replayed handshake was answered; true if the server agreed.
    Replayed(bool),
}

enum Plan<'a> {
    Request(Id, String),
    Notification(Cow<'a, str>),
    Answer(Option<Id>, bool),
}

impl<R: Recorder> Connection<R> {
    pub async fn on_server_frame(&mut self, client: &mut impl Client, frame: Frame<'_>) -> Step {
        if let Some(fault) = InvalidMessage::if_oversized(&frame, self.options.max_line_bytes) {
            self.reject(client, Side::Server, fault).await;
            return Step::Done;
        }
        let Frame::Line(line) = frame else { return Step::Done };
        let tree = match json::read(line) {
            Ok(tree) => tree,
            Err(error) => {
                self.reject(client, Side::Server, InvalidMessage::unreadable(line, &error)).await;
                return Step::Done;
            }
        };
        let plan = match jsonrpc::classify(&tree) {
            Err(error) => {
                let fault = InvalidMessage::envelope(line, error);
                self.reject(client, Side::Server, fault).await;
                self.close_batched(client, &tree).await;
                return Step::Done;
            }
            Ok(Message::Request { id, method, .. }) => Plan::Request(id, method.into_owned()),
            Ok(Message::Notification { method, params }) => {
                self.note_notification(&method, params);
                Plan::Notification(method)
            }
            Ok(Message::Response { id, is_error }) => Plan::Answer(id, is_error),
        };
        match plan {
            Plan::Request(id, method) => self.server_request(client, line.len(), tree, id, &method).await,
            Plan::Notification(method) => self.server_notification(client, &method, &tree).await,
            Plan::Answer(id, is_error) => {
                return self.server_response(client, line.len(), tree, id, is_error).await;
            }
        }
        Step::Done
    }

    async fn server_request(
        &mut self,
        client: &mut impl Client,
        bytes: usize,
        tree: Json<'_>,
        id: Id,
        method: &str,
    ) {
        if let Some(error) = self.store_error() {
            return self.error_to_server(Some(&id.spelled), &error);
        }
        if self.input_ended {
            return self.error_to_server(Some(&id.spelled), &reply::client_ended());
        }
        if let Err(error) = self.from_server.check(&id.key) {
            let (reason, detail) = match error {
                InsertError::Duplicate => ("duplicate-id", "a request with this id is still running"),
                InsertError::Full => ("too-many-requests", "too many requests are running"),
            };
            let fault = InvalidMessage::invalid(bytes, reason, detail.to_owned(), Some(id), Shape::Request);
            return self.reject(client, Side::Server, fault).await;
        }
        let matter = SubjectKind::ServerRequest { method, params: tree.member("params") };
        let mut decision = self.decide_offloaded(matter, None).await;
        let rewrites = std::mem::take(&mut decision.rewrites);
        let judged = RecordSubject::Request { method: method.into() };
        if let Err(error) = self.record_decision(&id, &judged, &decision, None).await {
            return self.error_to_server(Some(&id.spelled), &error);
        }
        self.from_server.insert(id.clone(), method, Kind::Other, None, None);
        let clean = apply_rewrites(&tree, &rewrites, &["params"]);
        client.request(&id, clean.unwrap_or(tree));
    }

    /// Refused notifications are dropped.
    async fn server_notification(&mut self, client: &mut impl Client, method: &str, tree: &Json<'_>) {
        let matter = SubjectKind::Notification { method, params: tree.member("params") };
        let mut decision = self.decide_offloaded(matter, None).await;
        let rewrites = std::mem::take(&mut decision.rewrites);
        self.record_findings(method, &Value::Null, &decision);
        if !decision.is_block() {
            let clean = apply_rewrites(tree, &rewrites, &["params"]);
            client.notification(method, clean.unwrap_or_else(|| tree.clone()));
        }
    }

    fn note_notification(&mut self, method: &str, params: Option<&Json<'_>>) {
        match method {
            "notifications/progress" => {
                let token = params.and_then(|params| params.member("progressToken"));
                if let (Some(Ok(token)), Some(deadline)) = (token.map(Id::from_json), self.deadline()) {
                    self.from_client.extend_by_token(&token.key, deadline);
                }
            }
            "notifications/tools/list_changed" => {
                self.listing.tools_changed();
                self.interface_check.note_change();
                self.record.record(Event::McpToolsListChanged { server_id: self.options.server.clone() });
            }
            "notifications/prompts/list_changed" | "notifications/resources/list_changed" => {
                self.interface_check.note_change();
            }
            "notifications/cancelled" => {
                if let Some(id) = cancelled_id(params) {
                    self.from_server.cancel(&id.key);
                }
            }
            _ => {}
        }
    }

    async fn server_response(
        &mut self,
        client: &mut impl Client,
        bytes: usize,
        tree: Json<'_>,
        id: Option<Id>,
        is_error: bool,
    ) -> Step {
        if let (Phase::Replaying(replay), Some(id)) = (&self.phase, &id)
            && *replay == id.key
        {
            self.interface_check.note_replayed_handshake(&tree);
            return Step::Replayed(!is_error);
        }
        if !is_error
            && !matches!(tree.member("result"), Some(Json::Object(_)))
            && id.as_ref().is_some_and(|id| self.from_client.wants_object(&id.key))
        {
            // No client accepts it, and each would keep waiting.
            let detail = "`result` must be an object".to_owned();
            let fault = InvalidMessage::invalid(bytes, "invalid-request", detail, id, Shape::Response);
            self.reject(client, Side::Server, fault).await;
            return Step::Done;
        }
        let mut is_wanted = true;
        let answer = id.as_ref().map_or(Answer::Unknown, |id| self.from_client.answer(&id.key));
        if let Answer::Open(entry) = &answer {
            self.doubted.remove(&entry.id.key);
        }
        let own = answer.own_id(id.as_ref());
        let tree = jsonrpc::with_one_half(tree);
        let mut tree = match &own {
            Some(own) => jsonrpc::with_id(tree, own),
            None => tree,
        };
        let id = own.clone().or(id);
        let kind = match answer {
            Answer::Open(entry) if entry.kind == Kind::OwnList => {
                if let Some(error) = tree.member("error").filter(|error| !self.has_no_list(error)) {
                    for (id, kind, answer) in self.on_own_error(error) {
                        // agentsh wrote it.
                        let Ok(answer) = json::read(answer.as_bytes()) else { continue };
                        let answer = jsonrpc::with_id(answer, &id);
                        self.on_answer(client, answer, Some(id.clone()), kind, Classified::default()).await;
                    }
                    return Step::Done;
                }
                for waiting in self.on_own_page(client, &mut tree) {
                    // agentsh wrote it.
                    let Ok(request) = json::read(&waiting.message) else { continue };
                    self.caller = waiting.caller;
                    let method = request.member("method").and_then(Json::as_text).unwrap_or_default();
                    let (length, params) = (waiting.message.len(), request.member("params"));
                    self.client_request(client, length, &request, waiting.id, &method, params).await;
                }
                return Step::Done;
            }
            Answer::Open(entry) if entry.kind == Kind::OwnOffer => {
                self.on_own_offer(&tree);
                return Step::Done;
            }
            Answer::Open(entry) => entry.kind,
            Answer::Cancelled(kind) => {
                is_wanted = false;
                kind
            }
            Answer::Expired => return Step::Done,
            // An error without an id belongs to no request, but may interest the client.
            Answer::Unknown if id.is_none() && self.from_client.len() > 0 => {
                self.mark_ambiguous("unasked-response", "it is an error that names no request");
                Kind::Content("error".into())
            }
            Answer::Unknown | Answer::Repeated => {
                let (detail, shape) = match answer {
                    Answer::Repeated => ("a request that was answered already", Shape::Unknown),
                    _ => ("a request that the client did not send", Shape::Response),
                };
                let fault = InvalidMessage::invalid(
                    bytes,
                    "unasked-response",
                    format!("an answer to {detail}"),
                    id,
                    shape,
                );
                self.reject(client, Side::Server, fault).await;
                return Step::Done;
            }
        };
        if !self.hold(client, id.as_ref(), &kind, &tree, is_wanted) {
            self.deliver(client, id, kind, tree).await;
        }
        Step::Done
    }

    /// Continues after the registry check: asks the classifier first.
    pub async fn deliver(&mut self, client: &mut impl Client, id: Option<Id>, kind: Kind, tree: Json<'_>) {
        if let Some(id) = &id
            && let Some(question) = self.classifying(&kind, &tree)
        {
            let message = tree.to_compact().into_bytes();
            self.answers.hold_answer(Waiting { id: id.clone(), kind, message }, question);
            return;
        }
        self.on_answer(client, tree, id, kind, Classified::default()).await;
    }

    /// Starts the classifier, if there is one and it needs the answer.
    fn classifying(
        &self,
        kind: &Kind,
        answer: &Json<'_>,
    ) -> Option<Pin<Box<dyn Future<Output = Classified>>>> {
        let classify = self.options.classify.as_ref()?;
        let (name, list) = match kind {
            Kind::ToolCall(tool) => (&**tool, None),
            Kind::Content(method) => (&**method, None),
            Kind::Initialize => ("initialize", None),
            Kind::ToolsList => ("tools/list", Some("tools")),
            Kind::Offers(offer) => {
                let (method, list) = listing_of(*offer);
                (method, Some(list).filter(|_| *offer != Offer::Instructions))
            }
            Kind::OwnList | Kind::OwnOffer | Kind::Other => return None,
        };
        classify.ask(&ServerAnswer { server: &self.options.server, name, answer, list })
    }

    pub async fn on_classified(
        &mut self,
        client: &mut impl Client,
        (answer, said): (Waiting, Option<Classified>),
    ) {
        let Waiting { id, kind, message } = answer;
        let name = match &kind {
            Kind::ToolCall(name) | Kind::Content(name) => name.to_string(),
            _ => String::new(),
        };
        let broken = || {
            let classify = self.options.classify.as_ref();
            classify.map(|classify| classify.broken(&self.options.server, &name)).unwrap_or_default()
        };
        let said = said.unwrap_or_else(broken);
        // agentsh wrote it.
        let Ok(tree) = json::read(&message) else { return };
        self.on_answer(client, tree, Some(id), kind, said).await;
    }

    /// Judges an answer, and forwards what may pass.
    async fn on_answer(
        &mut self,
        client: &mut impl Client,
        tree: Json<'_>,
        id: Option<Id>,
        kind: Kind,
        classified: Classified,
    ) {
        let rewrites;
        let cleaned;
        let mut shown = Vec::new();
        let advice;
        let mut tree: Json<'_> = tree;
        let mut said: Option<Box<str>> = None;
        let (mut listed, mut is_call) = (None, false);
        match kind {
            Kind::ToolsList => {
                leave_out(&mut tree, "tools", &classified.left_out);
                cleaned = self.inspect_tools(client, &mut tree);
                clean(&cleaned, &mut tree, "tools");
                listed = Some(("tools/list", "tools"));
            }
            Kind::Initialize => {
                let is_error = tree.member("error").is_some();
                self.handshake.agreed = !is_error;
                cleaned = self.inspect_offers(Offer::Instructions, &mut tree);
                clean(&cleaned, &mut tree, "instructions");
                let info = tree.member("result").and_then(|result| result.member("serverInfo"));
                info.into_iter().for_each(|info| without_control(info, &mut Vec::new(), &mut shown));
                clean(&shown, &mut tree, "serverInfo");
                said = is_error.then(|| "initialize".into());
            }
            Kind::Offers(offer) => {
                leave_out(&mut tree, listing_of(offer).1, &classified.left_out);
                cleaned = self.inspect_offers(offer, &mut tree);
                clean(&cleaned, &mut tree, listing_of(offer).1);
                listed = Some(listing_of(offer));
            }
            Kind::ToolCall(tool) => {
                is_call = true;
                said = Some(tool);
            }
            // An empty answer brings no content.
            Kind::Content(method) => said = says_more(&tree).then_some(method),
            Kind::OwnList | Kind::OwnOffer | Kind::Other => {}
        }
        // Entries were judged one by one.
        let mut entries = None;
        if let Some((method, list)) = listed {
            entries = tree
                .member_mut("result")
                .and_then(|result| take_list(result, list))
                .map(|taken| (list, taken));
            let is_told = !classified.findings.is_empty() || !classified.sentences.is_empty();
            said = (is_told || says_more(&tree)).then(|| method.into());
        }
        if said.is_none() && !classified.findings.is_empty() {
            said = Some("initialize".into());
        }
        if let Some(tool) = said {
            let mut decision =
                self.decide_offloaded(SubjectKind::Result { tool: &tool, answer: &tree }, None).await;
            classified.findings.into_iter().for_each(|found| decision.add(found));
            decision.advisories.extend(classified.sentences);
            rewrites = std::mem::take(&mut decision.rewrites);
            match &id {
                Some(id) => {
                    let judged = RecordSubject::Result { tool };
                    if let Err(error) = self.record_decision(id, &judged, &decision, None).await {
                        return client.error(Some(id), &error);
                    }
                }
                // No request waits for it.
                None => {
                    self.record_findings(&tool, &Value::Null, &decision);
                    if decision.is_block() {
                        return;
                    }
                }
            }
            Rewrite::apply(&rewrites, &mut tree);
            advice = Advice::new(&tree, &decision.advisories);
            advice.put(&mut tree, is_call);
        }
        if let Some((list, taken)) = entries
            && let Some(place) = tree.member_mut("result").and_then(|result| result.member_mut(list))
        {
            *place = Json::Array(taken);
        }
        let about = (self.options.about.0)().filter(|_| is_call);
        if let Some(about) = about.as_deref().and_then(|text| json::read(text.as_bytes()).ok()) {
            put_about(&mut tree, about);
        }
        client.answer(id.as_ref(), tree);
    }

    /// Closes the requests that a refused batch would have answered.
    async fn close_batched(&mut self, client: &mut impl Client, tree: &Json<'_>) {
        for member in tree.as_array().unwrap_or_default() {
            let Some(Ok(id)) = member.member("id").map(Id::from_json) else { continue };
            if member.member("method").is_none() && self.from_client.find(&id.key).is_some() {
                let detail = "it came in a batch".to_owned();
                self.reject(
                    client,
                    Side::Server,
                    InvalidMessage::invalid(0, "batch", detail, Some(id), Shape::Response),
                )
                .await;
            }
        }
    }
}

/// The method and result member of a listing.
pub(super) fn listing_of(offer: Offer) -> (&'static str, &'static str) {
    match offer {
        Offer::Instructions => ("server/discover", "instructions"),
        Offer::Prompt => ("prompts/list", "prompts"),
        Offer::Resource => ("resources/list", "resources"),
        Offer::Template => ("resources/templates/list", "resourceTemplates"),
    }
}

/// Removes entries from a listing.
fn leave_out(answer: &mut Json<'_>, list: &str, which: &[usize]) {
    let entries = answer.member_mut("result").and_then(|result| result.member_mut(list));
    if let Some(Json::Array(entries)) = entries {
        let mut number = 0;
        entries.retain(|_| {
            number += 1;
            !which.contains(&(number - 1))
        });
    }
}

/// Takes the entries of a listing, leaving an empty list.
fn take_list<'a>(result: &mut Json<'a>, list: &str) -> Option<Vec<Json<'a>>> {
    match result.member_mut(list)? {
        Json::Array(entries) => Some(std::mem::take(entries)),
        _ => None,
    }
}

/// Whether a listing's answer has other content.
fn says_more(answer: &Json<'_>) -> bool {
    let silent = [
        "nextCursor",
        "ttlMs",
        "resultType",
        "protocolVersion",
        "supportedVersions",
        "capabilities",
        "serverInfo",
        "instructions",
    ];
    let more = |(name, value): &(&str, Json<'_>)| match value {
        Json::Array(entries) if entries.is_empty() => false,
        Json::Object(members) if members.is_empty() => false,
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
        _ => !silent.contains(&json::unescape(name).as_ref()),
    };
    match answer.member("result") {
        Some(Json::Object(members)) => members.iter().any(more),
        Some(_) => true,
        None => answer.member("error").is_some(),
    }
}

/// Removes control characters and sequences from a server's own name, which clients show on terminals.
fn without_control(value: &Json<'_>, path: &mut Vec<usize>, rewrites: &mut Vec<Rewrite>) {
    let members = value.as_object().unwrap_or_default().iter().map(|(_, member)| member);
    for (at, item) in members.chain(value.as_array().unwrap_or_default()).enumerate() {
        path.push(at);
        without_control(item, path, rewrites);
        path.pop();
    }
    let is_control = |letter: char| letter.is_control();
    if let Some(text) = value.as_text().filter(|text| text.contains(is_control)) {
        rewrites.push(Rewrite {
            path: path.clone(),
            spelled: json::escape_text(&ansi::strip(&text).0.replace(is_control, "")).to_string(),
        });
    }
}

/// Replaces texts below a member of the result.
fn clean<'a>(rewrites: &'a [Rewrite], tree: &mut Json<'a>, member: &str) {
    if let Some(place) = tree.member_mut("result").and_then(|result| result.member_mut(member)) {
        Rewrite::apply(rewrites, place);
    }
}
