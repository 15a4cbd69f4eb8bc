//! The texts in a JSON value: strings, numbers, member names, and lists of character codes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::json::{Json, unescape};
use crate::text::{Decoded, Limits, looks_encoded};

/// Shortest list of numbers that may spell a text.
const MIN_CODES: usize = 6;
/// Bytes of the values of lists that are read as one text.
const MAX_JOINED: usize = 4096;
/// Longest piece of a pointer that is shown.
const MAX_STEP: usize = 32;

/// A number that may be the code of a character.
fn code(value: &Json<'_>) -> Option<u32> {
    match value {
        Json::Number(raw) => raw.parse().ok(),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Name,
    Text,
    Number,
    /// A list of character codes, decoded.
    Codes,
    /// The name of the tool that is called.
    Tool,
}

#[derive(Clone, Debug)]
pub struct Leaf<'a> {
    pub role: Role,
    pub text: Cow<'a, str>,
    node: u32,
    decoded: OnceLock<Box<Decoded>>,
    /// The result of [`looks_encoded`], once requested.
    encoded: Answer,
}

/// Yes, no or not computed yet, in one byte.
#[derive(Debug, Default)]
struct Answer(AtomicU8);

impl Answer {
    fn get_or_init(&self, ask: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            0 => {
                let answer = ask();
                self.0.store(1 + u8::from(answer), Ordering::Relaxed);
                answer
            }
            known => known == 2,
        }
    }
}

impl Clone for Answer {
    fn clone(&self) -> Self {
        Self(AtomicU8::new(self.0.load(Ordering::Relaxed)))
    }
}

impl<'a> Leaf<'a> {
    fn new(role: Role, text: Cow<'a, str>, node: u32) -> Self {
        Self { role, text, node, decoded: OnceLock::new(), encoded: Answer::default() }
    }

    /// Like [`looks_encoded`]; computed once.
    #[must_use]
    pub fn looks_encoded(&self) -> bool {
        self.encoded.get_or_init(|| looks_encoded(&self.text))
    }

    /// The texts that decode from this one, within the limits of the first caller; decoded once.
    #[must_use]
    pub fn decoded_texts(&self, limits: &Limits) -> &Decoded {
        self.decoded.get_or_init(|| Box::new(Decoded::of(&self.text, limits)))
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Root,
    /// A member; its name is the leaf with this number.
    Member(u32),
    Item(u32),
}

/// All leaves, in the order of the document.
#[derive(Clone, Debug, Default)]
pub struct Leaves<'a> {
    pub items: Vec<Leaf<'a>>,
    nodes: Vec<(u32, Step)>,
}

impl<'a> Leaves<'a> {
    /// The arguments of a call.
    #[must_use]
    pub fn of_call(tool: &'a str, arguments: &Json<'a>) -> Self {
        let mut leaves = Self { nodes: vec![(0, Step::Root)], ..Self::default() };
        leaves.items.push(Leaf::new(Role::Tool, Cow::Borrowed(tool), 0));
        leaves.add(arguments, 0);
        leaves
    }

    /// A result, an error, or any other text of a server.
    #[must_use]
    pub fn of(value: &Json<'a>) -> Self {
        let mut leaves = Self { nodes: vec![(0, Step::Root)], ..Self::default() };
        leaves.add(value, 0);
        leaves
    }

    /// Bytes of all leaves together.
    #[must_use]
    pub fn length(&self) -> usize {
        self.items.iter().map(|leaf| leaf.text.len()).sum()
    }

    /// The position of a leaf, as a JSON pointer. Names that could be leaked data are replaced by their number.
    #[must_use]
    pub fn pointer(&self, leaf: usize) -> String {
        let Some(item) = self.items.get(leaf) else { return String::new() };
        if item.role == Role::Tool {
            return "tool".to_owned();
        }
        let mut steps = Vec::new();
        let mut node = item.node;
        while let Some((parent, step)) = self.nodes.get(node as usize).copied() {
            match step {
                Step::Root => break,
                Step::Item(at) => steps.push(at.to_string()),
                Step::Member(name) => steps.push(self.display_name(name)),
            }
            node = parent;
        }
        steps.iter().rev().fold(String::new(), |pointer, step| pointer + "/" + step)
    }

