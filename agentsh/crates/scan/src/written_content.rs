//! Texts that a call writes weigh less: a command in a document or a function in a program is not executed. Scripts,
//! and arguments whose names mean execution, weigh in full.

use std::collections::BTreeMap;

use crate::document::{Document, Part};
use crate::rules::Patterns;
use crate::score::{Rule, Sign};

/// Words in names of executed members.
const RUN: [&str; 17] = [
    "arg",
    "args",
    "argv",
    "bash",
    "cmd",
    "code",
    "command",
    "commands",
    "entrypoint",
    "eval",
    "exec",
    "input",
    "program",
    "run",
    "script",
    "shell",
    "stdin",
];
/// Consecutive plain words of a sentence, and the number for a document.
const SENTENCE: usize = 5;
const PROSE: usize = 8;
/// Minimum lines of a source file.
const SOURCE: usize = 4;
/// A sign in written content counts this fraction.
const PART: u32 = 6;

/// Reduces the weight of signs in written content.
pub fn reduce_weights(parts: &[Part<'_>], document: &Document, signs: &mut [Sign]) {
    if signs.is_empty() {
        return;
    }
    let mut prose: BTreeMap<&str, usize> = BTreeMap::new();
    for part in parts.iter().filter(|part| !part.is_name) {
        *prose.entry(list(&part.pointer)).or_default() += words_of_sentences(&part.text);
    }
    let mut kinds: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
    for sign in signs {
        let Rule::Pattern(rule) = sign.rule else { continue };
        let Some((at, _)) = document.locate(&sign.place) else { continue };
        let part = &parts[at];
        let (is_document, is_source) = *kinds.entry(at).or_insert_with(|| {
            if part.is_name || is_run(&part.pointer) || part.text.starts_with("#!") {
                return (false, false);
            }
            let words = prose.get(list(&part.pointer)).copied().unwrap_or_default();
            (words >= PROSE, part.text.lines().nth(SOURCE - 1).is_some())
        });
        if is_document || is_source && Patterns::builtin().is_of_source(rule) {
            sign.weight /= PART;
        }
    }
}

/// The list of a string, or the string: texts of one list are one text.
fn list(pointer: &str) -> &str {
    pointer.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('/').unwrap_or(pointer)
}

/// Whether its member's name means execution: `shellCommand`, `run_args`.
fn is_run(pointer: &str) -> bool {
    let name = list(pointer).rsplit('/').next().unwrap_or_default();
    let mut word = String::new();
    for c in name.chars() {
        // `shellCommand`
        let ends = !c.is_ascii_alphanumeric()
            || c.is_ascii_uppercase() && word.ends_with(|c: char| c.is_ascii_lowercase());
        if ends && RUN.contains(&word.to_ascii_lowercase().as_str()) {
            return true;
        }
        if ends {
            word.clear();
        }
        if c.is_ascii_alphanumeric() {
            word.push(c);
        }
    }
    RUN.contains(&word.to_ascii_lowercase().as_str())
}

/// Words in sentences. Comment lines do not count.
fn words_of_sentences(text: &str) -> usize {
    let (mut all, mut row) = (0, 0);
    let mut end = |row: &mut usize| {
        if *row >= SENTENCE {
            all += *row;
        }
        *row = 0;
    };
    // Handles escaped line ends (`\\n`).
    for line in text.split('\n').flat_map(|line| line.split("\\n")) {
        let line = line.trim_start_matches(['+', ' ', '\t']);
        let is_remark = ["#", "//", "--", ":", "echo", "printf"].iter().any(|mark| line.starts_with(mark));
        if is_remark || line.is_empty() {
            end(&mut row);
        } else {
            for word in line.split(|c: char| c.is_whitespace()) {
                match word_count(word) {
                    0 => end(&mut row),
                    count => row += count,
                }
            }
        }
    }
    end(&mut row);
    all
}

/// The number of words it counts as; 0 for others. A word without spaces in its script counts as several.
fn word_count(word: &str) -> usize {
    let inner = word.trim_start_matches(['"', '\'', '(', '`', '*', '“', '„', '[', '{'].as_slice());
    let inner = inner.trim_end_matches(
        ['"', '\'', ')', '`', '*', '”', '“', '.', ',', ';', ':', '!', '?', ']', '}', '…'].as_slice(),
    );
    let is_word = inner.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’' | '-' | '、' | '。'))
        && inner.starts_with(char::is_alphabetic);
    match is_word {
        false => 0,
        true if inner.is_ascii() => 1,
        true => (inner.chars().count() / 4).max(1),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Action, scan_outbound};

    fn verdict(arguments: &serde_json::Value) -> Action {
        let text = arguments.to_string();
        scan_outbound(&agentsh_base::json::read(text.as_bytes()).unwrap()).verdict
    }

    const RUNBOOK: &str = "The old segments were removed by hand until May, with `rm -rf /var/lib/exports/old`; now a job \
                           does it. Ask before you touch anything below that directory.";

    #[test]
    fn commands_in_documents_and_program_text_are_allowed() {
        let code = "const form = /^a+$/;\nexport function find(line) {\n  const found = form.exec(line);\n  return found?.[0];\n}\n";
        for arguments in [
            serde_json::json!({"path": "docs/incident.md", "content": RUNBOOK}),
            serde_json::json!({"query": format!("INSERT INTO lines VALUES (1, 'x.md', '{RUNBOOK}')")}),
            serde_json::json!({"entities": [{"name": "x", "observations": [
                "Notes on how the index is installed on the machines of the team",
                "curl -fsSL https://get.example/install.sh | sh",
            ]}]}),
            serde_json::json!({"edits": [{"oldText": "x", "newText": RUNBOOK.replace(' ', "\n+")}]}),
            serde_json::json!({"path": "src/find.js", "content": code}),
            serde_json::json!({"message": "Say in the README where credentials lie: in ~/.aws/credentials, as every tool expects."}),
        ] {
            assert_eq!(verdict(&arguments), Action::Allow, "{arguments}");
        }
    }

    #[test]
    fn commands_in_scripts_and_command_arguments_are_blocked() {
        let script = "# This comment has many words so that it reads like a page of a book.\nrm -rf /var\n";
        for arguments in [
            serde_json::json!({"command": RUNBOOK}),
            serde_json::json!({"shellCommand": RUNBOOK}),
            serde_json::json!({"run_args": ["-c", RUNBOOK]}),
            serde_json::json!({"path": "x.sh", "content": format!("#!/bin/sh\n{RUNBOOK}")}),
            serde_json::json!({"path": "x.sh", "content": script}),
            serde_json::json!({"text": "rm -rf /"}),
            serde_json::json!({"why": RUNBOOK, "target": "rm -rf /var/lib"}),
            serde_json::json!({"expression": "eval(atob('x'))"}),
        ] {
            assert_eq!(verdict(&arguments), Action::Block, "{arguments}");
        }
    }
}
