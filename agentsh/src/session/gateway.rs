//! `agentsh gateway`: servers for clients on other machines. Every client session has its own server connection, judged
//! and recorded as any other; refusals of the HTTP side are recorded too.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::signal::unix::{SignalKind, signal};

use agentsh_agents::expand;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_gateway::config::{Config, Endpoint};
use agentsh_gateway::{Code, Connector, Gateway, Refusal, ResponseContext, Served, ServerWire};
use agentsh_mcp::pause;
use agentsh_policy::{CallRule, ConditionPlace, Ruled};
use agentsh_store::{Event, escape};

use super::bridges::{self, Bridges};
use super::connection_slots::{Repeats, last_of};
use super::content_scan::ContentScan;
use super::context::Context;
use super::declared::Declaration;
use super::remote::{self, Remote};
use super::run_error::RunError;
use super::server::{ErrorOutput, Server};
use super::{Session, SessionError, SessionOptions};
use agentsh_host::Backend;

/// Recorded length of a method or name.
const MAX_NAME: usize = 200;
/// Buffer between the HTTP side and the proxy.
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Clone, Debug)]
pub struct Request {
    pub config: PathBuf,
    pub backend: Backend,
    pub allow_degraded: bool,
}

/// Serves until SIGTERM or SIGINT; SIGHUP reloads the configuration. Call inside a `LocalSet`.
///
/// # Errors
/// An invalid configuration, or a session that cannot be opened.
pub async fn run(request: Request) -> Result<u8, RunError> {
    let refused = |error: &dyn std::fmt::Display| RunError::Refused(error.to_string());
    let (context, project_shown) = Context::find_for_server().map_err(SessionError::from)?;
    let config = Config::load(&request.config).map_err(|error| refused(&error))?;
    let mut session = Session::open(
        context,
        SessionOptions {
            verb: "gateway",
            command: &["--config".to_owned(), request.config.display().to_string()],
            agent: "gateway",
            policy: config.policy.clone(),
            backend: request.backend,
            allow_degraded: request.allow_degraded,
            project_shown,
            ..SessionOptions::default()
        },
    )
    .await?;
    session.narrow(|policy| policy.mcp.content.at_gateway())?;
    let session = Rc::new(session);
    if let Some(page) = &config.approvals_page {
        // Set once, before any question.
        let _ = session.live.people.page.set(page.clone());
    }
    session.live.agent.has_neighbours.set(config.endpoints.len() > 1);
    ContentScan::warm_up();
    let bridges = Bridges::new(Rc::clone(&session), BTreeMap::new());
    let wanted_headers = wanted_headers(&session.facts.policy.mcp.rules);
    let bridges = if wanted_headers.is_some() { bridges.with_callers() } else { bridges }.with_policy();
    let bridges =
        bridges.map_err(|source| RunError::Io { doing: "make a key", source })?.with_classifier()?;
    let file = request.config.display().to_string();
    let carrier = Rc::new(Carrier {
        wanted_headers,
        session: Rc::clone(&session),
        bridges: Rc::new(bridges),
        file,
        refusals: RefCell::default(),
    });
    let gateway =
        Gateway::new(config, Rc::clone(&carrier) as Rc<dyn Connector>).map_err(|error| refused(&error))?;
    let listener = gateway.bind().await.map_err(|error| refused(&error))?;
    let Config { listen, endpoints, .. } = &*gateway.config();
    session.record.note(&format!("gateway: listening on {listen}, {} endpoints", endpoints.len()));
    let signals = signals(&gateway, &session, &request.config)?;
    gateway.serve(listener).await;
    signals.abort();
    carrier.bridges.wait_until_drained().await?;
    carrier.finish();
    session.close(0).await?;
    Ok(0)
}

/// Handles signals until the task is aborted.
fn signals(
    gateway: &Rc<Gateway>,
    session: &Rc<Session>,
    file: &Path,
) -> Result<tokio::task::JoinHandle<()>, RunError> {
    let listen = |kind| signal(kind).map_err(|source| RunError::Io { doing: "listen for signals", source });
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let (gateway, session, file) = (Rc::clone(gateway), Rc::clone(session), file.to_owned());
    Ok(agentsh_base::task::spawn_local(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                _ = hang_up.recv() => {
                    let read = Config::load(&file).map_err(|error| error.to_string());
                    let done = read.and_then(|config| gateway.reload(config).map_err(|error| error.to_string()));
                    session.record.note(&match done {
                        Ok(()) => "gateway: reloaded the configuration".to_owned(),
                        Err(why) => format!("gateway: kept the old configuration: {}", escape::line(&why)),
                    });
                }
            }
        }
        gateway.drain();
    }))
}

/// The headers that rules name; None: no rule is about the client.
fn wanted_headers(rules: &[Ruled<CallRule>]) -> Option<Vec<String>> {
    let named: BTreeSet<&str> = rules.iter().flat_map(|rule| headers(&rule.value)).collect();
    let is_wanted = rules.iter().any(|rule| is_about_client(&rule.value));
    is_wanted.then(|| named.into_iter().map(str::to_owned).collect())
}

