//! `agentsh policy explain --content FILE`: what each check finds in a text, and which line decides.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentsh_content::content::outcome_of;
use agentsh_content::content_scan::ContentScan;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::{CommandContext, PolicySelection, policy_failure};
use agentsh_base::json::{self as strict, Json};
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_dlp::taint::Leaves;
use agentsh_dlp::{forbidden, text::Limits};
use agentsh_guard::{Decision, Guard, Outcome, Reason, SubjectKind};
use agentsh_policy::{Inspected, OnModelSecret, PERSONAL, Policy, kind_word};
use agentsh_store::escape;
use agentsh_terminal::exit::{FAILED, NO, OK};
use agentsh_terminal::output::Failure;

/// Longest text, in bytes.
const MAX_LENGTH: u64 = 64 << 20;

#[derive(Debug, Args)]
pub struct ContentArgs {
    /// With --content: what the text is
    #[arg(long, value_enum, default_value_t = ContentKind::Results, requires = "content")]
    subject: ContentKind,
}

/// The kind of a text, as in `inspect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ContentKind {
    Definitions,
    Results,
    Requests,
    Arguments,
    Questions,
}

impl ContentKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Definitions => "definitions",
            Self::Results => "results",
            Self::Requests => "requests",
            Self::Arguments => "arguments",
            Self::Questions => "questions",
        }
    }

    /// The text as a message has it. An object in JSON is taken as it is.
    fn message(self, text: &str) -> Value {
        let given = serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
        let content = || json!({"type": "text", "text": text});
        match self {
            Self::Definitions => given.unwrap_or_else(|| json!({"name": "text", "description": text})),
            Self::Results => json!({"result": given.unwrap_or_else(|| json!({"content": [content()]}))}),
            Self::Requests => {
                given.unwrap_or_else(|| json!({"messages": [{"role": "user", "content": content()}]}))
            }
            Self::Arguments => given.unwrap_or_else(|| json!({"text": text})),
            Self::Questions => {
                given.unwrap_or_else(|| json!({"messages": [{"role": "user", "content": text}]}))
            }
        }
    }
}

struct ContentFinding {
    /// The name in `inspect`; for other checks the key of the policy.
    finding: &'static str,
    what: String,
    severity: &'static str,
    pointer: String,
    outcome: Outcome,
    rule: RuleRef,
}

