//! Translates between protocol revisions with sessions (2025-11-25 and before) and without (2026-07-28), message by
//! message. What both have is forwarded unchanged.
//!
//! [`StatefulClient`] is for a client with sessions and a server without, [`StatelessClient`] for the opposite. The
//! server's protocol is found by asking it. Pure: lines in, lines out, no clock.

pub(crate) mod edit_json;
mod listeners;
mod stateful_client;
mod stateless_client;

use stateful_client::StatefulClient;
use stateless_client::StatelessClient;

/// Prefix of agentsh's own request ids.
const OWN_ID_PREFIX: &str = "agentsh-era-";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
}

pub enum Translation {
    /// Both speak the same protocol.
    Straight,
    StatefulClient(Box<StatefulClient>),
    StatelessClient(Box<StatelessClient>),
}

impl Translation {
    /// For a client that sends `initialize`.
    pub fn with_sessions() -> Self {
        Self::StatefulClient(Box::default())
    }

    pub fn without_sessions() -> Self {
        Self::StatelessClient(Box::default())
    }

    /// Like [`Translation::without_sessions`], for clients on one connection that do not trust each other: none gets requests
    /// of the server.
    pub fn for_everybody() -> Self {
        Self::StatelessClient(Box::new(StatelessClient::for_everybody()))
    }

    pub fn is_passthrough(&self) -> bool {
        matches!(self, Self::Straight)
    }

    pub fn on_client_message(&mut self, line: &[u8]) -> Vec<Step> {
        let mut steps = Vec::new();
        match self {
            Self::Straight => steps.push(Step::ToServer(line.to_vec())),
            Self::StatefulClient(up) => up.on_client_message(line, &mut steps),
            Self::StatelessClient(down) => down.on_client_message(line, &mut steps),
        }
        self.end_when_over();
        steps
    }

    pub fn on_server_message(&mut self, line: &[u8]) -> Vec<Step> {
        let mut steps = Vec::new();
        match self {
            Self::Straight => steps.push(Step::ToClient(line.to_vec())),
            Self::StatefulClient(up) => up.on_server_message(line, &mut steps),
            Self::StatelessClient(down) => down.on_server_message(line, &mut steps),
        }
        self.end_when_over();
        steps
    }

    fn end_when_over(&mut self) {
        let is_over = match self {
            Self::Straight => true,
            Self::StatefulClient(up) => up.is_passthrough(),
            Self::StatelessClient(down) => down.is_passthrough(),
        };
        if is_over {
            *self = Self::Straight;
        }
    }

    /// The server did not answer the question for its protocol.
    pub fn on_silence(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        if let Self::StatelessClient(down) = self {
            down.on_silence(&mut steps);
        }
        steps
    }
}

#[cfg(test)]
mod tests;
