//! Finds the policy in force. The only module here that reads the disk.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use agentsh_base::{remedy, users_files};

use crate::missing::is_missing;

use jiff::Timestamp;

use super::builtin;
use super::bundle::Bundle;
use super::diagnostic::{Diagnostic, PolicyError, Source, closest, one_of};
use super::explain::Answer;
use super::flags::Flags;
use super::model::{PolicyTest, Ruled, WrittenLayer};
use super::organisation::{self, InForce, Organisation};
use super::path::PathContext;
use super::profile::{self, ServerProfile};
use super::read::{Extends, RawPolicy};
use super::sections::Policy;
use super::{narrow, read, tests};
use crate::types::RuleRef;

/// Larger files are refused unread.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file that a project can narrow its policy with.
pub const PROJECT_FILE: &str = ".agentsh.yaml";

/// Permanent approvals of the user, next to the policy. Written by `agentsh approvals approve --always`.
pub const APPROVED_FILE: &str = "approved.yaml";

/// The machine's policy, below the user's.
pub const SYSTEM_FILE: &str = "/etc/agentsh/policy.yaml";

/// The places in which agentsh looks for the layers of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// `--policy`: a file, or the name of a built-in policy, which then is the only one.
    pub explicit: Option<String>,
    pub project: PathBuf,
    /// `$XDG_CONFIG_HOME`, by default `~/.config`.
    pub config_home: PathBuf,
    /// [`SYSTEM_FILE`].
    pub system: PathBuf,
    /// The directory with the bundle of the user's organisation: `$XDG_STATE_HOME/agentsh`.
    pub state: PathBuf,
    /// Name of the agent's adapter; decides which built-in policy is the lowest layer.
    pub agent: String,
    /// The additions of the command line.
    pub flags: Flags,
    /// A file of the user or the project, and the text that it would have: what that would change is asked before it is
    /// written.
    pub proposed: Option<(PathBuf, String)>,
}

impl Search {
    /// The text of a layer; None when there is no such file.
    fn read(&self, file: &Path, links: Links) -> Result<Option<String>, PolicyError> {
        match &self.proposed {
            Some((proposed, text)) if proposed == file => Ok(Some(text.clone())),
            _ => read_file(file, links),
        }
    }
}

/// A policy that was found and checked, with its text for messages. Its own tests have not run yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub policy: Policy,
    /// The highest file, for people.
    pub file: String,
    stages: Vec<Stage>,
}

/// A file with tests, and the policy up to it.
#[derive(Clone, Debug, PartialEq)]
struct Stage {
    file: String,
    text: String,
    policy: Policy,
}

/// One file that is merged over others.
pub(super) struct Layer {
    pub file: String,
    pub text: String,
    pub raw: RawPolicy,
    /// Its name.
    word: &'static str,
}

/// Finds, reads and checks the layers of a session's policy, lays them over each other, and runs their tests.
///
/// From the lowest: the built-in policy of the agent, the organisation's bundle, the machine's file, the user's, what the user approved for good, what `--policy` names, the
/// project's `.agentsh.yaml`, which can only take away, and what the command line adds.
///
/// # Errors
/// When a file is there and cannot be read or used, when a project asks for more than it has, and when a test of
/// the policy fails.
pub fn load(request: &Search) -> Result<Policy, PolicyError> {
    find(request)?.tested(&request.project)
}

/// Like [`load`], without running the tests.
///
/// # Errors
/// Like [`load`].
pub fn find(request: &Search) -> Result<Loaded, PolicyError> {
    let organisation = Organisation::find(&request.system, &request.config_home, &request.state)?;
    let in_force = organisation.map(|organisation| organisation.in_force(Timestamp::now())).transpose()?;
    find_under(request, in_force)
}

/// Like [`find`], with this bundle instead of the one in force.
///
/// # Errors
/// Like [`find`].
pub fn find_with(request: &Search, bundle: &Bundle) -> Result<Loaded, PolicyError> {
    let standing = bundle.standing(Timestamp::now(), None);
    find_under(request, Some((bundle.clone(), standing)))
}

