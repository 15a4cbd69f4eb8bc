//! Files of subagents (`.claude/agents/*.md`). Claude Code starts the MCP servers that their front matter declares by itself,
//! inside the agent's own sandbox and past the proxy: so it gets these files without the declarations.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::argv::Parsed;
use crate::agent::{Context, read, walk};

const KEY: &str = "mcpServers";

/// What the agent does not get as it is.
#[derive(Debug, Default)]
pub(super) struct Subagents {
    /// Files, and what stands in their place.
    pub covered: Vec<(PathBuf, Vec<u8>)>,
    /// Directories of which nothing is shown.
    pub hidden: Vec<PathBuf>,
    pub notes: Vec<String>,
}

/// Looks at the files of the project, in each directory from the current one up and in those that the command line adds,
/// and at those of the user.
pub(super) fn look(context: &Context<'_>, parsed: &Parsed, directory: &Path) -> Subagents {
    let within = |directory: &&Path| directory.starts_with(context.project);
    let above = context.cwd.ancestors().filter(within).map(Path::to_owned);
    let added = parsed.added.iter().map(|directory| context.cwd.join(directory));
    let folders: BTreeSet<PathBuf> =
        above.chain(added).map(|directory| directory.join(".claude/agents")).collect();
    let mut subagents = Subagents::default();
    for folder in folders.into_iter().chain([directory.join("agents")]) {
        subagents.look_in(&folder);
    }
    subagents
}

impl Subagents {
    /// What cannot be looked at in full is not shown at all: a part that was skipped may hold a declaration.
    fn look_in(&mut self, folder: &Path) {
        match walk::files(folder, "md") {
            Ok(files) => files.into_iter().for_each(|path| self.look_at(path)),
            Err(why) => self.hide(std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()), &why),
        }
    }

    fn hide(&mut self, folder: PathBuf, why: &str) {
        let shown = crate::store::escape::line(&folder.display().to_string()).into_owned();
        self.notes.push(format!("no subagent of {shown} is passed to Claude Code: {why}"));
        self.hidden.push(folder);
    }

    fn look_at(&mut self, path: PathBuf) {
        let text = match read::text(&path, read::LIMIT) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            // What cannot be read here may be readable inside.
            Err(error) => {
                self.notes.push(format!("{error}; the agent gets an empty file in its place"));
                return self.covered.push((path, Vec::new()));
            }
        };
        let Some(content) = without_servers(&text) else { return };
        let shown = crate::store::escape::line(&path.display().to_string()).into_owned();
        self.notes.push(format!(
            "MCP servers that the subagent {shown} declares are not started: declare them in ~/.claude.json or .mcp.json, and \
             name them there"
        ));
        self.covered.push((path, content.into_bytes()));
    }
}

/// The text without the declarations of servers; None where there are none. Names of servers that are declared elsewhere
/// stay: they lead to bridges.
fn without_servers(text: &str) -> Option<String> {
    let body = text.trim_start_matches('\u{feff}');
    let is_mark = |line: &str, mark: &str| {
        line.trim_end_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}') == mark
    };
    let mut lines = body.split_inclusive('\n');
    let first = lines.next().filter(|line| is_mark(line, "---"))?;
    let (mut front, mut rest, mut is_closed) = (Vec::new(), String::new(), false);
    for line in lines {
        if is_closed {
            rest.push_str(line);
        } else if is_mark(line, "---") || is_mark(line, "...") {
            is_closed = true;
            rest.push_str(line);
        } else {
            front.push(line);
        }
    }
    if !is_closed {
        // Three dashes end it for Claude Code, wherever they stand.
        let text = body.strip_prefix(first).unwrap_or_default();
        return text.contains("---").then(|| text.to_owned());
    }
    // All keys stand at the margin, or none: then a line that begins with a space is a key, and not more of a value.
    let is_at_margin = front
        .iter()
        .find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .is_none_or(|line| !line.starts_with(char::is_whitespace));
    let breaks = ['\u{85}', '\u{2028}', '\u{2029}'];
    let is_one_line =
        |line: &&str| !line.trim_end_matches(['\r', '\n']).contains('\r') && !line.contains(breaks);
    // A key that is spelled in another way than as a plain word is read by nobody here: nothing of such a file passes.
    if !is_at_margin || !front.iter().all(|line| is_plain(line) && is_one_line(line)) {
        return Some(rest.split_once('\n').map(|(_, body)| body.to_owned()).unwrap_or_default());
    }
    let (mut kept, mut taken, mut block) = (String::new(), false, Vec::new());
    let mut flush = |block: &mut Vec<&str>, kept: &mut String| {
        if is_declaration(block) {
            taken = true;
        } else {
            kept.extend(block.iter().copied());
        }
        block.clear();
    };
    for line in front {
        let is_key = line.starts_with(|letter: char| letter.is_ascii_alphabetic());
        if is_key {
            flush(&mut block, &mut kept);
        }
        block.push(line);
    }
    flush(&mut block, &mut kept);
    taken.then(|| format!("{first}{kept}{rest}"))
}

