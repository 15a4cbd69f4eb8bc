//! The data flow of one session: remembers results, judges arguments.

use std::sync::Arc;
use std::time::Duration;

use super::labels::{Labels, Sink, Source};
use crate::json::{self, JsonError};
use crate::policy::{FlowPair, Ruled};
use crate::taint::judge::Judge;
use crate::taint::repeats::{Repeats, TextHash};
use crate::taint::{self, Finding, Leaves, Origin, OriginId, ReadResult, Reader, Stored, Views, marker};
use crate::threads::OFFLOAD_BYTES;
use crate::types::ServerId;

#[derive(Clone, Debug, Default)]
pub struct Config {
    pub taint: taint::Config,
}

/// Something of one server's results went, or would have gone, to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFinding {
    pub finding: Finding,
    pub origin: Origin,
    /// Whether this finding by itself refuses the call.
    pub refused: bool,
}

#[derive(Clone, Debug)]
pub struct Judged {
    /// The worst first.
    pub findings: Vec<FlowFinding>,
    /// The agent has read something private and this call leaves: for rules about flows without a match.
    pub private_to_external: bool,
}

impl Judged {
    /// Whether a finding refuses the call.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.findings.first().is_some_and(|worst| worst.refused)
    }
}

/// Data flow of one session.
#[derive(Debug)]
pub struct Flow {
    judge: Judge,
    repeats: Repeats,
    private_until: Option<Duration>,
    lifetime: Duration,
    /// Pairs of servers between which everything may flow: such flows are not counted.
    permitted: Arc<[Ruled<FlowPair>]>,
}

impl Flow {
    /// `key`: 32 random bytes. With the same key, what another session stored is found again.
    #[must_use]
    pub fn new(config: Config, key: &[u8; 32]) -> Self {
        let taint = config.taint.clamped();
        Self {
            lifetime: taint.lifetime,
            judge: Judge::new(taint, key),
            repeats: Repeats::default(),
            private_until: None,
            permitted: Arc::default(),
        }
    }

    /// Adds pairs of servers between which everything may flow.
    #[must_use]
    pub fn permitting(mut self, pairs: &[Ruled<FlowPair>]) -> Self {
        self.permitted = pairs.into();
        self
    }

    /// Remembers a server's text.
    pub fn remember(&mut self, origin: Origin, result: &Leaves<'_>, views: &Views) -> Stored {
        self.note_private(&origin);
        self.judge.remember(origin, result, views)
    }

    /// Like [`Flow::remember`], for a result as received, in JSON. If the server sent the same result within the last minute,
    /// only the repetition is noted. `read`: the output of a [`Reader`].
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn remember_json(
        &mut self,
        origin: Origin,
        result: &[u8],
        read: Option<&ReadResult>,
        views: &Views,
    ) -> Result<Stored, JsonError> {
        let (said, now) = (TextHash::new(&origin, result), origin.time);
        self.note_private(&origin);
        let before = self.repeats.find(&said, now).filter(|id| self.judge.memory.origin(*id).is_some());
        if let Some(id) = before {
            return Ok(self.judge.remember_repeat(origin, id));
        }
        let stored = if let Some(read) = read {
            self.judge.remember_read(origin, read)
        } else {
            // Leaves borrow from the bytes: the tree, which takes as much memory again, goes before the work begins.
            let leaves = Leaves::of(&json::read(result)?);
            self.judge.remember(origin, &leaves, views)
        };
        self.repeats.add(said, stored.id, now);
        Ok(stored)
    }

    /// A reader that processes a result of this length on another thread. None: copying its state would take as long.
    pub fn reader(&mut self, length: usize) -> Option<Reader> {
        (length >= OFFLOAD_BYTES).then(|| self.judge.reader())
    }

    fn note_private(&mut self, origin: &Origin) {
        if origin.private {
            self.private_until = Some(origin.time + self.lifetime);
        }
    }

    /// The id that a result will have after this many others.
    #[must_use]
    pub fn next_id(&self, others: usize) -> OriginId {
        self.judge.memory.next_id(others)
    }

    /// Does work of the last judgement that was put off until nothing waits.
    pub fn do_deferred_work(&mut self) {
        self.judge.do_deferred_work();
    }

