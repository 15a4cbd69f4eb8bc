//! Answers that wait for a classifier, each in its own task.

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

/// Rates how likely a text gives orders to a model.
pub trait Classify: Debug {
    /// Starts a question; None if not needed. Dropping the future cancels it.
    fn ask(&self, brought: &ServerAnswer<'_>) -> Option<Pin<Box<dyn Future<Output = Classified>>>>;

    /// The decision about an answer whose question failed.
    fn broken(&self, server: &ServerId, name: &str) -> Classified;
}

#[derive(Clone, Copy, Debug)]
pub struct ServerAnswer<'a> {
    pub server: &'a ServerId,
    /// The tool, or the method.
    pub name: &'a str,
    pub answer: &'a Json<'a>,
    /// The member of the result with the entries to judge.
    pub list: Option<&'static str>,
}

/// The classifier's result.
#[derive(Clone, Debug, Default)]
pub struct Classified {
    pub findings: Vec<Finding>,
    /// Sentences to put before a result.
    pub sentences: Vec<String>,
    /// Indices of removed entries, in order.
    pub left_out: Vec<usize>,
}

/// A waiting answer.
pub(super) struct Waiting {
    pub id: Id,
    pub kind: Kind,
    /// The whole message.
    pub message: Vec<u8>,
}

/// An answer whose question has ended; None: it failed.
pub(super) type ClassifiedAnswer = Box<(Waiting, Option<Classified>)>;

/// The waiting answers of one connection.
#[derive(Default)]
pub(super) struct Answers {
    running: JoinSet<Classified>,
    waiting: HashMap<task::Id, Waiting>,
    bytes: usize,
}

impl Answers {
    /// Must be called inside a `LocalSet`.
    pub fn hold_answer(&mut self, answer: Waiting, question: Pin<Box<dyn Future<Output = Classified>>>) {
        self.bytes += answer.message.len();
        let task = self.running.spawn_local(question);
        self.waiting.insert(task.id(), answer);
    }

    /// The next answer whose question has ended. Pending if none waits.
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

    /// Drops all.
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

    /// Bytes of all waiting answers.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
