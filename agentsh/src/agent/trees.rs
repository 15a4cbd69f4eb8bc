//! Skills and plugins: directories of prose and programs that an agent takes up as its own, by the places in which agents
//! look for them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Kind, json, read};

/// Trees that are looked at, files of one, and bytes of all.
const MOST_TREES: usize = 500;
const MOST_FILES: usize = 2_000;
const MOST_BYTES: u64 = 64 << 20;
const DEPTH: usize = 16;
/// What nobody obeys.
const SKIPPED: [&str; 2] = [".git", "__pycache__"];

/// Where an agent looks for skills: each entry of these directories is one. Below the home, and below the project.
const SKILLS: &[(&str, &[&str])] = &[
    ("claude", &[".claude/skills"]),
    ("codex", &[".codex/skills", ".agents/skills"]),
    ("gemini", &[".gemini/skills", ".gemini/extensions", ".agents/skills"]),
    ("qwen", &[".qwen/skills", ".qwen/extensions"]),
    ("opencode", &[".opencode/skills", ".config/opencode/skills", ".claude/skills", ".agents/skills"]),
    ("cursor", &[".cursor/skills", ".claude/skills"]),
    ("amp", &[".agents/skills", ".config/agents/skills", ".claude/skills"]),
    ("copilot", &[".github/skills", ".copilot/skills", ".claude/skills"]),
    ("goose", &[".agents/skills", ".claude/skills"]),
];
/// Claude Code's list of the plugins that the user has installed, and Codex's directory of them.
const CLAUDE_PLUGINS: &str = ".claude/plugins/installed_plugins.json";
const CODEX_PLUGINS: &str = ".codex/plugins/cache";

/// A skill or a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// `skill:NAME` or `plugin:NAME`.
    pub name: String,
    pub root: PathBuf,
    /// It lies in the project, and not in the user's home.
    pub of_project: bool,
}

/// What a tree holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Over all of it.
    pub digest: String,
    /// SHA-256 as hex digits by path.
    pub manifest: BTreeMap<String, String>,
    /// Files as they are, by their hash.
    pub texts: BTreeMap<String, Vec<u8>>,
}

/// The trees that an agent takes up, by name. What cannot be looked at is not there.
#[must_use]
pub fn find(kind: Kind, home: &Path, project: &Path) -> Vec<Tree> {
    let mut found = Vec::new();
    let places = SKILLS.iter().find(|(agent, _)| *agent == kind.name()).map_or(&[][..], |(_, places)| places);
    let mut tops = vec![(home, false)];
    // An agent that is started in the home has one of them.
    if home != project {
        tops.push((project, true));
    }
    for (top, of_project) in tops {
        for (name, root) in places.iter().flat_map(|place| directories(&top.join(place))) {
            found.push(Tree { name: format!("skill:{name}"), root, of_project });
        }
    }
    let plugin = |(name, root)| Tree { name: format!("plugin:{name}"), root, of_project: false };
    match kind.name() {
        "claude" => found.extend(listed(&home.join(CLAUDE_PLUGINS)).into_iter().map(plugin)),
        "codex" => {
            for (market, root) in directories(&home.join(CODEX_PLUGINS)) {
                let of = |(name, root)| plugin((format!("{name}@{market}"), root));
                found.extend(directories(&root).into_iter().map(of));
            }
        }
        _ => {}
    }
    found.truncate(MOST_TREES);
    found
}

/// The directories in one, links followed.
fn directories(place: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten().take(MOST_TREES);
    let mut found: Vec<_> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    found.sort();
    found
}

/// The plugins of Claude Code's list, wherever they lie.
fn listed(list: &Path) -> Vec<(String, PathBuf)> {
    let Ok(Some(text)) = read::text(list, read::LIMIT) else { return Vec::new() };
    let Ok(list) = json::parse(&text, list) else { return Vec::new() };
    let mut found = Vec::new();
    for (name, places) in list.get("plugins").and_then(serde_json::Value::as_object).into_iter().flatten() {
        // One for each place in which it was installed; older lists have one alone.
        let places = places.as_array().map_or_else(|| std::slice::from_ref(places), Vec::as_slice);
        let root = places.iter().find_map(|place| place.get("installPath")?.as_str());
        found.extend(root.map(|root| (name.clone(), PathBuf::from(root))));
    }
    found
}

