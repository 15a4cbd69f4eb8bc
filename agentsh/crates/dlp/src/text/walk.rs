//! One visit: decoded texts go to the sink, and to the decoders again, within limits.

use std::collections::BTreeSet;
use std::ops::Range;

use super::limits::{Limits, Outcome};
use super::packed::is_packed;
use super::readable::{MIN_LENGTH, readable_text};
use super::step::Step;

/// Texts of at most this many bytes are looked at more closely.
const SHORT: usize = 4096;
/// Bytes of a longer one that are read on each side of what was decoded in it.
const CONTEXT_BYTES: usize = 512;

/// Fewer bytes are a hash, a signature or a key.
const MIN_NOISE: usize = 256;

/// Bytes of unknown content: they look random, and do not begin like a known open format.
fn is_noise(bytes: &[u8]) -> bool {
    // Pictures, sound, fonts, programs, databases and certificates.
    const KNOWN: &[u8] = b"\x89PNG \xff\xd8\xff GIF8 RIFF %PDF OggS ID3 \xff\xfb wOFF wOF2 fLaC \
          BM II*\0 MM\0* \0\0\x01\0 \x1aE\xdf\xa3 0\x82 0\x83 \0asm \x7fELF SQLite MZ";
    if bytes.len() < MIN_NOISE || bytes.get(4..8) == Some(b"ftyp") {
        return false;
    }
    if KNOWN.split(|byte| *byte == b' ').any(|sign| bytes.starts_with(sign)) {
        return false;
    }
    let mut seen = [false; 256];
    bytes.iter().take(2 * MIN_NOISE).for_each(|byte| seen[usize::from(*byte)] = true);
    let distinct = seen.into_iter().filter(|seen| *seen).count();
    // Among this many random bytes are about 162 different ones, among twice as many 221; programs and tables have
    // fewer.
    distinct >= if bytes.len() < 2 * MIN_NOISE { 140 } else { 200 }
}

/// One decoded text.
#[derive(Clone, Debug)]
pub struct View<'a> {
    pub text: &'a str,
    /// The decoding steps, outermost first. Empty for the text itself.
    pub how: &'a [Step],
    /// The bytes of the visited text that it came from.
    pub at: Range<usize>,
}

/// The state of one visit.
pub(super) struct Walk<'s> {
    limits: Limits,
    decoder: Decoder,
    /// Number of bytes that further views may still take.
    left: usize,
    outcome: Outcome,
    how: Vec<Step>,
    /// The part of the visited text from which the current view was made.
    origin: Option<Range<usize>>,
    /// Texts that were views already, with their length first, so that most comparisons end at once.
    known: BTreeSet<(usize, Box<str>)>,
    sink: &'s mut dyn FnMut(View<'_>),
}

/// Decodes a text further.
pub(super) type Decoder = fn(&str, &mut Walk<'_>);

impl<'s> Walk<'s> {
    /// A visit of `text` of which the views have at most `left` bytes.
    pub(super) fn new(
        text: &str,
        limits: &Limits,
        left: usize,
        decoder: Decoder,
        sink: &'s mut dyn FnMut(View<'_>),
    ) -> Self {
        let known = BTreeSet::from([(text.len(), text.into())]);
        let (how, origin, outcome) = (Vec::new(), None, Outcome::default());
        Self { limits: *limits, decoder, left, outcome, how, origin, known, sink }
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether this is the text that is visited.
    pub(super) fn is_outermost(&self) -> bool {
        self.how.is_empty()
    }

    /// Counts bytes that a decoder looks at.
    pub(super) fn work(&mut self, bytes: usize) {
        self.outcome.work = self.outcome.work.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// The last decoding step of the current text.
    pub(super) fn last_step(&self) -> Option<Step> {
        self.how.last().copied()
    }

    /// Steps so far that only moved or replaced characters.
    pub(super) fn permutations(&self) -> usize {
        self.how.iter().filter(|step| step.is_permutation()).count()
    }

    /// Bytes that `step` decoded from `at` of the current text.
    pub(super) fn found_bytes(&mut self, step: Step, bytes: &[u8], at: Range<usize>) {
        self.outcome.packed |= self.how.len() < self.limits.depth && is_packed(bytes);
        if let Some(found) = readable_text(bytes) {
            self.view(step, &found, at, true);
        }
    }

    /// The text with small parts of it decoded, at these `places`. If there are few in a long text, only their surroundings
    /// are another text; other encodings in it were found in the text itself.
    pub(super) fn found_rewritten(&mut self, step: Step, bytes: &[u8], at: Range<usize>, places: &[usize]) {
        if bytes.len() <= SHORT || places.len() * 100 >= bytes.len() {
            return self.found_bytes(step, bytes, at);
        }
        let mut places = places.iter().copied().peekable();
        while let Some(first) = places.next() {
            let mut last = first;
            while let Some(next) = places.next_if(|next| *next <= last + 2 * CONTEXT_BYTES) {
                last = next;
            }
            let end = (last + CONTEXT_BYTES).min(bytes.len());
            let part = &bytes[first.saturating_sub(CONTEXT_BYTES).min(end)..end];
            if let Some(found) = readable_text(part) {
                self.view(step, &found, at.clone(), false);
            }
        }
    }

    /// Bytes that `step` decoded from `at`, from its first symbol on.
    pub(super) fn found_binary(&mut self, step: Step, bytes: &[u8], at: &Range<usize>) {
        // Digits in groups are lists of hashes and ids more often than one thing.
        let in_groups = step == Step::Hex && at.len() > bytes.len() * 2 + bytes.len() / 64;
        if self.permutations() == 0 && !in_groups {
            self.outcome.opaque |= is_noise(bytes);
        }
    }

    /// Text that `step` decoded from `at` of the current text.
    pub(super) fn found_text(&mut self, step: Step, text: &str, at: Range<usize>) {
        self.view(step, text, at, true);
    }

    /// Like [`Self::found_text`], for a rearrangement of letters or words in which nothing is encoded.
    pub(super) fn found_order(&mut self, step: Step, text: &str, at: Range<usize>) {
        self.view(step, text, at, false);
    }

    /// Whether this text was a view before: many ways lead to the same one. What is remembered is within the bound
    /// on all views.
    fn is_known(&mut self, text: &str) -> bool {
        !self.known.insert((text.len(), text.into()))
    }

    fn view(&mut self, step: Step, text: &str, at: Range<usize>, further: bool) {
        if self.how.len() >= self.limits.depth {
            self.outcome.too_deep = true;
            return;
        }
        let mut end = text.len().min(self.left);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end < text.len() {
            self.outcome.exhausted = true;
        }
        let text = &text[..end];
        if text.len() < MIN_LENGTH || self.is_known(text) {
            return;
        }
        self.left -= text.len();
        self.outcome.output += text.len();
        let before = self.origin.clone();
        let at = self.origin.get_or_insert(at).clone();
        self.how.push(step);
        (self.sink)(View { text, how: &self.how, at });
        if further {
            (self.decoder)(text, self);
        }
        self.how.pop();
        self.origin = before;
    }
}
