//! The whole summary as text, for `agentsh report`. All text is escaped.

use std::collections::BTreeSet;
use std::fmt::Write;

use agentsh_base::dollars;
use agentsh_base::remedy::shown;

use crate::escape::line;
use crate::shown_time;
use crate::summary::{AdvisoryRow, Connections, PORTS_UNKNOWN, RefusedConnection, Summary};
use crate::summary_lines::{
    add_to_group, bundle, command, count, destinations, flow, mismatch, owner, refusal,
};
use crate::types::{ServerId, exit_status};
use crate::words::{Action, ExitCause};

/// Lists in the whole text stop here and say how much more there is.
const LIST_LINES: usize = 50;

impl Summary {
    /// The whole report as titles and their lines, escaped for a terminal. Sections without lines are left out, but for
    /// those whose emptiness says something.
    #[must_use]
    pub fn sections(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut sections =
            vec![("session", self.head()), ("ran", self.process_lines()), ("calls", self.calls())];
        sections.push(("organisation's policy", self.bundles.values().map(bundle).collect()));
        sections.push(("advisories", self.advisories()));
        let refused = self.refusals().into_iter().chain(self.refused_connections());
        let refused = refused.chain(self.refused_inside()).chain(self.withheld_lines()).collect();
        sections.push(("refused", refused));
        let found = self.by_severity().map(|found| format!("{found}: {}", self.detections()));
        sections.push(("detections", found.into_iter().collect()));
        sections.push(("data", self.flow_lines()));
        sections.push(("model's answers", self.answers()));
        sections.push(("connections", self.connections()));
        sections.push(("not enforced", self.not_judged()));
        sections.push(("rejected messages", self.rejections()));
        sections.push(("changed programs", self.mismatches.values().map(mismatch).collect()));
        sections.push(("crashes and timeouts", self.failures()));
        sections.push(("calls that reached no server", self.undelivered()));
        sections.push(("environment not passed on", self.stripped_lines()));
        sections.retain(|(title, lines)| {
            !lines.is_empty() || matches!(*title, "calls" | "refused" | "not enforced")
        });
        sections
    }

    /// What the sections do not show.
    #[must_use]
    pub fn left_out(&self) -> Vec<String> {
        let unknown = (self.unknown_events > 0).then(|| {
            format!("{} events were written by another version and are not counted here", self.unknown_events)
        });
        let lost =
            (self.not_listed > 0).then(|| format!("{} more entries are not in these lists", self.not_listed));
        unknown.into_iter().chain(lost).collect()
    }

