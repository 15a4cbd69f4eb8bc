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
        let mut left = (end - from).saturating_mul(GROWTH).max(LEAST);
        walk(&text[from..end], from, None, (0, false), &mut left, look);
        start = end;
    }
}

/// The views of a text, which is `parent`, or begins at byte `from` of the original. `depth`: views around it, and whether
/// one of them is disguised.
fn walk(
    text: &str,
    from: usize,
    parent: Option<&View>,
    (depth, inside): (usize, bool),
    left: &mut usize,
    look: &mut dyn FnMut(&View, bool),
) {
    let survey = Prescan::of(text);
    let mut views = Vec::new();
    let near = |view: View, disguised, again| {
        view.near_changes(CONTEXT_BYTES).into_iter().map(move |view| (view, disguised, again))
    };
    if survey.needs_folding() {
        views.extend(near(fold::view(text), false, false));
    }
    if survey.invisible {
        views.extend(invisible::smuggled_texts(text).into_iter().map(|view| (view, true, true)));
    }
    if survey.escapes {
        views.extend(decode::escapes(text).into_iter().flat_map(|view| near(view, false, true)));
    }
    if survey.runs {
        views.extend(decode::runs(text).into_iter().map(|view| (view, true, true)));
    }
    if survey.lists {
        views.extend(decode::lists(text).into_iter().map(|view| (view, true, true)));
    }
    views.extend(obfuscation::views(text, &survey).into_iter().map(|view| (view, true, false)));
    for (mut view, disguised, again) in views {
        match parent {
            Some(parent) => view.rebase(parent),
            None => view.shift(from),
        }
        // A character reference of a quotation mark is no disguise, nor is the mark; an escape within an escape is.
        let is_disguised = disguised || inside || again && depth > 0;
        if again && depth + 1 < DEPTH && *left > 0 {
            *left = left.saturating_sub(view.text.len());
            walk(&view.text, 0, Some(&view), (depth + 1, is_disguised), left, look);
        }
        look(&view, is_disguised);
    }
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
