//! Requests of servers to the client. Ids and progress tokens are renumbered, because servers may use the same ones.

use std::collections::HashMap;

use super::super::jsonrpc::{Id, Key};

#[derive(Default)]
pub struct ServerRequests {
    open: HashMap<u64, Question>,
    numbers: HashMap<(usize, Key), u64>,
    last: u64,
}

struct Question {
    server: usize,
    id: Id,
    /// The token as the server spelled it.
    token: Option<Box<str>>,
}

impl ServerRequests {
    /// The number under which the client gets a request; its progress token, if it has one, becomes the same.
    pub fn add(&mut self, server: usize, id: &Id, token: Option<Box<str>>) -> u64 {
        self.last += 1;
        self.numbers.insert((server, id.key.clone()), self.last);
        self.open.insert(self.last, Question { server, id: id.clone(), token });
        self.last
    }

    /// The request that an answer of the client belongs to; it is no longer open.
    pub fn take(&mut self, key: &Key) -> Option<(usize, Id)> {
        let Question { server, id, .. } =
            self.open.remove(&number(key).or_else(|| number(&key.other_spelling()?))?)?;
        self.numbers.remove(&(server, id.key.clone()));
        Some((server, id))
    }

    /// Takes back a request of a server; gives the number that the client knows.
    pub fn withdraw(&mut self, server: usize, id: &Id) -> Option<u64> {
        let number = self.numbers.remove(&(server, id.key.clone()))?;
        self.open.remove(&number);
        Some(number)
    }

    /// The server and the token that the client's progress is about.
    pub fn token(&self, key: &Key) -> Option<(usize, Box<str>)> {
        let question = self.open.get(&number(key)?)?;
        Some((question.server, question.token.clone()?))
    }
}

fn number(key: &Key) -> Option<u64> {
    match key {
        Key::Number(raw) => raw.parse().ok(),
        Key::Text(_) => None,
    }
}
