//! The facts of a session for a receipt: only names and numbers that others may see.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use url::Url;

use agentsh_base::types::{RuleRef, ServerId, SessionId};
use agentsh_host::review;
use agentsh_receipt::statement::{
    Approval, Binding, Chain, Host, Included, Layer, Layered, Model, Organisation, Predicate, Program,
    Refusal, Server, Session, Tool,
};
use agentsh_store::raw::{FIRST_LINK, Raw};
use agentsh_store::words::{Action, ConnectionState};
use agentsh_store::{Event, Reader};
use agentsh_terminal::output::Failure;

/// Rows read at a time.
const PAGE: u32 = 256;

/// A session as its record has it.
pub struct SessionFacts {
    pub predicate: Predicate,
    /// directory in which the run was started.
    pub project: String,
    /// The commits of the project at the start and the end.
    pub heads: (Option<String>, Option<String>),
    /// Other commits that were checked out in between.
    pub left: Vec<String>,
}

/// The length and the head of a session's chain.
///
/// # Errors
/// A sentence that says which row is not the one that was written.
async fn walk(
    reader: &mut Reader,
    session: SessionId,
    mut visit: impl FnMut(&Raw) -> Result<(), Failure>,
) -> Result<Chain, Failure> {
    let (mut events, mut head) = (0, FIRST_LINK);
    loop {
        let rows = reader.raw_of(session, events, PAGE).await?;
        if rows.is_empty() {
            return Ok(Chain { events, head: format!("sha256:{}", agentsh_base::hex(&head)) });
        }
        for row in rows {
            if events == 0 {
                head = reader.hash_at(row.id - 1).await?.unwrap_or(FIRST_LINK);
            }
            events += 1;
            if row.seq != events || row.hash_behind(&head) != row.hash {
                return Err(Failure::No(format!("event {events} of its record was changed")));
            }
            head = row.hash;
            visit(&row)?;
        }
    }
}

/// Everything of a session that has ended, also parts that are included only on request. The code that writes the receipt fills in
/// who signs, and when.
///
/// # Errors
/// When the record is broken, or not whole.
pub async fn of(reader: &mut Reader, session: SessionId) -> Result<SessionFacts, Failure> {
    let mut fold = Fold::default();
    let record = walk(reader, session, |row| fold.add(row)).await?;
    fold.facts(session, record)
}

#[derive(Default)]
struct Fold {
    session: Option<Session>,
    is_ended: bool,
    project: String,
    heads: (Option<String>, Option<String>),
    left: Vec<String>,
    policy: Vec<Layered>,
    organisation: BTreeSet<Organisation>,
    layers: BTreeSet<Layer>,
    programs: BTreeMap<(Option<String>, String, String), u64>,
    servers: BTreeMap<String, Server>,
    /// The tools of each server, each with the hash of its definition.
    definitions: BTreeMap<String, BTreeMap<String, String>>,
    /// Connections of sandboxes, and how many there were of agentsh.
    hosts: BTreeMap<(String, u16), (BTreeSet<u64>, u64)>,
    tools: BTreeMap<(String, String), (u64, u64)>,
    refusals: BTreeMap<(String, String, String), u64>,
    approvals: BTreeMap<(String, String, String, Option<String>, String), u64>,
    models: BTreeMap<String, (u64, u64, u64)>,
    /// By the word of `--include`.
    included: BTreeMap<(&'static str, String), u64>,
}

impl Fold {
    fn add(&mut self, row: &Raw) -> Result<(), Failure> {
        // These are most of the events of a long session, and none of them is in a receipt.
        if ["mcp_tool_called", "dns_query"].iter().any(|kind| is_of(&row.body, kind)) {
            return Ok(());
        }
        // For a forwarded call only its tool is needed: parsing such rows as events would take most of the time.
        if is_of(&row.body, "mcp_tool_call_intercepted")
            && let Some(facts) =
                row.indexed_fields().filter(|facts| !matches!(facts.action.as_deref(), Some("ask" | "block")))
            && let (Some(server), Some(tool)) = (facts.server_id, facts.tool_name)
        {
            self.tools.entry((server, tool)).or_default().0 += 1;
            return Ok(());
        }
        let event = row.event().ok_or_else(|| {
            Failure::Failed(format!(
                "event {} of its record has a type that this version does not know",
                row.seq
            ))
        })?;
        let time = || row.time.parse().map_err(|_| Failure::No(format!("event {} has no time", row.seq)));
        self.event(event, time)
    }

