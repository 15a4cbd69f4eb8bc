//! Answers of a server that wait until a classifier has seen them. Everything else goes on meanwhile: each question is a
//! task of its own.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::{Future, pending};
use std::pin::Pin;

use tokio::task::{self, JoinSet};

use crate::guard::Finding;
use crate::json::Json;
use crate::types::ServerId;

use super::jsonrpc::{Id, Key};
use super::pending::Kind;

/// Somebody who says how likely a text gives orders to a model.
pub trait Classify: Debug {
    /// Begins to ask; None where nothing is to be asked. Dropping the future ends the question.
    fn ask(&self, brought: &ServerAnswer<'_>) -> Option<Pin<Box<dyn Future<Output = Classified>>>>;

    /// What happens to an answer whose question broke.
    fn broken(&self, server: &ServerId, name: &str) -> Classified;
}

/// An answer of a server, before anybody else has looked at it.
#[derive(Clone, Copy, Debug)]
pub struct ServerAnswer<'a> {
    pub server: &'a ServerId,
    /// The tool, or the method.
    pub name: &'a str,
    pub answer: &'a Json<'a>,
    /// The member of the result whose entries are judged one by one.
    pub list: Option<&'static str>,
}

/// What was said of it.
#[derive(Clone, Debug, Default)]
pub struct Classified {
    pub findings: Vec<Finding>,
    /// Sentences in front of a result that passes.
    pub sentences: Vec<String>,
    /// Entries of the list that are left out, in order.
    pub left_out: Vec<usize>,
}

/// An answer that waits.
pub(super) struct Waiting {
    pub id: Id,
    pub kind: Kind,
    /// The whole message.
    pub message: Vec<u8>,
}

/// An answer whose question has ended; None: the question broke.
pub(super) type ClassifiedAnswer = Box<(Waiting, Option<Classified>)>;

/// All answers of one connection that wait.
#[derive(Default)]
pub(super) struct Answers {
    running: JoinSet<Classified>,
    waiting: HashMap<task::Id, Waiting>,
    bytes: usize,
}

impl Answers {
    /// Must be called inside a `LocalSet`.
    pub fn park(&mut self, answer: Waiting, question: Pin<Box<dyn Future<Output = Classified>>>) {
        self.bytes += answer.message.len();
        let task = self.running.spawn_local(question);
        self.waiting.insert(task.id(), answer);
    }

    /// The next answer whose question has ended. Never, when none waits.
    pub async fn next(&mut self) -> ClassifiedAnswer {
        while let Some(ended) = self.running.join_next_with_id().await {
            let (task, said) = match ended {
                Ok((task, said)) => (task, Some(said)),
                Err(broken) => (broken.id(), None),
            };
            if let Some(answer) = self.waiting.remove(&task) {
                self.bytes -= answer.message.len();
                return Box::new((answer, said));
            }
        }
        pending().await
    }

    /// Nobody takes them any more.
    pub fn forget(&mut self) {
        self.running.abort_all();
        self.waiting.clear();
        self.bytes = 0;
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.waiting.values().any(|answer| answer.id.key == *key)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes of all answers that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
