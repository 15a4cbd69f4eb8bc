//! What a session refused, as the lines of policy that would allow it: one piece that can be pasted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::types::ServerId;

/// Of an ordinary terminal.
const COLUMNS: usize = 80;
/// Entries that are remembered of each kind for each sandbox.
const MOST_WANTED: usize = 200;

/// A key of the policy whose list would have to be longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `network.allow`.
    Host,
    /// `network.loopback`.
    Loopback,
    /// `filesystem.read`.
    Read,
    /// `filesystem.write`.
    Write,
    /// `filesystem.unmask`.
    Unmask,
}

type Counts = BTreeMap<(Key, String), u32>;

/// What would have to be allowed, by who asked. None: the agent.
#[derive(Debug, Default)]
pub struct Wanted(RefCell<BTreeMap<Option<ServerId>, Counts>>);

impl Wanted {
    /// Something was refused. `entry` is written as in the policy.
    pub fn add(&self, server: Option<&ServerId>, key: Key, entry: &str) {
        let is_path = matches!(key, Key::Read | Key::Write | Key::Unmask);
        // Names are chosen by who is inside: one that is a pattern would open more than was refused.
        if entry.contains('*') || is_path && !entry.starts_with('"') && !is_plain(entry) {
            return;
        }
        let mut all = self.0.borrow_mut();
        let counts = all.entry(server.cloned()).or_default();
        let key = (key, entry.to_owned());
        if counts.len() < MOST_WANTED || counts.contains_key(&key) {
            let count = counts.entry(key).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// The piece of policy, with the `most` entries of each list that were refused most often. None: nothing was.
    #[must_use]
    pub fn snippet(&self, most: usize) -> Option<String> {
        let all = self.0.borrow();
        let mut text = String::new();
        for (server, counts) in &*all {
            let network =
                section("network", &[(Key::Host, "allow"), (Key::Loopback, "loopback")], counts, most);
            let files = [(Key::Read, "read"), (Key::Write, "write"), (Key::Unmask, "unmask")];
            let files = section("filesystem", &files, counts, most);
            let sections: Vec<Section> = network.into_iter().chain(files).collect();
            // Writing to a string cannot fail.
            let _ = match server {
                None => {
                    let lines: Vec<String> = sections.iter().map(Section::of_agent).collect();
                    writeln!(text, "agent:\n{}", lines.join("\n"))
                }
                Some(id) => {
                    if !text.contains("sandbox:\n") {
                        text.push_str("sandbox:\n  mcp:\n    servers:\n");
                    }
                    let sections: Vec<String> = sections.iter().map(Section::in_one_line).collect();
                    writeln!(text, "      - {{id: {:?}, {}}}", id.0, sections.join(", "))
                }
            };
        }
        text.truncate(text.trim_end().len());
        (!text.is_empty()).then_some(text)
    }
}

/// A key with the lists below it.
struct Section {
    name: &'static str,
    lists: Vec<String>,
}

impl Section {
    fn in_one_line(&self) -> String {
        format!("{}: {{{}}}", self.name, self.lists.join(", "))
    }

    /// Below `agent:`, list by list where one line would be wider than an ordinary terminal.
    fn of_agent(&self) -> String {
        let whole = format!("  {}", self.in_one_line());
        if whole.len() <= COLUMNS {
            return whole;
        }
        format!("  {}:\n    {}", self.name, self.lists.join("\n    "))
    }
}

fn section(
    name: &'static str,
    keys: &[(Key, &'static str)],
    counts: &Counts,
    most: usize,
) -> Option<Section> {
    let lists =
        keys.iter().filter_map(|(key, name)| Some(format!("{name}: [{}]", list(counts, *key, most)?)));
    let lists: Vec<String> = lists.collect();
    (!lists.is_empty()).then_some(Section { name, lists })
}

/// The most frequent first chosen, then in the order of their names.
fn list(counts: &Counts, key: Key, most: usize) -> Option<String> {
    let mut entries: Vec<(u32, &String)> =
        counts.iter().filter(|((of, _), _)| *of == key).map(|((_, entry), count)| (*count, entry)).collect();
    entries.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    entries.truncate(most);
    let mut names: Vec<&str> = entries.into_iter().map(|(_, entry)| entry.as_str()).collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Whether a path can stand in a list of YAML as it is. Names are chosen by who is inside: others are in the record alone, and
/// so is what would open everything.
fn is_plain(path: &str) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "/._-~@+=".contains(sign);
    path.chars().any(|sign| sign.is_ascii_alphanumeric()) && path.chars().all(is_sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_entries_of_each_list() {
        let wanted = Wanted::default();
        assert_eq!(wanted.snippet(9), None);
        for entry in ["b.example", "a.example", "c.example", "c.example"] {
            wanted.add(None, Key::Host, entry);
        }
        wanted.add(None, Key::Loopback, "5432");
        wanted.add(None, Key::Unmask, "\".git/config\"");
        for odd in ["/", "~", "~/**", "/a*", "\"/home/*/x y\"", "/a]: {b", "/a b", ""] {
            wanted.add(None, Key::Read, odd);
        }
        wanted.add(None, Key::Host, "\"*.example\"");
        wanted.add(Some(&ServerId("s".to_owned())), Key::Host, "d.example");
        let expected = "agent:\n  network: {allow: [a.example, c.example], loopback: [5432]}\n  filesystem: {unmask: [\".git/config\"]}\n\
                        sandbox:\n  mcp:\n    servers:\n      - {id: \"s\", network: {allow: [d.example]}}";
        assert_eq!(wanted.snippet(2).as_deref(), Some(expected));

        let wanted = Wanted::default();
        for number in 0..3 {
            wanted.add(None, Key::Host, &format!("\"a-long-name-{number}.example.com\""));
        }
        wanted.add(None, Key::Loopback, "5432");
        let expected = "agent:\n  network:\n    allow: [\"a-long-name-0.example.com\", \"a-long-name-1.example.com\", \
                        \"a-long-name-2.example.com\"]\n    loopback: [5432]";
        assert_eq!(wanted.snippet(9).as_deref(), Some(expected));
    }
}
