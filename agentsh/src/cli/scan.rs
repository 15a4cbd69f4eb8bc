//! `agentsh scan`: the scanner without a session. JSON lines in, one verdict per line out.

mod characters;
mod project;
mod servers;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use agentsh_scan::{Action, Channel, Redaction, Scan};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use self::characters::Characters;
use agentsh_base::json::{self, Json};
use agentsh_policy::risk::Names;
use agentsh_store::escape;
use agentsh_terminal::output::{Failure, NO, OK, USAGE};

/// Longest line, in bytes.
const MAX_LENGTH: u64 = 64 << 20;

#[derive(Clone, Debug, Args)]
pub struct ScanArgs {
    #[command(subcommand)]
    pub verb: ScanVerb,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ScanVerb {
    /// Tools, prompts, resources and instructions as servers list them: `{"id": 1, "definition": {...}}`
    Definitions(Input),
    /// What servers answer: `{"id": 1, "text": "..."}` or `{"id": 1, "result": {...}}`
    Output(Input),
    /// What agents send: `{"id": 1, "arguments": {...}}` or `{"id": 1, "text": "..."}`
    Outbound(Input),
    /// Scan what the configured servers offer: starts each in a sandbox
    Servers(servers::ServersArgs),
    /// Scan a project for agent instructions, skills, servers and hooks, and name those that would start something
    Project(project::ProjectArgs),
}

#[derive(Clone, Debug, Args)]
pub struct Input {
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub format: Format,
    /// Lines of JSON; `-` is standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Exit status 0: nothing was found; 1: something was; 2: a line, a server or a project cannot be read.
pub async fn run(args: ScanArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    let (channel, input) = match args.verb {
        ScanVerb::Definitions(input) => (Channel::Definition, input),
        ScanVerb::Output(input) => (Channel::Output, input),
        ScanVerb::Outbound(input) => (Channel::Outbound, input),
        ScanVerb::Servers(args) => return servers::run(args, out).await,
        ScanVerb::Project(args) => return project::run(&args, out),
    };
    match open(&input.file) {
        Ok(lines) => scan_lines(lines, channel, input.format, out, err),
        Err(error) => Err(Failure::Usage(format!("cannot open '{}': {error}", input.file.display()))),
    }
}

fn open(file: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(file)?))
    })
}

fn scan_lines(
    mut lines: Box<dyn BufRead>,
    channel: Channel,
    format: Format,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let (mut status, mut number, mut line) = (OK, 0_u64, Vec::new());
    let mut out = io::BufWriter::new(out);
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LENGTH).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match judge(&line, channel) {
            Ok((id, row)) => {
                let scan = &row.scan;
                if !scan.findings.is_empty() || !scan.redactions.is_empty() {
                    status = status.max(NO);
                }
                match format {
                    Format::Json => writeln!(out, "{}", row.to_json(&id))?,
                    Format::Text => row.print(&id, &mut out)?,
                }
            }
            Err(reason) => {
                status = USAGE;
                out.flush()?;
                // The reader may have closed it: ignore that.
                let _ = writeln!(err, "error: line {number}: {reason}");
            }
        }
    }
    out.flush()?;
    Ok(status)
}

/// The request on one line, and its answer.
struct Row {
    scan: Scan,
    texts: Characters,
    /// The text, or the value as JSON, as it would be forwarded.
    forwarded: Option<(&'static str, Value)>,
    risk: Option<agentsh_policy::risk::Risk>,
}

fn judge(line: &[u8], channel: Channel) -> Result<(Value, Row), String> {
    let trimmed = line.trim_ascii();
    let row = json::read(trimmed).map_err(|error| error.to_string())?;
    if row.as_object().is_none() {
        return Err("not an object".to_owned());
    }
    let id = row.member("id").map_or(Value::Null, Json::to_value);
    for name in ["definition", "arguments", "result"] {
        let Some(value) = row.member(name) else { continue };
        let scan = match channel {
            Channel::Definition => agentsh_scan::scan_definition(value),
            Channel::Output => agentsh_scan::scan_result(value),
            Channel::Outbound => agentsh_scan::scan_outbound(value),
        };
        let forwarded = (!scan.rewrites.is_empty()).then(|| {
            let text = agentsh_scan::rewritten_json(value, &scan.rewrites);
            (name_of_forwarded(name), serde_json::from_str(&text).unwrap_or(Value::String(text)))
        });
        let risk = (channel == Channel::Definition).then(|| agentsh_policy::risk::risk(value, Names::Words));
        let scan = below(scan, name);
        let mut texts = Characters::default();
        add_found_strings(value, format!("/{name}"), &found_pointers(&scan), &mut texts);
        return Ok((id, Row { scan, texts, forwarded, risk }));
    }
    let text = match (row.member("text"), row.member("chunks")) {
        (Some(text), _) => text.as_text().ok_or("'text' is not a string")?.into_owned(),
        (None, Some(chunks)) => {
            let chunks = chunks.as_array().ok_or("'chunks' is not an array")?;
            chunks.iter().filter_map(Json::as_text).collect::<String>()
        }
        (None, None) => return Err("there is no 'definition', 'text', 'arguments' or 'result'".to_owned()),
    };
    let mut scan = agentsh_scan::scan_text(&text, channel);
    // A definition that is given as text may be JSON itself.
    if channel == Channel::Definition
        && text.trim_start().starts_with('{')
        && let Ok(definition) = json::read(text.as_bytes())
    {
        let inner = agentsh_scan::scan_definition(&definition);
        if inner.score > scan.score {
            scan = inner;
            scan.findings.iter_mut().for_each(|finding| finding.pointer.clear());
        }
    }
    let forwarded = scan.rewrites.first().map(|rewrite| ("text", Value::String(rewrite.text.clone())));
    let mut texts = Characters::default();
    texts.add("/text".to_owned(), text);
    Ok((id, Row { scan: below(scan, "text"), texts, forwarded, risk: None }))
}

fn name_of_forwarded(name: &str) -> &'static str {
    if name == "arguments" { "arguments" } else { "result" }
}

