//! Files of subagents (`.claude/agents/*.md`). Claude Code starts the MCP servers that their front matter declares by itself,
//! inside the agent's own sandbox and past the proxy: so it gets these files without the declarations.

use std::path::{Path, PathBuf};

use crate::agent::{Context, read};

/// Directories below each other, and files in all, that are looked at.
const DEEPEST: usize = 8;
const MOST: usize = 2_000;
const KEY: &str = "mcpServers";

/// A file without its servers, and what is said about it.
pub(super) struct Covered {
    pub path: PathBuf,
    pub content: Vec<u8>,
    pub note: String,
}

/// Files that declare servers: of the project, in each directory from the current one up, and of the user.
pub(super) fn covered(context: &Context<'_>, directory: &Path) -> Vec<Covered> {
    let within = |directory: &&Path| directory.starts_with(context.project);
    let below = context.cwd.ancestors().filter(within).map(|directory| directory.join(".claude/agents"));
    let (mut files, mut found) = (Vec::new(), Vec::new());
    for folder in below.chain([directory.join("agents")]) {
        collect(&folder, 0, &mut files);
    }
    for path in files {
        let text = match read::text(&path, read::LIMIT) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            // What cannot be read here may be readable inside.
            Err(error) => {
                let note = format!("{error}; the agent gets an empty file in its place");
                found.push(Covered { path, content: Vec::new(), note });
                continue;
            }
        };
        let Some(content) = without_servers(&text) else { continue };
        let shown = crate::store::escape::line(&path.display().to_string()).into_owned();
        let note = format!(
            "MCP servers that the subagent {shown} declares are not started: declare them in ~/.claude.json or .mcp.json, and \
             name them there"
        );
        found.push(Covered {
            path: std::fs::canonicalize(&path).unwrap_or(path),
            content: content.into_bytes(),
            note,
        });
    }
    found
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if files.len() >= MOST {
            return;
        }
        if path.is_dir() {
            if depth < DEEPEST {
                collect(&path, depth + 1, files);
            }
        } else if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("md")) {
            files.push(path);
        }
    }
}

/// The text without the declarations of servers; None where there are none. Names of servers that are declared elsewhere
/// stay: they lead to bridges.
fn without_servers(text: &str) -> Option<String> {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = body.split_inclusive('\n');
    let first = lines.next().filter(|line| line.trim_end() == "---")?;
    let (mut front, mut rest, mut is_closed) = (Vec::new(), String::new(), false);
    for line in lines {
        if is_closed {
            rest.push_str(line);
        } else if matches!(line.trim_end(), "---" | "...") {
            is_closed = true;
            rest.push_str(line);
        } else {
            front.push(line);
        }
    }
    if !is_closed {
        return None;
    }
    // A key that is spelled in another way than as a plain word is read by nobody here: nothing of such a file passes.
    if !front.iter().all(|line| is_plain(line)) {
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
        ] {
            assert_eq!(
                without_servers(&format!("---\n{front}\n---\nBody\n")),
                Some("Body\n".to_owned()),
                "{front}"
            );
        }
        for text in ["no front matter\nmcpServers: {a: 1}\n", "---\nmcpServers: {}\n", ""] {
            assert_eq!(without_servers(text), None, "{text}");
        }
    }
}
