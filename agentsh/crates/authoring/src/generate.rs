//! `agentsh policy generate SESSION`: the policy that a session would have needed, from its journal: files, servers
//! and tools with the hashes of their definitions, hosts, ports of this machine. Refused tools and hosts are comments.

mod cross_server;
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use agentsh_base::types::{ServerId, ToolId};
use agentsh_policy::{PathContext, allow_entry};
use agentsh_store::words::Action;
use agentsh_store::{
    Event, EventFilter, Offered, PinStore, Reader, Record, StoreError, WhichInterface, escape,
};
use agentsh_terminal::output::{Context, Failure, OK};
use cross_server::CrossServerUse;

/// Events of a session that are looked at, the newest ones.
const MAX_EVENTS: u64 = 200_000;

/// How often something happened, and when.
#[derive(Clone, Copy, Debug)]
struct Occurrences {
    count: u64,
    first: Timestamp,
    last: Timestamp,
}

/// A tool as the session knew it.
#[derive(Clone, Debug, Default)]
struct Tool {
    hash: Option<String>,
    allowed: Option<Occurrences>,
    /// With the reason of the last refusal.
    refused: Option<(Occurrences, String)>,
}

/// The observations of a session.
#[derive(Debug, Default)]
struct Observed {
    tools: BTreeMap<(ServerId, String), Tool>,
    servers: BTreeSet<ServerId>,
    /// Hosts and ports by who asked; None: the agent.
    hosts: BTreeMap<Option<ServerId>, BTreeMap<(String, u16), Occurrences>>,
    loopback: BTreeMap<Option<ServerId>, BTreeSet<u16>>,
    refused_hosts: BTreeMap<(Option<ServerId>, String, u16), (u64, String)>,
    together: CrossServerUse,
    files: files::Files,
    project: PathBuf,
}

/// Prints the policy, or writes it into a new file.
pub async fn generate(which: &str, file: Option<&Path>, out: &mut dyn Write) -> Result<u8, Failure> {
    let text = of_session(&Context::of_process()?.state_dir, which).await?;
    match file {
        None => write!(out, "{text}")?,
        Some(file) => write_new(file, &text).map_err(Failure::Usage)?,
    }
    Ok(OK)
}

/// The policy that a session needed.
///
/// # Errors
/// When there is no such session, or its record cannot be read.
pub async fn of_session(state: &Path, which: &str) -> Result<String, StoreError> {
    let mut reader = Reader::open(state).await?.ok_or(StoreError::NoSession)?;
    let session = reader.session(which).await?;
    let filter = EventFilter { session: Some(session), limit: MAX_EVENTS, ..EventFilter::default() };
    let records = reader.events(&filter).await?;
    let mut observed = Observed::default();
    records.iter().for_each(|record| observed.add(record));
    let tools = WhichInterface { kind: Some(Offered::Tool), ..WhichInterface::default() };
    let (pins, _) = PinStore::new(state).interfaces(tools).await?;
    observed.define(pins.into_iter().filter_map(|pin| {
        Some((ToolId { server: pin.server_id, tool: pin.name }, (pin.hash, pin.definition?)))
    }));
    let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"));
    let paths = PathContext { home, project: std::mem::take(&mut observed.project) };
    Ok(observed.policy(&session.to_string(), &paths, records.len() as u64 == MAX_EVENTS))
}

/// An existing policy is never overwritten.
///
/// # Errors
/// The path and why.
pub fn write_new(file: &Path, text: &str) -> Result<(), String> {
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = made.and_then(|mut made| made.write_all(text.as_bytes()));
    written.map_err(|error| format!("cannot write '{}': {error}", file.display()))
}

impl Occurrences {
    fn more(seen: &mut Option<Self>, time: Timestamp) {
        match seen {
            Some(seen) => {
                seen.count += 1;
                seen.last = time;
            }
            None => *seen = Some(Self { count: 1, first: time, last: time }),
        }
    }

    /// `3 calls (10:30:17 - 10:31:02)`.
    fn text(&self, what: &str) -> String {
        let clock = |time: Timestamp| time.strftime("%H:%M:%SZ").to_string();
        let plural = if self.count == 1 { "" } else { "s" };
        let times = if self.first == self.last {
            clock(self.first)
        } else {
            format!("{} - {}", clock(self.first), clock(self.last))
        };
        format!("{} {what}{plural} ({times})", self.count)
    }
}

