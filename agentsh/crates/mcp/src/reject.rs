//! Messages that are not forwarded: recorded, then answered.
//!
//! A malformed request is answered to its sender. A malformed answer ends its request with an error. An answer without
//! a request makes the only open request doubtful: it fails unless its own answer comes in time ([`LATE_ANSWER_TIMEOUT`]).
//! With several open requests, their timeouts decide. What may be no answer at all, but a log line or the answer to a
//! notification, leaves more time ([`UNLIKELY_ANSWER_TIMEOUT`]).

use tokio::time::{Duration, Instant};

use crate::json::JsonError;
use crate::store::{Event, Recorder};

use super::client::Client;
use super::connection::{Connection, Phase, Side};
use super::framing::Frame;
use super::jsonrpc::{EnvelopeError, Id, Key, Shape};
use super::options::Options;
use super::pending::Answer;
use super::recover_id::{self, RecoveredId};
use super::reply::{self, ErrorReply};

/// How long to wait for the right answer after an ambiguous one.
const LATE_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The same where the other message is probably no answer to a request.
const UNLIKELY_ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Limit of reported faults per connection.
const MAX_REPORTED: u32 = 3;

#[derive(Debug)]
pub(super) struct InvalidMessage {
    pub reason: &'static str,
    pub detail: String,
    pub bytes: u64,
    pub id: Option<Id>,
    pub shape: Shape,
    /// JSON-RPC code.
    pub code: i32,
}

impl InvalidMessage {
    pub fn unreadable(line: &[u8], error: &JsonError) -> Self {
        let RecoveredId { id, shape } = recover_id::from_line(line);
        Self {
            reason: error.kind.code(),
            detail: error.to_string(),
            bytes: line.len() as u64,
            id,
            shape,
            code: reply::PARSE_ERROR,
        }
    }

    /// None for a frame within the limit.
    pub fn if_oversized(frame: &Frame<'_>, limit: usize) -> Option<Self> {
        let Frame::Oversized { bytes, head, tail } = frame else { return None };
        let RecoveredId { id, shape } = recover_id::from_ends(head, tail, *bytes);
        Some(Self {
            reason: "oversized-line",
            detail: if *bytes > limit as u64 {
                format!("a line of {bytes} bytes; at most {limit} are allowed (sandbox.mcp.max_line_bytes)")
            } else {
                format!("a line of {bytes} bytes, while other connections use all of the shared buffer")
            },
            bytes: *bytes,
            id,
            shape,
            code: reply::PARSE_ERROR,
        })
    }

    pub fn envelope(line: &[u8], error: EnvelopeError) -> Self {
        Self::invalid(line.len(), error.reason, error.detail.to_owned(), error.id, error.shape)
    }

    pub fn invalid(bytes: usize, reason: &'static str, detail: String, id: Option<Id>, shape: Shape) -> Self {
        let (bytes, code) = (bytes as u64, reply::INVALID_REQUEST);
        Self { reason, detail, bytes, id, shape, code }
    }

    pub fn to_sender(&self) -> ErrorReply {
        ErrorReply {
            code: self.code,
            message: format!("the message was not forwarded: {}", self.detail),
            reason: self.reason,
            rule: None,
        }
    }

    pub fn to_asker(&self, who: &str) -> ErrorReply {
        ErrorReply {
            code: reply::BAD_ANSWER,
            message: format!("the answer of {who} was not forwarded: {}", self.detail),
            reason: self.reason,
            rule: None,
        }
    }
}

impl<R: Recorder> Connection<R> {
    pub async fn reject(&mut self, client: &mut impl Client, from: Side, fault: InvalidMessage) {
        let event = Event::McpMessageRejected {
            server_id: self.options.server.clone(),
            from: from.sender(),
            reason: fault.reason.to_owned(),
            detail: fault.detail.clone(),
            bytes: fault.bytes,
        };
        if from == Side::Server {
            self.tell_fault(&fault);
            if fault.shape == Shape::Noise {
                // Not answered, so it need not be on disk first: a log may have many lines.
                return self.record.record(event);
            }
        }
        self.commit(event).await;
        match from {
            Side::Client => self.answer_client_fault(client, &fault),
            Side::Server => self.answer_server_fault(client, &fault),
        }
    }