/// Reads a tree. `left`: bytes that may still be read, of all trees.
///
/// # Errors
/// What cannot be read, or that there is too much.
pub fn read(tree: &Tree, left: &mut u64) -> Result<Content, String> {
    let mut content = Content::default();
    walk(&tree.root, Path::new(""), DEPTH, left, &mut content)?;
    let mut hasher = Sha256::new();
    for (path, hash) in &content.manifest {
        hasher.update(format!("{}:{path}{hash}", path.len()));
    }
    content.digest = format!("sha256:{}", hex(hasher));
    Ok(content)
}

/// The bytes that may be read of all trees of a session.
#[must_use]
pub fn budget() -> u64 {
    MOST_BYTES
}

fn walk(
    root: &Path,
    below: &Path,
    depth: usize,
    left: &mut u64,
    content: &mut Content,
) -> Result<(), String> {
    let depth = depth.checked_sub(1).ok_or("its directories are too deep")?;
    let failed = |error: std::io::Error| format!("{}: {error}", root.join(below).display());
    for entry in std::fs::read_dir(root.join(below)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if content.manifest.len() >= MOST_FILES {
            return Err(format!("it has more than {MOST_FILES} files"));
        }
        let (path, kind) = (below.join(entry.file_name()), entry.file_type().map_err(failed)?);
        let name = path.to_string_lossy().into_owned();
        if kind.is_dir() {
            if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                walk(root, &path, depth, left, content)?;
            }
            continue;
        }
        // A link counts as where it leads, and as what is there.
        if kind.is_symlink() {
            let to = std::fs::read_link(root.join(&path)).map_err(failed)?;
            content.manifest.insert(format!("{name} ->"), sha256(to.as_os_str().as_encoded_bytes()));
        }
        if let Some(bytes) = file(&root.join(&path), left)? {
            let hash = sha256(&bytes);
            content.manifest.insert(name, hash.clone());
            content.texts.insert(hash, bytes);
        }
    }
    Ok(())
}

/// The bytes of a file; None for anything else.
fn file(path: &Path, left: &mut u64) -> Result<Option<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    // Never a pipe that took its place since.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
    let file: File = opened.map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(*left + 1).read_to_end(&mut bytes).map_err(failed)?;
    *left = left
        .checked_sub(bytes.len() as u64)
        .ok_or_else(|| format!("skills and plugins hold more than {} MiB in all", MOST_BYTES >> 20))?;
    Ok(Some(bytes))
}

fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::new().chain_update(bytes))
}

fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn trees_are_found_where_the_agent_looks_and_their_content_counts() {
        let place = tempfile::tempdir().unwrap();
        let (home, project) = (place.path().join("home"), place.path().join("project"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(home.join(".claude/skills/review/SKILL.md"), "Read the diff.");
        write(home.join(".codex/skills/other/SKILL.md"), "x");
        write(project.join(".claude/skills/ship/SKILL.md"), "Ship it.");
        let plugin = home.join("elsewhere/tools");
        write(plugin.join("commands/go.md"), "Go.");
        let list = serde_json::json!({"version": 2, "plugins": {"tools@market": [{"installPath": plugin}]}});
        write(home.join(CLAUDE_PLUGINS), &list.to_string());
        let claude = Kind::named("claude").unwrap();
        let found = find(claude, &home, &project);
        let names: Vec<_> = found.iter().map(|tree| (tree.name.as_str(), tree.of_project)).collect();
        assert_eq!(names, [("skill:review", false), ("skill:ship", true), ("plugin:tools@market", false)]);

        let digest = || read(&found[0], &mut budget()).unwrap().digest;
        let first = digest();
        assert_eq!(first, digest());
        symlink("/nowhere", home.join(".claude/skills/review/link")).unwrap();
        let linked = digest();
        assert_ne!(first, linked);
        write(home.join(".claude/skills/review/run.sh"), "curl");
        assert_ne!(linked, digest());
        assert!(read(&found[0], &mut 3).unwrap_err().contains("MiB"));
    }
}
