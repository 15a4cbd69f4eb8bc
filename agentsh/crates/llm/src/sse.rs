//! Parses server-sent events incrementally. An event keeps its bytes, to be forwarded unchanged.

use crate::{LlmError, MAX_HELD};

/// One event, comment or empty line, with its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// As received, with the ending empty line.
    pub raw: Vec<u8>,
    /// `event:`; empty if missing.
    pub event: String,
    /// The lines of `data:`, joined by newlines. None: no data.
    pub data: Option<String>,
    /// It has an unknown line, which clients without SSE might take for the answer.
    pub has_unknown: bool,
}

/// Whether bytes can begin an event stream.
#[must_use]
pub fn begins(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    [&b"data:"[..], b"event:", b"id:", b"retry:", b":"].iter().any(|field| bytes.starts_with(field))
}

/// Splits a stream into events.
#[derive(Debug, Default)]
pub struct Framer {
    /// Each line is an event.
    of_lines: bool,
    raw: Vec<u8>,
    /// Start of the current line in `raw`.
    line: usize,
    event: String,
    data: Option<Vec<u8>>,
    has_unknown: bool,
    began: bool,
    /// The last byte was CR, so an LF belongs to it.
    after_return: bool,
    /// An event is complete, except for a possible LF.
    complete: bool,
}

impl Framer {
    /// For streams of lines, without SSE.
    #[must_use]
    pub fn of_lines() -> Self {
        Self { of_lines: true, ..Self::default() }
    }

    /// Takes bytes and appends complete events.
    ///
    /// # Errors
    /// An event longer than [`MAX_HELD`], or data that is not UTF-8. Earlier events are there.
    pub fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), LlmError> {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            if self.complete {
                self.complete = false;
                // CR LF is one line end, also across pieces.
                let belongs = self.after_return && byte == b'\n';
                if belongs {
                    self.raw.push(byte);
                }
                frames.push(self.take()?);
                self.after_return = false;
                if belongs {
                    rest = behind;
                    continue;
                }
            }
            let plain = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            rest = if plain == 0 {
                self.end_of_line(byte)?;
                behind
            } else {
                let (inside, behind) = rest.split_at(plain);
                self.room_for(plain)?;
                self.after_return = false;
                self.raw.extend_from_slice(inside);
                behind
            };
        }
        // Does not wait for an optional LF.
        if self.complete && !self.after_return {
            self.complete = false;
            frames.push(self.take()?);
        }
        Ok(())
    }

    fn room_for(&self, more: usize) -> Result<(), LlmError> {
        if self.raw.len().saturating_add(more) > MAX_HELD { Err(LlmError::TooMuch) } else { Ok(()) }
    }

    fn end_of_line(&mut self, byte: u8) -> Result<(), LlmError> {
        self.room_for(1)?;
        let continues = self.after_return && byte == b'\n';
        self.after_return = byte == b'\r';
        self.raw.push(byte);
        if continues {
            self.line = self.raw.len();
            return Ok(());
        }
        let raw = std::mem::take(&mut self.raw);
        self.read(raw.get(self.line..raw.len() - 1).unwrap_or_default());
        self.line = raw.len();
        self.raw = raw;
        Ok(())
    }

    /// A line without its end.
    fn read(&mut self, line: &[u8]) {
        if self.of_lines {
            self.data = (!line.is_empty()).then(|| line.to_vec());
            self.complete = true;
            return;
        }
        let line = if self.began { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.began = true;
        if line.is_empty() {
            self.complete = true;
            return;
        }
        let (name, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            // Comments have the empty name.
            b"" | b"id" | b"retry" => {}
            _ => self.has_unknown = true,
        }
    }

    fn take(&mut self) -> Result<Frame, LlmError> {
        self.line = 0;
        let data = self.data.take().map(String::from_utf8).transpose();
        let data = data.map_err(|_| LlmError::Shape("data that is not UTF-8"))?;
        let (raw, event) = (std::mem::take(&mut self.raw), std::mem::take(&mut self.event));
        let frame = Frame { raw, event, data, has_unknown: std::mem::take(&mut self.has_unknown) };
        if ends_other_lines(&frame.raw) { self.spell_anew(frame) } else { Ok(frame) }
    }

    /// The event without bytes at which some readers end a line, and would read calls outside of data.
    fn spell_anew(&self, frame: Frame) -> Result<Frame, LlmError> {
        let Some(data) = &frame.data else { return Ok(Frame { has_unknown: true, ..frame }) };
        // Outside of strings JSON has none of them, and in strings it has only these three.
        let spelled_data =
            ['\u{85}', '\u{2028}', '\u{2029}'].into_iter().fold(data.clone(), |data, character| {
                data.replace(character, &format!("\\u{:04x}", u32::from(character)))
            });
        if ends_other_lines(spelled_data.as_bytes()) || ends_other_lines(frame.event.as_bytes()) {
            return Err(LlmError::Shape("bytes at which some clients end a line"));
        }
        let raw = if self.of_lines {
            format!("{spelled_data}\n").into_bytes()
        } else {
            let event = Some(frame.event.as_str()).filter(|event| !event.is_empty());
            event_text(event, &spelled_data.replace('\n', "\ndata: "))
        };
        Ok(Frame { raw, ..frame })
    }

    /// The rest at the end of the stream: many clients accept an incomplete last event.
    ///
    /// # Errors
    /// Like [`Framer::push`].
    pub fn finish(&mut self) -> Result<Option<Frame>, LlmError> {
        if self.raw.is_empty() {
            return Ok(None);
        }
        if !self.complete {
            let (kept, returned) = (self.raw.len(), self.after_return);
            self.after_return = false;
            if self.line < kept && !returned {
                // Ends the current line without changing bytes.
                self.end_of_line(b'\n')?;
                self.raw.truncate(kept);
            }
        }
        self.complete = false;
        self.take().map(Some)
    }
}

