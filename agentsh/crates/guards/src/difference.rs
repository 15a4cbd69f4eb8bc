//! Readable differences between two versions of a text.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use agentsh_store::escape;

/// For texts without common parts.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Added and removed lines, cut and escaped.
#[must_use]
pub fn lines(before: &str, now: &str, max_columns: usize) -> Vec<String> {
    let diff = TextDiff::configure().timeout(TIMEOUT).diff_lines(before, now);
    let changes = diff.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    let line = |change: similar::Change<&str>| {
        let text: String = change.value().trim_end().chars().take(max_columns).collect();
        let sign = if change.tag() == ChangeTag::Insert { '+' } else { '-' };
        format!("{sign} {}", escape::line(&text))
    };
    changes.map(line).collect()
}

/// Like [`lines`], with context and line numbers.
#[must_use]
pub fn lines_with_context(before: &str, now: &str) -> String {
    let diff = TextDiff::configure().timeout(TIMEOUT).diff_lines(before, now);
    let text = diff.unified_diff().context_radius(2).to_string();
    text.split_inclusive('\n')
        .map(|line| format!("{}\n", escape::line(line.trim_end_matches('\n'))))
        .collect()
}
