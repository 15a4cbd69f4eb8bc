//! The server's messages, phase by phase: read, classify, match with what was asked, inspect, forward.

use std::borrow::Cow;

use crate::guard::{Matter, Offer, Rewrite};
use crate::json::{self, Json};
use crate::store::{Event, Recorder};

use super::client::Client;
use super::connection::{Connection, Phase, Side};
use super::framing::Frame;
use super::from_client::cancelled_id;
use super::jsonrpc::{self, Id, Message, Shape};
use super::pending::{Answer, InsertError, Kind};
use super::record::Judged;
use super::reject::Fault;

/// What a line asks the proxy to do besides forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    /// The remembered handshake was answered; true when the server agreed.
    Replayed(bool),
}

enum Plan<'a> {
    Request(Id, String),
    Notification(Cow<'a, str>),
    Answer(Option<Id>, bool),
}

impl<R: Recorder> Connection<R> {
    pub async fn on_server_frame(&mut self, client: &mut impl Client, frame: Frame<'_>) -> Step {
        if let Some(fault) = Fault::oversized(&frame, self.options.max_line_bytes) {
            self.reject(client, Side::Server, fault).await;
            return Step::Done;
        }
        let Frame::Line(line) = frame else { return Step::Done };
        let tree = match json::read(line) {
            Ok(tree) => tree,
            Err(error) => {
                self.reject(client, Side::Server, Fault::unreadable(line, &error)).await;
                return Step::Done;
            }
        };
        let plan = match jsonrpc::classify(&tree) {
            Err(error) => {
                let fault = Fault::envelope(line, &tree, error);
                self.reject(client, Side::Server, fault).await;
                self.close_batched(client, &tree).await;
                return Step::Done;
            }
            Ok(Message::Request { id, method, .. }) => Plan::Request(id, method.into_owned()),
            Ok(Message::Notification { method, params }) => {
                self.note_notification(&method, params);
                if let Some(params) = params {
                    let decision = self.decide(Matter::Told { method: &method, params });
                    self.record_findings(&method, &serde_json::Value::Null, &decision);
                }
                Plan::Notification(method)
            }
            Ok(Message::Response { id, is_error }) => Plan::Answer(id, is_error),
        };
        match plan {
            Plan::Request(id, method) => self.server_request(client, line.len(), tree, id, &method).await,
            Plan::Notification(method) => client.notification(&method, tree),
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
        if let Err(error) = self.from_server.check(&id.key) {
            let (reason, detail) = match error {
                InsertError::Duplicate => ("duplicate-id", "a request with this id is still running"),
                InsertError::Full => ("too-many-requests", "too many requests are running"),
            };
            // With the id of a running request, so the answer cannot be matched by mistake: it has no id.
            let fault = Fault::invalid(bytes, reason, detail.to_owned(), Some(id), Shape::Request);
            return self.reject(client, Side::Server, fault).await;
        }
        let decision = self.decide(Matter::ServerRequest { method, params: tree.member("params") });
        let judged = Judged::Request { method: method.into() };
        if let Err(error) = self.settle(&id, &judged, &decision, None).await {
            return self.error_to_server(Some(&id.spelled), &error);
        }
        self.from_server.insert(id.clone(), method, Kind::Other, None, None);
        client.request(&id, tree);
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
                self.record.record(Event::McpToolsListChanged { server_id: self.options.server.clone() });
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
        let rewrites;
        let advisories;
        let mut tree: Json<'_> = tree;
        if let (Phase::Replaying(replay), Some(id)) = (&self.phase, &id)
            && *replay == id.key
        {
            return Step::Replayed(!is_error);
        }
        let answer = id.as_ref().map_or(Answer::Unknown, |id| self.from_client.answer(&id.key));
        let kind = match answer {
            Answer::Open(entry) => entry.kind,
            Answer::Cancelled(kind) => kind,
            Answer::Expired => return Step::Done,
            // An error without an id belongs to no request, but the client may want to know of it.
            Answer::Unknown if id.is_none() && self.from_client.len() > 0 => Kind::Other,
            Answer::Unknown => {
                let detail = "an answer to a request that the client did not send".to_owned();
                let fault = Fault::invalid(bytes, "unasked-response", detail, id, Shape::Response);
                self.reject(client, Side::Server, fault).await;
                return Step::Done;
            }
        };
        match kind {
            Kind::ToolsList => self.inspect_tools(&mut tree),
            Kind::Initialize => {
                self.handshake.agreed = !is_error;
                self.inspect_offers(Offer::Instructions, &mut tree);
            }
            Kind::Offers(offer) => self.inspect_offers(offer, &mut tree),
            Kind::ToolCall(tool) | Kind::Content(tool) => {
                let mut decision = self.decide(Matter::Result { tool: &tool, answer: &tree });
                rewrites = std::mem::take(&mut decision.rewrites);
                if let Some(id) = &id
                    && let Err(error) = self.settle(id, &Judged::Result { tool }, &decision, None).await
                {
                    client.error(Some(id), &error);
                    return Step::Done;
                }
                Rewrite::apply(&rewrites, &mut tree);
                advisories = decision.advisories.iter().map(|text| json::spell(text)).collect::<Vec<_>>();
                advise(&mut tree, &advisories);
            }
            Kind::Other => {}
        }
        client.answer(id.as_ref(), tree);
        Step::Done
    }

    /// A batch was refused as a whole: the requests that its members would have answered are closed.
    async fn close_batched(&mut self, client: &mut impl Client, tree: &Json<'_>) {
        for member in tree.as_array().unwrap_or_default() {
            let Some(Ok(id)) = member.member("id").map(Id::from_json) else { continue };
            if member.member("method").is_none() && self.from_client.is_open(&id.key) {
                let detail = "it came in a batch".to_owned();
                self.reject(
                    client,
                    Side::Server,
                    Fault::invalid(0, "batch", detail, Some(id), Shape::Response),
                )
                .await;
            }
        }
    }
}

/// Puts sentences of our own in front of a tool's result.
fn advise<'a>(answer: &mut Json<'a>, spelled: &'a [String]) {
    let content = answer.member_mut("result").and_then(|result| result.member_mut("content"));
    let Some(Json::Array(items)) = content else { return };
    let block =
        |text: &'a String| Json::Object(vec![("type", Json::String("text")), ("text", Json::String(text))]);
    items.splice(0..0, spelled.iter().map(block));
}
