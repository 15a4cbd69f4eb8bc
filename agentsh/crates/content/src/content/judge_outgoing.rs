//! Judges outgoing data: copies of earlier results, named destinations, and the consequences of both.

use std::borrow::Cow;

use agentsh_base::json::Json;
use agentsh_base::types::{ServerId, ToolId};
use agentsh_dlp::flow::labels::Sink;
use agentsh_dlp::flow::{FlowFinding, Judged};
use agentsh_dlp::taint::{self, Leaves};
use agentsh_dlp::threads::side_by_side;
use agentsh_dlp::{Forbidden, forbidden};
use agentsh_guard::content::marker_rewrites;
use agentsh_guard::{Finding, Outcome, Reason, Report, Rewrite, Severity, Subject, Verdict};
use agentsh_policy::OnFlow;
use agentsh_store::escape;

use super::offload::PrecomputedSearch;
use super::pairs::{self, allow_lines, way_of_value};
use super::settings::Destinations;
use super::{Content, outcome_of, since_1970};

impl Content {
    /// The finding about leaving data: a copy, or else bytes that may be a copy.
    pub(super) fn leak_of(&self, judged: Judged, server: &ServerId, tool: &str) -> Option<Finding> {
        let mut findings = judged.findings.into_iter().filter(|flowed| !self.may_flow(flowed, server));
        let mut opaque = None;
        let leak = findings.find(|flowed| {
            if flowed.finding.rule == taint::OPAQUE {
                opaque.get_or_insert_with(|| flowed.clone());
            }
            flowed.refused
        });
        match leak {
            Some(leak) => Some(self.of_flow(leak, server, tool)),
            None => self.of_unread(opaque?, server, tool),
        }
    }

    /// A compressed file counts as a copy, because packing hides its text; random-looking data is reported.
    pub(super) fn of_unread(&self, flowed: FlowFinding, server: &ServerId, tool: &str) -> Option<Finding> {
        let policy = &self.settings.policy;
        let written = policy.on_opaque.as_ref();
        let unwritten =
            if flowed.finding.category == taint::PACKED { self.settings.mode } else { OnFlow::Alert };
        let action = written.map_or(unwritten, |action| action.value);
        let rule = written.map(|action| action.rule.clone());
        let rule = rule.unwrap_or_else(|| pairs::part_of(&policy.rule, "on_opaque"));
        let source = &flowed.origin.server;
        let what = format!(
            "'{}' would send server '{server}' {}, after '{}' of server '{source}' returned private data",
            escape::line(tool),
            flowed.finding.amount,
            escape::line(&flowed.origin.tool),
        );
        let way = way_of_value(policy, source, server);
        let ways = format!("{way}, and `exfiltration: {{on_opaque: allow}}` lets such bytes go everywhere");
        let found = self.of_flow(flowed, server, tool);
        let verdict = Verdict::new(outcome_of(action), Reason::PrivateToExternal, rule);
        (action != OnFlow::Allow).then_some(Finding { verdict, what, ways, ..found })
    }

    pub(super) fn of_place(&self, forbidden: Forbidden, tool: &str, list: &Destinations) -> Finding {
        let host = escape::line(&forbidden.host).into_owned();
        let outcome = if list.is_closed { Outcome::Block } else { self.outcome() };
        let verdict = Verdict::new(outcome, Reason::DestinationNotAllowed, list.rule.clone());
        let what = format!("'{}' would send to '{host}', which is not listed there", escape::line(tool));
        Finding {
            context: format!("[{} in {}]", forbidden.form.as_str(), forbidden.pointer),
            destination: Some(host),
            pointer: forbidden.pointer,
            ..Finding::new(verdict, None, "destination", Severity::High, what)
        }
    }

    pub(super) fn of_flow(&self, flowed: FlowFinding, server: &ServerId, tool: &str) -> Finding {
        let FlowFinding { finding, origin, .. } = flowed;
        let policy = &self.settings.policy;
        let written = policy.written.get("on_detection").cloned();
        let rule = written.unwrap_or_else(|| pairs::part_of(&policy.rule, "on_detection"));
        // Detector and decoding are only recorded, because a refused caller would learn how to hide the data better.
        let what = format!(
            "'{}' would send server '{server}' {} that '{}' of server '{}' gave",
            escape::line(tool),
            finding.amount,
            escape::line(&origin.tool),
            origin.server,
        );
        let verdict = Verdict::new(self.outcome(), Reason::Tainted, rule);
        Finding {
            ways: match pairs::is_prose(finding.category) {
                true => allow_lines(policy, &origin.server, server),
                false => way_of_value(policy, &origin.server, server),
            },
            source: Some(ToolId { server: origin.server, tool: origin.tool }),
            destination: Some(server.0.clone()),
            context: finding.context,
            pointer: finding.pointer,
            decoded: finding.chain,
            ..Finding::new(verdict, None, finding.rule, finding.severity, what)
        }
    }

