//! A summary in a few lines, for the end of a run.

use std::collections::BTreeSet;

use crate::escape::{line, shorten};
use crate::summary::{Mismatch, RefusedConnection, Summary};
use crate::summary_lines::{arrow, bundle, count, missing_layer, owner};
use crate::types::ServerId;
use crate::words::{Action, BundleState};

/// Maximum number of lines of [`Summary::render_short`]; a terminal may wrap them.
pub(super) const SHORT_LINES: usize = 5;

impl Summary {
    /// For the end of a run: at most 5 lines. What ran, what was refused and by which rule, how to allow it (`commands`), and, as
    /// far as `told` does not have it already, what was not enforced. `agentsh report` has the rest.
    #[must_use]
    pub fn render_short(&self, told: &BTreeSet<String>, commands: &[String]) -> String {
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
        // A program asks for one name again and again, and opens one file for several purposes.
        let hosts_of = |is_background: bool| -> BTreeSet<&str> {
            let found = self.refused_connections.values();
            let found = found.filter(|found| found.is_background() == is_background);
            found.map(RefusedConnection::shown_host).collect()
        };
        let (hosts, background) = (hosts_of(false), hosts_of(true));
        let files = self.refused_files.values().map(|found| &found.subject).chain(self.kept_files.keys());
        let files: BTreeSet<_> = files.collect();
        let exchanges: u64 = self.withheld.values().map(|found| found.count).sum();
        let lost = self.undelivered.values().map(|lost| lost.calls).sum();
        let some = |number: u64, text: String| (number > 0).then_some(text);
        let number = |length: usize| length as u64;
        let is_nothing = refused + exchanges == 0
            && hosts.is_empty()
            && background.is_empty()
            && files.is_empty()
            && self.refused_calls.is_empty();
        let parts = [
            some(number(servers.len()), format!("{}{list}", count(number(servers.len()), "server"))),
            some(number(servers.len()) + calls, count(calls, "tool call")),
            some(refused, format!("{refused} refused")),
            some(number(hosts.len()), format!("{} refused", count(number(hosts.len()), "host"))),
            some(number(background.len()), {
                format!("{} refused", count(number(background.len()), "telemetry or update host"))
            }),
            some(number(files.len()), format!("{} refused", count(number(files.len()), "file"))),
            some(number(self.refused_calls.values().len()), {
                format!("{} refused", count(number(self.refused_calls.values().len()), "system call"))
            }),
            is_nothing.then(|| "nothing refused".to_owned()),
            some(exchanges, format!("{} withheld", count(exchanges, "model exchange"))),
            some(lost, format!("{lost} reached no server")),
            self.by_severity(),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let mut lines = vec![format!("agentsh: session {}: {}", self.session, parts.join(", "))];
        let mut facts: Vec<String> = Vec::new();
        facts.extend(self.refusals().into_iter().map(|text| format!("refused: {text}")));
        facts.extend(self.withheld_lines().into_iter().map(|text| format!("withheld: {text}")));
        facts.extend(self.refused_connections_short());
        facts.extend(self.failed_connections_short());
        facts.extend(self.mismatches.values().map(changed_program));
        facts.extend(self.advisories().into_iter().map(|text| format!("advisory: {text}")));
        let unsound = self.bundles.values().filter(|bundle| bundle.state != BundleState::InForce);
        facts.extend(unsound.map(|found| format!("policy of the organisation: {}", bundle(found))));
        facts.extend(self.flows_short());
        facts.extend(self.not_classified().into_iter().map(|text| format!("not classified: {text}")));
        facts.extend(self.layers_short(told));
        facts.extend(self.rejections().into_iter().map(|text| format!("rejected: {text}")));
        facts.extend(self.failures());
        facts.extend(self.undelivered());
        let allow = self.to_allow(commands);
        let room = SHORT_LINES - lines.len() - allow.len();
        let is_all = facts.len() <= room;
        let left_over = if is_all { 0 } else { facts.len() + 1 - room };
        facts.truncate(facts.len() - left_over);
        if left_over > 0 {
            facts.push(format!("… and {left_over} more: agentsh report {}", self.session));
        }
        lines.extend(facts.into_iter().chain(allow).map(|text| format!("  {}", shorten(&text, 300))));
        lines.join("\n") + "\n"
    }

    /// The commands that allow what was refused.
    fn to_allow(&self, commands: &[String]) -> Vec<String> {
        let line = |command: &String| format!("to allow: {command}");
        match commands {
            [first, _, _, ..] => {
                vec![line(first), format!("to allow the rest: agentsh report {}", self.session)]
            }
            few => few.iter().map(line).collect(),
        }
    }

    /// One line for all of them.
    fn flows_short(&self) -> Option<String> {
        const MAX_NAMES: usize = 3;
        let mut named: Vec<String> = self.flows.values().take(MAX_NAMES).map(arrow).collect();
        if self.flows.values().len() > MAX_NAMES {
            named.push(format!("{} more", self.flows.values().len() - MAX_NAMES));
        }
        (!named.is_empty()).then(|| format!("data: {}; {}", named.join(", "), self.detections()))
    }

    /// The layers that are weaker than requested, in words that are the same for every sandbox and run on one machine.
    #[must_use]
    pub fn weakened_layers(&self) -> BTreeSet<String> {
        self.not_enforced.values().map(missing_layer).collect()
    }

    /// One line for all sandboxes: each missing layer, and who lacks it where that are not all.
    fn layers_short(&self, told: &BTreeSet<String>) -> Option<String> {
        let mut of_layers: Vec<(String, Vec<String>)> = Vec::new();
        let mut all: Vec<String> = Vec::new();
        for layer in self.not_enforced.values().filter(|layer| !told.contains(&missing_layer(layer))) {
            let (lacks, who) = (missing_layer(layer), owner(layer.server_id.as_ref()));
            if !all.contains(&who) {
                all.push(who.clone());
            }
            match of_layers.iter_mut().find(|(known, _)| *known == lacks) {
                Some((_, owners)) if owners.contains(&who) => {}
                Some((_, owners)) => owners.push(who),
                None => of_layers.push((lacks, vec![who])),
            }
        }
        let is_shared = of_layers.iter().all(|(_, owners)| owners.len() == all.len());
        let line = |(lacks, owners): (String, Vec<String>)| match is_shared {
            true => lacks,
            false => format!("{lacks} for {}", owners.join(", ")),
        };
        let lines: Vec<String> = of_layers.into_iter().map(line).collect();
        let who = if is_shared { format!(" for {}", all.join(", ")) } else { String::new() };
        let between = if is_shared { ", " } else { "; " };
        let text = format!("not fully enforced{who}: {}; `agentsh report` says why", lines.join(between));
        (!lines.is_empty()).then_some(text)
    }
}

/// The files and hashes are in the report and the difference.
fn changed_program(found: &Mismatch) -> String {
    let server = line(&found.server_id.0);
    format!("changed program: {server} ({}); `agentsh mcp pins diff --server {server}`", found.action)
}
