//! Every text that decodes from a text, however the encodings are nested, within bounds.

use std::collections::BTreeSet;
use std::ops::Range;

use super::compressed;
use super::limits::{Limits, Outcome};
use super::profile::Profile;
use super::readable::{MIN_LENGTH, readable};
use super::step::Step;
use super::{
    base85, encoded_words, escapes, hidden, interspersed, listed, masked, morse, numbers, permuted,
    positional, quoted_printable, radix, rearranged, uuencoded,
};

/// Texts of at most this many bytes are looked at more closely.
const SHORT: usize = 4096;
/// One sample turned in each way.
const PROBES_OF_A_TEXT: usize = 29;

/// Bytes that are no text are shown so many times in a visit, when they are as many as these at least.
const BINARIES: usize = 48;
const MIN_BINARY: usize = 30;
/// Bytes of each that are shown.
const MAX_BINARY: usize = 8 * 1024;
/// Bytes that masks may give in a visit, on top of as many as the text has.
const MASKED: usize = 16 * 1024;
/// An attempt costs as much as so many bytes that it gives.
const ATTEMPT: usize = 512;

/// Bytes as letters, one for each value; of neighbours that are the same one, so that no padding is like another.
#[must_use]
pub fn spelled(bytes: &[u8]) -> String {
    const FIRST: u32 = 0x5000;
    let mut last = None;
    let own = bytes.iter().take(MAX_BINARY).filter(|byte| last.replace(**byte) != Some(**byte));
    own.filter_map(|byte| char::from_u32(FIRST + u32::from(*byte))).collect()
}

/// Whether one pattern of a few bytes stands again and again, and nothing else: a wrong guess that inflates gives such.
fn is_periodic(bytes: &[u8]) -> bool {
    const MAX_LENGTH: usize = 8;
    const REPEATS: usize = 4;
    let longest = MAX_LENGTH.min(bytes.len() / REPEATS);
    (1..=longest).any(|period| bytes[period..] == bytes[..bytes.len() - period])
}

/// Fewer bytes are a hash, a signature or a key.
const MIN_NOISE: usize = 256;

/// Bytes of which nobody can say what they are: they look drawn, and begin as nothing that programs exchange openly.
fn is_noise(bytes: &[u8]) -> bool {
    const KNOWN: [&[u8]; 22] = [
        b"\x89PNG",
        b"\xff\xd8\xff",
        b"GIF8",
        b"RIFF",
        b"%PDF",
        b"OggS",
        b"ID3",
        b"\xff\xfb",
        b"wOFF",
        b"wOF2",
        b"fLaC",
        b"BM",
        b"II*\0",
        b"MM\0*",
        b"\0\0\x01\0",
        b"\x1aE\xdf\xa3",
        b"0\x82",
        b"0\x83",
        b"\0asm",
        b"\x7fELF",
        b"SQLite",
        b"MZ",
    ];
    // What is packed in a way that is opened here is judged by what is in it.
    const OPENED: [&[u8]; 5] = [b"\x1f\x8b", b"PK", b"\x78\x01", b"\x78\x9c", b"\x78\xda"];
    if bytes.len() < MIN_NOISE || bytes.get(4..8) == Some(b"ftyp") {
        return false;
    }
    let begins = |signs: &[&[u8]]| signs.iter().any(|sign| bytes.starts_with(sign));
    if begins(&KNOWN) || begins(&OPENED) {
        return false;
    }
    let mut seen = [false; 256];
    bytes.iter().take(2 * MIN_NOISE).for_each(|byte| seen[usize::from(*byte)] = true);
    let distinct = seen.into_iter().filter(|seen| *seen).count();
    // Of so many drawn bytes, 162 are different, and 221 of twice as many; programs and tables have fewer.
    distinct >= if bytes.len() < 2 * MIN_NOISE { 140 } else { 200 }
}

/// One text that was found.
#[derive(Clone, Debug)]
pub struct View<'a> {
    pub text: &'a str,
    /// What was decoded, outermost first. Empty for the text itself.
    pub how: &'a [Step],
    /// The bytes of the visited text that it came from.
    pub at: Range<usize>,
    /// Nearly all of what was decoded is text. Otherwise these are readable pieces of something else, and a name
    /// or an address in them may be chance.
    pub clean: bool,
}

