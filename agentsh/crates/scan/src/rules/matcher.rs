//! Finds concepts near each other, in one pass and constant time per hit.

use std::ops::Range;

use super::lexicon::{Hit, Lexicon};
use super::raw::Rule;

/// Default distance in bytes between concepts of a rule.
const GAP: usize = 16;
const MAX_SET_DISTANCE: usize = 80;

/// Where a rule matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub rule: usize,
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, Default)]
pub struct Matcher {
    chains: Vec<Chain>,
    sets: Vec<Set>,
    /// By concept: its steps.
    steps: Vec<Vec<Step>>,
    /// By rule.
    capitals: Vec<bool>,
}

#[derive(Debug)]
struct Chain {
    rule: usize,
    /// Maximum bytes before each step; the first is unused.
    gaps: Vec<usize>,
    /// Its first concept.
    begins: usize,
    /// Index of its first step in [`State::chains`].
    first: usize,
}

#[derive(Debug)]
struct Set {
    rule: usize,
    within: usize,
    size: usize,
    first: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Chain(usize, usize),
    Set(usize, usize),
}

type Latest = [Option<(usize, usize)>; 2];

/// The state of a pass. It serves one text after the other: places count from the first one's start, so that those of an
/// earlier text are too far away to matter.
#[derive(Debug, Default)]
pub struct State {
    /// For each step of each chain but its first: start and end of the latest two matches. Two, because one word can be two
    /// concepts and must not block itself.
    chains: Vec<Latest>,
    /// By concept: the same for its hits, which are the first steps of all chains that begin with it.
    begun: Vec<Latest>,
    sets: Vec<Option<(usize, usize)>>,
}

impl Matcher {
    pub(super) fn new(rules: &[Rule], lexicon: &mut Lexicon) -> Result<Self, String> {
        let mut matcher = Self::default();
        let (mut chain_steps, mut set_members) = (0, 0);
        for (at, rule) in rules.iter().enumerate() {
            matcher.capitals.push(rule.capitals);
            if rule.sequence.is_empty() && rule.together.is_empty() && rule.says.is_empty() {
                return Err(format!(
                    "rule '{}' needs one of the keys `sequence`, `together` and `says`",
                    rule.id
                ));
            }
            let number = |concept: &str, lexicon: &Lexicon| {
                lexicon
                    .number(concept)
                    .ok_or_else(|| format!("rule '{}' names '{concept}', which is not a concept", rule.id))
            };
            if !rule.says.is_empty() {
                let own = lexicon.add(&format!("says {}", rule.id), &rule.says);
                matcher.step_for(own, Step::Chain(matcher.chains.len(), 0));
                let begins = usize::from(own);
                matcher.chains.push(Chain { rule: at, gaps: vec![0], begins, first: chain_steps });
                chain_steps += 1;
            }
            for line in &rule.sequence {
                let (mut gaps, mut gap, mut begins) = (Vec::new(), GAP, 0);
                for word in line.split_whitespace() {
                    if let Some(bytes) = number_in_brackets(word) {
                        gap = bytes;
                        continue;
                    }
                    let concept = number(word, lexicon)?;
                    if gaps.is_empty() {
                        begins = concept;
                    } else {
                        matcher.step_for(concept, Step::Chain(matcher.chains.len(), gaps.len()));
                    }
                    gaps.push(std::mem::replace(&mut gap, GAP));
                }
                if gaps.len() == 1 {
                    matcher.step_for(begins, Step::Chain(matcher.chains.len(), 0));
                }
                chain_steps += gaps.len();
                let (begins, first) = (usize::from(begins), chain_steps - gaps.len());
                matcher.chains.push(Chain { rule: at, begins, first, gaps });
            }
            for line in &rule.together {
                let (mut size, mut within) = (0, MAX_SET_DISTANCE);
                for word in line.split_whitespace() {
                    if let Some(bytes) = number_in_brackets(word) {
                        within = bytes;
                        continue;
                    }
                    let concept = number(word, lexicon)?;
                    matcher.step_for(concept, Step::Set(matcher.sets.len(), size));
                    size += 1;
                }
                matcher.sets.push(Set { rule: at, within, size, first: set_members });
                set_members += size;
            }
        }
        for steps in &mut matcher.steps {
            // Later steps first, so that one hit is not two steps of a chain.
            steps.sort_by_key(|step| match step {
                Step::Chain(_, at) | Step::Set(_, at) => std::cmp::Reverse(*at),
            });
        }
        Ok(matcher)
    }

