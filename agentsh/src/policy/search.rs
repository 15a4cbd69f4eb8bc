//! Which policy is in force. The only place of this room that touches the disk.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::builtin;
use super::diagnostic::{Diagnostic, PolicyError, Source, closest, one_of};
use super::model::Policy;
use super::path::PathContext;
use super::profile::{self, ServerProfile};
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

/// A policy that was found and checked, with its text for messages. Its own tests have not run yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub policy: Policy,
    /// The file that was read last: its tests are the policy's tests.
    pub file: String,
    text: String,
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
    find(request)?.tested(&request.project)
}

/// As [`load`], without running the tests of the file that was read last.
///
/// # Errors
/// As [`load`].
pub fn find(request: &Search) -> Result<Loaded, PolicyError> {
    if let Some(explicit) = &request.explicit {
        return named(explicit);
    }
    let base = user_policy(request)?;
    let path = request.project.join(PROJECT_FILE);
    // An empty file takes nothing away: it may be the stand-in of another run.
    let text = read_file(&path, Links::Refuse)?.filter(|text| !text.trim().is_empty());
    let Some(text) = text else {
        refuse_yml(&path)?;
        return Ok(base);
    };
    let base = base.tested(&request.project)?;
    let file = path.display().to_string();
    let source = Source { name: &file, text: &text };
    let raw = read::read(source).map_err(PolicyError::Invalid)?;
    let policy = narrow::narrow(base, raw, source).map_err(PolicyError::Invalid)?;
    Ok(Loaded { policy, file, text })
}

/// What a word on the command line can name.
#[derive(Clone, Debug, PartialEq)]
pub enum Named {
    Policy(Box<Loaded>),
    Profile(Box<ServerProfile>),
}

/// Reads a file, or what ships under a name: a policy, or the profile of a server. Tests have not run yet, but for
/// those of profiles that the user wrote.
///
/// # Errors
/// As [`load`]; also when there is neither.
pub fn find_named(word: &str, config_home: &Path) -> Result<Named, PolicyError> {
    if is_file(word) {
        let file = Path::new(word);
        let text =
            read_file(file, Links::Follow)?.ok_or_else(|| unreadable(file, "there is no such file"))?;
        return match profile::parse(word, &text)? {
            Some(profile) => Ok(Named::Profile(Box::new(profile))),
            None => Ok(Named::Policy(Box::new(checked(word.to_owned(), text)?))),
        };
    }
    if builtin::text(word).is_some() {
        return named(word).map(|loaded| Named::Policy(Box::new(loaded)));
    }
    profile::named(word, config_home).map(|profile| Named::Profile(Box::new(profile))).map_err(
        |error| match (error, closest(word, &builtin_names())) {
            (PolicyError::UnknownProfile { name, .. }, Some(near)) => {
                PolicyError::Unknown { name, help: format!("did you mean `{near}`?") }
            }
            (PolicyError::UnknownProfile { name, help }, None) if !help.starts_with("did you mean") => {
                let help = format!("{help}; policies are {}", one_of(&builtin_names()));
                PolicyError::UnknownProfile { name, help }
            }
            (error, _) => error,
        },
    )
}

/// Reads and checks one file as a policy of the user's own.
fn find_file(file: &Path) -> Result<Loaded, PolicyError> {
    match read_file(file, Links::Follow)? {
        Some(text) => checked(file.display().to_string(), text),
        None => Err(unreadable(file, "there is no such file")),
    }
}

impl Loaded {
    /// Where `~` and the project of its tests are. A built-in policy is tested in a place of its own: where it is
    /// used must not decide whether it can be.
    #[must_use]
    pub fn test_context(&self, project: &Path) -> PathContext {
        if self.file.starts_with(BUILT_IN) {
            return PathContext { home: "/home/user".into(), project: "/home/user/src/project".into() };
        }
        let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"));
        PathContext { home, project: project.to_owned() }
    }

    /// The policy, when all its tests have the answers that they expect.
    ///
    /// # Errors
    /// [`PolicyError::Invalid`] with one mistake per failed test.
    pub fn tested(self, project: &Path) -> Result<Policy, PolicyError> {
        let failures = tests::run(&self.policy, &self.test_context(project));
        if failures.is_empty() {
            return Ok(self.policy);
        }
        let source = Source { name: &self.file, text: &self.text };
        let diagnostics: Vec<Diagnostic> =
            failures.iter().map(|failure| failure.diagnostic(source)).collect();
        Err(PolicyError::Invalid(diagnostics))
    }
}

/// The text of a file of the user; None when there is none.
pub(super) fn read_plain(file: &Path) -> Result<Option<String>, PolicyError> {
    read_file(file, Links::Follow)
}

const BUILT_IN: &str = "built-in:";

fn named(name: &str) -> Result<Loaded, PolicyError> {
    if let Some(text) = builtin::text(name) {
        return checked(format!("{BUILT_IN}{name}"), text.to_owned());
    }
    if is_file(name) {
        return find_file(Path::new(name));
    }
    let names = builtin_names();
    let help = match closest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("give a file, or one of {}", one_of(&names)),
    };
    Err(PolicyError::Unknown { name: name.chars().take(80).collect(), help })
}

fn is_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".yaml") || word.ends_with(".yml") || Path::new(word).exists()
}

fn builtin_names() -> Vec<&'static str> {
    builtin::POLICIES.iter().map(|(known, _)| *known).collect()
}

fn user_policy(request: &Search) -> Result<Loaded, PolicyError> {
    let file = request.config_home.join("agentsh").join("policy.yaml");
    if let Some(text) = read_file(&file, Links::Follow)? {
        return checked(file.display().to_string(), text);
    }
    refuse_yml(&file)?;
    let name = builtin::for_agent(&request.agent);
    checked(format!("{BUILT_IN}{name}"), builtin::text(name).unwrap_or_default().to_owned())
}

/// Who wrote a policy under the other usual ending believes that it is in force.
fn refuse_yml(file: &Path) -> Result<(), PolicyError> {
    let other = file.with_extension("yml");
    match other.symlink_metadata() {
        Ok(_) => Err(unreadable(&other, &format!("policies end in .yaml: rename it to {}", file.display()))),
        Err(_) => Ok(()),
    }
}

fn checked(file: String, text: String) -> Result<Loaded, PolicyError> {
    let policy = resolve::parse(&file, &text)?;
    Ok(Loaded { policy, file, text })
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
    utf8(bytes).map(Some).map_err(|why| unreadable(file, &why))
}

/// # Errors
/// The first line that is not UTF-8.
pub(super) fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

fn unreadable(file: &Path, why: &str) -> PolicyError {
    PolicyError::Unreadable { file: file.display().to_string(), why: why.to_owned() }
}
