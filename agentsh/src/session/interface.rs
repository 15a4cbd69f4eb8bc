//! Asks a server for its interface as a client would: the opening, then all pages of all listings.

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use agentsh_base::json::{self, Json, escape_text};
use agentsh_registry::{Captured, MAX_DEPTH};

/// Limit of all answers, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Limit of pages, because cursors may never end.
const MAX_PAGES: usize = 50;

const OPENING: &str =
    r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"agentsh","version":"1"}"#;
const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"agentsh","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// Asks the server.
///
/// # Errors
/// In words, for an invalid or too long answer.
pub(super) async fn ask(stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Captured, String> {
    let mut client = Client { stream: BufReader::new(stream), asked: 0, left: MAX_BYTES, meta: "" };
    let mut captured =
        Captured { opening: client.request("initialize", OPENING).await?, ..Captured::default() };
    if let Some(reason) = refusal(&captured.opening) {
        // The newer protocol has no handshake.
        client.meta = MODERN;
        captured.opening = client.request("server/discover", "").await?;
        if refusal(&captured.opening).is_some() {
            return Err(format!("it answered initialize with an error: {reason}"));
        }
    } else {
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await?;
    }
    captured.tools = client.pages(&captured.opening, "tools").await?;
    captured.prompts = client.pages(&captured.opening, "prompts").await?;
    captured.resources = client.pages(&captured.opening, "resources").await?;
    Ok(captured)
}

struct Client<S> {
    stream: BufReader<S>,
    asked: usize,
    left: u64,
    /// Sent with each request in the newer protocol.
    meta: &'static str,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// One page per line; empty if the server does not have the section.
    async fn pages(&mut self, opening: &[u8], section: &str) -> Result<Vec<u8>, String> {
        let value = json::read_to_depth(opening, MAX_DEPTH).map_err(|error| error.to_string())?;
        let capabilities = value.member("result").and_then(|result| result.member("capabilities"));
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        if capabilities.and_then(|all| all.member(section)).is_none() {
            return Ok(pages);
        }
        for _ in 0..MAX_PAGES {
            let page = self.request(&format!("{section}/list"), &cursor).await?;
            let value = json::read_to_depth(&page, MAX_DEPTH).map_err(|error| error.to_string())?;
            if let Some(reason) = refusal(&page) {
                return Err(format!("it answered {section}/list with an error: {reason}"));
            }
            let next = value.member("result").and_then(|result| result.member("nextCursor"));
            let next = next
                .and_then(Json::as_text)
                .filter(|next| !next.is_empty())
                .map(|next| format!("\"cursor\":\"{}\"", escape_text(&next)));
            pages.extend_from_slice(page.trim_ascii());
            pages.push(b'\n');
            match next {
                None => return Ok(pages),
                Some(next) if next == cursor => {
                    return Err(format!("{section}/list returned the same cursor twice"));
                }
                Some(next) => cursor = next,
            }
        }
        Err(format!("{section}/list has more than {MAX_PAGES} pages"))
    }

    async fn request(&mut self, method: &str, params: &str) -> Result<Vec<u8>, String> {
        self.asked += 1;
        let id = self.asked.to_string();
        let comma = if params.is_empty() || self.meta.is_empty() { "" } else { "," };
        let params = format!("{params}{comma}{}", self.meta);
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#))
            .await?;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.stream).take(self.left).read_until(b'\n', &mut line).await;
            self.left -= read.map_err(|error| error.to_string())? as u64;
            if line.last() != Some(&b'\n') {
                let reason =
                    if self.left == 0 { "its answer is too long" } else { "it exited before it answered" };
                return Err(reason.to_owned());
            }
            let value =
                json::read_to_depth(line.trim_ascii(), MAX_DEPTH).map_err(|error| error.to_string())?;
            match (value.member("method"), value.member("id")) {
                (None, Some(Json::Number(number))) if *number == id => return Ok(line),
                (Some(_), Some(asked)) => {
                    let asked = asked.to_compact();
                    let no = r#""error":{"code":-32601,"message":"not offered"}"#;
                    self.send(&format!(r#"{{"jsonrpc":"2.0","id":{asked},{no}}}"#)).await?;
                }
                _ => {}
            }
        }
    }

    async fn send(&mut self, line: &str) -> Result<(), String> {
        let line = format!("{line}\n");
        self.stream.write_all(line.as_bytes()).await.map_err(|error| error.to_string())
    }
}

/// The server's error.
fn refusal(line: &[u8]) -> Option<String> {
    let value = json::read_to_depth(line.trim_ascii(), MAX_DEPTH).ok()?;
    let error = value.member("error")?;
    Some(error.member("message").and_then(Json::as_text).unwrap_or_default().into_owned())
}