    fn event(
        &mut self,
        event: Event,
        time: impl FnOnce() -> Result<Timestamp, Failure>,
    ) -> Result<(), Failure> {
        match event {
            Event::SessionStarted { version, verb, agent, project, kernel, policy_layers, head, .. } => {
                let (agent, time) = (agent.first().map_or("", String::as_str), time()?);
                self.session = Some(Session {
                    id: String::new(),
                    version,
                    verb,
                    agent: name_of(agent),
                    kernel,
                    started: time,
                    ended: time,
                    exit_code: 0,
                });
                let layered = |layer: agentsh_store::PolicyLayer| Layered {
                    name: name_of(&layer.file),
                    digest: layer.hash,
                };
                self.policy = policy_layers.into_iter().map(layered).collect();
                (self.project, self.heads.0) = (project, head);
            }
            Event::SessionEnded { exit_code, head, left, .. } => {
                if let Some(session) = &mut self.session {
                    (session.exit_code, session.ended) = (exit_code, time()?);
                }
                (self.is_ended, self.heads.1, self.left) = (true, head, left);
            }
            Event::PolicyBundle { name, version, state, .. } => {
                self.organisation.insert(Organisation { name, version, state: state.to_string() });
            }
            Event::Enforcement { server_id, layer, got, state, .. } => {
                let server = server_id.map(|id| id.0);
                if let ("profile", Some(id), Some((file, digest))) =
                    (layer.as_str(), &server, got.rsplit_once(" sha256:"))
                {
                    self.server(id.clone()).profile =
                        Some(Layered { name: name_of(file), digest: format!("sha256:{digest}") });
                }
                // agentsh connects for a server behind a URL.
                if layer == "remote"
                    && let Ok(url) = Url::parse(&got)
                    && let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default())
                {
                    self.hosts.entry((host.to_owned(), port)).or_default().1 += 1;
                }
                self.layers.insert(Layer { server, layer, state: state.to_string() });
            }
            Event::ProcessStarted { server_id, program, hash, .. } => {
                let server = server_id.map(|id| id.0);
                if let Some(id) = &server {
                    self.server(id.clone());
                }
                *self.programs.entry((server, name_of(&program), hash)).or_default() += 1;
            }
            Event::McpServerBinaryPinned { server_id, .. } => self.pin(server_id, "first-use"),
            Event::McpServerBinaryNotPinned { server_id, .. } => self.pin(server_id, "not-pinned"),
            Event::McpServerBinaryMismatch { server_id, .. } => self.pin(server_id, "changed"),
            Event::McpInterfaceChecked { server_id, hash, verdict, .. } => {
                let server = self.server(server_id.0);
                (server.interface, server.registry) = (Some(hash), Some(verdict.to_string()));
            }
            Event::McpToolSeen { server_id, tool_name, tool_hash: hash, .. }
            | Event::McpToolChanged { server_id, tool_name, new_hash: hash, .. } => {
                self.server(server_id.0.clone());
                self.definitions.entry(server_id.0).or_default().insert(tool_name, hash);
            }
            Event::McpToolCallIntercepted { server_id, tool_name, action, reason, rule, .. } => {
                let (calls, refused) = self.tools.entry((server_id.0, tool_name)).or_default();
                *calls += 1;
                if matches!(action, Action::Ask | Action::Block) {
                    *refused += 1;
                    self.refuse("call", reason, &rule, 1);
                }
            }
            Event::McpServerRefused { reason, rule, .. } => self.refuse("server", reason, &rule, 1),
            Event::McpMessageRejected { reason, .. } => {
                self.refuse("message", reason, &RuleRef::default_rule("wire"), 1);
            }
            Event::NetConnectBlocked { name, address, port, reason, rule, count, .. } => {
                self.refuse("connection", reason, &rule, count);
                let name = name.or(address).unwrap_or_else(|| "unknown".to_owned());
                self.include("addresses", format!("{name}:{port}"), count);
            }
            Event::DnsBlocked { name, reason, rule, count, .. } => {
                self.refuse("name", reason, &rule, count);
                self.include("addresses", name, count);
            }
            Event::CallRefused { what, rule, .. } => self.refuse("system call", what, &rule, 1),
            Event::FileRefused { path, access, rule, .. } => {
                self.include("files", format!("{path} ({access})"), 1);
                self.refuse("file", access, &rule, 1);
            }
            Event::ApprovalRequested { server_id, name, arguments_hash, .. } => {
                self.include("arguments", format!("{server_id}/{name} {arguments_hash}"), 1);
            }
            Event::McpNetworkConnection { name, address, port, connection, state, .. }
                if state != ConnectionState::Failed =>
            {
                let name = name.or(address).unwrap_or_else(|| "unknown".to_owned());
                self.hosts.entry((name, port)).or_default().0.insert(connection);
            }
            Event::ApprovalDecided { server_id, name, word, scope, by, .. } => {
                let scope = scope.map(|scope| scope.to_string());
                *self.approvals.entry((server_id.0, name, word.to_string(), scope, by)).or_default() += 1;
            }
            Event::ModelCalled { model, input_tokens, output_tokens, .. } => {
                let (answers, input, output) = self.models.entry(model).or_default();
                *answers += 1;
                *input = input.saturating_add(input_tokens);
                *output = output.saturating_add(output_tokens);
            }
            _ => {}
        }
        Ok(())
    }

