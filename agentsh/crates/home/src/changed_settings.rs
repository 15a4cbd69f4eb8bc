//! Reports in one line if the project's agent settings changed since the last start.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use agentsh_agents::Kind;
use agentsh_agents::project::{ProjectAgentConfig, scan_project};
use agentsh_store::escape;

use super::files;
use agentsh_host::copies::write_anew;
use agentsh_host::{Facts, Record};

/// Entries of a project that are looked at before every start; `agentsh scan project` looks at all.
const MAX_COUNT: usize = 5_000;
/// Files that are named.
const MAX_NAMED: usize = 4;
/// The file with the project's earlier settings, by path.
const NAME: &str = "brought.json";
const MAX_BYTES: u64 = 1 << 20;
/// Declares servers and nothing else.
const SERVERS: &str = ".mcp.json";

/// Compares with the last start, and reports what is new.
pub fn report_changes(facts: &Facts, record: &Record, kind: Kind) {
    if kind.is_unknown() {
        return;
    }
    let brings = scan_project(&facts.context.project, MAX_COUNT);
    let now: BTreeMap<String, String> = brings
        .files
        .iter()
        .map(|file| (file.path.to_string_lossy().into_owned(), file.hash.clone()))
        .collect();
    let directory = files::of_project(facts, kind);
    let file = directory.join(NAME);
    let before = read(&file);
    if before.as_ref() == Some(&now) || before.is_none() && now.is_empty() {
        return;
    }
    // The start names the servers of a project, and how to approve them.
    let is_told = before.is_none() && brings.files.iter().all(|file| file.path == Path::new(SERVERS));
    if !is_told {
        record.note(&line(&brings, &now, before.as_ref()));
    }
    let kept = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .and_then(|()| write_anew(&file, &serde_json::to_vec(&now)?, 0o600));
    if let Err(error) = kept {
        record.note(&format!(
            "the agent settings of this project will be reported again: cannot store them: {error}"
        ));
    }
}

fn line(
    brings: &ProjectAgentConfig,
    now: &BTreeMap<String, String>,
    before: Option<&BTreeMap<String, String>>,
) -> String {
    let settings = brings.files.iter().filter(|file| file.starts).count();
    let acts: usize = brings.files.iter().map(|file| file.acts.len()).sum();
    let parts = [
        (brings.files.len() - settings, "file", "with instructions"),
        (settings, "file", "with settings"),
        (acts, "setting", "that may start a program or grant a permission"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(many, ..)| *many > 0)
        .map(|(many, what, which)| format!("{many} {what}{} {which}", if many == 1 { "" } else { "s" }))
        .collect();
    let whole = match parts.as_slice() {
        [] => "none any more".to_owned(),
        parts => format!("{}; `agentsh scan project` shows them", parts.join(", ")),
    };
    let Some(before) = before else { return format!("this project contains agent settings: {whole}") };
    let is_other = |(path, hash): &(&String, &String)| before.get(*path) != Some(hash);
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    let other: Vec<&String> = now.iter().filter(is_other).map(|(path, _)| path).chain(gone).collect();
    let mut named: Vec<_> =
        other.iter().take(MAX_NAMED).map(|path| format!("'{}'", escape::line(path))).collect();
    if other.len() > MAX_NAMED {
        named.push(format!("{} more", other.len() - MAX_NAMED));
    }
    format!("the agent settings of this project changed since the last start ({}): {whole}", named.join(", "))
}

/// None: the file cannot be read.
fn read(file: &std::path::Path) -> Option<BTreeMap<String, String>> {
    let mut text = Vec::new();
    fs::File::open(file).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
