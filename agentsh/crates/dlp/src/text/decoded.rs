//! All decoded texts of one text, cached.

use std::ops::Range;

use super::limits::Limits;
use super::step::Step;
use super::views::visit;
use super::walk::View;

/// All views of one text but the text itself. They take as many bytes as [`Limits`] lets them have.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    views: Vec<DecodedText>,
    is_opaque: bool,
    is_packed: bool,
}

#[derive(Clone, Debug)]
struct DecodedText {
    text: Box<str>,
    how: Box<[Step]>,
    at: Range<usize>,
}

impl Decoded {
    #[must_use]
    pub fn of(text: &str, limits: &Limits) -> Self {
        let mut views = Vec::new();
        // Parts beyond a limit are not decoded here; the text itself is searched without a limit.
        let outcome = visit(text, limits, &mut |view| {
            if !view.how.is_empty() {
                let View { text, how, at } = view;
                views.push(DecodedText { text: text.into(), how: how.into(), at });
            }
        });
        Self { views, is_opaque: outcome.opaque || outcome.too_deep, is_packed: outcome.packed }
    }

    /// Whether it has encoded bytes that cannot be read: encrypted, or encoded too often.
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    /// Whether a compressed file or stream is encoded in it.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// In the order in which they were found.
    pub fn views(&self) -> impl Iterator<Item = View<'_>> {
        self.views.iter().map(|kept| View { text: &kept.text, how: &kept.how, at: kept.at.clone() })
    }
}
