//! Makes the table from reports of the attacking side, the journal, and what the host saw. An attack that was not
//! reported is shown as not tried, and one that the host saw succeed as succeeded, whatever its report says.

use std::collections::BTreeMap;

use agentsh_base::words;
use agentsh_terminal::style::{BAD, GOOD, paint};
use agentsh_terminal::table;
use serde::Serialize;

use super::facts::{
    CLOCK, HOSTILE, POISON, RUG, Report, SHADOW, SPLIT, TOOL_IN_TWO_PIECES, UNLISTED, VARIABLE,
};
use crate::attempt::Try;
use agentsh_sandbox::seccomp::{Call, RULES, Verdict};
use agentsh_store::Event;
use agentsh_store::words::{Action, LayerState, Sender};

/// Every attack: its id, the attacker, and a description. All of them must appear.
pub const ATTACKS: &[(&str, &str, &str)] = &[
    ("agent", "ssh-key", "read the key in ~/.ssh"),
    ("agent", "secret-variable", "read a secret from the environment"),
    ("agent", "env-file", "read a .env file that the policy denies"),
    ("agent", "git-hook", "plant a git hook, move .git away"),
    ("agent", "supervisor", "read environment and memory of agentsh, signal it"),
    ("agent", "internet", "connect to the internet (TCP, UDP, IPv6)"),
    ("agent", "host-loopback", "connect to a service on this machine"),
    ("agent", "kernel-calls", "unshare, mount, keyctl, io_uring and others"),
    ("agent", "terminal", "type into your terminal"),
    ("agent", "fork-bomb", "start processes without end"),
    (HOSTILE, "ssh-key", "read the key in ~/.ssh"),
    (HOSTILE, "secret-variable", "read a secret from the environment"),
    (HOSTILE, "env-file", "read the project's .env file"),
    (HOSTILE, "git-hook", "plant a git hook, move .git away"),
    (HOSTILE, "project-write", "write into the project"),
    (HOSTILE, "own-program", "change its own program from inside"),
    (HOSTILE, "supervisor", "read environment and memory of agentsh, signal it"),
    (HOSTILE, "internet", "connect to the internet (TCP, UDP, IPv6)"),
    (HOSTILE, "host-loopback", "connect to a service on this machine"),
    (HOSTILE, "kernel-calls", "unshare, mount, keyctl, io_uring and others"),
    (HOSTILE, "terminal", "type into your terminal"),
    (HOSTILE, "fork-bomb", "start processes without end"),
    ("agent", "hidden-tool", "see a tool that the policy denies"),
    ("agent", "denied-tool", "call that tool anyway"),
    ("agent", "two-names", "hide its name behind another in the same message"),
    ("agent", "rate-limit", "call a tool more often than allowed"),
    (HOSTILE, "oversized-line", "send a message that is too long"),
    (HOSTILE, "duplicate-key", "send a message that two readers read differently"),
    (HOSTILE, "unasked-response", "answer a request that nobody made"),
    (HOSTILE, "rug-pull", "change a tool after it was trusted"),
    (HOSTILE, "list-twice", "describe a tool differently the second time"),
    (HOSTILE, "hidden-capability", "serve a tool that it never listed"),
    (HOSTILE, "split-payload", "give an instruction in two harmless pieces"),
    (HOSTILE, "poison", "hide an instruction in a tool's description"),
    (HOSTILE, "shadowing", "give a tool a name that looks like another's"),
    ("agent", "changed-program", "start a server whose program was changed"),
];

/// What must work.
pub const WORKS: &[(&str, &str, &str)] = &[
    ("agent", "works-tool", "call an allowed tool"),
    ("agent", "works-project", "write a file in the project"),
];

