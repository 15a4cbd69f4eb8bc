//! Checks over several servers: a tool that imitates another server's, data that is read from one and sent to another,
//! bursts of calls. They work by names, so unless the policy asks for more only a lookalike name in other letters is
//! refused: that has no honest use.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agentsh_base::words_of_name;

use crate::decision::{Check, Finding, Report, Severity, Subject, SubjectKind};
use crate::json::Json;
use crate::policy::{CrossServerPolicy, OnFlow, ToolKind};
use crate::types::{ServerId, ToolId};
use crate::verdict::{Outcome, Reason, Verdict};

/// Names of tools that are remembered: a server may list names without end.
const MAX_TOOLS: usize = 20_000;
/// Below this length, one different letter does not make a lookalike.
const MIN_LENGTH: usize = 5;

#[derive(Clone, Debug, Default)]
pub struct CrossServer {
    policy: CrossServerPolicy,
    /// For each skeleton of a name (what it looks like): the first server that had it, and its spelling there.
    tools: BTreeMap<String, (ServerId, String)>,
    /// For each skeleton: the second server that has it, if neither may use it.
    collided: BTreeMap<String, ServerId>,
    /// Servers in the order in which they were declared, where one is known.
    order: Vec<ServerId>,
    servers: BTreeSet<ServerId>,
    /// When each server was read from last, and with which tool.
    reads: BTreeMap<ServerId, Read>,
    calls: BTreeMap<ServerId, VecDeque<Duration>>,
    /// Servers with tools of one name that were reported already.
    told: BTreeSet<(ServerId, ServerId)>,
    /// Hints in the annotations of tools that add to their names.
    hints: BTreeMap<ToolId, Hints>,
}

#[derive(Clone, Debug)]
struct Read {
    at: Duration,
    turn: Option<u64>,
    tool: String,
}

/// How long a read counts.
#[derive(Clone, Copy, Debug)]
struct Counts {
    window: Duration,
    /// While the turn lasts and no longer, where turns are known.
    by_turn: bool,
}

impl Counts {
    fn has(self, read: &Read, subject: &Subject<'_>) -> bool {
        match (read.turn, subject.turn) {
            (Some(then), Some(now)) if self.by_turn => then == now,
            _ => subject.now.saturating_sub(read.at) <= self.window,
        }
    }
}

/// Hints of annotations. They come from the server, so they can only make a tool more suspicious.
#[derive(Clone, Copy, Debug, Default)]
struct Hints {
    writes: bool,
    reads: bool,
}

/// The kind of a tool, according to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Send,
    Compute,
    Unknown,
}

const READ: [&str; 20] = [
    "read", "get", "fetch", "list", "search", "query", "find", "load", "download", "cat", "show", "view",
    "open", "describe", "lookup", "select", "browse", "retrieve", "inspect", "grep",
];
const SEND: [&str; 14] = [
    "send", "post", "email", "mail", "publish", "upload", "push", "share", "tweet", "notify", "forward",
    "submit", "export", "reply",
];
const WRITE: [&str; 17] = [
    "write", "create", "update", "delete", "set", "put", "insert", "edit", "append", "add", "remove", "move",
    "rename", "save", "store", "patch", "merge",
];
const COMPUTE: [&str; 9] =
    ["run", "exec", "execute", "eval", "evaluate", "calculate", "compute", "transform", "convert"];

impl Kind {
    /// The first verb decides, anywhere in the name: `readFile`, `send-mail`, `issue_create`.
    #[must_use]
    pub fn of(tool: &str) -> Self {
        let kinds = words_of_name(tool.chars()).into_iter().filter_map(|word| {
            let word = word.as_str();
            [(&SEND[..], Self::Send), (&WRITE, Self::Write), (&COMPUTE, Self::Compute), (&READ, Self::Read)]
                .into_iter()
                .find_map(|(verbs, kind)| verbs.contains(&word).then_some(kind))
        });
        kinds.into_iter().next().unwrap_or(Self::Unknown)
    }
}

/// The skeleton of a name: names that look the same have the same one (Unicode TR39).
#[must_use]
pub fn name_skeleton(name: &str) -> String {
    unicode_security::skeleton(&name.to_lowercase()).collect::<String>().to_lowercase()
}

