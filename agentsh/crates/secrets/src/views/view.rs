//! A derived text with its map to the original.

use std::ops::Range;

/// A text and the origin of its pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub text: String,
    /// In order: from byte `.0` of the view it continues at byte `.1` of the original.
    marks: Vec<(usize, usize)>,
    /// End of the original.
    end: usize,
}

/// Builds a view from front to back.
#[derive(Debug, Default)]
pub struct Builder {
    view: View,
    /// The offset at which the original continues if nothing changes.
    next: Option<usize>,
}

impl View {
    /// The text itself.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self::standing_for(text.to_owned(), 0..text.len())
    }

    /// The whole text represents `place` of the original.
    #[must_use]
    pub fn standing_for(text: String, place: Range<usize>) -> Self {
        Self { text, marks: vec![(0, place.start)], end: place.end }
    }

    /// The original bytes of a view's `range`, with omissions in between.
    #[must_use]
    pub fn original_range(&self, range: Range<usize>) -> Range<usize> {
        let start = self.original_position(range.start);
        let end = match self.marks.binary_search_by_key(&range.end, |mark| mark.0) {
            Ok(at) => self.marks[at].1,
            Err(at) => {
                let limit = self.marks.get(at).map_or(self.end, |mark| mark.1);
                let inside =
                    at.checked_sub(1).map_or(0, |at| self.marks[at].1 + range.end - self.marks[at].0);
                // A replacement ends where the replaced text does.
                if range.end >= self.text.len() { self.end } else { inside.min(limit) }
            }
        };
        start..end.max(start)
    }

    fn original_position(&self, at: usize) -> usize {
        let after = self.marks.partition_point(|mark| mark.0 <= at);
        let limit = self.marks.get(after).map_or(self.end, |mark| mark.1);
        after.checked_sub(1).map_or(0, |last| (self.marks[last].1 + at - self.marks[last].0).min(limit))
    }

    /// Where the view has what stands at byte `at` of the original, or what follows if that was left out.
    #[must_use]
    pub fn position_of(&self, at: usize) -> usize {
        let after = self.marks.partition_point(|mark| mark.1 <= at);
        let limit = self.marks.get(after).map_or(self.text.len(), |mark| mark.0);
        after.checked_sub(1).map_or(0, |last| (self.marks[last].0 + at - self.marks[last].1).min(limit))
    }

    /// Where the view changes, and what it leaves out of the original there.
    pub fn gaps(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let mut before = (0, 0);
        self.marks.iter().copied().chain([(self.text.len(), self.end)]).map(move |mark| {
            let end = before.1 + mark.0 - before.0;
            before = mark;
            (mark.0, end.min(mark.1)..mark.1)
        })
    }

    /// The original begins at byte `offset` of a longer one.
    pub(super) fn shift(&mut self, offset: usize) {
        self.marks.iter_mut().for_each(|mark| mark.1 += offset);
        self.end += offset;
    }

    /// A view of the same length as its original, changed at these places.
    #[must_use]
    pub fn changed_at(self, places: &[usize]) -> Self {
        let marks = std::iter::once(0).chain(places.iter().copied()).map(|at| (at, at)).collect();
        Self { marks, ..self }
    }

    /// The parts near changes, as whole words with `reach` bytes around them; the rest equals the original, which is
    /// scanned itself.
    #[must_use]
    pub fn near_changes(self, reach: usize) -> Vec<Self> {
        let (bytes, is_white) = (self.text.as_bytes(), u8::is_ascii_whitespace);
        let changes = self.marks.strip_prefix(&[(0, 0)]).unwrap_or(&self.marks);
        let is_cut = self.original_position(self.text.len()) < self.end;
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut next = 0;
        while next < changes.len() + usize::from(is_cut) {
            // Of the changes near the last part, the last one reaches the furthest.
            let limit = parts.last().map_or(0, |last| last.end + reach);
            let near = changes[next.min(changes.len())..].partition_point(|mark| mark.0 <= limit);
            next += near.saturating_sub(1);
            let at = changes.get(next).map_or(bytes.len(), |mark| mark.0);
            next += 1;
            let (start, end) = (at.saturating_sub(reach), (at + reach).min(bytes.len()));
            let last = parts.last_mut().filter(|last| start <= last.end);
            if last.as_ref().is_some_and(|last| end <= last.end) {
                continue;
            }
            let end = bytes[end..].iter().position(is_white).map_or(bytes.len(), |length| end + length);
            match last {
                Some(last) => last.end = end,
                None => {
                    let start = bytes[..start].iter().rposition(is_white).map_or(0, |space| space + 1);
                    parts.push(start..end);
                }
            }
        }
        if parts.iter().map(ExactSizeIterator::len).sum::<usize>() * 4 > bytes.len() * 3 {
            return vec![self];
        }
        parts.into_iter().map(|part| self.part(part)).collect()
    }

    fn part(&self, part: Range<usize>) -> Self {
        let [first, last] =
            [part.start + 1, part.end].map(|at| self.marks.partition_point(|mark| mark.0 < at));
        let marks = self.marks.get(first..last).into_iter().flatten();
        let marks = marks.map(|mark| (mark.0 - part.start, mark.1));
        let marks = std::iter::once((0, self.original_position(part.start))).chain(marks).collect();
        let end = self.original_range(part.clone()).end;
        Self { text: self.text.get(part).unwrap_or_default().to_owned(), marks, end }
    }

    /// As if made from `parent`'s original.
    pub fn rebase(&mut self, parent: &View) {
        let mut marks = Vec::with_capacity(self.marks.len());
        for (at, (start, inner)) in self.marks.iter().copied().enumerate() {
            marks.push((start, parent.original_position(inner)));
            // Where the parent's original is not continuous within this piece.
            let end = self.marks.get(at + 1).map_or(self.text.len(), |next| next.0);
            let limit = self.marks.get(at + 1).map_or(self.end, |next| next.1);
            let first = parent.marks.partition_point(|mark| mark.0 <= inner);
            let within = parent.marks[first..].iter().map(|mark| (start + mark.0 - inner, mark.0, mark.1));
            let within = within.take_while(|(place, inner, _)| *place < end && *inner < limit);
            marks.extend(within.map(|(place, _, outer)| (place, outer)));
        }
        self.marks = marks;
        self.end = parent.original_range(self.end..self.end).end.max(parent.original_position(self.end));
    }

    /// The part of the original that it is made from.
    #[must_use]
    pub fn whole(&self) -> Range<usize> {
        self.marks.first().map_or(0, |mark| mark.1)..self.end
    }

    /// Whether a place of it, or its edge, is not as in the original.
    pub(super) fn is_changed(&self, place: Range<usize>) -> bool {
        let first = self.marks.partition_point(|mark| mark.0 < place.start);
        self.marks.get(first).is_some_and(|mark| mark.0 <= place.end)
    }
}

