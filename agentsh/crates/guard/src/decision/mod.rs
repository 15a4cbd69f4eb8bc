//! One decision: a [`Subject`] goes through every [`Check`], and [`Report::fold`] makes a [`Decision`] of what they
//! found. Whoever carries messages applies it; `mcp::record` writes it down.

mod finding;
mod fold;
mod refusal;
mod subject;

pub use finding::{Finding, Rewrite, Severity};
pub use fold::{Decision, Report};
pub use refusal::Refusal;
pub use subject::{Matter, Offer, Subject};

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;

/// One kind of judgement. A new one is a file beside the others and a line in the list that [`super::Guard`] is
/// made with.
pub trait Check: Debug {
    /// Looks at a subject and reports. It is not asked once a check before it has blocked, so a check that counts
    /// counts only what passed so far.
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report);

    /// No check blocked it. Who counts what happened, and not what was tried, counts here.
    fn passed(&mut self, _subject: &Subject<'_>) {}

    /// Does what was put off. To be called when nobody waits for an answer.
    fn catch_up(&mut self) {}
}

/// A check that somebody else asks too, such as for a report.
impl<C: Check + ?Sized> Check for Rc<RefCell<C>> {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        self.borrow_mut().judge(subject, report);
    }

    fn passed(&mut self, subject: &Subject<'_>) {
        self.borrow_mut().passed(subject);
    }

    fn catch_up(&mut self) {
        self.borrow_mut().catch_up();
    }
}
