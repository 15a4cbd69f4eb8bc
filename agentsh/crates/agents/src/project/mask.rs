//! Files of a project that an agent without an adapter obeys: they name servers, programs, variables and the model's
//! address. The agent sees them empty until the user approves them.

use std::path::{Path, PathBuf};

use super::super::{Context, Launch, agreement, read};
use super::AGENTS;

/// Words of a command line that may contain the agent's name, as in `npx -y`.
const MAX_WORDS: usize = 6;

/// Covers what the project brings for the agent of this command line.
pub(in super::super) fn mask(context: &Context<'_>, known: &[PathBuf], launch: &mut Launch) {
    let words: Vec<&str> = context.argv.iter().take(MAX_WORDS).map(|word| plain_name(word)).collect();
    let is_meant = |names: &[&str]| names.iter().any(|name| words.contains(name));
    let agents = AGENTS.iter().filter(|agent| agent.is_covered && is_meant(agent.names));
    let within = |directory: &&Path| directory.starts_with(context.project);
    let directories: Vec<&Path> = context.cwd.ancestors().filter(within).collect();
    for name in agents.flat_map(|agent| agent.starts.iter()) {
        for directory in &directories {
            let path = directory.join(name.trim_end_matches('/'));
            let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if !known.contains(&real) {
                cover_one(context, &path, launch);
            }
        }
    }
}

/// Covers these files and directories of the project, wherever they are, for an agent with an adapter that reads the rest.
pub(in super::super) fn mask_these(
    context: &Context<'_>,
    paths: impl IntoIterator<Item = PathBuf>,
    launch: &mut Launch,
) {
    paths.into_iter().for_each(|path| cover_one(context, &path, launch));
}

/// `/usr/bin/gemini`, `@google/gemini-cli@1.2`, `gemini.js`: the name alone.
fn plain_name(word: &str) -> &str {
    let last = word.rsplit('/').next().unwrap_or(word);
    let last = last.split('@').next().unwrap_or(last);
    last.strip_suffix(".js").or_else(|| last.strip_suffix(".mjs")).unwrap_or(last)
}

fn cover_one(context: &Context<'_>, path: &Path, launch: &mut Launch) {
    // The file that the policy names is rewritten with bridges instead.
    if context.generic_config == Some(path) || path.symlink_metadata().is_err() {
        return;
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let project = std::fs::canonicalize(context.project).unwrap_or_else(|_| context.project.to_owned());
    let is_covered = |launch: &Launch| {
        launch.hidden.contains(&real) || launch.replaced.iter().any(|(covered, _)| *covered == real)
    };
    if !real.starts_with(project) || is_covered(launch) {
        return;
    }
    let shown = path.display().to_string();
    let shown = agentsh_base::escape::line(&shown);
    if real.is_dir() {
        launch
            .notes
            .push(format!("{shown} came with the project and may start programs: the agent does not see it"));
        launch.hidden.push(real);
        return;
    }
    let text = match read::text(path, read::LIMIT) {
        Ok(None) => return,
        Ok(Some(text)) if text.trim().is_empty() => return,
        Ok(Some(text)) if agreement::is_agreed(context.agreed, path, &text) => return,
        Ok(Some(_)) => None,
        Err(error) => Some(error.to_string()),
    };
    launch.notes.push(format!(
        "{}{shown} came with the project and may set servers, programs and the model's URL: the agent sees an empty file; to approve it: {}",
        text.map(|error| error + "; ").unwrap_or_default(),
        agreement::command(path)
    ));
    let content: &[u8] = if is_json(path) { b"{}\n" } else { b"" };
    launch.replaced.push((real, content.to_vec()));
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json" || end == "jsonc")
}