fn find_under(request: &Search, organisation: Option<(Bundle, InForce)>) -> Result<Loaded, PolicyError> {
    let locks = organisation.as_ref().map(|(_, found)| found.locks.clone()).unwrap_or_default();
    let (base, mut layers) = match &request.explicit {
        Some(name) if builtin::text(name).is_some() => {
            if !locks.is_empty() {
                let why = format!(
                    "it would leave out {}, which your organisation locks",
                    organisation::paths(&locks)
                );
                return Err(PolicyError::Flag { flag: format!("--policy {name}"), why });
            }
            (name.as_str(), Vec::new())
        }
        explicit => {
            let user = request.config_home.join("agentsh").join("policy.yaml");
            let mut layers = Vec::new();
            let approved = request.config_home.join("agentsh").join(APPROVED_FILE);
            for (file, word) in [(&request.system, "machine"), (&user, "user"), (&approved, APPROVED)] {
                layers.extend(own_layer(file, request)?.map(|layer| Layer { word, ..layer }));
            }
            if let Some(word) = explicit {
                layers.push(named_layer(word, request)?);
            }
            (builtin::for_agent(&request.agent), layers)
        }
    };
    let mut loaded = match &organisation {
        None => merge_key(base, layers)?,
        Some((bundle, _)) if locks.is_empty() => {
            layers.insert(0, Layer { word: ORGANISATION, ..bundle.layer()? });
            merge_key(base, layers)?
        }
        Some((bundle, _)) => with_organisation(base, bundle, layers)?,
    };
    loaded.policy.organisation = organisation.map(|(_, found)| found);
    let explicit = request.explicit.as_ref().filter(|word| is_file(word));
    narrow_by_project(&mut loaded, request, explicit)?;
    request.flags.merge_over(&mut loaded.policy, request)?;
    loaded.policy.find_warnings();
    Ok(loaded)
}

/// The built-in policy, the organisation's over it, and over those the others, as far as it lets them.
pub(super) fn with_organisation(
    base: &str,
    bundle: &Bundle,
    layers: Vec<Layer>,
) -> Result<Loaded, PolicyError> {
    let base = if base.is_empty() { builtin::for_agent("") } else { base };
    let mut loaded = merge_key(base, vec![Layer { word: ORGANISATION, ..bundle.layer()? }])?;
    for Layer { file, text, raw, word } in layers {
        let source = Source { name: &file, text: &text };
        let policy = &mut loaded.policy;
        let before = policy.clone();
        policy.tests.clear();
        match narrow::merge_narrowed(policy, &raw, &bundle.locks, source) {
            Ok(()) => {}
            // agentsh wrote this file, and it was valid then: it must not prevent every start.
            Err(problems) if word == APPROVED => {
                *policy = before;
                policy.tests.clear();
                for problem in problems {
                    let rule = RuleRef { id: APPROVED.to_owned(), file: file.clone(), line: problem.line };
                    let value = format!("not in force: {}", problem.message);
                    policy.warnings.push(Ruled { value, rule });
                }
            }
            Err(problems) => return Err(PolicyError::Invalid(problems)),
        }
        policy.source = format!("{} + {file}", policy.source);
        policy.layers.insert(file.clone(), WrittenLayer::new(word, &text));
        if !policy.tests.is_empty() {
            loaded.stages.push(Stage { file: file.clone(), text, policy: policy.clone() });
        }
        loaded.file = file;
    }
    loaded.policy.find_warnings();
    Ok(loaded)
}

/// Names of layers.
const ORGANISATION: &str = "organisation";
const APPROVED: &str = "approved";

/// The built-in policy and the layers over it. A layer that names another base drops those before it.
pub(super) fn merge_key(base: &str, mut layers: Vec<Layer>) -> Result<Loaded, PolicyError> {
    let start = layers.iter().rposition(|layer| layer.raw.extends != Extends::Below).unwrap_or(0);
    layers.drain(..start);
    let base = match layers.first().map(|layer| &layer.raw.extends) {
        Some(Extends::Nothing(_)) => None,
        Some(Extends::BuiltIn(name, _)) => Some(*name),
        Some(Extends::Below) | None => Some(base),
    };
    if let Some(name) = base {
        layers.insert(0, built_in_layer(name)?);
    }
    let mut policy = Policy::nothing();
    let mut stages = Vec::new();
    let names: Vec<&str> = layers.iter().map(|layer| layer.file.as_str()).collect();
    policy.source = names.join(" + ");
    let count = layers.len();
    for Layer { file, text, raw, word } in layers {
        raw.merge(&mut policy);
        policy.layers.insert(file.clone(), WrittenLayer::new(word, &text));
        let is_others = base.is_some() && count > 1 && file.starts_with(BUILT_IN);
        if !policy.tests.is_empty() && !is_others {
            stages.push(Stage { file: file.clone(), text, policy: policy.clone() });
        }
    }
    policy.find_warnings();
    let file = names_last(&policy.source);
    Ok(Loaded { policy, file, stages })
}