    fn server(&mut self, id: String) -> &mut Server {
        let known = || Server { id: id.clone(), pin: "known".to_owned(), ..Server::default() };
        self.servers.entry(id.clone()).or_insert_with(known)
    }

    fn pin(&mut self, id: ServerId, word: &str) {
        self.server(id.0).pin = word.to_owned();
    }

    fn refuse(&mut self, what: &str, reason: String, rule: &RuleRef, count: u64) {
        let rule = RuleRef { file: name_of(&rule.file), ..rule.clone() }.to_string();
        let counted = self.refusals.entry((what.to_owned(), reason, rule)).or_default();
        *counted = counted.saturating_add(count);
    }

    fn include(&mut self, what: &'static str, name: String, count: u64) {
        let counted = self.included.entry((what, name)).or_default();
        *counted = counted.saturating_add(count);
    }

    fn facts(mut self, id: SessionId, record: Chain) -> Result<SessionFacts, Failure> {
        // A server that answered and of which no program was started here, one behind a URL, has no pin. Where the pin changed, nothing
        // was started and no call reached it.
        let mut own: BTreeSet<_> = self.programs.keys().filter_map(|(server, ..)| server.clone()).collect();
        let changed =
            self.servers.values().filter(|server| server.pin == "changed" && !own.contains(&server.id));
        let stopped: BTreeSet<_> = changed.map(|server| server.id.clone()).collect();
        for (_, (calls, refused)) in self.tools.iter_mut().filter(|((server, _), _)| stopped.contains(server))
        {
            *refused = *calls;
        }
        own.extend(stopped);
        let answered = self.tools.keys().map(|(server, _)| server).chain(self.definitions.keys());
        for server in answered.filter(|server| !own.contains(*server)).cloned().collect::<Vec<_>>() {
            self.pin(ServerId(server), "not-pinned");
        }
        for (server, tools) in std::mem::take(&mut self.definitions) {
            // Under no name: some that were only counted.
            if !tools.contains_key("") {
                let list: String = tools.iter().map(|(tool, hash)| format!("{hash} {tool}\n")).collect();
                self.server(server).definitions = Some(format!("sha256:{}", review::hash(list.as_bytes())?));
            }
        }
        let session = self.session.filter(|_| self.is_ended).ok_or_else(|| {
            Failure::No(format!("session {id} has not ended, or was killed: its record is incomplete"))
        })?;
        let hosts = self.hosts.into_iter();
        let programs = self.programs.into_iter();
        let tools = self.tools.into_iter();
        let refusals = self.refusals.into_iter();
        let approvals = self.approvals.into_iter();
        let models = self.models.into_iter();
        let included = self.included.into_iter();
        let predicate = Predicate {
            agentsh: env!("CARGO_PKG_VERSION").to_owned(),
            issued: session.ended,
            binding: Binding::Record,
            session: Session { id: id.to_string(), ..session },
            record,
            policy: self.policy,
            organisation: self.organisation.into_iter().collect(),
            layers: self.layers.into_iter().collect(),
            programs: programs
                .map(|((server, name, digest), starts)| Program { server, name, digest, starts })
                .collect(),
            servers: self.servers.into_values().collect(),
            hosts: hosts
                .map(|((name, port), (all, own))| Host { name, port, connections: all.len() as u64 + own })
                .collect(),
            tools: tools
                .map(|((server, tool), (calls, refused))| Tool { server, tool, calls, refused })
                .collect(),
            refusals: refusals
                .map(|((what, reason, rule), count)| Refusal { what, reason, rule, count })
                .collect(),
            approvals: approvals
                .map(|((server, name, word, scope, by), count)| Approval {
                    server,
                    name,
                    word,
                    scope,
                    by,
                    count,
                })
                .collect(),
            models: models
                .map(|(model, (answers, input_tokens, output_tokens))| Model {
                    model,
                    answers,
                    input_tokens,
                    output_tokens,
                })
                .collect(),
            removed: Vec::new(),
            unattributed: None,
            included: included
                .map(|((what, name), count)| Included { what: what.to_owned(), name, count })
                .collect(),
        };
        Ok(SessionFacts { predicate, project: self.project, heads: self.heads, left: self.left })
    }
}

