//! Handles the client's messages: read, classify, identify, authorise, forward.

use std::rc::Rc;

use crate::guard::{Decision, Offer, Outcome, Reason, Rewrite, SubjectKind, Verdict};
use crate::json::{self, Json};
use crate::store::words::AuditVerdict;
use crate::store::{Event, Recorder};
use crate::types::RuleRef;

use super::audit::{ApprovalSubject, AskedPerson, AuditResult, CallAnswers, Parked, Question};
use super::caller;
use super::client::Client;
use super::client_capabilities;
use super::connection::{Connection, Handshake, Phase, Side};
use super::extra_members::{extra_members, members_but, question_forms};
use super::framing::Frame;
use super::jsonrpc::{self, Id, Message, Shape};
use super::pending::{Answer, InsertError, Kind, MAX_PENDING, SUBSCRIPTION};
use super::record::{AuditorAnswer, RecordSubject};
use super::reject::InvalidMessage;
use super::reply::{self, ErrorReply};

/// Requests of the protocol whose answers bring no content. All others do.
const METHODS_WITHOUT_CONTENT: [&str; 5] =
    ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen"];

/// Requests of one batch that get the answer they wait for, each by its id: it is longer than such a request.
const MAX_ANSWERED: usize = 1024;

fn audit_block(reason: Reason) -> Verdict {
    Verdict::new(Outcome::Block, reason, RuleRef::default_rule("auditors"))
}

impl<R: Recorder> Connection<R> {
    pub async fn on_client_frame(&mut self, client: &mut impl Client, frame: Frame<'_>) {
        if let Some(fault) = InvalidMessage::if_oversized(&frame, self.options.max_line_bytes) {
            return self.reject(client, Side::Client, fault).await;
        }
        let Frame::Line(line) = frame else { return };
        let mut tree = match json::read(line) {
            Ok(tree) => tree,
            Err(error) => {
                return self.reject(client, Side::Client, InvalidMessage::unreadable(line, &error)).await;
            }
        };
        if self.options.tells_caller {
            self.caller = caller::take(&mut tree).map(Rc::new);
        }
        match jsonrpc::classify(&tree) {
            Err(error) => {
                let fault = InvalidMessage::envelope(line, error);
                let answer = fault.to_sender();
                self.reject(client, Side::Client, fault).await;
                let members = tree.as_array().unwrap_or_default().iter();
                let requests = members.filter(|one| one.member("method").is_some()).take(MAX_ANSWERED);
                for id in requests.filter_map(|request| request.member("id")).map(Id::from_json) {
                    id.iter().for_each(|id| client.error(Some(id), &answer));
                }
            }
            Ok(Message::Request { id, method, params }) => {
                self.client_request(client, line.len(), &tree, id, &method, params).await;
            }
            Ok(Message::Notification { method, params }) => {
                self.client_notification(client, line.len(), &tree, &method, params).await;
            }
            Ok(Message::Response { id, .. }) => self.client_response(client, line.len(), &tree, id).await,
        }
    }

