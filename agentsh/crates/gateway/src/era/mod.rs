//! Two protocols under one name: revisions with sessions (2025-11-25 and before) and without (2026-07-28). A client speaks the
//! one that it speaks, a server the one that it answers to; where they differ, this stands between them, message by message.
//! What both know goes through as it was spelled.
//!
//! [`StatefulClient`] is a client with sessions before a server without, [`StatelessClient`] the other way round. Which one a server speaks is found
//! by asking it. Pure: lines in, lines out, no clock.

mod down;
mod listeners;
pub(crate) mod tree;
mod up;

use down::StatelessClient;
use up::StatefulClient;

/// Ids of requests that nobody else asked begin with it.
const OWN: &str = "agentsh-era-";

/// What happens for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
}

pub enum Translation {
    /// Both speak the same.
    Straight,
    StatefulClient(Box<StatefulClient>),
    StatelessClient(Box<StatelessClient>),
}

impl Translation {
    /// For a client that begins with `initialize`.
    pub fn with_sessions() -> Self {
        Self::StatefulClient(Box::default())
    }

    /// For a client whose requests stand alone.
    pub fn without_sessions() -> Self {
        Self::StatelessClient(Box::default())
    }

    /// The same, where requests of clients that do not trust each other share the connection: no question of the server
    /// goes to any of them.
    pub fn for_everybody() -> Self {
        Self::StatelessClient(Box::new(StatelessClient::for_everybody()))
    }

    pub fn is_straight(&self) -> bool {
        matches!(self, Self::Straight)
    }

    pub fn client_says(&mut self, line: &[u8]) -> Vec<Step> {
        let mut steps = Vec::new();
        let is_over = match self {
            Self::Straight => return vec![Step::ToServer(line.to_vec())],
            Self::StatefulClient(up) => {
                up.client_says(line, &mut steps);
                up.is_straight()
            }
            Self::StatelessClient(down) => {
                down.client_says(line, &mut steps);
                down.is_straight()
            }
        };
        if is_over {
            *self = Self::Straight;
        }
        steps
    }

    pub fn server_says(&mut self, line: &[u8]) -> Vec<Step> {
        let mut steps = Vec::new();
        let is_over = match self {
            Self::Straight => return vec![Step::ToClient(line.to_vec())],
            Self::StatefulClient(up) => {
                up.server_says(line, &mut steps);
                up.is_straight()
            }
            Self::StatelessClient(down) => {
                down.server_says(line, &mut steps);
                down.is_straight()
            }
        };
        if is_over {
            *self = Self::Straight;
        }
        steps
    }

    /// A server that is asked which protocol it speaks says nothing.
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
