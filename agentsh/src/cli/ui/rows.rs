//! Records as lines of a timeline: the event, the verdict, the rule, and the change that would allow it.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde_json::Value;

use agentsh_base::remedy;
use agentsh_base::types::{RuleRef, ServerId, SessionId};
use agentsh_policy::PathContext;
use agentsh_policy::{Policy, Question};
use agentsh_store::words::{
    Action, ApprovalWord, ConnectionState, ExitCause, GuardChange, InterfaceWord, LoginWord,
};
use agentsh_store::{Event, Page as Records, Reader, Record, StoreError};
use agentsh_web::{Row, Tone, Word, merge_equal_rows};

/// Types that a timeline leaves out: they stand elsewhere on the page, or belong to another line.
pub(in crate::cli) const LEFT_OUT: [&str; 5] =
    ["mcp_tool_called", "mcp_tool_seen", "enforcement", "mcp_server_env_filtered", "dns_query"];

/// Sessions whose agents are looked up: the newest.
const MAX_SESSIONS: u32 = 200;

/// The server id of questions about the agent itself.
pub(super) const AGENT: &str = "agent";

/// Who works in a session, and where.
pub struct SessionOwner {
    pub agent: String,
    pub project: String,
}

impl SessionOwner {
    /// As the first event of a session says it.
    pub fn of(verb: &str, command: &[String], project: &str) -> Self {
        let program = command.first().and_then(|program| Path::new(program).file_name());
        let agent = match (verb, program) {
            ("run", Some(program)) => program.to_string_lossy().into_owned(),
            ("" | "run" | "demo", _) => AGENT.to_owned(),
            _ => "client".to_owned(),
        };
        Self { agent, project: project.to_owned() }
    }

    /// Of the newest sessions.
    pub async fn newest_sessions(reader: &mut Reader) -> Result<BTreeMap<SessionId, Self>, StoreError> {
        let wanted = Records { kinds: &["session_started"], limit: MAX_SESSIONS, ..Records::default() };
        let started = reader.page(&wanted).await?.into_iter().filter_map(|record| match record.event {
            Some(Event::SessionStarted { verb, agent, project, .. }) => {
                Some((record.session, Self::of(&verb, &agent, &project)))
            }
            _ => None,
        });
        Ok(started.collect())
    }

    /// Such as `claude in ~/src/shop`.
    pub fn display_text(&self, home: &Path) -> String {
        let project = match Path::new(&self.project).strip_prefix(home) {
            Ok(below) if below.as_os_str().is_empty() => "~".to_owned(),
            Ok(below) => format!("~/{}", below.display()),
            Err(_) => self.project.clone(),
        };
        format!("{} in {project}", self.agent)
    }
}

/// What the lines are made with.
pub struct RowContext<'a> {
    /// The findings of calls, by the record of their verdict.
    pub inputs: &'a BTreeMap<i64, Value>,
    /// The policy in force, which says what would change a refusal.
    pub policy: Option<&'a Policy>,
    pub context: &'a PathContext,
    /// Whose sessions they are.
    pub known: &'a BTreeMap<SessionId, SessionOwner>,
    /// Several sessions: each line says of which it is.
    pub names_session: bool,
}