    /// The whole report, lines of at most `width` columns (at least 40).
    #[must_use]
    pub fn render_text(&self, width: usize) -> String {
        let mut text = String::new();
        for (title, lines) in self.sections() {
            let _ = writeln!(text, "{title}");
            push_lines(&mut text, &lines, width.max(40), LIST_LINES);
        }
        for line in self.left_out() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn head(&self) -> Vec<String> {
        let shown =
            |text: &Option<String>| text.as_deref().map_or("unknown".into(), |text| line(text).into_owned());
        let mut lines = vec![format!("id         {}", self.session)];
        // The arguments of other verbs are their own options.
        let dashes = if matches!(self.verb.as_deref(), Some("run" | "mcp run")) { "-- " } else { "" };
        lines.push(format!("command    agentsh {} {dashes}{}", shown(&self.verb), command(&self.agent)));
        lines.push(format!("project    {}", shown(&self.project)));
        lines.push(format!("policy     {}", shown(&self.policy)));
        let time = |text: &Option<String>| text.as_deref().map_or("unknown".into(), shown_time);
        lines.push(format!("started    {}", time(&self.started_at)));
        match (self.exit_code, self.duration_ms) {
            (Some(code), Some(duration)) => {
                lines.push(format!("ended      exit status {} after {duration} ms", exit_status(code)));
            }
            _ => lines.push(format!(
                "ended      no: still running, or killed (last event {})",
                time(&self.last_at)
            )),
        }
        lines.push(format!("recorded   {} by agentsh {}", count(self.events, "event"), shown(&self.version)));
        lines
    }

    fn process_lines(&self) -> Vec<String> {
        let lines = self.processes.values().map(|process| {
            let open = if self.state == "ended" { "ended with the session" } else { "running or killed" };
            let exit = process
                .last_exit_code
                .map_or(open.to_owned(), |code| format!("exit status {}", exit_status(code)));
            let cause = process.last_cause.filter(|cause| *cause != ExitCause::Exited);
            let cause = cause.map_or(String::new(), |cause| format!(" ({cause})"));
            format!(
                "{}: {} {}, {}, {exit}{cause}",
                owner(process.server_id.as_ref()),
                line(&process.program),
                line(&process.hash),
                count(process.starts, "start"),
            )
        });
        lines.collect()
    }

    fn calls(&self) -> Vec<String> {
        let lines = self.tools.values().map(|tool| {
            // Every one of them was allowed or alerted first.
            let reached = (tool.allowed + tool.alerted).saturating_sub(tool.undelivered);
            let alerted = tool.alerted.min(reached);
            let undelivered = match tool.undelivered {
                0 => String::new(),
                calls => format!(", {calls} did not reach the server"),
            };
            format!(
                "{}{}: {} allowed, {alerted} alerted, {} refused{undelivered}",
                match self.is_own(&tool.server_id) {
                    true => "the proxy's own ".to_owned(),
                    false => format!("{}/", line(&tool.server_id.0)),
                },
                line(&tool.tool_name),
                reached - alerted,
                tool.blocked
            )
        });
        lines.collect()
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        self.refused.values().map(refusal).collect()
    }

    /// Like [`Self::refused_connections`], without remedies: at the end of a run one block has them all.
    pub(super) fn refused_connections_short(&self) -> Vec<String> {
        let mut refused: Vec<RefusedConnection> = Vec::new();
        // The report has those of the agent itself, too.
        for found in self.refused_connections.values().filter(|found| !found.is_background()) {
            let host = found.shown_host();
            let is_it = |other: &&mut RefusedConnection| {
                host != found.host
                    && other.host == host
                    && (&other.server_id, other.port) == (&found.server_id, found.port)
            };
            match refused.iter_mut().find(is_it) {
                Some(other) => other.count = other.count.max(found.count),
                None => refused.push(RefusedConnection { host: host.to_owned(), ..found.clone() }),
            }
        }
        // One line for everything that was refused to one sandbox for the same reason.
        let mut groups: Vec<((String, String), Vec<&RefusedConnection>)> = Vec::new();
        for found in &refused {
            let reason = line(&found.reason).replace('-', " ");
            let why = match line(&found.detail) {
                detail if detail.is_empty() => reason,
                // The detail repeats the reason.
                detail if reason.starts_with("approval ") || detail.ends_with(&reason) => detail.into_owned(),
                detail => format!("{reason}: {detail}"),
            };
            let why = format!("{why}, by {}", line(&found.rule.to_string()));
            add_to_group(&mut groups, (owner(found.server_id.as_ref()), why), found);
        }
        let lines = groups.into_iter().map(|((who, why), group)| {
            let times = match group.as_slice() {
                [one] if one.count > 1 => format!(" {}x", one.count),
                _ => String::new(),
            };
            let to = destinations(group.iter().map(|found| (found.host.as_str(), found.port)));
            format!("refused{times}: {who} -> {to} ({why})")
        });
        lines.collect()
    }

    /// Destinations that were allowed and never reached, if the program failed: that may be why.
    pub(super) fn failed_connections_short(&self) -> Vec<String> {
        if self.exit_code.is_none_or(|code| code == 0) {
            return Vec::new();
        }
        let mut groups: Vec<((String, String), Vec<&Connections>)> = Vec::new();
        for found in self.connections.values().filter(|found| found.failed > 0 && found.closed == 0) {
            let key = (owner(found.server_id.as_ref()), line(&found.detail).into_owned());
            add_to_group(&mut groups, key, found);
        }
        let lines = groups.into_iter().map(|((who, why), group)| {
            let to = destinations(group.iter().map(|found| (found.host.as_str(), found.port)));
            format!("allowed, but not reached: {who} -> {to} ({why})")
        });
        lines.collect()
    }

    pub(super) fn refused_connections(&self) -> Vec<String> {
        let lines = self.refused_connections.values().map(|found| {
            let port = if found.port == 0 { String::new() } else { format!(":{}", found.port) };
            let times = if found.count > 1 { format!(" {} times", found.count) } else { String::new() };
            let detail =
                if found.detail.is_empty() { String::new() } else { format!(" ({})", line(&found.detail)) };
            let rule = found.rule.to_string();
            let ports = if found.port == 0 { PORTS_UNKNOWN } else { "" };
            let change = found.change.as_deref();
            let change = change
                .map_or(String::new(), |change| format!("; to allow it: {}{ports}", line(&shown(change))));
            format!(
                "{} to {}{port}{times}: {}{detail}, by {}{change}",
                owner(found.server_id.as_ref()),
                line(&found.host),
                line(&found.reason),
                line(&rule),
            )
        });
        lines.collect()
    }

    /// Files and system calls, and changes of guarded files.
    fn refused_inside(&self) -> Vec<String> {
        let lines = self.refused_files.values().chain(self.refused_calls.values()).map(|found| {
            let change = found.change.as_deref();
            let change =
                change.map_or(String::new(), |change| format!("; to allow it: {}", line(&shown(change))));
            let detail =
                if found.detail.is_empty() { String::new() } else { format!(" ({})", line(&found.detail)) };
            format!(
                "'{}' of {}: {}{detail}, by {}{change}",
                line(&found.subject),
                owner(found.server_id.as_ref()),
                line(&found.access),
                line(&found.rule.to_string()),
            )
        });
        lines.chain(self.kept_files.values().map(|detail| line(detail).into_owned())).collect()
    }

    /// Findings in servers' messages: `3 detections (1 critical, 2 high)`.
    pub(super) fn by_severity(&self) -> Option<String> {
        let each: Vec<String> =
            self.detections.iter().map(|(severity, count)| format!("{count} {}", severity.0)).collect();
        let all = self.detections.values().sum();
        (all > 0).then(|| format!("{} ({})", count(all, "detection"), each.join(", ")))
    }

    /// Messages that were not checked, or not completely.
    fn not_judged(&self) -> Vec<String> {
        let forgotten = self.forgotten.values().map(|found| {
            format!(
                "copies of results of {} may be missed ({}, {}): {}",
                found.server_id.as_ref().map_or_else(|| "several servers".to_owned(), |id| owner(Some(id))),
                found.reason,
                count(found.results, "result"),
                line(&found.detail)
            )
        });
        self.layers()
            .into_iter()
            .chain(self.not_classified().into_iter().map(|text| format!("not classified: {text}")))
            .chain(forgotten)
            .collect()
    }

    /// The flows, drawn as arrows, each with its position.
    fn flow_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.flows.values().map(flow).collect();
        if !lines.is_empty() {
            lines.push(format!("each of them: {}", self.detections()));
        }
        lines
    }

