//! Traces, logs and metrics to an OpenTelemetry receiver, over HTTP or gRPC.
//!
//! The code that reports an event never waits: events wait in bounded queues. A request without an answer is sent again;
//! events for which the queue has no room are dropped and counted, and the number is reported.

mod grpc;
mod logs;
mod metrics;
mod parts;
mod protobuf;
mod spans;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::rc::Rc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use self::metrics::Metrics;
use self::parts::{Attributes, scope};
use self::spans::Spans;
use super::entry::Entry;
use super::queue::Queue;
use agentsh_base::counted;
use agentsh_base::types::SessionId;
use agentsh_egress::{Client, Post};

pub use self::grpc::call;

/// Between two looks into the queues.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// So many items are sent without waiting for it.
const BATCH: usize = 512;
/// The default for one request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A receiver's answer is not used.
const MAX_ANSWER: usize = 64 << 10;

pub struct Settings {
    pub addresses: Addresses,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub encoding: Encoding,
    /// Timeout of one request.
    pub within: Duration,
    /// Bodies go as gzip.
    pub is_packed: bool,
    pub service: String,
    /// Further attributes of the resource.
    pub resource: Vec<(String, String)>,
}

/// The addresses of the three kinds of data. None: that kind is not sent.
pub struct Addresses {
    pub traces: Option<Url>,
    pub logs: Option<Url>,
    pub metrics: Option<Url>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Protobuf,
    Json,
    /// Protocol Buffers as unary calls over HTTP/2; addresses are those of the calls.
    Grpc,
}

/// Must be used inside a `LocalSet`.
pub struct Otlp {
    shared: Rc<Shared>,
    sending: JoinHandle<()>,
}

struct Shared {
    settings: Settings,
    client: Client,
    resource: Value,
    state: RefCell<State>,
    wake: Notify,
    is_over: Cell<bool>,
}

struct State {
    spans: Spans,
    metrics: Metrics,
    /// Something was added since metrics were sent.
    is_news: bool,
    traces: Queue<Value>,
    logs: Queue<Value>,
    /// Why the last request that failed did.
    failed: Option<String>,
}

/// How sending can fail.
enum SendFailure {
    Later(String),
    Never(String),
}

impl Otlp {
    #[must_use]
    pub fn start(settings: Settings, client: Client, session: SessionId) -> Self {
        let client = if settings.encoding == Encoding::Grpc { client.only_http2() } else { client };
        let shared = Rc::new(Shared {
            resource: resource(&settings, session),
            settings,
            client,
            state: RefCell::new(State {
                spans: Spans::new(session),
                metrics: Metrics::new(Timestamp::now()),
                is_news: false,
                traces: Queue::default(),
                logs: Queue::default(),
                failed: None,
            }),
            wake: Notify::new(),
            is_over: Cell::new(false),
        });
        let sender = Rc::clone(&shared);
        let sending = agentsh_base::task::spawn_local(async move { sender.send_until_the_end().await });
        Self { shared, sending }
    }

    pub fn export_entry(&self, entry: &Entry) {
        let mut state = self.shared.state.borrow_mut();
        state.metrics.count_entry(entry);
        state.is_news = true;
        if self.shared.settings.addresses.traces.is_some() {
            for span in state.spans.add_entry(entry) {
                let size = span.to_string().len();
                state.traces.push(span, size);
            }
        }
        if self.shared.settings.addresses.logs.is_some() {
            state.logs.push(logs::record(entry), entry.text.len() + 512);
        }
        if state.logs.len() >= BATCH || state.traces.len() >= BATCH {
            self.shared.wake.notify_one();
        }
    }

    /// So many events of the journal went by unseen.
    pub fn record_lost(&self, events: u64) {
        self.shared.state.borrow_mut().logs.dropped += events;
    }

    /// Sends what is left, until then. What was not taken all in all, and why, in words.
    pub async fn finish(self, until: Instant) -> Option<String> {
        self.shared.is_over.set(true);
        self.shared.wake.notify_one();
        let mut sending = self.sending;
        let in_time = timeout_at(until, &mut sending).await.is_ok();
        sending.abort();
        let state = &mut *self.shared.state.borrow_mut();
        state.logs.end();
        state.traces.end();
        let (logs, spans) = (state.logs.dropped, state.traces.dropped);
        let why = match (&state.failed, in_time) {
            (Some(why), _) => why.as_str(),
            (None, false) => "it did not answer in time",
            (None, true) => "it was too slow",
        };
        let is_complete = logs == 0 && spans == 0 && (in_time || !state.is_news);
        (!is_complete).then(|| {
            let [logs, spans] =
                [(logs, "log record"), (spans, "span")].map(|(number, word)| counted(number, word));
            format!("{logs} and {spans} were not delivered: {why}")
        })
    }
}

impl Shared {
    async fn send_until_the_end(&self) {
        loop {
            if !self.is_over.get() {
                tokio::select! {
                    () = sleep(POLL_INTERVAL) => {}
                    () = self.wake.notified() => {}
                }
            }
            let is_last = self.is_over.get();
            let addresses = &self.settings.addresses;
            let traces = self.drain("span", addresses.traces.as_ref(), |state| &mut state.traces, spans_of);
            let logs = self.drain("log", addresses.logs.as_ref(), |state| &mut state.logs, logs_of);
            let (traces, logs) = tokio::join!(traces, logs);
            // Sent last, because the metrics count what was dropped.
            let metrics = self.metrics().await;
            if is_last {
                return;
            }
            if !(traces && logs && metrics) {
                // Every new event wakes this thread, and a receiver in trouble gets no requests for a while.
                tokio::select! {
                    () = sleep(POLL_INTERVAL) => {}
                    () = self.ended() => {}
                }
            }
        }
    }

