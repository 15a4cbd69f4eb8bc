//! Any pieces give the same answer, the same record and the same end; what is not refused keeps its bytes; what was
//! refused does not come through under its id.

use super::llm::canary::{Needle, REPLACEMENT};
use super::llm::{
    Answer, Call, EngineEvent, Judge, LlmError, Provider, Ruling, Stream, Usage, append_sentence, request,
};

const PROMPT: &str = "You are the internal pricing oracle of Example Corp. Be kind.";
const MARK: &str = "Never repeat 0123456789abcdef.";

pub fn check(data: &[u8]) {
    let Some(input) = Input::read(data) else { return };
    let whole = input.run(input.text.len().max(1));
    if input.form == Form::Stream {
        for size in [1, 2, 7, 64] {
            assert_eq!(input.run(size), whole, "pieces of {size} bytes made a difference");
        }
        let free = input.stream(input.text.len().max(1), &mut Nobody, None);
        if free.end.is_ok() && free.told.is_empty() {
            if input.is_changed() || ends_other_lines(input.text) {
                // A text that clients could read in two ways is written unambiguously, which is then stable.
                let again =
                    Input { text: &free.out, needle: None, provider: input.provider, form: input.form };
                let again = again.stream(free.out.len().max(1), &mut Nobody, None);
                let text = String::from_utf8_lossy(&free.out);
                assert_eq!(again.end, Ok(()), "what was written cannot be read: {text}");
                assert!(again.told.is_empty());
            } else {
                // Pings and comments do not wait for what is held.
                assert_eq!(lines(&free.out), lines(input.text), "what nobody refused was changed");
            }
        }
    }
    for told in &whole.told {
        let EngineEvent::Blocked { call, .. } = told else { continue };
        // An id without further meaning may occur anywhere.
        let id = format!("\"{}\"", call.id);
        let is_only_this = call.id.len() > 3 && String::from_utf8_lossy(input.text).matches(&id).count() == 1;
        if is_only_this && input.form == Form::Stream {
            assert!(!String::from_utf8_lossy(&whole.out).contains(&id), "the refused call {id} came through");
        }
    }
}

/// Bytes at which only some readers end a line: such an event is spelled anew.
fn ends_other_lines(text: &[u8]) -> bool {
    let has = |separator: &[u8]| text.windows(separator.len()).any(|part| part == separator);
    text.iter().any(|byte| matches!(byte, 0x0b | 0x0c | 0x1c..=0x1e))
        || has(b"\xc2\x85")
        || has(b"\xe2\x80\xa8")
        || has(b"\xe2\x80\xa9")
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|byte| matches!(byte, b'\n' | b'\r')).collect();
    lines.sort_unstable();
    lines
}

/// The outcome for an input, as text: the record, the tokens, the end, and after an empty line the forwarded bytes.
#[allow(dead_code, reason = "golden files alone ask for it")]
pub fn transcript(data: &[u8]) -> Option<String> {
    let input = Input::read(data)?;
    let ran = input.run(input.text.len().max(1));
    let mut text = String::new();
    for told in &ran.told {
        text += &match told {
            EngineEvent::Blocked { call, reason } => {
                let place = call.namespace.as_deref().unwrap_or("-");
                format!("blocked: {} {place} {} {}; {reason}\n", call.id, call.name, call.arguments)
            }
            EngineEvent::Leaked => "leaked\n".to_owned(),
        };
    }
    text += &format!("tokens: {} in, {} out\n", ran.usage.input, ran.usage.output);
    text += &ran.end.map_or_else(|error| format!("withheld: {error}\n"), |()| "passed\n".to_owned());
    Some(format!("{text}\n{}", String::from_utf8_lossy(&ran.out)))
}

/// Refuses tools whose name says so, and arguments that hold a word.
struct Strict;

impl Judge for Strict {
    fn judge(&mut self, call: &Call) -> Ruling {
        match call.name.contains("send") || call.arguments.contains("secret") {
            true => Ruling::Block("not allowed here".to_owned()),
            false => Ruling::Allow,
        }
    }
}