    pub(super) fn detections(&self) -> String {
        format!("agentsh mcp detections --session {}", self.session)
    }

    fn connections(&self) -> Vec<String> {
        let lines = self.connections.values().map(|found| {
            let failed = match found.failed {
                0 => String::new(),
                failed => format!(", {failed} failed ({})", line(&found.detail)),
            };
            format!(
                "{} to {}:{} ({}): {}, {} bytes sent, {} received{failed}, by {}",
                owner(found.server_id.as_ref()),
                line(&found.host),
                found.port,
                line(&found.protocol),
                count(found.closed, "connection"),
                found.bytes_sent,
                found.bytes_received,
                line(&found.rule.to_string()),
            )
        });
        lines.collect()
    }

    /// The worst first.
    pub(super) fn advisories(&self) -> Vec<String> {
        let mut all: Vec<&AdvisoryRow> = self.advisories.values().collect();
        all.sort_by_key(|found| std::cmp::Reverse(found.severity));
        let lines = all.into_iter().map(|found| {
            let fixed = found.fixed.as_deref().map(|fixed| format!("; fixed in {}", line(fixed)));
            let refused = match found.action {
                Action::Block => format!("; not started: refused by {}", found.rule),
                _ => String::new(),
            };
            format!(
                "{}: {} {} ({}) for '{}': {}{}{refused}",
                found.severity,
                line(&found.id),
                line(&found.subject),
                found.kind,
                line(&found.server_id.0),
                line(&found.summary),
                fixed.unwrap_or_default(),
            )
        });
        lines.collect()
    }

    pub(super) fn not_classified(&self) -> Vec<String> {
        let lines = self.unclassified.values().map(|found| {
            let became = if found.action == Action::Block { "refused" } else { "passed" };
            let texts = count(found.count, "message");
            format!("{texts} of '{}' {became}: {}", line(&found.server_id.0), line(&found.detail))
        });
        lines.collect()
    }

    /// Models with their tokens, and the cost if the price is known.
    fn answers(&self) -> Vec<String> {
        let lines = self.models.values().map(|model| {
            let cost = match (model.cost_micro_usd, model.unpriced) {
                (_, unpriced) if unpriced == model.count => "no price is known".to_owned(),
                (cost, 0) => dollars(cost),
                (cost, unpriced) => {
                    format!("{} and {} without a price", dollars(cost), count(unpriced, "answer"))
                }
            };
            let name =
                if model.model.is_empty() { "a model that was not named".into() } else { line(&model.model) };
            let answers = count(model.count, "answer");
            format!(
                "{name}: {answers}, {} tokens in, {} out, {cost}",
                model.input_tokens, model.output_tokens
            )
        });
        lines.collect()
    }

