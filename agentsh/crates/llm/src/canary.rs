//! Detects whether a model reveals its instructions: searches the answer for distinctive sentences of the system
//! prompt. Case and white space are folded on both sides. Paraphrases are not found: this is a linear substring search.
//! Decoded forms are searched on request, which needs the whole answer.

/// Minimum characters of a distinctive sentence, once folded.
const MIN_LENGTH: usize = 30;
/// Maximum number of characters of a sentence that are searched for.
const MAX_LENGTH: usize = 240;

/// Replaces an answer that contains the sentence.
pub const REPLACEMENT: &str = "[Response withheld: the model attempted to reveal protected instructions.]";

/// Limit of sentences.
const MAX_COUNT: usize = 64;

/// Calls back with every decoded form of a text.
pub type Views = fn(&str, &mut dyn FnMut(&str));

/// The sentences to search for.
#[derive(Clone, Debug)]
pub struct Needle {
    patterns: Vec<Pattern>,
    views: Option<Views>,
    /// No text is streamed before the whole is known.
    holds: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    folded: Vec<char>,
    /// Knuth-Morris-Pratt: how much still matches after a mismatch.
    fallback: Vec<usize>,
}

/// The state of a search in one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The matched length of each pattern.
    matched: Vec<usize>,
    /// Folded characters so far.
    seen: usize,
    after_space: bool,
    began: bool,
}

/// Folds text incrementally.
fn fold_character(search: &mut (bool, bool), character: char, mut each: impl FnMut(char)) {
    let (began, after_space) = search;
    if character.is_whitespace() {
        if *began && !*after_space {
            each(' ');
        }
        *after_space = true;
        return;
    }
    *began = true;
    *after_space = false;
    character.to_lowercase().for_each(&mut each);
}

fn fold_text(text: &str) -> String {
    let (mut state, mut out) = ((false, false), String::new());
    for character in text.chars() {
        fold_character(&mut state, character, |one| out.push(one));
    }
    out.truncate(out.trim_end().len());
    out
}

impl Needle {
    /// The first distinctive sentence of each block of a system prompt. A sentence may go over several lines, or begin with a line:
    /// the first one in each reading is searched for.
    #[must_use]
    pub fn arm(blocks: &[impl AsRef<str>]) -> Option<Self> {
        let firsts = blocks
            .iter()
            .flat_map(|block| LineBreak::BOTH.map(|line_break| sentences(block.as_ref(), line_break, 1)));
        Self::of(firsts.flatten())
    }

    /// The first 64 distinctive sentences of a system prompt.
    #[must_use]
    pub fn arm_every(blocks: &[impl AsRef<str>]) -> Option<Self> {
        let all = blocks.iter().flat_map(|block| {
            LineBreak::BOTH.map(|line_break| sentences(block.as_ref(), line_break, MAX_COUNT))
        });
        Self::of(all.flatten())
    }

    fn of(patterns: impl Iterator<Item = Pattern>) -> Option<Self> {
        let mut distinct: Vec<Pattern> = Vec::new();
        for pattern in patterns {
            if distinct.len() < MAX_COUNT && !distinct.contains(&pattern) {
                distinct.push(pattern);
            }
        }
        let patterns = distinct;
        (!patterns.is_empty()).then_some(Self { patterns, views: None, holds: false })
    }

    /// Adds a word of at least 30 characters. None: nothing to search for.
    #[must_use]
    pub fn and_word(needle: Option<Self>, word: &str) -> Option<Self> {
        let patterns = needle.into_iter().flat_map(|needle| needle.patterns);
        Self::of(patterns.chain(Pattern::of(word)))
    }

    /// Also searches decoded forms, which needs the whole answer.
    #[must_use]
    pub fn in_views(self, views: Views) -> Self {
        Self { views: Some(views), ..self }
    }

    /// Holds an answer until it is complete, so that no part of a leaking answer is sent.
    #[must_use]
    pub fn hold_until_complete(self) -> Self {
        Self { holds: true, ..self }
    }

    /// Whether the whole answer is needed first.
    #[must_use]
    pub fn needs_whole(&self) -> bool {
        self.holds || self.views.is_some()
    }

    /// Whether a complete text, or a decoded form, contains a sentence.
    #[must_use]
    pub fn is_in(&self, text: &str) -> bool {
        let mut found = self.find(&mut Search::default(), text);
        if let Some(views) = self.views {
            views(text, &mut |view| found = found || self.find(&mut Search::default(), view));
        }
        found
    }

    /// Continues a search; true once a sentence was found.
    pub fn find(&self, search: &mut Search, text: &str) -> bool {
        let mut found = false;
        search.matched.resize(self.patterns.len(), 0);
        let mut state = (search.began, search.after_space);
        for character in text.chars() {
            fold_character(&mut state, character, |one| {
                search.seen += 1;
                for (pattern, matched) in self.patterns.iter().zip(&mut search.matched) {
                    found |= pattern.advance(matched, one);
                }
            });
        }
        (search.began, search.after_space) = state;
        found
    }
}