impl CrossServer {
    #[must_use]
    pub fn new(policy: &CrossServerPolicy, order: &[ServerId]) -> Self {
        Self { policy: policy.clone(), order: order.to_vec(), ..Self::default() }
    }

    /// Whether a server was declared before another. The order of answers does not matter.
    fn comes_before(&self, server: &ServerId, other: &ServerId) -> bool {
        let rank = |server: &ServerId| self.order.iter().position(|declared| declared == server);
        rank(server).zip(rank(other)).is_some_and(|(own, other)| own < other)
    }

    /// The tool of another server that this one imitates, or whose name it has if the policy refuses that. `is_listed`: a name that
    /// only a call has says nothing about what its server offers.
    fn shadowed_tool(
        &mut self,
        server: &ServerId,
        tool: &str,
        is_listed: bool,
        report: &mut Report,
    ) -> Option<ToolId> {
        let form = name_skeleton(tool);
        let Some((first, spelled)) = self.tools.get(&form) else {
            if is_listed && self.tools.len() < MAX_TOOLS {
                self.tools.insert(form, (server.clone(), tool.to_owned()));
            }
            return None;
        };
        let other = ToolId { server: first.clone(), tool: spelled.clone() };
        if first == server {
            let second = self.collided.get(&form).filter(|_| other.tool == tool)?;
            return Some(ToolId { server: second.clone(), tool: tool.to_owned() });
        }
        let comes_before = self.comes_before(server, first);
        if !is_listed && other.tool == tool {
            return (!comes_before).then_some(other);
        }
        if other.tool == tool && self.policy.blocks_names() {
            // It is unclear which of the two is meant, so both are refused.
            if !self.collided.contains_key(&form) {
                report.find(self.displacing(&other));
                report.displace(other.clone());
            }
            let second = if comes_before { other.server.clone() } else { server.clone() };
            if comes_before {
                self.tools.insert(form.clone(), (server.clone(), tool.to_owned()));
            }
            self.collided.entry(form).or_insert(second);
            return Some(other);
        }
        if !comes_before {
            return Some(other);
        }
        self.tools.insert(form, (server.clone(), tool.to_owned()));
        if other.tool != tool {
            report.find(self.displacing(&other));
            report.displace(other);
        }
        None
    }

    /// The notice about a tool whose name a server that was declared later has listed already.
    fn displacing(&self, displaced: &ToolId) -> Finding {
        let verdict = Verdict::new(Outcome::Alert, Reason::ToolShadowed, self.policy.place("shadow_tool"));
        let what = format!("'{}' of server '{}' was listed already", displaced.tool, displaced.server);
        finding(verdict, "tool-shadowing", "displaced", Some(displaced.clone()), what)
    }

    /// The server with nearly the same name that was declared before this one. Of servers that were not declared, the one
    /// that answers first counts as declared first, after all that were.
    fn similar_server(&mut self, server: &ServerId) -> Option<ServerId> {
        let threshold = self.policy.similarity()?;
        if !self.servers.insert(server.clone()) {
            return None;
        }
        let rank = self.order.iter().position(|declared| declared == server);
        let declared = self.order.iter().take(rank.unwrap_or(self.order.len()));
        let answered = self.servers.iter().filter(|known| rank.is_none() && *known != server);
        declared.chain(answered).find(|known| are_similar(&known.0, &server.0, threshold)).cloned()
    }