    pub async fn client_request(
        &mut self,
        client: &mut impl Client,
        bytes: usize,
        tree: &Json<'_>,
        id: Id,
        method: &str,
        params: Option<&Json<'_>>,
    ) {
        if let Some(audience) = client_capabilities::of_request(method, params) {
            self.audience = audience;
        }
        let audits = &self.audits;
        let room = match self.from_client.check(&id.key) {
            Ok(())
                if audits.contains(&id.key)
                    || self.answers.contains(&id.key)
                    || self.listing.is_waiting(&id.key)
                    || self.interface_check.is_held(&id.key) =>
            {
                Err(InsertError::Duplicate)
            }
            Ok(()) if self.from_client.len() + audits.len() >= MAX_PENDING => Err(InsertError::Full),
            other => other,
        };
        match room {
            Ok(()) => {}
            Err(InsertError::Duplicate) => {
                let detail = "a request with this id is still running".to_owned();
                // Answered under the sent id, as JSON-RPC requires, though two requests share it.
                let error = ErrorReply {
                    code: reply::INVALID_REQUEST,
                    message: format!("the message was not forwarded: {detail}"),
                    reason: "duplicate-id",
                    rule: None,
                };
                self.commit(Event::McpMessageRejected {
                    server_id: self.options.server.clone(),
                    from: Side::Client.sender(),
                    reason: "duplicate-id".to_owned(),
                    detail,
                    bytes: bytes as u64,
                })
                .await;
                return client.error(Some(&id), &error);
            }
            Err(InsertError::Full) => {
                let error = ErrorReply {
                    code: reply::TOO_MANY_REQUESTS,
                    message: format!("{MAX_PENDING} requests are already running; wait for an answer"),
                    reason: "too-many-requests",
                    rule: None,
                };
                return client.error(Some(&id), &error);
            }
        }
        if let Some(error) = self.store_error() {
            return client.error(Some(&id), &error);
        }
        if let Some(list) = self.needed_listing(method, params) {
            return self.wait_for_listing(client, list, id, tree);
        }
        let judged = match method {
            "tools/call" => match self.identify_call(bytes, &id, params).await {
                Ok(call) => call,
                Err(error) => return client.error(Some(&id), &error),
            },
            _ => RecordSubject::Request { method: method.into() },
        };
        let matter = match &judged {
            RecordSubject::Call { tool, hash } => {
                let arguments = params.and_then(|params| params.member("arguments"));
                let unlisted = hash.is_none() && self.listing.is_complete();
                SubjectKind::Call { tool, hash: hash.as_deref(), unlisted, arguments }
            }
            _ => SubjectKind::Request { method, params },
        };
        let rest = extra_members(tree, method);
        let beside = rest.as_ref().map(|rest| SubjectKind::Around { name: judged.name(), rest });
        let mut decision = self.decide_offloaded(matter, beside).await;
        self.retract_displaced(client, judged.name(), &decision);
        let rewrites = std::mem::take(&mut decision.rewrites);
        let clean = apply_rewrites(
            tree,
            &rewrites,
            match judged {
                RecordSubject::Call { .. } => &["params", "arguments"],
                _ => &["params"],
            },
        );
        let tree = clean.as_ref().unwrap_or(tree);
        let params = tree.member("params");
        if self.options.approve.is_none() {
            decision.refuse_instead_of_asking();
        }
        if self.is_asked(&judged, &decision) && self.cannot_run().is_none() {
            return self.hold_call(client, tree, id, judged, decision);
        }
        if let Err(error) = self.record_decision(&id, &judged, &decision, None).await {
            return client.error(Some(&id), &error);
        }
        self.send_request(client, tree, id, method, params);
    }

    /// Whether a person or an auditor has to be asked first.
    fn is_asked(&self, judged: &RecordSubject, decision: &Decision) -> bool {
        let is_audited = matches!(judged, RecordSubject::Call { .. }) && self.options.audit.is_some();
        decision.is_ask() || is_audited && !decision.is_block()
    }

    /// Forwards a request that was judged.
    fn send_request(
        &mut self,
        client: &mut impl Client,
        tree: &Json<'_>,
        id: Id,
        method: &str,
        params: Option<&Json<'_>>,
    ) {
        if let Some(error) = self.cannot_run() {
            if method == "tools/call" {
                self.record_undelivered(&id, &called_tool(params), &error.message);
            }
            return client.error(Some(&id), &error);
        }
        let kind = match method {
            "initialize" => {
                let params = params.map(Json::to_compact);
                self.handshake = Handshake { params, ..Handshake::default() };
                Kind::Initialize
            }
            "server/discover" => Kind::Offers(Offer::Instructions),
            "tools/list" => Kind::ToolsList,
            "prompts/list" => Kind::Offers(Offer::Prompt),
            "resources/list" => Kind::Offers(Offer::Resource),
            "resources/templates/list" => Kind::Offers(Offer::Template),
            "tools/call" => Kind::ToolCall(called_tool(params)),
            _ if METHODS_WITHOUT_CONTENT.contains(&method) => Kind::Other,
            _ => Kind::Content(method.into()),
        };
        if self.options.vouch.is_some() {
            self.interface_check.note_request(&id, &kind, params);
        }
        let deadline = self.deadline().filter(|_| method != SUBSCRIPTION);
        let token = progress_token(params);
        self.from_client.insert(id, method, kind, token.map(|token| token.key), deadline);
        self.forward_to_server(tree);
    }

