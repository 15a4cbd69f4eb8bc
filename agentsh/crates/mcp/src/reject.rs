//! Messages that are not forwarded: recorded first, then answered, so that nobody waits for an answer that
//! cannot come.
//!
//! Whose request is it? A malformed request is answered to its sender. A malformed answer closes the request it
//! belongs to, with an error to the side that asked. Where the id cannot be told and exactly one of the client's
//! requests is in flight, a message-like line of the server closes that one; otherwise the request's timeout decides.

use crate::json::{Json, JsonError};
use crate::store::{Event, Recorder};

use super::client::Client;
use super::connection::{Connection, Phase, Side};
use super::framing::Frame;
use super::jsonrpc::{EnvelopeError, Id, Shape};
use super::options::Options;
use super::pending::Answer;
use super::reply::{self, ErrorReply};
use super::salvage::{self, Salvage};

/// Faults of one connection's server that the user is told of.
const MOST_TOLD: u32 = 3;

/// A message that cannot be forwarded.
#[derive(Debug)]
pub(super) struct Fault {
    pub reason: &'static str,
    pub detail: String,
    pub bytes: u64,
    pub id: Option<Id>,
    pub shape: Shape,
    /// It looks like a message, and nothing tells which request it belongs to.
    pub could_answer_any: bool,
    /// JSON-RPC code for the sender.
    pub code: i32,
}

impl Fault {
    pub fn unreadable(line: &[u8], error: &JsonError) -> Self {
        let Salvage { id, shape, is_object } = salvage::from_line(line);
        Self {
            reason: error.kind.code(),
            detail: error.to_string(),
            bytes: line.len() as u64,
            id,
            shape,
            could_answer_any: is_object,
            code: reply::PARSE_ERROR,
        }
    }

    /// None for a frame that is not oversized.
    pub fn oversized(frame: &Frame<'_>, limit: usize) -> Option<Self> {
        let Frame::Oversized { bytes, head, tail } = frame else { return None };
        let Salvage { id, shape, is_object } = salvage::from_ends(head, tail, *bytes);
        Some(Self {
            reason: "oversized-line",
            detail: if *bytes > limit as u64 {
                format!("a line of {bytes} bytes; at most {limit} are allowed (sandbox.mcp.max_line_bytes)")
            } else {
                format!(
                    "a line of {bytes} bytes, while other connections hold as much as may be held at a time"
                )
            },
            bytes: *bytes,
            id,
            shape,
            could_answer_any: is_object,
            code: reply::PARSE_ERROR,
        })
    }

    pub fn envelope(line: &[u8], tree: &Json<'_>, error: EnvelopeError) -> Self {
        let could_answer_any = tree.as_object().is_some() && tree.member("id").is_none();
        let detail = error.detail.to_owned();
        Self { could_answer_any, ..Self::invalid(line.len(), error.reason, detail, error.id, error.shape) }
    }

    pub fn invalid(bytes: usize, reason: &'static str, detail: String, id: Option<Id>, shape: Shape) -> Self {
        let (bytes, code) = (bytes as u64, reply::INVALID_REQUEST);
        Self { reason, detail, bytes, id, shape, could_answer_any: false, code }
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
    pub async fn reject(&mut self, client: &mut impl Client, from: Side, fault: Fault) {
        self.commit(Event::McpMessageRejected {
            server_id: self.options.server.clone(),
            from: from.sender(),
            reason: fault.reason.to_owned(),
            detail: fault.detail.clone(),
            bytes: fault.bytes,
        })
        .await;
        if from == Side::Server {
            self.tell_fault(&fault);
        }
        match from {
            Side::Client => self.answer_client_fault(client, &fault),
            Side::Server => self.answer_server_fault(client, &fault),
        }
    }

    /// Otherwise a server that prints a banner where messages belong would only look slow.
    fn tell_fault(&mut self, fault: &Fault) {
        self.told_faults += 1;
        let more = match self.told_faults {
            ..MOST_TOLD => "",
            MOST_TOLD => {
                "; what else it sends of that kind is only recorded: agentsh mcp events --type mcp_message_rejected"
            }
            _ => return,
        };
        let Options { server, note, .. } = &self.options;
        (note.0)(&format!(
            "a message of server '{server}' was not forwarded ({}): {}{more}",
            fault.reason, fault.detail
        ));
    }

    fn answer_client_fault(&mut self, client: &mut impl Client, fault: &Fault) {
        if fault.shape == Shape::Response {
            if let Some(id) = &fault.id
                && let Answer::Open(entry) = self.from_server.answer(&id.key)
            {
                self.error_to_server(Some(&entry.id.spelled), &fault.to_asker("the client"));
            }
            return;
        }
        // An id in flight belongs to another request, which still gets its own answer.
        let id = fault.id.as_ref().filter(|id| !self.from_client.is_open(&id.key));
        client.error(id, &fault.to_sender());
    }

    fn answer_server_fault(&mut self, client: &mut impl Client, fault: &Fault) {
        if fault.shape == Shape::Request {
            if let Some(id) = fault.id.as_ref().filter(|id| !self.from_server.is_open(&id.key)) {
                self.error_to_server(Some(&id.spelled), &fault.to_sender());
            }
            return;
        }
        if let (Phase::Replaying(replay), Some(id)) = (&self.phase, &fault.id)
            && *replay == id.key
        {
            // The proxy bounds the handshake by time; nothing is to be answered here.
            return;
        }
        let asked = match &fault.id {
            Some(id) => self.from_client.is_open(&id.key).then(|| id.key.clone()),
            None if fault.could_answer_any => self.from_client.sole(),
            None => None,
        };
        if let Some(entry) = asked.and_then(|key| self.from_client.give_up(&key)) {
            let who = format!("server '{}'", self.options.server);
            self.close(client, &entry, &fault.to_asker(&who));
        }
    }
}