impl Builder {
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        let view = View { text: String::with_capacity(bytes), ..View::default() };
        Self { view, next: None }
    }

    /// Copies a piece of the original at byte `at`.
    pub fn copy(&mut self, piece: &str, at: usize) {
        if piece.is_empty() {
            return;
        }
        if self.next != Some(at) {
            self.view.marks.push((self.view.text.len(), at));
        }
        self.view.text.push_str(piece);
        self.next = Some(at + piece.len());
    }

    /// Puts a piece in place of the original at byte `at`.
    pub fn put(&mut self, piece: &str, at: usize) {
        if piece.is_empty() {
            return;
        }
        self.view.marks.push((self.view.text.len(), at));
        self.view.text.push_str(piece);
        self.next = None;
    }

    /// Like [`Self::put`], for one character.
    pub fn put_one(&mut self, character: char, at: usize) {
        self.view.marks.push((self.view.text.len(), at));
        self.view.text.push(character);
        self.next = None;
    }

    /// Puts a piece in place of the last `bytes` of the view.
    pub fn replace_tail(&mut self, bytes: usize, piece: &str) {
        let start = self.view.text.len() - bytes;
        let marks = &mut self.view.marks;
        let last = marks.partition_point(|mark| mark.0 <= start).checked_sub(1);
        let at = last.map_or(start, |last| marks[last].1 + start - marks[last].0);
        marks.truncate(marks.partition_point(|mark| mark.0 < start));
        self.view.text.truncate(start);
        self.put(piece, at);
    }

    /// What it has so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.view.text
    }

    /// `end`: end of the original, or of its read part.
    #[must_use]
    pub fn finish(mut self, end: usize) -> View {
        self.view.end = end;
        self.view
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn positions_in_a_view_map_to_the_original() {
        let original = "a\u{200b}b &amp; c";
        let mut builder = Builder::default();
        builder.copy("a", 0);
        builder.copy("b ", 4);
        builder.put("&", 6);
        builder.copy(" c", 11);
        let view = builder.finish(original.len());
        assert_eq!(view.text, "ab & c");
        assert_eq!(&original[view.original_range(0..2)], "a\u{200b}b");
        assert_eq!(&original[view.original_range(3..4)], "&amp;");
        assert_eq!(&original[view.original_range(0..6)], original);
        assert_eq!(&original[view.original_range(5..6)], "c");
    }

    #[test]
    fn positions_near_changes_map_to_the_original() {
        let (before, after) = ("word ".repeat(600), " other".repeat(600));
        let original = format!("{before}&amp;{after}");
        let view = |change: &str| {
            let mut builder = Builder::default();
            builder.copy(&before, 0);
            builder.put(change, before.len());
            builder.copy(&after, before.len() + 5);
            builder.finish(original.len())
        };
        let parts = view("&").near_changes(100);
        let [part] = parts.as_slice() else { panic!("{parts:?}") };
        assert!((200..250).contains(&part.text.len()), "{part:?}");
        let at = part.text.find('&').unwrap();
        assert_eq!(&original[part.original_range(at..at + 1)], "&amp;");
        let whole = part.original_range(0..part.text.len());
        assert_eq!(original[whole].replace("&amp;", "&"), part.text);
        // Text cut at the end, or left out at the beginning, is a change too.
        let mut builder = Builder::default();
        builder.copy(&before, 3);
        assert_eq!(builder.finish(before.len() + 9).near_changes(50).len(), 2);
        let mut builder = Builder::default();
        builder.copy(&before, 0);
        assert!(builder.finish(before.len()).near_changes(50).is_empty());
        assert_eq!(view("&").near_changes(3000), [view("&")]);
    }

    #[test]
    fn positions_in_nested_views_map_to_the_original() {
        let outer = View::standing_for("a&#98;c".to_owned(), 10..30);
        let mut builder = Builder::default();
        builder.copy("a", 0);
        builder.put("b", 1);
        builder.copy("c", 6);
        let mut inner = builder.finish(7);
        inner.rebase(&outer);
        assert_eq!(inner.original_range(0..3), 10..30);
    }
}
