//! A text read in another order or alphabet, and in pieces: guesses that fit every text.

use super::findings::Search;
use super::judge::{Judge, MAX_SHIFTED};
use super::scan::What;
use super::symbols::Folded;
use crate::text::{Step, turned};
use agentsh_secrets::values::{self, Kind};

/// Bytes of an address whose parameters are put together.
const MAX_QUERY: usize = 8 * 1024;

impl Judge {
    /// Letters in another order or from another alphabet are found by what lies between them, digits and signs are not.
    pub(super) fn permuted(
        &mut self,
        text: &str,
        leaf: usize,
        how: &dyn Fn() -> Vec<&'static str>,
        backwards: &mut usize,
        search: &mut Search<'_, '_>,
    ) {
        let then = |step: Step| how().into_iter().chain([step.as_str()]).collect::<Vec<_>>();
        if text.len() <= *backwards {
            *backwards -= text.len();
            self.backwards(&turned(Step::Reversed, text), leaf, &|| then(Step::Reversed), search);
            // `rev` turns each line. Of letters of ASCII what lies between them is found in any order of lines.
            if !text.is_ascii() && text.contains('\n') {
                let lines: Vec<String> = text.lines().map(|line| turned(Step::Reversed, line)).collect();
                self.backwards(&lines.join("\n"), leaf, &|| then(Step::Reversed), search);
            }
        }
        if text.len() <= MAX_SHIFTED && text.bytes().any(|byte| byte.is_ascii_digit()) {
            for step in (1..26).map(Step::Caesar).chain([Step::Atbash]) {
                self.view(&turned(step, text), leaf, &|| then(step), search);
            }
        }
    }

    fn backwards(
        &mut self,
        reversed: &str,
        leaf: usize,
        how: &dyn Fn() -> Vec<&'static str>,
        search: &mut Search<'_, '_>,
    ) {
        let mut folded = std::mem::take(&mut self.single);
        folded.clear();
        folded.push(reversed);
        let hits = self.scanner.scan(&self.memory, &folded, search.leaving);
        // What lies between letters is the same in both directions, and was looked at.
        for hit in hits.list.iter().filter(|hit| !matches!(hit.what, What::Shifted(_))) {
            search.decoded(hit, reversed, leaf, how(), true);
        }
        if hits.uncounted().is_some() {
            search.crowded(&hits, leaf, how());
        }
        hits.pieces.iter().for_each(|piece| self.memory.pieces.add(piece));
        self.short_values(reversed, leaf, &mut folded, search);
        self.single = folded;
    }

    /// Values of a text that is little more than one of them.
    pub(super) fn short_values(
        &self,
        text: &str,
        leaf: usize,
        folded: &mut Folded,
        search: &mut Search<'_, '_>,
    ) {
        if text.len() <= 256 {
            for entity in
                values::find_sought(text, 16).into_iter().filter(|entity| !entity.kind.is_reference())
            {
                self.value(entity.kind, entity.start..entity.end, leaf, text, folded, search);
            }
            self.value(Kind::HighEntropy, 0..text.len(), leaf, text, folded, search);
        }
    }
}

/// The values of an address's parameters as one text: `?a=..&b=..`.
pub(super) fn pieces_of_query(text: &str) -> Option<String> {
    if text.len() > MAX_QUERY || !text.contains('&') {
        return None;
    }
    let (_, query) = text.split_once('?')?;
    let query = query.split(['#', ' ', '"', '<']).next().unwrap_or_default();
    let values = query.split('&').filter_map(|part| part.split_once('=')).map(|(_, value)| value);
    Some(values.collect())
}
