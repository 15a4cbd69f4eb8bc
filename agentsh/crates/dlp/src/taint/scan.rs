//! All detectors. Those that compare grams share one pass over the text: a bounded number of steps for each symbol,
//! however much is remembered.

use super::cells::Cells;
use super::coverage::Coverage;
use super::detector::Detector;
use super::hits::{Hits, MayNotFlow, Text};
use super::memory::{Inserted, TaintMemory};
use super::origin::OriginId;
use super::pieces::Pieces;
use super::placed::Placed;
use super::print::Print;
use super::runs::Runs;
use super::symbols::Folded;
use super::values::Values;

#[derive(Clone, Debug, Default)]
pub(super) struct Detectors {
    pub values: Values,
    pub runs: Runs,
    pub pieces: Pieces,
    pub cells: Cells,
    pub coverage: Coverage,
}

/// Does the same with each of them.
macro_rules! each {
    ($all:expr, |$one:ident| $do:expr) => {{
        let Detectors { values, runs, pieces, cells, coverage } = $all;
        each!($do, $one, values, runs, pieces, cells, coverage);
    }};
    ($do:expr, $one:ident, $($each:ident),*) => {
        $({ let $one = $each; $do; })*
    };
}

impl Detectors {
    /// A result was put into the memory.
    pub fn remember(&mut self, memory: &TaintMemory, inserted: &Inserted, print: &Print) {
        for moved in &inserted.moved {
            each!(&mut *self, |one| one.apply_move(moved));
        }
        let Some(placed) = Placed::of(memory, inserted.id) else { return };
        let Self { values, runs, pieces, cells, coverage } = self;
        runs.remember(&placed, print);
        values.remember(&placed, print);
        pieces.remember(&placed, print);
        cells.remember(&placed, print);
        coverage.remember(&placed, print);
    }

    pub fn size(&self) -> usize {
        let mut size = 0;
        each!(self, |one| size += one.size());
        size
    }

    pub fn begin(&mut self) {
        each!(self, |one| one.begin());
    }

    pub fn forget(&mut self) {
        each!(self, |one| one.forget());
    }

    /// Like [`Detector::adopt`].
    pub fn adopt(&mut self, copy: Self, memory: &TaintMemory, new: OriginId) {
        self.pieces.adopt(copy.pieces, memory, new);
        self.cells.adopt(copy.cells, memory, new);
        self.coverage.adopt(copy.coverage, memory, new);
    }

    /// Everything in a text that came out of a result.
    pub fn scan(&mut self, memory: &TaintMemory, text: &Folded, leaving: MayNotFlow<'_>) -> Hits {
        let mut hits = Hits::default();
        if memory.is_empty() {
            return hits;
        }
        let Self { values, runs, pieces, .. } = self;
        feed(memory, text, values, runs, pieces);
        let text = Text { memory, symbols: &text.symbols, leaving };
        values.find_hits(&text, &mut hits);
        runs.find_hits(&text, &mut hits);
        pieces.find_hits(&text, &mut hits);
        hits
    }

    /// Like [`Detectors::scan`] if nothing leaves: only unchanged copies.
    pub fn copies(&mut self, memory: &TaintMemory, text: &Folded) -> Hits {
        let mut hits = Hits::default();
        let Self { values, runs, pieces, .. } = self;
        feed(memory, text, values, runs, pieces);
        let text = Text { memory, symbols: &text.symbols, leaving: &|_| false };
        values.find_hits(&text, &mut hits);
        runs.find_hits(&text, &mut hits);
        pieces.find_hits(&Text { leaving: &|_| true, ..text }, &mut hits);
        hits
    }
}

/// Shows the grams of a text to those that look for symbols.
fn feed(memory: &TaintMemory, text: &Folded, values: &mut Values, runs: &mut Runs, pieces: &mut Pieces) {
    memory.hasher.each_short_block(&text.symbols, |grams| {
        values.add_grams(grams);
        pieces.add_grams(grams);
        runs.add_grams(grams);
    });
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