/// Gives `sink` the text as it stands, then every text that decodes from it.
///
/// Time and the bytes of all views are in proportion to the text (see [`Limits`]). What was left out is said in
/// the outcome.
pub fn visit(text: &str, limits: &Limits, sink: &mut dyn FnMut(View<'_>)) -> Outcome {
    sink(View { text, how: &[], at: 0..text.len(), clean: true });
    let mut walk = Walk {
        limits: *limits,
        left: text.len().saturating_mul(limits.output_per_byte).saturating_add(limits.output_floor),
        blind: limits.blind_inflations,
        probes: limits.probes,
        outcome: Outcome::default(),
        how: Vec::new(),
        origin: None,
        explained: 0,
        binaries: BINARIES,
        masked: text.len().saturating_add(MASKED),
        probing: false,
        known: BTreeSet::new(),
        sink,
    };
    walk.known.insert((text.len(), text.into()));
    walk.expand(text, true);
    walk.outcome
}

/// Gives `sink` the other orders of a text in which nothing is encoded: its words backwards, their first letters. Not
/// the text itself.
pub fn visit_orders(text: &str, limits: &Limits, sink: &mut dyn FnMut(View<'_>)) {
    if text.len() < MIN_LENGTH {
        return;
    }
    let mut walk = Walk {
        limits: *limits,
        left: text.len().saturating_mul(4),
        blind: 0,
        probes: 0,
        outcome: Outcome::default(),
        how: Vec::new(),
        origin: None,
        explained: 0,
        binaries: BINARIES,
        masked: 0,
        probing: false,
        known: BTreeSet::new(),
        sink,
    };
    let profile = Profile::of(text.as_bytes());
    listed::decode(text, &profile, &mut walk);
    rearranged::decode(text, &profile, &mut walk);
}

/// One visit under way.
pub(super) struct Walk<'s> {
    limits: Limits,
    /// Bytes that views may still have.
    left: usize,
    /// Blind inflations that may still be tried.
    blind: usize,
    /// Turned samples that may still be tried.
    probes: usize,
    outcome: Outcome,
    how: Vec<Step>,
    /// Where in the visited text the current view came from.
    origin: Option<Range<usize>>,
    /// Bytes of clean views of the text that is being decoded.
    explained: usize,
    /// Bytes that are no text that may still be shown, so many times.
    binaries: usize,
    /// Bytes that masks may still give.
    masked: usize,
    /// Only finding out whether something decodes.
    probing: bool,
    /// Texts that were views, by length, so that most differ in their first comparison.
    known: BTreeSet<(usize, Box<str>)>,
    sink: &'s mut dyn FnMut(View<'_>),
}