/// Pointers from the row on.
fn below(mut scan: Scan, name: &str) -> Scan {
    let pointers = scan.findings.iter_mut().map(|finding| &mut finding.pointer);
    let pointers = pointers.chain(scan.redactions.iter_mut().map(|redaction| &mut redaction.pointer));
    let pointers = pointers.chain(scan.removals.iter_mut().map(|removal| &mut removal.pointer));
    for pointer in pointers {
        *pointer = format!("/{name}{pointer}");
    }
    scan
}

/// Pointers to what was found.
fn found_pointers(scan: &Scan) -> HashSet<&str> {
    let findings = scan.findings.iter().map(|finding| finding.pointer.as_str());
    findings.chain(scan.redactions.iter().map(|redaction| redaction.pointer.as_str())).collect()
}

/// The strings in which something was found.
fn add_found_strings(value: &Json<'_>, pointer: String, named: &HashSet<&str>, texts: &mut Characters) {
    match value {
        Json::String(_) => {
            if let Some(text) = value.as_text().filter(|_| named.contains(pointer.as_str())) {
                texts.add(pointer, text.into_owned());
            }
        }
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                add_found_strings(item, format!("{pointer}/{at}"), named, texts);
            }
        }
        Json::Object(members) => {
            for (raw, member) in members {
                let name = json::unescape(raw).replace('~', "~0").replace('/', "~1");
                add_found_strings(member, format!("{pointer}/{name}"), named, texts);
            }
        }
        _ => {}
    }
}

impl Row {
    fn to_json(&self, id: &Value) -> Value {
        let scan = &self.scan;
        let findings: Vec<Value> = scan
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "rule": finding.rule, "category": finding.category, "severity": finding.severity.as_str(),
                    "pointer": finding.pointer,
                    "start": self.texts.characters_before(&finding.pointer, finding.start),
                    "end": self.texts.characters_before(&finding.pointer, finding.end),
                    "context": finding.context,
                })
            })
            .collect();
        let redactions: Vec<Value> =
            scan.redactions.iter().map(|redaction| self.redaction(redaction)).collect();
        let removed: Vec<Value> = scan
            .removals
            .iter()
            .map(|removal| json!({"kind": removal.kind, "pointer": removal.pointer, "bytes": removal.bytes}))
            .collect();
        let mut row = json!({
            "id": id, "verdict": scan.verdict.as_str(), "score": scan.score, "findings": findings,
            "redactions": redactions, "removed": removed,
        });
        if let Some(row) = row.as_object_mut() {
            if let Some((name, value)) = &self.forwarded {
                row.insert((*name).to_owned(), value.clone());
            }
            if let Some(risk) = self.risk {
                row.insert("risk".to_owned(), json!(risk));
            }
        }
        row
    }

    fn redaction(&self, redaction: &Redaction) -> Value {
        let pointer = &redaction.pointer;
        json!({
            "kind": redaction.kind, "pointer": pointer,
            "start": self.texts.characters_before(pointer, redaction.start), "end": self.texts.characters_before(pointer, redaction.end),
        })
    }

    fn print(&self, id: &Value, out: &mut dyn Write) -> io::Result<()> {
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        let scan = &self.scan;
        let word = match scan.verdict {
            Action::Allow => "allow",
            Action::Alert => "alert",
            Action::Block => "block",
        };
        writeln!(out, "{}\t{word}\t{}", escape::line(&id), scan.score)?;
        print_findings(scan, out)?;
        for redaction in &scan.redactions {
            writeln!(out, "  secret\t{}\t{}", redaction.kind, escape::line(&redaction.pointer))?;
        }
        for removal in &scan.removals {
            writeln!(out, "  removed\t{}\t{}", removal.kind, escape::line(&removal.pointer))?;
        }
        Ok(())
    }
}

/// What was found, for scripts.
fn findings(scan: &Scan) -> Vec<Value> {
    let found = scan.findings.iter().map(|finding| {
        json!({
            "rule": finding.rule, "category": finding.category, "severity": finding.severity.as_str(),
            "pointer": finding.pointer, "context": finding.context,
        })
    });
    found.collect()
}

fn print_findings(scan: &Scan, out: &mut dyn Write) -> io::Result<()> {
    for finding in &scan.findings {
        let (severity, context) = (finding.severity.as_str(), escape::line(&finding.context));
        writeln!(out, "  {severity}\t{}\t{}\t{context}", finding.rule, escape::line(&finding.pointer))?;
    }
    Ok(())
}
