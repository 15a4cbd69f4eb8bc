//! The statement: an in-toto Statement v1 whose subjects are commits and their trees, or files. It has one canonical
//! form: the fields in the order here, without white space; any other form is refused.
//!
//! It contains no arguments, no values of variables, and no paths except the names of files that are its subjects. Fields that were
//! added after the first version are left out if they are empty, so that older signed statements keep their canonical form.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "urn:agentsh:receipt:1";
const COMMIT: (&str, &str) = ("commit", "gitCommit");
const TREE: (&str, &str) = ("tree", "gitTree");
const FILE: &str = "sha256";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    pub subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    pub predicate: Predicate,
}

/// A commit, the tree of one, or a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The word for it and its digest, so that no two have the same; of a file its path in the project.
    pub name: String,
    pub digest: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    /// The version that wrote the receipt.
    pub agentsh: String,
    pub issued: Timestamp,
    pub binding: Binding,
    pub session: Session,
    pub record: Chain,
    pub policy: Vec<Layered>,
    pub organisation: Vec<Organisation>,
    pub layers: Vec<Layer>,
    pub programs: Vec<Program>,
    pub servers: Vec<Server>,
    pub hosts: Vec<Host>,
    pub tools: Vec<Tool>,
    pub refusals: Vec<Refusal>,
    pub approvals: Vec<Approval>,
    pub models: Vec<Model>,
    /// Files that were removed, where its subjects are files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Commits between the ends of the session that are dated before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattributed: Option<Unattributed>,
    /// The additional contents that the signer requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included: Vec<Included>,
}

/// How the subjects came to be those of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// The record has the repository's commits at both ends of the session; they are in between, and not older. Or they are
    /// the files that a review applied.
    Record,
    /// The signer asserts it.
    Signer,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    pub id: String,
    /// The version of agentsh.
    pub version: String,
    pub verb: String,
    /// The name of the program.
    pub agent: String,
    pub kernel: String,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub exit_code: u8,
}

/// The hash chain of the session's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    pub events: u64,
    /// `sha256:` of the last event, which covers all earlier ones.
    pub head: String,
}

/// One file of the policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layered {
    pub name: String,
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Organisation {
    pub name: String,
    pub version: Option<u64>,
    pub state: String,
}

/// One layer of one sandbox, as enforced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// None: it holds for the agent's sandbox, or for all.
    pub server: Option<String>,
    pub layer: String,
    /// `enforced`, `degraded` or `absent`.
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub server: Option<String>,
    pub name: String,
    pub digest: String,
    pub starts: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub id: String,
    /// `known`, `first-use`, `not-pinned` or `changed`.
    pub pin: String,
    /// The hash of its interface at a registry, and the registry's verdict.
    pub interface: Option<String>,
    pub registry: Option<String>,
    /// SHA-256 of a line `HASH NAME` for each tool that it listed, by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definitions: Option<String>,
    /// The profile of its package, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Layered>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    pub name: String,
    pub port: u16,
    pub connections: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub server: String,
    pub tool: String,
    pub calls: u64,
    pub refused: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The type of the event.
    pub what: String,
    pub reason: String,
    pub rule: String,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    pub server: String,
    pub name: String,
    /// `approved`, `denied`, `timed-out` or `withdrawn`.
    pub word: String,
    /// `once`, `session` or `always`.
    pub scope: Option<String>,
    /// Empty if nobody answered.
    pub by: String,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub model: String,
    pub answers: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// Commits that came to the branch during the session and whose maker is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unattributed {
    pub count: u64,
    /// The newest of them.
    pub commits: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Included {
    /// `addresses`, `arguments` or `files`.
    pub what: String,
    pub name: String,
    pub count: u64,
}

impl Statement {
    /// About these commits, each with its tree.
    #[must_use]
    pub fn new(commits: &[(String, String)], predicate: Predicate) -> Self {
        let mut subject = Vec::new();
        for (commit, tree) in commits {
            for one in [Subject::new(COMMIT, commit), Subject::new(TREE, tree)] {
                if !subject.contains(&one) {
                    subject.push(one);
                }
            }
        }
        Self { kind: STATEMENT.to_owned(), subject, predicate_type: PREDICATE.to_owned(), predicate }
    }

