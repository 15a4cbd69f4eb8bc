//! The order of tools: how surprising the next one is, in bits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::series::count;

/// Counted for a tool that never followed.
const UNSEEN_COUNT: f64 = 0.1;
/// Calls after a tool before the first finding.
const MIN_CALLS: u64 = 20;
/// Maximum number of tools with remembered successors, and of successors of one tool.
const MAX_ROWS: usize = 512;
const MAX_NEXT: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    rows: BTreeMap<String, Row>,
    /// Counts up with every call: the row that was used longest ago makes room.
    turn: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Row {
    all: u64,
    next: BTreeMap<String, u64>,
    used: u64,
}

impl Sequence {
    /// In bits; None while too little is known. `tools`: how many the server has. If few calls followed the previous
    /// tool, the overall frequency of this one counts more: its share of the server's calls.
    #[must_use]
    pub fn surprise_bits(
        &self,
        before: &str,
        tool: &str,
        tools: usize,
        (calls, of): (u64, u64),
    ) -> Option<f64> {
        let row = self.rows.get(before).filter(|row| row.all >= MIN_CALLS);
        let (seen, all) = match row {
            Some(row) => (row.next.get(tool).copied().unwrap_or_default(), row.all),
            None if of >= MIN_CALLS => (calls, of),
            None => return None,
        };
        let all = count(all) + UNSEEN_COUNT * count(tools.max(1) as u64);
        Some((all / (count(seen) + UNSEEN_COUNT)).log2().max(0.0))
    }

    pub fn take(&mut self, before: &str, tool: &str) {
        self.turn += 1;
        if !self.rows.contains_key(before) && self.rows.len() >= MAX_ROWS {
            let oldest = self.rows.iter().min_by_key(|(_, row)| row.used).map(|(name, _)| name.clone());
            oldest.and_then(|name| self.rows.remove(&name));
        }
        let row = self.rows.entry(before.to_owned()).or_default();
        row.all += 1;
        row.used = self.turn;
        if row.next.len() < MAX_NEXT || row.next.contains_key(tool) {
            *row.next.entry(tool.to_owned()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_that_never_followed_another_is_surprising() {
        let mut sequence = Sequence::default();
        for _ in 0..19 {
            sequence.take("read", "list");
        }
        assert_eq!(sequence.surprise_bits("read", "delete", 3, (0, 19)), None);
        for _ in 0..100 {
            sequence.take("read", "list");
        }
        assert!(sequence.surprise_bits("read", "delete", 3, (0, 0)).is_some_and(|bits| bits > 8.0));
        assert!(sequence.surprise_bits("read", "list", 3, (0, 0)).is_some_and(|bits| bits < 0.1));
        assert_eq!(sequence.surprise_bits("list", "delete", 3, (0, 0)), None);
        // Its successors are unknown, but it is hardly ever called.
        assert!(sequence.surprise_bits("delete", "delete", 3, (1, 400)).is_some_and(|bits| bits > 8.0));
    }

    #[test]
    fn sequence_memory_is_bounded_for_endless_names() {
        let mut sequence = Sequence::default();
        for number in 0..5_000 {
            sequence.take(&format!("tool{number}"), "x");
            sequence.take("x", &format!("tool{number}"));
        }
        assert!(sequence.rows.len() <= MAX_ROWS && sequence.rows["x"].next.len() <= MAX_NEXT);
    }
}
