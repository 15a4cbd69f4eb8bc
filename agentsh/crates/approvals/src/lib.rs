//! Questions to a person: what is pending, what was answered, and how long an answer applies. They are answered
//! outside, with `agentsh approvals` over a socket of the session that no sandbox reaches.

mod changes;
mod files;
mod fleet;
pub mod guarded_terminal;
mod hosts;
mod logins;
mod notify;
mod permanent_answer;
mod release;
mod socket;
mod terminal;
mod webhook;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use agentsh_base::paragraph;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::interface;
use agentsh_guard::{Finding, Outcome, Reason, Verdict};
use agentsh_mcp::{ApprovalSubject, Approve, AskedPerson, Page};
use agentsh_store::words::{ApprovalScope, ApprovalWord};
use agentsh_store::{Event, Offered, redact};

use agentsh_content::content::{self, since_1970};
use agentsh_content::interface_pins::InterfacePins;
use agentsh_fleet::key_files;
use agentsh_host::{Facts, Record};
use agentsh_store::pins::PinStore;

pub use files::FileChange;
pub use hosts::{BackgroundHosts, Hosts};
pub use logins::FurtherRights;
pub use notify::{hint, notice, show_notification, tell_refused};
pub use permanent_answer::{lasting_line, remember};
pub use socket::{SocketReply, SocketRequest, ask, sockets};
pub use terminal::Terminal;

/// Questions that wait at once; more are refused.
const MAX_OPEN: usize = 64;
/// Answers that are remembered for the session.
const MAX_REMEMBERED: usize = 10_000;
/// Bytes of arguments that a person is shown.
const MAX_SHOWN: usize = 48 << 10;

/// The subject that an answer is bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// One call of one client, with all parameters.
    Call {
        client: Option<String>,
        server: ServerId,
        name: String,
        arguments: String,
        interface: Option<String>,
    },
    /// Connections of the agent to a host.
    Host(String),
    /// A guarded file, with what it holds and what it would hold, by their hash.
    File { path: String, hash: String },
    /// Further rights of the user's login to a server.
    Login { server: ServerId, scopes: String },
    /// The current definition of a server under this name, which cannot be called before it is shown.
    Release { server: ServerId, kind: Offered, name: String },
    /// A flow from one server to another: this text, or any.
    Flow { client: Option<String>, from: ServerId, to: ServerId, what: FlowContent },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FlowContent {
    /// The call carries a copy: these arguments, by their hash.
    Copy(String),
    /// Something was read; no copy was found.
    Nothing,
    /// Like [`FlowContent::Nothing`], after enough refusals to close the pair.
    Closed,
}

impl FlowContent {
    fn of(finding: &Finding, arguments: &str) -> Self {
        match finding.detector.as_str() {
            content::LABEL_FLOW => Self::Nothing,
            content::CLOSED_PAIR => Self::Closed,
            _ => Self::Copy(arguments.to_owned()),
        }
    }
}

/// A question as a person sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Unique among all sessions of this machine that run.
    pub id: String,
    pub session: String,
    pub server: String,
    /// The client of the gateway that asks: an answer counts for it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The tool's name, or a method.
    pub name: String,
    /// The arguments as sent, for people at this machine. An answer is bound to them. Cut after [`MAX_SHOWN`] bytes.
    pub arguments: String,
    /// For everybody else: with secrets taken out, and cut further. Empty where `arguments` holds none.
    #[serde(skip)]
    redacted: String,
    /// `sha256:` of the canonical arguments, as they were sent.
    pub arguments_hash: String,
    /// Hash of the tool's definition.
    pub interface: Option<String>,
    /// The server whose data would go to `server`. None: the question is about this call.
    #[serde(default)]
    pub from: Option<String>,
    /// With `from`: the call carries a copy, and an answer is about this text alone.
    #[serde(default)]
    pub is_copy: bool,
    /// A host that the agent wants to reach: the question is about no call.
    #[serde(default)]
    pub host: Option<String>,
    /// A guarded file that the agent wants to change: the question is about no call, `arguments` is the difference, and
    /// `arguments_hash` that of the new content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The command that logs in with further rights: the question is about them, and an approval begins the login.
    #[serde(default)]
    pub login: Option<String>,
    /// Something is not the trusted version, and nothing else is asked: an approval that lasts makes its new definition the pin.
    #[serde(default)]
    pub is_change: bool,
    #[serde(default)]
    pub changed: Option<ChangedEntry>,
    /// The rule that asks, as `file:line (key)`.
    pub rule: String,
    pub why: String,
    /// Seconds since 1970.
    pub asked_at: u64,
    pub expires_at: u64,
}

