//! Three-way merge of a text: changes inside and outside that do not touch.

use similar::{DiffOp, TextDiff};

/// The replacement of some lines of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk {
    /// Lines of the original.
    from: usize,
    to: usize,
    text: String,
}

/// None if both changed the same lines, or adjacent lines, in different ways.
#[must_use]
pub fn merge(original: &str, inside: &str, outside: &str) -> Option<String> {
    let lines = lines_of(original);
    let (mut merged, mut at) = (String::new(), 0);
    for hunk in &merge_hunks(hunks(&lines, inside)?, hunks(&lines, outside)?)? {
        merged.extend(lines.get(at..hunk.from)?.iter().copied());
        merged.push_str(&hunk.text);
        at = hunk.to;
    }
    merged.extend(lines.get(at..)?.iter().copied());
    Some(merged)
}

/// A carriage return alone ends no line: hunks count lines, so there must be one notion of them.
fn lines_of(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The hunks of both sides, in order. Those of one side are in order and never adjacent.
fn merge_hunks(ours: Vec<Hunk>, theirs: Vec<Hunk>) -> Option<Vec<Hunk>> {
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let next = match (ours.peek(), theirs.peek()) {
            (Some(one), Some(other)) if one == other => {
                // The same change on both sides counts once.
                theirs.next();
                ours.next()
            }
            (Some(one), Some(other)) if one.from <= other.to && other.from <= one.to => return None,
            (Some(one), Some(other)) if other.from < one.from => theirs.next(),
            (None, _) => theirs.next(),
            (Some(_), _) => ours.next(),
        };
        match next {
            Some(hunk) => all.push(hunk),
            None => return Some(all),
        }
    }
}

fn hunks(lines: &[&str], changed: &str) -> Option<Vec<Hunk>> {
    let new = lines_of(changed);
    let diff = TextDiff::configure().timeout(std::time::Duration::from_secs(2)).diff_slices(lines, &new);
    let mut hunks: Vec<Hunk> = Vec::new();
    for op in diff.ops().iter().filter(|op| !matches!(op, DiffOp::Equal { .. })) {
        let (from, to) = (op.old_range().start, op.old_range().end);
        let text: String = new.get(op.new_range())?.iter().copied().collect();
        match hunks.last_mut() {
            Some(last) if last.to == from => {
                last.to = to;
                last.text.push_str(&text);
            }
            _ => hunks.push(Hunk { from, to, text }),
        }
    }
    Some(hunks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::merge;

    #[test]
    fn changes_that_do_not_touch_are_merged() {
        let original = "a\nb\nc\nd\ne\n";
        let both = |inside, outside| merge(original, inside, outside);
        assert_eq!(both("A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n").as_deref(), Some("A\nb\nc\nd\nE\n"));
        assert_eq!(
            both("a\nb\nc\nd\ne\nf\n", "0\na\nb\nc\nd\ne\n").as_deref(),
            Some("0\na\nb\nc\nd\ne\nf\n")
        );
        // The same line, and one next to it.
        assert_eq!(both("a\nB\nc\nd\ne\n", "a\nX\nc\nd\ne\n"), None);
        assert_eq!(both("a\nB\nc\nd\ne\n", "a\nb\nC\nd\ne\n"), None);
        assert_eq!(both("a\nd\ne\n", "a\nb\nX\nd\ne\n"), None);
        // Both at the end.
        assert_eq!(both("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\ng\n"), None);
        // Both the same.
        assert_eq!(both("a\nB\nc\nd\ne\n", "a\nB\nc\nd\ne\n").as_deref(), Some("a\nB\nc\nd\ne\n"));
        assert_eq!(merge("a", "a\nb", "a").as_deref(), Some("a\nb"));
    }

    #[test]
    fn merge_does_not_end_a_line_at_a_lone_carriage_return() {
        let text = |two: &str, five: &str| format!("x\ry\n1\n{two}\n3\n4\n{five}\n6\n7\n");
        let merged = merge(&text("2", "5"), &text("two", "5"), &text("2", "five"));
        assert_eq!(merged, Some(text("two", "five")));
    }

    /// Many changes on both sides, each next to one of the other.
    #[test]
    fn many_changes_are_merged() {
        let text = |ours: &str, theirs: &str| {
            (0..2_000).map(|at| format!("{at}{ours}\n-\n{at}{theirs}\n=\n")).collect::<String>()
        };
        assert_eq!(merge(&text("a", "b"), &text("A", "b"), &text("a", "B")), Some(text("A", "B")));
    }

    proptest! {
        /// The result has both the changes above an unchanged line and those below it.
        #[test]
        fn merge_keeps_changes_of_both_sides(
            above in "([abc\r]{0,2}\n){0,6}", ours in "([abc\r]{0,2}\n){0,6}",
            below in "([abc\r]{0,2}\n){0,6}", theirs in "([abc\r]{0,2}\n){0,6}",
        ) {
            let text = |above: &str, below: &str| format!("{above}stays\n{below}");
            let merged = merge(&text(&above, &below), &text(&ours, &below), &text(&above, &theirs));
            prop_assert_eq!(merged, Some(text(&ours, &theirs)));
        }

        /// If one side changed nothing, the result is the other side; exchanging the sides changes nothing.
        #[test]
        fn merge_is_symmetric_and_keeps_a_one_sided_change(
            original in "([abc\r]{1,2}\n){0,8}", inside in "([abc\r]{1,2}\n){0,8}",
            outside in "([abc\r]{1,2}\n){0,8}",
        ) {
            prop_assert_eq!(merge(&original, &inside, &original), Some(inside.clone()));
            prop_assert_eq!(merge(&original, &original, &outside), Some(outside.clone()));
            prop_assert_eq!(merge(&original, &inside, &inside), Some(inside.clone()));
            prop_assert_eq!(merge(&original, &inside, &outside), merge(&original, &outside, &inside));
        }
    }
}
