//! An MCP server behind a URL that does what a test says, message by message, and keeps what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    /// In lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// Bytes that are not UTF-8 are replaced.
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The message; null for a request without one.
    pub fn message(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// The JSON-RPC method; empty for an answer.
    pub fn rpc(&self) -> String {
        self.message()["method"].as_str().unwrap_or_default().to_owned()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Whole,
    /// The answer is whole, and the connection is closed without a word.
    Closed,
    /// The stream stays open.
    Open,
    /// The connection breaks off.
    Broken,
    /// It is reset.
    Reset,
    /// Sends nothing more, but still reads.
    HalfClosed,
}

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// Sent piece by piece.
    pub pieces: Vec<String>,
    /// How the answer ends after the last piece.
    pub end: End,
    /// Further events, as they come.
    pub feed: Option<Receiver<String>>,
    /// The content encoding; each piece is flushed, so that it can be read at once.
    pub packed: &'static str,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), pieces: Vec::new(), end: End::Whole, feed: None, packed: "" }
    }

    pub fn json(text: impl ToString) -> Self {
        Self { pieces: vec![text.to_string()], ..Self::status(200) }.with("Content-Type", "application/json")
    }

    pub fn events(pieces: &[&str]) -> Self {
        let pieces = pieces.iter().map(|&piece| piece.to_owned()).collect();
        Self { pieces, ..Self::status(200) }.with("Content-Type", "text/event-stream; charset=utf-8")
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn fed(self, feed: Receiver<String>) -> Self {
        Self { feed: Some(feed), ..self }
    }

    pub fn packed(self, packed: &'static str) -> Self {
        Self { packed, ..self }.with("Content-Encoding", packed)
    }

    pub fn broken(self) -> Self {
        Self { end: End::Broken, ..self }
    }

    pub fn open(self) -> Self {
        Self { end: End::Open, ..self }
    }

    pub fn ending(self, end: End) -> Self {
        Self { end, ..self }
    }

    /// Not even a head.
    pub fn nothing() -> Self {
        Self::status(0)
    }
}

pub struct HttpServer {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl HttpServer {
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                let _ = stream.set_nodelay(true);
                std::thread::spawn(move || while converse(&stream, &kept, &*answer).is_some() {});
            }
        });
        Self { port, asked }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// The usual answers to the first messages: a handshake, and nothing for notifications.
pub fn handshake(asked: &Asked) -> Option<Reply> {
    let message = asked.message();
    match (asked.method.as_str(), asked.rpc().as_str()) {
        ("POST", "initialize") => Some(
            Reply::json(
                json!({"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"}}}),
            )
            .with("Mcp-Session-Id", "s-1"),
        ),
        ("POST", "") => Some(Reply::status(202)),
        ("POST", method) if method.starts_with("notifications/") => Some(Reply::status(202)),
        ("GET", _) => Some(Reply::status(405)),
        ("DELETE", _) => Some(Reply::status(204)),
        _ => None,
    }
}

fn converse(
    mut stream: &TcpStream,
    kept: &Mutex<Vec<Asked>>,
    answer: &dyn Fn(&Asked) -> Reply,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map(|(_, value)| value.parse().unwrap());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let asked = Asked { method, path, headers, body: String::from_utf8_lossy(&body).into_owned() };
    kept.lock().unwrap().push(asked.clone());
    let reply = answer(&asked);
    if reply.status == 0 {
        return end(stream, &mut reader, reply.end);
    }
    write!(stream, "HTTP/1.1 {} X\r\n", reply.status).ok()?;
    for (name, value) in &reply.headers {
        write!(stream, "{name}: {value}\r\n").ok()?;
    }
    if matches!(reply.status, 202 | 204) {
        return write!(stream, "Content-Length: 0\r\n\r\n").ok();
    }
    // An answer with a length is sent unchanged.
    let is_plain = reply.headers.iter().any(|(name, _)| name == "Content-Length");
    let coding = if is_plain { "" } else { "Transfer-Encoding: chunked\r\n" };
    write!(stream, "{coding}\r\n").ok()?;
    let mut packer = Packer::of(reply.packed);
    let mut send = |piece: &[u8]| {
        let piece = packer.pack(piece);
        let whole = match is_plain {
            true => piece,
            false => [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat(),
        };
        stream.write_all(&whole).ok()
    };
    for piece in &reply.pieces {
        send(piece.as_bytes())?;
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    for event in reply.feed.iter().flatten() {
        send(format!("data: {event}\n\n").as_bytes())?;
    }
    if !reply.packed.is_empty() && reply.end == End::Whole {
        send(b"")?;
    }
    match reply.end {
        End::Whole if is_plain => Some(()),
        how => end(stream, &mut reader, how),
    }
}

enum Packer {
    Plain,
    Gzip(GzEncoder<Vec<u8>>),
    Zlib(ZlibEncoder<Vec<u8>>),
    /// Stored, after a head that says how far back it may look.
    Brotli(bool),
}

impl Packer {
    fn of(encoding: &str) -> Self {
        match encoding {
            "" => Self::Plain,
            "gzip" => Self::Gzip(GzEncoder::new(Vec::new(), Compression::default())),
            "deflate" => Self::Zlib(ZlibEncoder::new(Vec::new(), Compression::default())),
            "br" => Self::Brotli(true),
            other => panic!("{other}"),
        }
    }

    /// Nothing ends it.
    fn pack(&mut self, piece: &[u8]) -> Vec<u8> {
        let is_end = piece.is_empty();
        match self {
            Self::Plain => piece.to_vec(),
            Self::Gzip(encoder) => {
                encoder.write_all(piece).unwrap();
                if is_end { encoder.try_finish() } else { encoder.flush() }.unwrap();
                std::mem::take(encoder.get_mut())
            }
            Self::Zlib(encoder) => {
                encoder.write_all(piece).unwrap();
                if is_end { encoder.try_finish() } else { encoder.flush() }.unwrap();
                std::mem::take(encoder.get_mut())
            }
            Self::Brotli(_) if is_end => vec![3],
            Self::Brotli(is_first) => {
                let length = u32::try_from(piece.len() - 1).unwrap();
                assert!(length < 1 << 16);
                // One bit that it is not the last, two for the digits of the length, the length, one that it is stored.
                let head = length << 3 | 1 << 19;
                let head = if std::mem::take(is_first) { head << 1 } else { head };
                [&head.to_le_bytes()[..3], piece].concat()
            }
        }
    }
}

fn end(mut stream: &TcpStream, reader: &mut BufReader<&TcpStream>, end: End) -> Option<()> {
    match end {
        End::Whole => return write!(stream, "0\r\n\r\n").ok(),
        End::Closed => return write!(stream, "0\r\n\r\n").ok().filter(|()| false),
        End::Broken => return None,
        End::Reset => {
            // Time for earlier data to arrive first.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
            nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).ok()?;
            return None;
        }
        End::HalfClosed => stream.shutdown(std::net::Shutdown::Write).ok()?,
        End::Open => {}
    }
    // Until the other side hangs up.
    reader.read(&mut [0; 16]).ok().filter(|_| false).map(drop)
}
