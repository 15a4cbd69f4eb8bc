//! Decoded texts of calls and results.

use super::leaves::Leaf;
use crate::text::{Limits, Step, View, looks_encoded, visit, visit_orders, visit_plainly};

/// Every text that [`visit`] finds, without the text itself. Texts beyond the limits are not decoded; the search of the text
/// itself has no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Views {
    pub limits: Limits,
}

impl Views {
    /// Decodes nothing.
    pub const NONE: Self = Self { limits: Limits { depth: 1, output_per_byte: 0, output_floor: 0 } };

    pub(super) fn decode(&self, text: &str, sink: &mut dyn FnMut(View<'_>)) {
        if looks_encoded(text) {
            let _ = visit(text, &self.limits, &mut |view| {
                if !view.how.is_empty() {
                    sink(view);
                }
            });
        } else {
            visit_orders(text, &self.limits, sink);
        }
    }

    /// Decodes a result as a program that reads it would. Disguises are searched only in what is sent.
    pub(super) fn decode_result(&self, leaf: &Leaf<'_>, sink: &mut dyn FnMut(View<'_>)) {
        if leaf.looks_encoded() {
            visit_plainly(&leaf.text, &self.limits, sink);
        }
    }

    /// Like [`Views::decode`], for a text that others decode as well: the first result serves all.
    pub(super) fn decode_leaf(&self, leaf: &Leaf<'_>, sink: &mut dyn FnMut(View<'_>)) {
        if leaf.looks_encoded() {
            leaf.decoded_texts(&self.limits).views().for_each(sink);
        } else {
            visit_orders(&leaf.text, &self.limits, sink);
        }
    }
}

/// The steps that led to a view, outermost first.
pub(super) fn steps(view: &View<'_>) -> Vec<&'static str> {
    view.how.iter().map(|step| Step::as_str(*step)).collect()
}
