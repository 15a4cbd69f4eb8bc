//! What happens to requests when the server starts, ends or times out.

use tokio::time::{Duration, Instant};

use crate::guard::SubjectKind;
use crate::store::{Event, Recorder};
use crate::types::exit_status;

use super::client::Client;
use super::connection::{Connection, Phase};
use super::jsonrpc::Key;
use super::pending::{Entry, Kind};
use super::reply::{self, ErrorReply};
use super::upstream::{ExitInfo, StartError};

/// Limit for open requests after the client closed its input, if the policy sets none: as long as official clients
/// wait.
const LAST_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerEnd {
    /// On request, because its client is gone.
    Asked,
    /// By itself, and no client needs a restart.
    Last,
    /// By itself.
    Crash { restart_in_ms: u64 },
}

impl<R: Recorder> Connection<R> {
    /// Judges the server; records a refusal.
    pub async fn admit(&mut self) {
        let verdict = self.decide(SubjectKind::Server).verdict;
        if !verdict.is_block() {
            return;
        }
        self.commit(Event::McpServerRefused {
            server_id: self.options.server.clone(),
            reason: verdict.reason.code().to_owned(),
            detail: verdict.remedy(),
            rule: verdict.rule.clone(),
        })
        .await;
        self.phase = Phase::Refused(verdict);
    }

