//! Where a configuration of git says that other files are: hooks, further configurations, the working tree.
//!
//! Read as `git-config(1)` describes the format. Where git would stop with an error, reading goes on: whatever might be
//! meant is better guarded than overlooked.

/// Paths as they are written, with quotes and escapes taken off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitConfig {
    /// `core.hooksPath`.
    pub hooks: Vec<String>,
    /// `include.path` and every `includeIf.*.path`, whether or not its condition holds.
    pub includes: Vec<String>,
    /// `core.worktree`.
    pub worktrees: Vec<String>,
}

#[must_use]
pub fn parse(text: &str) -> GitConfig {
    let mut found = GitConfig::default();
    let mut section = String::new();
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    while let Some(line) = lines.next() {
        let mut line = line.to_owned();
        while line.ends_with('\\') {
            line.pop();
            let Some(next) = lines.next() else { break };
            line.push_str(next);
        }
        let mut rest = line.trim_start();
        while let Some((name, after)) = header(rest) {
            section = name;
            rest = after.trim_start();
        }
        let Some((key, written)) = rest.split_once('=') else { continue };
        let places = match (section.as_str(), key.trim().to_ascii_lowercase().as_str()) {
            ("core", "hookspath") => &mut found.hooks,
            ("core", "worktree") => &mut found.worktrees,
            ("include" | "includeif", "path") => &mut found.includes,
            _ => continue,
        };
        places.extend(Some(value(written)).filter(|value| !value.is_empty()));
    }
    found
}

/// `[name]`, `[name "sub"]` or `[name.sub]` at the start of a line: the name, and what stands behind it.
fn header(line: &str) -> Option<(String, &str)> {
    let inside = line.strip_prefix('[')?;
    let mut quoted = false;
    let mut escaped = false;
    let end = inside.find(|letter| {
        let plain = !std::mem::take(&mut escaped);
        quoted ^= letter == '"' && plain;
        escaped = letter == '\\' && plain && quoted;
        letter == ']' && !quoted
    })?;
    let (name, after) = inside.split_at(end);
    let name = name.trim_start().split(|letter: char| letter.is_whitespace() || matches!(letter, '.' | '"'));
    Some((name.take(1).collect::<String>().to_ascii_lowercase(), after.get(1..).unwrap_or_default()))
}

/// Up to a comment, without quotes, and without blanks at the ends that were not quoted.
fn value(written: &str) -> String {
    let mut out = String::new();
    // Length up to the last letter that is not a blank, or was quoted.
    let mut kept = 0;
    let mut quoted = false;
    let mut letters = written.trim_start().chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            '\\' => match letters.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('b') => out.push('\u{8}'),
                Some(other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
        if quoted || !letter.is_whitespace() {
            kept = out.len();
        }
    }
    out.truncate(kept);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hooks(text: &str) -> Vec<String> {
        parse(text).hooks
    }

    #[test]
    fn hooks_are_found_however_they_are_written() {
        for text in [
            "[core]\n\thooksPath = .githooks\n",
            "[core] hooksPath=.githooks",
            "[CORE]\r\nHOOKSPATH\t=\t.githooks ; comment\r\n",
            "\u{feff}[core]\nhookspath = \".githooks\" # comment",
            "[a \"]\\\"\"] x = 1\n[core] [core] hooksPath = .git\"hooks\"",
            "[core]\nhooksPath = \\\n.githooks",
            "[core]\nhooksPath = .git\\\nhooks\nother = 1",
        ] {
            assert_eq!(hooks(text), [".githooks"], "{text:?}");
        }
        assert_eq!(hooks("[core]\nhooksPath = a\nhooksPath = b"), ["a", "b"]);
        assert_eq!(hooks("[core]\nhooksPath = \" a # b \"  "), [" a # b "]);
    }

    #[test]
    fn other_sections_and_comments_are_not_taken() {
        for text in [
            "hooksPath = a",
            "[other]\nhooksPath = a",
            "[core]\n# hooksPath = a",
            "[core]\n; hooksPath = a",
            "[core]\nhooksPath",
            "[core]\nhooksPath =",
            "[core\nhooksPath = a",
            "",
        ] {
            assert_eq!(hooks(text), Vec::<String>::new(), "{text:?}");
        }
    }

    #[test]
    fn includes_and_working_trees() {
        let found = parse(
            "[include]\npath = ../shared\n[includeIf \"gitdir:~/x/\"]\npath = ~/work\n[core]\nworktree = ../../sub\n\
             [submodule \"x\"]\npath = sub\n",
        );
        assert_eq!(found.includes, ["../shared", "~/work"]);
        assert_eq!(found.worktrees, ["../../sub"]);
    }
}