    /// About files: paths in the project, and SHA-256 of each.
    #[must_use]
    pub fn of_files(files: impl IntoIterator<Item = (String, String)>, predicate: Predicate) -> Self {
        let subject = |(name, digest)| Subject { name, digest: BTreeMap::from([(FILE.to_owned(), digest)]) };
        Self { subject: files.into_iter().map(subject).collect(), ..Self::new(&[], predicate) }
    }

    /// The one spelling.
    ///
    /// # Errors
    /// Never for what [`Statement::read`] gave.
    pub fn text(&self) -> Result<String, String> {
        self.fault()?;
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let read: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if read.text()? != text {
            return Err("it is not in agentsh's canonical form".to_owned());
        }
        Ok(read)
    }

    fn fault(&self) -> Result<(), String> {
        if (self.kind.as_str(), self.predicate_type.as_str()) != (STATEMENT, PREDICATE) {
            return Err(format!("it is not a {STATEMENT} with a {PREDICATE}"));
        }
        let is_file = |one: &Subject| {
            let digest = one.digest.get(FILE).filter(|digest| digest.len() == 64 && is_digest(digest));
            digest.is_some() && one.digest.len() == 1 && is_below(&one.name)
        };
        if !self.subject.is_empty() && self.subject.iter().all(is_file) {
            let is_sorted = self.subject.is_sorted_by(|one, next| one.name < next.name);
            let is_whole = is_sorted && self.predicate.removed.iter().all(|name| is_below(name));
            return if is_whole { Ok(()) } else { Err("its files are not in order".to_owned()) };
        }
        if self.digests(COMMIT).next().is_none() {
            return Err("it names no commit and no file".to_owned());
        }
        if !self.predicate.removed.is_empty() {
            return Err("it names removed files, and is about commits".to_owned());
        }
        let is_whole = |one: &Subject| {
            [COMMIT, TREE].into_iter().any(|kind| {
                let digest = one.digest.get(kind.1).filter(|digest| is_digest(digest));
                digest.is_some_and(|digest| *one == Subject::new(kind, digest))
            })
        };
        match self.subject.iter().all(is_whole) {
            true => Ok(()),
            false => Err("one of its subjects is neither a commit nor a tree".to_owned()),
        }
    }

    fn digests(&self, kind: (&str, &'static str)) -> impl Iterator<Item = &str> {
        self.subject.iter().filter_map(move |one| one.digest.get(kind.1)).map(String::as_str)
    }

    /// The commits that it is about.
    pub fn commits(&self) -> impl Iterator<Item = &str> {
        self.digests(COMMIT)
    }

    /// The files that it is about, each with its SHA-256, or None if it was removed. Empty if it is about commits.
    pub fn files(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let named = self
            .subject
            .iter()
            .filter_map(|one| Some((one.name.as_str(), Some(one.digest.get(FILE)?.as_str()))));
        named.chain(self.predicate.removed.iter().map(|name| (name.as_str(), None)))
    }

    /// Whether it is about this commit with this tree.
    ///
    /// # Errors
    /// A sentence, where it is not.
    pub fn check_commit(&self, commit: &str, tree: &str) -> Result<(), String> {
        if !self.commits().any(|named| named == commit) {
            let own = self.commits().next().unwrap_or_default();
            let more = self.commits().count().saturating_sub(1);
            return Err(format!("it is not about commit {commit}, but about {own} and {more} more"));
        }
        match self.digests(TREE).any(|named| named == tree) {
            true => Ok(()),
            false => Err(format!("commit {commit} has the tree {tree} here, which it does not name")),
        }
    }
}

impl Subject {
    fn new((word, algorithm): (&str, &str), digest: &str) -> Self {
        let digest = digest.to_owned();
        Self { name: format!("{word} {digest}"), digest: BTreeMap::from([(algorithm.to_owned(), digest)]) }
    }
}

/// Whether a path leads to nowhere but below where it is looked up.
fn is_below(path: &str) -> bool {
    let mut parts = Path::new(path).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn is_digest(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