    /// Parks a call until it is answered.
    fn hold_call(
        &mut self,
        client: &mut impl Client,
        tree: &Json<'_>,
        id: Id,
        call: RecordSubject,
        decision: Decision,
    ) {
        let is_call = matches!(call, RecordSubject::Call { .. });
        let interface = match &call {
            RecordSubject::Call { hash, .. } => hash.as_deref(),
            _ => None,
        };
        let server = &self.options.server;
        let approve = self.options.approve.as_ref().filter(|_| decision.is_ask());
        // The forwarded message is the one that the person saw.
        let asked = approve.map(|_| question_forms(tree, is_call));
        let (tree, shown) = asked.as_ref().map_or((tree, &Json::Null), |(tree, shown)| (tree, shown));
        let person = approve.map(|approve| {
            approve.ask(&ApprovalSubject {
                server,
                client: self.options.client.as_deref(),
                name: call.name(),
                interface,
                arguments: shown,
                decision: &decision,
            })
        });
        let (person, page) = person.map(|AskedPerson { verdict, page }| (verdict, page)).unzip();
        let audit = self.options.audit.as_ref().filter(|_| is_call);
        let arguments = tree.member("params").and_then(|params| params.member("arguments"));
        let auditors = audit.map(|audit| {
            let finding = decision.passed_finding();
            audit.ask(&Question { server, tool: call.name(), arguments, finding })
        });
        let asked = async move {
            let mut heard = CallAnswers::default();
            if let Some(person) = person {
                heard.person = Some(person.await);
            }
            // If a person refused, nothing is sent to auditors.
            if !heard.person.as_ref().is_some_and(Verdict::is_block)
                && let Some(auditors) = auditors
            {
                heard.auditors = Some(auditors.await);
            }
            heard
        };
        let page = page.flatten().filter(|page| self.show_approval_page(client, page, call.name()));
        self.audits.hold_call(id, call, tree.to_compact().into_bytes(), (decision, page), Box::pin(asked));
    }

    pub async fn on_audited(
        &mut self,
        client: &mut impl Client,
        (mut parked, heard): (Parked, Option<CallAnswers>),
    ) {
        let is_broken = heard.is_none();
        if let Some(page) = &parked.page {
            self.end_approval_page(client, page);
        }
        // A failed question does not favour the call.
        let broken = || AuditResult { word: AuditVerdict::Failed, by: None, found: None };
        let CallAnswers { person, auditors } =
            heard.unwrap_or_else(|| CallAnswers { person: None, auditors: Some(broken()) });
        if let Some(verdict) = person {
            parked.decision.answer(verdict);
        }
        let mut word = None;
        if let Some(AuditResult { word: said, by, found }) = auditors {
            let mut outcome = found.as_ref().map_or(Outcome::Allow, |found| found.verdict.outcome);
            if let Some(found) = found {
                parked.decision.add(found);
            }
            if is_broken {
                outcome = Outcome::Block;
                parked.decision.answer(audit_block(Reason::AuditFailed));
            }
            word = Some(AuditorAnswer { word: said, by, outcome, after_ms: parked.waited_ms() });
        }
        let settled = self.record_decision(&parked.id, &parked.call, &parked.decision, word).await;
        let settled = settled.map_err(|error| match is_broken {
            true => ErrorReply {
                code: reply::INTERNAL_ERROR,
                message: "the call was not forwarded: cannot ask the auditors".to_owned(),
                reason: Reason::AuditFailed.code(),
                rule: None,
            },
            false => error,
        });
        if let Some(error) = settled.err().or_else(|| self.store_error()) {
            return client.error(Some(&parked.id), &error);
        }
        // agentsh wrote it.
        let Ok(tree) = json::read(&parked.message) else { return };
        let method = match &parked.call {
            RecordSubject::Request { method } => &**method,
            _ => "tools/call",
        };
        self.send_request(client, &tree, parked.id, method, tree.member("params"));
    }

