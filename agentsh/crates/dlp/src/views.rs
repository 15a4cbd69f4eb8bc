//! What decodes from a text, for the search of [`crate::taint`].

use crate::taint::judge::{Decoder, Unread, View};
use crate::taint::leaves::Leaf;
use crate::text::{self, Limits, Step, looks_encoded, visit, visit_orders, visit_plainly};

/// Every text that [`visit`] finds, without the text itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Views {
    pub limits: Limits,
}

/// Longer texts in which nothing is encoded are not read in another order as well.
const MAX_ORDERED: usize = 8 * 1024;

impl Views {
    fn in_order(&self, text: &str, sink: &mut dyn FnMut(View<'_>)) {
        if text.len() <= MAX_ORDERED {
            visit_orders(text, &self.limits, &mut |view| show(&view, sink));
        }
    }
}

// What a bound left out is not seen here; the search of the text as it stands has no bound.
impl Decoder for Views {
    fn decode(&self, text: &str, sink: &mut dyn FnMut(View<'_>)) {
        if looks_encoded(text) {
            let _ = visit(text, &self.limits, &mut |view| show(&view, sink));
        } else {
            self.in_order(text, sink);
        }
    }

    fn decode_result(&self, leaf: &Leaf<'_>, sink: &mut dyn FnMut(View<'_>)) {
        if leaf.looks_encoded() {
            visit_plainly(&leaf.text, &self.limits, &mut |view| show(&view, sink));
        }
    }

    fn prepare(&self, leaf: &Leaf<'_>) {
        if leaf.looks_encoded() {
            let _ = leaf.decoded(&self.limits);
        }
    }

    fn unread(&self, leaf: &Leaf<'_>) -> Option<Unread> {
        let decoded = leaf.looks_encoded().then(|| leaf.decoded(&self.limits))?;
        let is_drawn = decoded.is_opaque().then_some(Unread::Drawn);
        if decoded.is_packed() { Some(Unread::Packed) } else { is_drawn }
    }

    fn decode_leaf(&self, leaf: &Leaf<'_>, sink: &mut dyn FnMut(View<'_>)) {
        if leaf.looks_encoded() {
            leaf.decoded(&self.limits).views().for_each(|view| show(&view, sink));
        } else {
            self.in_order(&leaf.text, sink);
        }
    }
}

fn show(view: &text::View<'_>, sink: &mut dyn FnMut(View<'_>)) {
    if view.how.is_empty() {
        return;
    }
    let how = || view.how.iter().map(|step| Step::as_str(*step)).collect();
    sink(View { text: view.text, how: &how, is_clean: view.clean });
}