    /// Otherwise a server that prints a banner would only look slow.
    fn tell_fault(&mut self, fault: &InvalidMessage) {
        self.told_faults += 1;
        let more = match self.told_faults {
            ..MAX_REPORTED => "",
            MAX_REPORTED => {
                "; more messages of that kind are only recorded: agentsh mcp events --type mcp_message_rejected"
            }
            _ => return,
        };
        let Options { server, note, .. } = &self.options;
        (note.0)(&format!(
            "a message of server '{server}' was not forwarded ({}): {}{more}",
            fault.reason, fault.detail
        ));
    }

    fn answer_client_fault(&mut self, client: &mut impl Client, fault: &InvalidMessage) {
        if fault.shape.is_answer() {
            if let Some(id) = &fault.id
                && let Answer::Open(entry) = self.from_server.answer(&id.key)
            {
                self.error_to_server(Some(&entry.id.spelled), &fault.to_asker("the client"));
            }
            return;
        }
        // An open request with this id still gets its own answer.
        let id = fault.id.as_ref().filter(|id| !self.from_client.is_open(&id.key));
        client.error(id, &fault.to_sender());
    }

    fn answer_server_fault(&mut self, client: &mut impl Client, fault: &InvalidMessage) {
        if fault.shape == Shape::Request {
            // Also under the id of an open request: nobody else answers this one.
            if let Some(id) = &fault.id {
                self.error_to_server(Some(&id.spelled), &fault.to_sender());
            }
            return;
        }
        if let (Phase::Replaying(replay), Some(id)) = (&self.phase, &fault.id)
            && *replay == id.key
        {
            // The handshake has its own timeout.
            return;
        }
        let who = format!("server '{}'", self.options.server);
        if let Some(key) = fault.id.as_ref().and_then(|id| self.from_client.find(&id.key)) {
            if matches!(fault.shape, Shape::Noise | Shape::Unversioned) {
                self.add_ambiguous(key, UNLIKELY_ANSWER_TIMEOUT, fault.to_asker(&who));
            } else if let Some(entry) = self.from_client.give_up(&key) {
                self.close(client, &entry, &fault.to_asker(&who));
            }
        } else if fault.shape.is_answer() {
            self.mark_ambiguous(fault.reason, &fault.detail);
        }
    }

    /// An answer without a request; see the module's head.
    pub fn mark_ambiguous(&mut self, reason: &'static str, detail: &str) {
        let Some(key) = self.from_client.only_request() else { return };
        let error = ErrorReply {
            code: reply::BAD_ANSWER,
            message: format!(
                "the answer of server '{}' to this request was not forwarded: {detail}",
                self.options.server
            ),
            reason,
            rule: None,
        };
        // It may answer a notification, as some servers do.
        let notified = self.unanswered_notifications;
        self.unanswered_notifications = notified.saturating_sub(1);
        let time = if notified > 0 { UNLIKELY_ANSWER_TIMEOUT } else { LATE_ANSWER_TIMEOUT };
        self.add_ambiguous(key, time, error);
    }

    fn add_ambiguous(&mut self, key: Key, time: Duration, error: ErrorReply) {
        self.doubted.entry(key).or_insert(AmbiguousAnswer { at: Instant::now() + time, error });
    }

    /// Fails doubtful requests after their timeouts.
    pub fn clear_ambiguous(&mut self, client: &mut impl Client) {
        let now = Instant::now();
        let due: Vec<_> = self.doubted.extract_if(.., |_, doubt| doubt.at <= now).collect();
        for (key, AmbiguousAnswer { error, .. }) in due {
            if let Some(entry) = self.from_client.give_up(&key) {
                self.close(client, &entry, &error);
            }
        }
    }
}

/// A request whose answer may have been an ambiguous one.
#[derive(Debug)]
pub(super) struct AmbiguousAnswer {
    pub at: Instant,
    error: ErrorReply,
}