/// Whether the body of an event has this type, which is its first member.
fn is_of(body: &str, kind: &str) -> bool {
    body.strip_prefix(r#"{"type":""#)
        .and_then(|rest| rest.strip_prefix(kind))
        .is_some_and(|rest| rest.starts_with('"'))
}

/// The last name of a path: the others may reveal whose home it is.
fn name_of(path: &str) -> String {
    if path.starts_with('/') {
        Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::time::{Duration, Instant};

    use agentsh_store::testing;

    use super::*;

    #[tokio::test]
    async fn a_server_has_the_hash_of_the_tools_that_it_listed_last() {
        let dir = testing::one_session().await;
        let mut reader = Reader::open(dir.path()).await.unwrap().unwrap();
        let facts = of(&mut reader, testing::session(1)).await.map_err(|why| why.to_string()).unwrap();
        let server = facts.predicate.servers.iter().find(|server| server.id == "fs").unwrap();
        let list = review::hash("sha256:55 read\n".as_bytes()).unwrap();
        assert_eq!((&*server.pin, server.definitions.clone()), ("first-use", Some(format!("sha256:{list}"))));
    }

    /// The best time for the facts of a session with this many events.
    async fn taken(events: usize) -> Duration {
        let dir = tempfile::tempdir().unwrap();
        let mut all = testing::events();
        let last = all.pop().unwrap();
        let between = all[1..].to_vec();
        all.extend(between.iter().cycle().take(events - all.len() - 1).cloned());
        all.push(last);
        testing::write(dir.path(), testing::session(1), all).await;
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let mut reader = Reader::open(dir.path()).await.unwrap().unwrap();
            let start = Instant::now();
            let facts = of(&mut reader, testing::session(1)).await.map_err(|why| why.to_string()).unwrap();
            best = best.min(start.elapsed());
            assert_eq!(facts.predicate.record.events, events as u64);
        }
        best
    }

    /// Eight times as many take some eight times as long; were it a matter of squares, 64 times.
    #[tokio::test]
    async fn facts_take_time_in_proportion_to_the_events() {
        let (few, many) = (taken(1_250).await, taken(10_000).await);
        assert!(many < few * 24, "1 250 events take {few:?}, 10 000 take {many:?}");
    }
}