    /// The name of the member of a leaf, through any number of lists.
    #[must_use]
    pub fn name_of(&self, leaf: usize) -> Option<&str> {
        let mut node = self.items.get(leaf)?.node;
        loop {
            match self.nodes.get(node as usize).copied()? {
                (_, Step::Root) => return None,
                (parent, Step::Item(_)) => node = parent,
                (_, Step::Member(name)) => return self.items.get(name as usize).map(|item| &*item.text),
            }
        }
    }

    /// The path without positions in lists: what stays the same from one call to the next, and in one list.
    #[must_use]
    pub fn path(&self, leaf: usize) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut node = self.items.get(leaf).map_or(0, |item| item.node);
        while let Some((parent, step)) = self.nodes.get(node as usize).copied() {
            match step {
                Step::Root => break,
                Step::Item(_) => hash = (hash ^ 0xff).wrapping_mul(0x100_0000_01b3),
                Step::Member(name) => {
                    let name = self.items.get(name as usize).map_or("", |item| &item.text);
                    for byte in name.bytes() {
                        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                    }
                }
            }
            node = parent;
        }
        hash
    }

    /// The values of each list whose items have no spaces, as one text, with the leaf of the first.
    #[must_use]
    pub fn joined_lists(&self) -> Vec<(usize, String)> {
        let (mut lists, mut room) = (BTreeMap::<u64, (usize, usize, String)>::new(), MAX_JOINED);
        for (at, leaf) in self.items.iter().enumerate() {
            if leaf.role == Role::Text
                && leaf.text.len() <= room
                && !leaf.text.contains(char::is_whitespace)
                && self.is_in_list(leaf.node)
            {
                room -= leaf.text.len();
                let (_, count, joined) = lists.entry(self.path(at)).or_insert_with(|| (at, 0, String::new()));
                *count += 1;
                joined.push_str(&leaf.text);
            }
        }
        lists.into_values().filter(|list| list.1 > 1).map(|(first, _, joined)| (first, joined)).collect()
    }

    fn is_in_list(&self, mut node: u32) -> bool {
        while let Some((parent, step)) = self.nodes.get(node as usize).copied() {
            match step {
                Step::Root => break,
                Step::Item(_) => return true,
                Step::Member(_) => node = parent,
            }
        }
        false
    }

    fn display_name(&self, name: u32) -> String {
        let text = self.items.get(name as usize).map_or("", |item| &item.text);
        let plain = text.len() <= MAX_STEP
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
            && !agentsh_secrets::checks::looks_random(text.as_bytes());
        if plain { text.to_owned() } else { format!("[name {name}]") }
    }

    fn add(&mut self, value: &Json<'a>, node: u32) {
        match value {
            Json::Null | Json::Bool(_) => {}
            Json::Number(raw) => self.push(Role::Number, Cow::Borrowed(raw), node),
            Json::String(raw) => self.push(Role::Text, unescape(raw), node),
            Json::Array(items) => {
                self.codes(items.len(), items.iter().map(code), node);
                for (at, item) in items.iter().enumerate() {
                    let child = self.node(node, Step::Item(at as u32));
                    self.add(item, child);
                }
            }
            Json::Object(members) => {
                for (raw, value) in members {
                    let name = self.items.len() as u32;
                    let child = self.node(node, Step::Member(name));
                    self.push(Role::Name, unescape(raw), child);
                    self.add(value, child);
                }
            }
        }
    }

    fn codes(&mut self, length: usize, codes: impl Iterator<Item = Option<u32>>, node: u32) {
        if length < MIN_CODES {
            return;
        }
        let Some(text) = codes.map(|code| char::from_u32(code?)).collect::<Option<String>>() else { return };
        if text.chars().filter(|character| character.is_control()).count() * 10 <= length {
            self.push(Role::Codes, Cow::Owned(text), node);
        }
    }

    fn push(&mut self, role: Role, text: Cow<'a, str>, node: u32) {
        self.items.push(Leaf::new(role, text, node));
    }

    fn node(&mut self, parent: u32, step: Step) -> u32 {
        self.nodes.push((parent, step));
        self.nodes.len() as u32 - 1
    }
}

/// A message may have two million, and few of them are asked what decodes from them.
const _: () = assert!(size_of::<Leaf<'_>>() <= 48);