    /// The client has ended: cancels its questions.
    pub async fn drop_audits(&mut self, client: &mut impl Client) {
        for mut parked in self.audits.cancel_all() {
            self.record_cancelled(&mut parked).await;
            let error = ErrorReply {
                code: reply::REFUSED,
                message: "the call was not forwarded: its input ended before the auditors had answered"
                    .to_owned(),
                reason: Reason::AuditCancelled.code(),
                rule: None,
            };
            client.error(Some(&parked.id), &error);
        }
    }

    async fn record_cancelled(&self, parked: &mut Parked) {
        parked.decision.answer(audit_block(Reason::AuditCancelled));
        let after_ms = parked.waited_ms();
        let word =
            AuditorAnswer { word: AuditVerdict::Cancelled, by: None, outcome: Outcome::Block, after_ms };
        // The caller gets another error, or is gone.
        let _ = self.record_decision(&parked.id, &parked.call, &parked.decision, Some(word)).await;
    }

    pub async fn client_notification(
        &mut self,
        client: &mut impl Client,
        bytes: usize,
        tree: &Json<'_>,
        method: &str,
        params: Option<&Json<'_>>,
    ) {
        match method {
            // Some servers run it anyway, and a refusal would reach no caller.
            "tools/call" => {
                let detail = "`tools/call` without an `id`".to_owned();
                let fault = InvalidMessage::invalid(bytes, "invalid-request", detail, None, Shape::Request);
                return self.reject(client, Side::Client, fault).await;
            }
            "notifications/initialized" => {
                self.handshake.initialized = Some(tree.to_compact().into_bytes());
                if self.interface_check.take_confirmed() {
                    return;
                }
            }
            "notifications/cancelled" => {
                if self.listing.cancel(params) || self.interface_check.cancel(params) {
                    return;
                }
                if let Some(id) = cancelled_id(params)
                    .filter(|id| !self.listing.is_own(&id.key) && !self.interface_check.is_own(&id.key))
                {
                    if let Some(mut parked) = self.audits.cancel(&id.key) {
                        // The server never got it.
                        return self.record_cancelled(&mut parked).await;
                    }
                    self.from_client.cancel(&id.key);
                }
            }
            _ => {}
        }
        let rest = Json::Object(members_but(tree, &["jsonrpc", "method"]));
        let matter = SubjectKind::Around { name: method, rest: &rest };
        let decision = self.decide_offloaded(matter, None).await;
        self.record_findings(method, &serde_json::Value::Null, &decision);
        // A notification has no answer; the refusal is recorded.
        if decision.is_block() {
            return;
        }
        self.unanswered_notifications = self.unanswered_notifications.saturating_add(1);
        // A stopped server needs no notification.
        if !matches!(self.phase, Phase::Idle | Phase::Refused(_) | Phase::Failed(..)) || !self.held.is_empty()
        {
            self.forward_to_server(tree);
        }
    }

