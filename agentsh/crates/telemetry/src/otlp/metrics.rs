//! Metrics: sums since the session began.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::parts::{Attributes, nanoseconds};
use super::spans::provider;
use crate::entry::Entry;

/// Maximum number of points of one metric, because a program chooses some of the names. Further ones are counted
/// together.
const MAX_POINTS: usize = 500;
const CUMULATIVE: u32 = 2;
/// Calls that were not judged yet, at most.
const MAX_OPEN: usize = 1024;
/// Upper bounds of the durations of requests to a model, in seconds, as the semantic conventions have them.
const SECONDS: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Upper bounds of tokens, as the semantic conventions have them.
const NUMBERS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Upper bounds of what takes little time unless a person is asked, in seconds.
const DURATION_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0, 300.0];

/// Names of attributes and their values.
type Labels = Vec<(&'static str, String)>;

struct Sum {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    points: BTreeMap<Labels, u64>,
}

struct Histogram {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    bounds: &'static [f64],
    points: BTreeMap<Labels, Counts>,
}

struct Counts {
    /// One count per bucket: one more than there are bounds.
    counts: Vec<u64>,
    sum: f64,
}

const DURATION: usize = 0;
const USAGE: usize = 1;
const JUDGED: usize = 2;
const LAG: usize = 3;

const HISTOGRAMS: [(&str, &str, &str, &[f64]); 4] = [
    ("gen_ai.client.operation.duration", "s", "How long requests to the model took", SECONDS),
    ("gen_ai.client.token.usage", "{token}", "Tokens of single requests to the model", NUMBERS),
    (
        "agentsh.call.judged",
        "s",
        "Time from a tool call to its decision, including auditors and approvals",
        DURATION_BUCKETS,
    ),
    (
        "agentsh.telemetry.lag",
        "s",
        "Delay from an event to its delivery, for the oldest event of each request",
        DURATION_BUCKETS,
    ),
];

const CALLS: usize = 0;
const REFUSALS: usize = 1;
const CONNECTIONS: usize = 2;
const DETECTIONS: usize = 3;
const TOKENS: usize = 4;
const COST: usize = 5;
const EVENTS: usize = 6;
const DROPPED: usize = 7;

const NAMES: [(&str, &str, &str); 8] = [
    ("agentsh.calls", "{call}", "Tool calls by decision"),
    ("agentsh.refusals", "{refusal}", "Refusals by rule"),
    ("agentsh.connections", "{connection}", "Closed and refused connections"),
    ("agentsh.detections", "{detection}", "Findings in calls, results and definitions"),
    ("agentsh.model.tokens", "{token}", "Tokens of the model, as its provider counts them"),
    ("agentsh.model.cost", "u{USD}", "Cost of model tokens, in millionths of a dollar"),
    ("agentsh.events", "{event}", "Events of the journal"),
    ("agentsh.telemetry.dropped", "{item}", "Events that were not delivered to this receiver"),
];

pub struct Metrics {
    start: Timestamp,
    sums: [Sum; NAMES.len()],
    histograms: [Histogram; HISTOGRAMS.len()],
    /// When calls began, by server and id of the request.
    open: BTreeMap<(String, String), Timestamp>,
}

impl Metrics {
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        let sums = NAMES.map(|(name, unit, about)| Sum { name, unit, about, points: BTreeMap::new() });
        let histograms = HISTOGRAMS.map(|(name, unit, about, bounds)| Histogram {
            name,
            unit,
            about,
            bounds,
            points: BTreeMap::new(),
        });
        Self { start, sums, histograms, open: BTreeMap::new() }
    }

    pub fn count_entry(&mut self, entry: &Entry) {
        let word = |name: &str| entry.text_field(name).unwrap_or_default().to_owned();
        let action = || ("agentsh.action", word("action"));
        let server = || ("agentsh.server", word("server_id"));
        self.add(EVENTS, vec![("agentsh.event", entry.kind.clone())], 1);
        match entry.kind.as_str() {
            "mcp_tool_called" => {
                if self.open.len() >= MAX_OPEN {
                    self.open.pop_first();
                }
                self.open.insert(key(entry), entry.time);
            }
            "mcp_tool_call_intercepted" => {
                if let Some(begun) = self.open.remove(&key(entry)) {
                    let seconds = entry.time.duration_since(begun).as_secs_f64().max(0.0);
                    self.observe(JUDGED, vec![server(), action()], seconds);
                }
                self.add(CALLS, vec![server(), ("gen_ai.tool.name", word("tool_name")), action()], 1);
            }
            "mcp_network_connection" if entry.text_field("state") != Some("open") => {
                self.add(CONNECTIONS, vec![server(), action()], 1);
            }
            "net_connect_blocked" => self.add(CONNECTIONS, vec![server(), action()], count(entry)),
            "mcp_exfil_detected" | "mcp_content_detected" => {
                let detector = ("agentsh.detector", word("detector"));
                self.add(DETECTIONS, vec![detector, ("agentsh.severity", word("severity")), action()], 1);
            }
            "model_called" => self.model(entry),
            _ => {}
        }
        // A detection that refuses a call is followed by the call.
        let is_refusal = match entry.kind.as_str() {
            "mcp_exfil_detected" | "mcp_content_detected" => false,
            "mcp_message_rejected" | "mcp_server_refused" => true,
            _ => entry.text_field("action") == Some("block"),
        };
        if is_refusal {
            let rule = entry.rule().unwrap_or_default();
            let reason = ("agentsh.reason", word("reason"));
            self.add(REFUSALS, vec![("agentsh.rule", rule), reason], count(entry));
        }
    }

    /// Sets the total number of dropped items of this kind.
    pub fn set_dropped(&mut self, kind: &'static str, number: u64) {
        if number > 0
            && let Some(sum) = self.sums.get_mut(DROPPED)
        {
            sum.points.insert(vec![("agentsh.item", kind.to_owned())], number);
        }
    }

    /// All of them; None if there are none.
    #[must_use]
    pub fn metrics_json(&self, now: Timestamp) -> Option<Value> {
        let point = |labels: &Labels| {
            let attributes = labels.iter().fold(Attributes::default(), |attributes, (name, value)| {
                attributes.text(name, Some(value.as_str()).filter(|value| !value.is_empty()))
            });
            json!({
                "startTimeUnixNano": nanoseconds(self.start),
                "timeUnixNano": nanoseconds(now),
                "attributes": Value::from(attributes),
            })
        };
        let mut metrics = Vec::new();
        for sum in self.sums.iter().filter(|sum| !sum.points.is_empty()) {
            let points = sum.points.iter().map(|(labels, value)| {
                let mut point = point(labels);
                point["asInt"] = i64::try_from(*value).unwrap_or(i64::MAX).to_string().into();
                point
            });
            metrics.push(json!({
                "name": sum.name, "unit": sum.unit, "description": sum.about,
                "sum": {
                    "dataPoints": points.collect::<Vec<_>>(),
                    "aggregationTemporality": CUMULATIVE, "isMonotonic": true,
                },
            }));
        }
        for histogram in self.histograms.iter().filter(|histogram| !histogram.points.is_empty()) {
            let points = histogram.points.iter().map(|(labels, found)| {
                let mut point = point(labels);
                let counts: Vec<String> = found.counts.iter().map(u64::to_string).collect();
                point["count"] = found.counts.iter().sum::<u64>().to_string().into();
                point["sum"] = found.sum.into();
                point["bucketCounts"] = counts.into();
                point["explicitBounds"] = histogram.bounds.to_vec().into();
                point
            });
            metrics.push(json!({
                "name": histogram.name, "unit": histogram.unit, "description": histogram.about,
                "histogram": {
                    "dataPoints": points.collect::<Vec<_>>(), "aggregationTemporality": CUMULATIVE,
                },
            }));
        }
        (!metrics.is_empty()).then(|| Value::Array(metrics))
    }

    fn model(&mut self, entry: &Entry) {
        let word = |name: &str| entry.text_field(name).unwrap_or_default().to_owned();
        let of_model = || {
            vec![
                ("gen_ai.operation.name", "chat".to_owned()),
                ("gen_ai.provider.name", provider(entry).unwrap_or_default().to_owned()),
                ("gen_ai.request.model", word("model")),
            ]
        };
        for (kind, field) in [("input", "input_tokens"), ("output", "output_tokens")] {
            let mut labels = of_model();
            labels.push(("gen_ai.token.type", kind.to_owned()));
            let tokens = entry.number(field).unwrap_or(0);
            if tokens > 0 {
                let usage = u32::try_from(tokens).unwrap_or(u32::MAX);
                self.observe(USAGE, labels.clone(), f64::from(usage));
            }
            self.add(TOKENS, labels, tokens);
        }
        if let Some(cost) = entry.number("cost_micro_usd") {
            self.add(COST, of_model(), cost);
        }
        let seconds = std::time::Duration::from_millis(entry.number("total_ms").unwrap_or(0)).as_secs_f64();
        self.observe(DURATION, of_model(), seconds);
    }

    /// Notes the seconds between the oldest event of a request and its delivery.
    pub fn record_lag(&mut self, kind: &'static str, seconds: f64) {
        self.observe(LAG, vec![("agentsh.item", kind.to_owned())], seconds);
    }

    fn observe(&mut self, which: usize, labels: Labels, value: f64) {
        let Some(histogram) = self.histograms.get_mut(which) else { return };
        let is_full = histogram.points.len() >= MAX_POINTS && !histogram.points.contains_key(&labels);
        let labels = if is_full { overflow() } else { labels };
        let bounds = histogram.bounds;
        let none = || Counts { counts: vec![0; bounds.len() + 1], sum: 0.0 };
        let found = histogram.points.entry(labels).or_insert_with(none);
        let bucket = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        if let Some(count) = found.counts.get_mut(bucket) {
            *count += 1;
        }
        found.sum += value;
    }

    fn add(&mut self, metric: usize, labels: Labels, number: u64) {
        let Some(sum) = self.sums.get_mut(metric) else { return };
        let is_full = sum.points.len() >= MAX_POINTS && !sum.points.contains_key(&labels);
        let labels = if is_full { overflow() } else { labels };
        let point = sum.points.entry(labels).or_default();
        *point = point.saturating_add(number);
    }
}

/// The number of equal refusals that the event counts.
fn count(entry: &Entry) -> u64 {
    entry.number("count").unwrap_or(1)
}

/// The labels of points beyond the limit.
fn overflow() -> Labels {
    vec![("otel.metric.overflow", "true".to_owned())]
}

fn key(entry: &Entry) -> (String, String) {
    let request = entry.field("jsonrpc_id").map(ToString::to_string).unwrap_or_default();
    (entry.text_field("server_id").unwrap_or_default().to_owned(), request)
}