impl Walk<'_> {
    /// Counts bytes that a decoder looks at.
    pub(super) fn work(&mut self, bytes: usize) {
        self.outcome.work = self.outcome.work.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// What the current text was decoded by last.
    pub(super) fn last_step(&self) -> Option<Step> {
        self.how.last().copied()
    }

    pub(super) fn saw_opaque(&mut self) {
        self.outcome.opaque = true;
    }

    /// Bytes that one inflation may produce.
    pub(super) fn room(&self) -> usize {
        self.left
    }

    pub(super) fn cut(&mut self) {
        self.outcome.exhausted |= !self.probing;
    }

    /// Takes bytes that an inflation produced out of what views may have, whether they turn out to be text or not.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.work(bytes);
        self.left = self.left.saturating_sub(bytes);
    }

    /// Takes one of the blind inflations.
    pub(super) fn may_guess(&mut self) -> bool {
        let may = self.blind > 0 && !self.probing;
        self.blind -= usize::from(may);
        may
    }

    /// Steps so far that only moved or replaced characters.
    fn permutations(&self) -> usize {
        self.how.iter().filter(|step| step.is_permutation()).count()
    }

    /// Bytes that `step` decoded from `at` of the current text.
    pub(super) fn found_bytes(&mut self, step: Step, bytes: &[u8], at: Range<usize>) {
        let found = readable(bytes);
        if self.how.len() < self.limits.depth {
            self.how.push(step);
            let before = self.origin.clone();
            self.origin.get_or_insert_with(|| at.clone());
            compressed::decode(bytes, found.as_ref().is_some_and(|found| found.clean), self);
            self.origin = before;
            self.how.pop();
        }
        let Some(found) = found else { return };
        self.view(step, &found.text, at, found.clean, true);
    }

    /// The text with `changes` small parts of it decoded. When they are few in a long text, what else is encoded in
    /// it was found in the text itself, and is not looked for again.
    pub(super) fn found_rewritten(&mut self, step: Step, bytes: &[u8], at: Range<usize>, changes: usize) {
        if bytes.len() <= SHORT || changes * 100 >= bytes.len() {
            self.found_bytes(step, bytes, at);
        } else if let Some(found) = readable(bytes) {
            self.view(step, &found.text, at, found.clean, false);
        }
    }

    /// Bytes that `step` decoded from `at`, from its first symbol on: when they are no text, they are compared as they
    /// are, so that they are found in whatever they are encoded.
    pub(super) fn found_binary(&mut self, step: Step, bytes: &[u8], at: Range<usize>) {
        if self.probing || self.permutations() > 0 {
            return;
        }
        // Digits in groups are lists of hashes and ids more often than one thing.
        let in_groups = step == Step::Hex && at.len() > bytes.len() * 2 + bytes.len() / 64;
        if !in_groups && is_noise(bytes) {
            self.saw_opaque();
        }
        masked::decode(step, bytes, &at, self);
        if self.binaries == 0 || bytes.len() < MIN_BINARY {
            return;
        }
        if readable(bytes).is_some_and(|found| found.clean) {
            return;
        }
        self.binaries -= 1;
        let spelled = spelled(bytes);
        if self.how.len() < self.limits.depth && spelled.len() >= 3 * MIN_BINARY {
            self.how.push(step);
            self.view(Step::Bytes, &spelled, at, false, false);
            self.how.pop();
        }
    }

    /// Takes one attempt to find a mask out of what masks may give, and says how many bytes are left for it.
    pub(super) fn take_attempt(&mut self) -> usize {
        self.masked = self.masked.saturating_sub(ATTEMPT);
        if self.how.len() + 1 < self.limits.depth { self.masked } else { 0 }
    }

    /// What is left of bytes that `step` decoded from `at` when a mask is taken away. That it prints proves nothing.
    pub(super) fn found_masked(&mut self, step: Step, text: &str, at: Range<usize>) {
        if text.len() > self.masked {
            return;
        }
        self.masked -= text.len();
        self.how.push(step);
        self.view(Step::Masked, text, at, false, false);
        self.how.pop();
    }

    /// Text that `step` decoded from `at` of the current text.
    pub(super) fn found_text(&mut self, step: Step, text: &str, at: Range<usize>) {
        self.view(step, text, at, true, true);
    }

    /// As [`Self::found_text`], for an order of letters or words in which nothing is encoded.
    pub(super) fn found_order(&mut self, step: Step, text: &str, at: Range<usize>) {
        self.view(step, text, at, true, false);
    }

    /// Whether this text was a view before: many ways lead to the same one. What is remembered is within the bound
    /// on all views.
    fn is_known(&mut self, text: &str) -> bool {
        !self.probing && !self.known.insert((text.len(), text.into()))
    }

    fn view(&mut self, step: Step, text: &str, at: Range<usize>, clean: bool, further: bool) {
        if self.how.len() >= self.limits.depth {
            self.outcome.too_deep |= clean;
            return;
        }
        let mut end = text.len().min(self.left);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end < text.len() {
            self.cut();
        }
        let text = &text[..end];
        if text.len() < MIN_LENGTH || self.is_known(text) {
            return;
        }
        self.left -= text.len();
        self.explained += if clean && reads_well(text) { text.len() } else { 0 };
        self.outcome.output += text.len();
        let before = self.origin.clone();
        let at = self.origin.get_or_insert(at).clone();
        self.how.push(step);
        (self.sink)(View { text, how: &self.how, at, clean });
        if further && !self.probing {
            self.expand(text, clean);
        }
        self.how.pop();
        self.origin = before;
    }

    fn expand(&mut self, text: &str, clean: bool) {
        if text.len() < MIN_LENGTH || !self.how.is_empty() && is_periodic(text.as_bytes()) {
            return;
        }
        let profile = Profile::of(text.as_bytes());
        self.work(text.len());
        let before = std::mem::take(&mut self.explained);
        // What is inside must not use up what this text needs.
        let kept = self.probes.min(PROBES_OF_A_TEXT);
        self.probes -= kept;
        escapes::decode(text, &profile, self);
        hidden::decode(text, &profile, self);
        self.decode_alphabets(text, &profile);
        quoted_printable::decode(text, &profile, self);
        encoded_words::decode(text, &profile, self);
        numbers::decode(text, &profile, self);
        morse::decode(text, &profile, self);
        uuencoded::decode(text, &profile, self);
        listed::decode(text, &profile, self);
        if self.last_step() != Some(Step::Interspersed) {
            interspersed::decode(text, &profile, self);
        }
        self.probes += kept;
        let explained = std::mem::replace(&mut self.explained, before);
        if !clean {
            return;
        }
        // Two permutations on the way are plenty; those that fit every text are tried once. What decodes as it
        // stands needs none, and a short text costs little.
        if self.permutations() < 2 && (text.len() <= SHORT || explained * 10 < text.len() * 3) {
            permuted::decode(text, &profile, self);
        }
        if self.permutations() == 0 {
            rearranged::decode(text, &profile, self);
        }
    }

    fn decode_alphabets(&mut self, text: &str, profile: &Profile) {
        let explained = radix::decode_base64(text, profile, self);
        if is_all_base64(profile, explained) {
            return;
        }
        radix::decode(text, profile, self);
        base85::decode(text, profile, self);
        positional::decode(text, profile, self);
    }

    /// Whether `text` is encoded in one of the common alphabets, so that at least 12 clean bytes come out of it.
    /// Nothing of it is shown.
    pub(super) fn decodes(&mut self, text: &str) -> bool {
        if self.probes == 0 {
            return false;
        }
        self.probes -= 1;
        let mut found = false;
        // A list of numbers can always be read as letters of some script.
        let mut see = |view: View<'_>| {
            let codes = view.how == [Step::CharacterCodes];
            found |= view.clean && view.text.len() >= 12 && (!codes || view.text.is_ascii());
        };
        let mut probe = Walk {
            limits: Limits { depth: 2, ..self.limits },
            left: text.len() * 4 + 4096,
            blind: 0,
            probes: 0,
            outcome: Outcome::default(),
            how: Vec::new(),
            origin: None,
            explained: 0,
            binaries: 0,
            masked: 0,
            probing: true,
            known: BTreeSet::new(),
            sink: &mut see,
        };
        let profile = Profile::of(text.as_bytes());
        radix::decode_base64(text, &profile, &mut probe);
        radix::decode(text, &profile, &mut probe);
        numbers::decode(text, &profile, &mut probe);
        let work = probe.outcome.work + u64::try_from(text.len()).unwrap_or(u64::MAX);
        self.outcome.work = self.outcome.work.saturating_add(work);
        found
    }
}

/// Whether a text is nothing but base64 of which so many symbols are text: then it is nothing else. A few may be left
/// over at its ends, fewer than hide a secret in another alphabet.
fn is_all_base64(profile: &Profile, explained: usize) -> bool {
    const LEFT_OVER: usize = 8;
    let signs = [b'+', b'/', b'-', b'_'].map(|sign| profile.count(sign)).iter().sum::<usize>();
    let symbols = profile.letters_and_digits() + signs;
    explained > 0
        && symbols + profile.white() + profile.count(b'=') == profile.length
        && explained + LEFT_OVER >= symbols
}

/// Mostly letters, digits and spaces: what a wrong decoding, printable by chance, is not.
fn reads_well(text: &str) -> bool {
    let plain =
        text.bytes().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b' ' || *byte >= 0x80).count();
    plain * 5 >= text.len() * 4
}
