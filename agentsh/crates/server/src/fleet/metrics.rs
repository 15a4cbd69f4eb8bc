//! Prometheus metrics: counts since this server started, and values from the database.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::fleet::arrival::StoredBatch;

/// Different words of one label, at most: hosts choose the types of their events. Further ones count as `other`.
const MAX_WORDS: usize = 200;
/// Upper bounds in seconds.
const BOUNDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0];

#[derive(Default)]
pub(crate) struct Metrics {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    batches: u64,
    bytes: u64,
    events: BTreeMap<String, u64>,
    refused: BTreeMap<&'static str, u64>,
    arrivals: [u64; BOUNDS.len() + 1],
    seconds: f64,
    /// Periodic tasks, and whether the last attempt failed.
    failing: BTreeMap<&'static str, bool>,
}

impl Metrics {
    /// Counts a stored batch: its size as sent, and the time until it was on disk.
    pub fn count_batch(&self, taken: &StoredBatch, bytes: usize, time: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.batches += 1;
        counts.bytes += bytes as u64;
        for (kind, number) in &taken.kinds {
            let is_full = counts.events.len() >= MAX_WORDS && !counts.events.contains_key(kind);
            let word = if is_full { "other" } else { kind.as_str() };
            *counts.events.entry(word.to_owned()).or_default() += number;
        }
        let seconds = time.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = counts.arrivals.get_mut(bucket) {
            *count += 1;
        }
        counts.seconds += seconds;
    }

    pub fn count_refusal(&self, word: &'static str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).refused.entry(word).or_default() += 1;
    }

    /// Notes the outcome of a periodic task. True: it differs from the one before.
    pub fn note_task(&self, what: &'static str, is_failing: bool) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.failing.insert(what, is_failing).unwrap_or(false) != is_failing
    }

    /// In Prometheus' own words. `busy`: batches that are worked on; `hosts`: by state.
    pub fn prometheus_text(&self, busy: usize, hosts: &[(String, i64)]) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, about: &str, lines: Vec<(String, String)>| {
            let _infallible = writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}");
            for (labels, value) in lines {
                let _infallible = writeln!(out, "{name}{labels} {value}");
            }
        };
        let one = |value: u64| vec![(String::new(), value.to_string())];
        family("agentsh_fleet_batches_total", "counter", "Stored batches", one(counts.batches));
        family("agentsh_fleet_bytes_total", "counter", "Bytes of stored batches, as sent", one(counts.bytes));
        let events = counts.events.iter();
        let events = events.map(|(kind, number)| (label("type", kind), number.to_string())).collect();
        family("agentsh_fleet_events_total", "counter", "Stored events by type", events);
        let refused = counts.refused.iter();
        let refused = refused.map(|(word, number)| (label("reason", word), number.to_string())).collect();
        family("agentsh_fleet_refused_total", "counter", "Refused requests by reason", refused);
        family("agentsh_fleet_batches_waiting", "gauge", "Batches in progress or waiting", one(busy as u64));
        let hosts = hosts.iter().map(|(state, number)| (label("state", state), number.to_string())).collect();
        family("agentsh_fleet_hosts", "gauge", "Hosts, by state", hosts);
        let failing = counts.failing.iter();
        let failing = failing.map(|(what, is)| (label("what", what), u8::from(*is).to_string())).collect();
        family(
            "agentsh_fleet_keeping_failed",
            "gauge",
            "1 if creating tables of coming days (days), deleting old events (forgetting) or building indexes (indexes) failed",
            failing,
        );
        let name = "agentsh_fleet_arrival_seconds";
        let _infallible = writeln!(
            out,
            "# HELP {name} Time from the arrival of a batch to its commit\n# TYPE {name} histogram"
        );
        let mut sum = 0;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts.arrivals) {
            sum += count;
            let _infallible = writeln!(out, "{name}_bucket{} {sum}", label("le", &bound));
        }
        let _infallible = writeln!(out, "{name}_sum {}\n{name}_count {sum}", counts.seconds);
        out
    }
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{{name}=\"{value}\"}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentsh_fleet::wire::Position;

    #[test]
    fn metrics_labels_from_hosts_are_bounded_and_escaped() {
        let metrics = Metrics::default();
        let kinds = (0..500).map(|number| (format!("a\"\n{number}"), 1)).collect();
        let position = Position { id: 1, hash: String::new() };
        metrics.count_batch(&StoredBatch { position, kinds }, 7, Duration::from_millis(30));
        metrics.count_refusal("busy");
        let changes =
            [true, true, false, false, true].map(|is_failing| metrics.note_task("days", is_failing));
        assert_eq!(changes, [true, false, true, false, true]);
        assert!(!metrics.note_task("indexes", false));
        let text = metrics.prometheus_text(3, &[("active".to_owned(), 2)]);
        assert!(text.contains("agentsh_fleet_events_total{type=\"other\"} 300"), "{text}");
        assert!(text.contains("{type=\"a\\\"\\n0\"} 1"), "{text}");
        assert!(text.contains("agentsh_fleet_arrival_seconds_bucket{le=\"0.05\"} 1"), "{text}");
        assert!(text.contains("agentsh_fleet_keeping_failed{what=\"days\"} 1"), "{text}");
        assert!(text.contains("agentsh_fleet_keeping_failed{what=\"indexes\"} 0"), "{text}");
        assert!(
            text.lines().all(|line| line.starts_with('#') || line.starts_with("agentsh_fleet_")),
            "{text}"
        );
    }
}
