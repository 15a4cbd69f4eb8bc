//! Calls that wait for a person or the auditors. Each waits in its own task, and cancelling a call cancels its
//! question.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::{Future, pending};
use std::pin::Pin;

use tokio::task::{self, AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::guard::{Decision, Finding, Verdict};
use crate::json::Json;
use crate::types::ServerId;

use super::approval_page::Page;
use super::jsonrpc::{Id, Key};
use super::record::RecordSubject;
use crate::store::words::AuditVerdict;

/// Asked about every call that all checks allow.
pub trait Audit: Debug {
    /// Starts a question. Dropping the future cancels it.
    fn ask(&self, call: &Question<'_>) -> Pin<Box<dyn Future<Output = AuditResult>>>;
}

/// A person who is asked if no rule decides.
pub trait Approve: Debug {
    /// Starts a question. The verdict allows or blocks. Dropping the future withdraws it.
    fn ask(&self, call: &ApprovalSubject<'_>) -> AskedPerson;
}

/// A question to a person.
pub struct AskedPerson {
    pub verdict: Pin<Box<dyn Future<Output = Verdict>>>,
    /// The page for the answer, if there is one.
    pub page: Option<Page>,
}

/// The subject of a question. The answer is bound to all of it.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalSubject<'a> {
    pub server: &'a ServerId,
    /// The client of the gateway.
    pub client: Option<&'a str>,
    /// The tool's name, or the method of another request.
    pub name: &'a str,
    /// Hash of the tool's definition; None: never listed.
    pub interface: Option<&'a str>,
    /// The call's arguments, with all other parameters if there are any, or another request's parameters.
    pub arguments: &'a Json<'a>,
    /// Why, and by which rule.
    pub decision: &'a Decision,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CallAnswers {
    pub person: Option<Verdict>,
    /// None: no auditor was asked.
    pub auditors: Option<AuditResult>,
}

/// A call about to be forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub server: &'a ServerId,
    pub tool: &'a str,
    pub arguments: Option<&'a Json<'a>>,
    /// A finding of the guard that was allowed, as a clause.
    pub finding: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditResult {
    pub word: AuditVerdict,
    /// The auditor that decided; None: all of them.
    pub by: Option<String>,
    /// Recorded, and refused if its verdict says so. None: the call continues.
    pub found: Option<Finding>,
}

/// A waiting call.
pub(super) struct Parked {
    pub id: Id,
    pub call: RecordSubject,
    /// The whole request, as it will be forwarded.
    pub message: Vec<u8>,
    pub since: Instant,
    /// The guard's decision, recorded with the answer.
    pub decision: Decision,
    /// The page that the client was shown.
    pub page: Option<Page>,
    question: AbortHandle,
}

impl Parked {
    pub fn waited_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A call whose question has ended; None: it failed.
pub(super) type AuditedCall = Box<(Parked, Option<CallAnswers>)>;

/// The waiting calls of one connection.
#[derive(Default)]
pub(super) struct Audits {
    running: JoinSet<CallAnswers>,
    parked: HashMap<task::Id, Parked>,
    by_key: HashMap<Key, task::Id>,
    bytes: usize,
}

impl Audits {
    /// Must be called inside a `LocalSet`.
    pub fn hold_call(
        &mut self,
        id: Id,
        call: RecordSubject,
        message: Vec<u8>,
        (decision, page): (Decision, Option<Page>),
        asked: Pin<Box<dyn Future<Output = CallAnswers>>>,
    ) {
        let question = self.running.spawn_local(asked);
        self.bytes += message.len();
        self.by_key.insert(id.key.clone(), question.id());
        self.parked.insert(
            question.id(),
            Parked { id, call, message, since: Instant::now(), decision, page, question },
        );
    }

    /// The next call whose question has ended. Pending if none waits.
    pub async fn next(&mut self) -> AuditedCall {
        while let Some(ended) = self.running.join_next_with_id().await {
            let (task, audited) = match ended {
                Ok((task, audited)) => (task, Some(audited)),
                Err(broken) => (broken.id(), None),
            };
            // It may have been cancelled.
            if let Some(parked) = self.take(task) {
                return Box::new((parked, audited));
            }
        }
        pending().await
    }

    /// Cancels a call.
    pub fn cancel(&mut self, key: &Key) -> Option<Parked> {
        let parked = self.take(*self.by_key.get(key)?)?;
        parked.question.abort();
        Some(parked)
    }

    /// Cancels all calls, the oldest first.
    pub fn cancel_all(&mut self) -> Vec<Parked> {
        self.running.abort_all();
        self.by_key.clear();
        self.bytes = 0;
        let mut all: Vec<Parked> = std::mem::take(&mut self.parked).into_values().collect();
        all.sort_by_key(|parked| parked.since);
        all
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.parked.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Bytes of all waiting requests.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn take(&mut self, task: task::Id) -> Option<Parked> {
        let parked = self.parked.remove(&task)?;
        self.by_key.remove(&parked.id.key);
        self.bytes -= parked.message.len();
        Some(parked)
    }
}
