//! An MCP client over HTTP that accepts what both official SDKs accept: a thread for each message it posts.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// How often in a row it takes up a stream that broke off.
const TRIES: usize = 2;

pub struct HttpClient {
    shared: Arc<Shared>,
    lines: Receiver<Vec<u8>>,
}

struct Shared {
    address: String,
    path: String,
    session: Mutex<Option<String>>,
    /// Requests whose answer may still come by their own stream.
    busy: Mutex<BTreeSet<String>>,
    sender: Mutex<Sender<Vec<u8>>>,
}

impl HttpClient {
    /// `URL` begins with `http://`.
    pub fn new(url: &str) -> Self {
        let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let (sender, lines) = channel();
        let shared = Shared {
            address: address.to_owned(),
            path: format!("/{path}"),
            session: Mutex::default(),
            busy: Mutex::default(),
            sender: Mutex::new(sender),
        };
        Self { shared: Arc::new(shared), lines }
    }

    /// Nothing more comes by the stream of any of these requests.
    pub fn is_idle(&self, ids: impl Iterator<Item = i64>) -> bool {
        let busy = self.shared.busy.lock().unwrap();
        !ids.map(|id| id.to_string()).any(|id| busy.contains(&id))
    }

    pub fn line_within(&self, limit: Duration) -> Option<Vec<u8>> {
        self.lines.recv_timeout(limit).ok()
    }

    pub fn send(&self, message: &Value) {
        let id = message.get("id").filter(|_| message.get("method").is_some()).cloned();
        let shared = Arc::clone(&self.shared);
        shared.busy.lock().unwrap().extend(id.iter().map(Value::to_string));
        let starts = message["method"] == "notifications/initialized";
        let text = message.to_string();
        let thread = std::thread::spawn(move || {
            if let Err(why) = shared.post(&text, id.as_ref())
                && let Some(id) = &id
            {
                // As an SDK rejects the call.
                let error = json!({"code": -1, "message": why, "data": {"transport": true}});
                shared.take(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into_bytes());
            }
            if let Some(id) = &id {
                shared.busy.lock().unwrap().remove(&id.to_string());
            }
            if starts {
                let mut stream = Events::default();
                let _ended = shared.stream("", &mut stream);
            }
        });
        // Later messages belong to the session that this one begins.
        if message["method"] == "initialize" {
            thread.join().unwrap();
        }
    }
}

impl Shared {
    fn take(&self, line: Vec<u8>) {
        // A receiver that has closed does not need the line.
        let _ = self.sender.lock().unwrap().send(line);
    }

