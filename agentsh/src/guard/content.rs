//! What the arguments of a call would carry out, and what results brought in.

use std::fmt::Debug;
use std::time::Duration;

use serde_json::{Value, json};

use crate::json::Json;
use crate::types::{ServerId, ToolId};

use super::flow::Annotations;
use super::verdict::Verdict;

mod marks;
mod places;
mod views;

pub use marks::markable;
pub use places::{Forbidden, forbidden};
pub use views::Views;

/// Looks into what is called and what comes back. Time is counted as in [`super::Guard::judge_call`].
pub trait ContentGuard: Debug {
    /// What is about to leave, judged; None when nothing was found. Called after the lists and rates let the call
    /// pass, before it is forwarded.
    fn judge_arguments(
        &mut self,
        server: &ServerId,
        tool: &str,
        arguments: Option<&Json<'_>>,
        now: Duration,
    ) -> Option<Exfiltration>;

    /// What is about to be answered to a request of a server. Hosts in it are text, and no order to go anywhere.
    fn judge_answer(
        &mut self,
        server: &ServerId,
        method: &str,
        result: &Json<'_>,
        now: Duration,
    ) -> Option<Exfiltration>;

    /// Takes in what a call brought, and gives what is to be replaced in it before it is forwarded. `answer` is the
    /// whole message: a result or an error. It counts in everything that is judged from now on; the work may wait for
    /// [`ContentGuard::catch_up`], so that the client does not have to.
    fn remember_result(
        &mut self,
        server: &ServerId,
        tool: &str,
        answer: &Json<'_>,
        now: Duration,
    ) -> Vec<Rewrite>;

    /// Does what was put off. To be called when nobody waits for an answer.
    fn catch_up(&mut self);

    /// A text that is about to be handed to a server, without what [`ContentGuard::remember_result`] put in. None: it
    /// has nothing of that.
    fn unmarked(&self, text: &str) -> Option<String>;

    /// Hears what a server says about one of its tools.
    fn note_tool(&mut self, server: &ServerId, tool: &str, says: Annotations);

    /// What is remembered and what was found, without any value: `tracking`, `tokens`, `leakage_events`.
    fn report(&mut self) -> Value;
}

/// A text of a result that is to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Its place in `content`.
    pub item: usize,
    pub text: String,
}

/// Something that is about to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exfiltration {
    pub verdict: Verdict,
    /// Stable code of what found it.
    pub detector: String,
    /// `low`, `medium`, `high` or `critical`.
    pub severity: String,
    /// Where it came in.
    pub source: Option<ToolId>,
    /// Where it would go, if that is known.
    pub destination: Option<String>,
    /// What stands around it: redacted, at most 50 characters on each side.
    pub context: String,
    /// JSON pointer into the arguments; `tool` for the tool's name.
    pub pointer: String,
    /// Decodings that led to it, outermost first.
    pub decoded: Vec<&'static str>,
    /// What was found, as a clause for the one who called.
    pub what: String,
}

/// Nobody looks: nothing is found because nothing is searched, and the report says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotConfigured;

impl ContentGuard for NotConfigured {
    fn judge_arguments(
        &mut self,
        _: &ServerId,
        _: &str,
        _: Option<&Json<'_>>,
        _: Duration,
    ) -> Option<Exfiltration> {
        None
    }

    fn judge_answer(&mut self, _: &ServerId, _: &str, _: &Json<'_>, _: Duration) -> Option<Exfiltration> {
        None
    }

    fn remember_result(&mut self, _: &ServerId, _: &str, _: &Json<'_>, _: Duration) -> Vec<Rewrite> {
        Vec::new()
    }

    fn catch_up(&mut self) {}

    fn unmarked(&self, _: &str) -> Option<String> {
        None
    }

    fn note_tool(&mut self, _: &ServerId, _: &str, _: Annotations) {}

    fn report(&mut self) -> Value {
        json!({"tracking": "not configured", "tokens": [], "leakage_events": []})
    }
}
