//! The same engine for an agent that asks by itself: it passes what it has read, and what it is about to send.

use std::collections::BTreeSet;

use agentsh_base::json::Json;
use agentsh_base::types::{ServerId, ToolId};
use agentsh_dlp::flow::{Flow, FlowFinding, Judged};
use agentsh_dlp::taint::{Leaves, Origin, OriginId, PACKED, marker};
use agentsh_guard::{Finding, Outcome};
use agentsh_mcp::aggregate::OWN_ID;
use agentsh_store::{Event, escape};

use super::report::{Declared, record_name};
use super::{Content, since_1970};

pub struct MarkedText {
    pub id: OriginId,
    /// With the marker, or as it was.
    pub text: String,
    /// Why it carries no marker.
    pub unmarked: Option<&'static str>,
}

/// The findings of another thread.
pub struct Searched {
    judged: Judged,
    flow: Flow,
}

impl Content {
    /// Remembers a text, and marks it unless the marker would break its format.
    pub fn wrap(
        &mut self,
        source: ToolId,
        content: &Json<'_>,
        position: marker::Position,
        declared: [&'static str; 2],
    ) -> MarkedText {
        let origin = Origin {
            private: Origin::is_private(self.labels(&source.server)),
            server: source.server,
            tool: source.tool,
            call: String::new(),
            time: since_1970(),
        };
        self.catch_up_now();
        let (server, time) = (origin.server.clone(), origin.time);
        let stored = self.flow.remember(origin, &Leaves::of(content), &self.views);
        let record = stored.record.as_deref().map(record_name);
        let id = self.note_stored(server, time, stored);
        if self.declared.len() > 2 * self.flow.load().0 {
            let known: BTreeSet<OriginId> = self.flow.origins().map(|(id, _)| id).collect();
            self.declared.retain(|id, _| known.contains(id));
        }
        let text = content.as_text().unwrap_or_default().into_owned();
        let random = self.random.next();
        let marked = self.flow.mark(id, &text, position, random);
        let [source_type, embed_position] = declared.map(str::to_owned);
        let declared = Declared { source_type, embed_position, marked: marked.is_some(), token: None };
        if let Some(record) = record {
            self.keep_declared(&declared, id, &record, time);
        }
        self.declared.insert(id, declared);
        MarkedText { id, unmarked: marker::unmarkable_reason(&text, position), text: marked.unwrap_or(text) }
    }

    /// A search of a long text for another thread; nothing may be searched or remembered meanwhile. None: it takes no time.
    pub fn search_apart(
        &mut self,
        target: &ToolId,
        length: usize,
    ) -> Option<impl FnOnce(&Json<'_>) -> Searched + Send + 'static + use<>> {
        self.settle_sent();
        self.catch_up_now();
        let labels = self.labels(&target.server);
        let mut flow = self.flow.copy_for(&target.server, labels, length)?;
        let (views, target) = (self.views, target.clone());
        Some(move |data: &Json<'_>| {
            let call = Leaves::of_call(&target.tool, data);
            let judged = flow.judge(&target.server, labels, &call, since_1970(), &views);
            Searched { judged, flow }
        })
    }

    /// The remembered data in a text that is about to go to `target`, recorded. Each result is named once.
    pub fn search(
        &mut self,
        target: &ToolId,
        data: &Json<'_>,
        searched: Option<Searched>,
    ) -> Vec<(OriginId, Finding)> {
        let judged = if let Some(Searched { judged, flow }) = searched {
            self.flow.adopt(flow);
            judged
        } else {
            let call = Leaves::of_call(&target.tool, data);
            let labels = self.labels(&target.server);
            self.settle_sent();
            self.catch_up_now();
            self.flow.judge(&target.server, labels, &call, since_1970(), &self.views)
        };
        // A question sends nothing, and neither does a refused call.
        if judged.is_refused() {
            self.flow.not_sent();
        }
        let mut found: Vec<(OriginId, Finding)> = Vec::new();
        for flowed in judged.findings {
            let id = flowed.finding.origin;
            let what = flow_text(&flowed, &target.server);
            let exfiltration = match flowed.finding.category {
                PACKED => self.of_unread(flowed, &target.server, &target.tool),
                _ => flowed.refused.then(|| self.of_flow(flowed, &target.server, &target.tool)),
            };
            let is_new = |_: &Finding| found.iter().all(|(other, _)| *other != id);
            if let Some(exfiltration) = exfiltration.filter(is_new) {
                let destination = exfiltration.destination.filter(|server| server != OWN_ID);
                let exfiltration = Finding { what, destination, ..exfiltration };
                self.keep(&exfiltration, &target.server, &target.tool);
                self.record(&exfiltration, target);
                found.push((id, exfiltration));
            }
        }
        found
    }

    #[must_use]
    pub fn remembered_count(&self) -> usize {
        self.flow.load().0
    }

    #[must_use]
    pub fn mode(&self) -> agentsh_policy::OnFlow {
        self.settings.mode
    }

    fn record(&self, found: &Finding, target: &ToolId) {
        let (source_server, source_tool) =
            found.source.clone().map(|source| (source.server, source.tool)).unzip();
        self.journal.record(Event::McpExfilDetected {
            server_id: target.server.clone(),
            tool_name: target.tool.clone(),
            jsonrpc_id: serde_json::Value::Null,
            detector: found.detector.clone(),
            action: agentsh_mcp::action(found.verdict.outcome),
            severity: agentsh_mcp::severity(found.severity),
            reason: found.verdict.reason.code().to_owned(),
            rule: found.verdict.rule.clone(),
            source_server: source_server.filter(|server| !server.0.is_empty()),
            source_tool: source_tool.filter(|tool| !tool.is_empty()),
            destination: found.destination.clone(),
            context: found.context.clone(),
            pointer: found.pointer.clone(),
            decoded: found.decoded.iter().map(|step| (*step).to_owned()).collect(),
            detail: found.what.clone(),
        });
    }

    /// Whether what was found stops what is being done.
    #[must_use]
    pub fn halts(&self) -> bool {
        self.outcome() == Outcome::Block
    }
}

fn flow_text(FlowFinding { finding, origin, .. }: &FlowFinding, target: &ServerId) -> String {
    let (tool, server) = (escape::line(&origin.tool), &origin.server);
    let from = match (tool.is_empty(), server.0.is_empty()) {
        (true, true) => "a text of `wrap_content`".to_owned(),
        (true, false) => format!("a text of server '{server}'"),
        (false, true) => format!("a text of '{tool}'"),
        (false, false) => format!("a text of '{tool}' of server '{server}'"),
    };
    let of = if finding.category == PACKED { String::new() } else { format!(" of {from}") };
    let to = if target.0 == OWN_ID { String::new() } else { format!(" to server '{target}'") };
    format!("{}{of} would go out{to}", finding.amount)
}
