//! The files of a session: what its policies granted, what was refused, and what `agentsh why` was asked about.
//!
//! Which of the granted files a program opened is not on record. What stays closed whatever a policy grants is never an entry:
//! it is a comment, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::quoted;
use agentsh_base::remedy;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_policy::{FilesystemPolicy, PathContext, Question, Ruled, ask_file};
use agentsh_store::words::FileWord;
use agentsh_store::{Event, FileGrant, escape};

/// More files of one directory that were refused are the directory.
const MAX_OF_ONE: usize = 8;

/// Directories of many programs and people: a lookup alone makes none of them an entry.
const SHARED: [&str; 12] =
    ["/", "/boot", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/var", "/var/lib", "/var/run"];
/// The same below the home directory.
const SHARED_IN_HOME: [&str; 5] = ["", ".cache", ".config", ".local", ".local/share"];

type Owner = Option<ServerId>;
/// Refused files, and why a refusal alone grants nothing.
type RefusedFiles = BTreeMap<(FileWord, String), Option<&'static str>>;

/// The recorded files.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The grants at the last start of each.
    granted: BTreeMap<Owner, (Timestamp, Vec<FileGrant>)>,
    refused: BTreeMap<Owner, RefusedFiles>,
    asked: BTreeSet<(FileWord, String)>,
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Whether the lists are complete, so that they replace others.
    is_whole: bool,
    lists: Vec<(FileWord, Vec<(String, String)>)>,
    /// One line each, without the comment sign.
    comments: Vec<String>,
}

impl Files {
    pub fn add(&mut self, event: &Event, time: Timestamp) {
        match event {
            Event::FilesGranted { server_id, grants } => {
                let known = self.granted.get(server_id);
                if known.is_none_or(|(before, _)| *before <= time) {
                    self.granted.insert(server_id.clone(), (time, grants.clone()));
                }
            }
            Event::FileRefused { server_id, path, access, .. } => {
                let reads = access.split(", ").all(|right| right.starts_with("read_") || right == "execute");
                let word = if reads { FileWord::Read } else { FileWord::Write };
                let all = self.refused.entry(server_id.clone()).or_default();
                let why = only_looked_for(access);
                let known = all.entry((word, path.clone())).or_insert(why);
                *known = known.and(why);
            }
            Event::WhyDenied { what, about, .. } => {
                let word = match what.as_str() {
                    "read" => FileWord::Read,
                    "write" => FileWord::Write,
                    _ => return,
                };
                self.asked.insert((word, about.clone()));
            }
            _ => {}
        }
    }

    /// Servers with recorded files, in addition to those that a policy must name anyway.
    pub fn servers(&self) -> BTreeSet<&ServerId> {
        self.granted.keys().chain(self.refused.keys()).flatten().collect()
    }

