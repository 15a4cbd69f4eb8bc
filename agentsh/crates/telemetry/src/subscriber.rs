//! Reads the journal of a session on a separate thread and sends events to all receivers in the policy. The session
//! waits for it only at its end, and not for long.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{Instant, timeout};

use super::entry::Entry;
use super::file::Lines;
use super::otlp::{self, Otlp};
use super::syslog::Syslog;
use super::webhook::{self, Webhook};
use agentsh_base::types::SessionId;
use agentsh_egress::Client;
use agentsh_policy::glob;
use agentsh_store::{Event, Recorder, Subscription, TapMessage};

/// How long the end of a session waits for what is on its way.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How much longer it waits for the thread itself.
const THREAD_EXIT_TIMEOUT: Duration = Duration::from_millis(200);

/// The receivers. Empty: none.
#[derive(Default)]
pub struct Settings {
    pub otlp: Option<otlp::Settings>,
    pub file: Option<Lines>,
    pub syslog: Option<Syslog>,
    pub webhooks: Vec<Hook>,
}

/// An address, and globs over the types of events that it gets.
pub struct Hook {
    pub settings: webhook::Settings,
    pub events: Vec<String>,
}

impl Settings {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.otlp.is_none() && self.file.is_none() && self.syslog.is_none() && self.webhooks.is_empty()
    }
}

pub struct Subscriber {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<Vec<String>>,
}

impl Subscriber {
    /// `client` is made on the thread: it may have to read the certificates of this machine.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(
        subscription: Subscription,
        session: SessionId,
        settings: Settings,
        client: impl FnOnce() -> Result<Client, String> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            let notes = LocalSet::new().block_on(&runtime, async move {
                let told = Audience::open(settings, client, session);
                told.run_until(stopped, subscription).await
            });
            // If the session has ended in another way, nothing waits for this.
            let _ = end.send(notes);
        };
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(work)?;
        Ok(Self { stop, ended })
    }

    /// Sends what is on disk so far, waits for events that are being sent, and returns the errors.
    pub async fn finish(self) -> Vec<String> {
        let _ = self.stop.send(());
        let stuck = || vec!["it did not finish in time; what it had not sent is lost".to_owned()];
        match timeout(DRAIN_TIMEOUT + THREAD_EXIT_TIMEOUT, self.ended).await {
            Ok(notes) => notes.unwrap_or_else(|_| stuck()),
            Err(_) => stuck(),
        }
    }
}

/// All receivers.
#[derive(Default)]
struct Audience {
    otlp: Option<Otlp>,
    file: Option<Lines>,
    syslog: Option<Syslog>,
    hooks: Vec<(Webhook<UndeliveredCount>, Vec<String>)>,
    undelivered: UndeliveredCount,
    notes: Vec<String>,
    /// Events that the thread was too slow for.
    lost: u64,
}

impl Audience {
    fn open(settings: Settings, client: impl FnOnce() -> Result<Client, String>, session: SessionId) -> Self {
        let undelivered = UndeliveredCount::default();
        let mut told = Self {
            file: settings.file,
            syslog: settings.syslog,
            undelivered: undelivered.clone(),
            ..Self::default()
        };
        if settings.otlp.is_none() && settings.webhooks.is_empty() {
            return told;
        }
        match client() {
            Err(why) => told.notes.push(format!("nothing is sent: {why}")),
            Ok(client) => {
                told.otlp = settings.otlp.map(|otlp| Otlp::start(otlp, client.clone(), session));
                for Hook { settings, events } in settings.webhooks {
                    let is_unknown =
                        |wanted: &&String| !Event::KINDS.iter().any(|kind| glob::matches(wanted, kind));
                    told.notes.extend(events.iter().filter(is_unknown).map(|wanted| {
                        format!("webhooks: no event has the type '{}'", agentsh_base::escape::line(wanted))
                    }));
                    told.hooks.push((Webhook::new(settings, client.clone(), undelivered.clone()), events));
                }
            }
        }
        told
    }

    async fn run_until(
        mut self,
        mut stopped: oneshot::Receiver<()>,
        mut subscription: Subscription,
    ) -> Vec<String> {
        loop {
            tokio::select! {
                // Checked first, since there may always be one more event.
                biased;
                _ = &mut stopped => break,
                heard = subscription.next() => match heard {
                    Some(heard) => self.export(&heard),
                    None => break,
                },
            }
        }
        while let Some(heard) = subscription.try_next() {
            self.export(&heard);
        }
        self.finish().await
    }

    fn export(&mut self, heard: &TapMessage) {
        let told = match heard {
            TapMessage::Event(told) => told,
            TapMessage::Lost(events) => {
                self.lost += events;
                self.otlp.iter().for_each(|otlp| otlp.record_lost(*events));
                return;
            }
        };
        let Some(entry) = Entry::of(told) else { return };
        self.file.iter_mut().for_each(|file| file.write_entry(&entry));
        self.syslog.iter_mut().for_each(|syslog| syslog.send_entry(&entry));
        self.otlp.iter().for_each(|otlp| otlp.export_entry(&entry));
        for (hook, events) in &self.hooks {
            if events.iter().any(|pattern| glob::matches(pattern, &entry.kind)) {
                hook.send(&format!("{}-{}", entry.session, entry.seq), entry.flat());
            }
        }
    }

    /// All at once: none of them takes the time of another.
    async fn finish(mut self) -> Vec<String> {
        let until = Instant::now() + DRAIN_TIMEOUT;
        let hooks = async {
            for (hook, _) in &self.hooks {
                hook.finish(until.saturating_duration_since(Instant::now())).await;
            }
        };
        let otlp = async {
            match self.otlp {
                Some(otlp) => otlp.finish(until).await,
                None => None,
            }
        };
        let ((), otlp) = tokio::join!(hooks, otlp);
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(otlp.map(|why| format!("otlp: {why}")));
        for (name, failed) in [
            ("file", self.file.and_then(|file| file.failed)),
            ("syslog", self.syslog.and_then(|syslog| syslog.failed)),
        ] {
            notes
                .extend(failed.map(|(why, events)| {
                    format!("{name}: {} missing: {why}", number(events, ["is", "are"]))
                }));
        }
        if let Some((why, events)) = &*self.undelivered.0.borrow() {
            let events = number(*events, ["was", "were"]);
            notes.push(format!("webhooks: {events} not delivered: {why}"));
        }
        if self.lost > 0 {
            let events = number(self.lost, ["was", "were"]);
            notes.push(format!("{events} recorded faster than they could be sent"));
        }
        notes
    }
}

/// `1 event was`, `2 events were`.
fn number(events: u64, verbs: [&str; 2]) -> String {
    format!("{} {}", agentsh_base::counted(events, "event"), verbs[usize::from(events != 1)])
}

/// The number of events that webhooks did not accept, and the last reason. It is counted and not recorded, because recording
/// it would be one more event.
#[derive(Clone, Default)]
struct UndeliveredCount(Rc<RefCell<Option<(String, u64)>>>);

impl Recorder for UndeliveredCount {
    fn record(&self, event: Event) {
        if let Event::AlertUndelivered { detail, .. } = event {
            let before = self.0.borrow_mut().take().map_or(0, |(_, events)| events);
            self.0.replace(Some((detail, before + 1)));
        }
    }

    async fn commit(&self, event: Event) -> Result<(), String> {
        self.record(event);
        Ok(())
    }

    async fn wait_for_room(&self) {}

    fn broken(&self) -> Option<String> {
        None
    }
}