    fn ask(&self, method: &str, more: &str, body: &str) -> Result<Answer, String> {
        let mut head = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{more}",
            self.path,
            self.address,
            body.len()
        );
        if let Some(session) = &*self.session.lock().unwrap() {
            head += &format!("Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-06-18\r\n");
        }
        let said = |error: std::io::Error| format!("no answer: {error}");
        let mut stream = TcpStream::connect(&self.address).map_err(said)?;
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).map_err(said)?;
        Answer::read(stream).map_err(said)
    }

    fn post(&self, body: &str, id: Option<&Value>) -> Result<(), String> {
        let accept = "Accept: application/json, text/event-stream\r\n";
        let mut answer = self.ask("POST", accept, body)?;
        if let Some(session) = answer.header("mcp-session-id").filter(|_| id == Some(&json!(0))) {
            *self.session.lock().unwrap() = Some(session.to_owned());
        }
        if !(200..300).contains(&answer.status) {
            return Err(format!("HTTP {}", answer.status));
        }
        if answer.status == 202 || id.is_none() {
            return Ok(());
        }
        // It says so and is not, which shows in what comes.
        if answer.header("content-encoding").is_some_and(|how| how != "identity")
            && let Ok(Some(_)) = answer.next()
        {
            return Err("it cannot be unpacked".to_owned());
        }
        let kind = answer.header("content-type").unwrap_or_default().to_ascii_lowercase();
        match kind.split(';').next().unwrap().trim() {
            "application/json" => {
                let mut whole = Vec::new();
                while let Some(bytes) = answer.next().map_err(|error| error.to_string())? {
                    whole.extend(bytes);
                }
                let read: Value = serde_json::from_slice(&whole).map_err(|error| error.to_string())?;
                match read.as_array() {
                    Some(all) => all.iter().for_each(|one| self.take(one.to_string().into_bytes())),
                    None => self.take(whole),
                }
                Ok(())
            }
            "text/event-stream" => {
                let mut events = Events::default();
                self.read(answer, &mut events);
                for _ in 0..TRIES {
                    let Some(last) = events.last_id.clone().filter(|_| !events.is_answered) else { break };
                    std::thread::sleep(events.retry);
                    let _ended = self.stream(&format!("Last-Event-ID: {last}\r\n"), &mut events);
                }
                Ok(())
            }
            other => Err(format!("unexpected content type '{other}'")),
        }
    }

    fn stream(&self, more: &str, events: &mut Events) -> Result<(), String> {
        let answer = self.ask("GET", &format!("Accept: text/event-stream\r\n{more}"), "")?;
        if answer.status == 200 {
            self.read(answer, events);
        }
        Ok(())
    }

    /// To the end of the stream, however it ends.
    fn read(&self, mut answer: Answer, events: &mut Events) {
        *events = Events { last_id: events.last_id.take(), retry: events.retry, ..Events::default() };
        while let Ok(Some(bytes)) = answer.next() {
            for data in events.push(&bytes) {
                let message: Value = serde_json::from_slice(&data).unwrap_or_default();
                events.is_answered |= message.get("result").is_some() || message.get("error").is_some();
                self.take(data);
            }
        }
    }
}

/// An event stream, read as the standard says.
struct Events {
    line: Vec<u8>,
    after_return: bool,
    name: Vec<u8>,
    data: Option<Vec<u8>>,
    last_id: Option<String>,
    retry: Duration,
    is_answered: bool,
    is_first: bool,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            line: Vec::new(),
            after_return: false,
            name: Vec::new(),
            data: None,
            last_id: None,
            retry: Duration::from_secs(1),
            is_answered: false,
            is_first: true,
        }
    }
}

impl Events {
    /// The data of messages that are whole now.
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut whole = Vec::new();
        for &byte in bytes {
            let follows = std::mem::replace(&mut self.after_return, byte == b'\r') && byte == b'\n';
            match byte {
                _ if follows => {}
                b'\r' | b'\n' => whole.extend(self.end_line()),
                _ => self.line.push(byte),
            }
        }
        whole
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_first) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            let data = self.data.take().filter(|data| !data.is_empty());
            return data.filter(|_| name.is_empty() || name == b"message");
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let value = colon.map_or(&[][..], |at| &line[at + 1..]);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = String::from_utf8_lossy(value);
        match &line[..colon.unwrap_or(line.len())] {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"event" => self.name = value.to_vec(),
            b"id" => self.last_id = Some(text.into_owned()).filter(|id| !id.is_empty()),
            b"retry" => self.retry = text.parse().map_or(self.retry, Duration::from_millis),
            _ => {}
        }
        None
    }
}

struct Answer {
    status: u16,
    /// In lower case, with their values.
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    left: Option<usize>,
}

impl Answer {
    fn read(stream: TcpStream) -> std::io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other("no status"))?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Self { status, headers, reader, left: None };
        answer.left = answer.header("content-length").map(|length| length.parse().unwrap());
        Ok(answer)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A piece of the body; None at its end, and an error where it breaks off.
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        if let Some(left) = self.left {
            if left == 0 {
                return Ok(None);
            }
            let mut piece = vec![0; left.min(4096)];
            let read = self.reader.read(&mut piece)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.left = Some(left - read);
            piece.truncate(read);
            return Ok(Some(piece));
        }
        let mut size = String::new();
        self.reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
        let mut piece = vec![0; size + 2];
        self.reader.read_exact(&mut piece)?;
        piece.truncate(size);
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }
}
