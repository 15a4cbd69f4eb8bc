//! Views of a text as a model reads it: without invisible characters, folded, decoded. Every view maps back to places
//! of the original. Made only if needed, in linear time.

pub mod ansi;
mod characters;
mod decode;
mod fold;
pub mod invisible;
mod obfuscation;
mod prescan;
mod view;

pub use characters::{Folding, HANGUL_SYLLABLES, folding};
pub use decode::escapes;
pub use invisible::readable_text;
use prescan::Prescan;
pub use view::{Builder, View};

/// Nesting of views: double encoding is read, quadruple is not.
const DEPTH: usize = 3;
/// Limit of nested views' bytes, as a multiple of the text, and its minimum. Direct views are always made, so that
/// padding cannot crowd out a payload.
const GROWTH: usize = 8;
const LEAST: usize = 4096;
/// Piece size, and overlap with the next piece.
const PIECE: usize = 8192;
const OVERLAP: usize = 1024;
/// Bytes around a change that are read with it: no rule spans more.
pub const CONTEXT_BYTES: usize = 512;

/// See [`fold`].
#[must_use]
pub fn folded_view(text: &str) -> View {
    fold::view(text)
}

/// Calls `look` with every view, and whether it was disguised. Long texts are processed in overlapping pieces, so that
/// one odd character does not affect everything.
pub fn visit(text: &str, look: &mut dyn FnMut(&View, bool)) {
    let mut start = 0;
    while start < text.len() {
        let end = text.floor_char_boundary((start + PIECE).min(text.len()));
        let from = text.ceil_char_boundary(start.saturating_sub(OVERLAP));
        let left = (end - from).saturating_mul(GROWTH).max(LEAST);
        Visit { left, look }.walk(&text[from..end], Reading { from, ..Reading::default() });
        start = end;
    }
}

/// What a text is read for: it begins at byte `from` of the original, or is the view `parent`.
#[derive(Clone, Copy, Default)]
struct Reading<'v> {
    from: usize,
    parent: Option<&'v View>,
    /// Views around it, and whether one of them is disguised.
    depth: usize,
    is_disguised: bool,
    /// Whether its characters are folded in a view already.
    is_folded: bool,
}

impl Reading<'_> {
    /// As a view of the original.
    fn rebased(&self, mut view: View) -> View {
        match self.parent {
            Some(parent) => view.rebase(parent),
            None => view.shift(self.from),
        }
        view
    }

    /// Whether a view differs from those of the original: its parent changed what it is made from.
    fn is_new(&self, view: &View) -> bool {
        self.parent.is_none_or(|parent| !self.is_folded || parent.is_changed(view.whole()))
    }
}

struct Visit<'l> {
    /// Bytes of nested views that may still be made.
    left: usize,
    look: &'l mut dyn FnMut(&View, bool),
}

