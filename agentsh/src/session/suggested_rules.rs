//! The commands that would allow what a session refused.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use agentsh_base::remedy::Allow;
use agentsh_host::Facts;
use agentsh_policy::place;

/// Limit of remembered suggestions.
const MAX_WANTED: usize = 1000;

/// The server, if any, and whether for writing; a word of the command, or a policy text without a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suggestion {
    Word(Option<String>, bool, String),
    Piece(String),
}

/// Suggestions, with the number of refusals.
#[derive(Debug, Default)]
pub struct SuggestedRules(RefCell<BTreeMap<Suggestion, u32>>);

impl SuggestedRules {
    /// Counts a refusal that this change would allow.
    pub fn add(&self, facts: &Facts, change: &str) {
        let (context, paths) = (&facts.context, facts.paths());
        let own = [&context.home, &context.project, &context.state, &context.config];
        let allow = facts.allowing(change).map(|mut allow| {
            allow.words.retain(|word| {
                !word.starts_with(['/', '~', '.']) || !is_wide(&place::resolve(word, &paths), &own)
            });
            allow
        });
        self.note(allow, change);
    }

    fn note(&self, allow: Option<Allow>, change: &str) {
        let wishes = match allow {
            Some(allow) => suggested_words(&allow),
            None => vec![Suggestion::Piece(change.to_owned())],
        };
        let mut all = self.0.borrow_mut();
        for wish in wishes {
            if all.len() < MAX_WANTED || all.contains_key(&wish) {
                let count = all.entry(wish).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    /// Commands with the `most` most frequent words, by name. `file` is the user's policy.
    #[must_use]
    pub fn lines(&self, most: usize, file: &str) -> Vec<String> {
        let mut commands: BTreeMap<_, Counted> = BTreeMap::new();
        let mut pieces = Counted::new();
        for (wish, count) in &*self.0.borrow() {
            match wish {
                Suggestion::Word(server, write, word) => {
                    commands.entry((server.clone(), *write)).or_default().push((*count, word.clone()));
                }
                Suggestion::Piece(piece) => pieces.push((*count, format!("in {file}: {piece}"))),
            }
        }
        let line = |((server, write), words)| {
            Allow { server, write, words: most_frequent(words, most), ..Allow::default() }.line()
        };
        let mut lines: Vec<String> = commands.into_iter().filter_map(line).collect();
        lines.extend(most_frequent(pieces, most));
        lines
    }
}

/// Whether a path is too wide to suggest: the home, the project, agentsh's own, or a system directory.
fn is_wide(path: &Path, own: &[&PathBuf]) -> bool {
    let holds = |path: &Path| path.components().count() <= 2 || own.iter().any(|own| own.starts_with(path));
    holds(path) || path.canonicalize().is_ok_and(|real| holds(&real))
}

type Counted = Vec<(u32, String)>;

fn most_frequent(mut entries: Counted, most: usize) -> Vec<String> {
    entries.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    entries.truncate(most);
    let mut names: Vec<String> = entries.into_iter().map(|(_, name)| name).collect();
    names.sort_unstable();
    names
}

/// Programs inside choose names: patterns and unusual names are only recorded, and link-local addresses, where clouds
/// serve credentials, are not suggested.
fn suggested_words(allow: &Allow) -> Vec<Suggestion> {
    let is_good = |word: &&String| {
        let alone = Allow { words: vec![(*word).clone()], ..Allow::default() };
        let address = word.rsplit_once(':').map_or(word.as_str(), |(address, _)| address);
        let is_link_local = address.parse::<Ipv4Addr>().is_ok_and(|address| address.is_link_local());
        !word.contains(['*', '?'])
            && word.chars().any(char::is_alphanumeric)
            && !is_link_local
            && alone.line().is_some()
    };
    let wish = |word: &String| Suggestion::Word(allow.server.clone(), allow.write, word.clone());
    allow.words.iter().filter(is_good).map(wish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentsh_base::remedy;

    #[test]
    fn path_above_the_home_or_the_project_is_wide() {
        let (home, project) = (PathBuf::from("/home/u"), PathBuf::from("/srv/team/p"));
        let is_wide = |path: &str| is_wide(Path::new(path), &[&home, &project]);
        for path in ["/", "/home", "/home/u", "/srv", "/srv/team", "/etc"] {
            assert!(is_wide(path), "{path}");
        }
        assert!(!is_wide("/home/u/library") && !is_wide("/etc/app/x"));
    }

    #[test]
    fn suggested_rules_are_counted_and_filtered() {
        let wanted = SuggestedRules::default();
        let add = |change: &str| wanted.note(remedy::parse(change), change);
        assert_eq!(wanted.lines(9, "f"), Vec::<String>::new());
        for host in ["b.example", "a.example", "c.example", "c.example", "*.example", "169.254.169.254"] {
            add(&format!("agent: {{network: {{allow: [\"{host}\"]}}}}"));
        }
        add("agent: {network: {loopback: [5432]}}");
        add("agent: {filesystem: {unmask: [\".git/config\"]}}");
        for odd in ["/", "~", "~/**", "/a*", "/home/*/x y", "/a\u{202e}b", "-x"] {
            add(&format!("agent: {{filesystem: {{read: [\"{odd}\"]}}}}"));
        }
        add("agent: {filesystem: {read: [\"~/a b\"]}}");
        add("sandbox: {mcp: {servers: [{id: \"s\", network: {allow: [\"d.example\"]}}]}}");
        add("agent: {network: {allow: [{host: \"e.example\", protocol: tcp}]}}");
        assert_eq!(
            wanted.lines(9, "f"),
            [
                "agentsh policy allow ./-x a.example b.example c.example localhost:5432 '~/a b'",
                "agentsh policy allow --write .git/config",
                "agentsh policy allow --server s d.example",
                "in f: agent: {network: {allow: [{host: \"e.example\", protocol: tcp}]}}",
            ]
        );
        assert_eq!(wanted.lines(1, "f")[0], "agentsh policy allow c.example");
    }
}
