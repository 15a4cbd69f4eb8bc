//! Paths and path globs of a policy, compared component by component without reading the disk.
//!
//! `~` is the home, a path without a leading `/` or `~` is in the project, `**` is any number of components, `*`
//! and `?` stay inside one. A rule speaks about what it matches and everything below.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::builtin_paths::{HOME_MASKS, HOME_READ_ONLY, NESTED_READ_ONLY, PROJECT_READ_ONLY};
use super::glob;

/// The meaning of `~` and the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathContext {
    pub home: PathBuf,
    pub project: PathBuf,
}

/// A path or glob as components, the first of which says where it starts: `/`, `~` or `.`.
pub(super) type Written<'t> = Vec<Cow<'t, str>>;

/// Whether a path that a policy writes can be used at all, and if not why.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.starts_with('~') && text != "~" && !text.starts_with("~/") {
        return Err("another user's home cannot be named with `~`; write the whole path".to_owned());
    }
    if text.starts_with('$') {
        return Err("variables are not expanded in a policy; `~` is the home".to_owned());
    }
    if text.split('/').any(|part| part == "..") {
        return Err("`..` is not allowed in a policy; start the path with `/`, `~` or the project".to_owned());
    }
    if text.split('/').any(|part| part.contains("**") && part != "**") {
        return Err("`**` must be alone between two slashes".to_owned());
    }
    Ok(())
}

/// Whether an `unmask` of it would lift something that is built in.
pub(super) fn lifts_something(text: &str) -> bool {
    let entry = written(text);
    let Some((root, rest)) = entry.split_first() else { return false };
    let split = |table_path: &'static str| table_path.split('/').collect::<Vec<_>>();
    let masked = |table_path| covers(&split(table_path), rest);
    // A guarded path is one mount, which can only be lifted as a whole.
    let is_whole = |table_path| split(table_path) == rest;
    let nested = NESTED_READ_ONLY.iter().any(|(table_path, _)| {
        let table: Vec<&str> = ["**"].into_iter().chain(table_path.split('/')).collect();
        is(&table, rest)
    });
    match root.as_ref() {
        "~" => {
            nested
                || HOME_MASKS.iter().any(|(path, _)| masked(path))
                || HOME_READ_ONLY.iter().any(|(path, _)| is_whole(path))
        }
        "." => {
            nested
                || PROJECT_READ_ONLY
                    .iter()
                    .any(|entry| is_whole(entry.path) || matches!(rest, [name] if entry.matches(name)))
        }
        // An absolute path may be in the home or in the project: only the plan knows.
        _ => true,
    }
}

/// Whether a grant means the home or everything, whatever the home is.
pub(super) fn is_whole_home(text: &str) -> bool {
    let parts = written(text);
    let rest = parts.get(1..).unwrap_or_default();
    let whole = rest.iter().all(|part| part == "**");
    whole && parts.first().is_some_and(|root| root == "~" || root == "/")
}

/// Splits what a policy or a question says, without knowing where home and project are.
pub(super) fn written(text: &str) -> Written<'_> {
    let (root, rest) = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => ("~", rest),
        _ if text.starts_with('/') => ("/", text),
        _ => (".", text),
    };
    let mut parts = vec![root.into()];
    push_parts(&mut parts, rest.into(), 1);
    parts
}

/// The absolute path; `..` in a question is resolved lexically.
pub(super) fn absolute<'t>(text: &'t str, context: &'t PathContext) -> Written<'t> {
    let mut parts = written(text).into_iter();
    let mut whole = match parts.next().as_deref() {
        Some("~") => from_path(&context.home),
        Some(".") => from_path(&context.project),
        _ => vec!["/".into()],
    };
    for part in parts {
        push_part(&mut whole, part, 1);
    }
    whole
}

/// An entry of a built-in table, which starts in `root`.
pub(super) fn below<'t>(root: &[Cow<'t, str>], entry: &'t str) -> Written<'t> {
    root.iter().cloned().chain(entry.split('/').map(Cow::from)).collect()
}

/// Whether an entry of a built-in table, which starts in `root`, means the path or a directory above it.
pub(super) fn covers_below(root: &[Cow<'_, str>], entry: &str, path: &[Cow<'_, str>]) -> bool {
    let below = path.strip_prefix(root);
    below.is_some_and(|below| covers(&entry.split('/').collect::<Vec<_>>(), below))
}

