//! The subject of a decision.

use std::time::Duration;

use crate::json::Json;
use crate::types::ServerId;
use agentsh_base::words;

use super::caller::Caller;
use super::precompute::PrecomputedFinding;

/// Something that is about to pass between agent and server.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub server: &'a ServerId,
    pub matter: SubjectKind<'a>,
    /// The client that it is shown to, or that asks: its protocol and its declared capabilities. Servers offer more
    /// to clients that can do more. Empty: with sessions, and nothing that goes beyond them.
    pub audience: &'a str,
    /// From where the request came to a gateway; None: the client was started here, or no rule wants to know.
    pub caller: Option<&'a Caller>,
    /// Time since any moment that is the same for all subjects of a session.
    pub now: Duration,
    /// The turn of the conversation. None: not known.
    pub turn: Option<u64>,
    /// It was already counted when a model's answer requested it.
    pub is_promised: bool,
    /// The findings of the current check from another thread.
    pub seen: PrecomputedFinding<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum SubjectKind<'a> {
    /// The server itself: may it be started?
    Server,
    /// A tool as the server lists it. Blocked: the client does not see it.
    Definition { name: &'a str, hash: &'a str, definition: &'a Json<'a> },
    /// A prompt, resource or other item that a server offers, as listed. Blocked: the client does not see it.
    Offer { kind: Offer, name: &'a str, hash: &'a str, definition: &'a Json<'a> },
    /// A tool is called.
    Call {
        tool: &'a str,
        /// Hash of the definition that was listed; None: it was never listed.
        hash: Option<&'a str>,
        /// The server listed all of its tools, and this one is not among them.
        unlisted: bool,
        arguments: Option<&'a Json<'a>>,
    },
    /// A model says that a tool is to be called. The agent has not got it yet; what its arguments carry is judged on the
    /// wire.
    ModelCall { tool: &'a str, arguments: Option<&'a Json<'a>> },
    /// Lines with a secret that an agent read with its own tool and sends to its model.
    OwnRead { tool: &'a str, lines: &'a Json<'a> },
    /// The client asks for something else, such as a resource.
    Request { method: &'a str, params: Option<&'a Json<'a>> },
    /// The other members of a client's message: its id, `_meta`, unknown members; or a whole notification. `name` is the tool
    /// or the method.
    Around { name: &'a str, rest: &'a Json<'a> },
    /// The whole answer to a call or to another request that brings content in: a result or an error.
    Result { tool: &'a str, answer: &'a Json<'a> },
    /// The server asks the client for something, such as `sampling/createMessage`.
    ServerRequest { method: &'a str, params: Option<&'a Json<'a>> },
    /// The server tells the client something, such as `notifications/message`.
    Notification { method: &'a str, params: Option<&'a Json<'a>> },
    /// The client's result for a request of the server.
    Answer { method: &'a str, result: &'a Json<'a> },
}

words! {
    /// The kinds of entries that a server offers besides tools.
    #[derive(PartialOrd, Ord)]
    pub enum Offer {
        Prompt = "prompt",
        Resource = "resource",
        Template = "template",
        /// The text for the model that comes with the handshake.
        Instructions = "instructions",
    }
}

impl<'a> SubjectKind<'a> {
    /// The arguments of a call, from any caller.
    #[must_use]
    pub fn arguments(&self) -> Option<&'a Json<'a>> {
        match *self {
            Self::Call { arguments, .. } | Self::ModelCall { arguments, .. } => arguments,
            _ => None,
        }
    }

    /// The value that checks examine.
    #[must_use]
    pub fn value(&self) -> Option<&'a Json<'a>> {
        match *self {
            // These are not sent anywhere; they are only remembered.
            Self::Server | Self::OwnRead { .. } => None,
            Self::Definition { definition, .. } | Self::Offer { definition, .. } => Some(definition),
            Self::Call { arguments, .. } | Self::ModelCall { arguments, .. } => arguments,
            Self::Request { params, .. }
            | Self::ServerRequest { params, .. }
            | Self::Notification { params, .. } => params,
            Self::Around { rest, .. } => Some(rest),
            Self::Result { answer, .. } => Some(answer),
            Self::Answer { result, .. } => Some(result),
        }
    }

    /// The name in records and messages: a tool's name or a method.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Server => "",
            Self::Definition { name, .. } | Self::Offer { name, .. } => name,
            Self::Call { tool, .. }
            | Self::ModelCall { tool, .. }
            | Self::OwnRead { tool, .. }
            | Self::Result { tool, .. }
            | Self::Around { name: tool, .. } => tool,
            Self::Request { method, .. }
            | Self::ServerRequest { method, .. }
            | Self::Notification { method, .. }
            | Self::Answer { method, .. } => method,
        }
    }
}
