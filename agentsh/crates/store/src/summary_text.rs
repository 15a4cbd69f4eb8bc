//! A summary as text: whole for `agentsh report`, short for the end of a run. Everything in it is escaped.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::escape::{line, shorten};
use super::record::shown_time;
use super::summary::{Bundle, Flowed, Layer, Mismatch, PORTS_UNKNOWN, Refusal, Summary, Warned};
use crate::types::{ServerId, exit_status};
use crate::words::{Action, BundleState, ExitCause};

/// Most lines of [`Summary::render_short`].
const SHORT_LINES: usize = 12;

/// Lists in the whole text stop here and say how much more there is.
const LIST_LINES: usize = 50;

impl Summary {
    /// The whole report as titles and their lines, escaped for a terminal. Sections without lines are left out, but for
    /// those whose emptiness says something.
    #[must_use]
    pub fn sections(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut sections = vec![("session", self.head()), ("ran", self.ran()), ("calls", self.calls())];
        sections.push(("organisation's policy", self.bundles.values().map(bundle).collect()));
        sections.push(("advisories", self.advisories()));
        let refused = self.refusals().into_iter().chain(self.refused_connections());
        let refused = refused.chain(self.refused_inside()).collect();
        sections.push(("refused", refused));
        sections.push(("data", self.flowed()));
        sections.push(("model's answers", self.answers()));
        sections.push(("connections", self.connections()));
        sections.push(("not enforced", self.layers()));
        sections.push(("not classified", self.not_classified()));
        sections.push(("rejected messages", self.rejections()));
        sections.push(("changed programs", self.mismatches.values().map(mismatch).collect()));
        sections.push(("crashes and timeouts", self.failures()));
        sections.push(("calls that reached no server", self.undelivered()));
        sections.push(("environment not passed on", self.stripped()));
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
        let lost = (self.not_listed > 0)
            .then(|| format!("{} more entries found no room in these lists", self.not_listed));
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

    /// For the end of a run: at most 12 lines. What ran, what was refused and by which rule, and, as far as `told` does
    /// not have it already, what was not enforced.
    #[must_use]
    pub fn render_short(&self, told: &BTreeSet<String>) -> String {
        let (calls, blocked) = self.tools.values().fold((0, 0), |(calls, blocked), tool| {
            (calls + tool.allowed + tool.alerted + tool.blocked, blocked + tool.blocked)
        });
        let mut servers: Vec<&ServerId> =
            self.processes.values().filter_map(|process| process.server_id.as_ref()).collect();
        servers.dedup();
        let named: Vec<_> = servers.iter().take(5).map(|server| line(&server.0)).collect();
        let more = if servers.len() > named.len() { ", …" } else { "" };
        let list = if named.is_empty() { String::new() } else { format!(" ({}{more})", named.join(", ")) };
        let servers_refused = || self.refused.values().filter(|entry| entry.tool_name.is_none());
        // A program that changed is refused before anything else is judged of its server.
        let changed = self.mismatches.values().filter(|found| {
            found.action == Action::Block && servers_refused().all(|entry| entry.server_id != found.server_id)
        });
        let refused =
            blocked + servers_refused().map(|entry| entry.count).sum::<u64>() + changed.count() as u64;
        let mut lines = vec![format!(
            "agentsh: session {}: {}{list}, {}, {refused} refused{}{}{}",
            self.session,
            count(servers.len() as u64, "server"),
            count(calls, "tool call"),
            // A program asks for one name again and again.
            match self.refused_connections.values().map(|found| &found.host).collect::<BTreeSet<_>>().len() {
                0 => String::new(),
                hosts => format!(", {} refused", count(hosts as u64, "host")),
            },
            match self.refused_files.values().map(|found| &found.subject).collect::<BTreeSet<_>>().len() {
                0 => String::new(),
                files => format!(", {} refused", count(files as u64, "file")),
            },
            match self.undelivered.values().map(|lost| lost.calls).sum::<u64>() {
                0 => String::new(),
                lost => format!(", {lost} reached no server"),
            },
        )];
        let mut facts: Vec<String> = Vec::new();
        facts.extend(self.refusals().into_iter().map(|text| format!("refused: {text}")));
        facts.extend(self.refused_connections().into_iter().map(|text| format!("refused: {text}")));
        facts.extend(self.mismatches.values().map(|found| format!("changed program: {}", mismatch(found))));
        facts.extend(self.advisories().into_iter().map(|text| format!("advisory: {text}")));
        let unsound = self.bundles.values().filter(|bundle| bundle.state != BundleState::InForce);
        facts.extend(unsound.map(|found| format!("policy of the organisation: {}", bundle(found))));
        facts.extend(self.flows_short());
        facts.extend(self.not_classified().into_iter().map(|text| format!("not classified: {text}")));
        facts.extend(self.layers_short(told));
        facts.extend(self.rejections().into_iter().map(|text| format!("rejected: {text}")));
        facts.extend(self.failures());
        facts.extend(self.undelivered());
        let room = SHORT_LINES - 2;
        let left_over = facts.len().saturating_sub(room);
        lines.extend(facts.into_iter().take(room).map(|text| format!("  {}", shorten(&text, 300))));
        if left_over > 0 {
            lines.push(format!("  … and {left_over} more: agentsh report {}", self.session));
        }
        lines.join("\n") + "\n"
    }

    fn head(&self) -> Vec<String> {
        let shown =
            |text: &Option<String>| text.as_deref().map_or("unknown".into(), |text| line(text).into_owned());
        let mut lines = vec![format!("id         {}", self.session)];
        // What the others were given are options of their own.
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
                "ended      no: it runs, or it was killed (last event {})",
                time(&self.last_at)
            )),
        }
        lines.push(format!("recorded   {} by agentsh {}", count(self.events, "event"), shown(&self.version)));
        lines
    }

    fn ran(&self) -> Vec<String> {
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

    fn refusals(&self) -> Vec<String> {
        self.refused.values().map(refusal).collect()
    }

    fn refused_connections(&self) -> Vec<String> {
        let lines = self.refused_connections.values().map(|found| {
            let port = if found.port == 0 { String::new() } else { format!(":{}", found.port) };
            let times = if found.count > 1 { format!(" {} times", found.count) } else { String::new() };
            let detail =
                if found.detail.is_empty() { String::new() } else { format!(" ({})", line(&found.detail)) };
            let rule = found.rule.to_string();
            let ports = if found.port == 0 { PORTS_UNKNOWN } else { "" };
            let change = found.change.as_deref();
            let change =
                change.map_or(String::new(), |change| format!("; to allow it: {}{ports}", line(change)));
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

    /// Files and system calls.
    fn refused_inside(&self) -> Vec<String> {
        let lines = self.refused_files.values().chain(self.refused_calls.values()).map(|found| {
            let change = found.change.as_deref();
            let change = change.map_or(String::new(), |change| format!("; to allow it: {}", line(change)));
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
        lines.collect()
    }

    /// From where to where, drawn as arrows; and where each of them stands.
    fn flowed(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.flows.values().map(flow).collect();
        if !lines.is_empty() {
            lines.push(format!("each of them: {}", self.detections()));
        }
        lines
    }

    fn detections(&self) -> String {
        format!("agentsh mcp detections --session {}", self.session)
    }

    /// One line for all of them.
    fn flows_short(&self) -> Option<String> {
        const NAMED: usize = 3;
        let mut named: Vec<String> = self.flows.values().take(NAMED).map(arrow).collect();
        if self.flows.values().len() > NAMED {
            named.push(format!("{} more", self.flows.values().len() - NAMED));
        }
        (!named.is_empty()).then(|| format!("data: {}; {}", named.join(", "), self.detections()))
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
    fn advisories(&self) -> Vec<String> {
        let mut all: Vec<&Warned> = self.advisories.values().collect();
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

    fn not_classified(&self) -> Vec<String> {
        let lines = self.unclassified.values().map(|found| {
            let became = if found.action == Action::Block { "refused" } else { "passed" };
            let texts = count(found.count, "message");
            format!("{texts} of '{}' {became}: {}", line(&found.server_id.0), line(&found.detail))
        });
        lines.collect()
    }

    /// What models answered, in tokens as they count them, and what it cost where a price is known.
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

    fn layers(&self) -> Vec<String> {
        let lines = self.not_enforced.values().map(|layer| {
            format!(
                "{} of {}: {}, asked {}, got {}: {}",
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

    /// What was less than asked for, as words that are the same for every sandbox and run on one machine.
    #[must_use]
    pub fn lacking(&self) -> BTreeSet<String> {
        self.not_enforced.values().map(lack).collect()
    }

    /// One line for all sandboxes that lack the same.
    fn layers_short(&self, told: &BTreeSet<String>) -> Vec<String> {
        let mut of_sandboxes: Vec<(String, Vec<&Layer>)> = Vec::new();
        for layer in self.not_enforced.values().filter(|layer| !told.contains(&lack(layer))) {
            let who = owner(layer.server_id.as_ref());
            match of_sandboxes.iter_mut().find(|(known, _)| *known == who) {
                Some((_, layers)) => layers.push(layer),
                None => of_sandboxes.push((who, vec![layer])),
            }
        }
        let mut lines: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for (who, layers) in of_sandboxes {
            let lacks: Vec<String> = layers.iter().map(|layer| lack(layer)).collect();
            match lines.iter_mut().find(|(_, known)| *known == lacks) {
                Some((others, _)) => others.push(who),
                None => lines.push((vec![who], lacks)),
            }
        }
        let line = |(who, lacks): (Vec<String>, Vec<String>)| {
            // A weaker tier is no lack of the machine: it was asked for.
            let why = match lacks.iter().all(|lack| lack.starts_with("tier ")) {
                true => "`agentsh report` says what that leaves out",
                false => "`agentsh doctor` says why",
            };
            format!("not enforced: {} (for {}); {why}", lacks.join(", "), who.join(", "))
        };
        lines.into_iter().map(line).collect()
    }

    fn rejections(&self) -> Vec<String> {
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

    fn failures(&self) -> Vec<String> {
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

    fn undelivered(&self) -> Vec<String> {
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

    /// One line for all that lack the same.
    fn stripped(&self) -> Vec<String> {
        let mut alike: Vec<(Vec<String>, &BTreeSet<String>)> = Vec::new();
        for entry in self.env_stripped.values() {
            let who = owner(entry.server_id.as_ref());
            match alike.iter_mut().find(|(_, names)| **names == entry.names) {
                Some((others, _)) => others.push(who),
                None => alike.push((vec![who], &entry.names)),
            }
        }
        let shown = alike.into_iter().map(|(who, names)| {
            // A shell sets these by itself, and nobody misses them.
            let names =
                names.iter().filter(|name| !matches!(name.as_str(), "PWD" | "OLDPWD" | "SHLVL" | "_"));
            (who.join(", "), names.map(|name| line(name).into_owned()).collect::<Vec<_>>())
        });
        shown
            .filter(|(_, names)| !names.is_empty())
            .map(|(who, names)| format!("{who}: {}", names.join(" ")))
            .collect()
    }

    /// The id of what the proxy itself does, which is no server of anybody.
    fn is_own(&self, server: &ServerId) -> bool {
        self.verb.as_deref() == Some("proxy") && server.0 == "canary"
    }
}

/// A layer, and what there is instead.
fn lack(layer: &Layer) -> String {
    match layer.got.as_str() {
        "" => format!("{} {}", line(&layer.layer), layer.state),
        got => format!("{} {}: {}", line(&layer.layer), layer.state, line(got)),
    }
}

fn refusal(refusal: &Refusal) -> String {
    let what = match &refusal.tool_name {
        Some(tool) => format!("{}/{}", line(&refusal.server_id.0), line(tool)),
        None => format!("server {}", line(&refusal.server_id.0)),
    };
    let times = if refusal.count > 1 { format!(" {} times", refusal.count) } else { String::new() };
    let detail = refusal.detail.as_deref().filter(|detail| !detail.is_empty());
    let detail = detail.map_or(String::new(), |detail| format!(" ({})", line(detail)));
    let rule = refusal.rule.to_string();
    format!("{what}{times}: {}{detail}, by {}", line(&refusal.reason), line(&rule))
}

/// The changed files first: a long text is cut at its end.
fn bundle(found: &Bundle) -> String {
    let version = found.version.map(|version| format!(" version {version}")).unwrap_or_default();
    let detail = match found.detail.as_str() {
        "" => String::new(),
        detail => format!(": {}", line(detail)),
    };
    format!("'{}'{version}: {}{detail}", line(&found.name), found.state)
}

/// Millionths of a dollar.
fn dollars(micro: u64) -> String {
    format!("${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100)
}

fn mismatch(found: &Mismatch) -> String {
    let files: Vec<_> = found.changed.iter().map(|path| line(path)).collect();
    let files = if files.is_empty() { line(&found.binary_path).into_owned() } else { files.join(", ") };
    format!(
        "{}: {files} changed ({}): expected {}, found {}, program {}",
        line(&found.server_id.0),
        found.action,
        line(&found.expected_hash),
        line(&found.actual_hash),
        line(&found.binary_path),
    )
}

fn owner(server: Option<&ServerId>) -> String {
    server.map_or("the agent".to_owned(), |server| line(&server.0).into_owned())
}

/// As a shell reads it; what nobody could type stays escaped.
fn command(words: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,~".contains(c);
    let quoted = |word: &String| {
        let shown = line(word);
        if !shown.is_empty() && shown.chars().all(is_plain) {
            return shown.into_owned();
        }
        format!("'{}'", shown.replace('\'', "'\\''"))
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
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

/// `files -> mail`, `mail -> host.example`.
fn arrow(found: &Flowed) -> String {
    match (&found.from, &found.host) {
        (Some(from), _) => format!("{} -> {}", line(&from.0), line(&found.to.0)),
        (None, Some(host)) => format!("{} -> {}", line(&found.to.0), line(host)),
        (None, None) => format!("{} -> somewhere", line(&found.to.0)),
    }
}

fn flow(found: &Flowed) -> String {
    let mut what = Vec::new();
    match found.copies {
        0 => {}
        1 => what.push("1 copy".to_owned()),
        copies => what.push(format!("{copies} copies")),
    }
    if found.without_copy > 0 {
        what.push(format!("{} without a copy", count(found.without_copy, "call")));
    }
    if found.from.is_none() {
        what.push(format!(
            "{} that named a host which is not listed",
            count(found.passed + found.refused, "call")
        ));
    }
    format!("{}: {}; {} passed, {} refused", arrow(found), what.join(", "), found.passed, found.refused)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::testing::{START, events, session, verdict};

    fn summary(events: &[crate::Event]) -> Summary {
        let mut summary = Summary::new(session(1));
        events.iter().for_each(|event| summary.add(START.parse().unwrap(), event));
        summary
    }

    #[test]
    fn the_short_form_names_refusals_and_their_rules() {
        insta::assert_snapshot!("short", summary(&events()).render_short(&BTreeSet::new()));
        let nothing = summary(&[]).render_short(&BTreeSet::new());
        assert!(
            nothing.lines().count() == 1 && nothing.contains("0 servers, 0 tool calls, 0 refused"),
            "{nothing}"
        );
    }

    #[test]
    fn what_a_machine_lacks_is_told_once() {
        let lacks = |server: Option<&str>, layer: &str| crate::Event::Enforcement {
            server_id: server.map(|name| ServerId(name.to_owned())),
            layer: layer.to_owned(),
            asked: "4096 MiB together".to_owned(),
            got: "a watchdog over all".to_owned(),
            state: crate::words::LayerState::Degraded,
            why: "no memory cgroup may be made here".to_owned(),
        };
        let all = [None, Some("fs"), Some("git")];
        let events: Vec<_> =
            all.iter().flat_map(|who| [lacks(*who, "memory limit"), lacks(*who, "cpu limit")]).collect();
        let summary = summary(&events);
        let short = summary.render_short(&BTreeSet::new());
        assert_eq!(short.matches("not enforced").count(), 1, "{short}");
        assert!(short.contains("(for the agent, fs, git)"), "{short}");
        assert_eq!(summary.render_short(&summary.lacking()).lines().count(), 1);
        assert!(summary.render_text(100).contains("not enforced\n  cpu limit of the agent"));
    }

    /// A resolver asks for both kinds of address, and a program asks again.
    #[test]
    fn hosts_are_counted_and_not_questions() {
        let asked = |name: &str, count: u64| crate::Event::DnsBlocked {
            server_id: None,
            name: name.to_owned(),
            reason: "name-not-allowed".to_owned(),
            rule: crate::types::RuleRef::default_rule("network.allow"),
            query_type: "A".to_owned(),
            action: Action::Block,
            change: None,
            count,
        };
        let short = summary(&[asked("one.test", 4), asked("two.test", 1)]).render_short(&BTreeSet::new());
        assert!(short.contains("0 tool calls, 0 refused, 2 hosts refused\n"), "{short}");
    }

    #[test]
    fn a_server_whose_program_changed_counts_as_refused() {
        let mut events = events();
        events.retain(|event| matches!(event, crate::Event::McpServerBinaryMismatch { .. }));
        let short = summary(&events).render_short(&BTreeSet::new());
        assert!(events.len() == 1 && short.contains("0 tool calls, 1 refused"), "{short}");
    }

    #[test]
    fn names_without_end_do_not_grow_the_summary() {
        let hostile: Vec<_> = (0..5000)
            .map(|id| verdict(&format!("{id}\u{1b}[2J{}", "x".repeat(5000)), id, Action::Block))
            .collect();
        let summary = summary(&hostile);
        assert_eq!((summary.tools.values().len(), summary.not_listed), (500, 9000));
        let short = summary.render_short(&BTreeSet::new());
        assert!(short.lines().count() <= SHORT_LINES && short.len() < 5000, "{short}");
        let text = summary.render_text(0);
        assert!(!short.contains('\u{1b}') && !text.contains('\u{1b}') && text.len() < 200_000);
    }

    #[test]
    fn different_details_stay_apart_and_equal_lists_come_once() {
        let rejected = |detail: &str| crate::Event::McpMessageRejected {
            server_id: ServerId("canary".to_owned()),
            from: crate::words::Sender::Client,
            reason: "invalid-request".to_owned(),
            detail: detail.to_owned(),
            bytes: 1,
        };
        let filtered = |id: &str, names: &[&str]| crate::Event::McpServerEnvFiltered {
            server_id: Some(ServerId(id.to_owned())),
            stripped_vars: names.iter().map(|name| (*name).to_owned()).collect(),
            passed_count: 1,
        };
        let mut summary = summary(&[
            rejected("no version"),
            rejected("bad id"),
            rejected("no version"),
            filtered("a", &["KEY", "PWD"]),
            filtered("b", &["PWD", "KEY"]),
            filtered("c", &["OTHER"]),
            filtered("d", &["SHLVL"]),
        ]);
        let text = summary.render_text(100);
        let expected = "3 messages from the client of canary: invalid-request (bad id; 2 times no version)";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("  a, b: KEY\n  c: OTHER\n") && !text.contains("SHLVL"), "{text}");
        summary.verb = Some("proxy".to_owned());
        assert!(summary.render_text(100).contains("3 messages from the client: invalid-request"));
        for number in 0..10 {
            summary.add(START.parse().unwrap(), &rejected(&format!("{number}")));
        }
        assert!(summary.render_text(200).contains("; and 7 more)"), "{}", summary.render_text(200));
    }

    #[test]
    fn lines_are_wrapped() {
        let text = summary(&events()).render_text(60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }
}