/// Applies the restrictions of the project's `.agentsh.yaml`.
fn narrow_by_project(
    loaded: &mut Loaded,
    request: &Search,
    explicit: Option<&String>,
) -> Result<(), PolicyError> {
    let path = request.project.join(PROJECT_FILE);
    // The user named it, so it counts as the user's policy and not the project's.
    let is_same = |word: &String| std::fs::canonicalize(word).ok() == std::fs::canonicalize(&path).ok();
    if path.exists() && explicit.is_some_and(is_same) {
        return Ok(());
    }
    // An empty file takes nothing away: it may be the stub of another run.
    let text = request.read(&path, Links::Refuse)?.filter(|text| !text.trim().is_empty());
    let Some(text) = text else { return refuse_yml(&path) };
    let file = path.display().to_string();
    let source = Source { name: &file, text: &text };
    let raw = read::read(source, false).map_err(PolicyError::Invalid)?;
    loaded.policy.tests.clear();
    let narrowed = narrow::narrow(loaded.policy.clone(), &raw, source).map_err(PolicyError::Invalid)?;
    loaded.policy = narrowed;
    loaded.policy.layers.insert(file.clone(), WrittenLayer::new("project", &text));
    if !loaded.policy.tests.is_empty() {
        loaded.stages.push(Stage { file: file.clone(), text, policy: loaded.policy.clone() });
    }
    loaded.file = file;
    Ok(())
}

fn names_last(source: &str) -> String {
    source.rsplit(" + ").next().unwrap_or_default().to_owned()
}

pub(super) fn layer(file: String, text: String) -> Result<Layer, PolicyError> {
    let bare = file.starts_with(BUILT_IN);
    let raw = read::read(Source { name: &file, text: &text }, bare).map_err(PolicyError::Invalid)?;
    let word = if bare { "built-in" } else { "named" };
    Ok(Layer { file, text, raw, word })
}

fn built_in_layer(name: &str) -> Result<Layer, PolicyError> {
    layer(format!("{BUILT_IN}{name}"), builtin::text(name).unwrap_or_default().to_owned())
}