/// An entry of a server's interface that is not what was trusted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedEntry {
    pub kind: Offered,
    pub name: String,
    /// No call waits: it is about the entry itself, and an approval lasts for the session at least.
    pub is_withheld: bool,
}

impl Item {
    /// The question for others than the people at this machine.
    fn for_others(&self) -> Self {
        let redacted = Some(&self.redacted).filter(|text| !text.is_empty());
        Self { arguments: redacted.unwrap_or(&self.arguments).clone(), ..self.clone() }
    }

    /// A question without its subject: the rule that asks, the timeout, and who asks.
    fn new(
        id: String,
        session: &ApprovalSession,
        (server, name): (&str, String),
        (rule, why): (&RuleRef, String),
        wait: Duration,
    ) -> Self {
        let now = since_1970();
        Self {
            id,
            session: session.facts.id.to_string(),
            server: server.to_owned(),
            name,
            rule: rule.to_string(),
            why,
            asked_at: now.as_secs(),
            expires_at: (now + wait).as_secs(),
            ..Self::default()
        }
    }

    /// No call waits for the answer: an approval lasts for the session at least.
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        self.changed.as_ref().is_some_and(|changed| changed.is_withheld)
    }
}

/// Yes or no, for how long, and by whom.
type Answer = (bool, ApprovalScope, String);

struct OpenQuestion {
    item: Item,
    answer: oneshot::Sender<Answer>,
    /// Asked elsewhere too; ends with the question.
    _asked: Option<webhook::PendingQuestion>,
    /// Asked at the fleet server too; ends with the question.
    _at_fleet: Option<fleet::PendingQuestion>,
    /// Asked on the terminal, which the agent does not use; ends with the question.
    _shown: Option<terminal::PendingQuestion>,
}

#[derive(Default)]
struct State {
    asked: u64,
    open: BTreeMap<String, OpenQuestion>,
    granted: BTreeSet<Key>,
    denied: BTreeSet<Key>,
    /// Set once a person was asked.
    door: Option<socket::ApprovalSocket>,
}

/// All questions of one session.
#[derive(Clone)]
pub struct Approvals(Rc<Inner>);

/// A weak reference, for what the session itself holds.
#[derive(Clone, Debug)]
pub struct WeakApprovals(Weak<Inner>);

impl WeakApprovals {
    /// None: the session is about to end.
    #[must_use]
    pub fn upgrade(&self) -> Option<Approvals> {
        self.0.upgrade().map(Approvals)
    }
}

/// A session, as far as questions need it.
pub struct ApprovalSession {
    pub facts: Rc<Facts>,
    pub record: Rc<Record>,
    /// The trusted interfaces, and their store.
    pub interfaces: InterfacePins,
    pub pins: Arc<PinStore>,
    /// The address at which a person answers, for clients that open addresses; `{id}` is the question. Set
    /// when the gateway starts.
    pub page: Rc<OnceCell<String>>,
}

struct Inner {
    session: ApprovalSession,
    hook: Option<webhook::Hook>,
    fleet: Option<fleet::Fleet>,
    /// Set once the agent runs, if questions may appear on its terminal.
    terminal: OnceCell<Terminal>,
    state: RefCell<State>,
}

impl std::fmt::Debug for Approvals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Approvals")
    }
}

impl Approvals {
    #[must_use]
    pub fn new(session: ApprovalSession) -> Self {
        let hook = webhook::Hook::of(&session.facts, &session.record);
        let fleet = fleet::Fleet::of(&session.facts, &session.record);
        Self(Rc::new(Inner { session, hook, fleet, terminal: OnceCell::new(), state: RefCell::default() }))
    }

    #[must_use]
    pub fn downgrade(&self) -> WeakApprovals {
        WeakApprovals(Rc::downgrade(&self.0))
    }

