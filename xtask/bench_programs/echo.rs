//! An MCP server that costs as little as possible, so that what is measured is what is before it.

use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::texts;

/// `tools`: number of tools in its listing besides the one that answers.
pub fn main(tools: usize) {
    let listing = listing(tools);
    let mut input = BufReader::with_capacity(1 << 20, std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let (mut line, mut answers) = (String::new(), Vec::new());
    while input.read_line(&mut line).is_ok_and(|read| read > 0) {
        answer(&line, &listing, &mut answers);
        line.clear();
        // Whatever has arrived together is answered together.
        if !input.buffer().contains(&b'\n') {
            output.write_all(&answers).unwrap();
            output.flush().unwrap();
            answers.clear();
        }
    }
}

fn listing(tools: usize) -> String {
    let tool = |at: usize| {
        format!(
            r#",{{"name":"read_file_{at}","title":"Read a file","description":"Reads file number {at} of the project and returns its text. Fails where there is none.","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string","description":"Path of the file, relative to the project."}}}},"required":["path"]}}}}"#
        )
    };
    let more: String = (0..tools).map(tool).collect();
    format!(r#"{{"tools":[{{"name":"echo","inputSchema":{{"type":"object"}}}}{more}]}}}}"#)
}

/// The client's messages have a known form: no parser, no allocation.
fn answer(line: &str, listing: &str, into: &mut Vec<u8>) {
    let Some(id) = number(line, "\"id\":") else { return };
    let mut begin = |text: &str| write!(into, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{text}");
    let done = if line.contains("\"initialize\"") {
        begin(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}}"#,
        )
    } else if line.contains("\"tools/list\"") {
        begin(listing)
    } else {
        begin(r#"{"content":[{"type":"text","text":""#).unwrap();
        // The request is at the end of a line, after any other text.
        let end = &line[line.floor_char_boundary(line.len().saturating_sub(40))..];
        if let Some(note) = number(end, "\"note\":") {
            into.write_all(texts::note(note, 200).as_bytes()).unwrap();
        } else if let Some(bytes) = number(end, "\"words\":") {
            static SERIAL: AtomicUsize = AtomicUsize::new(0);
            let another = SERIAL.fetch_add(1, Ordering::Relaxed) + 4;
            into.write_all(texts::words(another, bytes).as_bytes()).unwrap();
        } else if let Some(bytes) = number(end, "\"again\":") {
            into.write_all(texts::words(3, bytes).as_bytes()).unwrap();
        } else {
            let bytes = number(end, "\"bytes\":").unwrap_or(5);
            into.resize(into.len() + bytes, b'x');
        }
        into.write_all(b"\"}]}}")
    };
    done.and_then(|()| into.write_all(b"\n")).unwrap();
}

fn number(line: &str, key: &str) -> Option<usize> {
    let rest = line[line.find(key)? + key.len()..].trim_start();
    rest[..rest.find(|letter: char| !letter.is_ascii_digit())?].parse().ok()
}