    pub async fn client_response(
        &mut self,
        client: &mut impl Client,
        bytes: usize,
        tree: &Json<'_>,
        id: Option<Id>,
    ) {
        if id.as_ref().is_some_and(|id| self.take_page_answer(&id.key)) {
            return;
        }
        let answer = id.as_ref().map_or(Answer::Unknown, |id| self.from_server.answer(&id.key));
        let own = answer.own_id(id.as_ref());
        let renamed = own.as_ref().map(|own| jsonrpc::with_id(tree.clone(), own));
        let (id, tree) = (own.clone().or(id), renamed.as_ref().unwrap_or(tree));
        let method = match &answer {
            Answer::Open(entry) => entry.method.clone(),
            // The answer was cancelled, and is sent anyway.
            _ => "a cancelled request".into(),
        };
        let mut rewrites = Vec::new();
        if let (Some(id), Some(result)) = (&id, tree.member("result").or_else(|| tree.member("error")))
            && matches!(answer, Answer::Open(_) | Answer::Cancelled(_))
        {
            let rest = extra_members(tree, &method);
            let beside = rest.as_ref().map(|rest| SubjectKind::Around { name: &method, rest });
            let mut decision =
                self.decide_offloaded(SubjectKind::Answer { method: &method, result }, beside).await;
            rewrites = std::mem::take(&mut decision.rewrites);
            let judged = RecordSubject::Request { method };
            if let Err(error) = self.record_decision(id, &judged, &decision, None).await {
                // A server must not get another one's text.
                let message = "the client's answer was not forwarded".to_owned();
                let error = ErrorReply { message, rule: None, ..error };
                return self.error_to_server(Some(&id.spelled), &error);
            }
        }
        match answer {
            // Not held: a server may need it before it answers the handshake.
            Answer::Open(_) | Answer::Cancelled(_) if self.is_running() => {
                let part = if tree.member("result").is_some() { "result" } else { "error" };
                let clean = apply_rewrites(tree, &rewrites, &[part]);
                let tree = clean.as_ref().unwrap_or(tree);
                self.to_server.push(|out| tree.write(out));
            }
            // The server may still learn that a message was unreadable.
            Answer::Unknown if id.is_none() && self.from_server.len() > 0 && self.is_running() => {
                self.to_server.push(|out| tree.write(out));
            }
            Answer::Open(_) | Answer::Cancelled(_) | Answer::Expired => {}
            Answer::Unknown | Answer::Repeated => {
                let detail = "an answer to a request that the server did not send".to_owned();
                let fault = InvalidMessage::invalid(bytes, "unasked-response", detail, None, Shape::Response);
                self.reject(client, Side::Client, fault).await;
            }
        }
    }

    /// Why no request can reach this server.
    fn cannot_run(&self) -> Option<ErrorReply> {
        match &self.phase {
            Phase::Refused(verdict) => Some(ErrorReply {
                code: reply::REFUSED,
                message: format!(
                    "server '{}' refused by {}; {}",
                    self.options.server,
                    verdict.rule,
                    verdict.remedy()
                ),
                reason: verdict.reason.code(),
                rule: Some(verdict.rule.to_string()),
            }),
            Phase::Failed(message, reason) => Some(self.start_error(message, reason)),
            _ => None,
        }
    }

    /// Records that an allowed call did not reach the server.
    pub fn record_undelivered(&self, id: &Id, tool: &str, why: &str) {
        self.record.record(Event::McpServerUnavailable {
            server_id: self.options.server.clone(),
            method: "tools/call".to_owned(),
            detail: why.chars().take(1024).collect(),
            tool_name: Some(tool.to_owned()),
            jsonrpc_id: Some(id.to_value()),
        });
    }

    pub fn start_error(&self, message: &str, reason: &'static str) -> ErrorReply {
        let server = format!("server '{}'", self.options.server);
        ErrorReply {
            code: reply::SERVER_ENDED,
            message: match message.contains(&server) {
                true => message.to_owned(),
                false => format!("{server} did not start: {message}"),
            },
            reason,
            rule: None,
        }
    }
}

/// The message with replaced texts below a path; None: no change.
pub(super) fn apply_rewrites<'a>(
    tree: &Json<'a>,
    rewrites: &'a [Rewrite],
    path: &[&str],
) -> Option<Json<'a>> {
    if rewrites.is_empty() {
        return None;
    }
    let mut tree = tree.clone();
    let value = path.iter().try_fold(&mut tree, |value, name| value.member_mut(name))?;
    Rewrite::apply(rewrites, value);
    Some(tree)
}

/// The tool of an authorised call.
pub(super) fn called_tool(params: Option<&Json<'_>>) -> Box<str> {
    let name = params.and_then(|params| params.member("name")?.as_text());
    name.unwrap_or_default().into()
}

/// The id that `notifications/cancelled` names.
pub(super) fn cancelled_id(params: Option<&Json<'_>>) -> Option<Id> {
    params?.member("requestId").and_then(|id| Id::from_json(id).ok())
}

pub(super) fn progress_token(params: Option<&Json<'_>>) -> Option<Id> {
    params?.member("_meta")?.member("progressToken").and_then(|token| Id::from_json(token).ok())
}
