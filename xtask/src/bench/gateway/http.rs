//! A client and an MCP server over plain HTTP/1.1, on connections that stay open.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Longer than anything takes here.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Names in lower case, and values.
type Headers = Vec<(String, String)>;

pub struct Client {
    stream: BufReader<TcpStream>,
    path: String,
    host: String,
    session: Option<String>,
    next: u64,
}

/// What came for a call.
#[derive(Debug, PartialEq, Eq)]
pub enum CallReply {
    Result,
    Error,
}

impl Client {
    /// Connects, and shakes hands. `url` is `http://HOST:PORT/PATH`.
    pub fn connect(url: &str) -> Result<Self> {
        let (host, path) = parts(url)?;
        let stream = TcpStream::connect(&host).with_context(|| host.clone())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let mut client = Self { stream: BufReader::new(stream), path, host, session: None, next: 1 };
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}});
        client.send("POST", &hello.to_string())?;
        let (status, headers, body) = client.receive()?;
        ensure!(status == 200, "initialize: {status} {}", String::from_utf8_lossy(&body));
        client.session = header(&headers, "mcp-session-id").map(str::to_owned);
        client.send("POST", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        client.receive()?;
        client.send("POST", r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#)?;
        client.receive()?;
        Ok(client)
    }

    /// One call of the tool `echo`.
    pub fn call(&mut self) -> Result<CallReply> {
        let id = self.next;
        self.next += 1;
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"hello {id}"}}}}}}"#
        );
        self.send("POST", &text)?;
        let (status, _, body) = self.receive()?;
        let text = String::from_utf8_lossy(&body);
        let message = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
        let message: Value = serde_json::from_str(message).with_context(|| format!("{status}: {text}"))?;
        ensure!(message["id"] == id, "the answer to {id}: {message}");
        if message.get("error").is_some() {
            return Ok(CallReply::Error);
        }
        let said = &message["result"]["content"][0]["text"];
        ensure!(said.as_str() == Some(&format!("hello {id}")), "the answer to {id}: {message}");
        Ok(CallReply::Result)
    }

    /// Opens the stream by which the server speaks unasked, and leaves it open.
    pub fn listen(mut self) -> Result<TcpStream> {
        self.send("GET", "")?;
        let (status, _) = self.head()?;
        ensure!(status == 200, "GET: {status}");
        Ok(self.stream.into_inner())
    }

    fn send(&mut self, method: &str, body: &str) -> Result<()> {
        let session = self.session.as_ref().map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let accept =
            if method == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        let text = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: {accept}\r\n\
             MCP-Protocol-Version: 2025-06-18\r\n{session}Content-Length: {}\r\n\r\n{body}",
            self.path,
            self.host,
            body.len()
        );
        Ok(self.stream.get_mut().write_all(text.as_bytes())?)
    }

    fn head(&mut self) -> Result<(u16, Headers)> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("the connection ended");
        }
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).context("no status")?;
        Ok((status, headers(&mut self.stream)?))
    }

    fn receive(&mut self) -> Result<(u16, Headers, Vec<u8>)> {
        let (status, headers) = self.head()?;
        let mut body = Vec::new();
        if header(&headers, "transfer-encoding").is_some() {
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line)?;
                let size = usize::from_str_radix(line.trim(), 16).with_context(|| format!("{line:?}"))?;
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk)?;
                if size == 0 {
                    break;
                }
                body.extend_from_slice(&chunk[..size]);
            }
        } else if let Some(length) = header(&headers, "content-length") {
            body.resize(length.parse()?, 0);
            self.stream.read_exact(&mut body)?;
        }
        Ok((status, headers, body))
    }
}

/// Opens a stream of events (the transport of 2024), and leaves it open.
pub fn open_stream(url: &str) -> Result<TcpStream> {
    let (host, path) = parts(url)?;
    let mut stream = TcpStream::connect(&host)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    ensure!(line.contains(" 200 "), "{line}");
    Ok(reader.into_inner())
}

/// A server with one tool, `echo`, that fails one call in `every`.
pub struct Upstream {
    pub url: String,
    /// Calls that were let down on purpose.
    pub failed: Arc<AtomicU64>,
}

impl Upstream {
    /// `every`: one call in this many fails; 0 for none.
    pub fn start(every: u64) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/mcp", listener.local_addr()?);
        let failed = Arc::new(AtomicU64::new(0));
        let (count, kept) = (Arc::new(AtomicU64::new(0)), Arc::clone(&failed));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (count, failed) = (Arc::clone(&count), Arc::clone(&kept));
                std::thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    let mut stream = BufReader::new(stream);
                    while serve(&mut stream, every, &count, &failed).is_ok_and(|goes_on| goes_on) {}
                });
            }
        });
        Ok(Self { url, failed })
    }
}

/// One request; false where the connection ends.
fn serve(
    stream: &mut BufReader<TcpStream>,
    every: u64,
    count: &AtomicU64,
    failed: &AtomicU64,
) -> Result<bool> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(false);
    }
    let headers = headers(stream)?;
    let mut body = vec![0; header(&headers, "content-length").map_or(Ok(0), str::parse)?];
    stream.read_exact(&mut body)?;
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let id = &message["id"];
    let result = match message["method"].as_str() {
        _ if !line.starts_with("POST") => return empty(stream, "405 Method Not Allowed"),
        Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "bench", "version": "1"}}),
        Some("tools/list") => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        Some("tools/call") => {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            if every > 0 && number.is_multiple_of(every) {
                failed.fetch_add(1, Ordering::Relaxed);
                // In turns: an error, and an answer that breaks off.
                if (number / every).is_multiple_of(2) {
                    return empty(stream, "500 Internal Server Error");
                }
                write!(
                    stream.get_mut(),
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{{\"js"
                )?;
                return Ok(false);
            }
            json!({"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]})
        }
        Some("ping") => json!({}),
        _ if id.is_null() => return empty(stream, "202 Accepted"),
        _ => {
            let error =
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}});
            return say(stream, &error.to_string());
        }
    };
    say(stream, &json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

fn say(stream: &mut BufReader<TcpStream>, body: &str) -> Result<bool> {
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(text.as_bytes())?;
    Ok(true)
}

fn empty(stream: &mut BufReader<TcpStream>, status: &str) -> Result<bool> {
    write!(stream.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
    Ok(true)
}

fn headers(stream: &mut BufReader<TcpStream>) -> Result<Headers> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(headers) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn parts(url: &str) -> Result<(String, String)> {
    let rest = url.strip_prefix("http://").context("an http URL")?;
    let (host, path) = rest.split_once('/').context("a path")?;
    Ok((host.to_owned(), format!("/{path}")))
}