impl Visit<'_> {
    /// The views of a text. What shows nothing is left out first, then escapes are resolved, then look-alikes folded: a model
    /// reads all of it at once.
    fn walk(&mut self, text: &str, reading: Reading<'_>) {
        let survey = Prescan::of(text);
        if !survey.control && !survey.invisible {
            return self.walk_visible(text, None, &survey, &reading);
        }
        if survey.invisible {
            self.look_at_encoded(invisible::smuggled_texts(text), &reading);
        }
        let visible = fold::visible(text);
        self.walk_visible(&visible.text, Some(&visible), &Prescan::of(&visible.text), &reading);
    }

    /// The views of what is left of a text: of all of it, or of its view `visible`.
    fn walk_visible(&mut self, text: &str, visible: Option<&View>, survey: &Prescan, reading: &Reading<'_>) {
        let of_text = |mut view: View| {
            visible.iter().for_each(|visible| view.rebase(visible));
            view
        };
        let decoded = if survey.escapes { decode::escapes(text) } else { None };
        if let Some(decoded) = decoded {
            // A character reference of a quotation mark is no disguise, nor is the mark; an escape within an escape is.
            let is_disguised = reading.is_disguised || reading.depth > 0;
            let folded = needs_folding(&decoded.text).then(|| {
                let mut view = fold::view(&decoded.text);
                view.rebase(&decoded);
                of_text(view)
            });
            let parts = of_text(decoded).near_changes(CONTEXT_BYTES);
            let parts: Vec<View> = parts.into_iter().map(|part| reading.rebased(part)).collect();
            match folded {
                Some(view) => self.look_near_changes(view, reading, is_disguised),
                None => parts.iter().for_each(|part| (self.look)(part, is_disguised)),
            }
            parts.iter().for_each(|part| self.walk_view(part, is_disguised, true, reading.depth));
        } else if !reading.is_folded && (survey.non_ascii || visible.is_some()) {
            let view = if survey.non_ascii { of_text(fold::view(text)) } else { of_text(View::of(text)) };
            self.look_near_changes(view, reading, reading.is_disguised);
        }
        let mut encoded = Vec::new();
        if survey.runs {
            encoded.extend(decode::runs(text));
        }
        if survey.lists {
            encoded.extend(decode::lists(text));
        }
        self.look_at_encoded(encoded.into_iter().map(of_text), reading);
        let obfuscated = obfuscation::views(text, survey).into_iter().map(of_text);
        for view in obfuscated.filter(|view| reading.is_new(view)) {
            (self.look)(&reading.rebased(view), true);
        }
    }

    fn look_at_encoded(&mut self, views: impl IntoIterator<Item = View>, reading: &Reading<'_>) {
        for view in views.into_iter().filter(|view| reading.is_new(view)) {
            let view = reading.rebased(view);
            self.walk_view(&view, true, false, reading.depth);
            (self.look)(&view, true);
        }
    }

    fn look_near_changes(&mut self, view: View, reading: &Reading<'_>, is_disguised: bool) {
        for part in view.near_changes(CONTEXT_BYTES) {
            (self.look)(&reading.rebased(part), is_disguised);
        }
    }

    /// The views of a view at `depth`.
    fn walk_view(&mut self, view: &View, is_disguised: bool, is_folded: bool, depth: usize) {
        if depth + 1 < DEPTH && self.left > 0 {
            self.left = self.left.saturating_sub(view.text.len());
            let parent = Some(view);
            self.walk(&view.text, Reading { from: 0, parent, depth: depth + 1, is_disguised, is_folded });
        }
    }
}

fn needs_folding(text: &str) -> bool {
    !text.is_ascii() || ansi::has_control(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_escape_within_an_escape_is_a_disguise() {
        for (text, expected) in [
            ("you don&#8217;t need it", false),
            ("caf%C3%A9 au lait", false),
            ("%2549gnore it", true),
            ("SWdub3JlIGFsbCBwcmV2aW91cw==", true),
        ] {
            let (mut views, mut disguised) = (0, 0);
            visit(text, &mut |_, is_disguised| {
                views += 1;
                disguised += usize::from(is_disguised);
            });
            assert!(views > 0 && (disguised > 0) == expected, "{text}: {disguised} of {views}");
        }
    }

    /// For texts that are made to cause repeated work.
    #[test]
    fn four_times_the_text_has_four_times_the_views() {
        let bytes = |text: &str| {
            let mut bytes = 0;
            visit(text, &mut |view, _| bytes += view.text.len());
            bytes
        };
        for piece in [
            "a",
            "1 ",
            "a ",
            "&amp;lt;",
            "%2541",
            "\\u005c",
            "a\u{200b}",
            "\u{202e}ab",
            "\u{1b}[1m",
            "\u{430}\u{301}",
            "aWdub3JlIGFsbCBwcmV2aW91cw== ",
            "SWdu",
            "49676e6f",
            "49 ",
            "01001001 ",
            "h4ck3r l33t ",
            "vtaber cerivbhf\n",
        ] {
            let short = piece.repeat(64_000 / piece.len());
            let (once, four) = (bytes(&short), bytes(&short.repeat(4)));
            assert!(once <= short.len() * (GROWTH + 8), "{piece:?}: {once}");
            assert!(four <= once * 4 + once / 2, "{piece:?}: {once} and {four}");
        }
    }
}