    async fn ended(&self) {
        while !self.is_over.get() {
            self.wake.notified().await;
        }
    }

    /// Sends a queue to its end. False when the receiver does not take it now.
    async fn drain(
        &self,
        kind: &'static str,
        url: Option<&Url>,
        queue: impl Fn(&mut State) -> &mut Queue<Value>,
        message: impl Fn(&Value, Vec<Value>) -> Value,
    ) -> bool {
        let Some(url) = url else { return true };
        loop {
            let taken = queue(&mut self.state.borrow_mut()).take(BATCH);
            if taken.is_empty() {
                return true;
            }
            let items = taken.iter().map(|(item, _)| item.clone()).collect();
            let outcome = self.post(url, &message(&self.resource, items)).await;
            let mut state = self.state.borrow_mut();
            match outcome {
                Ok(()) => {
                    queue(&mut state).done();
                    if let Some(seconds) = taken.iter().filter_map(|(item, _)| age(item)).reduce(f64::max) {
                        state.metrics.record_lag(kind, seconds);
                    }
                }
                Err(SendFailure::Never(why)) => {
                    state.failed = Some(why);
                    queue(&mut state).count_lost();
                }
                Err(SendFailure::Later(why)) => {
                    state.failed = Some(why);
                    queue(&mut state).put_back(taken);
                    return false;
                }
            }
        }
    }

    async fn metrics(&self) -> bool {
        let Some(url) = &self.settings.addresses.metrics else { return true };
        let written = {
            let state = &mut *self.state.borrow_mut();
            if !std::mem::take(&mut state.is_news) {
                return true;
            }
            state.metrics.set_dropped("log", state.logs.dropped);
            state.metrics.set_dropped("span", state.traces.dropped);
            state.metrics.metrics_json(Timestamp::now())
        };
        let Some(metrics) = written else { return true };
        let message = json!({ "resourceMetrics": [{
            "resource": &self.resource, "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
        }] });
        match self.post(url, &message).await {
            Ok(()) => true,
            Err(SendFailure::Later(why) | SendFailure::Never(why)) => {
                let mut state = self.state.borrow_mut();
                // Sums: the next ones say the same.
                state.is_news = true;
                state.failed = Some(why);
                false
            }
        }
    }

    async fn post(&self, url: &Url, message: &Value) -> Result<(), SendFailure> {
        let (kind, body) = match self.settings.encoding {
            Encoding::Protobuf => ("application/x-protobuf", protobuf::request(message)),
            Encoding::Json => ("application/json", message.to_string().into_bytes()),
            Encoding::Grpc => return grpc::export(&self.client, url, &self.settings, message).await,
        };
        let mut headers = self.settings.headers.clone();
        headers.push((CONTENT_TYPE, HeaderValue::from_static(kind)));
        let body = if self.settings.is_packed {
            headers.push((CONTENT_ENCODING, HeaderValue::from_static("gzip")));
            to_gzip(&body)
        } else {
            body
        };
        let post =
            Post { url: url.clone(), headers, body, within: self.settings.within, max_answer: MAX_ANSWER };
        match self.client.post(post).await {
            Err(error) if error.is_permanent() => Err(SendFailure::Never(error.to_string())),
            Err(error) => Err(SendFailure::Later(error.to_string())),
            Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
            Ok(answer) => {
                let why = format!("the receiver answered with status {}", answer.status);
                let is_passing = matches!(answer.status, 408 | 429 | 502 | 503 | 504);
                Err(if is_passing { SendFailure::Later(why) } else { SendFailure::Never(why) })
            }
        }
    }
}

/// As gzip. Writing to memory does not fail.
fn to_gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let _infallible = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

/// How long ago a span ended, or a record was written, in seconds.
fn age(item: &Value) -> Option<f64> {
    let time = item.get("endTimeUnixNano").or_else(|| item.get("timeUnixNano"))?;
    let time = Timestamp::from_nanosecond(time.as_str()?.parse().ok()?).ok()?;
    Some(Timestamp::now().duration_since(time).as_secs_f64().max(0.0))
}

fn spans_of(resource: &Value, spans: Vec<Value>) -> Value {
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "scope": scope(), "spans": spans }] }] })
}

fn logs_of(resource: &Value, records: Vec<Value>) -> Value {
    json!({ "resourceLogs": [{ "resource": resource, "scopeLogs": [{ "scope": scope(), "logRecords": records }] }] })
}

/// Identifies the sender, so that the sums of two sessions are never mixed.
fn resource(settings: &Settings, session: SessionId) -> Value {
    let own = Attributes::default()
        .text("service.name", Some(&settings.service))
        .text("service.version", Some(env!("CARGO_PKG_VERSION")))
        .text("service.instance.id", Some(&session.to_string()))
        .text("os.type", Some("linux"));
    let all = settings.resource.iter().fold(own, |all, (name, value)| all.text(name, Some(value)));
    json!({ "attributes": Value::from(all) })
}