    fn names(&mut self, subject: &Subject<'_>, name: &str, report: &mut Report) {
        let server = subject.server;
        if let Some(known) = self.similar_server(server) {
            let verdict =
                Verdict::new(Outcome::Alert, Reason::ServerNameSimilar, self.policy.place("shadow_tool"));
            let what = format!("the server's name is similar to '{known}'");
            let other = ToolId { server: known, tool: String::new() };
            let found = finding(verdict, "name-similarity", "name_similarity", Some(other), what);
            report.find(Finding { severity: Severity::High, ..found });
        }
        if let Some(first) = self.shadowed_tool(server, name, true, report) {
            let place = self.policy.place("shadow_tool");
            // Two servers may well have a `search` each; one of them is removed only if the policy asks for it.
            if first.tool == name && !self.policy.blocks_names() {
                if self.told.insert((server.clone(), first.server.clone())) {
                    let what = format!("server '{}' has a tool of the same name", first.server);
                    let verdict = Verdict::new(Outcome::Alert, Reason::ToolShadowed, place);
                    let found = finding(verdict, "tool-shadowing", "same_name", Some(first), what);
                    report.find(Finding { severity: Severity::Low, ..found });
                }
                return;
            }
            let verdict = Verdict::new(Outcome::Block, Reason::ToolShadowed, place);
            let what = passes_for(&first, name);
            report.find(finding(verdict, "tool-shadowing", "shadow_tool", Some(first), what));
        }
    }

    /// The last read from another server that still counts.
    fn read_elsewhere(&self, subject: &Subject<'_>, counts: Counts) -> Option<ToolId> {
        let is_elsewhere =
            |(from, read): &(&ServerId, &Read)| *from != subject.server && counts.has(read, subject);
        let (from, read) = self.reads.iter().filter(is_elsewhere).max_by_key(|(_, read)| read.at)?;
        Some(ToolId { server: from.clone(), tool: read.tool.clone() })
    }

    fn call(&mut self, subject: &Subject<'_>, tool: &str, was_listed: bool, report: &mut Report) {
        let (server, now) = (subject.server, subject.now);
        let kind = self.sink(server, tool);
        let is_made = matches!(subject.matter, SubjectKind::Call { .. });
        if is_made
            && (was_listed || self.policy.asked())
            && let Some(first) = self.shadowed_tool(server, tool, was_listed, report)
            && (first.tool != tool || self.policy.blocks_names())
        {
            let verdict =
                Verdict::new(Outcome::Block, Reason::ToolShadowed, self.policy.place("shadow_tool"));
            let what = passes_for(&first, tool);
            return report.find(finding(verdict, "tool-shadowing", "shadow_tool", Some(first), what));
        }
        let rules = [
            (
                kind == Kind::Send,
                self.policy.send_window().map(|window| Counts { window, by_turn: false }),
                Reason::ReadThenSend,
                "read_then_send",
                Severity::Critical,
            ),
            (
                kind != Kind::Read,
                self.policy.flow_window().map(|window| Counts { window, by_turn: self.policy.by_turn() }),
                Reason::CrossServerFlow,
                "cross_server_flow",
                Severity::High,
            ),
        ];
        for (fits, counts, reason, key, severity) in rules {
            let read = counts.filter(|_| fits).and_then(|counts| self.read_elsewhere(subject, counts));
            if let Some(read) = read {
                let outcome = match self.policy.on_flow() {
                    OnFlow::Allow | OnFlow::Alert => Outcome::Alert,
                    OnFlow::Ask => Outcome::Ask,
                    OnFlow::Block => Outcome::Block,
                };
                let verdict = Verdict::new(outcome, reason, self.policy.place(key));
                let what = format!("'{}' of server '{}' was read shortly before", read.tool, read.server);
                let found = finding(verdict, "cross-server", key, Some(read), what);
                report.find(Finding { severity, ..found });
                break;
            }
        }
        if let Some((most, window)) = self.policy.burst().filter(|_| !subject.is_promised) {
            let calls = self.calls.entry(server.clone()).or_default();
            while calls.front().is_some_and(|at| now.saturating_sub(*at) > window) {
                calls.pop_front();
            }
            if calls.len() >= most {
                let retry_after = calls.front().map(|first| (*first + window).saturating_sub(now));
                let rule = self.policy.place("burst");
                report.rule(Verdict { outcome: Outcome::Block, reason: Reason::Burst, rule, retry_after });
            }
        }
    }

    /// The kind of a call that may send data read elsewhere.
    fn sink(&self, server: &ServerId, tool: &str) -> Kind {
        if let Some(kind) = self.policy.kind(&server.0, tool) {
            return kind.into();
        }
        match Kind::of(tool) {
            Kind::Read if self.hints(server, tool).writes => Kind::Write,
            kind => kind,
        }
    }