/// Exit status 0: it passes, if with an alert or changed; 1: a person is asked, or it is refused; 125: there is no answer.
pub fn explain(
    which: &PolicySelection,
    file: &Path,
    args: &ContentArgs,
    as_json: bool,
    place: &CommandContext,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let policy = place.policy(which).map_err(policy_failure)?;
    let text = match read(file) {
        Ok(text) => text,
        Err(error) => {
            writeln!(err, "error: cannot read {}: {error}", file.display())?;
            return Ok(FAILED);
        }
    };
    let message = args.subject.message(&text).to_string();
    let found = match strict::read(message.as_bytes()) {
        Ok(message) => find_content(&policy, args.subject, &message),
        Err(error) => {
            writeln!(err, "error: {}: {error}", file.display())?;
            return Ok(FAILED);
        }
    };
    let outcome = found.iter().map(|one| one.outcome).max().unwrap_or(Outcome::Allow);
    let mut cells = policy.inspected(args.subject.as_str());
    // Findings that have no line in `inspect`.
    for finding in found.iter().map(|one| one.finding) {
        if cells.iter().all(|cell| cell.finding != finding) {
            cells.push(Inspected { finding, decided: Vec::new() });
        }
    }
    if as_json {
        writeln!(out, "{}", result_json(args.subject, outcome, &cells, &found, &policy))?;
    } else {
        print(args.subject, outcome, &cells, &found, &policy, out)?;
    }
    Ok(if outcome >= Outcome::Ask { NO } else { OK })
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    let source: Box<dyn Read> = match file.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(std::fs::File::open(file)?),
    };
    source.take(MAX_LENGTH + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_LENGTH {
        return Err(io::Error::other("it has more than 64 MiB"));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The findings of the session's checks that need only the policy and the text.
fn find_content(policy: &Policy, subject: ContentKind, message: &Json<'_>) -> Vec<ContentFinding> {
    let matter = match subject {
        ContentKind::Definitions => SubjectKind::Definition { name: "text", hash: "", definition: message },
        ContentKind::Results => SubjectKind::Result { tool: "text", answer: message },
        ContentKind::Requests => {
            SubjectKind::ServerRequest { method: "sampling/createMessage", params: Some(message) }
        }
        ContentKind::Arguments => {
            SubjectKind::Call { tool: "text", hash: None, unlisted: false, arguments: Some(message) }
        }
        ContentKind::Questions => return question_findings(policy, message),
    };
    let mut guard = Guard::without_lists(&policy.mcp);
    guard.add(Arc::new(ContentScan::new(&policy.mcp)));
    let decision = guard.decide(&ServerId("text".to_owned()), matter, Duration::ZERO);
    let mut found = of_checks(subject, &decision);
    if subject == ContentKind::Arguments {
        found.extend(unlisted_host(policy, message));
    }
    found
}

fn of_checks(subject: ContentKind, decision: &Decision) -> Vec<ContentFinding> {
    let finding = |found: &agentsh_guard::Finding| match found.verdict.reason {
        Reason::SecretFound if PERSONAL.iter().any(|kind| kind_word(kind) == found.detector) => "personal",
        Reason::SecretFound => "secret",
        Reason::ContentSuspicious if subject == ContentKind::Arguments => "command",
        Reason::ContentSuspicious => "injection",
        Reason::TextCleaned => "hidden text",
        _ => "other rules",
    };
    let found = decision.findings.iter().map(|found| ContentFinding {
        finding: finding(found),
        what: found.what.clone(),
        severity: found.severity.as_str(),
        pointer: found.pointer.clone(),
        outcome: found.verdict.outcome,
        rule: found.verdict.rule.clone(),
    });
    found.collect()
}

/// A host that arguments name and that is not listed.
fn unlisted_host(policy: &Policy, arguments: &Json<'_>) -> Option<ContentFinding> {
    let exfiltration = &policy.mcp.exfiltration;
    let allowed = exfiltration.allowed_domains.as_ref().filter(|_| exfiltration.enabled)?;
    let named = forbidden(&Leaves::of_call("text", arguments), &allowed.value, false, &Limits::default())?;
    Some(ContentFinding {
        finding: "copy",
        what: format!("it names '{}', which is not listed", escape::line(&named.host)),
        severity: "high",
        pointer: named.pointer,
        outcome: outcome_of(exfiltration.in_run()),
        rule: allowed.rule.clone(),
    })
}

/// Secrets in a request to the model.
fn question_findings(policy: &Policy, message: &Json<'_>) -> Vec<ContentFinding> {
    let (found, _) = agentsh_scan::scan_secrets(message, &|_| false, &|_| true);
    let shown = found.into_iter().filter_map(|found| {
        let is_personal = PERSONAL.contains(&found.kind);
        let outcome = match policy.llm.on_secret(found.kind) {
            OnModelSecret::Off => return None,
            OnModelSecret::Log => Outcome::Allow,
            OnModelSecret::Redact => Outcome::Rewrite,
            OnModelSecret::Block => Outcome::Block,
        };
        let written = policy.llm.secret_kinds.get(found.kind).or(policy.llm.secrets.as_ref());
        Some(ContentFinding {
            finding: if is_personal { "personal" } else { "secret" },
            what: format!("it contains a value of the kind {}", found.kind),
            severity: if is_personal { "low" } else { "high" },
            pointer: found.pointer,
            outcome,
            rule: written.map_or_else(|| RuleRef::default_rule("llm.secrets"), |own| own.rule.clone()),
        })
    });
    shown.collect()
}

/// Why a finding is not reported here. None: it was searched for.
fn why_not_searched(subject: ContentKind, finding: &str, policy: &Policy) -> Option<&'static str> {
    match finding {
        "drift" => Some("not checked here: it is compared with the pin"),
        "advisory" => Some("not checked here: it is about servers, see `agentsh advisories check`"),
        "anomaly" => Some("not checked here: it is compared with earlier calls"),
        "destination" => Some("not checked here: see `agentsh policy explain --flow FROM TO`"),
        "copy" if subject == ContentKind::Arguments => {
            Some("only hosts are checked here: nothing was read that could be copied")
        }
        "classifier" if policy.mcp.classifier.url.is_none() => Some("off: no `url` is written"),
        "classifier" => Some("not checked here: the classifier is not asked"),
        _ => None,
    }
}

fn result_json(
    subject: ContentKind,
    outcome: Outcome,
    cells: &[Inspected],
    found: &[ContentFinding],
    policy: &Policy,
) -> Value {
    let checks = cells.iter().map(|cell| {
        let keys = cell.decided.iter().map(|line| {
            let value = Some(&line.value).filter(|value| !value.is_empty());
            json!({"key": line.key, "value": value, "rule": line.rule})
        });
        let found = found.iter().filter(|one| one.finding == cell.finding).map(|found| {
            json!({
                "what": found.what, "severity": found.severity, "pointer": found.pointer,
                "action": found.outcome.as_str(), "rule": found.rule,
            })
        });
        json!({
            "finding": cell.finding, "decided_by": keys.collect::<Vec<_>>(), "found": found.collect::<Vec<_>>(),
            "note": why_not_searched(subject, cell.finding, policy),
        })
    });
    json!({
        "subject": subject.as_str(), "action": outcome.as_str(), "checks": checks.collect::<Vec<_>>(),
        "policy": policy.source,
    })
}

fn print(
    subject: ContentKind,
    outcome: Outcome,
    cells: &[Inspected],
    found: &[ContentFinding],
    policy: &Policy,
    out: &mut dyn Write,
) -> io::Result<()> {
    let says = match outcome {
        Outcome::Allow => "passes",
        Outcome::Alert => "passes, and an alert is recorded",
        Outcome::Rewrite => "passes, with a part replaced",
        Outcome::Ask => "waits for a person",
        Outcome::Block => "refused",
    };
    writeln!(out, "checked as `{}`: {says}", subject.as_str())?;
    for cell in cells {
        writeln!(out, "{}{}", cell.finding, decision(cell))?;
        let mut found = found.iter().filter(|one| one.finding == cell.finding).peekable();
        match why_not_searched(subject, cell.finding, policy) {
            Some(why) => writeln!(out, "  {why}")?,
            None if found.peek().is_none() => writeln!(out, "  nothing found")?,
            None => {}
        }
        for one in found {
            let at = if one.pointer.is_empty() { String::new() } else { format!(" at {}", one.pointer) };
            let told = format!("{}{at}, {}", one.what, one.severity);
            writeln!(out, "  found: {}: {} by {}", escape::line(&told), one.outcome.as_str(), one.rule)?;
        }
    }
    Ok(())
}

/// The keys in force: all, or the first of several that come from one line of a policy.
fn decision(cell: &Inspected) -> String {
    let place = |line: &agentsh_policy::Line| (line.value.clone(), line.rule.file.clone(), line.rule.line);
    let shown = |line: &agentsh_policy::Line| match line.value.as_str() {
        "" => format!("by {}", line.rule),
        value => format!("{value} by {}", line.rule),
    };
    match cell.decided.as_slice() {
        [] => String::new(),
        [first, others @ ..]
            if !others.is_empty() && others.iter().all(|other| place(other) == place(first)) =>
        {
            format!(": {} and {} more keys", shown(first), others.len())
        }
        lines => format!(": {}", lines.iter().map(shown).collect::<Vec<_>>().join(", ")),
    }
}