    /// From now on questions appear on the agent's terminal, and its processes are stopped until the answer.
    pub fn ask_on(&self, terminal: Terminal) {
        // A session has one agent.
        let _ = self.0.terminal.set(terminal);
    }

    /// Whether the agent was stopped by a question, and not by a person.
    #[must_use]
    pub fn has_paused_the_agent(&self) -> bool {
        self.0.terminal.get().is_some_and(Terminal::has_paused_the_agent)
    }

    /// The pending questions, the oldest first.
    fn items(&self) -> Vec<Item> {
        let mut items: Vec<Item> =
            self.0.state.borrow().open.values().map(|open| open.item.clone()).collect();
        items.sort_by_key(|item| item.asked_at);
        items
    }

    /// Answers one question, once. False: it is no longer pending.
    fn answer(&self, id: &str, is_yes: bool, scope: ApprovalScope, by: String) -> bool {
        let open = self.0.state.borrow_mut().open.remove(id);
        open.is_some_and(|open| open.answer.send((is_yes, scope, by)).is_ok())
    }

    /// The verdict if no question is needed.
    fn known_verdict(&self, key: &Key) -> Option<Verdict> {
        let approved = &self.0.session.facts.policy.mcp.approved;
        let entry = approved.iter().find(|entry| {
            let approved = &entry.value;
            let same = |wanted: &Option<String>, found: Option<&String>| {
                wanted.is_none() || wanted.as_ref() == found
            };
            match key {
                Key::Host(_) | Key::File { .. } | Key::Login { .. } | Key::Release { .. } => false,
                // A line of the policy is about every client.
                Key::Flow { from, to, what, .. } => {
                    let copy = if let FlowContent::Copy(hash) = what { Some(hash) } else { None };
                    approved.server == to.0
                        && approved.from.as_ref() == Some(&from.0)
                        && same(&approved.arguments, copy)
                }
                Key::Call { server, name, arguments, interface, .. } => {
                    approved.from.is_none()
                        && approved.server == server.0
                        && approved.tool == *name
                        && same(&approved.arguments, Some(arguments))
                        && same(&approved.interface, interface.as_ref())
                }
            }
        });
        if let Some(entry) = entry {
            return Some(Verdict::new(Outcome::Allow, Reason::Approved, entry.rule.clone()));
        }
        let state = self.0.state.borrow();
        let rule = || RuleRef::default_rule("approvals");
        if state.denied.contains(key) {
            return Some(Verdict::new(Outcome::Block, Reason::ApprovalDenied, rule()));
        }
        state.granted.contains(key).then(|| Verdict::new(Outcome::Allow, Reason::Approved, rule()))
    }

