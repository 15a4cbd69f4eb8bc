//! A server's standard error, line by line with its id in front, rate-limited, without terminal control.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use agentsh_base::types::ServerId;
use agentsh_host::standard_error;
use agentsh_store::escape;

/// For a crash message.
const KEPT_BYTES: usize = 4096;
/// Limit per server and second; more is counted.
const SHOWN_BYTES: usize = 256 << 10;
const SECOND: Duration = Duration::from_secs(1);
/// Longer lines are split.
const MAX_LINE: usize = 8 << 10;
/// At a server's end.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Reads to the end and returns the last lines. With a `name` they are also shown.
pub(super) async fn follow(mut stderr: pipe::Receiver, name: Option<ServerId>) -> String {
    let mut shown = name.map(|name| StderrLines::new(&name));
    let mut kept = Vec::new();
    let mut buffer = [0; 16 << 10];
    while let Ok(read) = stderr.read(&mut buffer).await {
        let piece = &buffer[..read];
        if read == 0 {
            break;
        }
        kept.extend_from_slice(piece);
        let surplus = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..surplus);
        if let Some(shown) = &mut shown {
            shown.add(piece);
        }
    }
    if let Some(shown) = &mut shown {
        shown.end();
        let until = Instant::now() + DRAIN_TIMEOUT;
        while standard_error::is_behind() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    String::from_utf8_lossy(&kept)
        .trim_end()
        .lines()
        .map(|line| format!("  {}", escape::line(line)))
        .collect::<Vec<_>>()
        .join("\n")
}

struct StderrLines {
    prefix: String,
    line: Vec<u8>,
    second: Instant,
    /// Bytes since then.
    bytes: usize,
    left_out: usize,
}

impl StderrLines {
    fn new(name: &ServerId) -> Self {
        let prefix = format!("[{}] ", escape::line(&name.0));
        Self { prefix, line: Vec::new(), second: Instant::now(), bytes: 0, left_out: 0 }
    }

    fn add(&mut self, piece: &[u8]) {
        if self.second.elapsed() >= SECOND {
            (self.second, self.bytes) = (Instant::now(), 0);
            self.say_left_out();
        }
        self.bytes += piece.len();
        if self.bytes > SHOWN_BYTES {
            self.left_out += piece.len() + std::mem::take(&mut self.line).len();
            return;
        }
        let mut out = String::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            while self.line.len() > MAX_LINE || self.line.ends_with(b"\n") {
                let rest = self.line.split_off(self.line.len().min(MAX_LINE));
                let whole = std::mem::replace(&mut self.line, rest);
                self.write(&whole, &mut out);
            }
        }
        self.send(out);
    }

    fn end(&mut self) {
        let last = std::mem::take(&mut self.line);
        let mut out = String::new();
        if !last.is_empty() {
            self.write(&last, &mut out);
        }
        self.send(out);
        self.say_left_out();
    }

    fn write(&self, line: &[u8], out: &mut String) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = String::from_utf8_lossy(line).replace('\t', "    ");
        out.push_str(&self.prefix);
        out.push_str(&escape::line(&text));
        out.push('\n');
    }

    fn say_left_out(&mut self) {
        let bytes = std::mem::take(&mut self.left_out);
        if bytes > 0 {
            self.send(format!(
                "{}({} KB more in one second, not shown)\n",
                self.prefix,
                bytes.div_ceil(1000)
            ));
        }
    }

    fn send(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        let length = text.len();
        if !standard_error::send(text) {
            self.left_out += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> StderrLines {
        StderrLines::new(&ServerId("fx".to_owned()))
    }

    #[test]
    fn server_error_line_cannot_imitate_agentsh() {
        let mut out = String::new();
        shown().write(b"\x1b[2Jagentsh: all is well\xff\r\n", &mut out);
        assert_eq!(out, "[fx] \\u{1b}[2Jagentsh: all is well\u{fffd}\n");
    }

    #[test]
    fn server_error_flood_is_counted_and_cut() {
        let mut shown = StderrLines { bytes: SHOWN_BYTES, ..shown() };
        for _ in 0..1000 {
            shown.add(&[b'x'; 1000]);
            assert!(shown.line.is_empty());
        }
        assert_eq!(shown.left_out, 1_000_000);
    }
}
