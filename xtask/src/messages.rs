//! `cargo xtask messages`: every text that agentsh can show a person, with its place, so that they can be read in one
//! go.
//!
//! A scanner, not a parser: string literals of two words or more outside of tests, and the doc comments that clap prints as help.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run;

/// One text: the line where it begins, and the text as it is written in the source, on one line.
type Text = (usize, String);

/// Attributes whose strings are for programmers.
const ATTRIBUTES_WITHOUT_MESSAGES: [&str; 5] = ["expect(", "allow(", "cfg_attr(", "doc", "deprecated"];
/// Derives by which doc comments become help texts.
const HELP_DERIVES: [&str; 4] = ["Args", "Parser", "Subcommand", "ValueEnum"];
/// Where a table begins whose texts are doc comments.
const TABLES: [&str; 2] = [" = keys! {", " = rules! {"];
/// Words with which a string begins that is a statement for a database.
const SQL: [&str; 8] = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ", "ALTER ", "WITH ", "PRAGMA "];

/// Prints one line for each text: `file:line: text`.
pub fn main() -> Result<bool> {
    run::print_text(&list(&run::repository())?);
    Ok(true)
}

fn list(repository: &Path) -> Result<String> {
    let mut lines = String::new();
    let mut files = Vec::new();
    sources(&repository.join("agentsh"), &mut files)?;
    files.sort();
    for file in files {
        let source = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(repository).unwrap_or(&file).display();
        for (line, text) in messages(&source) {
            let _never = writeln!(lines, "{name}:{line}: {text}");
        }
    }
    Ok(lines)
}

/// The files of the product below a directory: tests and what only tests use are left out.
fn sources(directory: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "tests" || name == "testing" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn messages(source: &str) -> Vec<Text> {
    // Tests are at the end of a file.
    let source = source.split("\n#[cfg(test)]\nmod ").next().unwrap_or(source);
    let mut found: Vec<Text> = literals(source).into_iter().filter(|(_, text)| is_for_people(text)).collect();
    found.extend(help(source));
    found.sort();
    found
}

/// Two words or more, at least one of them in lower case.
fn is_for_people(text: &str) -> bool {
    let words =
        text.split_whitespace().filter(|word| word.bytes().filter(u8::is_ascii_alphabetic).count() > 1);
    let is_plain =
        text.split_whitespace().any(|word| word.len() > 1 && word.bytes().all(|b| b.is_ascii_lowercase()));
    words.count() > 1 && is_plain && !SQL.iter().any(|word| text.trim_start().starts_with(word))
}

/// String literals outside of comments and of attributes for programmers.
fn literals(source: &str) -> Vec<Text> {
    let bytes = source.as_bytes();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    let lines = |text: &str| text.matches('\n').count();
    while at < bytes.len() {
        let rest = &source[at..];
        let word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("#[") || rest.starts_with("#![") {
            let name = rest.trim_start_matches(['#', '!', '[']);
            let is_skipped = ATTRIBUTES_WITHOUT_MESSAGES.iter().any(|start| name.starts_with(start));
            if is_skipped { rest.find("]\n").map_or(rest.len(), |end| end + 1) } else { 1 }
        } else if let Some(hashes) = raw_string(rest).filter(|_| !word_before) {
            let open = rest.find('"').unwrap_or(0) + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            let end = rest[open..].find(&close).map_or(rest.len(), |end| open + end);
            found.push((line, one_line(&rest[open..end])));
            (end + close.len()).min(rest.len())
        } else if rest.starts_with('"') {
            let end = end_of_string(rest);
            found.push((line, one_line(&rest[1..end])));
            (end + 1).min(rest.len())
        } else if rest.starts_with("'\"'") || rest.starts_with("'/'") {
            3
        } else if rest.starts_with("'\\") {
            4.min(rest.len())
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        line += lines(&rest[..skipped]);
        at += skipped;
    }
    found
}

/// How many `#` a raw string has that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The offset of the quotation mark that ends a string.
fn end_of_string(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// A literal over several lines, joined as the compiler joins it, or by a space.
fn one_line(text: &str) -> String {
    let pieces = text.split('\n').map(|piece| piece.trim_start().trim_end_matches('\\'));
    pieces.map(str::trim_end).collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Doc comments of what clap reads a command line into, and of tables.
fn help(source: &str) -> Vec<Text> {
    let (mut found, mut block): (Vec<Text>, Option<Text>) = (Vec::new(), None);
    let mut is_inside = false;
    for (number, line) in source.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(comment) = trimmed.strip_prefix("///") {
            let (_, text) = block.get_or_insert((number + 1, String::new()));
            text.push_str(comment);
            continue;
        }
        let is_derive = trimmed.starts_with("#[derive(")
            && HELP_DERIVES
                .iter()
                .any(|name| trimmed.split(['(', ',', ')', ' ', ':']).any(|word| word == *name));
        let is_table = TABLES.iter().any(|start| trimmed.ends_with(start));
        is_inside = is_derive || is_table || is_inside && !line.starts_with('}') && trimmed != "};";
        if let Some((at, text)) = block.take_if(|_| is_inside) {
            found.push((at, text.trim().to_owned()));
        }
        // A comment above other attributes is still that of the item.
        if !trimmed.starts_with("#[") {
            block = None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn messages_are_literals_and_help_outside_of_tests() {
        let source = concat!(
            "// \"not this one\"\n",
            "#[expect(x, reason = \"nor this one\")]\n",
            "const A: &str = r#\"a \"raw\" text\"#;\n",
            "fn f() { let c = '\"'; say(\"cannot open {path}: \\\"{error}\\\"\"); sql(\"SELECT a from b\"); key(\"one_word\"); }\n",
            "/// Nobody prints this comment\n",
            "fn g() {}\n",
            "/// Start an agent\n",
            "#[derive(Debug, clap::Args)]\n",
            "struct S {\n",
            "    /// Read one more file,\n",
            "    /// or two\n",
            "    read: bool,\n",
            "}\n",
            "impl Section<P> for S {\n",
            "    const KEYS: &'static [Key] = keys! {\n",
            "        /// What happens to a call\n",
            "        \"on_call\": Kind::Text;\n",
            "    };\n",
            "    /// Nor is this one printed\n",
            "    fn read() {}\n",
            "}\n",
            "const B: &str = \"over \\\n    two lines\";\n",
            "\n#[cfg(test)]\nmod tests { const C: &str = \"in a test\"; }\n",
        );
        let expected = [
            (3, "a \"raw\" text"),
            (4, "cannot open {path}: \\\"{error}\\\""),
            (7, "Start an agent"),
            (10, "Read one more file, or two"),
            (16, "What happens to a call"),
            (22, "over two lines"),
        ];
        let expected: Vec<Text> = expected.map(|(line, text)| (line, text.to_owned())).to_vec();
        assert_eq!(messages(source), expected);
    }

    #[test]
    fn messages_of_the_product_are_listed_with_their_place() {
        let listed = list(&run::repository()).unwrap();
        assert!(listed.lines().count() > 1000, "{}", listed.lines().count());
        for line in listed.lines() {
            let mut parts = line.splitn(3, ':');
            let file = std::fs::read_to_string(run::repository().join(parts.next().unwrap())).unwrap();
            let number: usize = parts.next().unwrap().parse().unwrap();
            assert!(number >= 1 && number <= file.lines().count(), "{line}");
        }
        // A help text, and an error.
        assert!(listed.contains(": Start an agent"), "no help text");
        assert!(listed.contains(": cannot open "), "no error");
    }
}