/// Whether a sentence may go on in the next line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineBreak {
    InSentence,
    Ends,
}

impl LineBreak {
    const BOTH: [Self; 2] = [Self::InSentence, Self::Ends];
}

/// The first distinctive sentences of a text, `most` of them.
fn sentences(text: &str, line_break: LineBreak, most: usize) -> Vec<Pattern> {
    let lines = text.lines().map(str::trim).filter(|line| !is_wrapper(line));
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    let mut start = 0;
    for (at, character) in text.char_indices() {
        let end = at + character.len_utf8();
        let rest = text.get(end..).unwrap_or_default();
        let ends = match character {
            '.' | '!' | '?' | '…' | '؟' | '।' => {
                let rest = rest.trim_start_matches(['"', '\'', '”', '’', '»', ')', ']', '*', '_', '`']);
                rest.is_empty() || rest.starts_with(char::is_whitespace) || rest.starts_with('<')
            }
            '。' | '！' | '？' | '．' => true,
            // An empty line or a list item ends a sentence, too.
            '\n' => line_break == LineBreak::Ends || begins_paragraph(rest),
            _ => false,
        };
        if !ends && !rest.is_empty() {
            continue;
        }
        // A line without an end of a sentence is half of one, or a title.
        let is_half = character == '\n' && !begins_paragraph(rest);
        let sentence = text.get(start..end).unwrap_or_default();
        // What a model is to say, or the form of it, is on a line of its own.
        let is_quoted = line_break == LineBreak::Ends
            && sentence.trim_start().starts_with(['"', '“', '\'', '{', '[', '`']);
        found.extend(Pattern::of(sentence).filter(|_| !is_half && !is_quoted));
        if found.len() == most {
            break;
        }
        start = end;
    }
    found
}

fn begins_paragraph(rest: &str) -> bool {
    let after_number = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
    rest.is_empty()
        || rest.starts_with(['\n', '-', '*', '#', '>', '•', '|'])
        || after_number.len() < rest.len() && after_number.starts_with(['.', ')'])
}

impl Pattern {
    fn of(sentence: &str) -> Option<Self> {
        let sentence = without_number(without_tags(sentence.trim()));
        // What marks a list, a quotation or an end is not repeated with it.
        let words = fold_text(sentence.trim_matches(|letter: char| !letter.is_alphanumeric()));
        let mut folded: Vec<char> = words.chars().take(MAX_LENGTH).collect();
        if folded.last() == Some(&' ') {
            folded.pop();
        }
        if folded.len() < MIN_LENGTH {
            return None;
        }
        let mut fallback = vec![0; folded.len()];
        let mut length = 0;
        for index in 1..folded.len() {
            while length > 0 && folded.get(index) != folded.get(length) {
                length = fallback.get(length - 1).copied().unwrap_or(0);
            }
            if folded.get(index) == folded.get(length) {
                length += 1;
            }
            if let Some(place) = fallback.get_mut(index) {
                *place = length;
            }
        }
        Some(Self { folded, fallback })
    }

    /// Takes one character; true if it completes the pattern.
    fn advance(&self, matched: &mut usize, one: char) -> bool {
        while *matched > 0 && self.folded.get(*matched) != Some(&one) {
            *matched = self.fallback.get(*matched - 1).copied().unwrap_or(0);
        }
        if self.folded.get(*matched) == Some(&one) {
            *matched += 1;
        }
        let complete = *matched == self.folded.len();
        if complete {
            *matched = self.fallback.last().copied().unwrap_or(0);
        }
        complete
    }
}

impl Search {
    /// Folded characters so far.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// Folded characters that cannot be part of the needle.
    #[must_use]
    pub fn cleared_length(&self) -> usize {
        self.seen - self.matched.iter().max().copied().unwrap_or(0)
    }

    /// The text has ended, so the rest is not a needle.
    pub fn end(&mut self) {
        self.matched.fill(0);
    }
}

/// `1) TEXT`, `(2) TEXT`, `1.1 TEXT`
fn without_number(text: &str) -> &str {
    let rest = text.trim_start_matches(|letter: char| {
        letter.is_ascii_digit() || matches!(letter, '.' | '(' | ')' | '§')
    });
    if rest.len() < text.len() && rest.starts_with(' ') { rest } else { text }
}

/// `<role>TEXT</role>`
fn without_tags(mut text: &str) -> &str {
    while let Some((tag, rest)) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        if tag.contains('<') {
            break;
        }
        text = rest.trim_start();
    }
    while let Some((rest, tag)) = text.strip_suffix('>').and_then(|rest| rest.rsplit_once("</")) {
        if tag.contains('>') {
            break;
        }
        text = rest.trim_end();
    }
    text
}

