//! Verifies a server's interface with the registry before the client sees it. The opening and listings wait until
//! agentsh has listed everything itself and the registry has answered; a check compares later listings with that.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::future::{Future, pending};
use std::pin::Pin;

use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep_until};

use crate::guard::{Offer, interface};
use crate::json::{self, Json};
use crate::registry::Captured;
use crate::store::Recorder;
use crate::types::ServerId;

use super::client::Client;
use super::connection::Connection;
use super::from_client::{cancelled_id, progress_token};
use super::jsonrpc::{Id, Key};
use super::lifecycle::private_id;
use super::listing::cursor;
use super::pending::Kind;
use super::reply::{self, ErrorReply};

/// Answers that wait.
const MAX_HELD: usize = 256;
/// Maximum bytes of the held ones together, and of one listing of our own.
const MAX_BYTES: usize = 16 << 20;
/// Limit of pages, because cursors may never end.
const MAX_PAGES: u32 = 50;
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of progress messages while a person is asked.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

pub trait RegistryVerifier: Debug {
    /// Starts a check, of an interface or of the reason why it is unknown. Dropping the future cancels it.
    fn ask(
        &self,
        server: &ServerId,
        offered: Result<Captured, String>,
    ) -> Pin<Box<dyn Future<Output = VerificationOutcome>>>;

    /// Whether an entry's hash was in the last check.
    fn has_seen(&self, server: &ServerId, hash: &str) -> bool;
}

/// The result of a check.
pub enum VerificationOutcome {
    /// The checks use it now.
    Decided,
    /// A person is asked; the checks use the result when the future has ended.
    Waiting(Pin<Box<dyn Future<Output = ()>>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Opening,
    Tools,
    Prompts,
    Resources,
}

const LISTED: [(Section, &str); 3] =
    [(Section::Tools, "tools"), (Section::Prompts, "prompts"), (Section::Resources, "resources")];

impl Section {
    fn of(kind: &Kind) -> Option<Self> {
        match kind {
            Kind::Initialize | Kind::Offers(Offer::Instructions) => Some(Self::Opening),
            Kind::ToolsList => Some(Self::Tools),
            Kind::Offers(Offer::Prompt) => Some(Self::Prompts),
            Kind::Offers(Offer::Resource) => Some(Self::Resources),
            _ => None,
        }
    }

    /// The entries of an answer to compare with the checked ones.
    fn hashes(self, answer: &Json<'_>) -> Vec<String> {
        let Some(result) = answer.member("result") else { return Vec::new() };
        if self == Self::Opening {
            return result.member("instructions").map(interface::hash).into_iter().collect();
        }
        let name = LISTED.iter().find(|(section, _)| *section == self).map_or("", |(_, name)| name);
        let entries = result.member(name).and_then(Json::as_array).unwrap_or_default();
        entries.iter().map(interface::hash).collect()
    }
}

/// All captured entries by hash.
#[must_use]
pub fn hashes(captured: &Captured) -> BTreeSet<String> {
    let pages = [
        (Section::Opening, &captured.opening),
        (Section::Tools, &captured.tools),
        (Section::Prompts, &captured.prompts),
        (Section::Resources, &captured.resources),
    ];
    let mut hashes = BTreeSet::new();
    for (section, lines) in pages {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if let Ok(page) = json::read(line) {
                hashes.extend(section.hashes(&page));
            }
        }
    }
    hashes
}

/// An answer that waits.
struct HeldAnswer {
    id: Id,
    kind: Kind,
    section: Section,
    answer: Vec<u8>,
    token: Option<Id>,
}

/// A client's listing request.
struct ListRequest {
    token: Option<Id>,
    is_first: bool,
}

#[derive(Default)]
enum Round {
    #[default]
    Idle,
    /// agentsh's own page; without a section, the opening.
    Listing {
        own: Key,
        section: Option<usize>,
        pages: u32,
        cursor: String,
    },
    Asking,
    /// A person is asked.
    Waiting,
}

