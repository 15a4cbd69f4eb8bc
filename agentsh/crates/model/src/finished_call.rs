//! The record of a request and its answer.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::StatusCode;

use super::PendingAnswer;
use super::judge::policy_provider;
use super::ledger::Ledger;
use agentsh_host::Record;
use agentsh_llm::{Provider, Usage};
use agentsh_store::Event;

pub(super) struct SessionUsage {
    pub record: Rc<Record>,
    pub ledger: RefCell<Ledger>,
}

/// One request and its answer, for the record and the budgets. Recorded on drop, however the answer ends.
pub(super) struct ModelCall {
    books: Rc<SessionUsage>,
    provider: Provider,
    name: String,
    status: u16,
    since: Instant,
    head: Duration,
    pub usage: Usage,
}

impl ModelCall {
    pub(super) fn new(books: Rc<SessionUsage>, asked: &PendingAnswer, status: StatusCode) -> Self {
        Self {
            books,
            provider: asked.provider,
            name: asked.model.clone(),
            status: status.as_u16(),
            since: asked.since,
            head: asked.since.elapsed(),
            usage: Usage::default(),
        }
    }
}

impl Drop for ModelCall {
    fn drop(&mut self) {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let cost = self.books.ledger.borrow_mut().book(&self.name, self.usage, Instant::now());
        self.books.record.journal.record(Event::ModelCalled {
            provider: policy_provider(self.provider),
            model: self.name.chars().take(MAX_NAME).collect(),
            status: self.status,
            input_tokens: self.usage.input,
            output_tokens: self.usage.output,
            cost_micro_usd: cost,
            head_ms: milliseconds(self.head),
            total_ms: milliseconds(self.since.elapsed()),
        });
    }
}

/// Characters of a model's name on record.
const MAX_NAME: usize = 200;
