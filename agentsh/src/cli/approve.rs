//! `agentsh mcp approve [FILE]`: shows or approves what a file of a project declares, bound to its content.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use agentsh_agents::dialect::Dialect;
use agentsh_agents::project::scan_project;
use agentsh_agents::{agreement, json};
use agentsh_authoring::CommandContext;
use agentsh_host::agreements;
use agentsh_store::escape;
use agentsh_terminal::output::{Context, Failure, OK};

/// Maximum file size in bytes, the same as for the adapters.
const MAX_BYTES: u64 = 1 << 20;
/// Entries of a project in which unapproved files are looked for.
const MAX_ENTRIES: usize = 100_000;

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// Revoke the approval
    #[arg(long)]
    forget: bool,
    /// Files that came with a project, such as .mcp.json; without one: show those that are not approved
    #[arg(value_name = "FILE", required_if_eq("forget", "true"))]
    files: Vec<PathBuf>,
}

/// Runs the verb, and returns the exit status.
pub fn answer(args: &ApproveArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let context = Context::of_process()?;
    if args.files.is_empty() {
        return show_waiting(&context, out);
    }
    for path in &args.files {
        let shown = path.display();
        let text = read(path).map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
        let document = parse(&text);
        let key = agreement::key(path, &text);
        if args.forget {
            agreements::remove(&context.state_dir, &key)?;
            writeln!(out, "{shown}: no longer approved")?;
            continue;
        }
        show(&text, document.as_ref(), out)?;
        agreements::add(&context.state_dir, &key)?;
        writeln!(
            out,
            "{shown}: approved as it is now: its servers get the variables that they ask for, and what your policy grants to their \
             names"
        )?;
    }
    Ok(OK)
}

/// The files of this project that declare servers and are not approved.
fn show_waiting(context: &Context, out: &mut dyn Write) -> Result<u8, Failure> {
    let place = CommandContext::from_environment().map_err(|error| Failure::Failed(error.to_string()))?;
    let project = place.project;
    let approved = agreements::load(&context.state_dir);
    let mut waiting = 0;
    for found in scan_project(&project, MAX_ENTRIES).files.iter().filter(|found| found.starts) {
        let path = project.join(&found.path);
        let Ok(text) = read(&path) else { continue };
        let document =
            parse(&text).filter(|document| LISTS.iter().any(|(list, _)| document.get(list).is_some()));
        if let Some(document) = document.filter(|_| !approved.contains(&agreement::key(&path, &text))) {
            waiting += 1;
            show(&text, Some(&document), out)?;
            writeln!(out, "{}: not approved; to approve it: {}", path.display(), agreement::command(&path))?;
        }
    }
    if waiting == 0 {
        writeln!(out, "no file of {} declares servers that are not approved", project.display())?;
    }
    Ok(OK)
}

fn show(text: &str, document: Option<&Value>, out: &mut dyn Write) -> Result<(), Failure> {
    match document {
        Some(document) => describe(document, out)?,
        // Keys and certificates are described, not printed.
        None if text.contains(PEM) => {
            let mut begins = text.lines().filter(|line| line.starts_with(PEM));
            begins.try_for_each(|line| writeln!(out, "  {}", escape::line(line)))?;
        }
        None => text.lines().try_for_each(|line| writeln!(out, "  {}", escape::line(line)))?,
    }
    Ok(())
}

fn read(path: &PathBuf) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    // Without a byte order mark, as the adapters read it.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

const PEM: &str = "-----BEGIN ";

fn parse(text: &str) -> Option<Value> {
    let json = || serde_json::from_str(&json::blank_comments(text)).ok();
    let toml = || serde_json::to_value(text.parse::<toml::Table>().ok()?).ok();
    json().or_else(toml)
}

/// Keys under which files of projects list servers, and how entries look there.
const LISTS: [(&str, Dialect); 5] = [
    ("mcpServers", Dialect::Common),
    ("servers", Dialect::Typed),
    ("mcp_servers", Dialect::Common),
    ("mcp", Dialect::OpenCode),
    ("amp.mcpServers", Dialect::Common),
];

/// Every server with its command and the variables that it asks for; every other key with its value.
fn describe(document: &Value, out: &mut dyn Write) -> std::io::Result<()> {
    let others = document.as_object().into_iter().flatten();
    for (key, value) in others.filter(|(key, _)| !LISTS.iter().any(|(list, _)| list == key)) {
        writeln!(out, "{}: {}", escape::line(key), escape::line(&value.to_string()))?;
    }
    for (list, dialect) in LISTS {
        for (id, entry) in document.get(list).and_then(Value::as_object).into_iter().flatten() {
            let entry = &dialect.common(entry);
            let word = |value: &Value| value.as_str().map(str::to_owned);
            let args = entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(word);
            let words: Vec<String> = entry.get("command").and_then(word).into_iter().chain(args).collect();
            writeln!(out, "server {}: {}", escape::line(id), escape::line(&words.join(" ")))?;
            let mut names = BTreeSet::new();
            variables(entry, &mut names);
            let given = entry.get("env_vars").and_then(Value::as_array).into_iter().flatten();
            names.extend(given.filter_map(|name| word(name).or_else(|| word(name.get("name")?))));
            if !names.is_empty() {
                let names: Vec<String> = names.iter().map(|name| escape::line(name).to_string()).collect();
                writeln!(out, "  asks for: {}", names.join(", "))?;
            }
        }
    }
    Ok(())
}

/// The names in `$NAME`, `${NAME}`, `${NAME:-default}`, `${env:NAME}` and `{env:NAME}`.
fn variables(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            for part in text.split('$').skip(1) {
                let part = part.strip_prefix('{').unwrap_or(part);
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let name: String = part.chars().take_while(|letter| is_name(*letter)).collect();
                into.extend(Some(name).filter(|name| !name.is_empty() && !part.starts_with("env:")));
            }
            for part in text.split("{env:").skip(1) {
                into.extend(part.split('}').next().filter(|name| !name.is_empty()).map(str::to_owned));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| variables(item, into)),
        Value::Object(members) => members.values().for_each(|member| variables(member, into)),
        _ => {}
    }
}
