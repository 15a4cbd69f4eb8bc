//! Files that an agent reads with its own tools do not pass through the proxy. The secrets in its project are
//! remembered at the start, as if a server had sent them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agentsh_base::json::{self, Json, escape_text};
use agentsh_base::small_file;
use agentsh_base::types::ServerId;
use agentsh_dlp::taint::Origin;
use agentsh_secrets::values;

use super::{Content, since_1970};

/// The name of the source in messages and in pairs of the policy.
pub const FILES: &str = "files of the project";

/// Directories that are looked into, and how deep; bytes of one file, of all of them, and their number.
const MAX_ENTRIES: usize = 5000;
const MAX_DEPTH: usize = 4;
const MAX_LENGTH: u64 = 64 << 10;
const MAX_BYTES: usize = 1 << 20;
const MAX_FILES: usize = 200;
/// Secrets of one file.
const MAX_SECRETS: usize = 256;
const TIME: Duration = Duration::from_millis(200);
const THIRD_PARTY_DIRECTORIES: [&str; 6] = [".git", "node_modules", "target", ".venv", "venv", "vendor"];

impl Content {
    /// Remembers the secrets of files that are there to hold some. Gives how many files had any.
    pub fn seed(&mut self, project: &Path) -> usize {
        let mut seeded = 0;
        for (path, text) in files(project) {
            let Some(said) = secret_lines(&text) else { continue };
            let Ok(said) = json::read(said.as_bytes()) else { continue };
            self.remember_own(&path.strip_prefix(project).unwrap_or(&path).display().to_string(), &said);
            seeded += 1;
        }
        self.catch_up_now();
        seeded
    }

    /// Remembers what the agent reads without the proxy: `name` is the file, or the agent's own tool that read it.
    pub(super) fn remember_own(&mut self, name: &str, lines: &Json<'_>) {
        let origin = Origin {
            server: ServerId(FILES.to_owned()),
            tool: name.to_owned(),
            call: String::new(),
            time: since_1970(),
            private: true,
        };
        self.later.push(origin, lines, None, false);
        if self.later.is_full() {
            self.catch_up_now();
        }
    }
}

/// Maximum number of addresses, links and the like that may hide a secret.
const MAX_VALUES: usize = 16 * MAX_SECRETS;

/// The lines of a text that hold a secret, as a list in JSON. None: there are none.
pub fn secret_lines(text: &str) -> Option<String> {
    let found = lines_with_secrets(text);
    let lines: Vec<String> = found.iter().map(|line| format!("\"{}\"", escape_text(line))).collect();
    (!lines.is_empty()).then(|| format!("[{}]", lines.join(",")))
}

/// Lines that hold a secret: the name in front of it says what it is. A key of several lines is one.
fn lines_with_secrets(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    let all = values::find(text, MAX_VALUES);
    for entity in all.iter().filter(|entity| entity.kind.is_secret()).take(MAX_SECRETS) {
        let start = text[..entity.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[entity.end..].find('\n').map_or(text.len(), |at| entity.end + at);
        if found.last() != Some(&&text[start..end]) {
            found.push(&text[start..end]);
        }
    }
    found
}

/// Files that are made to hold secrets, with their texts. What cannot be read is left out: the agent runs as the same user.
fn files(project: &Path) -> Vec<(PathBuf, String)> {
    let began = Instant::now();
    let (mut found, mut bytes, mut entries) = (Vec::new(), 0, 0);
    let mut open = std::collections::VecDeque::from([(project.to_owned(), 0)]);
    while let Some((directory, depth)) = open.pop_front() {
        let Ok(listed) = std::fs::read_dir(&directory) else { continue };
        for entry in listed.flatten() {
            entries += 1;
            if entries > MAX_ENTRIES || found.len() >= MAX_FILES || began.elapsed() > TIME {
                return found;
            }
            let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else { continue };
            let name = name.to_string_lossy();
            if kind.is_dir() && depth < MAX_DEPTH && !THIRD_PARTY_DIRECTORIES.contains(&&*name) {
                open.push_back((entry.path(), depth + 1));
            } else if kind.is_file()
                && holds_secrets(&name)
                && entry.metadata().is_ok_and(|file| file.len() <= MAX_LENGTH)
                && let Some(text) = small_file::text(entry.path(), MAX_LENGTH)
                && bytes + text.len() <= MAX_BYTES
            {
                bytes += text.len();
                found.push((entry.path(), text));
            }
        }
    }
    found
}

fn holds_secrets(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    const SECRET_NAME_SUFFIXES: [&str; 6] = [".pem", ".key", ".tfvars", ".env", ".p8", ".ppk"];
    const SECRET_NAME_PREFIXES: [&str; 6] =
        [".env", "id_rsa", "id_ed25519", "id_ecdsa", "credentials", "secrets."];
    const SECRET_FILE_NAMES: [&str; 7] =
        [".npmrc", ".netrc", ".pypirc", ".pgpass", ".git-credentials", ".htpasswd", "wp-config.php"];
    SECRET_NAME_PREFIXES.iter().any(|start| name.starts_with(start))
        || SECRET_NAME_SUFFIXES.iter().any(|end| name.ends_with(end))
        || SECRET_FILE_NAMES.contains(&&*name)
}