/// Whether the pattern means the path or a directory above it.
pub(super) fn covers(pattern: &[impl AsRef<str>], path: &[impl AsRef<str>]) -> bool {
    run(pattern, path, true, glob::matches)
}

/// Whether the pattern means the path itself.
pub(super) fn is(pattern: &[impl AsRef<str>], path: &[impl AsRef<str>]) -> bool {
    run(pattern, path, false, glob::matches)
}

/// Whether everything that `inner` speaks about is spoken about by `outer` too. May say no where the answer is
/// yes.
pub(super) fn covers_pattern(outer: &[impl AsRef<str>], inner: &[impl AsRef<str>]) -> bool {
    run(outer, inner, true, |wanted, found| found != "**" && glob::covers(wanted, found))
}

/// Whether everything that `inner` means itself is meant by `outer` itself. May say no where the answer is yes.
pub(super) fn is_pattern_covered(outer: &[impl AsRef<str>], inner: &[impl AsRef<str>]) -> bool {
    run(outer, inner, false, |wanted, found| found != "**" && glob::covers(wanted, found))
}

/// For people: `~/x` and `x` rather than absolute paths where that is shorter.
pub(super) fn show(path: &[Cow<'_, str>]) -> String {
    match path.split_first() {
        Some((root, rest)) if root == "/" => format!("/{}", rest.join("/")),
        Some((root, [])) => root.clone().into_owned(),
        Some((root, rest)) if root == "." => rest.join("/"),
        Some((root, rest)) => format!("{root}/{}", rest.join("/")),
        None => String::new(),
    }
}

/// Like [`show`], for an absolute path.
pub(super) fn show_here(path: &[Cow<'_, str>], context: &PathContext) -> String {
    let below = |root: &str| {
        let root_path = absolute(root, context);
        let rest = path.strip_prefix(root_path.as_slice())?;
        Some(show(
            &std::iter::once(Cow::from(root.to_owned())).chain(rest.iter().cloned()).collect::<Vec<_>>(),
        ))
    };
    below(".").or_else(|| below("~")).unwrap_or_else(|| show(path))
}

/// Compares one by one up to the first `**`, and from there on simulates the pattern as a small automaton: at most
/// `pattern.len() * path.len()` steps.
fn run<P: AsRef<str>, T: AsRef<str>>(
    pattern: &[P],
    path: &[T],
    prefix: bool,
    same: impl Fn(&str, &str) -> bool,
) -> bool {
    let mut parts = path.iter();
    let mut rest = pattern.iter();
    while let Some(wanted) = rest.as_slice().first().filter(|wanted| wanted.as_ref() != "**") {
        if !parts.next().is_some_and(|part| same(wanted.as_ref(), part.as_ref())) {
            return false;
        }
        rest.next();
    }
    let pattern = rest.as_slice();
    if pattern.is_empty() {
        return prefix || parts.as_slice().is_empty();
    }
    let mut states = vec![false; pattern.len() + 1];
    states[0] = true;
    skip_stars(pattern, &mut states);
    for part in parts {
        if prefix && states[pattern.len()] {
            return true;
        }
        let mut next = vec![false; pattern.len() + 1];
        for (at, wanted) in pattern.iter().enumerate() {
            if !states[at] {
                continue;
            }
            if wanted.as_ref() == "**" {
                next[at] = true;
            } else if same(wanted.as_ref(), part.as_ref()) {
                next[at + 1] = true;
            }
        }
        skip_stars(pattern, &mut next);
        states = next;
    }
    states[pattern.len()]
}

/// `**` may match nothing.
fn skip_stars(pattern: &[impl AsRef<str>], states: &mut [bool]) {
    for (at, wanted) in pattern.iter().enumerate() {
        if states[at] && wanted.as_ref() == "**" {
            states[at + 1] = true;
        }
    }
}

fn from_path(path: &Path) -> Written<'_> {
    let mut parts = vec!["/".into()];
    push_parts(&mut parts, path.to_string_lossy(), 1);
    parts
}

fn push_parts<'t>(parts: &mut Written<'t>, text: Cow<'t, str>, keep: usize) {
    match text {
        Cow::Borrowed(text) => text.split('/').for_each(|part| push_part(parts, part.into(), keep)),
        Cow::Owned(text) => text.split('/').for_each(|part| push_part(parts, part.to_owned().into(), keep)),
    }
}