    pub fn entries(&self, who: &Owner, paths: &PathContext) -> Entries {
        let mut out = Entries::default();
        let granted = self.granted.get(who).map(|(_, grants)| grants.as_slice()).unwrap_or_default();
        out.is_whole = who.is_none() && !granted.is_empty();
        let deny = granted.iter().filter(|grant| grant.word == FileWord::Deny);
        let deny: Vec<Ruled<String>> =
            deny.map(|grant| Ruled { value: grant.path.clone(), rule: grant.rule.clone() }).collect();
        for word in [FileWord::Read, FileWord::Write] {
            let mut list: Vec<(String, String)> = Vec::new();
            for grant in granted.iter().filter(|grant| grant.word == word) {
                let note = format!("granted by {}", grant.rule);
                match why_still_denied(word, &grant.path, &deny, paths) {
                    None => list.push((grant.path.clone(), note)),
                    Some(why) => out.comment(word, &grant.path, &format!("{note}, and {why}")),
                }
            }
            let refused = self.refused.get(who).into_iter().flatten().filter(|((of, _), _)| *of == word);
            let (wanted, others): (Vec<_>, Vec<_>) = refused
                .map(|((_, path), why)| {
                    (Path::new(path), why.or_else(|| shared_directory_note(Path::new(path), paths)))
                })
                .partition(|(_, why)| why.is_none());
            for (path, why) in others {
                let is_covered = list.iter().any(|(entry, _)| covers(entry, path, paths));
                if let Some(why) = why.filter(|_| !is_covered) {
                    let text = display_path(path, &paths.home);
                    let why = why_still_denied(word, &text, &deny, paths).unwrap_or_else(|| why.to_owned());
                    out.comment(word, &text, &format!("refused: {why}"));
                }
            }
            for path in group_by_directory(wanted.into_iter().map(|(path, _)| path), paths) {
                let text = display_path(&path, &paths.home);
                let why = match is_exact(&text) {
                    false => Some("a policy cannot contain this name".to_owned()),
                    true => why_still_denied(word, &text, &deny, paths),
                };
                let is_covered = list.iter().any(|(entry, _)| covers(entry, &path, paths));
                match why {
                    Some(why) => out.comment(word, &text, &format!("refused: {why}")),
                    None if is_covered => {}
                    None => list.push((text, "refused in this session: no rule named it".to_owned())),
                }
            }
            if !list.is_empty() {
                out.lists.push((word, list));
            }
        }
        let denied: Vec<(String, String)> =
            deny.into_iter().map(|entry| (entry.value, format!("denied by {}", entry.rule))).collect();
        if !denied.is_empty() {
            out.lists.push((FileWord::Deny, denied));
        }
        for grant in granted.iter().filter(|grant| grant.word == FileWord::Unmask) {
            let why =
                format!("allowed by {}; you have to allow guarded and secret paths yourself", grant.rule);
            out.comment(FileWord::Unmask, &grant.path, &why);
        }
        if who.is_none() {
            for (word, about) in &self.asked {
                let is_listed = out.lists.iter().any(|(of, list)| {
                    of == word && list.iter().any(|(entry, _)| covers(entry, Path::new(about), paths))
                });
                if !is_listed {
                    let text = display_path(Path::new(about), &paths.home);
                    let why = why_still_denied(*word, &text, &[], paths);
                    let why = why.unwrap_or_else(|| "no rule named it".to_owned());
                    out.comment(*word, &text, &format!("requested with `agentsh why`: {why}"));
                }
            }
        }
        out
    }
}

impl Entries {
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    fn comment(&mut self, word: FileWord, path: &str, why: &str) {
        self.comments.push(format!("{}: {}  # {}", word.as_str(), quoted(path), escape::line(why)));
    }

    /// The section, `indent` columns in.
    pub fn write(&self, indent: usize, text: &mut String) {
        if self.lists.is_empty() {
            return;
        }
        let _infallible = writeln!(text, "{:indent$}filesystem:", "");
        for (word, list) in &self.lists {
            let _infallible = writeln!(text, "{:indent$}  {}:", "", word.as_str());
            // Denials of layers below stay, even if a layer above grants the same.
            let replaces = self.is_whole && *word != FileWord::Deny;
            let indent = if replaces { indent + 2 } else { indent };
            if replaces {
                let _infallible = writeln!(text, "{:indent$}  replace:", "");
            }
            for (entry, note) in list {
                let _infallible =
                    writeln!(text, "{:indent$}    - {}  # {}", "", quoted(entry), escape::line(note));
            }
        }
    }

    /// Writes the files that stay closed, as comments.
    pub fn write_comments(&self, who: &str, text: &mut String) {
        for comment in &self.comments {
            let _infallible = writeln!(text, "# {who}: {comment}");
        }
    }
}

