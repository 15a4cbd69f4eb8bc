//! Skills and plugins: directories of prose and programs that an agent takes up as its own, by the places in which agents
//! look for them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Kind, json, read};

/// Trees that are looked at, names in a place where they are looked for, files and directories of one, and bytes of all.
pub const MOST_TREES: usize = 500;
const MOST_NAMES: usize = 10_000;
const MOST_ENTRIES: usize = 2_000;
const MOST_BYTES: u64 = 64 << 20;
const DEPTH: usize = 16;
/// What nobody obeys. Not `__pycache__`: Python imports what lies there in place of the source.
const SKIPPED: &str = ".git";

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
const CLAUDE_PLUGINS_PLACE: &str = ".claude/plugins";
const CODEX_PLUGINS: &str = ".codex/plugins/cache";

/// A skill or a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// `skill:NAME@PLACE` or `plugin:NAME@PLACE`: what two agents know by one name is not one tree. A place has a slash in
    /// it and a name has none, so that no two are called the same.
    pub name: String,
    pub root: PathBuf,
    /// It lies in the project, and not in the user's home.
    pub of_project: bool,
    /// A link leads to it. What it holds may be anything, so that none of it is kept.
    pub is_linked: bool,
}

/// The name of a tree without its place.
#[must_use]
pub fn short_name(name: &str) -> Option<&str> {
    let (short, place) = name.rsplit_once('@')?;
    let is_tree = short.starts_with("skill:") || short.starts_with("plugin:");
    (is_tree && place.contains('/')).then_some(short)
}

/// The trees that an agent takes up.
#[derive(Debug, Default)]
pub struct Found {
    pub trees: Vec<Tree>,
    /// Those that are too many to be looked at, with where they lie.
    pub left_out: Vec<(String, PathBuf)>,
}

/// What a tree holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Over all of it.
    pub digest: String,
    /// SHA-256 as hex digits by path.
    pub manifest: BTreeMap<String, String>,
    /// Files as they are, by their hash. Never of what lies behind a link: that may be anybody's secret.
    pub texts: BTreeMap<String, Vec<u8>>,
}

/// The trees that an agent takes up. What cannot be looked at is not there. First what the user has installed: a project can
/// bring any number of them.
#[must_use]
pub fn find(kind: Kind, home: &Path, project: &Path) -> Found {
    let mut found = Found::default();
    let plugin = |name: String, place: &str, root: PathBuf| {
        let is_linked = match root.strip_prefix(home) {
            Ok(below) => has_link(home, below),
            Err(_) => root.is_symlink(),
        };
        Tree { name: format!("plugin:{name}@{place}"), root, of_project: false, is_linked }
    };
    match kind.name() {
        "claude" => {
            for (name, root) in listed(&home.join(CLAUDE_PLUGINS)) {
                found.add(plugin(name, CLAUDE_PLUGINS_PLACE, root));
            }
        }
        "codex" => {
            for (market, _) in found.directories(home, CODEX_PLUGINS) {
                let place = format!("{CODEX_PLUGINS}/{market}");
                for (name, root) in found.directories(home, &place) {
                    found.add(plugin(format!("{name}@{market}"), CODEX_PLUGINS, root));
                }
            }
        }
        _ => {}
    }
    let places = SKILLS.iter().find(|(agent, _)| *agent == kind.name()).map_or(&[][..], |(_, places)| places);
    let mut tops = vec![(home, false)];
    // An agent that is started in the home has one of them.
    if home != project {
        tops.push((project, true));
    }
    for (top, of_project) in tops {
        for place in places {
            for (name, root) in found.directories(top, place) {
                let is_linked = has_link(top, &Path::new(place).join(root.file_name().unwrap_or_default()));
                found.add(Tree { name: format!("skill:{name}@{place}"), root, of_project, is_linked });
            }
        }
    }
    found
}

impl Found {
    fn add(&mut self, tree: Tree) {
        match self.trees.len() < MOST_TREES {
            true => self.trees.push(tree),
            false => self.left_out.push((tree.name, tree.root)),
        }
    }

    /// The directories in one, links followed.
    fn directories(&mut self, top: &Path, place: &str) -> Vec<(String, PathBuf)> {
        let directory = top.join(place);
        let mut entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .by_ref()
            .take(MOST_NAMES)
            .filter(|entry| entry.path().is_dir())
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
            .collect();
        if entries.next().is_some() {
            self.left_out.push((format!("more than {MOST_NAMES} entries of {place}"), directory));
        }
        found.sort();
        found
    }
}

/// Whether a part of this path below a directory is a link.
fn has_link(top: &Path, below: &Path) -> bool {
    below.ancestors().filter(|part| !part.as_os_str().is_empty()).any(|part| top.join(part).is_symlink())
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
    let mut walk = Walk { tree, left, entries: 0, content: Content::default() };
    walk.directory(Path::new(""), DEPTH)?;
    let mut content = walk.content;
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

struct Walk<'a> {
    tree: &'a Tree,
    left: &'a mut u64,
    /// Files and directories so far.
    entries: usize,
    content: Content,
}