fn push_part<'t>(parts: &mut Written<'t>, part: Cow<'t, str>, keep: usize) {
    match part.as_ref() {
        "" | "." => {}
        // Above a root that is still a name, `..` stays: only `absolute` knows what is there.
        ".." if parts.len() > keep && parts.last().is_some_and(|last| last != "..") => {
            parts.pop();
        }
        ".." if parts.first().is_some_and(|root| root == "/") => {}
        _ => parts.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn context() -> PathContext {
        PathContext { home: "/home/u".into(), project: "/home/u/src/app".into() }
    }

    fn covered(pattern: &str, path: &str) -> bool {
        covers(&absolute(pattern, &context()), &absolute(path, &context()))
    }

    #[test]
    fn path_patterns_cover_the_paths_of_the_table() {
        for (pattern, path, expected) in [
            (".", "src/main.rs", true),
            (".", "/home/u/src/app", true),
            (".", "/home/u/src/apple", false),
            (".", "../other/x", false),
            (".", "../app/x", true),
            ("~", "src/main.rs", true),
            ("~/.ssh", "/home/u/.ssh/id_ed25519", true),
            ("~/.ssh", "~/.sshx", false),
            ("~/.ssh", "/home/u/x/../.ssh/id", true),
            ("secrets/**", "secrets/a/b", true),
            ("secrets/**", "secretsx/a", false),
            ("**/*.pem", "a/b/c.pem", true),
            ("**/*.pem", "c.pem", true),
            ("**/*.pem", "c.pem/inside", true),
            ("*.pem", "a/c.pem", false),
            ("/", "/etc/passwd", true),
            ("/etc", "/../../etc/passwd", true),
            ("~/../other", "/home/other/x", true),
            ("/**", "/a", true),
        ] {
            assert_eq!(covered(pattern, path), expected, "{pattern} on {path}");
        }
        assert!(!is(&absolute("/**/git", &context()), &absolute("/usr/lib/git/x", &context())));
        assert!(is(&absolute("/**/git", &context()), &absolute("/usr/bin/git", &context())));
    }

    #[test]
    fn path_patterns_cover_the_narrower_patterns_of_the_table() {
        for (outer, inner, expected) in [
            (".", "src", true),
            (".", "**/*.rs", true),
            ("src", ".", false),
            ("~/a", "a", false),
            ("a/*", "a/**", false),
            ("a/**", "a/*", true),
            ("a/**", "a/**/b", true),
            ("a/?", "a/*", false),
        ] {
            assert_eq!(covers_pattern(&written(outer), &written(inner)), expected, "{outer} over {inner}");
        }
    }

    #[test]
    fn malformed_path_patterns_are_refused() {
        for text in ["$HOME/x", "~root/x", "../x", "a/../b", "a**/b", "***"] {
            assert!(check(text).is_err(), "{text}");
        }
        for text in ["~", "~/x", "/", ".", "a/[id].ts", "**/x", "..."] {
            assert!(check(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn deep_path_patterns_are_fast() {
        let pattern = "**/a/".repeat(300) + "b";
        assert!(!covered(&pattern, &"a/".repeat(1000)));
    }

    proptest! {
        #[test]
        fn pattern_covering_is_sound(
            outer in "(\\*\\*|\\*|[ab]|[ab]\\*)(/(\\*\\*|\\*|[ab])){0,3}",
            inner in "(\\*\\*|\\*|[ab]|[ab]\\*)(/(\\*\\*|\\*|[ab])){0,3}",
            path in "[ab]{1,2}(/[ab]{1,2}){0,4}",
        ) {
            if covers_pattern(&written(&outer), &written(&inner)) && covered(&inner, &path) {
                prop_assert!(covered(&outer, &path), "{} {} {}", outer, inner, path);
            }
        }

        #[test]
        fn any_text_is_read_without_a_panic(pattern in ".{0,40}", path in ".{0,40}") {
            let _ = covered(&pattern, &path);
        }
    }
}
