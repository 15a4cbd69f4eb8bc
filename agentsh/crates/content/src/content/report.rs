//! What a session remembers and found, without any values.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use agentsh_base::types::ServerId;
use agentsh_dlp::taint::{Origin, OriginId, repeats};
use agentsh_guard::Finding;
use agentsh_mcp::aggregate::OWN_ID;

use super::settings::{action_taken, response_mode};
use super::{Content, since_1970};

/// Detections and results that a report shows.
const MAX_REPORTED: usize = 1000;
/// In bytes.
const TOKEN: usize = 16;
/// The `source_type` and `embed_position` of what a call brought.
const OF_RESULT: [&str; 2] = ["tool_result", "suffix"];

/// What a report says about the source of a result.
pub(super) struct Declared {
    pub source_type: String,
    pub embed_position: String,
    /// Also in an earlier session, whose markers are not found any more.
    pub marked: bool,
    /// The id that an earlier session gave it.
    pub token: Option<String>,
}

impl Declared {
    /// For the next session: about the result with this record.
    fn record_bytes(&self, name: &str, token: &str) -> Vec<u8> {
        json!({
            "record": name,
            "token": token,
            "source_type": self.source_type,
            "embed_position": self.embed_position,
            "marked": self.marked,
        })
        .to_string()
        .into_bytes()
    }

    /// What a call brought, marked.
    pub fn result() -> Self {
        let [source_type, embed_position] = OF_RESULT.map(str::to_owned);
        Self { source_type, embed_position, marked: true, token: None }
    }

    pub fn read(said: &Value) -> Option<(&str, Self)> {
        let text = |name: &str| said[name].as_str();
        let declared = Self {
            source_type: text("source_type")?.to_owned(),
            embed_position: text("embed_position")?.to_owned(),
            marked: said["marked"] == true,
            token: text("token").map(str::to_owned),
        };
        Some((text("record")?, declared))
    }
}

/// A stored result by the end of its record, which differs from that of every other one.
pub(super) fn record_name(record: &[u8]) -> String {
    const END: usize = 16;
    record.iter().skip(record.len().saturating_sub(END)).map(|byte| format!("{byte:02x}")).collect()
}

impl Content {
    /// Writes down what a later report says about a stored result.
    pub(super) fn keep_declared(&self, declared: &Declared, id: OriginId, record: &str, time: Duration) {
        if let Some(store) = &self.store {
            store.remember(
                declared.record_bytes(record, &self.token_id(id)),
                time + self.settings.lifetime + repeats::REPEAT_WINDOW,
            );
        }
    }

    /// Adds a detection to the report, and to that of later sessions.
    pub fn keep(&mut self, found: &Finding, server: &ServerId, tool: &str) {
        let event = json!({
            "detected_at": jiff::Timestamp::now().to_string(),
            "detector": found.detector,
            "severity": found.severity.as_str(),
            "action_taken": action_taken(found.verdict.outcome),
            "source_server": found.source.as_ref().and_then(|source| named(&source.server.0)),
            "source_tool": found.source.as_ref().and_then(|source| named(&source.tool)),
            "target_server": Some(server).filter(|server| server.0 != OWN_ID),
            "target_tool": tool,
            "destination": found.destination,
            "pointer": found.pointer,
            "decoded": found.decoded,
            "context": found.context,
            "detail": found.what,
        });
        if let Some(store) = &self.store {
            store.remember(event.to_string().into_bytes(), Duration::MAX);
        }
        self.add_event(event);
    }

    /// Adds a detection of this session, or of an earlier one.
    pub(super) fn add_event(&mut self, event: Value) {
        self.found_count += 1;
        if self.found.len() >= MAX_REPORTED {
            self.found.pop_front();
        }
        self.found.push_back(event);
    }

    /// 32 hexadecimal digits, as clients of `@exfil/canary` expect. No other session has the same, also not one that shares
    /// the file of the state: an id that is used after its session must not name another text.
    #[must_use]
    pub fn token_id(&self, id: OriginId) -> String {
        if let Some(token) = self.declared.get(&id).and_then(|said| said.token.clone()) {
            return token;
        }
        let digest = Sha256::new().chain_update(self.token_seed).chain_update(id.0.to_le_bytes()).finalize();
        digest[..TOKEN].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The result with this id, if it is still remembered. A search on another thread leaves those that have expired.
    #[must_use]
    pub fn of_token(&self, token: &str) -> Option<OriginId> {
        let mut live = self.flow.origins().filter(|(_, origin)| self.is_live(origin)).map(|(id, _)| id);
        live.find(|id| self.token_id(*id).eq_ignore_ascii_case(token))
    }

    fn is_live(&self, origin: &Origin) -> bool {
        since_1970() < origin.time + self.settings.lifetime
    }

    /// Everything but what waits to be remembered.
    pub(super) fn state_json(&self) -> Value {
        let (results, bytes) = self.flow.load();
        let marked: BTreeSet<OriginId> = self.flow.marked_results().collect();
        let newest = self.flow.origins().skip(results.saturating_sub(MAX_REPORTED));
        let tokens: Vec<Value> = newest
            .map(|(id, origin)| {
                // Texts of the agent itself have no call.
                let of_call = (!origin.call.is_empty()).then_some(OF_RESULT);
                let declared = self.declared.get(&id);
                let is_marked = marked.contains(&id) || declared.is_some_and(|said| said.marked);
                let declared = declared.map(|said| [&*said.source_type, &*said.embed_position]).or(of_call);
                json!({
                    "token_id": self.token_id(id),
                    "created_at": duration_text(origin.time),
                    "expires_at": duration_text(origin.time + self.settings.lifetime),
                    "source_server": named(&origin.server.0),
                    "source_tool": named(&origin.tool),
                    "source_type": declared.map(|said| said[0]),
                    "embed_position": declared.map(|said| said[1]).filter(|_| is_marked),
                    "private": origin.private,
                    "marked": is_marked,
                    "status": if self.is_live(origin) { "active" } else { "expired" },
                })
            })
            .collect();
        json!({
            "tracking": "on",
            "response_mode": response_mode(self.settings.mode),
            "token_count": results,
            "token_bytes": bytes,
            "evicted_count": self.evicted,
            "tokens": tokens,
            "leakage_count": self.found_count,
            "leakage_events": self.found,
        })
    }
}

/// None if an agent that passes texts by itself gave no name.
fn named(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

fn duration_text(time: Duration) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
