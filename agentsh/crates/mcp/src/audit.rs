//! Calls that wait until somebody outside has been asked about them: a person, where the decision is `ask`, and then the
//! auditors. Everything else goes on meanwhile: each question
//! has a task of its own, and a call that nobody wants any more takes its question with it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::{Future, pending};
use std::pin::Pin;

use tokio::task::{self, AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::guard::{Decision, Finding, Verdict};
use crate::json::Json;
use crate::types::ServerId;

use super::jsonrpc::{Id, Key};
use super::page::Page;
use super::record::RecordSubject;
use crate::store::words::AuditVerdict;

/// Somebody who is asked about every call that the lists, the rates and the guard let pass.
pub trait Audit: Debug {
    /// Begins to ask. Dropping the future ends the question.
    fn ask(&self, call: &Question<'_>) -> Pin<Box<dyn Future<Output = AuditResult>>>;
}

/// A person who is asked about what a rule does not decide.
pub trait Approve: Debug {
    /// Begins to ask. The verdict replaces the question: it allows or blocks. Dropping the future takes the question back.
    fn ask(&self, call: &ToApprove<'_>) -> AskedPerson;
}

/// A question to a person.
pub struct AskedPerson {
    pub verdict: Pin<Box<dyn Future<Output = Verdict>>>,
    /// Where it is answered, if there is a page and somebody is asked at all.
    pub page: Option<Page>,
}

/// What a person is asked about. The answer is bound to all of it.
#[derive(Clone, Copy, Debug)]
pub struct ToApprove<'a> {
    pub server: &'a ServerId,
    /// The tool's name, or the method of another request.
    pub name: &'a str,
    /// Hash of the tool's definition; None: it was never listed.
    pub interface: Option<&'a str>,
    /// The arguments of a call, the parameters of another request.
    pub arguments: &'a Json<'a>,
    /// Why it is asked, and by which rule.
    pub decision: &'a Decision,
}

/// What whoever was asked said.
#[derive(Clone, Debug, Default)]
pub(super) struct CallAnswers {
    pub person: Option<Verdict>,
    /// None: no auditor was asked.
    pub auditors: Option<AuditResult>,
}

/// A call as it is about to be forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub server: &'a ServerId,
    pub tool: &'a str,
    pub arguments: Option<&'a Json<'a>>,
    /// What the guard found and did not refuse, as a clause.
    pub finding: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditResult {
    pub word: AuditVerdict,
    /// Who said it; None: everybody.
    pub by: Option<String>,
    /// To be recorded, and refused when its verdict says so. None: the call goes on.
    pub found: Option<Finding>,
}

/// A call that waits.
pub(super) struct Parked {
    pub id: Id,
    pub call: RecordSubject,
    /// The whole request, as it will be forwarded.
    pub message: Vec<u8>,
    pub since: Instant,
    /// What the guard said to it; recorded with the word of whoever is asked.
    pub decision: Decision,
    /// What the client was shown.
    pub page: Option<Page>,
    question: AbortHandle,
}

impl Parked {
    pub fn waited_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A call whose question has ended; None: the question broke.
pub(super) type AuditedCall = Box<(Parked, Option<CallAnswers>)>;

/// All calls of one connection that wait.
#[derive(Default)]
pub(super) struct Audits {
    running: JoinSet<CallAnswers>,
    parked: HashMap<task::Id, Parked>,
    by_key: HashMap<Key, task::Id>,
    bytes: usize,
}

impl Audits {
    /// Must be called inside a `LocalSet`.
    pub fn park(
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

    /// The next call whose question has ended. Never, when none waits.
    pub async fn next(&mut self) -> AuditedCall {
        while let Some(ended) = self.running.join_next_with_id().await {
            let (task, audited) = match ended {
                Ok((task, audited)) => (task, Some(audited)),
                Err(broken) => (broken.id(), None),
            };
            // One that was taken back is not there any more.
            if let Some(parked) = self.take(task) {
                return Box::new((parked, audited));
            }
        }
        pending().await
    }

    /// Takes a call back.
    pub fn cancel(&mut self, key: &Key) -> Option<Parked> {
        let parked = self.take(*self.by_key.get(key)?)?;
        parked.question.abort();
        Some(parked)
    }

    /// Takes all calls back, the longest waiting first.
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

    /// Bytes of all requests that wait.
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