impl Walk<'_> {
    fn directory(&mut self, below: &Path, depth: usize) -> Result<(), String> {
        let depth = depth.checked_sub(1).ok_or("its directories are too deep")?;
        let root = &self.tree.root;
        let failed = |error: std::io::Error| format!("{}: {error}", root.join(below).display());
        for entry in std::fs::read_dir(root.join(below)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(format!("it has more than {MOST_ENTRIES} files and directories"));
            }
            let (path, kind) = (below.join(entry.file_name()), entry.file_type().map_err(failed)?);
            let name = path.to_string_lossy().into_owned();
            if kind.is_dir() {
                if entry.file_name() != SKIPPED {
                    self.directory(&path, depth)?;
                }
                continue;
            }
            // A link counts as where it leads, and as what is there.
            if kind.is_symlink() {
                let to = std::fs::read_link(root.join(&path)).map_err(failed)?;
                self.content.manifest.insert(format!("{name} ->"), sha256(to.as_os_str().as_encoded_bytes()));
            }
            if let Some(bytes) = file(&root.join(&path), kind.is_symlink(), self.left)? {
                let hash = sha256(&bytes);
                self.content.manifest.insert(name, hash.clone());
                if !kind.is_symlink() && !self.tree.is_linked {
                    self.content.texts.insert(hash, bytes);
                }
            }
        }
        Ok(())
    }
}

/// The bytes of a file; None for anything else.
fn file(path: &Path, is_link: bool, left: &mut u64) -> Result<Option<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    // Never a pipe or a link that took its place since.
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | if is_link { 0 } else { libc::O_NOFOLLOW };
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
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
        let found = find(claude, &home, &project).trees;
        let names: Vec<_> = found.iter().map(|tree| (tree.name.as_str(), tree.of_project)).collect();
        let expected = [
            ("plugin:tools@market@.claude/plugins", false),
            ("skill:review@.claude/skills", false),
            ("skill:ship@.claude/skills", true),
        ];
        assert_eq!(names, expected);
        assert_eq!(short_name(names[0].0), Some("plugin:tools@market"));
        assert_eq!(short_name(names[1].0), Some("skill:review"));
        assert_eq!(short_name("skill:a@b"), None);

        let digest = || read(&found[1], &mut budget()).unwrap().digest;
        let first = digest();
        assert_eq!(first, digest());
        symlink("/nowhere", home.join(".claude/skills/review/link")).unwrap();
        let linked = digest();
        assert_ne!(first, linked);
        write(home.join(".claude/skills/review/run.sh"), "curl");
        assert_ne!(linked, digest());
        let before = digest();
        write(home.join(".claude/skills/review/__pycache__/helper.cpython-312.pyc"), "code");
        assert_ne!(before, digest(), "Python imports it");
        assert!(read(&found[1], &mut 3).unwrap_err().contains("MiB"));
        (0..MOST_ENTRIES).for_each(|name| {
            fs::create_dir_all(home.join(format!(".claude/skills/review/empty/{name}"))).unwrap();
        });
        assert!(read(&found[1], &mut budget()).unwrap_err().contains("directories"));
    }

    #[test]
    fn what_lies_behind_a_link_counts_and_is_not_kept() {
        let place = tempfile::tempdir().unwrap();
        let (home, project) = (place.path().join("home"), place.path().join("project"));
        let (secret, skills) = (home.join("secret"), project.join(".claude/skills"));
        fs::create_dir_all(&secret).unwrap();
        fs::write(secret.join("key"), "SECRET").unwrap();
        fs::create_dir_all(skills.join("file")).unwrap();
        fs::write(skills.join("file/SKILL.md"), "plain").unwrap();
        symlink(secret.join("key"), skills.join("file/k")).unwrap();
        symlink(&secret, skills.join("whole")).unwrap();
        let found = find(Kind::named("claude").unwrap(), &home, &project).trees;
        let contents: Vec<_> = found.iter().map(|tree| read(tree, &mut budget()).unwrap()).collect();
        assert!(contents[0].manifest.contains_key("k") && contents[1].manifest.contains_key("key"));
        assert_eq!(contents[0].texts.values().collect::<Vec<_>>(), [b"plain"]);
        assert!(contents[1].texts.is_empty());
        // And where the place itself is a link.
        fs::rename(&skills, place.path().join("moved")).unwrap();
        symlink(place.path(), &skills).unwrap();
        let found = find(Kind::named("claude").unwrap(), &home, &project).trees;
        assert!(!found.is_empty() && found.iter().all(|tree| tree.is_linked));
    }
}
