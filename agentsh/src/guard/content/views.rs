//! What decodes from a text, for the search of [`crate::guard::taint`].

use crate::guard::taint::judge::{Decoder, View};
use crate::guard::text::{Limits, Step, visit};

/// Every text that [`visit`] finds, without the text itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Views {
    pub limits: Limits,
}

impl Decoder for Views {
    fn decode(&self, text: &str, sink: &mut dyn FnMut(View<'_>)) {
        // What a bound left out is not seen here; the search of the text as it stands has no bound.
        let _ = visit(text, &self.limits, &mut |view| {
            let Some(last) = view.how.last() else { return };
            let how = || view.how.iter().map(|step| Step::as_str(*step)).collect();
            sink(View { text: view.text, how: &how, is_rearranged: last.is_permutation() });
        });
    }
}