    /// Whether a call of the tool brings something in.
    fn is_source(&self, server: &ServerId, tool: &str) -> bool {
        match self.policy.kind(&server.0, tool) {
            Some(kind) => kind == ToolKind::Read,
            None => Kind::of(tool) == Kind::Read || self.hints(server, tool).reads,
        }
    }

    fn hints(&self, server: &ServerId, tool: &str) -> Hints {
        let id = ToolId { server: server.clone(), tool: tool.to_owned() };
        self.hints.get(&id).copied().unwrap_or_default()
    }

    /// Hints are never removed: a server cannot make its tool less suspicious later.
    fn note_hints(&mut self, server: &ServerId, tool: &str, definition: &Json<'_>) {
        let hint = |name: &str| match definition.member("annotations")?.member(name)? {
            Json::Bool(flag) => Some(*flag),
            _ => None,
        };
        let hints = Hints {
            writes: hint("destructiveHint") == Some(true) || hint("readOnlyHint") == Some(false),
            reads: hint("readOnlyHint") == Some(true),
        };
        if (hints.writes || hints.reads) && self.hints.len() < MAX_TOOLS {
            let id = ToolId { server: server.clone(), tool: tool.to_owned() };
            let known = self.hints.entry(id).or_default();
            known.writes |= hints.writes;
            known.reads |= hints.reads;
        }
    }
}

impl From<ToolKind> for Kind {
    fn from(kind: ToolKind) -> Self {
        match kind {
            ToolKind::Read => Self::Read,
            ToolKind::Write => Self::Write,
            ToolKind::Send => Self::Send,
            ToolKind::Compute => Self::Compute,
        }
    }
}

impl Check for CrossServer {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        match subject.matter {
            SubjectKind::Definition { name, definition, .. } => {
                if self.policy.asked() {
                    self.note_hints(subject.server, name, definition);
                }
                self.names(subject, name, report);
            }
            SubjectKind::Call { tool, hash, .. } => self.call(subject, tool, hash.is_some(), report),
            SubjectKind::ModelCall { tool, .. } => self.call(subject, tool, false, report),
            _ => {}
        }
    }

    /// Only calls that go through count: for a burst, and as reads.
    fn record_passed(&mut self, subject: &Subject<'_>) {
        let (SubjectKind::Call { tool, .. } | SubjectKind::ModelCall { tool, .. }) = subject.matter else {
            return;
        };
        if self.policy.burst().is_some() && !subject.is_promised {
            self.calls.entry(subject.server.clone()).or_default().push_back(subject.now);
        }
        if self.policy.asked() && self.is_source(subject.server, tool) {
            let read = Read { at: subject.now, turn: subject.turn, tool: tool.to_owned() };
            self.reads.insert(subject.server.clone(), read);
        }
    }
}

fn passes_for(first: &ToolId, name: &str) -> String {
    let ToolId { server, tool } = first;
    match tool == name {
        true => {
            format!("it has the name of '{tool}' of server '{server}': tools with the same name are not used")
        }
        false => format!("it imitates '{tool}' of server '{server}', which was declared first"),
    }
}

fn finding(
    verdict: Verdict,
    category: &str,
    detector: &str,
    source: Option<ToolId>,
    what: String,
) -> Finding {
    Finding { source, ..Finding::new(verdict, Some(category), detector, Severity::Critical, what) }
}

/// How alike two names are, from 0 to 1: their edit distance as a share of the longer one.
#[must_use]
pub fn likeness(one: &str, other: &str) -> f64 {
    strsim::normalized_levenshtein(one, other)
}