    /// Messages to and from the model that were withheld.
    pub(super) fn withheld_lines(&self) -> Vec<String> {
        let lines = self.withheld.values().map(|found| {
            let times = if found.count > 1 { format!(" {} times", found.count) } else { String::new() };
            format!("request or answer of the model{times}: {}", line(&found.reason))
        });
        lines.collect()
    }

    fn layers(&self) -> Vec<String> {
        let lines = self.not_enforced.values().map(|layer| {
            format!(
                "{} of {}: {}; requested: {}; enforced: {}; reason: {}",
                line(&layer.layer),
                owner(layer.server_id.as_ref()),
                layer.state,
                line(&layer.asked),
                line(&layer.got),
                line(&layer.why)
            )
        });
        lines.collect()
    }

    pub(super) fn rejections(&self) -> Vec<String> {
        let lines = self.rejected_messages.values().map(|found| {
            let each = found.details.iter().map(|(detail, times)| match times {
                times if *times == 1 || *times == found.count => line(detail).into_owned(),
                times => format!("{times} times {}", line(detail)),
            });
            let mut details: Vec<String> = each.collect();
            let more = found.count.saturating_sub(found.details.values().sum());
            if more > 0 {
                details.push(format!("and {more} more"));
            }
            let of = match self.is_own(&found.server_id) {
                true => String::new(),
                false => format!(" of {}", line(&found.server_id.0)),
            };
            format!(
                "{} from the {}{of}: {} ({})",
                count(found.count, "message"),
                found.from,
                line(&found.reason),
                details.join("; ")
            )
        });
        lines.collect()
    }

    pub(super) fn failures(&self) -> Vec<String> {
        let crashes = self.crashes.values().map(|crash| {
            format!(
                "{} crashed {} (last exit status {}, {} unanswered)",
                line(&crash.server_id.0),
                count(crash.count, "time"),
                exit_status(crash.last_exit_code),
                count(crash.pending_calls as u64, "call")
            )
        });
        let timeouts = self.timeouts.values().map(|late| {
            format!(
                "{} did not answer {} {}",
                line(&late.server_id.0),
                line(&late.method),
                count(late.count, "time")
            )
        });
        crashes.chain(timeouts).collect()
    }

    pub(super) fn undelivered(&self) -> Vec<String> {
        let lines = self.undelivered.values().map(|lost| {
            format!(
                "{} of {} did not reach it: {}",
                count(lost.calls, "call"),
                line(&lost.server_id.0),
                line(&lost.detail)
            )
        });
        lines.collect()
    }

    /// One line for all servers with the same missing variables.
    fn stripped_lines(&self) -> Vec<String> {
        let mut alike: Vec<(Vec<String>, &BTreeSet<String>)> = Vec::new();
        for entry in self.env_stripped.values() {
            let who = owner(entry.server_id.as_ref());
            match alike.iter_mut().find(|(_, names)| **names == entry.names) {
                Some((others, _)) => others.push(who),
                None => alike.push((vec![who], &entry.names)),
            }
        }
        let shown = alike.into_iter().map(|(who, names)| {
            // A shell sets these by itself, and they are not missed.
            let names =
                names.iter().filter(|name| !matches!(name.as_str(), "PWD" | "OLDPWD" | "SHLVL" | "_"));
            (who.join(", "), names.map(|name| line(name).into_owned()).collect::<Vec<_>>())
        });
        shown
            .filter(|(_, names)| !names.is_empty())
            .map(|(who, names)| format!("{who}: {}", names.join(" ")))
            .collect()
    }

    /// The id for the proxy's own actions, which belong to no server.
    fn is_own(&self, server: &ServerId) -> bool {
        self.verb.as_deref() == Some("proxy") && server.0 == "canary"
    }
}

/// Indented, wrapped at `width`, continuation lines indented further.
fn push_lines(text: &mut String, lines: &[String], width: usize, most: usize) {
    if lines.is_empty() {
        text.push_str("  nothing\n");
    }
    for whole in lines.iter().take(most) {
        let mut indent = 2;
        let mut column = 0;
        for word in whole.split(' ') {
            let length = word.chars().count();
            if column > 0 && indent + column + 1 + length > width {
                text.push('\n');
                (indent, column) = (6, 0);
            }
            if column == 0 {
                text.extend(std::iter::repeat_n(' ', indent));
            } else {
                text.push(' ');
                column += 1;
            }
            text.push_str(word);
            column += length;
        }
        text.push('\n');
    }
    if lines.len() > most {
        let _ = writeln!(text, "  … and {} more: --format json lists them all", lines.len() - most);
    }
}

#[cfg(test)]
#[path = "summary_text_tests.rs"]
mod tests;
