//! What all detectors have in common. Each is a file with its own state. The head of the file says what it finds,
//! explains its numbers, and says what it costs and which of 207 attempts it misses (docs/exfiltration.md).
//!
//! The remembered results (`memory`), the grams of a text (`scan`) and what decodes from a call (`decoded_views`)
//! are made once and handed in: detectors that read every text by themselves would read it five times.

use super::blocks::Grams;
use super::decoded_views::DecodedViews;
use super::findings::Search;
use super::hits::{Hits, Text};
use super::memory::TaintMemory;
use super::origin::OriginId;
use super::placed::Placed;
use super::position_change::PositionChange;
use super::print::Print;

pub(super) trait Detector: Sized {
    /// The parts of one call that may not leave.
    type SentParts: Default;

    /// Takes of a result that is now remembered what it looks for.
    fn remember(&mut self, _: &Placed<'_>, _: &Print) {}

    /// Results are counted from another place on.
    fn apply_move(&mut self, _: &PositionChange) {}

    /// Bytes that its indices take.
    fn size(&self) -> usize {
        0
    }

    /// Before the next call.
    fn begin(&mut self) {}

    /// Gets the n-grams of a text, block by block.
    fn add_grams(&mut self, _: &Grams<'_>) {}

    /// Looks at the text whose n-grams it saw: a call, names of its members, or what decodes from it.
    fn find_hits(&mut self, _: &Text<'_>, _: &mut Hits) {}

    /// Looks at a whole call, and counts as sent what it brings. `views` decode from it.
    fn judge(&mut self, _: &TaintMemory, _: &DecodedViews, _: &mut Search<'_, '_>) {}

    /// The last call was not sent: what it brought has not arrived.
    fn forget(&mut self) {}

    /// The parts of the last call, for a later session.
    fn export(&self) -> Self::SentParts {
        Self::SentParts::default()
    }

    /// Restores the counts of [`Detector::export`].
    fn import(&mut self, _: &TaintMemory, _: Self::SentParts) {}

    /// Takes in what a copy noted of the one call that it judged. What others noted meanwhile stays; results from `new` on
    /// were remembered meanwhile.
    fn adopt(&mut self, _: Self, _: &TaintMemory, _new: OriginId) {}
}
