//! Answers to `tools/list`: records the entries and removes denied ones.

use crate::guard::{Decision, Offer, Reason, Rewrite, SubjectKind, interface};
use crate::json::{self, Json};
use crate::store::words::ToolStatus;
use crate::store::{Event, Recorder};
use crate::types::ToolId;

use super::client::Client;
use super::connection::Connection;
use super::identify::{MAX_TOOL_NAME, looks_like_name};
use super::listing::List;

/// Limit of remembered tools; others count as never listed.
const MAX_TOOLS: usize = 16_384;
/// Recorded length of a description, in characters.
const MAX_DESCRIPTION: usize = 1024;
/// The same after more than [`MAX_TOOLS_RECORDED`] tools.
const SHORT_DESCRIPTION: usize = 128;
/// Limit of unchanged tools of an answer that are recorded one by one.
const MAX_TOOLS_RECORDED: usize = 256;
/// Limit of reported hidden entries per connection.
const MAX_REPORTED: usize = 16;
/// Limit of recorded changes, because a server can invent them.
const MAX_CHANGES: u64 = 4096;

/// The entries that stay, with their changes by new index.
#[derive(Default)]
struct KeptEntries {
    count: usize,
    rewrites: Vec<Rewrite>,
}

impl KeptEntries {
    /// Whether the entry stays.
    fn note(&mut self, entry: Option<Vec<Rewrite>>) -> bool {
        let Some(entry) = entry else { return false };
        let at = self.count;
        self.count += 1;
        self.rewrites.extend(
            entry.into_iter().map(|rewrite| Rewrite {
                path: std::iter::once(at).chain(rewrite.path).collect(),
                ..rewrite
            }),
        );
        true
    }
}

impl<R: Recorder> Connection<R> {
    /// Records every tool of a `tools/list` answer, and removes hidden ones.
    pub fn inspect_tools(&mut self, client: &mut impl Client, answer: &mut Json<'_>) -> Vec<Rewrite> {
        self.listing.on_page(List::Tools, answer);
        let Some(Json::Array(tools)) =
            answer.member_mut("result").and_then(|result| result.member_mut("tools"))
        else {
            return Vec::new();
        };
        let mut repeats = Repeats::default();
        let mut kept = KeptEntries::default();
        tools.retain(|tool| kept.note(self.inspect_tool(client, tool, &mut repeats)));
        self.note_repeats(&repeats);
        kept.rewrites
    }

    /// The changes to a visible tool; None: hidden.
    fn inspect_tool(
        &mut self,
        client: &mut impl Client,
        tool: &Json<'_>,
        repeats: &mut Repeats,
    ) -> Option<Vec<Rewrite>> {
        let hash = interface::hash(tool);
        let name = tool.member("name").and_then(Json::as_text);
        let callable = name.filter(|name| name.len() <= MAX_TOOL_NAME && !is_ambiguous(tool));
        let note = |name: &str| self.note_tool(name, &hash, tool, repeats) == RecordMode::Counted;
        let is_counted = callable.as_deref().is_some_and(note);
        // An entry that cannot be called is judged as a tool without a name.
        let name = callable.unwrap_or_default();
        let decision = self.decide(SubjectKind::Definition { name: &name, hash: &hash, definition: tool });
        match is_counted {
            true => repeats.hidden += u64::from(decision.is_block()),
            false => self.record_findings(&name, &serde_json::Value::Null, &decision),
        }
        self.tell_hidden("tool", &name, &decision);
        self.retract_displaced(client, &name, &decision);
        (!decision.is_block()).then_some(decision.rewrites)
    }

    /// Removes another server's tool that this one displaces from the client's lists.
    pub fn retract_displaced(&mut self, client: &mut impl Client, name: &str, decision: &Decision) {
        for displaced in &decision.displaced {
            self.tell_displaced(name, displaced);
            if !client.take_back(displaced) {
                (self.options.displaced.0)(displaced);
            }
        }
    }

    /// Reports a displaced tool to the user.
    fn tell_displaced(&mut self, name: &str, displaced: &ToolId) {
        let ToolId { server, tool } = displaced;
        let shown = |name: &str| name.chars().take(80).collect::<String>();
        if self.told_hidden.len() < MAX_REPORTED
            && self.told_hidden.insert(format!("{server} {}", shown(tool)))
        {
            let (hidden, first, own) = (shown(tool), shown(name), &self.options.server);
            (self.options.note.0)(&match tool == name {
                true => format!(
                    "the servers '{server}' and '{own}' both offer a tool '{hidden}': neither is used"
                ),
                false => format!(
                    "tool '{hidden}' of server '{server}' imitates '{first}' of server '{own}', which was declared first: \
                     it is hidden from the agent, and its calls are refused"
                ),
            });
        }
    }

    /// Reports once what is hidden because of its content, and not because of a list.
    fn tell_hidden(&mut self, kind: &str, name: &str, decision: &Decision) {
        let Some(found) = decision.deciding_finding().filter(|_| decision.is_block()) else { return };
        // The verifier reports it once for the whole server.
        if decision.verdict.reason == Reason::InterfaceNotVouched {
            return;
        }
        let name: String = name.chars().take(80).collect();
        if self.told_hidden.len() < MAX_REPORTED && self.told_hidden.insert(format!("{kind} {name}")) {
            (self.options.note.0)(&format!(
                "{kind} '{name}' of server '{}' is hidden from the agent: {} ({}); {}",
                self.options.server,
                found.what,
                decision.verdict.rule,
                decision.verdict.remedy()
            ));
        }
    }