    /// Whether a person may be there to answer.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.0.hook.is_some()
            || self.0.fleet.is_some()
            || self.0.terminal.get().is_some_and(|terminal| terminal.is_free())
            || can_ask(&self.0.session.facts)
    }

    /// Puts a question where a person finds it. None: nobody can be asked.
    fn put(&self, item: impl FnOnce(String) -> Item) -> Option<(Item, oneshot::Receiver<Answer>)> {
        let mut state = self.0.state.borrow_mut();
        if !self.can_ask() || state.open.len() >= MAX_OPEN {
            return None;
        }
        if state.door.is_none() {
            match socket::ApprovalSocket::open(self) {
                Ok(door) => state.door = Some(door),
                Err(error) => {
                    drop(state);
                    self.0
                        .session
                        .record
                        .note(&format!("cannot ask anybody: cannot create the socket: {error}"));
                    return None;
                }
            }
        }
        state.asked += 1;
        let session = self.0.session.facts.id.0.simple().to_string();
        let short = session.get(session.len().saturating_sub(4)..).unwrap_or_default();
        let item = item(format!("{short}-{}", state.asked));
        let (answer, heard) = oneshot::channel();
        let asked = self.0.hook.as_ref().and_then(|hook| hook.ask(self, &item));
        // A login needs the browser of this machine, and maybe the agent's terminal: it is not stopped for that.
        let is_for_anywhere = item.login.is_none();
        let at_fleet =
            self.0.fleet.as_ref().filter(|_| is_for_anywhere).and_then(|fleet| fleet.ask(self, &item));
        let terminal = self.0.terminal.get().filter(|_| is_for_anywhere);
        let shown = terminal.and_then(|terminal| terminal.ask(self, &item));
        if shown.is_none() {
            notify::notify_user(&self.0.session.facts, &self.0.session.record, &item);
        }
        state.open.insert(
            item.id.clone(),
            OpenQuestion { item: item.clone(), answer, _asked: asked, _at_fleet: at_fleet, _shown: shown },
        );
        Some((item, heard))
    }

    /// The answer about a subject other than a call: the known one, or a person's. None: nobody can be asked.
    async fn ask_person(
        &self,
        key: Key,
        rule: RuleRef,
        wait: Duration,
        item: impl FnOnce(String) -> Item,
    ) -> Option<Verdict> {
        if let Some(known) = self.known_verdict(&key) {
            return Some(known);
        }
        let (item, heard) = self.put(item)?;
        self.record_request(&item, &rule);
        Some(self.clone().wait(key, item, heard, (rule, wait)).await)
    }

    fn record_request(&self, item: &Item, rule: &RuleRef) {
        self.0.session.record.journal.record(Event::ApprovalRequested {
            approval: item.id.clone(),
            server_id: ServerId(item.server.clone()),
            name: item.name.clone(),
            arguments_hash: item.arguments_hash.clone(),
            interface: item.interface.clone(),
            rule: rule.clone(),
            why: item.why.clone(),
        });
    }

    fn record_decision(
        &self,
        item: &Item,
        word: ApprovalWord,
        scope: Option<ApprovalScope>,
        by: &str,
        since: Instant,
    ) {
        self.0.session.record.journal.record(Event::ApprovalDecided {
            approval: item.id.clone(),
            server_id: ServerId(item.server.clone()),
            name: item.name.clone(),
            word,
            scope,
            by: by.to_owned(),
            after_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }

    async fn wait(
        self,
        key: Key,
        item: Item,
        heard: oneshot::Receiver<Answer>,
        (rule, patience): (RuleRef, Duration),
    ) -> Verdict {
        let mut waiting = Waiting { approvals: &self, item: &item, since: Instant::now(), is_over: false };
        if item.changed.is_some() {
            // So that the person can look at the difference.
            let ApprovalSession { record, interfaces, pins, .. } = &self.0.session;
            interfaces.keep(pins, |why| record.note(why)).await;
        }
        let answer = tokio::time::timeout(patience, heard).await;
        waiting.is_over = true;
        let since = waiting.since;
        drop(waiting);
        let Ok(Ok((is_yes, mut scope, by))) = answer else {
            self.0.state.borrow_mut().open.remove(&item.id);
            self.record_decision(&item, ApprovalWord::TimedOut, None, "", since);
            return Verdict::new(Outcome::Block, Reason::ApprovalTimedOut, rule);
        };
        if item.is_withheld() && scope == ApprovalScope::Once {
            scope = ApprovalScope::Session;
        }
        // A refusal of a call stays one for the session; an approval only if the person said so. Data between two servers is
        // asked again: one refused text is not a verdict on the next.
        let lasts = match (&key, is_yes) {
            (Key::Flow { .. }, false) => false,
            (_, false) => true,
            // Its definition is what is trusted from now on, and no answer.
            (Key::Release { .. }, true) => false,
            // Nothing in the call distinguishes it from another one, so the question is the same each time.
            (Key::Flow { what: FlowContent::Nothing, .. }, true) => true,
            (_, true) => scope != ApprovalScope::Once,
        };
        if lasts {
            let mut state = self.0.state.borrow_mut();
            let remembered = if is_yes { &mut state.granted } else { &mut state.denied };
            if remembered.len() < MAX_REMEMBERED {
                remembered.insert(key);
            }
        }
        let word = if is_yes { ApprovalWord::Approved } else { ApprovalWord::Denied };
        self.record_decision(&item, word, is_yes.then_some(scope), &by, since);
        if is_yes {
            self.accept_change(&item, scope).await;
        }
        match is_yes {
            true => Verdict::new(Outcome::Allow, Reason::Approved, rule),
            false => Verdict::new(Outcome::Block, Reason::ApprovalDenied, rule),
        }
    }
}

/// Withdraws the question when its caller goes away.
struct Waiting<'a> {
    approvals: &'a Approvals,
    item: &'a Item,
    since: Instant,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.approvals.0.state.borrow_mut().open.remove(&self.item.id);
            self.approvals.record_decision(self.item, ApprovalWord::Withdrawn, None, "", self.since);
        }
    }
}