/// Whether two names are nearly the same, and not two of a series (`server-1`, `server-2`).
fn are_similar(one: &str, other: &str, threshold: f64) -> bool {
    // Before a 1 becomes an l.
    let bare = |name: &str| name.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    if bare(one) == bare(other) {
        return false;
    }
    if claims_more(one, other) || claims_more(other, one) {
        return true;
    }
    let near = |one: &str, other: &str| {
        let length = one.chars().count().max(other.chars().count());
        let distance = strsim::damerau_levenshtein(one, other);
        #[expect(clippy::cast_precision_loss, reason = "names are short")]
        let share = 1.0 - distance as f64 / length.max(1) as f64;
        // In a short name one letter is a larger share, but just as easily overlooked.
        share >= threshold || (distance == 1 && length > MIN_LENGTH)
    };
    // An `m` looks like `rn`: replacing it changes two letters, so the names are also compared as written.
    let (seen, seen_other) = (name_skeleton(one), name_skeleton(other));
    seen == seen_other || near(&seen, &seen_other) || near(one, other)
}

/// Words that make a name look like an official variant of a known one.
const CLAIMS: [&str; 16] = [
    "official", "verified", "secure", "trusted", "genuine", "original", "real", "safe", "new", "latest",
    "updated", "fixed", "pro", "plus", "premium", "mcp",
];