/// `key: value`, a comment, an empty line, or one that goes on with what stands above.
fn is_plain(line: &str) -> bool {
    let Some(letter) = line.chars().next() else { return true };
    if letter.is_whitespace() || matches!(letter, '#' | '-') {
        return true;
    }
    let key = line.split(':').next().unwrap_or_default();
    letter.is_ascii_alphabetic()
        && line.contains(':')
        && key.trim_end().chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
}

/// Servers with a command or a URL of their own, and not only names.
fn is_declaration(block: &[&str]) -> bool {
    let Some((first, more)) = block.split_first() else { return false };
    let Some((key, value)) = first.split_once(':') else { return false };
    let key: String = key.chars().filter(|letter| letter.is_ascii_alphanumeric()).collect();
    if !key.eq_ignore_ascii_case(KEY) {
        return false;
    }
    let is_name = |word: &str| {
        let word = word.trim().trim_matches(['"', '\'']);
        word.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | ' '))
    };
    let inline = value.split(" #").next().unwrap_or_default().trim();
    let listed = inline.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(inline);
    let is_listed = |line: &&str| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line.strip_prefix('-').is_some_and(is_name)
    };
    !(listed.split(',').all(is_name) && more.iter().all(is_listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_go_and_names_stay() {
        let file = |front: &str| format!("---\nname: a\n{front}tools: Read\n---\nBody\nmcpServers: text\n");
        for front in [
            "",
            "mcpServers: [fs, github]\n",
            "mcpServers:\n  - fs\n  - \"my server\"\n",
            "mcpServers: fs, github # both\n",
        ] {
            assert_eq!(without_servers(&file(front)), None, "{front}");
        }
        for front in [
            "mcpServers:\n  evil:\n    command: sh\n",
            "mcpServers:\n  - evil:\n      command: sh\n",
            "mcpServers: {evil: {command: sh}}\n",
            "mcpServers: [{evil: {command: sh}}]\n",
            "mcpServers : \n  evil: {url: http://x}\n",
            "mcp-servers:\n  evil:\n    command: sh\n",
        ] {
            assert_eq!(without_servers(&file(front)), Some(file("")), "{front}");
        }
    }

    #[test]
    fn a_key_in_another_spelling_takes_the_whole_front_matter_away() {
        for front in [
            "\"mcp\\x53ervers\": {a: {command: sh}}",
            "? mcpServers\n: {}",
            "{mcpServers: {}}",
            "&a mcpServers: {}",
            "'mcpServers': {}",
            "  name: a\n  mcpServers:\n    evil: {command: sh}",
            "# first\n\n name: a\n mcpServers: {a: {command: sh}}",
            "name: a\rmcpServers: {a: {command: sh}}",
            "name: a\u{2028}mcpServers: {a: {command: sh}}",
        ] {
            assert_eq!(
                without_servers(&format!("---\n{front}\n---\nBody\n")),
                Some("Body\n".to_owned()),
                "{front}"
            );
        }
        let ended_in_a_line = "---\nmcpServers: {a: {command: sh}}\n# ---\nBody\n";
        assert_eq!(
            without_servers(ended_in_a_line),
            ended_in_a_line.strip_prefix("---\n").map(str::to_owned)
        );
        let with_a_mark = "---\u{feff}\nmcpServers: {a: {command: sh}}\n---\nBody\n";
        assert_eq!(without_servers(with_a_mark), Some("---\u{feff}\n---\nBody\n".to_owned()));
        for text in ["no front matter\nmcpServers: {a: 1}\n", "---\nmcpServers: {}\n", ""] {
            assert_eq!(without_servers(text), None, "{text}");
        }
    }
}
