//! Starts the user's own git outside, to ask what it reads for every repository and what the settings are.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use agentsh_sandbox::git_config::Entry;
use agentsh_sandbox::host::normalised_path;
use agentsh_sandbox::spec::GitEverywhere;

use super::git_cache::GitCache;
use super::git_settings::{Scope, Setting, Settings};
use super::{Context, host_programs};

/// Maximum size of one configuration, ignore file, or answer of git.
pub const MAX_BYTES: u64 = 256 << 10;
/// For one answer of git, which takes some milliseconds.
const GIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Options for a repository that a sandbox could write: no other objects, no cache of commits, no programs.
pub const OBEYS_NOTHING: &str =
    "--no-replace-objects -c core.commitGraph=false -c core.hooksPath=/dev/null -c core.fsmonitor=false";

/// Where every git of PATH looks for settings of all repositories, and what the environment adds. Besides the files
/// that exist now, also those that git would read if they existed.
#[must_use]
pub fn global_settings(context: &Context) -> GitEverywhere {
    let value = |name: &str| context.env.get(name).filter(|value| !value.is_empty());
    let mut files = BTreeSet::from([
        context.home.join(".gitconfig"),
        context.home.join(".config/git/config"),
        context.config.join("git/config"),
        "/etc/gitconfig".into(),
    ]);
    // A relative one counts from where git is started.
    let named = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].into_iter().filter_map(value);
    files.extend(named.flat_map(|path| {
        [&context.directory, &context.project].map(|directory| normalised_path(&directory.join(path)))
    }));
    let mut found = GitEverywhere::default();
    for program in host_programs::all(context, "git") {
        let git = Git { program, context };
        for (scope, setting) in git.outer_settings().unwrap_or_default() {
            match scope {
                // git was started in `/`.
                Scope::File(file) => drop(files.insert(normalised_path(&Path::new("/").join(file)))),
                Scope::Environment => found.said.add(setting.into_entry()),
            }
        }
    }
    found.said.hooks.extend(value("GIT_TEMPLATE_DIR").cloned());
    let programs =
        ["GIT_ASKPASS", "GIT_EDITOR", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_SSH", "GIT_SSH_COMMAND"];
    found.said.programs.extend(programs.into_iter().filter_map(value).cloned());
    found.files = files.into_iter().collect();
    found
}

impl Setting {
    fn into_entry(self) -> Entry {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let Self { section, subsection, key, value } = self;
        Entry { section, subsection: subsection.map(text), key, value: value.map(text) }
    }
}

/// The user's own git, outside.
pub struct Git<'a> {
    program: PathBuf,
    context: &'a Context,
}

impl<'a> Git<'a> {
    /// None if there is no git, or only one that a sandbox could have written.
    pub fn find(context: &'a Context) -> Option<Self> {
        Some(Self { program: host_programs::find(context, "git")?, context })
    }

    /// The settings of the machine, the user and the environment, in git's order; of those that are not harmless, only the
    /// location. Asked once in a session. None: git does not list them (before version 2.26).
    pub fn outer_settings(&self) -> Option<Settings> {
        let mut known = self.context.git_says.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = known.get(&self.program) {
            return said.clone();
        }
        let answers = GitCache::of(self.context, &self.program);
        let said = answers.cached_settings().or_else(|| {
            let said = self.ask_top();
            if let Some(said) = &said {
                answers.keep(said, |variable| self.variable(variable));
            }
            said
        });
        known.insert(self.program.clone(), said.clone());
        said
    }

    /// One file on each line. None: this git does not report it (before version 2.42), or has none.
    fn variable(&self, name: &str) -> Option<Vec<PathBuf>> {
        let said = self.ask(&["var", name].map(OsString::from), Path::new("/"))?;
        let lines = said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Some(lines.map(|line| PathBuf::from(OsStr::from_bytes(line))).collect())
    }

    fn ask_top(&self) -> Option<Settings> {
        let words = ["config", "-z", "--list", "--show-scope", "--show-origin", "--no-includes"];
        let said = self.ask(&words.map(OsString::from), Path::new("/"))?;
        let parts: Vec<&[u8]> = said.split(|byte| *byte == 0).collect();
        let read = |three: &[&[u8]]| {
            let [scope, origin, setting] = three else { return None };
            let scope = match *scope {
                b"system" | b"global" => {
                    Scope::File(OsStr::from_bytes(origin.strip_prefix(b"file:")?).into())
                }
                b"command" => Scope::Environment,
                _ => return None,
            };
            Some((scope, setting_of(setting)?))
        };
        Some(parts.chunks_exact(3).filter_map(read).collect())
    }