    /// What leaves with a message: data from another server's results, and, if it `may_name` places, a place that is not
    /// listed. `seen`: findings of another thread.
    pub(super) fn carried_out(
        &mut self,
        server: &ServerId,
        tool: &str,
        arguments: &Json<'_>,
        may_name: bool,
        seen: Option<PrecomputedSearch>,
    ) -> Vec<Finding> {
        self.catch_up_now();
        let labels = self.labels(server);
        let list = self.settings.destinations.as_ref();
        let list = list.filter(|_| may_name && names_places(tool, arguments));
        let calls = self.judged.entry(server.clone()).or_default();
        let seen = seen.filter(|seen| seen.labels == labels && seen.calls == *calls);
        *calls += 1;
        let (searched, place) = seen.map_or((None, None), |seen| (seen.flow, Some(seen.place)));
        let (judged, place) = match (searched, place) {
            (Some((judged, flow)), Some(place)) => {
                self.flow.adopt(flow);
                (judged, place)
            }
            (_, place) => {
                let call = Leaves::of_call(tool, arguments);
                let (allowed, limits) = (list.map(|list| list.allowed.as_slice()), self.views.limits);
                side_by_side(
                    call.length(),
                    || self.flow.judge(server, labels, &call, since_1970(), &self.views),
                    || {
                        place.unwrap_or_else(|| {
                            forbidden(&call, allowed?, labels.sink == Sink::Local, &limits)
                        })
                    },
                )
            }
        };
        let place = place.zip(list).map(|(place, list)| self.of_place(place, tool, list));
        let leak = self.leak_of(judged, server, tool);
        // A list that refuses in every mode is named first. Elsewhere a copy says more than a name.
        let is_closed = list.is_some_and(|list| list.is_closed);
        let is_more =
            |place: &Finding| leak.as_ref().is_none_or(|leak| place.verdict.outcome > leak.verdict.outcome);
        let place = place.filter(|place| is_closed || is_more(place));
        let mut found: Vec<Finding> = place.into_iter().chain(leak).collect();
        if !is_closed {
            found.reverse();
        }
        found
    }

    /// Judges a message to a server with and without its markers, because a removed marker may have hidden the text around it.
    pub(super) fn judge_carried(
        &mut self,
        subject: &Subject<'_>,
        carried: &Json<'_>,
        markers: Vec<Rewrite>,
        report: &mut Report,
    ) {
        let (server, name) = (subject.server, subject.matter.name());
        let mut found = self.carried_out(server, name, carried, true, subject.seen.take());
        if !markers.is_empty() && !found.iter().any(|found| found.verdict.is_block()) {
            let mut clean = carried.clone();
            Rewrite::apply(&markers, &mut clean);
            // This version is not the one that is sent.
            self.flow.not_sent();
            let cleaned = self.carried_out(server, name, &clean, true, None);
            found = if cleaned.is_empty() { found } else { cleaned };
        }
        let outcome = found.iter().map(|found| found.verdict.outcome).max().unwrap_or(Outcome::Allow);
        // A found copy proves more than an earlier read.
        let by_label = self.judge_pair(server, name, carried).filter(|label| label.verdict.outcome > outcome);
        found.extend(by_label);
        self.note_sent(&found);
        for found in found {
            self.note_refused(&found, server);
            self.keep(&found, server, name);
            report.find(found);
        }
        report.rewrite(markers);
    }

    /// The last judged message is not sent if it is refused, or if a person is asked about the copy in it. A pair of servers
    /// that a person allowed is not asked about again, so the message counts; other checks have decided when it passed.
    pub(super) fn note_sent(&mut self, found: &[Finding]) {
        let is_kept = |found: &Finding| match found.verdict.outcome {
            Outcome::Block => true,
            Outcome::Ask => found.verdict.reason == Reason::Tainted,
            _ => false,
        };
        if found.iter().any(is_kept) {
            self.flow.not_sent();
        } else {
            self.undecided = true;
        }
    }

    /// The last judged message did not pass.
    pub(super) fn settle_sent(&mut self) {
        if std::mem::take(&mut self.undecided) {
            self.flow.not_sent();
        }
    }

    /// The last judged message is sent.
    pub(super) fn sent(&mut self) {
        let now = since_1970();
        if std::mem::take(&mut self.undecided)
            && let Some((store, record)) = self.store.as_ref().zip(self.flow.sent(now))
        {
            store.remember(record, now + self.settings.lifetime);
        }
    }

    /// Hosts in an answer are text, and no order to go anywhere.
    pub(super) fn judge_answer(
        &mut self,
        subject: &Subject<'_>,
        method: &str,
        result: &Json<'_>,
        report: &mut Report,
    ) {
        let markers = marker_rewrites(result, |text| self.flow.without_markers(text));
        self.judge_copies(subject, method, result, report);
        report.rewrite(markers);
    }

    /// Parts that no agent chose as an argument: only data from another server's results counts there.
    pub(super) fn judge_copies(
        &mut self,
        subject: &Subject<'_>,
        name: &str,
        said: &Json<'_>,
        report: &mut Report,
    ) {
        let found = self.carried_out(subject.server, name, said, false, subject.seen.take());
        self.note_sent(&found);
        for found in found {
            self.note_refused(&found, subject.server);
            self.keep(&found, subject.server, name);
            report.find(found);
        }
    }
}

/// The address of a resource is a name that its server made up, unless it is one of the web.
pub(super) fn names_places(tool: &str, arguments: &Json<'_>) -> bool {
    if !tool.starts_with("resources/") {
        return true;
    }
    let uri = arguments.member("uri").and_then(Json::as_text);
    uri.is_none_or(|uri| {
        let uri = uri.trim_start().to_ascii_lowercase();
        ["http:", "https:", "ws:", "wss:", "ftp:", "ftps:", "sftp:", "//"]
            .iter()
            .any(|start| uri.starts_with(start))
    })
}

/// The value as it is passed on.
pub(super) fn apply_rewrites<'v>(value: &'v Json<'v>, rewrites: &'v [Rewrite]) -> Cow<'v, Json<'v>> {
    if rewrites.is_empty() {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    Rewrite::apply(rewrites, &mut value);
    Cow::Owned(value)
}