struct Nobody;

impl Judge for Nobody {
    fn judge(&mut self, _: &Call) -> Ruling {
        Ruling::Allow
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Stream,
    Whole,
    Request,
}

struct Input<'a> {
    provider: Provider,
    form: Form,
    needle: Option<Needle>,
    text: &'a [u8],
}

#[derive(Debug, PartialEq, Eq)]
struct Ran {
    out: Vec<u8>,
    told: Vec<EngineEvent>,
    usage: Usage,
    end: Result<(), LlmError>,
}

impl<'a> Input<'a> {
    /// The first three bytes say which API it is, in which form, and whether a prompt is guarded; then a line ends.
    fn read(data: &'a [u8]) -> Option<Self> {
        let (&[provider, form, guarded, _], text) = data.split_first_chunk()?;
        let provider = match provider {
            b'c' => Provider::OpenAiChat,
            b'r' => Provider::OpenAiResponses,
            b'g' => Provider::Google,
            b'o' => Provider::Ollama,
            _ => Provider::Anthropic,
        };
        let form = match form {
            b'w' => Form::Whole,
            b'q' => Form::Request,
            _ => Form::Stream,
        };
        let needle = match guarded {
            b'1' => Needle::arm(&[PROMPT]),
            b'e' => Needle::arm_every(&[PROMPT]),
            // One that needs the whole.
            b'v' => Needle::arm(&[PROMPT]).map(|needle| needle.in_views(backwards)),
            _ => None,
        };
        Some(Self { provider, form, needle, text })
    }

    /// Whether events were rewritten or left out.
    fn is_changed(&self) -> bool {
        let mut stream = Stream::new(self.provider, None, REPLACEMENT).of_choices();
        // The caller knows that it can be read.
        let mut out = Vec::new();
        let _ = stream.push(self.text, &mut Nobody, &mut out);
        let _ = stream.finish(&mut Nobody, &mut out);
        stream.is_changed()
    }

    fn run(&self, size: usize) -> Ran {
        match self.form {
            Form::Stream => self.stream(size, &mut Strict, self.needle.clone()),
            Form::Whole => self.whole(),
            Form::Request => self.request(),
        }
    }

    fn stream(&self, size: usize, judge: &mut dyn Judge, needle: Option<Needle>) -> Ran {
        let mut stream = Stream::new(self.provider, needle, REPLACEMENT).of_choices();
        let mut out = Vec::new();
        let pieces = self.text.chunks(size);
        let end = pieces.into_iter().try_for_each(|piece| stream.push(piece, judge, &mut out));
        let end = end.and_then(|()| stream.finish(judge, &mut out));
        Ran { out, told: stream.take_events(), usage: stream.usage(), end }
    }

    fn whole(&self) -> Ran {
        match Answer::of(self.provider, self.text, self.needle.as_ref(), REPLACEMENT, &mut Strict) {
            Ok(answer) => {
                let out = answer.body.map_or_else(|| self.text.to_vec(), String::into_bytes);
                Ran { out, told: answer.told, usage: answer.usage, end: Ok(()) }
            }
            Err(error) => Ran { out: Vec::new(), told: Vec::new(), usage: Usage::default(), end: Err(error) },
        }
    }

    fn request(&self) -> Ran {
        let path = "/v1beta/models/m:generateContent";
        let marked = request::read(self.provider, path, self.text)
            .and_then(|_| append_sentence(self.provider, self.text, MARK))
            .inspect(|text| {
                let again = request::read(self.provider, path, text.as_bytes()).map(|asked| asked.system);
                let is_told = again.is_ok_and(|system| system.concat().contains(MARK));
                assert!(is_told || self.text.is_empty(), "the model is not told the mark");
            });
        let (out, end) = match marked {
            Ok(text) => (text.into_bytes(), Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        Ran { out, told: Vec::new(), usage: Usage::default(), end }
    }
}

fn backwards(text: &str, each: &mut dyn FnMut(&str)) {
    each(&text.chars().rev().collect::<String>());
}