/// The state of one connection.
#[derive(Default)]
pub(super) struct ConnectionVerifier {
    round: Round,
    captured: Captured,
    /// The answer to `initialize` or `server/discover`.
    opening: Vec<u8>,
    /// A newer client's `_meta`, as JSON members.
    meta: String,
    /// agentsh has sent `initialized`; the client's own is not forwarded.
    confirmed: bool,
    /// Not checked yet, or changed or restarted since.
    is_stale: bool,
    /// Sections listed to the client since the check.
    shown: BTreeSet<Section>,
    held: Vec<HeldAnswer>,
    asked: HashMap<Key, ListRequest>,
    questions: JoinSet<Option<VerificationOutcome>>,
    ticks: u64,
    next_tick: Option<Instant>,
}

/// The reason why a wait ended.
pub(super) enum VerificationEvent {
    Said(Option<VerificationOutcome>),
    Tick,
}

impl ConnectionVerifier {
    pub fn note_change(&mut self) {
        self.is_stale = true;
    }

    /// A restarted server answered the handshake.
    pub fn note_replayed_handshake(&mut self, answer: &Json<'_>) {
        if !self.opening.is_empty() {
            self.opening = answer.to_compact().into_bytes();
        }
        self.is_stale = true;
    }

    pub fn is_own(&self, key: &Key) -> bool {
        matches!(&self.round, Round::Listing { own, .. } if own == key)
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.round, Round::Idle)
    }

    pub fn is_held(&self, key: &Key) -> bool {
        self.held.iter().any(|held| held.id.key == *key)
    }

    /// Whether `initialized` was sent in the client's place.
    pub fn take_confirmed(&mut self) -> bool {
        std::mem::take(&mut self.confirmed)
    }

    /// Cancels a waiting answer; false: none has this id.
    pub fn cancel(&mut self, params: Option<&Json<'_>>) -> bool {
        let Some(id) = cancelled_id(params) else { return false };
        let before = self.held.len();
        self.held.retain(|held| held.id.key != id.key);
        self.held.len() < before
    }

    /// Drops everything: no client is left.
    pub fn forget(&mut self) {
        self.held = Vec::new();
        self.questions.abort_all();
        self.round = Round::Idle;
    }

    /// Notes a client's listing request.
    pub fn note_request(&mut self, id: &Id, kind: &Kind, params: Option<&Json<'_>>) {
        const MODERN: &str = "io.modelcontextprotocol/";
        if Section::of(kind).is_none() {
            return;
        }
        if let Some(Json::Object(members)) = params.and_then(|params| params.member("_meta")) {
            let members: Vec<String> = members
                .iter()
                .filter(|(name, _)| json::unescape(name).starts_with(MODERN))
                .map(|(name, value)| format!("\"{name}\":{}", value.to_compact()))
                .collect();
            if !members.is_empty() {
                self.meta = format!("\"_meta\":{{{}}}", members.join(","));
            }
        }
        if self.asked.len() < MAX_HELD {
            let is_first = params.is_none_or(|params| params.member("cursor").is_none());
            self.asked.insert(id.key.clone(), ListRequest { token: progress_token(params), is_first });
        }
    }

    /// The check's result, or the time for a progress message. Pending without a check.
    pub async fn next(&mut self) -> VerificationEvent {
        if self.questions.is_empty() {
            return pending().await;
        }
        let tick = self.next_tick;
        let tick = async {
            match tick {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            said = self.questions.join_next() => VerificationEvent::Said(said.and_then(Result::ok).flatten()),
            () = tick => VerificationEvent::Tick,
        }
    }
}

