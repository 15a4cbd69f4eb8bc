//! The part of HTTP/1.1 that two clients need: bodies with a length or in chunks, one answer per connection.

use std::io::{BufRead, BufReader, Read, Result, Write};

use serde_json::Value;

pub struct Request {
    pub method: String,
    /// Without the query.
    pub path: String,
    pub body: Value,
}

pub enum Answer {
    Json(Value),
    /// Server-sent events: type, which may be empty, and data.
    Events(Vec<(String, Value)>),
}

pub fn serve(stream: impl Read + Write, answer: impl FnOnce(&Request) -> Answer) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let Some(request) = read(&mut reader)? else { return Ok(()) };
    let (kind, body) = match answer(&request) {
        Answer::Json(value) => ("application/json", value.to_string()),
        Answer::Events(events) => {
            let text = |(name, data): (String, Value)| match name.as_str() {
                "" => format!("data: {data}\n\n"),
                name => format!("event: {name}\ndata: {data}\n\n"),
            };
            ("text/event-stream", events.into_iter().map(text).collect())
        }
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let writer = reader.get_mut();
    writer.write_all(head.as_bytes())?;
    if request.method != "HEAD" {
        writer.write_all(body.as_bytes())?;
    }
    writer.flush()
}

fn read(reader: &mut impl BufRead) -> Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    let body = if chunked { chunks(reader)? } else { exactly(reader, length)? };
    let path = target.split('?').next().unwrap_or_default().to_owned();
    Ok(Some(Request { method, path, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }))
}

fn exactly(reader: &mut impl BufRead, length: usize) -> Result<Vec<u8>> {
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn chunks(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        body.extend(exactly(reader, length)?);
        reader.read_line(&mut line)?;
        if length == 0 {
            return Ok(body);
        }
    }
}