impl Observed {
    fn add(&mut self, record: &Record) {
        let Some(event) = &record.event else { return };
        self.files.add(event, record.time);
        match event {
            Event::SessionStarted { project, .. } => self.project = PathBuf::from(project),
            Event::McpToolSeen { server_id, tool_name, tool_hash, .. } => {
                self.servers.insert(server_id.clone());
                // Only how many further ones there are.
                if tool_hash.is_empty() {
                    return;
                }
                self.together.list(ToolId { server: server_id.clone(), tool: tool_name.clone() });
                self.tool(server_id, tool_name).hash = Some(tool_hash.clone());
            }
            Event::McpToolChanged { server_id, tool_name, new_hash, .. } => {
                self.tool(server_id, tool_name).hash = Some(new_hash.clone());
            }
            Event::McpToolCallIntercepted { server_id, tool_name, tool_hash, action, reason, .. } => {
                let tool = self.tool(server_id, tool_name);
                tool.hash = tool_hash.clone().or(tool.hash.take());
                if *action == Action::Block {
                    let mut seen = tool.refused.take().map(|(seen, _)| seen);
                    Occurrences::more(&mut seen, record.time);
                    tool.refused = seen.map(|seen| (seen, reason.clone()));
                } else if self.servers.contains(server_id) {
                    let tool = self.tool(server_id, tool_name);
                    Occurrences::more(&mut tool.allowed, record.time);
                    self.together.call(ToolId { server: server_id.clone(), tool: tool_name.clone() });
                }
            }
            Event::ProcessStarted { server_id: Some(server_id), .. } => {
                self.servers.insert(server_id.clone());
            }
            // The model of an agent and its registries are found again at each start.
            Event::McpNetworkConnection {
                server_id,
                name,
                address,
                port,
                action: Action::Allow,
                rule,
                ..
            } if rule.file != "agent" && !rule.id.starts_with("registry of ") => {
                let host = name.clone().or_else(|| address.clone()).unwrap_or_default();
                let is_local = host == "localhost"
                    || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
                if is_local {
                    self.loopback.entry(server_id.clone()).or_default().insert(*port);
                    return;
                }
                let hosts = self.hosts.entry(server_id.clone()).or_default();
                let mut seen = hosts.remove(&(host.clone(), *port));
                Occurrences::more(&mut seen, record.time);
                hosts.extend(seen.map(|seen| ((host, *port), seen)));
            }
            Event::NetConnectBlocked { server_id, name, address, port, reason, count, .. } => {
                let host = name.clone().or_else(|| address.clone()).unwrap_or_default();
                let entry = self.refused_hosts.entry((server_id.clone(), host, *port)).or_default();
                *entry = (entry.0.saturating_add(*count), reason.clone());
            }
            _ => {}
        }
    }

    /// Adds the definitions of the tools that the session saw.
    fn define(&mut self, definitions: impl Iterator<Item = (ToolId, (String, String))>) {
        for (id, (hash, definition)) in definitions {
            let seen = self.tools.get(&(id.server.clone(), id.tool.clone()));
            if seen.is_some_and(|seen| seen.hash.as_ref() == Some(&hash)) {
                self.together.definitions.insert(id, definition);
            }
        }
    }

    fn tool(&mut self, server: &ServerId, name: &str) -> &mut Tool {
        self.tools.entry((server.clone(), name.to_owned())).or_default()
    }

    fn policy(&self, session: &str, paths: &PathContext, is_cut: bool) -> String {
        let mut text = format!(
            "# What session {session} needed. Read it before you use it: replace your own policy with it, or pass it with\n\
             # `agentsh run --policy FILE`. agentsh does not record which files a program opened: `filesystem` lists what was\n\
             # granted, and what was refused because no rule named it. Remove what it does not need.\n"
        );
        if is_cut {
            let _infallible =
                writeln!(text, "# The session was long: only its last {MAX_EVENTS} events were examined.");
        }
        text.push_str("version: 1\n");
        self.agent(paths, &mut text);
        text.push_str("sandbox:\n  mcp:\n    enforce_policy: true\n");
        self.servers(&mut text);
        self.tools(&mut text);
        self.of_servers(paths, &mut text);
        text.push_str("    version_pinning: {enabled: true, on_change: block}\n");
        if !self.servers.is_empty() {
            text.push_str(&self.together.section());
        }
        self.write_refusals(&mut text);
        self.closed_files(paths, &mut text);
        text
    }

    fn agent(&self, paths: &PathContext, text: &mut String) {
        let (lists, files) = (self.network(None), self.files.entries(&None, paths));
        if lists.is_empty() && files.is_empty() {
            return;
        }
        text.push_str("agent:\n");
        files.write(2, text);
        if lists.is_empty() {
            return;
        }
        text.push_str("  network:\n");
        for (list, entries) in lists {
            let _infallible = writeln!(text, "    {list}:\n      replace:");
            for (entry, note) in entries {
                let _infallible = writeln!(text, "        - {entry}{note}");
            }
        }
    }

