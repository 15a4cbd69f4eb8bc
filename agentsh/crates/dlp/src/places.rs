//! Whether arguments name a forbidden place.

use crate::destination::{self, Destination, Form, Target};
use crate::policy::domain::Host;
use crate::policy::{NetworkRule, Ruled};
use crate::taint::Leaves;
use crate::taint::leaves::Role;
use crate::text::Limits;

/// A destination that no rule allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// JSON pointer into the arguments; `tool` for the tool's name.
    pub pointer: String,
    /// The host, or at most 80 characters of what cannot be read as one. Comes from outside.
    pub host: String,
    pub form: Form,
}

/// Names of arguments that contain the text of a file.
const CONTENT: [&str; 14] = [
    "content",
    "contents",
    "text",
    "body",
    "data",
    "newtext",
    "oldtext",
    "new_text",
    "old_text",
    "new_string",
    "old_string",
    "edits",
    "file_text",
    "insert_text",
];
/// Names of arguments that contain the path of a file.
const FILE: [&str; 7] = ["path", "file", "filename", "file_path", "filepath", "target_file", "file_name"];
const WRITES: [&str; 10] =
    ["write", "edit", "create", "save", "append", "insert", "replace", "patch", "update", "put"];

/// The first destination in the arguments that no rule of `allowed` names. `is_local`: the server keeps what it gets on this
/// machine.
#[must_use]
pub fn forbidden(
    call: &Leaves<'_>,
    allowed: &[Ruled<NetworkRule>],
    is_local: bool,
    limits: &Limits,
) -> Option<Forbidden> {
    let writes_file = is_local && writes_file(call);
    for (at, leaf) in call.items.iter().enumerate() {
        if leaf.role == Role::Tool {
            continue;
        }
        let key = if leaf.role == Role::Name { None } else { call.name_of(at) };
        if writes_file && key.is_some_and(|key| is_one_of(key, &CONTENT)) {
            continue;
        }
        let mut found = None;
        let line = command_line(call, at);
        let mut see = |destination: Destination| {
            if found.is_none() && destination::judge(&destination, allowed).is_forbidden() {
                found = Some(destination);
            }
        };
        if leaf.role == Role::Number {
            destination::find_number(&leaf.text, key, &mut see);
        } else if leaf.looks_encoded() {
            destination::find_in_views(&leaf.text, leaf.decoded_texts(limits), key, &mut see);
        } else {
            destination::find(&leaf.text, key, &mut see);
        }
        if let Some(line) = line {
            destination::find(&line, Some("command"), &mut see);
        }
        if let Some(Destination { target, form, .. }) = found {
            let host = match target {
                Target::Host(Host::Name(name)) => name,
                Target::Host(Host::Address(address)) => address.to_string(),
                Target::Unreadable(text) => text,
            };
            return Some(Forbidden { pointer: call.pointer(at), host, form });
        }
    }
    None
}

/// A program and its arguments in values of their own, as one line.
fn command_line(call: &Leaves<'_>, at: usize) -> Option<String> {
    // Limits the time: the host of a command is among its first words.
    const MAX_WORDS: usize = 32;
    const MAX_LENGTH: usize = 1024;
    let program = call.items.get(at).filter(|leaf| leaf.role == Role::Text)?;
    if !destination::is_tool(program.text.rsplit('/').next().unwrap_or_default()) {
        return None;
    }
    let words = call.items.get(at..)?.iter().filter(|leaf| leaf.role == Role::Text).take(MAX_WORDS);
    let words: Vec<String> = words
        .filter(|leaf| leaf.text.len() <= MAX_LENGTH && !leaf.text.contains('\''))
        .map(|leaf| {
            if leaf.text.contains(char::is_whitespace) {
                format!("'{}'", leaf.text)
            } else {
                leaf.text.to_string()
            }
        })
        .collect();
    (words.len() > 1).then(|| words.join(" "))
}

/// A URL inside the text of a file goes nowhere. The tool's name may count here: a server that lies about its tool needs no
/// address from the agent to send data away.
fn writes_file(call: &Leaves<'_>) -> bool {
    let tool = call.items.iter().find(|leaf| leaf.role == Role::Tool);
    let names_it = tool.is_some_and(|leaf| {
        let name = leaf.text.to_ascii_lowercase();
        name.split(|character: char| !character.is_ascii_alphanumeric()).any(|word| WRITES.contains(&word))
    });
    names_it
        && call.items.iter().enumerate().any(|(at, leaf)| {
            leaf.role == Role::Text
                && call.name_of(at).is_some_and(|key| is_one_of(key, &FILE))
                && is_plain_path(&leaf.text)
        })
}

/// `/home/jo/a.txt`, not `//host/share`.
fn is_plain_path(text: &str) -> bool {
    !text.contains("://") && !["//", "/\\", "\\", "@"].iter().any(|start| text.starts_with(start))
}

fn is_one_of(key: &str, names: &[&str]) -> bool {
    names.iter().any(|name| key.eq_ignore_ascii_case(name))
}
