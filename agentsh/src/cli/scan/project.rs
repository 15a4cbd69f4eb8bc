//! `agentsh scan project`: the agent files of a project: what would start something or take effect by itself, and
//! hidden text or instructions.

use std::io::Write;
use std::path::{Path, PathBuf};

use agentsh_scan::{Action, Scan};
use clap::Args;
use serde_json::{Value, json};

use super::Format;
use agentsh_agents::project::{ProjectFile, scan_project};
use agentsh_store::escape;
use agentsh_terminal::output::{Failure, NO, OK};

/// Maximum number of files and directories that are read.
const MAX_COUNT: usize = 500_000;

#[derive(Clone, Debug, Args)]
pub struct ProjectArgs {
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The project
    #[arg(default_value = ".")]
    pub directory: PathBuf,
}

/// Exit status 0: nothing acts by itself and nothing was found; 1: something does or was; 2: it cannot be read.
pub(super) fn run(args: &ProjectArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let directory = &args.directory;
    std::fs::read_dir(directory)
        .map_err(|error| Failure::Usage(format!("cannot read '{}': {error}", directory.display())))?;
    let brings = scan_project(directory, MAX_COUNT);
    if brings.is_cut {
        let path = directory.display();
        return Err(Failure::Usage(format!(
            "'{path}' has more than {MAX_COUNT} files or is nested too deeply; scan its parts"
        )));
    }
    let judged: Vec<(ProjectFile, Scan)> = brings
        .files
        .into_iter()
        .map(|file| {
            let scan = file.text.as_deref().map(agentsh_scan::scan_instructions);
            (file, scan.unwrap_or_default())
        })
        .collect();
    let is_news = |(file, scan): &(ProjectFile, Scan)| !file.acts.is_empty() || scan.verdict != Action::Allow;
    match args.format {
        Format::Json => {
            let files: Vec<Value> = judged.iter().map(as_json).collect();
            writeln!(out, "{}", json!({ "project": directory, "files": files }))?;
        }
        Format::Text => print(directory, &judged, out)?,
    }
    Ok(if judged.iter().any(is_news) { NO } else { OK })
}

fn as_json((file, scan): &(ProjectFile, Scan)) -> Value {
    json!({
        "path": file.path, "agent": file.agent, "kind": file_kind(file), "acts": file.acts, "sha256": file.hash,
        "verdict": scan.verdict.as_str(), "score": scan.score, "findings": super::findings(scan),
    })
}

fn file_kind(file: &ProjectFile) -> &'static str {
    if file.starts { "settings" } else { "instructions" }
}

fn print(directory: &Path, judged: &[(ProjectFile, Scan)], out: &mut dyn Write) -> std::io::Result<()> {
    if judged.is_empty() {
        return writeln!(out, "'{}' contains nothing for agents", directory.display());
    }
    for (file, scan) in judged {
        writeln!(
            out,
            "{}: {} of {}",
            escape::line(&file.path.display().to_string()),
            file_kind(file),
            file.agent
        )?;
        for act in &file.acts {
            writeln!(out, "  {act}")?;
        }
        if scan.verdict != Action::Allow {
            writeln!(out, "  its text: {}, score {}", scan.verdict.as_str(), scan.score)?;
            super::print_findings(scan, out)?;
        }
    }
    Ok(())
}