    /// The lists of `network` for who asked, with their entries and a note on each.
    fn network(&self, who: Option<&ServerId>) -> Vec<(&'static str, Vec<(String, String)>)> {
        let who = who.cloned();
        let hosts = self.hosts.get(&who).into_iter().flatten();
        let hosts: Vec<_> = hosts
            .filter_map(|((host, port), seen)| {
                Some((allow_entry(host, *port)?, format!("  # {}", seen.text("connection"))))
            })
            .collect();
        let ports = self.loopback.get(&who).into_iter().flatten();
        let ports: Vec<_> = ports.map(|port| (port.to_string(), String::new())).collect();
        [("allow", hosts), ("loopback", ports)].into_iter().filter(|(_, list)| !list.is_empty()).collect()
    }

    fn servers(&self, text: &mut String) {
        text.push_str("    server_policy: allowlist\n    allowed_servers:\n      replace:\n");
        for server in &self.servers {
            let _infallible = writeln!(text, "        - {{id: {}}}", quoted(&server.0));
        }
        if self.servers.is_empty() {
            // No server ran: none is needed.
            text.truncate(text.trim_end().len() - "replace:".len());
            text.push_str("replace: []\n");
        }
    }

    fn tools(&self, text: &mut String) {
        text.push_str("    tool_policy: allowlist\n    allowed_tools:\n      replace:");
        let used: Vec<_> = self.tools.iter().filter(|(_, tool)| tool.allowed.is_some()).collect();
        text.push_str(if used.is_empty() { " []\n" } else { "\n" });
        for ((server, name), tool) in used {
            let Some(seen) = tool.allowed else { continue };
            let hash = tool
                .hash
                .as_ref()
                .map(|hash| format!(", content_hash: {}", quoted(hash)))
                .unwrap_or_default();
            let _infallible = writeln!(
                text,
                "        # Provenance: {}\n        - {{server: {}, tool: {}{hash}}}",
                seen.text("call"),
                quoted(&server.0),
                quoted(name)
            );
        }
        let unused: Vec<_> =
            self.tools.iter().filter(|(_, tool)| tool.allowed.is_none() && tool.refused.is_none()).collect();
        if !unused.is_empty() {
            text.push_str("      # --- Offered and never called ---\n");
        }
        for ((server, name), _) in unused {
            let _infallible =
                writeln!(text, "      # - {{server: {}, tool: {}}}", quoted(&server.0), quoted(name));
        }
    }

    fn of_servers(&self, paths: &PathContext, text: &mut String) {
        let ids: BTreeSet<&ServerId> = self.servers.iter().chain(self.files.servers()).collect();
        let with = ids
            .into_iter()
            .map(|id| (id, self.network(Some(id)), self.files.entries(&Some(id.clone()), paths)));
        let with: Vec<_> = with.filter(|(_, lists, files)| !lists.is_empty() || !files.is_empty()).collect();
        if with.is_empty() {
            return;
        }
        text.push_str("    servers:\n");
        for (id, lists, files) in with {
            let _infallible = writeln!(text, "      - id: {}", quoted(&id.0));
            files.write(8, text);
            if !lists.is_empty() {
                text.push_str("        network:\n");
            }
            for (list, entries) in lists {
                let _infallible = writeln!(text, "          {list}:");
                for (entry, note) in entries {
                    let _infallible = writeln!(text, "            - {entry}{note}");
                }
            }
        }
    }

    /// Comments: files that no entry opens, or that a person has to allow.
    fn closed_files(&self, paths: &PathContext, text: &mut String) {
        let mut closed = String::new();
        self.files.entries(&None, paths).write_comments("agent", &mut closed);
        for id in self.files.servers() {
            let who = format!("server {}", quoted(&id.0));
            self.files.entries(&Some(id.clone()), paths).write_comments(&who, &mut closed);
        }
        if !closed.is_empty() {
            text.push_str("# --- Files that stay closed ---\n");
            text.push_str(&closed);
        }
    }

    /// Comments: refusals that a person may allow.
    fn write_refusals(&self, text: &mut String) {
        let tools: Vec<_> =
            self.tools.iter().filter_map(|(name, tool)| Some((name, tool.refused.as_ref()?))).collect();
        if !tools.is_empty() {
            text.push_str("    # --- Blocked tools (move to allowed_tools to allow) ---\n");
        }
        for ((server, name), (seen, reason)) in tools {
            let _infallible = writeln!(
                text,
                "    # - {{server: {}, tool: {}}}  # {}, {}",
                quoted(&server.0),
                quoted(name),
                seen.text("refusal"),
                escape::line(reason)
            );
        }
        if !self.refused_hosts.is_empty() {
            text.push_str("# --- Refused connections (move to a network.allow to allow) ---\n");
        }
        for ((server, host, port), (count, reason)) in &self.refused_hosts {
            let who =
                server.as_ref().map_or_else(|| "agent".to_owned(), |id| format!("server {}", quoted(&id.0)));
            let entry = allow_entry(host, *port).unwrap_or_else(|| quoted(host));
            let _infallible = writeln!(text, "# {who}: {entry}  # {count} times, {}", escape::line(reason));
        }
    }
}

/// Quoted on one line, for YAML and JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(escape::line(text).into_owned()).to_string()
}
