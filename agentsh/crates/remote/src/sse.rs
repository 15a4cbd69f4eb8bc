//! Server-sent events from a byte stream, in bounded memory, with any line end and any chunking.

use std::time::Duration;

/// One event as the specification dispatches it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Empty for `message`, which is what an event without a name is.
    pub name: Vec<u8>,
    /// The data lines with `\n` between them.
    pub data: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Collects bytes until events are whole.
#[derive(Debug, Default)]
pub struct Framer {
    limit: usize,
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    /// A data line was there, even an empty one.
    has_data: bool,
    /// The id in the unfinished event.
    next_id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
    after_return: bool,
    first_line: bool,
}

impl Framer {
    /// `limit` is the longest event, in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, first_line: true, ..Self::default() }
    }

    /// Takes the next bytes and gives the events that end in them. What was not finished when the stream ends is not an event.
    ///
    /// # Errors
    /// When an event is too long. Nothing more can be read then.
    pub fn push(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLong> {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            let (text, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + self.data.len() + text.len() > self.limit {
                return Err(TooLong);
            }
            self.line.extend_from_slice(text);
            let Some(&ending) = rest.first() else { return Ok(()) };
            self.after_return = ending == b'\r';
            bytes = rest.get(1..).unwrap_or_default();
            let line = std::mem::take(&mut self.line);
            self.on_line(&line, events);
            // The room stays.
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    /// For the next stream of the same session: what was not finished is dropped.
    #[must_use]
    pub fn for_next_stream(self) -> Self {
        Self { last_id: self.last_id, retry: self.retry, ..Self::new(self.limit) }
    }

    /// The id of the last complete event that had one.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The server's wait before the client reconnects.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn on_line(&mut self, line: &[u8], events: &mut Vec<Event>) {
        let marked = std::mem::take(&mut self.first_line).then(|| line.strip_prefix(b"\xef\xbb\xbf"));
        let line = marked.flatten().unwrap_or(line);
        if line.is_empty() {
            return self.dispatch(events);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], line.get(at + 1..).unwrap_or_default()),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = value.to_vec(),
            b"id" if !value.contains(&0) => self.next_id = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let digits = std::str::from_utf8(value).unwrap_or_default();
                self.retry = digits.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        if let Some(id) = self.next_id.take() {
            self.last_id = Some(id);
        }
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            let name = if name == b"message" { Vec::new() } else { name };
            events.push(Event { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]]) -> (Vec<Event>, Option<String>) {
        let mut framer = Framer::new(1000);
        let mut events = Vec::new();
        for piece in pieces {
            framer.push(piece, &mut events).unwrap();
        }
        (events, framer.last_id().map(str::to_owned))
    }

    fn data(text: &str) -> Event {
        Event { name: Vec::new(), data: text.as_bytes().to_vec() }
    }

    #[test]
    fn sse_examples_of_the_specification_are_read() {
        assert_eq!(read(&[b"data: YHOO\ndata: +2\ndata: 10\n\n"]).0, [data("YHOO\n+2\n10")]);
        let text =
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event";
        assert_eq!(read(&[text]), (vec![data("first event"), data("second event")], None));
        assert_eq!(read(&[b"data\n\ndata\ndata\n\ndata:"]).0, [data(""), data("\n")]);
        assert_eq!(read(&[b"data:test\n\ndata: test\n\n"]).0, [data("test"), data("test")]);
    }

    #[test]
    fn sse_events_have_names_ids_and_retry_times() {
        let mut framer = Framer::new(100);
        let mut events = Vec::new();
        framer.push(b"\xef\xbb\xbfevent: endpoint\rdata: /x\rid: 7\rretry: 1500\r\r", &mut events).unwrap();
        assert_eq!(events, [Event { name: b"endpoint".to_vec(), data: b"/x".to_vec() }]);
        assert_eq!((framer.last_id(), framer.retry()), (Some("7"), Some(Duration::from_millis(1500))));
        framer.push(b"event: message\ndata: 1\nid: 8\nretry: 1s\n", &mut events).unwrap();
        assert_eq!((framer.last_id(), events.len()), (Some("7"), 1));
        framer.push(b"\n", &mut events).unwrap();
        assert_eq!((framer.last_id(), &events[1]), (Some("8"), &data("1")));
    }

    #[test]
    fn sse_events_are_bounded() {
        let mut framer = Framer::new(10);
        let mut events = Vec::new();
        assert_eq!(framer.push(b"data:12345\n\ndata:12345", &mut events), Ok(()));
        assert_eq!(framer.push(b"6", &mut events), Err(TooLong));
        let mut framer = Framer::new(100);
        let many = b"data:1234567890\n".repeat(20);
        assert_eq!(framer.push(&many, &mut events), Err(TooLong));
    }

    proptest! {
        /// The result does not depend on where the stream is cut.
        #[test]
        fn sse_events_are_the_same_for_any_cut(words in prop::collection::vec(
            prop::sample::select(vec!["data", ":", " ", "\n", "\r", "\r\n", "\n\n", "id: 4", "event", "x", "\u{feff}"]), 0..40,
        ), cuts in prop::collection::vec(0usize..60, 0..6)) {
            let text = words.concat().into_bytes();
            let mut places: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&[&text]), read(&pieces));
        }
    }
}
