//! What decodes from a text, for the search of [`crate::guard::taint`].

use crate::guard::taint::judge::{Decoder, View};
use crate::guard::text::{self, Limits, Step, visit, visit_orders};

/// Every text that [`visit`] finds, without the text itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Views {
    pub limits: Limits,
}

/// Longer texts in which nothing is encoded are not read in another order as well.
const MAX_ORDERED: usize = 8 * 1024;

impl Decoder for Views {
    fn decode(&self, text: &str, is_encoded: bool, sink: &mut dyn FnMut(View<'_>)) {
        let mut show = |view: text::View<'_>| {
            let Some(last) = view.how.last() else { return };
            let how = || view.how.iter().map(|step| Step::as_str(*step)).collect();
            sink(View { text: view.text, how: &how, is_rearranged: last.is_permutation() });
        };
        if is_encoded {
            // What a bound left out is not seen here; the search of the text as it stands has no bound.
            let _ = visit(text, &self.limits, &mut show);
        } else if text.len() <= MAX_ORDERED {
            visit_orders(text, &self.limits, &mut show);
        }
    }
}
