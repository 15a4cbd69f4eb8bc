//! The memory of results, and the parts of it that are recorded and stored.

use std::sync::LazyLock;
use std::time::Duration;

use agentsh_base::json::Json;
use agentsh_base::types::ServerId;
use agentsh_dlp::flow::Annotations;
use agentsh_dlp::taint::{Origin, OriginId, Stored, repeats};
use agentsh_guard::Rewrite;
use agentsh_guard::content::{mark_of, markable_texts};
use agentsh_store::Event;
use agentsh_store::words::ForgotReason;

use super::deferred_results::Deferred;
use super::report::{Declared, record_name};
use super::{Content, since_1970};

/// Definitions that are remembered once for all listings.
const MAX_DEFINITIONS: usize = 16_384;

/// Size of a result from which freed memory is returned to the kernel.
const MIN_TRIM_BYTES: usize = 256 << 10;
/// Evicted results between two events about them.
const EVICTIONS_PER_NOTICE: u64 = 1000;

impl Content {
    /// Takes down on disk and on record what remembering a result did.
    pub(super) fn note_stored(&mut self, server: ServerId, time: Duration, stored: Stored) -> OriginId {
        let Stored { id, evicted, truncated, record, .. } = stored;
        if let (Some(store), Some(record)) = (&self.store, record) {
            store.remember(record, time + self.settings.lifetime + repeats::REPEAT_WINDOW);
        }
        if let Some(evicted) = evicted {
            let before = self.evicted;
            self.evicted += evicted.results;
            if before == 0 || before / EVICTIONS_PER_NOTICE != self.evicted / EVICTIONS_PER_NOTICE {
                let kept = if evicted.kept > 0 { "; of some, only the secrets were kept" } else { "" };
                let whose: Vec<String> =
                    evicted.by_server.keys().map(|server| format!("'{server}'")).collect();
                let detail = format!(
                    "{} results are remembered, older ones of {} were dropped{kept}",
                    self.flow.load().0,
                    whose.join(", ")
                );
                self.record_forgotten(None, ForgotReason::MemoryFull, self.evicted, detail);
            }
        }
        if truncated {
            let detail = "the end of a long result is not remembered".to_owned();
            self.record_forgotten(Some(server), ForgotReason::TooLong, 1, detail);
        }
        id
    }

    pub(super) fn record_forgotten(
        &self,
        server_id: Option<ServerId>,
        reason: ForgotReason,
        results: u64,
        detail: String,
    ) {
        self.journal.record(Event::McpResultsForgotten { server_id, reason, results, detail });
    }

    /// Takes in a server's text about itself, and messages that were not requested.
    pub(super) fn remember_said(&mut self, server: &ServerId, name: &str, said: &Json<'_>) {
        if !has_text(said) {
            return;
        }
        let origin = Origin {
            server: server.clone(),
            tool: name.to_owned(),
            call: String::new(),
            time: since_1970(),
            private: Origin::is_private(self.labels(server)),
        };
        self.later.push(origin, said, None, false);
        if self.later.is_full() {
            self.catch_up_now();
        }
    }

    pub(super) fn remember_definition(
        &mut self,
        server: &ServerId,
        name: &str,
        hash: &str,
        definition: &Json<'_>,
    ) {
        if self.listed.len() < MAX_DEFINITIONS && self.listed.insert((server.clone(), hash.to_owned())) {
            self.remember_said(server, name, definition);
        }
    }

    /// Takes in what a call brought, and marks it. It counts in everything that is judged from now on; the work may
    /// are put off until no caller waits for an answer.
    pub(super) fn remember_result(
        &mut self,
        server: &ServerId,
        tool: &str,
        answer: &Json<'_>,
    ) -> Vec<Rewrite> {
        let Some(said) = answer.member("result").or_else(|| answer.member("error")) else {
            return Vec::new();
        };
        let call = match answer.member("id") {
            Some(Json::String(raw) | Json::Number(raw)) => (*raw).to_owned(),
            _ => String::new(),
        };
        let is_private = Origin::is_private(self.labels(server));
        if is_private {
            self.pairs.read(server, tool, since_1970());
        }
        if self.judges_pairs() {
            self.little.note_received(server, said, !is_private);
        }
        let origin = Origin {
            server: server.clone(),
            tool: tool.to_owned(),
            call,
            time: since_1970(),
            private: is_private,
        };
        if self.later.is_full() {
            self.catch_up_now();
        }
        let id = self.flow.next_id(self.later.len());
        let place = self.settings.marker;
        let texts = place
            .into_iter()
            .flat_map(|place| markable_texts(said, place).into_iter().map(move |text| (place, text)));
        let marked = texts.filter_map(|(place, (item, text))| {
            let text = self.flow.mark(id, &text, place, self.random.next())?;
            mark_of(answer, item, &text)
        });
        let marked: Vec<Rewrite> = marked.collect();
        let reader = self.flow.reader(said.length());
        self.later.push(origin, said, reader.map(|reader| (reader, self.views)), !marked.is_empty());
        marked
    }

    /// Takes in a server's description of one of its tools.
    pub(super) fn note_tool(&mut self, server: &ServerId, tool: &str, says: Annotations) {
        let before = self.labels(server);
        let known = self.suspected.entry(server.clone()).or_default();
        known.open_world |= says.open_world;
        if self.labels(server) != before {
            self.journal.record(Event::McpServerSuspected {
                server_id: server.clone(),
                tool_name: tool.to_owned(),
                hint: "openWorldHint".to_owned(),
                detail:
                    "data sent to this server counts as leaving the machine, although it is labelled local"
                        .to_owned(),
            });
        }
    }

    pub(super) fn catch_up_now(&mut self) {
        self.remember_later(true);
    }

    /// Without `all`: what another thread still reads is left for later.
    pub(super) fn remember_later(&mut self, all: bool) {
        self.flow.do_deferred_work();
        let mut longest = 0;
        for Deferred { origin, said, read, is_marked } in self.later.take(all) {
            let (server, time) = (origin.server.clone(), origin.time);
            let read = read.as_ref().and_then(|read| LazyLock::force(read).as_ref());
            // It was parsed before it was stored, so this cannot fail.
            if let Ok(stored) = self.flow.remember_json(origin, said.as_bytes(), read, &self.views) {
                longest = longest.max(if stored.repeated { 0 } else { said.len() });
                let record = stored.record.as_deref().filter(|_| is_marked).map(record_name);
                let id = self.note_stored(server, time, stored);
                if let Some(record) = record {
                    self.keep_declared(&Declared::result(), id, &record, time);
                }
            }
        }
        if longest >= MIN_TRIM_BYTES {
            agentsh_base::memory::trim_heap();
        }
    }
}

/// Whether any text in it is long enough to be private data.
fn has_text(value: &Json<'_>) -> bool {
    const MIN_LENGTH: usize = 8;
    match value {
        Json::Null | Json::Bool(_) => false,
        Json::Number(raw) | Json::String(raw) => raw.len() >= MIN_LENGTH,
        Json::Array(items) => items.iter().any(has_text),
        Json::Object(members) => {
            members.iter().any(|(name, value)| name.len() >= MIN_LENGTH || has_text(value))
        }
    }
}

pub(super) fn hints_open_world(definition: &Json<'_>) -> bool {
    let hint = definition.member("annotations").and_then(|annotations| annotations.member("openWorldHint"));
    hint == Some(&Json::Bool(true))
}