/// A layer, if its file exists.
fn own_layer(file: &Path, request: &Search) -> Result<Option<Layer>, PolicyError> {
    if file.as_os_str().is_empty() {
        return Ok(None);
    }
    match request.read(file, Links::Follow)? {
        Some(text) => layer(file.display().to_string(), text).map(Some),
        None => refuse_yml(file).map(|()| None),
    }
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
/// Like [`load`]; also when there is neither.
pub fn find_named(word: &str, config_home: &Path) -> Result<Named, PolicyError> {
    if is_file(word) {
        let file = Path::new(word);
        let text =
            read_file(file, Links::Follow)?.ok_or_else(|| unreadable(file, "there is no such file"))?;
        return match profile::parse(word, &text)? {
            Some(profile) => Ok(Named::Profile(Box::new(profile))),
            None => {
                let layers = vec![layer(word.to_owned(), text)?];
                Ok(Named::Policy(Box::new(merge_key(builtin::for_agent(""), layers)?)))
            }
        };
    }
    if builtin::text(word).is_some() {
        return merge_key(word, Vec::new()).map(|loaded| Named::Policy(Box::new(loaded)));
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

impl Loaded {
    /// Every test of every layer, with its answer, in the order of the layers.
    #[must_use]
    pub fn answers(&self, project: &Path) -> Vec<(PolicyTest, Answer)> {
        let of = |stage: &Stage| -> Vec<(PolicyTest, Answer)> {
            let context = test_context(&stage.file, project);
            let ask = |test: &PolicyTest| {
                (test.clone(), stage.policy.ask(test.from.as_ref(), &test.question, &context))
            };
            stage.policy.tests.iter().map(ask).collect()
        };
        self.stages.iter().flat_map(of).collect()
    }

    /// The policy, when all its tests have the answers that they expect.
    ///
    /// # Errors
    /// [`PolicyError::Invalid`] with one mistake per failed test.
    pub fn tested(self, project: &Path) -> Result<Policy, PolicyError> {
        for stage in &self.stages {
            let failures = tests::run(&stage.policy, &test_context(&stage.file, project));
            let source = Source { name: &stage.file, text: &stage.text };
            let mistakes: Vec<Diagnostic> =
                failures.iter().map(|failure| failure.diagnostic(source)).collect();
            if !mistakes.is_empty() {
                return Err(PolicyError::Invalid(mistakes));
            }
        }
        Ok(self.policy)
    }
}

/// The values of `~` and the project for a file's tests. A built-in policy has a fixed context, because it must not be valid
/// only in some projects.
fn test_context(file: &str, project: &Path) -> PathContext {
    if file.starts_with(BUILT_IN) {
        return PathContext { home: "/home/user".into(), project: "/home/user/src/project".into() };
    }
    let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"));
    PathContext { home, project: project.to_owned() }
}

/// The text of a file of the user; None when there is none.
pub(super) fn read_plain(file: &Path) -> Result<Option<String>, PolicyError> {
    read_file(file, Links::Follow)
}

const BUILT_IN: &str = "built-in:";
/// How messages call a file that is read here.
const IN_FORCE: &str = "a policy or profile in force";

/// The file that `--policy` names.
fn named_layer(name: &str, request: &Search) -> Result<Layer, PolicyError> {
    if is_file(name) {
        let file = Path::new(name);
        let text =
            request.read(file, Links::Follow)?.ok_or_else(|| unreadable(file, "there is no such file"))?;
        if request.proposed.is_none() {
            users_files::judged(file, IN_FORCE, text.as_bytes()).map_err(|why| unreadable(file, &why))?;
        }
        return layer(name.to_owned(), text);
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

/// A policy with the other usual ending would silently not be in force, so it is an error.
fn refuse_yml(file: &Path) -> Result<(), PolicyError> {
    let other = file.with_extension("yml");
    match other.symlink_metadata() {
        Ok(_) => Err(unreadable(&other, &format!("policies end in .yaml: rename it to {}", file.display()))),
        Err(_) => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Follow,
    /// The project may be hostile: its policy must be a regular file, not a link to another one.
    Refuse,
}

/// None when there is no such file. Never waits: a pipe in its place is refused.
fn read_file(file: &Path, links: Links) -> Result<Option<String>, PolicyError> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | if links == Links::Refuse { libc::O_NOFOLLOW } else { 0 };
    let opened = match OpenOptions::new().read(true).custom_flags(flags).open(file) {
        Ok(opened) => opened,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) && links == Links::Refuse => {
            let why = "it is a symbolic link; a project's policy must be a plain file";
            return Err(unreadable(file, &format!("{why}{}", without(file))));
        }
        Err(error) => return Err(unreadable(file, &error.to_string())),
    };
    if links == Links::Follow {
        users_files::note(file, IN_FORCE);
    }
    let meta = opened.metadata().map_err(|error| unreadable(file, &error.to_string()))?;
    if !meta.is_file() {
        let remedy = if links == Links::Refuse { without(file) } else { String::new() };
        return Err(unreadable(file, &format!("it is not a plain file{remedy}")));
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

/// The command that moves the project's policy away, as advice.
fn without(file: &Path) -> String {
    let aside = file.with_extension("yaml.aside");
    let typed = |path: &Path| remedy::typed(&path.to_string_lossy()).map(std::borrow::Cow::into_owned);
    let both = typed(file).zip(typed(&aside));
    both.map_or_else(String::new, |(file, aside)| format!("; to start without it: `mv {file} {aside}`"))
}

fn unreadable(file: &Path, why: &str) -> PolicyError {
    PolicyError::Unreadable { file: file.display().to_string(), why: why.to_owned() }
}
