//! Long subjects: slow searches run on another thread, and their findings are judged here.
//!
//! The state of a session stays on one thread. A check hands a part of its work ([`PrecomputeJob`]) with all its input to another
//! one; [`OffloadJob`] is these parts and a copy of the subject. Their results come back as [`PrecomputedFindings`], and only
//! [`Check::judge`](super::Check::judge) uses them: it may find that they are out of date, and do the work itself.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use crate::json::{self, Json};
use crate::types::ServerId;

use super::{Check, Report, Rewrite, Subject, SubjectKind};

/// A part of one check's work, with all its inputs.
pub trait PrecomputeJob: Send {
    /// Looks at a subject. `rewrites` are those of the checks before, and get those of this one.
    fn search(self: Box<Self>, subject: &Subject<'_>, rewrites: &mut Vec<Rewrite>) -> CheckFindings;
}

/// The findings of one check. Only the check knows their type.
type CheckFindings = Box<dyn Any + Send>;

/// The findings of all checks, by [`Check::key`].
#[derive(Debug, Default)]
pub struct PrecomputedFindings(BTreeMap<&'static str, RefCell<Option<CheckFindings>>>);

/// The findings of one check about a subject, if any.
#[derive(Clone, Copy, Default)]
pub struct PrecomputedFinding<'a>(Option<&'a RefCell<Option<CheckFindings>>>);

impl PrecomputedFindings {
    /// The findings of the check with this key.
    #[must_use]
    pub fn of(&self, check: &'static str) -> PrecomputedFinding<'_> {
        PrecomputedFinding(self.0.get(check))
    }
}

impl PrecomputedFinding<'_> {
    /// Nothing: the check has to look itself.
    pub const NOTHING: PrecomputedFinding<'static> = PrecomputedFinding(None);

    /// Takes it, once.
    #[must_use]
    pub fn take<T: 'static>(self) -> Option<T> {
        let seen = self.0?.take()?;
        seen.downcast().ok().map(|seen| *seen)
    }
}

impl Debug for PrecomputedFinding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some_and(|seen| seen.borrow().is_some()) { "something" } else { "nothing" })
    }
}

/// The subject to be examined, and the jobs of the checks.
pub struct OffloadJob {
    server: ServerId,
    now: Duration,
    turn: Option<u64>,
    kind: Kind,
    name: String,
    /// The value as JSON.
    value: String,
    /// In the order of the checks, with their keys.
    looks: Vec<(&'static str, Box<dyn PrecomputeJob>)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Call,
    Request,
    Around,
    Answer,
    Result,
    ServerRequest,
    Notification,
}

impl OffloadJob {
    /// None: no part of it can be done on another thread.
    pub(crate) fn new(subject: &Subject<'_>, checks: &mut [Box<dyn Check>]) -> Option<Self> {
        let kind = match subject.matter {
            SubjectKind::Call { .. } => Kind::Call,
            SubjectKind::Request { .. } => Kind::Request,
            SubjectKind::Around { .. } => Kind::Around,
            SubjectKind::Answer { .. } => Kind::Answer,
            SubjectKind::Result { .. } => Kind::Result,
            SubjectKind::ServerRequest { .. } => Kind::ServerRequest,
            SubjectKind::Notification { .. } => Kind::Notification,
            SubjectKind::Server
            | SubjectKind::Definition { .. }
            | SubjectKind::Offer { .. }
            | SubjectKind::ModelCall { .. }
            | SubjectKind::OwnRead { .. } => return None,
        };
        let value = subject.matter.value()?;
        let look = |check: &mut Box<dyn Check>| Some((check.key(), check.precompute_job(subject)?));
        let looks: Vec<_> = checks.iter_mut().filter_map(look).collect();
        (!looks.is_empty()).then(|| Self {
            server: subject.server.clone(),
            now: subject.now,
            turn: subject.turn,
            kind,
            name: subject.matter.name().to_owned(),
            value: value.to_compact(),
            looks,
        })
    }

    /// May take long, unlike the decision itself.
    #[must_use]
    pub fn run(self) -> PrecomputedFindings {
        // It was serialised from a parsed value, so this cannot fail.
        let Ok(value) = json::read(self.value.as_bytes()) else { return PrecomputedFindings::default() };
        let subject = Subject {
            server: &self.server,
            matter: self.kind.of(&self.name, &value),
            // Only listings have an audience, and they are not offloaded.
            audience: "",
            caller: None,
            now: self.now,
            turn: self.turn,
            is_promised: false,
            seen: PrecomputedFinding::NOTHING,
        };
        let mut rewrites = Vec::new();
        let mut seen = PrecomputedFindings::default();
        for (key, look) in self.looks {
            let sighting = look.search(&subject, &mut rewrites);
            // If two checks have one key, the second one searches again itself.
            seen.0.entry(key).or_insert_with(|| RefCell::new(Some(sighting)));
        }
        seen
    }
}

impl Kind {
    /// Without what only the connection knows, such as what was listed.
    fn of<'a>(self, name: &'a str, value: &'a Json<'a>) -> SubjectKind<'a> {
        match self {
            Self::Call => {
                SubjectKind::Call { tool: name, hash: None, unlisted: false, arguments: Some(value) }
            }
            Self::Request => SubjectKind::Request { method: name, params: Some(value) },
            Self::Around => SubjectKind::Around { name, rest: value },
            Self::Answer => SubjectKind::Answer { method: name, result: value },
            Self::Result => SubjectKind::Result { tool: name, answer: value },
            Self::ServerRequest => SubjectKind::ServerRequest { method: name, params: Some(value) },
            Self::Notification => SubjectKind::Notification { method: name, params: Some(value) },
        }
    }
}

impl Debug for OffloadJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffloadJob")
            .field("server", &self.server)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A check that remembers nothing from one subject to the next: all of its work can be done elsewhere.
pub trait Precompute: Debug + Send + Sync {
    /// Like [`Check::judge`].
    fn inspect(&self, subject: &Subject<'_>, report: &mut Report);
}

impl<L: Precompute + 'static> Check for Arc<L> {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        match subject.seen.take::<Report>() {
            Some(seen) => report.absorb(seen),
            None => self.inspect(subject, report),
        }
    }

    fn precompute_job(&mut self, _: &Subject<'_>) -> Option<Box<dyn PrecomputeJob>> {
        Some(Box::new(PrecomputeInspection(Self::clone(self))))
    }
}

struct PrecomputeInspection<L>(Arc<L>);

impl<L: Precompute> PrecomputeJob for PrecomputeInspection<L> {
    fn search(self: Box<Self>, subject: &Subject<'_>, rewrites: &mut Vec<Rewrite>) -> CheckFindings {
        let mut report = Report::default();
        self.0.inspect(subject, &mut report);
        rewrites.extend_from_slice(report.rewrites());
        Box::new(report)
    }
}
