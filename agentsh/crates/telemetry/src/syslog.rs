//! Every event as an RFC 5424 message to the syslog of this machine.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::entry::{Entry, LogSeverity};

/// Longest message: what every syslog daemon takes without a setting.
const MAX_MESSAGE: usize = 8 << 10;
/// `user`: a program of a user.
const FACILITY: u8 = 1;

pub struct Syslog {
    path: PathBuf,
    socket: UnixDatagram,
    host: String,
    /// Messages that the daemon did not take, and why.
    pub failed: Option<(String, u64)>,
}

impl Syslog {
    /// # Errors
    /// When no daemon listens there.
    pub fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A daemon that does not read loses messages; agentsh does not wait for it.
        socket.set_nonblocking(true)?;
        socket.connect(path)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let is_plain = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
        let host = if is_plain { host } else { "-".to_owned() };
        Ok(Self { path: path.to_owned(), socket, host, failed: None })
    }

    pub fn send_entry(&mut self, entry: &Entry) {
        let message = message(&self.host, std::process::id(), entry);
        let sent = self.socket.send(message.as_bytes()).or_else(|_| {
            // The daemon may have been restarted.
            self.socket.connect(&self.path)?;
            self.socket.send(message.as_bytes())
        });
        if let Err(error) = sent {
            let lost = self.failed.take().map_or(0, |(_, lost)| lost);
            self.failed = Some((error.to_string(), lost + 1));
        }
    }
}

fn message(host: &str, pid: u32, entry: &Entry) -> String {
    let severity = match entry.severity() {
        LogSeverity::Error => 3,
        LogSeverity::Warning => 4,
        LogSeverity::Information => 6,
    };
    let priority = FACILITY * 8 + severity;
    // The name of a message has at most 32 characters there.
    let name: String = entry.kind.chars().filter(char::is_ascii_graphic).take(32).collect();
    let head = format!("<{priority}>1 {} {host} agentsh {pid} {name} - ", stamp(entry));
    let text = entry.flat().to_string();
    if head.len() + text.len() <= MAX_MESSAGE {
        return head + &text;
    }
    let short = serde_json::json!({
        "session": entry.session, "seq": entry.seq, "type": entry.kind, "truncated": true,
    });
    format!("{head}{short}")
}

/// RFC 5424 has microseconds and nothing below.
fn stamp(entry: &Entry) -> String {
    format!("{:.6}", entry.time)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_base::types::SessionId;
    use agentsh_store::CommittedEvent;

    fn entry(body: String) -> Entry {
        let session = SessionId(uuid::Uuid::nil());
        let time = "2026-01-02T03:04:05.123456789Z".parse().unwrap();
        Entry::of(&CommittedEvent { session, seq: 7, time, body }).unwrap()
    }

    #[test]
    fn syslog_message_follows_the_standard() {
        let blocked = r#"{"type":"net_connect_blocked","action":"block","port":443}"#;
        let text = message("host", 42, &entry(blocked.to_owned()));
        let head = "<11>1 2026-01-02T03:04:05.123456Z host agentsh 42 net_connect_blocked - {\"session\":";
        assert!(text.starts_with(head), "{text}");
        assert!(text.ends_with(r#""type":"net_connect_blocked","action":"block","port":443}"#), "{text}");
    }

    #[test]
    fn syslog_names_an_overlong_event_instead_of_cutting_it() {
        let long = serde_json::json!({"type": "mcp_tool_called", "input": "x".repeat(MAX_MESSAGE)});
        let text = message("host", 42, &entry(long.to_string()));
        assert!(text.len() < 400 && text.ends_with(r#""truncated":true}"#), "{text}");
    }
}