/// Whether one name is the other with a claim before or after it: `github-official`.
fn claims_more(longer: &str, shorter: &str) -> bool {
    let (longer, shorter) = (words_of_name(longer.chars()), words_of_name(shorter.chars()));
    let more = longer.len().saturating_sub(shorter.len());
    let is_claim = |words: &[String]| words.iter().all(|word| CLAIMS.contains(&word.as_str()));
    more > 0
        && shorter.iter().any(|word| word.len() > 2 && !CLAIMS.contains(&word.as_str()))
        && (longer.starts_with(&shorter) && is_claim(&longer[shorter.len()..])
            || longer.ends_with(&shorter) && is_claim(&longer[..more]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::decision::Decision;
    use crate::guard::Guard;
    use crate::json::Json;
    use crate::policy::{McpPolicy, Ruled};
    use crate::types::RuleRef;

    fn guard(asked: bool) -> Guard {
        let mut policy = McpPolicy::default();
        policy.cross_server.rule = asked.then(|| RuleRef::default_rule("cross_server"));
        Guard::new(&policy)
    }

    fn define(guard: &mut Guard, server: &str, name: &str) -> Decision {
        let matter = SubjectKind::Definition { name, hash: "sha256:0", definition: &Json::Null };
        guard.decide(&ServerId(server.to_owned()), matter, Duration::ZERO)
    }

    fn call(guard: &mut Guard, at: u64, server: &str, tool: &str) -> &'static str {
        let matter = SubjectKind::Call { tool, hash: None, unlisted: false, arguments: None };
        let decision = guard.decide(&ServerId(server.to_owned()), matter, Duration::from_secs(at));
        if decision.verdict.is_block() { decision.verdict.reason.code() } else { "" }
    }

    #[test]
    fn a_name_belongs_to_the_server_that_was_declared_first() {
        let mut policy = McpPolicy::default();
        policy.cross_server.rule = Some(RuleRef::default_rule("cross_server"));
        let order = ["honest", "quick"].map(|id| ServerId(id.to_owned()));
        let mut guard = Guard::of_declared(&policy, &order);
        assert!(!define(&mut guard, "quick", "read_file").verdict.is_block());
        let honest = define(&mut guard, "honest", "read_file");
        assert!(honest.verdict.is_block());
        let displaced = ToolId { server: ServerId("quick".to_owned()), tool: "read_file".to_owned() };
        assert_eq!(honest.displaced, [displaced]);
        assert!(define(&mut guard, "honest", "read_file").displaced.is_empty());
        assert_eq!(call(&mut guard, 0, "quick", "read_file"), "tool-shadowed");
        assert!(define(&mut guard, "quick", "read_file").verdict.is_block());
        assert_eq!(call(&mut guard, 0, "honest", "read_file"), "tool-shadowed");
        assert!(define(&mut guard, "other", "read_file").verdict.is_block());
        assert!(!define(&mut guard, "quick", "re\u{430}d_all").verdict.is_block());
        assert_eq!(define(&mut guard, "honest", "read_all").verdict.outcome, Outcome::Alert);
        assert_eq!(call(&mut guard, 0, "quick", "re\u{430}d_all"), "tool-shadowed");
        assert_eq!(call(&mut guard, 0, "honest", "read_all"), "");
        // Two servers may have a tool of one name unless the policy asks for more; a lookalike is removed.
        let mut guard = Guard::of_declared(&McpPolicy::default(), &order);
        for (name, alike, count) in [("search", "search", 0), ("search_all", "se\u{430}rch_all", 1)] {
            assert!(!define(&mut guard, "quick", alike).verdict.is_block());
            assert_eq!(define(&mut guard, "honest", name).displaced.len(), count, "{name}");
        }
    }

    #[test]
    fn turns_decide_how_long_a_read_counts_where_they_are_known() {
        let mut guard = guard(true);
        guard.in_turn(1);
        assert_eq!(call(&mut guard, 0, "a", "read_file"), "");
        assert_eq!(call(&mut guard, 90, "b", "write_file"), "cross-server-flow", "the window is long over");
        // A read that is sent is another rule, and has no turns.
        assert_eq!(call(&mut guard, 90, "b", "send_mail"), "cross-server-flow");
        guard.in_turn(2);
        assert_eq!(call(&mut guard, 91, "b", "write_file"), "");
        assert_eq!(call(&mut guard, 92, "a", "read_file"), "");
        assert_eq!(call(&mut guard, 93, "b", "send_mail"), "read-then-send");
    }

    #[test]
    fn without_turns_the_window_decides() {
        for same_turn_only in [true, false] {
            let mut policy = McpPolicy::default();
            let rule = RuleRef::default_rule("cross_server");
            policy.cross_server.rule = Some(rule.clone());
            policy.cross_server.cross_server_flow.same_turn_only =
                Some(Ruled { value: same_turn_only, rule });
            let mut guard = Guard::new(&policy);
            if !same_turn_only {
                guard.in_turn(1);
            }
            assert_eq!(call(&mut guard, 0, "a", "read_file"), "");
            if !same_turn_only {
                guard.in_turn(2);
            }
            assert_eq!(call(&mut guard, 10, "b", "write_file"), "cross-server-flow");
            assert_eq!(call(&mut guard, 90, "b", "write_file"), "");
        }
    }

    #[test]
    fn verbs_are_found_anywhere_in_a_name() {
        for (name, kind) in [
            ("read_file", Kind::Read),
            ("getUser", Kind::Read),
            ("send-mail", Kind::Send),
            ("issue_create", Kind::Write),
            ("gmail.messages.send", Kind::Send),
            ("get_post", Kind::Read),
            ("echo", Kind::Unknown),
            ("reader", Kind::Unknown),
            ("runQuery", Kind::Compute),
            ("HTTPFetch", Kind::Unknown),
        ] {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn tools_with_the_same_name_are_both_refused_if_the_policy_says_so() {
        let mut guard = guard(true);
        assert!(!define(&mut guard, "notes", "read_secret").verdict.is_block());
        assert!(define(&mut guard, "evil", "read_secret").verdict.is_block());
        assert!(define(&mut guard, "notes", "read_secret").verdict.is_block());
        assert_eq!(call(&mut guard, 0, "evil", "read_secret"), "tool-shadowed");
        assert_eq!(call(&mut guard, 0, "notes", "read_secret"), "tool-shadowed");
        assert_eq!(call(&mut guard, 0, "notes", "read_public"), "");
    }

    #[test]
    fn look_alike_tool_names_are_refused_without_a_policy() {
        let mut guard = guard(false);
        assert!(!define(&mut guard, "github", "search").verdict.is_block());
        assert!(!define(&mut guard, "notion", "search").verdict.is_block());
        assert!(define(&mut guard, "evil", "se\u{430}rch").verdict.is_block());
        for at in 0..50 {
            assert_eq!(call(&mut guard, at, "github", "get_issue"), "");
            assert_eq!(call(&mut guard, at, "slack", "post_message"), "");
        }
    }

    #[test]
    fn send_after_a_read_from_another_server_is_refused_for_a_while() {
        let mut guard = guard(true);
        assert_eq!(call(&mut guard, 0, "mail", "send_email"), "");
        assert_eq!(call(&mut guard, 1, "secrets", "read_password"), "");
        assert_eq!(call(&mut guard, 2, "secrets", "send_to_self"), "");
        assert_eq!(call(&mut guard, 3, "mail", "send_email"), "read-then-send");
        assert_eq!(call(&mut guard, 4, "notes", "write_note"), "cross-server-flow");
        assert_eq!(call(&mut guard, 5, "web", "fetch_page"), "");
        assert_eq!(call(&mut guard, 40, "mail", "send_email"), "");
    }

    #[test]
    fn cross_server_burst_is_refused_and_blocked_calls_do_not_count() {
        let mut guard = guard(true);
        for _ in 0..10 {
            assert_eq!(call(&mut guard, 0, "a", "read_x"), "");
        }
        assert_eq!(call(&mut guard, 1, "a", "read_x"), "burst");
        assert_eq!(call(&mut guard, 1, "b", "read_y"), "");
        assert_eq!(call(&mut guard, 6, "a", "read_x"), "");
    }

    #[test]
    fn call_blocked_by_another_check_is_not_counted_as_a_read() {
        #[derive(Debug)]
        struct Never;
        impl Check for Never {
            fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
                if subject.matter.name() == "read_never" {
                    report.rule(Verdict::new(Outcome::Block, Reason::PolicyRule, RuleRef::default_rule("x")));
                }
            }
        }
        let mut guard = guard(true);
        guard.add(Never);
        for _ in 0..20 {
            assert_eq!(call(&mut guard, 0, "a", "read_never"), "policy-rule");
        }
        assert_eq!(call(&mut guard, 1, "mail", "send_email"), "");
        assert_eq!(call(&mut guard, 1, "a", "read_x"), "");
        assert_eq!(call(&mut guard, 2, "mail", "send_email"), "read-then-send");
    }

    #[test]
    fn tool_kinds_come_from_annotations_unless_the_policy_sets_them() {
        let mut policy = McpPolicy::default();
        policy.cross_server.rule = Some(RuleRef::default_rule("cross_server"));
        let rule = RuleRef::default_rule("kinds");
        let kinds = [("mail/compose", ToolKind::Send), ("get_nothing", ToolKind::Compute)];
        for (pattern, value) in kinds {
            policy
                .cross_server
                .kinds
                .insert(pattern.to_owned(), crate::policy::Ruled { value, rule: rule.clone() });
        }
        let mut guard = Guard::new(&policy);
        let hints =
            crate::json::read(br#"{"annotations":{"readOnlyHint":false,"destructiveHint":true}}"#).unwrap();
        let matter = SubjectKind::Definition { name: "fetch_and_store", hash: "x", definition: &hints };
        let _ = guard.decide(&ServerId("store".to_owned()), matter, Duration::ZERO);
        assert_eq!(call(&mut guard, 1, "a", "get_nothing"), "");
        assert_eq!(call(&mut guard, 1, "mail", "compose"), "");
        assert_eq!(call(&mut guard, 2, "a", "read_x"), "");
        assert_eq!(call(&mut guard, 3, "mail", "compose"), "read-then-send");
        assert_eq!(call(&mut guard, 3, "store", "fetch_and_store"), "cross-server-flow");
        assert_eq!(call(&mut guard, 3, "other", "fetch_page"), "");
    }

    #[test]
    fn similar_server_names_are_reported() {
        for (one, other, expected) in [
            ("github", "githab", true),
            ("notes-server", "notes-servar", true),
            ("github", "g\u{456}thub", true),
            ("server-1", "server-2", false),
            ("fs", "ls", false),
            ("slack", "stack", false),
            ("github", "gitlab", false),
            ("github", "github-official", true),
            ("verified_github", "github", true),
            ("github", "github-issues", false),
            ("mcp", "mcp-official", false),
        ] {
            assert_eq!(are_similar(one, other, 0.85), expected, "{one} {other}");
        }
        let mut guard = guard(false);
        assert!(!define(&mut guard, "github", "a").verdict.is_block());
        let decision = define(&mut guard, "githab", "b");
        assert_eq!(decision.verdict.outcome, Outcome::Alert);
        assert_eq!(decision.findings.len(), 1);
    }
}