/// Why a path stays closed although an entry names it; None if the entry opens it.
fn why_still_denied(
    word: FileWord,
    path: &str,
    deny: &[Ruled<String>],
    paths: &PathContext,
) -> Option<String> {
    let resolved = agentsh_policy::place::resolve(path, paths);
    if word == FileWord::Write && paths.home.starts_with(&resolved) {
        return Some("it contains the home directory, which is never writable".to_owned());
    }
    if resolved != paths.home && paths.home.starts_with(&resolved) {
        return Some("it contains the home directory".to_owned());
    }
    let entry = Ruled { value: path.to_owned(), rule: RuleRef::default_rule("generated") };
    let mut files = FilesystemPolicy { deny: deny.to_vec().into(), ..FilesystemPolicy::default() };
    let question = match word {
        FileWord::Write => {
            files.write.push(entry);
            Question::Write(path.to_owned())
        }
        _ => {
            files.read.push(entry);
            Question::Read(path.to_owned())
        }
    };
    let answer = ask_file(&files, &question, paths);
    let remedy = answer
        .change
        .as_ref()
        .map_or(String::new(), |change| format!("; to allow it: {}", remedy::shown(change)));
    (!answer.allow).then(|| format!("{}, by {}{remedy}", answer.text, answer.rule))
}

/// Whether an entry with this text means this path and no other.
fn is_exact(path: &str) -> bool {
    let is_odd = |sign: char| sign.is_control() || "*?[]{}\u{fffd}".contains(sign);
    // The written text is what `quoted` shows.
    escape::line(path) == path && !path.chars().any(is_odd)
}

fn covers(entry: &str, path: &Path, paths: &PathContext) -> bool {
    path.starts_with(agentsh_policy::place::resolve(entry, paths))
}

/// Replaces many refused files of one directory by the directory, unless that is shared.
fn group_by_directory<'p>(refused: impl Iterator<Item = &'p Path>, paths: &PathContext) -> BTreeSet<PathBuf> {
    let home = &paths.home;
    let mut by_directory: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for path in refused {
        by_directory.entry(path.parent().unwrap_or(path)).or_default().push(path);
    }
    let all = by_directory.into_iter().flat_map(|(directory, files)| {
        let is_one = files.len() > MAX_OF_ONE && shared_directory_note(directory, paths).is_none();
        if is_one { vec![directory.to_owned()] } else { files.into_iter().map(Path::to_owned).collect() }
    });
    let all: BTreeSet<PathBuf> = all.collect();
    // A directory that contains the home is not an entry, and does not represent anything below it.
    let stands_for_it = |above: &Path| all.contains(above) && !home.starts_with(above);
    let is_outermost = |path: &&PathBuf| !path.ancestors().skip(1).any(stands_for_it);
    all.iter().filter(is_outermost).cloned().collect()
}

/// Why a refusal is not an entry by itself.
fn only_looked_for(access: &str) -> Option<&'static str> {
    let all = |is: fn(&str) -> bool| access.split(", ").all(is);
    if all(|right| right == "read_dir") {
        return Some("a directory that was only listed; add it if everything in it may be read");
    }
    all(|right| right.starts_with("make_"))
        .then_some("a program tried to create it; add its directory if everything in there may be written")
}

/// Why an entry does not name a directory only because something in it was looked up.
fn shared_directory_note(path: &Path, paths: &PathContext) -> Option<&'static str> {
    let in_home = SHARED_IN_HOME.iter().any(|shared| path == paths.home.join(shared));
    let is_shared = in_home
        || SHARED.iter().any(|shared| path == Path::new(shared))
        || [&paths.home, &paths.project].iter().any(|below| path != **below && below.starts_with(path));
    is_shared.then_some("many programs keep files in it; add only what is needed")
}

