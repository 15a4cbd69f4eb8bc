//! One decision: every [`Check`] examines a [`Subject`], and [`Report::fold`] makes a [`Decision`] of the findings.
//! The caller applies it; `mcp::record` records it.

mod caller;
mod finding;
mod fold;
mod precompute;
mod refusal;
mod subject;
pub(crate) mod used_entry;

pub use caller::Caller;
pub use finding::{Finding, Rewrite, Severity};
pub use fold::{Decision, Report};
pub use precompute::{OffloadJob, Precompute, PrecomputeJob, PrecomputedFinding, PrecomputedFindings};
pub use refusal::{Refusal, remedy};
pub use subject::{Offer, Subject, SubjectKind};
pub use used_entry::UsedEntry;

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;

/// One kind of check. A new one is a file next to the others and a line in the list of [`super::Guard`].
pub trait Check: Debug {
    /// Looks at a subject and reports. It is not asked once a check before it has blocked, so a check that counts
    /// counts only what passed so far.
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report);

    /// The part of judging a long subject that another thread can do before [`Check::judge`] runs. The result is in
    /// [`Subject::seen`], unless there is none.
    fn precompute_job(&mut self, _subject: &Subject<'_>) -> Option<Box<dyn PrecomputeJob>> {
        None
    }

    /// The name of the check, unique in a guard.
    fn key(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// No check blocked it, nor another part of the same message. Who counts what happened, and not what was tried, counts here.
    fn record_passed(&mut self, _subject: &Subject<'_>) {}

    /// A check blocked it, this one or another.
    fn record_refused(&mut self, _subject: &Subject<'_>) {}

    /// Does work that was put off. To be called when no caller waits for an answer, and again soon if it is false: another thread
    /// is at work.
    fn catch_up(&mut self) -> bool {
        true
    }
}

/// A check that other code asks too, for example for a report.
impl<C: Check + ?Sized> Check for Rc<RefCell<C>> {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        self.borrow_mut().judge(subject, report);
    }

    fn precompute_job(&mut self, subject: &Subject<'_>) -> Option<Box<dyn PrecomputeJob>> {
        self.borrow_mut().precompute_job(subject)
    }

    fn record_passed(&mut self, subject: &Subject<'_>) {
        self.borrow_mut().record_passed(subject);
    }

    fn record_refused(&mut self, subject: &Subject<'_>) {
        self.borrow_mut().record_refused(subject);
    }

    fn catch_up(&mut self) -> bool {
        self.borrow_mut().catch_up()
    }
}