impl Approve for Approvals {
    fn ask(&self, call: &ApprovalSubject<'_>) -> AskedPerson {
        let arguments = interface::hash(call.arguments);
        let changed = self.changed_entry(call);
        let definition = match &changed {
            Some((_, hash)) => Some(hash.clone()),
            None => call.interface.map(str::to_owned),
        };
        let changed = changed.map(|(changed, _)| changed);
        let flow = call
            .decision
            .deciding_finding()
            .and_then(|found| Some((found, found.source.as_ref()?.server.clone())));
        let from = flow.as_ref().map(|(_, from)| from.clone());
        let client = call.client.map(str::to_owned);
        let key = match flow {
            Some((found, from)) => {
                let what = FlowContent::of(found, &arguments);
                Key::Flow { client: client.clone(), from, to: call.server.clone(), what }
            }
            None => Key::Call {
                client: client.clone(),
                server: call.server.clone(),
                name: call.name.to_owned(),
                arguments: arguments.clone(),
                interface: definition.clone(),
            },
        };
        let rule = call.decision.verdict.rule.clone();
        let at_once =
            |verdict: Verdict| AskedPerson { verdict: Box::pin(std::future::ready(verdict)), page: None };
        if let Some(known) = self.known_verdict(&key) {
            return at_once(known);
        }
        let patience = self.0.session.facts.policy.mcp.approvals.wait();
        let is_copy = matches!(&key, Key::Flow { what: FlowContent::Copy(_), .. });
        let mut why = call.decision.deciding_finding().map(Finding::with_remedies).unwrap_or_default();
        if changed.is_some() {
            why = changes::with_hint(&why, call.server);
        }
        let named = (call.server.0.as_str(), call.name.to_owned());
        let put = self.put(|id| Item {
            client,
            arguments: display_arguments(&call.arguments.to_value()),
            redacted: display_arguments(&redact::redact(&call.arguments.to_value())),
            arguments_hash: arguments.clone(),
            interface: definition.clone(),
            from: from.map(|from| from.0),
            is_copy,
            is_change: changed.is_some(),
            changed,
            ..Item::new(id, &self.0.session, named, (&rule, why), patience)
        });
        let Some((item, heard)) = put else {
            return at_once(Verdict::new(Outcome::Block, Reason::NobodyToAsk, rule));
        };
        self.record_request(&item, &rule);
        let url = self.0.session.page.get();
        let page = url.map(|url| Page { url: url.replace("{id}", &item.id), id: item.id.clone() });
        AskedPerson { verdict: Box::pin(self.clone().wait(key, item, heard, (rule, patience))), page }
    }
}

/// Whether a person seems to be present, or the session waits for one anyway.
#[must_use]
pub fn can_ask(facts: &Facts) -> bool {
    facts.policy.mcp.approvals.waits_headless()
        || can_ask_remotely(facts)
        || paragraph::is_terminal(&std::io::stderr())
        || paragraph::is_terminal(&std::io::stdin())
}

/// Whether a webhook with a signing secret, or the fleet, can answer.
fn can_ask_remotely(facts: &Facts) -> bool {
    let approvals = &facts.policy.mcp.approvals;
    (approvals.webhook.is_some() && approvals.webhook_secret_env.is_some())
        || (approvals.asks_the_fleet() && key_files::enrolled_host(&facts.context.state).is_some())
}

/// Arguments line by line.
fn display_arguments(arguments: &Value) -> String {
    let mut text = serde_json::to_string_pretty(arguments).unwrap_or_default();
    let end = text.floor_char_boundary(MAX_SHOWN);
    if end < text.len() {
        let more = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("\n… {more} more bytes are not shown"));
    }
    text
}

/// How long a session waits for a line on its socket.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