impl<R: Recorder> Connection<R> {
    /// Whether an answer waits for the check. If so it is taken, unless cancelled.
    pub fn hold(
        &mut self,
        client: &mut impl Client,
        id: Option<&Id>,
        kind: &Kind,
        answer: &Json<'_>,
        is_wanted: bool,
    ) -> bool {
        let (Some(vouch), Some(id), Some(section)) = (&self.options.vouch, id, Section::of(kind)) else {
            return false;
        };
        let asked = self.interface_check.asked.remove(&id.key);
        if answer.member("result").is_none() {
            return false;
        }
        let interface_check = &mut self.interface_check;
        if section == Section::Opening {
            interface_check.opening = answer.to_compact().into_bytes();
            interface_check.is_stale = true;
        }
        let is_first = asked.as_ref().is_none_or(|asked| asked.is_first);
        let is_known =
            || section.hashes(answer).iter().all(|hash| vouch.has_seen(&self.options.server, hash));
        let is_repeated = is_first && interface_check.shown.contains(&section);
        let is_current = !interface_check.is_stale && !interface_check.opening.is_empty() && !is_repeated;
        if interface_check.is_idle() && is_current && is_known() {
            interface_check.shown.insert(section);
            return false;
        }
        if !is_wanted && section != Section::Opening {
            return true;
        }
        let answer = answer.to_compact().into_bytes();
        let bytes: usize = interface_check.held.iter().map(|held| held.answer.len()).sum();
        if interface_check.held.len() >= MAX_HELD || bytes + answer.len() > MAX_BYTES {
            let error = ErrorReply {
                code: reply::TOO_MANY_REQUESTS,
                message: format!(
                    "too many messages wait for the registry check of server '{}'",
                    self.options.server
                ),
                reason: "too-many-requests",
                rule: None,
            };
            client.error(Some(id), &error);
            return true;
        }
        let token = asked.and_then(|asked| asked.token);
        interface_check.held.push(HeldAnswer { id: id.clone(), kind: kind.clone(), section, answer, token });
        if interface_check.is_idle() {
            if *kind == Kind::Initialize && self.handshake.initialized.is_none() {
                // No server lists anything before.
                interface_check.confirmed = true;
                self.send_to_server(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
            }
            self.begin_round();
        }
        true
    }

    fn send_to_server(&mut self, message: &str) {
        // agentsh wrote it.
        if let Ok(tree) = json::read(message.as_bytes()) {
            self.forward_to_server(&tree);
        }
    }

    fn begin_round(&mut self) {
        let interface_check = &mut self.interface_check;
        interface_check.is_stale = false;
        interface_check.shown.clear();
        interface_check.captured =
            Captured { opening: interface_check.opening.clone(), ..Captured::default() };
        match (interface_check.opening.is_empty(), interface_check.meta.is_empty()) {
            (false, _) => self.list_from(0),
            // The newer protocol has no opening.
            (true, false) => self.ask_own(None, "server/discover", 0, String::new()),
            (true, true) => self.end_round(Err("it sent a listing before it was initialized".to_owned())),
        }
    }

    /// Lists the next announced section.
    fn list_from(&mut self, from: usize) {
        let opening = json::read(&self.interface_check.opening);
        let capabilities = |name: &str| {
            let result = opening.as_ref().ok()?.member("result")?;
            result.member("capabilities")?.member(name).cloned()
        };
        let next = (from..LISTED.len()).find(|at| {
            LISTED.get(*at).is_some_and(|(_, name)| {
                capabilities(name).is_some_and(|offered| !matches!(offered, Json::Null | Json::Bool(false)))
            })
        });
        match next.and_then(|at| Some((at, LISTED.get(at)?.1))) {
            Some((at, name)) => self.ask_own(Some(at), &format!("{name}/list"), 0, String::new()),
            None => {
                let captured = std::mem::take(&mut self.interface_check.captured);
                self.end_round(Ok(captured));
            }
        }
    }

    /// `cursor` as JSON, or empty.
    fn ask_own(&mut self, section: Option<usize>, method: &str, pages: u32, cursor: String) {
        let (key, spelled) = private_id(&mut self.serial, "vouch", |key| {
            self.from_client.is_open(key) || self.listing.is_waiting(key) || self.interface_check.is_held(key)
        });
        let cursor_member = if cursor.is_empty() { String::new() } else { format!("\"cursor\":{cursor}") };
        let members: Vec<&str> = [cursor_member.as_str(), self.interface_check.meta.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":{spelled},"method":"{method}","params":{{{}}}}}"#,
            members.join(",")
        );
        let id = Id { key: key.clone(), spelled: spelled.into() };
        self.from_client.insert(id, method, Kind::OwnOffer, None, Some(Instant::now() + PAGE_TIMEOUT));
        self.interface_check.round = Round::Listing { own: key, section, pages: pages + 1, cursor };
        self.send_to_server(&message);
    }

    /// Takes agentsh's own page.
    pub fn on_own_offer(&mut self, answer: &Json<'_>) {
        let Round::Listing { section, pages, cursor: before, .. } =
            std::mem::take(&mut self.interface_check.round)
        else {
            return;
        };
        let text = answer.to_compact().into_bytes();
        let (Some(result), true) = (answer.member("result"), text.len() <= MAX_BYTES) else {
            return self
                .end_round(Err("it did not list what it announced, or the list is too large".to_owned()));
        };
        let Some((at, (which, name))) = section.and_then(|at| Some((at, *LISTED.get(at)?))) else {
            self.interface_check.opening.clone_from(&text);
            self.interface_check.captured.opening = text;
            return self.list_from(0);
        };
        let next = cursor(result).map(|cursor| format!("\"{cursor}\""));
        let captured = &mut self.interface_check.captured;
        let place = match which {
            Section::Prompts => &mut captured.prompts,
            Section::Resources => &mut captured.resources,
            _ => &mut captured.tools,
        };
        place.extend_from_slice(&text);
        place.push(b'\n');
        let is_long = place.len() > MAX_BYTES;
        match next {
            _ if is_long => self.end_round(Err("it lists too much".to_owned())),
            None => self.list_from(at + 1),
            Some(cursor) if cursor == before => {
                self.end_round(Err("it returned the same cursor twice".to_owned()))
            }
            Some(_) if pages >= MAX_PAGES => {
                self.end_round(Err(format!("its listing has more than {MAX_PAGES} pages")));
            }
            Some(cursor) => self.ask_own(Some(at), &format!("{name}/list"), pages, cursor),
        }
    }

    /// The server does not list its interface, so it cannot be verified.
    pub fn fail_round(&mut self, why: &str) {
        if matches!(self.interface_check.round, Round::Listing { .. }) {
            self.end_round(Err(why.to_owned()));
        }
    }

    fn end_round(&mut self, offered: Result<Captured, String>) {
        self.interface_check.round = Round::Asking;
        let Some(vouch) = &self.options.vouch else { return };
        let question = vouch.ask(&self.options.server, offered);
        self.interface_check.questions.spawn_local(async move { Some(question.await) });
    }

    /// The check has a result, or a person is still asked.
    pub async fn on_verified(&mut self, client: &mut impl Client, told: VerificationEvent) {
        match told {
            VerificationEvent::Tick => self.tell_progress(client),
            VerificationEvent::Said(Some(VerificationOutcome::Waiting(person))) => {
                self.interface_check.round = Round::Waiting;
                self.interface_check.questions.spawn_local(async move {
                    person.await;
                    Some(VerificationOutcome::Decided)
                });
                self.tell_progress(client);
                // A client does not wait long for it; its instructions are withheld.
                self.release(client, |held| held.section == Section::Opening).await;
            }
            VerificationEvent::Said(_) => {
                self.interface_check.next_tick = None;
                self.interface_check.round = Round::Idle;
                self.release(client, |_| true).await;
            }
        }
    }

    async fn release(&mut self, client: &mut impl Client, which: impl Fn(&HeldAnswer) -> bool) {
        let held = std::mem::take(&mut self.interface_check.held);
        let (free, kept): (Vec<HeldAnswer>, Vec<HeldAnswer>) = held.into_iter().partition(which);
        self.interface_check.held = kept;
        for held in free {
            self.interface_check.shown.insert(held.section);
            // agentsh wrote it.
            let Ok(answer) = json::read(&held.answer) else { continue };
            self.deliver(client, Some(held.id), held.kind, answer).await;
        }
    }

    /// Tells a client with a progress token that a person is asked.
    fn tell_progress(&mut self, client: &mut impl Client) {
        let interface_check = &mut self.interface_check;
        interface_check.next_tick = Some(Instant::now() + PROGRESS_INTERVAL);
        interface_check.ticks += 1;
        for token in interface_check.held.iter().filter_map(|held| held.token.as_ref()) {
            let message = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{},"message":"waiting for a person to approve what server '{}' offers"}}}}"#,
                token.spelled,
                interface_check.ticks,
                json::escape_text(&self.options.server.0)
            );
            if let Ok(tree) = json::read(message.as_bytes()) {
                client.notification("notifications/progress", tree);
            }
        }
    }

    /// The client sends nothing more: stops waiting for a person.
    pub async fn stop_waiting(&mut self, client: &mut impl Client) {
        if matches!(self.interface_check.round, Round::Waiting) {
            self.interface_check.questions.abort_all();
            self.interface_check.round = Round::Idle;
            self.release(client, |_| true).await;
        }
    }
}