    /// The server runs: replays the handshake, or sends what was held.
    pub fn on_started(&mut self) {
        // A client that went on, because other servers of a proxy answered it, sends no `initialize` again; one that is open is
        // among the held messages.
        let went_on = self.handshake.agreed || self.handshake.initialized.is_some();
        let is_due = went_on && !self.from_client.any(|kind| *kind == Kind::Initialize);
        match self.handshake.params.as_ref().filter(|_| is_due) {
            None => self.become_ready(),
            Some(params) => {
                let (key, id) = private_id(&mut self.serial, "restart", |key| self.from_client.is_open(key));
                let message =
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{params}}}"#);
                self.to_server.push(|out| out.extend_from_slice(message.as_bytes()));
                self.phase = Phase::Replaying(key);
            }
        }
    }

    /// The server accepted the replayed handshake.
    pub fn on_replayed(&mut self) {
        if let Some(initialized) = &self.handshake.initialized {
            self.to_server.push(|out| out.extend_from_slice(initialized));
        }
        self.become_ready();
    }

    fn become_ready(&mut self) {
        self.phase = Phase::Ready;
        let held = std::mem::take(&mut self.held);
        self.to_server.append(&held);
    }

    /// The server did not start: answers all waiting requests.
    pub fn on_start_failed(&mut self, client: &mut impl Client, failed: StartError) {
        let StartError { message, permanent, reason, .. } = failed;
        let error = self.start_error(&message, reason);
        self.fail_listings(client, &error);
        for entry in self.from_client.take_all() {
            self.record_unreached(&entry, &message);
            self.close(client, &entry, &error);
        }
        self.held = Vec::new();
        self.phase = if permanent { Phase::Failed(message, reason) } else { Phase::Idle };
    }

    /// The server is gone: its calls get errors, its own requests are withdrawn.
    pub async fn on_server_ended(&mut self, client: &mut impl Client, exit: &ExitInfo, end: ServerEnd) {
        let calls = self.from_client.take_all();
        if matches!(self.phase, Phase::Replaying(_)) {
            for entry in &calls {
                self.record_unreached(entry, "the server ended before it received this call");
            }
        }
        if end != ServerEnd::Asked {
            self.commit(Event::McpServerCrashed {
                server_id: self.options.server.clone(),
                exit_code: exit.code,
                pending_calls: calls.len(),
                restart_in_ms: match end {
                    ServerEnd::Crash { restart_in_ms } => restart_in_ms,
                    _ => 0,
                },
            })
            .await;
        }
        let ended = match exit.cause.as_str() {
            "" | "exited" => format!("ended with exit code {}", exit_status(exit.code)),
            "killed" => "was ended by agentsh".to_owned(),
            cause => format!("ended with exit code {} ({cause})", exit.code),
        };
        let server = &self.options.server;
        let error = ErrorReply {
            code: reply::SERVER_ENDED,
            message: match end {
                ServerEnd::Asked => {
                    format!("server '{server}' had not answered this call when the client closed its input")
                }
                ServerEnd::Last => {
                    format!("server '{server}' {ended} while this call was running")
                }
                ServerEnd::Crash { .. } => format!(
                    "server '{server}' {ended} while this call was running; it is started \
                     again on the next call"
                ),
            },
            reason: "server-ended",
            rule: None,
        };
        self.fail_listings(client, &error);
        for entry in calls {
            self.close(client, &entry, &error);
        }
        for entry in self.from_server.give_up_all() {
            let reason = format!("server '{}' ended", self.options.server);
            client.withdraw(&entry.id, &reason);
        }
        self.interface_check.note_change();
        self.to_server.clear();
        self.held = Vec::new();
        self.phase = Phase::Idle;
    }

    /// Records that an allowed call did not reach the server.
    fn record_unreached(&self, entry: &Entry, why: &str) {
        if let Kind::ToolCall(tool) = &entry.kind {
            self.record_undelivered(&entry.id, tool, why);
        }
    }

    /// The client sends nothing more and still reads: limits its open requests, and answers the server's requests in
    /// its place.
    pub fn finish_requests(&mut self) {
        self.input_ended = true;
        let limit = *self.options.request_timeout.get_or_insert(LAST_LIMIT);
        self.from_client.limit_all(Instant::now() + limit);
        for entry in self.from_server.give_up_all() {
            self.error_to_server(Some(&entry.id.spelled), &reply::client_ended());
        }
    }

    /// Ends overdue requests. While the server waits for the client, the client's requests get more time.
    pub async fn expire_requests(&mut self, client: &mut impl Client) {
        let now = Instant::now();
        self.clear_ambiguous(client);
        while let Some(key) = self.from_client.overdue(now) {
            if self.listing.is_own(&key) {
                self.expire_listing(client, &key);
                continue;
            }
            if self.interface_check.is_own(&key) {
                self.from_client.give_up(&key);
                self.fail_round("it did not list its tools in time");
                continue;
            }
            let Some(timeout) = self.timeout() else { return };
            if self.from_server.len() > 0 {
                self.from_client.extend(&key, now + timeout);
                continue;
            }
            let Some(entry) = self.from_client.give_up(&key) else { return };
            let after_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            self.commit(Event::McpRequestTimedOut {
                server_id: self.options.server.clone(),
                method: entry.method.to_string(),
                jsonrpc_id: entry.id.to_value(),
                after_ms,
            })
            .await;
            let message = format!(
                "server '{}' did not answer '{}' within {after_ms} ms after its last activity; \
                 sandbox.mcp.request_timeout sets the limit",
                self.options.server, entry.method
            );
            let error = ErrorReply { code: reply::TIMED_OUT, message, reason: "timed-out", rule: None };
            client.error(Some(&entry.id), &error);
            if entry.method.as_ref() != "initialize" {
                let cancelled = &entry.id.spelled;
                match self.phase {
                    Phase::Ready => {
                        self.to_server.push(|out| reply::write_cancelled(out, cancelled, "timed out"));
                    }
                    _ => {
                        reply::write_cancelled(&mut self.held, cancelled, "timed out");
                        self.held.push(b'\n');
                    }
                }
            }
        }
    }
}

/// An id that no open request has.
pub(super) fn private_id(serial: &mut u64, what: &str, is_taken: impl Fn(&Key) -> bool) -> (Key, String) {
    loop {
        *serial += 1;
        let text = format!("agentsh:{what}:{serial}");
        let key = Key::Text(text.as_str().into());
        if !is_taken(&key) {
            return (key, format!("\"{text}\""));
        }
    }
}