    /// Maximum bytes from a rule's first concept to its last.
    #[cfg(test)]
    pub fn longest_match(&self) -> usize {
        let chains = self.chains.iter().map(|chain| chain.gaps.iter().skip(1).sum());
        chains.chain(self.sets.iter().map(|set| set.within)).max().unwrap_or(0)
    }

    fn step_for(&mut self, concept: u16, step: Step) {
        let concept = usize::from(concept);
        if self.steps.len() <= concept {
            self.steps.resize_with(concept + 1, Vec::new);
        }
        self.steps[concept].push(step);
    }

    /// Takes a hit, in order of starts. `base`: where the text begins.
    pub fn step(&self, state: &mut State, hit: Hit, text: &str, base: usize, found: &mut Vec<Match>) {
        if state.chains.is_empty() {
            let steps = self.chains.iter().map(|chain| chain.gaps.len()).sum();
            let members = self.sets.iter().map(|set| set.size).sum();
            let concepts = self.chains.iter().map(|chain| chain.begins + 1).max().unwrap_or(0);
            let (chains, begun) = (vec![[None; 2]; steps], vec![[None; 2]; concepts]);
            *state = State { chains, begun, sets: vec![None; members] };
        }
        self.take_steps(state, hit, text, base, found);
        // Afterwards, so that one hit is not two steps of a chain.
        if let Some(latest) = state.begun.get_mut(usize::from(hit.concept)) {
            *latest = [Some((hit.start, hit.end)), latest[0]];
        }
    }

    fn take_steps(&self, state: &mut State, hit: Hit, text: &str, base: usize, found: &mut Vec<Match>) {
        let Some(steps) = self.steps.get(usize::from(hit.concept)) else { return };
        for step in steps {
            match *step {
                Step::Chain(chain, at) => {
                    let chain = &self.chains[chain];
                    let start = if at == 0 {
                        Some(hit.start)
                    } else {
                        let before = match at {
                            1 => &state.begun[chain.begins],
                            _ => &state.chains[chain.first + at - 1],
                        };
                        before
                            .iter()
                            .copied()
                            .flatten()
                            .find(|(_, end)| *end <= hit.start && hit.start - end <= chain.gaps[at])
                            .map(|(start, _)| start)
                    };
                    let Some(start) = start else { continue };
                    if at + 1 == chain.gaps.len() {
                        if at == 0 || is_one_paragraph(&text[start - base..hit.end - base]) {
                            self.push(chain.rule, start - base..hit.end - base, text, found);
                        }
                    } else {
                        let ways = &mut state.chains[chain.first + at];
                        *ways = [Some((start, hit.end)), ways[0]];
                    }
                }
                Step::Set(set, at) => {
                    let set = &self.sets[set];
                    let members = &mut state.sets[set.first..set.first + set.size];
                    members[at] = Some((hit.start, hit.end));
                    let starts = members.iter().map(|member| member.map(|(start, _)| start));
                    let Some(start) = starts.min().flatten() else { continue };
                    if hit.end.saturating_sub(start) <= set.within {
                        if is_one_paragraph(&text[start - base..hit.end - base]) {
                            self.push(set.rule, start - base..hit.end - base, text, found);
                        }
                        members.fill(None);
                    }
                }
            }
        }
    }

    fn push(&self, rule: usize, place: Range<usize>, text: &str, found: &mut Vec<Match>) {
        if self.capitals[rule] && text[place.clone()].bytes().any(|byte| byte.is_ascii_lowercase()) {
            return;
        }
        found.push(Match { rule, start: place.start, end: place.end });
    }
}

/// Whether no empty line or list item begins in between: words across them are in different sentences.
fn is_one_paragraph(text: &str) -> bool {
    memchr::memchr_iter(b'\n', text.as_bytes()).all(|end| {
        let line = text[end + 1..].trim_start_matches([' ', '\t', '\r']);
        !line.starts_with(['\n', '*', '+', '\u{2022}']) && !line.starts_with("- ")
    })
}

fn number_in_brackets(word: &str) -> Option<usize> {
    word.strip_prefix('<')?.strip_suffix('>')?.parse().ok()
}