impl RowContext<'_> {
    pub fn rows(&self, records: &[Record]) -> Vec<Row> {
        merge_equal_rows(
            records.iter().map(|record| self.row(record)).collect(),
            !self.names_session,
            Row::is_same,
        )
    }

    fn row(&self, record: &Record) -> Row {
        let mut row = Row {
            seq: record.seq,
            time: if self.names_session {
                with_age(record.time)
            } else {
                local(record.time).strftime("%H:%M:%S%.3f").to_string()
            },
            server: record
                .body
                .get("server_id")
                .and_then(Value::as_str)
                .filter(|server| *server != AGENT || !record.kind.starts_with("approval_"))
                .map(str::to_owned),
            agent: self.known.get(&record.session).map_or(AGENT, |who| &who.agent).to_owned(),
            session: self.names_session.then(|| record.session.to_string()),
            kind: "event",
            what: record.kind.clone(),
            times: 1,
            ..Row::default()
        };
        if let Some(event) = &record.event {
            self.call(&mut row, event);
            server(&mut row, event);
            network(&mut row, event);
            approval(&mut row, event);
            session(&mut row, event);
        }
        // If a command writes the change, the person copies the command.
        row.change = row.change.map(|change| remedy::command(&change).unwrap_or(change));
        if let Some(input) = self.inputs.get(&record.id) {
            row.input = serde_json::to_string_pretty(input).ok();
        }
        row
    }

    fn call(&self, row: &mut Row, event: &Event) {
        match event {
            Event::McpToolCallIntercepted { server_id, tool_name, action, reason, rule, .. } => {
                fill(row, "call", tool_name, action_word(*action), words_of(reason.as_str()));
                row.rule = shown_rule(rule);
                if *action == Action::Block {
                    row.change = self.change(server_id, tool_name, reason, rule);
                }
            }
            Event::McpExfilDetected {
                server_id,
                tool_name,
                action,
                reason,
                rule,
                source_server,
                source_tool,
                destination,
                context,
                detector,
                detail,
                ..
            } => {
                let from = source_server.as_ref().map(|server| {
                    let tool = source_tool.as_ref().map(|tool| format!("/{tool}")).unwrap_or_default();
                    format!(" from {server}{tool}")
                });
                let to = destination.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
                // Records of earlier versions have no sentence.
                let said = match detail.as_str() {
                    "" => format!("{}{}{to}", words_of(reason), from.unwrap_or_default()),
                    detail => detail.to_owned(),
                };
                let detail = format!("{said}, found by {detector}: {context}");
                fill(row, "data", tool_name, action_word(*action), detail);
                row.rule = shown_rule(rule);
                row.change = source_server.as_ref().filter(|_| *action != Action::Allow).map(|from| {
                    let quoted = |id: &ServerId| Value::String(id.0.clone()).to_string();
                    format!(
                        "sandbox: {{mcp: {{exfiltration: {{allow: [{{from: {}, to: {}}}]}}}}}}",
                        quoted(from),
                        quoted(server_id)
                    )
                });
            }
            Event::McpContentDetected {
                tool_name,
                category,
                action,
                reason,
                rule,
                context,
                detector,
                ..
            } => {
                let detail = format!("{category} ({detector}), {}: {context}", words_of(reason.as_str()));
                fill(row, "content", tool_name, action_word(*action), detail);
                row.rule = shown_rule(rule);
            }
            Event::McpToolCallAudited { tool_name, verdict, by, action, after_ms, .. } => {
                let by = by.as_deref().unwrap_or("both auditors");
                let detail = format!("{verdict}, says {by}, after {after_ms} ms");
                fill(row, "audit", tool_name, action_word(*action), detail);
            }
            _ => {}
        }
    }

    /// The piece of policy, or the command, after which a call like this goes on.
    fn change(&self, server: &ServerId, tool: &str, reason: &str, rule: &RuleRef) -> Option<String> {
        match reason {
            "interface-changed" | "interface-not-pinned" | "interface-added" => {
                Some(format!("agentsh mcp pins trust --server {server} --tool '{tool}'"))
            }
            _ if rule.id.contains("denied_") && rule.line > 0 => {
                Some(format!("remove line {} of {}", rule.line, rule.file))
            }
            _ => {
                let asked = Question::Tool(tool.to_owned());
                let answer = self.policy?.ask(Some(server), &asked, self.context);
                answer.change.filter(|_| !answer.allow)
            }
        }
    }
}