    /// The settings of one file. A file that cannot be read has none.
    pub fn file(&self, path: &Path) -> Vec<Setting> {
        let words = ["config", "-z", "--list", "--no-includes", "--file"].map(OsString::from);
        let words: Vec<OsString> = words.into_iter().chain([path.into()]).collect();
        let said = self.ask(&words, Path::new("/")).unwrap_or_default();
        said.split(|byte| *byte == 0).filter_map(setting_of).collect()
    }

    /// The value in force in a directory, from the machine's and the user's configuration, with all conditions. None: not set.
    pub fn effective_value(&self, directory: &Path, section: &str, key: &str) -> Option<Vec<u8>> {
        let words = ["config", "-z", "--show-scope", "--includes", "--get-all"].map(OsString::from);
        let words: Vec<OsString> = words.into_iter().chain([format!("{section}.{key}").into()]).collect();
        let said = self.ask(&words, directory)?;
        let parts: Vec<&[u8]> = said.split(|byte| *byte == 0).collect();
        let mut of_user = parts.chunks_exact(2).filter(|pair| matches!(pair[0], b"system" | b"global"));
        of_user.next_back().map(|pair| pair[1].to_vec())
    }

    /// The output of git, if it succeeds in time.
    pub fn ask(&self, words: &[OsString], directory: &Path) -> Option<Vec<u8>> {
        self.ask_for(words, directory, MAX_BYTES)
    }

    /// Like [`Git::ask`], with an output of at most `most` bytes.
    pub fn ask_for(&self, words: &[OsString], directory: &Path, most: u64) -> Option<Vec<u8>> {
        let mut env = host_programs::environment(self.context);
        // Variables about another repository are not part of the user's configuration.
        env.retain(|name, _| {
            !matches!(
                name.as_str(),
                "GIT_CONFIG" | "GIT_DIR" | "GIT_WORK_TREE" | "GIT_COMMON_DIR" | "GIT_TRACE"
            )
        });
        // A repository's configuration may make git fetch, write, or show other commits than those that are there.
        let own =
            [("NO_LAZY_FETCH", "1"), ("ALLOW_PROTOCOL", ""), ("OPTIONAL_LOCKS", "0"), ("GRAFT_FILE", "")];
        env.extend(own.map(|(name, value)| (format!("GIT_{name}"), value.to_owned())));
        let mut command = host_programs::command(&self.program, &env);
        command.args(words).current_dir(directory).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let said = child.stdout.take().and_then(|stdout| read_within(stdout, most, GIT_TIMEOUT).ok());
        if said.is_none() {
            // It may have ended already.
            let _ = child.kill();
        }
        child.wait().ok().filter(std::process::ExitStatus::success).and(said)
    }
}

/// Reads all bytes that arrive within this time.
fn read_within(mut from: impl Read + AsFd, most: u64, time: Duration) -> io::Result<Vec<u8>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let end = Instant::now() + time;
    let mut said = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut wanted = [PollFd::new(&from, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut wanted, Some(&left)))? == 0 || said.len() as u64 > most {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut some = [0; 4096];
        match from.read(&mut some)? {
            0 => return Ok(said),
            read => said.extend_from_slice(some.get(..read).unwrap_or_default()),
        }
    }
}

/// `section.sub.section.key`, followed by a line break and the value.
pub fn setting_of(said: &[u8]) -> Option<Setting> {
    let (name, value) = match said.iter().position(|byte| *byte == b'\n') {
        Some(end) => (said.get(..end)?, Some(said.get(end + 1..)?.to_vec())),
        None => (said, None),
    };
    let first = name.iter().position(|byte| *byte == b'.')?;
    let last = name.iter().rposition(|byte| *byte == b'.')?;
    let text = |bytes: Option<&[u8]>| Some(std::str::from_utf8(bytes?).ok()?.to_ascii_lowercase());
    let subsection = if first < last { Some(name.get(first + 1..last)?.to_vec()) } else { None };
    Some(Setting { section: text(name.get(..first))?, subsection, key: text(name.get(last + 1..))?, value })
}