fn headers(rule: &CallRule) -> impl Iterator<Item = &str> {
    rule.when.iter().filter_map(|condition| match &condition.place {
        ConditionPlace::Header(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Whether a rule is about the client's network or a header.
pub(super) fn is_about_client(rule: &CallRule) -> bool {
    !rule.from.is_empty() || !rule.not_from.is_empty() || headers(rule).next().is_some()
}

/// Connects clients to the session's proxy.
struct Carrier {
    session: Rc<Session>,
    bridges: Rc<Bridges>,
    file: String,
    /// Headers that rules name; None: no rule is about the client.
    wanted_headers: Option<Vec<String>>,
    /// Counted by endpoint and code, because anybody can cause any number of refusals.
    refusals: RefCell<BTreeMap<(String, Code), Repeats>>,
}

impl Connector for Carrier {
    fn connect(&self, endpoint: &Endpoint, who: &str) -> ServerWire {
        let (ours, theirs) = tokio::io::duplex(BUFFER_BYTES);
        let (told, pauses) = pause::pauses();
        let (input, output) = tokio::io::split(theirs);
        let (bridges, session) = (Rc::clone(&self.bridges), Rc::clone(&self.session));
        let id = ServerId(endpoint.id.clone());
        let place = Some(format!("{}, for {who}", self.file));
        let client = Some(Rc::from(who));
        match (&endpoint.url, &endpoint.command) {
            (Some(url), _) => {
                let lines = endpoint.headers.iter().map(|(name, value)| format!("{name}: {value}"));
                let headers = lines.map(|line| remote::header(&line, &session.facts.context.env)).collect();
                let declaration = remote::Declaration {
                    id: id.clone(),
                    url: url.clone(),
                    headers,
                    from_user: true,
                    place,
                    is_configured: false,
                };
                agentsh_base::task::spawn_local(async move {
                    let server = Remote::new(session, declaration).with_pauses(told);
                    bridges.proxy(client, input, output, server, id, bridges::HTTP).await;
                });
            }
            (None, command) => {
                let env = &session.facts.context.env;
                let filled = |(name, value): (&String, &String)| {
                    Some((name.clone(), expand::expand_in_session(value, env).ok()?))
                };
                let declaration = Declaration {
                    id: id.clone(),
                    command: command.clone().unwrap_or_default(),
                    args: endpoint.args.clone(),
                    env: endpoint.env.iter().filter_map(filled).collect(),
                    cwd: endpoint.cwd.clone(),
                    from_user: true,
                    agreed: false,
                    place,
                    id_is_derived: false,
                };
                agentsh_base::task::spawn_local(async move {
                    let server = Server::new(session, declaration, ErrorOutput::Shown);
                    bridges.proxy(client, input, output, server, id, bridges::STDIO).await;
                });
            }
        }
        ServerWire { lines: ours, pauses }
    }

    fn wanted_headers(&self) -> Option<&[String]> {
        self.wanted_headers.as_deref()
    }

    fn record_refusal(&self, answered: &ResponseContext<'_>, refusal: &Refusal) {
        let ResponseContext { endpoint, who, peer, log_id, .. } = *answered;
        let mut refusals = self.refusals.borrow_mut();
        let Some(count) =
            refusals.entry((endpoint.to_owned(), refusal.code)).or_default().count_and_take_due()
        else {
            return;
        };
        let who = if who.is_empty() { String::new() } else { format!(", key '{who}'") };
        self.record(
            endpoint,
            refusal.code,
            format!("{}: from {peer}{who}{}; log {log_id}", refusal.why, last_of(count)),
        );
    }

    fn record_answer(&self, answered: &ResponseContext<'_>, served: &Served) {
        self.session.record.journal.record(Event::GatewayAnswered {
            server_id: ServerId(answered.endpoint.to_owned()),
            key: answered.who.to_owned(),
            peer: answered.peer.to_string(),
            log_id: answered.log_id.to_owned(),
            trace_id: answered.trace_id.to_owned(),
            method: served.method.chars().take(MAX_NAME).collect(),
            name: served.name.as_ref().map(|name| name.chars().take(MAX_NAME).collect()),
            jsonrpc_id: served.id.clone(),
            status: answered.status,
            code: answered.code.map(str::to_owned),
            after_ms: u64::try_from(answered.after.as_millis()).unwrap_or(u64::MAX),
        });
    }

    fn advisories(&self, endpoint: &str) -> Option<(u64, String)> {
        let about =
            self.session.live.servers.advised.borrow().get(&ServerId(endpoint.to_owned())).cloned()?;
        let about: serde_json::Value = serde_json::from_str(&about).ok()?;
        Some((about["active"].as_u64()?, about["highest"].as_str()?.to_owned()))
    }
}

impl Carrier {
    fn record(&self, endpoint: &str, code: Code, detail: String) {
        self.session.record.journal.record(Event::McpServerRefused {
            server_id: ServerId(endpoint.to_owned()),
            reason: code.as_str().to_ascii_lowercase().replace('_', "-"),
            detail,
            rule: RuleRef::default_rule("gateway"),
        });
    }

    /// Records the remaining counts.
    fn finish(&self) {
        for ((endpoint, code), repeats) in self.refusals.take() {
            let Some(rest) = repeats.unreported_count() else { continue };
            self.record(&endpoint, code, format!("{rest} further requests"));
        }
    }
}