    /// A copy that judges one call to `server` on another thread; see [`Flow::adopt`]. None: that takes no time, or less than
    /// to copy what is remembered.
    pub fn copy_for(&mut self, server: &ServerId, labels: Labels, length: usize) -> Option<Self> {
        let leaving = |origin: &Origin| is_forbidden(origin, server, labels, &self.permitted);
        // Searching one byte takes as long as copying this many.
        const SEARCH: usize = 32;
        if !self.judge.has_targets(&leaving) || length.saturating_mul(SEARCH) < self.judge.size() {
            return None;
        }
        self.do_deferred_work();
        Some(Self {
            judge: self.judge.clone(),
            repeats: Repeats::default(),
            private_until: self.private_until,
            lifetime: self.lifetime,
            permitted: Arc::clone(&self.permitted),
        })
    }

    /// Takes back a copy that has judged a call to a server, to which nothing was sent since the copy was made.
    pub fn adopt(&mut self, copy: Self) {
        self.judge.adopt(copy.judge);
    }

    /// The call that was judged last is not sent: what it held has not arrived.
    pub fn not_sent(&mut self) {
        self.judge.take_back();
    }

    /// The call that was judged last is sent. Returns what a later session has to know about it, as [`Flow::import`] takes it.
    #[must_use]
    pub fn sent(&self, now: Duration) -> Option<Vec<u8>> {
        self.judge.sent(now)
    }

    /// Judges the arguments of a call to `server`, which has these labels for this tool. It counts as sent, unless
    /// [`Flow::not_sent`] says otherwise.
    pub fn judge(
        &mut self,
        server: &ServerId,
        labels: Labels,
        call: &Leaves<'_>,
        now: Duration,
        views: &Views,
    ) -> Judged {
        let permitted = Arc::clone(&self.permitted);
        let leaving = |origin: &Origin| is_forbidden(origin, server, labels, &permitted);
        let found = self.judge.judge(call, now, views, &leaving);
        let mut findings: Vec<FlowFinding> = Vec::new();
        for finding in found {
            let Some(origin) = self.judge.memory.origin(finding.origin).cloned() else { continue };
            let refused = leaving(&origin) && finding.rule != taint::OPAQUE;
            findings.push(FlowFinding { finding, origin, refused });
        }
        findings.sort_by(|one, other| {
            (other.refused, other.finding.severity).cmp(&(one.refused, one.finding.severity))
        });
        let private_to_external =
            labels.sink != Sink::Local && self.private_until.is_some_and(|until| now < until);
        Judged { findings, private_to_external }
    }

    /// Marks one text of a result that is remembered. None: it is [`marker::unmarkable_reason`].
    pub fn mark(
        &mut self,
        id: OriginId,
        text: &str,
        position: marker::Position,
        random: u64,
    ) -> Option<String> {
        if marker::unmarkable_reason(text, position).is_some() {
            return None;
        }
        let number = self.judge.markers.add(&self.judge.memory, id, random);
        marker::mark(text, number, position, random)
    }

    /// The results of which a text carries a marker.
    pub fn marked_results(&self) -> impl Iterator<Item = OriginId> {
        self.judge.markers.origins()
    }

    /// A text that goes back to a server, without our markers. None: it has none.
    #[must_use]
    pub fn without_markers(&self, text: &str) -> Option<String> {
        marker::strip(text, |number| self.judge.markers.has(number))
    }

    /// Takes back what [`Stored::record`] and [`Flow::sent`] gave, oldest first.
    ///
    /// # Errors
    /// When it is not whole, or was written with another key.
    pub fn import(
        &mut self,
        stored: &[u8],
        now: Duration,
    ) -> Result<Option<OriginId>, taint::persist::ImportError> {
        let imported = self.judge.import(stored, now)?;
        if let Some(origin) = imported.and_then(|id| self.judge.memory.origin(id))
            && origin.private
        {
            self.private_until = self.private_until.max(Some(origin.time + self.lifetime));
        }
        Ok(imported)
    }

    /// Everything that is remembered, oldest first.
    pub fn origins(&self) -> impl Iterator<Item = (OriginId, &Origin)> {
        self.judge.memory.origins()
    }

    /// Results that are remembered, and the bytes they take.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        (self.judge.memory.len(), self.judge.size())
    }
}

/// Whether the data of a result may not go to a server.
fn is_forbidden(origin: &Origin, server: &ServerId, labels: Labels, permitted: &[Ruled<FlowPair>]) -> bool {
    origin.server != *server
        && labels.sink != Sink::Local
        && origin.private
        && !permitted.iter().any(|pair| pair.value.names(&origin.server.0, &server.0))
}

impl Origin {
    /// Whether results of a server with these labels are private.
    #[must_use]
    pub fn is_private(labels: Labels) -> bool {
        labels.source != Source::Public
    }
}

#[cfg(test)]
#[path = "tests/decide.rs"]
mod tests;