fn server(row: &mut Row, event: &Event) {
    match event {
        Event::McpServerRefused { reason, detail, rule, .. } => {
            fill(
                row,
                "server",
                "not started",
                refused_word(),
                format!("{}: {detail}", words_of(reason.as_str())),
            );
            row.rule = shown_rule(rule);
        }
        Event::McpMessageRejected { from, reason, detail, bytes, .. } => {
            let what = format!("message of the {from}");
            fill(
                row,
                "message",
                &what,
                refused_word(),
                format!("{}: {detail} ({bytes} bytes)", words_of(reason.as_str())),
            );
        }
        Event::McpRequestTimedOut { method, after_ms, .. } => {
            fill(row, "message", method, warn("no answer"), format!("after {after_ms} ms"));
        }
        Event::McpServerCrashed { exit_code, pending_calls, restart_in_ms, .. } => {
            let detail = format!(
                "exit status {exit_code}, {pending_calls} calls pending, starts again in {restart_in_ms} ms"
            );
            fill(row, "server", "crashed", warn("crashed"), detail);
        }
        Event::McpToolChanged { tool_name, previous_hash, new_hash, .. } => {
            let detail = format!("was {previous_hash}, is {new_hash}");
            fill(row, "interface", tool_name, warn("changed"), detail);
        }
        Event::McpInterfaceChecked { name, hash, registry, verdict, detail, .. } => {
            let shown = match verdict {
                InterfaceWord::Same
                | InterfaceWord::Registered
                | InterfaceWord::Approved
                | InterfaceWord::Cached => quiet(verdict.as_str()),
                _ => warn(verdict.as_str()),
            };
            fill(row, "registry", name, shown, format!("{registry}: {hash} {detail}"));
        }
        Event::McpToolsListChanged { .. } => {
            fill(row, "interface", "list of tools", warn("changed"), String::new());
        }
        Event::McpServerBinaryMismatch {
            binary_path, expected_hash, actual_hash, action, changed, ..
        } => {
            let detail =
                format!("pinned {expected_hash}, found {actual_hash}; changed: {}", changed.join(", "));
            fill(row, "program", binary_path, action_word(*action), detail);
        }
        Event::McpServerBinaryNotPinned { binary_path, actual_hash, action, .. } => {
            fill(row, "program", binary_path, action_word(*action), format!("not pinned: {actual_hash}"));
        }
        Event::McpServerBinaryPinned { binary_path, hash, files, .. } => {
            fill(row, "program", binary_path, quiet("pinned"), format!("{files} files, {hash}"));
        }
        Event::GatewayAnswered { method, name, key, peer, status, code, log_id, .. } => {
            let state = code.as_ref().map_or_else(|| quiet(&status.to_string()), |code| warn(code));
            let detail = format!("for '{key}' at {peer}, log {log_id}");
            fill(row, "request", name.as_ref().unwrap_or(method), state, detail);
        }
        Event::McpServerUnavailable { method, detail, tool_name, .. } => {
            fill(row, "message", tool_name.as_ref().unwrap_or(method), warn("not delivered"), detail.clone());
        }
        Event::McpAdvisory { kind, id, subject, severity, summary, fixed, action, rule, .. } => {
            let fixed = fixed.as_ref().map(|fixed| format!("; fixed in {fixed}")).unwrap_or_default();
            let detail = format!("{subject} ({kind}, {severity}): {summary}{fixed}");
            fill(row, "advisory", id, action_word(*action), detail);
            row.rule = shown_rule(rule);
        }
        Event::McpClassifierUnavailable { tool_name, detail, action, rule, .. } => {
            fill(row, "classifier", tool_name, action_word(*action), detail.clone());
            row.rule = shown_rule(rule);
        }
        Event::McpServerSuspected { tool_name, hint, detail, .. } => {
            fill(row, "interface", tool_name, warn("less trusted"), format!("{hint}: {detail}"));
        }
        Event::McpResultsForgotten { reason, results, detail, .. } => {
            let what = format!("{results} results");
            fill(
                row,
                "data",
                &what,
                warn("not remembered"),
                format!("{}: {detail}", words_of(reason.as_str())),
            );
        }
        _ => {}
    }
}

