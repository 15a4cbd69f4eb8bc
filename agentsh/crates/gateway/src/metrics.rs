//! `/metrics`, in the text format of Prometheus.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Bucket bounds, in seconds.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Default)]
pub struct Metrics {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By endpoint and status.
    answers: BTreeMap<(String, u16), u64>,
    /// By code.
    refusals: BTreeMap<&'static str, u64>,
    buckets: [u64; BUCKETS.len()],
    seconds: f64,
    count: u64,
}

/// Current values.
pub struct Gauges {
    pub sessions: usize,
    pub connections: usize,
}

impl Metrics {
    pub fn count_answer(&self, endpoint: &str, status: u16, took: Duration) {
        let mut inner = self.inner.borrow_mut();
        *inner.answers.entry((endpoint.to_owned(), status)).or_default() += 1;
        let seconds = took.as_secs_f64();
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound)
            && let Some(bucket) = inner.buckets.get_mut(at)
        {
            *bucket += 1;
        }
        inner.seconds += seconds;
        inner.count += 1;
    }

    pub fn count_refusal(&self, code: &'static str) {
        *self.inner.borrow_mut().refusals.entry(code).or_default() += 1;
    }

    pub fn text(&self, gauges: &Gauges) -> String {
        let inner = self.inner.borrow();
        let mut out = String::new();
        let head = |out: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        };
        head(&mut out, "agentsh_gateway_requests_total", "counter", "Answered requests.");
        for ((endpoint, status), count) in &inner.answers {
            let _ = writeln!(
                out,
                "agentsh_gateway_requests_total{{endpoint=\"{endpoint}\",status=\"{status}\"}} {count}"
            );
        }
        head(
            &mut out,
            "agentsh_gateway_refusals_total",
            "counter",
            "Requests that reached no server, by code.",
        );
        for (code, count) in &inner.refusals {
            let _ = writeln!(out, "agentsh_gateway_refusals_total{{code=\"{code}\"}} {count}");
        }
        head(&mut out, "agentsh_gateway_first_byte_seconds", "histogram", "Time until an answer begins.");
        let mut sum = 0;
        for (bound, count) in BUCKETS.iter().zip(inner.buckets) {
            sum += count;
            let _ = writeln!(out, "agentsh_gateway_first_byte_seconds_bucket{{le=\"{bound}\"}} {sum}");
        }
        let _ = writeln!(out, "agentsh_gateway_first_byte_seconds_bucket{{le=\"+Inf\"}} {}", inner.count);
        let _ = writeln!(out, "agentsh_gateway_first_byte_seconds_sum {}", inner.seconds);
        let _ = writeln!(out, "agentsh_gateway_first_byte_seconds_count {}", inner.count);
        head(&mut out, "agentsh_gateway_sessions", "gauge", "Client sessions.");
        let _ = writeln!(out, "agentsh_gateway_sessions {}", gauges.sessions);
        head(&mut out, "agentsh_gateway_connections", "gauge", "Connections.");
        let _ = writeln!(out, "agentsh_gateway_connections {}", gauges.connections);
        out
    }
}