words! {
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Outcome: words {
        Refused = "refused",
        Succeeded = "SUCCEEDED",
        NotTried = "NOT TRIED",
        /// For what must work.
        Works = "works",
        Broken = "BROKEN",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub by: String,
    pub attack: String,
    pub attempted: String,
    pub outcome: Outcome,
    /// The received answers.
    pub happened: String,
    /// The layer or rule that they came from.
    pub refused_by: String,
    pub tries: Vec<Try>,
}

/// Observations of the host after the run. `Err` means that the attack left a trace.
#[derive(Debug, Default)]
pub struct Observed {
    pub events: Vec<Event>,
    /// By attack.
    pub checks: BTreeMap<&'static str, Result<String, String>>,
}

impl Outcome {
    #[must_use]
    pub fn is_good(self) -> bool {
        matches!(self, Self::Refused | Self::Works)
    }
}

#[must_use]
pub fn rows(reports: &[Report], seen: &Observed) -> Vec<Row> {
    let attacks = ATTACKS.iter().map(|attack| (attack, true));
    let works = WORKS.iter().map(|work| (work, false));
    attacks
        .chain(works)
        .map(|((by, attack, attempted), hostile)| {
            let report = reports.iter().find(|report| report.by == *by && report.attack == *attack);
            let mut row = Row {
                by: (*by).to_owned(),
                attack: (*attack).to_owned(),
                attempted: (*attempted).to_owned(),
                outcome: Outcome::NotTried,
                happened: "no answer".to_owned(),
                refused_by: String::new(),
                tries: report.map(|report| report.tries.clone()).unwrap_or_default(),
            };
            if let Some(report) = report.filter(|report| !report.tries.is_empty()) {
                if hostile { judge(&mut row, report, seen) } else { check_works(&mut row, report) }
            }
            row
        })
        .collect()
}

fn check_works(row: &mut Row, report: &Report) {
    let broken: Vec<&Try> = report.tries.iter().filter(|attempt| attempt.is_refused()).collect();
    row.outcome = if broken.is_empty() { Outcome::Works } else { Outcome::Broken };
    row.happened = display_attempts(&broken);
}

fn judge(row: &mut Row, report: &Report, seen: &Observed) {
    let through: Vec<&Try> = report.tries.iter().filter(|attempt| !attempt.is_refused()).collect();
    let check = seen.checks.get(report.attack.as_str());
    if !through.is_empty() {
        row.outcome = Outcome::Succeeded;
        row.happened = display_attempts(&through);
        return;
    }
    if let Some(Err(trace)) = check {
        row.outcome = Outcome::Succeeded;
        row.happened.clone_from(trace);
        return;
    }
    row.outcome = Outcome::Refused;
    let mut facts = vec![answers(&report.tries)];
    if report.attack == "fork-bomb" {
        facts.push(report.detail.clone());
    }
    if let Some(Ok(found)) = check {
        facts.push(found.clone());
    }
    let recorded = recorded_events(report, &seen.events);
    row.happened = facts.join("; ");
    row.refused_by = layers(report, recorded.as_ref());
}

/// Answers with how often they came: `EPERM (4), ENOSYS (2)`.
fn answers(tries: &[Try]) -> String {
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for error in tries.iter().filter_map(|attempt| attempt.error.as_deref()) {
        *counted.entry(error).or_default() += 1;
    }
    let shown = |(error, count): (&str, usize)| {
        if count > 1 { format!("{error} ({count}x)") } else { error.to_owned() }
    };
    counted.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// The events about an attack, as text for the last column.
fn recorded_events(report: &Report, events: &[Event]) -> Option<String> {
    events.iter().find_map(|event| match (report.attack.as_str(), event) {
        (
            "oversized-line" | "duplicate-key" | "unasked-response",
            Event::McpMessageRejected { server_id, from, reason, .. },
        ) if server_id.0 == HOSTILE && *from == Sender::Server && *reason == report.attack => {
            Some(format!("message check: {reason}, recorded"))
        }
        ("two-names", Event::McpMessageRejected { server_id, from, reason, .. })
            if server_id.0 == HOSTILE && *from == Sender::Client && reason == "duplicate-key" =>
        {
            Some(format!("message check: {reason}, recorded"))
        }
        ("denied-tool", Event::McpToolCallIntercepted { tool_name, action, reason, rule, .. })
            if tool_name == "exfiltrate" && *action == Action::Block =>
        {
            Some(format!("{reason}: {rule}, recorded"))
        }
        ("hidden-capability", Event::McpToolCallIntercepted { tool_name, action, reason, rule, .. })
            if tool_name == UNLISTED && *action == Action::Block =>
        {
            Some(format!("{reason}: {rule}, recorded"))
        }
        ("rate-limit", Event::McpToolCallIntercepted { server_id, action, reason, rule, .. })
            if server_id.0 == CLOCK && *action == Action::Block =>
        {
            Some(format!("{reason}: {rule}, recorded"))
        }
        (
            attack @ ("rug-pull" | "list-twice" | "split-payload" | "poison" | "shadowing"),
            Event::McpContentDetected { server_id, tool_name, action, reason, rule, .. },
        ) if server_id.0 == HOSTILE && *action == Action::Block && tool_name == tool_of(attack) => {
            Some(format!("{reason}: {rule}, recorded"))
        }
        ("changed-program", Event::McpServerBinaryMismatch { server_id, action, changed, .. })
            if server_id.0 == CLOCK && *action == Action::Block =>
        {
            let name = changed.first().map(String::as_str).unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default();
            Some(format!("version pinning: {name} changed, recorded"))
        }
        ("secret-variable", Event::McpServerEnvFiltered { server_id, stripped_vars, .. }) => {
            let of = server_id.as_ref().map_or("agent", |id| id.0.as_str());
            let stripped = of == report.by && stripped_vars.iter().any(|name| name == VARIABLE);
            stripped.then(|| "environment filter, recorded".to_owned())
        }
        _ => None,
    })
}

fn tool_of(attack: &str) -> &'static str {
    match attack {
        "rug-pull" => RUG,
        "list-twice" => TOOL_IN_TWO_PIECES,
        "split-payload" => SPLIT,
        "poison" => POISON,
        _ => SHADOW,
    }
}

fn layers(report: &Report, recorded: Option<&String>) -> String {
    if let Some(recorded) = recorded {
        return recorded.clone();
    }
    let mut named: Vec<String> = Vec::new();
    for attempt in &report.tries {
        let layer = layer_of(&report.attack, attempt);
        if !named.contains(&layer) {
            named.push(layer);
        }
    }
    named.join("; ")
}

/// The layer that gives this answer to this attack.
fn layer_of(attack: &str, attempt: &Try) -> String {
    if let Some(rule) = &attempt.rule {
        return rule.clone();
    }
    let error = attempt.error.as_deref().unwrap_or_default();
    if is_refused_by_filter(attempt) {
        return "system call filter".to_owned();
    }
    match (attack, error) {
        ("env-file", "empty") => "mount tree: filesystem.deny hides it".to_owned(),
        ("env-file", _) => format!("file access ({error})"),
        (_, "ENOENT") if attack == "supervisor" => "pid namespace: no such process".to_owned(),
        (_, "ESRCH") => "pid namespace: no such process".to_owned(),
        ("supervisor", "EACCES" | "EPERM") => "pid 1 cannot be opened from inside".to_owned(),
        ("own-program", "EACCES") => "file permissions".to_owned(),
        (_, "ENOENT") => "mount tree: it is not there".to_owned(),
        (_, "EROFS") => "mount tree: read-only".to_owned(),
        (_, "EBUSY" | "EXDEV") => "mount tree: it is a mount point".to_owned(),
        (_, "ENETUNREACH" | "ECONNREFUSED" | "EADDRNOTAVAIL") => {
            "network namespace without a route".to_owned()
        }
        ("fork-bomb", "EAGAIN") => "process limit of the policy".to_owned(),
        ("hidden-tool", _) => "tools/list is filtered by sandbox.mcp.denied_tools".to_owned(),
        (_, other) => format!("the answer was {other}"),
    }
}

/// Whether the filter's table says that this call is refused, so that the answer is the filter's.
fn is_refused_by_filter(attempt: &Try) -> bool {
    let Some(number) = attempt.call else { return false };
    let call = Call::of(number);
    let named = RULES.iter().find(|rule| call.is_some_and(|call| rule.calls.contains(&call)));
    named.is_none_or(|rule| !matches!(rule.verdict, Verdict::Allow | Verdict::MissingFileHandler))
        && matches!(attempt.error.as_deref(), Some("EPERM" | "ENOSYS" | "EPROTONOSUPPORT"))
}

fn display_attempts(tries: &[&Try]) -> String {
    tries.iter().map(|attempt| attempt.display_text()).collect::<Vec<_>>().join("; ")
}

/// Layers of the run's sandboxes that were not as asked, each once.
#[must_use]
pub fn not_enforced(events: &[Event]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for event in events {
        let Event::Enforcement { layer, got, state, .. } = event else { continue };
        let text = format!("{layer} ({state}: {got})");
        if *state != LayerState::Enforced && !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// The table and a line that counts. A narrow terminal shows what was tried; a wide one also which layer refused it.
#[must_use]
pub fn render(rows: &[Row], width: Option<u16>) -> String {
    /// From here on there is room for the layers.
    const WIDE: u16 = 110;
    let happened = |row: &Row| match row.happened.as_str() {
        "" => row.outcome.words().to_owned(),
        happened => format!("{}: {happened}", row.outcome.words()),
    };
    // Answers come from the inside: the table escapes them, so that nothing in them may move a cursor.
    let (head, cells): (&[&str], Vec<Vec<String>>) = match width {
        None => (
            &["who", "attempted", "what happened", "which layer or rule"],
            rows.iter()
                .map(|row| vec![row.by.clone(), row.attempted.clone(), happened(row), row.refused_by.clone()])
                .collect(),
        ),
        Some(width) => {
            let head = &["what happened", "who", "attempted", "which layer or rule"][..];
            let shown = if width < WIDE { 3 } else { 4 };
            let short = |row: &Row| {
                let whole = row.outcome.is_good();
                let happened = if whole { row.outcome.words().to_owned() } else { happened(row) };
                let mut cells = vec![happened, row.by.clone(), row.attempted.clone(), row.refused_by.clone()];
                cells.truncate(shown);
                cells
            };
            (head.get(..shown).unwrap_or(head), rows.iter().map(short).collect())
        }
    };
    let table = coloured(&table::render(head, cells, width), width);
    let count = |outcome: Outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    let mut line = format!("{} attacks refused", count(Outcome::Refused));
    for (outcome, words) in [
        (Outcome::Succeeded, "SUCCEEDED"),
        (Outcome::NotTried, "not tried"),
        (Outcome::Broken, "allowed things broken"),
    ] {
        if count(outcome) > 0 {
            line.push_str(&format!(", {} {words}", count(outcome)));
        }
    }
    let good = rows.iter().all(|row| row.outcome.is_good());
    let line = if width.is_some() { paint(if good { GOOD.bold() } else { BAD }, &line) } else { line };
    format!("{table}{line}\n")
}

/// The outcome is the first word of each line.
fn coloured(table: &str, width: Option<u16>) -> String {
    if width.is_none() {
        return table.to_owned();
    }
    let line = |line: &str| {
        for outcome in
            [Outcome::Refused, Outcome::Works, Outcome::Succeeded, Outcome::NotTried, Outcome::Broken]
        {
            if let Some(rest) = line.strip_prefix(outcome.words()) {
                let style = if outcome.is_good() { GOOD } else { BAD };
                return paint(style, outcome.words()) + rest + "\n";
            }
        }
        line.to_owned() + "\n"
    };
    table.lines().map(line).collect()
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
