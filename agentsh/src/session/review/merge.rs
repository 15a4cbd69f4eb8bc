//! Three versions of a text become one: what was changed inside and what was changed outside, where they do not touch.

use similar::{DiffOp, TextDiff};

/// What stands in place of some lines of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk {
    /// Lines of the original.
    from: usize,
    to: usize,
    text: String,
}

/// None where both changed the same lines, or lines beside each other, in different ways.
#[must_use]
pub fn merge(original: &str, inside: &str, outside: &str) -> Option<String> {
    let lines: Vec<&str> = original.split_inclusive('\n').collect();
    let (mut ours, mut theirs) = (hunks(original, inside)?, hunks(original, outside)?);
    // The same change on both sides is one.
    theirs.retain(|hunk| !ours.contains(hunk));
    let touch = |one: &Hunk, other: &Hunk| one.from <= other.to && other.from <= one.to;
    if ours.iter().any(|one| theirs.iter().any(|other| touch(one, other))) {
        return None;
    }
    ours.append(&mut theirs);
    ours.sort_by_key(|hunk| hunk.from);
    let (mut merged, mut at) = (String::new(), 0);
    for hunk in &ours {
        merged.extend(lines.get(at..hunk.from)?.iter().copied());
        merged.push_str(&hunk.text);
        at = hunk.to;
    }
    merged.extend(lines.get(at..)?.iter().copied());
    Some(merged)
}

fn hunks(original: &str, changed: &str) -> Option<Vec<Hunk>> {
    let diff = TextDiff::configure().timeout(std::time::Duration::from_secs(2)).diff_lines(original, changed);
    let new: Vec<&str> = changed.split_inclusive('\n').collect();
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
    fn what_does_not_touch_is_merged() {
        let original = "a\nb\nc\nd\ne\n";
        let both = |inside, outside| merge(original, inside, outside);
        assert_eq!(both("A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n").as_deref(), Some("A\nb\nc\nd\nE\n"));
        assert_eq!(
            both("a\nb\nc\nd\ne\nf\n", "0\na\nb\nc\nd\ne\n").as_deref(),
            Some("0\na\nb\nc\nd\ne\nf\n")
        );
        // The same line, and one beside it.
        assert_eq!(both("a\nB\nc\nd\ne\n", "a\nX\nc\nd\ne\n"), None);
        assert_eq!(both("a\nB\nc\nd\ne\n", "a\nb\nC\nd\ne\n"), None);
        assert_eq!(both("a\nd\ne\n", "a\nb\nX\nd\ne\n"), None);
        // Both at the end.
        assert_eq!(both("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\ng\n"), None);
        // Both the same.
        assert_eq!(both("a\nB\nc\nd\ne\n", "a\nB\nc\nd\ne\n").as_deref(), Some("a\nB\nc\nd\ne\n"));
        assert_eq!(merge("a", "a\nb", "a").as_deref(), Some("a\nb"));
    }

    proptest! {
        /// One side alone is what comes out, and the sides can change places.
        #[test]
        fn laws(original in "([abc]\n){0,8}", inside in "([abc]\n){0,8}", outside in "([abc]\n){0,8}") {
            prop_assert_eq!(merge(&original, &inside, &original), Some(inside.clone()));
            prop_assert_eq!(merge(&original, &original, &outside), Some(outside.clone()));
            prop_assert_eq!(merge(&original, &inside, &inside), Some(inside.clone()));
            prop_assert_eq!(merge(&original, &inside, &outside), merge(&original, &outside, &inside));
        }
    }
}
