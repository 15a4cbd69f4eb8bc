//! Answers to `tools/list`: what the server offers goes on record, what policy denies disappears.

use crate::guard::{Matter, interface};
use crate::json::Json;
use crate::store::words::ToolStatus;
use crate::store::{Event, Recorder};

use super::connection::Connection;
use super::identify::{MAX_TOOL_NAME, looks_like_name};

/// Tools that one connection remembers; further ones count as never listed.
const MAX_TOOLS: usize = 16_384;
/// As much of a description as an event keeps, in characters.
const MAX_DESCRIPTION: usize = 1024;
/// The same for a connection that listed more than [`MANY`] tools.
const SHORT_DESCRIPTION: usize = 128;
/// Tools of an answer that are recorded one by one although nothing is new about them.
const MANY: usize = 256;

impl<R: Recorder> Connection<R> {
    /// Records every tool of a `tools/list` answer and takes out those that must not be seen.
    pub fn inspect_tools(&mut self, answer: &mut Json<'_>) {
        let Some(Json::Array(tools)) =
            answer.member_mut("result").and_then(|result| result.member_mut("tools"))
        else {
            return;
        };
        let mut repeats = Repeats::default();
        tools.retain(|tool| self.inspect_tool(tool, &mut repeats));
        self.note_repeats(&repeats);
    }

    /// Whether the tool may be seen.
    fn inspect_tool(&mut self, tool: &Json<'_>, repeats: &mut Repeats) -> bool {
        let hash = interface::hash(tool);
        let name = match tool.member("name").and_then(Json::as_text) {
            Some(name) if name.len() <= MAX_TOOL_NAME && !is_ambiguous(tool) => name,
            // What cannot be named cannot be called either: judged as a tool without a name.
            _ => "".into(),
        };
        if !name.is_empty() {
            self.note_tool(&name, &hash, tool, repeats);
        }
        let decision = self.decide(Matter::Definition { name: &name, hash: &hash, definition: tool });
        self.record_findings(&name, &serde_json::Value::Null, &decision);
        !decision.is_block()
    }

    fn note_tool(&mut self, name: &str, hash: &str, tool: &Json<'_>, repeats: &mut Repeats) {
        let previous = self.tools.get(name).or_else(|| self.options.known.get(name)).cloned();
        if repeats
            .counts(previous.as_deref() == Some(hash), previous.is_none() && self.tools.len() >= MAX_TOOLS)
        {
            return;
        }
        let most = if self.tools.len() < MANY { MAX_DESCRIPTION } else { SHORT_DESCRIPTION };
        let server_id = self.options.server.clone();
        self.record.record(match previous {
            Some(previous_hash) if previous_hash != hash => Event::McpToolChanged {
                server_id,
                tool_name: name.to_owned(),
                previous_hash,
                new_hash: hash.to_owned(),
            },
            previous => Event::McpToolSeen {
                server_id,
                server_type: self.options.server_type.clone(),
                tool_name: name.to_owned(),
                tool_hash: hash.to_owned(),
                description: tool
                    .member("description")
                    .and_then(Json::as_text)
                    .map(|text| text.chars().take(most).collect()),
                status: if previous.is_some() { ToolStatus::Unchanged } else { ToolStatus::New },
            },
        });
        if self.tools.len() < MAX_TOOLS || self.tools.contains_key(name) {
            self.tools.insert(name.to_owned(), hash.to_owned());
        }
    }
}

impl<R: Recorder> Connection<R> {
    /// One event for all tools that got none.
    fn note_repeats(&self, repeats: &Repeats) {
        let counts = [
            (repeats.known.saturating_sub(MANY as u64), ToolStatus::Unchanged),
            (repeats.surplus, ToolStatus::New),
        ];
        for (count, status) in counts.into_iter().filter(|(count, _)| *count > 0) {
            self.record.record(Event::McpToolSeen {
                server_id: self.options.server.clone(),
                server_type: self.options.server_type.clone(),
                tool_name: String::new(),
                tool_hash: String::new(),
                description: Some(format!("{count} further tools")),
                status,
            });
        }
    }
}

/// Tools of one answer about which there is nothing new, and those beyond what a connection remembers: a server can list
/// the same ones, or make up others, without end.
#[derive(Default)]
struct Repeats {
    known: u64,
    surplus: u64,
}

impl Repeats {
    /// Whether the tool is only counted.
    fn counts(&mut self, is_known: bool, is_surplus: bool) -> bool {
        if is_known {
            self.known += 1;
            return self.known > MANY as u64;
        }
        self.surplus += u64::from(is_surplus);
        is_surplus
    }
}

fn is_ambiguous(tool: &Json<'_>) -> bool {
    tool.as_object().is_some_and(|members| members.iter().any(|(raw, _)| looks_like_name(raw)))
}
