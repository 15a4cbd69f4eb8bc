//! Metrics: sums since the session began.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::parts::{Attributes, nanoseconds};
use super::spans::provider;
use crate::telemetry::entry::Entry;

/// Most points of one metric: a program chooses some of the names. Further ones are counted together.
const MAX_POINTS: usize = 500;
const CUMULATIVE: u32 = 2;
/// Upper bounds of the durations of requests to a model, in seconds, as the semantic conventions have them.
const BOUNDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// Names of attributes and their values.
type Labels = Vec<(&'static str, String)>;

struct Sum {
    name: &'static str,
    unit: &'static str,
    about: &'static str,
    points: BTreeMap<Labels, u64>,
}

#[derive(Default)]
struct Durations {
    counts: [u64; BOUNDS.len() + 1],
    sum: f64,
}

const CALLS: usize = 0;
const REFUSALS: usize = 1;
const CONNECTIONS: usize = 2;
const DETECTIONS: usize = 3;
const TOKENS: usize = 4;
const COST: usize = 5;
const EVENTS: usize = 6;
const DROPPED: usize = 7;

const NAMES: [(&str, &str, &str); 8] = [
    ("agentsh.calls", "{call}", "Calls of tools, as they were judged"),
    ("agentsh.refusals", "{refusal}", "What was refused, by rule"),
    ("agentsh.connections", "{connection}", "Connections that ended, and refused ones"),
    ("agentsh.detections", "{detection}", "What was found in calls, results and definitions"),
    ("agentsh.model.tokens", "{token}", "Tokens of the model, as its provider counts them"),
    ("agentsh.model.cost", "u{USD}", "What these cost, in millionths of a dollar"),
    ("agentsh.events", "{event}", "Events of the journal"),
    ("agentsh.telemetry.dropped", "{item}", "What this receiver did not hear of"),
];

pub struct Metrics {
    start: Timestamp,
    sums: [Sum; NAMES.len()],
    durations: BTreeMap<Labels, Durations>,
}

impl Metrics {
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        let sums = NAMES.map(|(name, unit, about)| Sum { name, unit, about, points: BTreeMap::new() });
        Self { start, sums, durations: BTreeMap::new() }
    }

    pub fn hear(&mut self, entry: &Entry) {
        let word = |name: &str| entry.word(name).unwrap_or_default().to_owned();
        let action = || ("agentsh.action", word("action"));
        let server = || ("agentsh.server", word("server_id"));
        self.add(EVENTS, vec![("agentsh.event", entry.kind.clone())], 1);
        match entry.kind.as_str() {
            "mcp_tool_call_intercepted" => {
                self.add(CALLS, vec![server(), ("gen_ai.tool.name", word("tool_name")), action()], 1);
            }
            "mcp_network_connection" if entry.word("state") != Some("open") => {
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
            _ => entry.word("action") == Some("block"),
        };
        if is_refusal {
            let rule = entry.rule().unwrap_or_default();
            let reason = ("agentsh.reason", word("reason"));
            self.add(REFUSALS, vec![("agentsh.rule", rule), reason], count(entry));
        }
    }

    /// So many items of this kind were dropped, all in all.
    pub fn dropped(&mut self, kind: &'static str, number: u64) {
        if number > 0
            && let Some(sum) = self.sums.get_mut(DROPPED)
        {
            sum.points.insert(vec![("agentsh.item", kind.to_owned())], number);
        }
    }

    /// All of them; None where there is nothing.
    #[must_use]
    pub fn written(&self, now: Timestamp) -> Option<Value> {
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
        let durations = self.durations.iter().map(|(labels, durations)| {
            let mut point = point(labels);
            let counts: Vec<String> = durations.counts.iter().map(u64::to_string).collect();
            point["count"] = durations.counts.iter().sum::<u64>().to_string().into();
            point["sum"] = durations.sum.into();
            point["bucketCounts"] = counts.into();
            point["explicitBounds"] = BOUNDS.to_vec().into();
            point
        });
        let durations: Vec<Value> = durations.collect();
        if !durations.is_empty() {
            metrics.push(json!({
                "name": "gen_ai.client.operation.duration", "unit": "s",
                "description": "From a request to the model to the end of its answer",
                "histogram": { "dataPoints": durations, "aggregationTemporality": CUMULATIVE },
            }));
        }
        (!metrics.is_empty()).then(|| Value::Array(metrics))
    }

    fn model(&mut self, entry: &Entry) {
        let word = |name: &str| entry.word(name).unwrap_or_default().to_owned();
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
            self.add(TOKENS, labels, entry.number(field).unwrap_or(0));
        }
        if let Some(cost) = entry.number("cost_micro_usd") {
            self.add(COST, of_model(), cost);
        }
        if self.durations.len() < MAX_POINTS || self.durations.contains_key(&of_model()) {
            let seconds =
                std::time::Duration::from_millis(entry.number("total_ms").unwrap_or(0)).as_secs_f64();
            let durations = self.durations.entry(of_model()).or_default();
            let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
            if let Some(count) = durations.counts.get_mut(bucket) {
                *count += 1;
            }
            durations.sum += seconds;
        }
    }

    fn add(&mut self, metric: usize, labels: Labels, number: u64) {
        let Some(sum) = self.sums.get_mut(metric) else { return };
        let is_full = sum.points.len() >= MAX_POINTS && !sum.points.contains_key(&labels);
        let labels = if is_full { vec![("otel.metric.overflow", "true".to_owned())] } else { labels };
        let point = sum.points.entry(labels).or_default();
        *point = point.saturating_add(number);
    }
}

/// Equal refusals that the event stands for.
fn count(entry: &Entry) -> u64 {
    entry.number("count").unwrap_or(1)
}
