//! Alerts to a URL of the user: signed, retried, and recorded if delivery fails.
//!
//! The code that raises an alert never waits. Every alert has its own task; beyond [`MAX_WAITING`] of them an alert is
//! only recorded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use ring::hmac;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use url::Url;

use agentsh_egress::{Client, Post};
use agentsh_store::{Event, Recorder};

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Before the second attempt; doubled before each one after it.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_ATTEMPTS: u32 = 5;
/// Requests on the way at once.
const MAX_CONCURRENT_REQUESTS: usize = 4;
/// Alerts that are not delivered yet.
const MAX_WAITING: usize = 256;
/// The receiver's answer is ignored.
const MAX_ANSWER: usize = 64 << 10;

pub struct Settings {
    pub url: Url,
    /// Signs what is sent.
    pub secret: Option<Vec<u8>>,
    /// Like the constants above; tests use shorter ones.
    pub patience: Duration,
    pub first_wait: Duration,
}

impl Settings {
    #[must_use]
    pub fn new(url: Url, secret: Option<Vec<u8>>) -> Self {
        Self { url, secret, patience: ATTEMPT_TIMEOUT, first_wait: FIRST_BACKOFF }
    }
}

/// Must be used inside a `LocalSet`. Cheap to clone.
#[derive(Clone)]
pub struct Webhook<R> {
    inner: Rc<Inner<R>>,
}

struct Inner<R> {
    settings: Settings,
    client: Client,
    record: R,
    turns: Semaphore,
    /// Alerts that are neither delivered nor on record as lost.
    waiting: RefCell<BTreeMap<String, Waiting>>,
    /// The number of undelivered events, and the last reason.
    undelivered: RefCell<Option<(u64, String)>>,
    done: Notify,
}

struct Waiting {
    alert: Value,
    /// Attempts that ended, and why the last of them failed.
    failed: (u32, String),
}

impl<R: Recorder + 'static> Webhook<R> {
    pub fn new(settings: Settings, client: Client, record: R) -> Self {
        let inner = Inner {
            settings,
            client,
            record,
            turns: Semaphore::new(MAX_CONCURRENT_REQUESTS),
            waiting: RefCell::default(),
            undelivered: RefCell::default(),
            done: Notify::new(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Queues an alert. `event_id` is the same in every attempt, so that a receiver can recognise repetitions.
    pub fn send(&self, event_id: &str, alert: Value) {
        if self.inner.waiting.borrow().len() >= MAX_WAITING {
            return self.inner.give_up(event_id, alert, 0, "too many alerts are waiting for delivery");
        }
        let body = alert.to_string().into_bytes();
        let waiting = Waiting { alert, failed: (0, String::new()) };
        self.inner.waiting.borrow_mut().insert(event_id.to_owned(), waiting);
        let (inner, event_id) = (Rc::clone(&self.inner), event_id.to_owned());
        agentsh_base::task::spawn_local(async move {
            let is_delivered = inner.deliver(&event_id, &body).await;
            // Gone when the session ended in between, which put it on record.
            let waiting = inner.waiting.borrow_mut().remove(&event_id);
            if let Some(Waiting { alert, failed: (attempts, why) }) = waiting.filter(|_| !is_delivered) {
                inner.give_up(&event_id, alert, attempts, &why);
            }
            inner.done.notify_waiters();
        });
    }

    /// Notes that `events` events were lost: an alert may have been among them.
    pub fn report_lost(&self, event_id: &str, events: u64) {
        let why = format!("{events} events were recorded faster than they could be processed");
        self.inner.give_up(event_id, Value::Null, 0, &why);
    }

    /// Waits for pending alerts, and records those that were not delivered in time. Returns how many alerts were not
    /// delivered in all, and why the last of them was not.
    pub async fn finish(&self, within: Duration) -> Option<(u64, String)> {
        let all_gone = async {
            loop {
                let changed = self.inner.done.notified();
                if self.inner.waiting.borrow().is_empty() {
                    return;
                }
                changed.await;
            }
        };
        if timeout(within, all_gone).await.is_err() {
            let left = std::mem::take(&mut *self.inner.waiting.borrow_mut());
            for (event_id, Waiting { alert, failed: (attempts, last) }) in left {
                let last = if last.is_empty() { last } else { format!("; {last}") };
                let why = format!("the session ended before it was delivered{last}");
                self.inner.give_up(&event_id, alert, attempts, &why);
            }
        }
        self.inner.undelivered.take()
    }
}

impl<R: Recorder> Inner<R> {
    /// True: it was delivered. What failed is noted with the waiting alert.
    async fn deliver(&self, event_id: &str, body: &[u8]) -> bool {
        let mut wait = self.settings.first_wait;
        for attempt in 1..=MAX_ATTEMPTS {
            let outcome = {
                let _turn = self.turns.acquire().await;
                self.attempt(body).await
            };
            let Err((why, again)) = outcome else { return true };
            if let Some(waiting) = self.waiting.borrow_mut().get_mut(event_id) {
                waiting.failed = (attempt, why);
            }
            if !again || attempt == MAX_ATTEMPTS {
                break;
            }
            sleep(wait).await;
            wait *= 2;
        }
        false
    }

    /// # Errors
    /// Why, and whether another attempt may help.
    async fn attempt(&self, body: &[u8]) -> Result<(), (String, bool)> {
        let post = Post {
            url: self.settings.url.clone(),
            headers: headers(self.settings.secret.as_deref(), body, jiff::Timestamp::now().as_second()),
            body: body.to_vec(),
            within: self.settings.patience,
            max_answer: MAX_ANSWER,
        };
        match self.client.post(post).await {
            // A response that is too long or broken before its status: the alert may have arrived or not.
            Err(error) => Err((error.to_string(), !error.is_permanent())),
            Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
            Ok(answer) => {
                let again = answer.status >= 500 || matches!(answer.status, 408 | 425 | 429);
                Err((format!("the receiver answered with status {}", answer.status), again))
            }
        }
    }

    fn give_up(&self, event_id: &str, alert: Value, attempts: u32, why: &str) {
        let event_id = event_id.to_owned();
        let before = self.undelivered.take().map_or(0, |(count, _)| count);
        self.undelivered.replace(Some((before + 1, why.to_owned())));
        self.record.record(Event::AlertUndelivered { event_id, attempts, detail: why.to_owned(), alert });
    }
}

/// The body is signed as receivers of `@exfil/canary` check it, and once more with the moment of sending, so that
/// nobody else can replay an old alert.
pub fn headers(secret: Option<&[u8]>, body: &[u8], now: i64) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (HeaderName::from_static("x-agentsh-timestamp"), HeaderValue::from(now)),
    ];
    let signed = [("x-canary-signature-256", String::new()), ("x-agentsh-signature-256", now.to_string())];
    for (name, before) in signed {
        if let Some(secret) = secret
            && let Ok(value) = HeaderValue::from_str(&signature(secret, &before, body))
        {
            headers.push((HeaderName::from_static(name), value));
        }
    }
    headers
}

/// `sha256=` and HMAC-SHA256 in hex over a text directly followed by the body.
fn signature(secret: &[u8], before: &str, body: &[u8]) -> String {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    mac.update(before.as_bytes());
    mac.update(body);
    let hex: String = agentsh_base::hex(mac.sign().as_ref());
    format!("sha256={hex}")
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