/// Whether a text has bytes at which only some readers end a line (Python's `str.splitlines`).
fn ends_other_lines(text: &[u8]) -> bool {
    let is_control = |byte: &u8| matches!(byte, 0x0b | 0x0c | 0x1c..=0x1e);
    text.iter().any(is_control)
        || [&b"\xc2\x85"[..], b"\xe2\x80\xa8", b"\xe2\x80\xa9"]
            .into_iter()
            .any(|separator| memchr::memmem::find(text, separator).is_some())
}

/// An event as text.
#[must_use]
pub fn event_text(event: Option<&str>, data: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + 64);
    if let Some(event) = event {
        out.extend_from_slice(format!("event: {event}\n").as_bytes());
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data.as_bytes());
    out.extend_from_slice(b"\n\n");
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"\xef\xbb\xbf: hi\n\nevent: a\r\ndata: {\"x\":1}\r\n\r\ndata:one\ndata: two\nid: 7\nretry: 5\n\n\rdata\r\rdata: last";

    fn all(pieces: &[&[u8]]) -> Vec<Frame> {
        let mut framer = Framer::default();
        let mut frames = Vec::new();
        pieces.iter().for_each(|piece| framer.push(piece, &mut frames).unwrap());
        frames.extend(framer.finish().unwrap());
        frames
    }

    #[test]
    fn sse_events_are_read_in_every_spelling() {
        let frames = all(&[TEXT]);
        let seen: Vec<_> = frames.iter().map(|frame| (frame.event.as_str(), frame.data.as_deref())).collect();
        assert_eq!(
            seen,
            [
                ("", None),
                ("a", Some("{\"x\":1}")),
                ("", Some("one\ntwo")),
                ("", None),
                ("", Some("")),
                ("", Some("last"))
            ]
        );
        let raw: Vec<u8> = frames.into_iter().flat_map(|frame| frame.raw).collect();
        assert_eq!(raw, TEXT);
    }

    proptest! {
        #[test]
        fn sse_events_are_the_same_in_any_pieces(cuts in proptest::collection::vec(0..TEXT.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &TEXT[pair[0]..pair[1]]).collect();
            prop_assert_eq!(all(&pieces), all(&[TEXT]));
        }

        #[test]
        fn sse_events_keep_every_byte_in_any_pieces(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b'd'), 32..127u8], 0..200), cut in 0..200usize) {
            let (front, back) = bytes.split_at(cut.min(bytes.len()));
            let whole: Vec<u8> = all(&[front, back]).into_iter().flat_map(|frame| frame.raw).collect();
            prop_assert_eq!(whole, bytes);
        }
    }
}