/// `~` for the home, as people write it.
fn display_path(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(below) if !below.as_os_str().is_empty() => format!("~/{}", below.display()),
        _ => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> PathContext {
        PathContext { home: "/home/u".into(), project: "/home/u/p".into() }
    }

    fn refused(path: &str, access: &str) -> Event {
        Event::FileRefused {
            server_id: None,
            path: path.to_owned(),
            access: access.to_owned(),
            rule: RuleRef::default_rule("agent.filesystem.read"),
            change: None,
        }
    }

    fn text(events: &[Event]) -> String {
        let mut files = Files::default();
        events.iter().for_each(|event| files.add(event, Timestamp::UNIX_EPOCH));
        let entries = files.entries(&None, &paths());
        let mut text = String::new();
        entries.write(0, &mut text);
        entries.write_comments("agent", &mut text);
        text
    }

    #[test]
    fn refused_files_are_generated_unless_they_are_always_closed() {
        let found = text(&[
            refused("/home/u/data/a", "read_file"),
            refused("/home/u/out", "write_file, truncate"),
            refused("/home/u/.ssh/id", "read_file"),
            refused("/home/u/.bashrc", "write_file"),
            refused("/home", "read_dir"),
            refused("/home/u/a*", "read_file"),
        ]);
        assert!(found.contains("  read:\n    - \"~/data/a\"  # refused"), "{found}");
        assert!(found.contains("  write:\n    - \"~/out\"  # refused"), "{found}");
        for closed in ["~/.ssh/id", "~/.bashrc", "/home", "~/a*"] {
            let lines: Vec<&str> =
                found.lines().filter(|line| line.contains(&format!("\"{closed}\""))).collect();
            assert!(
                !lines.is_empty() && lines.iter().all(|line| line.starts_with("# ")),
                "{closed}\n{found}"
            );
        }
        assert!(found.contains("SSH keys"), "{found}");
    }

    #[test]
    fn granted_files_replace_the_list_and_lifted_ones_are_comments() {
        let grant = |path: &str, word| FileGrant {
            path: path.to_owned(),
            word,
            rule: RuleRef { id: "x".to_owned(), file: "policy.yaml".to_owned(), line: 3 },
        };
        let grants = vec![
            grant("~/data", FileWord::Read),
            grant("~/.aws", FileWord::Read),
            grant(".", FileWord::Write),
            grant("secret", FileWord::Deny),
            grant(".envrc", FileWord::Unmask),
        ];
        let found =
            text(&[Event::FilesGranted { server_id: None, grants }, refused("/home/u/data/a", "read_file")]);
        assert!(
            found.contains("  read:\n    replace:\n      - \"~/data\"  # granted by policy.yaml:3"),
            "{found}"
        );
        assert!(found.contains("  deny:\n    - \"secret\"") && !found.contains("data/a"), "{found}");
        for closed in ["~/.aws", ".envrc"] {
            assert!(found.contains("# agent: ") && found.contains(&format!(": \"{closed}\"  # ")), "{found}");
            assert!(!found.contains(&format!("- \"{closed}\"")), "{found}");
        }
    }

    #[test]
    fn listed_and_shared_directories_are_generated_as_comments() {
        let many = (0..20).map(|number| refused(&format!("/var/lib/{number}"), "read_file"));
        let mut events = vec![
            refused("/srv/data", "read_dir"),
            refused("/srv/data/a", "read_file"),
            refused("/home/u/secretsdir/new", "make_reg"),
            refused("/home/u/both", "read_dir"),
            refused("/home/u/both", "read_file"),
        ];
        let closed = ["/root", "/boot", "/home/u/.config", "/home/u/.local/share", "/home/u/\u{2028}x"];
        events.extend(closed.map(|path| refused(path, "read_file")));
        let found = text(&events.into_iter().chain(many).collect::<Vec<_>>());
        let active: Vec<&str> =
            found.lines().filter(|line| line.contains("- \"/") || line.contains("- \"~")).collect();
        assert_eq!(active.len(), 22, "{found}");
        assert!(found.contains("- \"/srv/data/a\"") && found.contains("- \"~/both\""), "{found}");
        assert!(
            found.contains("- \"/var/lib/7\"") && found.contains("# agent: write: \"~/secretsdir/new\""),
            "{found}"
        );
        for closed in ["/srv/data", "/root", "/boot", "~/.config", "~/.local/share"] {
            assert!(
                found.contains(&format!("# agent: read: \"{closed}\"  # refused: ")),
                "{closed}\n{found}"
            );
        }
    }

    #[test]
    fn many_files_of_one_directory_are_generated_as_the_directory() {
        let many: Vec<Event> =
            (0..20).map(|number| refused(&format!("/srv/data/{number}"), "read_file")).collect();
        let found = text(&many);
        assert!(found.contains("- \"/srv/data\"") && found.matches("- ").count() == 1, "{found}");
    }
}