fn network(row: &mut Row, event: &Event) {
    match event {
        Event::McpNetworkConnection {
            name,
            address,
            port,
            protocol,
            action,
            state,
            detail,
            rule,
            comm,
            bytes_sent,
            bytes_received,
            ..
        } => {
            let word = match state {
                ConnectionState::Failed => warn("failed"),
                ConnectionState::Open => Word::new("open", Tone::Good),
                ConnectionState::Closed => action_word(*action),
            };
            let by = comm.as_ref().map(|comm| format!(", by {comm}")).unwrap_or_default();
            let mut told = format!("{protocol}{by}");
            if !detail.is_empty() {
                told.push_str(&format!("; {detail}"));
            }
            fill(row, "connection", &host(name.as_ref(), address.as_ref(), *port), word, told);
            row.amounts = vec![(*bytes_sent, bytes, "sent"), (*bytes_received, bytes, "received")];
            row.rule = shown_rule(rule);
        }
        Event::NetConnectBlocked {
            name, address, port, reason, detail, rule, change, count, comm, ..
        } => {
            let by = comm.as_ref().map(|comm| format!(", by {comm}")).unwrap_or_default();
            let often = if *count > 1 { format!(", {count} times") } else { String::new() };
            let about = if detail.is_empty() { String::new() } else { format!(": {detail}") };
            let told = format!("{}{about}{often}{by}", words_of(reason.as_str()));
            fill(row, "connection", &host(name.as_ref(), address.as_ref(), *port), refused_word(), told);
            (row.rule, row.change) = (shown_rule(rule), change.clone());
        }
        Event::DnsBlocked { name, reason, rule, change, count, .. } => {
            let often = if *count > 1 { format!(", {count} times") } else { String::new() };
            fill(row, "name", name, refused_word(), format!("{}{often}", words_of(reason.as_str())));
            (row.rule, row.change) = (shown_rule(rule), change.clone());
        }
        Event::SshKeyUsed { purpose, destination, user, rule, key } => {
            let by = if user.is_empty() { key.clone() } else { format!("as {user}, {key}") };
            fill(row, "ssh key", destination, Word::new("used", Tone::Good), format!("{purpose}, {by}"));
            row.rule = shown_rule(rule);
        }
        Event::SshKeyRefused { key, detail, rule, .. } => {
            fill(row, "ssh key", key, refused_word(), detail.clone());
            row.rule = shown_rule(rule);
        }
        _ => {}
    }
}

fn approval(row: &mut Row, event: &Event) {
    match event {
        Event::ApprovalRequested { name, rule, why, approval, .. } => {
            fill(row, "approval", name, warn("asked"), format!("{approval}: {why}"));
            row.rule = shown_rule(rule);
        }
        Event::ApprovalDecided { name, word, scope, by, after_ms, approval, .. } => {
            let tone = if *word == ApprovalWord::Approved { Tone::Good } else { Tone::Bad };
            let scope = scope.map(|scope| format!(", {scope}")).unwrap_or_default();
            let by = if by.is_empty() { String::new() } else { format!(", by {by}") };
            let told = format!(
                "{approval}{scope}{by}, after {:.1} s",
                std::time::Duration::from_millis(*after_ms).as_secs_f64()
            );
            fill(row, "approval", name, Word::new(word.as_str(), tone), told);
        }
        _ => {}
    }
}

fn session(row: &mut Row, event: &Event) {
    match event {
        Event::SessionStarted { verb, agent, .. } => {
            fill(row, "session", &agent.join(" "), quiet("started"), format!("agentsh {verb}"));
        }
        Event::SessionEnded { exit_code, .. } => {
            fill(row, "session", &format!("exit status {exit_code}"), quiet("ended"), String::new());
        }
        Event::ProcessStarted { program, args, .. } => {
            fill(row, "process", program, quiet("started"), args.join(" "));
        }
        Event::ProcessExited { exit_code, cause, .. } => {
            let word = if *cause == ExitCause::Exited { quiet("exited") } else { warn(cause.as_str()) };
            fill(row, "process", &format!("exit status {exit_code}"), word, String::new());
        }
        Event::GuardChanged { path, what, detail, .. } => {
            let is_refused = *what == GuardChange::Refused;
            let (said, command) = split_remedy(detail);
            let word = if is_refused { refused_word() } else { warn(&words_of(what.as_str())) };
            fill(row, "file", path, word, said.to_owned());
            row.change = command.map(str::to_owned);
        }
        Event::FileRefused { path, access, change, .. } => {
            fill(row, "file", path, refused_word(), access.clone());
            row.change = change.clone();
        }
        Event::FilesGranted { grants, .. } => {
            let said = grants.iter().map(|grant| format!("{} {}", grant.word.as_str(), grant.path));
            let said = said.collect::<Vec<_>>().join(", ");
            fill(row, "files", "of the policy", quiet("granted"), said);
        }
        Event::WhyDenied { what, about, change, .. } => {
            fill(row, "why", &format!("{what} {about}"), warn("denied"), String::new());
            row.change = change.clone();
        }
        Event::CallRefused { program, what, detail, .. } => {
            fill(row, "process", &format!("{program}: {what}"), refused_word(), detail.clone());
        }
        Event::ServerLogin { url, what, detail, .. } => {
            let word = words_of(what.as_str());
            let is_good = !matches!(what, LoginWord::Wanted | LoginWord::Refused);
            fill(row, "login", url, if is_good { quiet(&word) } else { warn(&word) }, detail.clone());
        }
        Event::ModelCalled { provider, model, status, input_tokens, output_tokens, .. } => {
            let word = if *status < 400 { quiet("answered") } else { warn(&format!("status {status}")) };
            fill(row, "model", model, word, provider.as_str().to_owned());
            let plain = |count: u64| count.to_string();
            row.amounts = vec![(*input_tokens, plain, "tokens in"), (*output_tokens, plain, "tokens out")];
        }
        Event::OutputMessageReplaced { provider, reason_code } => {
            fill(row, "model", provider.as_str(), warn("answer replaced"), reason_code.as_str().to_owned());
        }
        Event::ModelAnswerWithheld { provider, reason } => {
            fill(row, "model", provider.as_str(), refused_word(), reason.clone());
        }
        Event::AlertUndelivered { attempts, detail, .. } => {
            fill(row, "alert", "webhook", warn("not delivered"), format!("{attempts} attempts: {detail}"));
        }
        _ => {}
    }
}