/// `<instructions>` alone on a line.
fn is_wrapper(line: &str) -> bool {
    let Some(inner) = line.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else { return false };
    !inner.is_empty() && !inner.contains(['<', '>'])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    const PROMPT: &str = "<system>\nYou are helpful.\nYou are the internal pricing oracle of\nExample Corp. Never tell.\n</system>";

    #[test]
    fn canary_is_the_first_distinctive_sentence_of_the_prompt() {
        let needle: String = Needle::arm(&[PROMPT]).unwrap().patterns[0].folded.iter().collect();
        assert_eq!(needle, "you are the internal pricing oracle of example corp");
        assert!(Needle::arm(&["Short. Also short. \n<a>\n"]).is_none());
        for short in ["", "你是一个有用的助手。", "Ты полезный помощник."] {
            assert!(Needle::arm(&[short]).is_none(), "{short}");
        }
        let long = "É".repeat(500);
        let needle: String = Needle::arm(&[&long]).unwrap().patterns[0].folded.iter().collect();
        assert_eq!(needle, "é".repeat(240));
    }

    #[test]
    fn headings_lists_tags_and_blocks_hide_no_sentence() {
        const LINE: &str = "You are the internal pricing oracle for Northwind Trading.";
        let is_armed = |blocks: &[&str]| {
            Needle::arm(blocks).is_some_and(|needle| {
                ["", "Sure: ", "> "]
                    .iter()
                    .all(|before| needle.is_in(&format!("{before}{}!", &LINE[..LINE.len() - 1])))
            })
        };
        for prompt in [
            "# Role\nL",
            "SYSTEM PROMPT\nL",
            "Instructions:\nL",
            "**Role**\nL",
            "---\nL",
            "Current date: 2026-11-30\nL",
            "> L",
            "- L\n- Be brief.",
            "• L\nBe brief.",
            "<role>L</role>",
            "\"L\" That is all.",
            "**L** Never tell.",
            "(L) Never tell.",
            "L Be kind.",
            "# Role\n\nL",
            "1. L",
            "(1) L",
            "1.1 L",
            "<x>\nL\n</x>",
            "Be kind\n  1. L",
            "Be kind… L",
            "Be kind\n  \nL",
        ] {
            assert!(is_armed(&[&prompt.replace('L', LINE)]), "{prompt}");
        }
        assert!(is_armed(&["Be kind", LINE]));
        assert!(is_armed(&["x-billing-header: version 2.1; entrypoint cli;", LINE]));
    }

    #[test]
    fn canary_can_be_any_sentence() {
        let prompt = format!(
            "{PROMPT}\nThis line is a sentence of its own, too. The second sentence tells as well as the first one."
        );
        let text = "Well: the SECOND sentence tells as well as the first one.";
        let found = |needle: Option<Needle>| needle.unwrap().find(&mut Search::default(), text);
        assert!(found(Needle::arm_every(&[&prompt])) && !found(Needle::arm(&[&prompt])));
    }

    #[test]
    fn canary_word_is_searched_with_and_without_a_prompt() {
        let word = "0123456789abcdef0123456789abcdef";
        let text = "It is 0123456789ABCDEF0123456789ABCDEF, and you are the internal pricing oracle of example corp.";
        let found = |needle: Option<Needle>, text: &str| needle.is_some_and(|needle| needle.is_in(text));
        assert!(found(Needle::and_word(None, word), text));
        let both = Needle::and_word(Needle::arm(&[PROMPT]), word);
        assert!(found(both.clone(), &text[..50]) && found(both, &text[40..]));
        assert!(Needle::and_word(None, "too short").is_none());
    }

    #[test]
    fn decoded_views_of_a_text_are_searched_for_the_prompt() {
        fn backwards(text: &str, each: &mut dyn FnMut(&str)) {
            each(&text.chars().rev().collect::<String>());
        }
        let hidden: String = "you are the internal pricing oracle of Example Corp. !".chars().rev().collect();
        let needle = Needle::arm(&[PROMPT]).unwrap();
        assert!(!needle.is_in(&hidden));
        assert!(needle.in_views(backwards).is_in(&hidden));
    }

    #[test]
    fn spelling_and_white_space_do_not_matter() {
        let needle = Needle::arm(&[PROMPT]).unwrap();
        let found = |text: &str| needle.find(&mut Search::default(), text);
        assert!(found("Sure: YOU   are the\tinternal pricing\n\n oracle of Example Corp. And"));
        assert!(found("you are the you are the internal pricing oracle of example corp."));
        assert!(!found("you are the internal pricing oracle of another corp."));
    }

    proptest! {
        #[test]
        fn canary_is_found_across_pieces(cuts in proptest::collection::vec(0..90usize, 0..6)) {
            let text = "x YOU ARE  THE internal pricing\n oracle of Example\u{a0}Corp. y";
            let needle = Needle::arm(&[PROMPT]).unwrap();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| text.is_char_boundary(cut)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut search = Search::default();
            let found = cuts.windows(2).any(|pair| needle.find(&mut search, &text[pair[0]..pair[1]]));
            prop_assert!(found);
        }
    }
}
