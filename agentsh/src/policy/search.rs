//! Which policy is in force. The only place of this room that touches the disk.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::builtin;
use super::diagnostic::{Diagnostic, PolicyError, Source, closest, one_of};
use super::model::Policy;
use super::path::PathContext;
use super::{narrow, read, resolve, tests};

/// Larger files are refused unread.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file that a project can narrow its policy with.
pub const PROJECT_FILE: &str = ".agentsh.yaml";

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// `--policy`: a file, or the name of a built-in policy. The user's own word, taken as it is.
    pub explicit: Option<String>,
    pub project: PathBuf,
    /// `$XDG_CONFIG_HOME`, by default `~/.config`.
    pub config_home: PathBuf,
    /// Name of the agent's adapter; decides which built-in policy is the last resort.
    pub agent: String,
}

/// Finds, reads, checks and narrows the policy of a session, and runs its tests.
///
/// What `--policy` names is the policy. Otherwise it is `policy.yaml` of the user, else the built-in of the agent,
/// and `.agentsh.yaml` of the project takes away from either.
///
/// # Errors
/// When a file is there and cannot be read or used, when a project asks for more than it has, and when a test of
/// the policy fails.
pub fn load(request: &Search) -> Result<Policy, PolicyError> {
    if let Some(explicit) = &request.explicit {
        return named(explicit, &request.project);
    }
    let base = user_policy(request)?;
    let file = request.project.join(PROJECT_FILE);
    let Some(text) = read_file(&file, Links::Refuse)? else { return Ok(base) };
    let name = file.display().to_string();
    let source = Source { name: &name, text: &text };
    let raw = read::read(source).map_err(PolicyError::Invalid)?;
    let policy = narrow::narrow(base, raw, source).map_err(PolicyError::Invalid)?;
    tested(policy, source, &request.project)
}

/// Reads and checks one file as a policy of the user's own, tests included.
///
/// # Errors
/// As [`load`].
pub fn load_file(file: &Path, project: &Path) -> Result<Policy, PolicyError> {
    match read_file(file, Links::Follow)? {
        Some(text) => checked(&file.display().to_string(), &text, project),
        None => Err(unreadable(file, "there is no such file")),
    }
}

fn named(name: &str, project: &Path) -> Result<Policy, PolicyError> {
    if let Some(text) = builtin::text(name) {
        return checked(&format!("built-in:{name}"), text, project);
    }
    let file = Path::new(name);
    let looks_like_file =
        name.contains('/') || name.ends_with(".yaml") || name.ends_with(".yml") || file.exists();
    if looks_like_file {
        return load_file(file, project);
    }
    let names: Vec<&str> = builtin::POLICIES.iter().map(|(known, _)| *known).collect();
    let help = match closest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("give a file, or one of {}", one_of(&names)),
    };
    Err(PolicyError::Unknown { name: name.chars().take(80).collect(), help })
}

fn user_policy(request: &Search) -> Result<Policy, PolicyError> {
    let file = request.config_home.join("agentsh").join("policy.yaml");
    if let Some(text) = read_file(&file, Links::Follow)? {
        return checked(&file.display().to_string(), &text, &request.project);
    }
    let name = builtin::for_agent(&request.agent);
    checked(&format!("built-in:{name}"), builtin::text(name).unwrap_or_default(), &request.project)
}

fn checked(name: &str, text: &str, project: &Path) -> Result<Policy, PolicyError> {
    let source = Source { name, text };
    tested(resolve::parse(name, text)?, source, project)
}

fn tested(policy: Policy, source: Source<'_>, project: &Path) -> Result<Policy, PolicyError> {
    // No answer about `~` depends on where it is, unless the project lies in it: then `~` has to be real.
    let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"));
    let context = PathContext { home, project: project.to_owned() };
    let failures = tests::run(&policy, &context);
    if failures.is_empty() {
        return Ok(policy);
    }
    let diagnostics: Vec<Diagnostic> = failures.iter().map(|failure| failure.diagnostic(source)).collect();
    Err(PolicyError::Invalid(diagnostics))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Follow,
    /// The project may be hostile: its policy is a file of its own, not a way to show another one.
    Refuse,
}

/// None when there is no such file. Never waits: a pipe in its place is refused.
fn read_file(file: &Path, links: Links) -> Result<Option<String>, PolicyError> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | if links == Links::Refuse { libc::O_NOFOLLOW } else { 0 };
    let opened = match OpenOptions::new().read(true).custom_flags(flags).open(file) {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) && links == Links::Refuse => {
            return Err(unreadable(file, "it is a symbolic link; a project's policy must be a plain file"));
        }
        Err(error) => return Err(unreadable(file, &error.to_string())),
    };
    let meta = opened.metadata().map_err(|error| unreadable(file, &error.to_string()))?;
    if !meta.is_file() {
        return Err(unreadable(file, "it is not a plain file"));
    }
    let mut bytes = Vec::new();
    let read = opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(file, &error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable(file, "it is larger than 1 MiB"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(unreadable(file, &format!("line {line} is not UTF-8")))
        }
    }
}

fn unreadable(file: &Path, why: &str) -> PolicyError {
    PolicyError::Unreadable { file: file.display().to_string(), why: why.to_owned() }
}
