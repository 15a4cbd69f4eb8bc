//! What is the same of every detector that counts over several calls. Each has its state for itself; what a call is and
//! what decodes from it is handed in.
//!
//! Exact runs, values, shifted letters and prose in pieces are no such detectors: they share one pass over the grams of a
//! text and one memory with one eviction (`memory`, `scan`), and apart they would read every text four times.

use super::decoded_views::DecodedViews;
use super::findings::Search;
use super::memory::TaintMemory;
use super::origin::{Origin, OriginId};

pub(super) trait Detector: Sized {
    /// What is kept of one result.
    type Kept;
    /// What one call brought of what may not leave.
    type Brought;

    fn remember(&mut self, id: OriginId, origin: &Origin, kept: Self::Kept);

    /// Before the next call.
    fn begin(&mut self);

    /// Looks into a call, and counts as sent what it brings. `views` decode from it.
    fn judge(&mut self, memory: &TaintMemory, views: &DecodedViews, search: &mut Search<'_, '_>);

    /// The last call was not sent: what it brought has not arrived.
    fn forget(&mut self);

    /// What the last call brought, for a later session.
    fn export(&self) -> Self::Brought;

    /// Counts again what [`Detector::export`] gave.
    fn import(&mut self, brought: Self::Brought);

    /// Takes in what a copy noted of the one call that it judged. What others noted meanwhile stays.
    fn adopt(&mut self, copy: Self);
}