    /// Removes hidden prompts, resources, templates or instructions from an answer. Returns the changes of the rest.
    pub fn inspect_offers(&mut self, offer: Offer, answer: &mut Json<'_>) -> Vec<Rewrite> {
        let (list, named) = match offer {
            Offer::Prompt => ("prompts", "name"),
            Offer::Resource => ("resources", "uri"),
            Offer::Template => ("resourceTemplates", "uriTemplate"),
            Offer::Instructions => ("instructions", ""),
        };
        self.listing.on_page(List::Offers(offer), answer);
        let Some(result) = answer.member_mut("result") else { return Vec::new() };
        if offer == Offer::Instructions {
            let Some(text) = result.member(list).cloned() else { return Vec::new() };
            let offered = self.judge_offer(offer, "", &text);
            if offered.is_none()
                && let Json::Object(members) = result
            {
                members.retain(|(raw, _)| json::unescape(raw) != list);
            }
            return offered.unwrap_or_default();
        }
        let Some(Json::Array(entries)) = result.member_mut(list) else { return Vec::new() };
        let mut kept = KeptEntries::default();
        entries.retain(|entry| {
            let name = entry.member(named).and_then(Json::as_text).unwrap_or_default();
            kept.note(self.judge_offer(offer, &name, entry))
        });
        kept.rewrites
    }

    /// The changes to a visible entry; None: hidden.
    fn judge_offer(&mut self, kind: Offer, name: &str, definition: &Json<'_>) -> Option<Vec<Rewrite>> {
        let hash = interface::hash(definition);
        let decision = self.decide(SubjectKind::Offer { kind, name, hash: &hash, definition });
        self.record_findings(name, &serde_json::Value::Null, &decision);
        self.tell_hidden(kind.as_str(), name, &decision);
        (!decision.is_block()).then_some(decision.rewrites)
    }

    fn note_tool(&mut self, name: &str, hash: &str, tool: &Json<'_>, repeats: &mut Repeats) -> RecordMode {
        let previous = self.tools.get(name).cloned().or_else(|| (self.options.known.0)(name, (hash, tool)));
        if repeats
            .counts(previous.as_deref() == Some(hash), previous.is_none() && self.tools.len() >= MAX_TOOLS)
        {
            return RecordMode::Told;
        }
        if previous.as_deref().is_some_and(|previous| previous != hash) {
            self.changes += 1;
            if self.changes > MAX_CHANGES {
                repeats.changed += 1;
                if let Some(known) = self.tools.get_mut(name) {
                    hash.clone_into(known);
                }
                return RecordMode::Counted;
            }
        }
        let most = if self.tools.len() < MAX_TOOLS_RECORDED { MAX_DESCRIPTION } else { SHORT_DESCRIPTION };
        let server_id = self.options.server.clone();
        let description = tool.member("description").and_then(Json::as_text);
        let description = description.map(|text| text.chars().take(most).collect());
        self.record.record(match previous {
            Some(previous_hash) if previous_hash != hash => Event::McpToolChanged {
                server_id,
                tool_name: name.to_owned(),
                previous_hash,
                new_hash: hash.to_owned(),
                description,
            },
            previous => Event::McpToolSeen {
                server_id,
                server_type: self.options.server_type,
                tool_name: name.to_owned(),
                tool_hash: hash.to_owned(),
                description,
                status: if previous.is_some() { ToolStatus::Unchanged } else { ToolStatus::New },
            },
        });
        if self.tools.len() < MAX_TOOLS || self.tools.contains_key(name) {
            self.tools.insert(name.to_owned(), hash.to_owned());
        }
        RecordMode::Told
    }
}

/// Whether a tool gets its own event.
#[derive(PartialEq, Eq)]
enum RecordMode {
    Told,
    Counted,
}

impl<R: Recorder> Connection<R> {
    /// One event for all tools without their own.
    fn note_repeats(&self, repeats: &Repeats) {
        let further = |count: u64| format!("{count} further tools");
        let known = repeats.known.saturating_sub(MAX_TOOLS_RECORDED as u64);
        let changed = format!("{} further tools, {} of them hidden", repeats.changed, repeats.hidden);
        let counts = [
            (known, ToolStatus::Unchanged, further(known)),
            (repeats.surplus, ToolStatus::New, further(repeats.surplus)),
            (repeats.changed, ToolStatus::Changed, changed),
        ];
        for (_, status, text) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            self.record.record(Event::McpToolSeen {
                server_id: self.options.server.clone(),
                server_type: self.options.server_type,
                tool_name: String::new(),
                tool_hash: String::new(),
                description: Some(text),
                status,
            });
        }
    }
}

/// Unchanged tools of an answer, and those beyond the limit.
#[derive(Default)]
struct Repeats {
    known: u64,
    surplus: u64,
    changed: u64,
    /// Changed ones.
    hidden: u64,
}

impl Repeats {
    /// Whether the tool is only counted.
    fn counts(&mut self, is_known: bool, is_surplus: bool) -> bool {
        if is_known {
            self.known += 1;
            return self.known > MAX_TOOLS_RECORDED as u64;
        }
        self.surplus += u64::from(is_surplus);
        is_surplus
    }
}

fn is_ambiguous(tool: &Json<'_>) -> bool {
    tool.as_object().is_some_and(|members| members.iter().any(|(raw, _)| looks_like_name(raw)))
}