fn fill(row: &mut Row, kind: &'static str, what: &str, verdict: Word, detail: String) {
    (row.kind, row.verdict, row.detail) = (kind, Some(verdict), detail);
    what.clone_into(&mut row.what);
}

/// A verdict as people read it.
pub(super) fn action_word(action: Action) -> Word {
    match action {
        Action::Allow => Word::new("allowed", Tone::Good),
        Action::Rewrite => Word::new("rewritten", Tone::Warn),
        Action::Alert => Word::new("allowed with an alert", Tone::Warn),
        Action::Ask => Word::new("asked", Tone::Warn),
        Action::Block => refused_word(),
    }
}

pub(super) fn refused_word() -> Word {
    Word::new("refused", Tone::Bad)
}

fn warn(text: &str) -> Word {
    Word::new(text, Tone::Warn)
}

fn quiet(text: &str) -> Word {
    Word::new(text, Tone::Quiet)
}

/// A stable code as words.
fn words_of(code: &str) -> String {
    code.replace('-', " ")
}

fn shown_rule(rule: &RuleRef) -> Option<String> {
    Some(rule.to_string())
}

pub(super) fn host(name: Option<&String>, address: Option<&String>, port: u16) -> String {
    let host = name.or(address).map_or("unknown", String::as_str);
    if port == 0 { host.to_owned() } else { format!("{host}:{port}") }
}

/// In the time zone of this machine, on which the pages are looked at too.
pub(super) fn local(time: Timestamp) -> Zoned {
    time.to_zoned(TimeZone::system())
}

/// What a refusal says, and the command behind it that allows it.
fn split_remedy(said: &str) -> (&str, Option<&str>) {
    let split =
        said.rsplit_once("; to allow it: `").and_then(|(said, rest)| Some((said, rest.strip_suffix('`')?)));
    split.map_or((said, None), |(said, command)| (said, Some(command)))
}

/// The local time, and how long ago it was: with the day where that is more than one.
pub(super) fn with_age(time: Timestamp) -> String {
    let shown = local(time);
    let age = match Timestamp::now().as_second().saturating_sub(time.as_second()) {
        ..0 => return shown.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        age @ 0..60 => format!("{age} s"),
        age @ 60..3_600 => format!("{} min", age / 60),
        age @ 3_600..86_400 => format!("{} h", age / 3_600),
        age @ 86_400..172_800 => format!("{} day", age / 86_400),
        age => format!("{} days", age / 86_400),
    };
    let day = if age.contains("day") { "%Y-%m-%d %H:%M" } else { "%H:%M:%S" };
    format!("{}, {age} ago", shown.strftime(day))
}

/// Like [`with_age`], of a time as it is recorded.
pub(super) fn recorded_time(time: &str) -> String {
    time.parse().map_or_else(|_| time.to_owned(), with_age)
}

/// A number of bytes as people read it.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KiB", count / 1024),
        _ => format!("{} MiB", count / 1_048_576),
    }
}
