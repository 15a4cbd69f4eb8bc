//! Answers to `tools/list`: what the server offers goes on record, what policy denies disappears.

use crate::guard::flow::Annotations;
use crate::guard::interface;
use crate::json::Json;
use crate::store::{Event, Recorder};

use super::authorise::{MAX_TOOL_NAME, looks_like_name};
use super::connection::Connection;

/// Tools that one connection remembers; further ones count as never listed.
const MAX_TOOLS: usize = 16_384;
/// As much of a description as an event keeps, in characters.
const MAX_DESCRIPTION: usize = 1024;

impl<R: Recorder> Connection<R> {
    /// Records every tool of a `tools/list` answer and takes out those that must not be seen.
    pub fn inspect_tools(&mut self, answer: &mut Json<'_>) {
        let Some(Json::Array(tools)) =
            answer.member_mut("result").and_then(|result| result.member_mut("tools"))
        else {
            return;
        };
        tools.retain(|tool| self.inspect_tool(tool));
    }

    /// Whether the tool may be seen.
    fn inspect_tool(&mut self, tool: &Json<'_>) -> bool {
        let hash = interface::hash(tool);
        let name = match tool.member("name").and_then(Json::as_text) {
            Some(name) if name.len() <= MAX_TOOL_NAME && !is_ambiguous(tool) => name,
            // What cannot be named cannot be called either: judged as a tool without a name.
            _ => return self.guard.borrow().tool_visible(&self.options.server, "", &hash),
        };
        if says(tool, "openWorldHint") {
            let mut content = self.options.content.borrow_mut();
            content.note_tool(&self.options.server, &name, Annotations { open_world: true });
        }
        self.note_tool(&name, &hash, tool);
        self.guard.borrow().tool_visible(&self.options.server, &name, &hash)
    }

    fn note_tool(&mut self, name: &str, hash: &str, tool: &Json<'_>) {
        let previous = self.tools.get(name).or_else(|| self.options.known.get(name)).cloned();
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
                    .map(|text| text.chars().take(MAX_DESCRIPTION).collect()),
                status: if previous.is_some() { "unchanged" } else { "new" }.to_owned(),
            },
        });
        if self.tools.len() < MAX_TOOLS || self.tools.contains_key(name) {
            self.tools.insert(name.to_owned(), hash.to_owned());
        }
    }
}

/// Whether a hint stands in the annotations of a tool.
fn says(tool: &Json<'_>, hint: &str) -> bool {
    let hint = tool.member("annotations").and_then(|annotations| annotations.member(hint));
    hint == Some(&Json::Bool(true))
}

fn is_ambiguous(tool: &Json<'_>) -> bool {
    tool.as_object().is_some_and(|members| members.iter().any(|(raw, _)| looks_like_name(raw)))
}
