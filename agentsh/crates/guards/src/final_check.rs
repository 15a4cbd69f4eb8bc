//! The check after all processes of a sandbox have ended: nothing appears after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::baseline::Baseline;
use super::crash_recovery::CrashMarker;
use super::{changed_instructions, disarm_new, restore};
use agentsh_base::remedy::Allow;
use agentsh_host::copies::Copy;
use agentsh_host::undo::{SavedVersions, forget_old};
use agentsh_policy::builtin_paths;
use agentsh_sandbox::host::RealHost;
use agentsh_sandbox::stubs;
use agentsh_store::words::GuardChange;

/// What stood before the start, and where to look.
pub struct FinalCheck {
    /// Shown paths are relative to it.
    pub project: PathBuf,
    pub baseline: Baseline,
    /// Searched for repositories.
    pub directories: Vec<PathBuf>,
    /// Directories that may have instruction files at their top.
    pub instructed: BTreeSet<PathBuf>,
    pub instructions: BTreeMap<PathBuf, (Copy, &'static str)>,
    /// Guarded files that nothing protected while the sandbox ran.
    pub unprotected: BTreeMap<PathBuf, Copy>,
    pub state: PathBuf,
    pub aside: SavedVersions,
    pub host: RealHost,
    /// Removed when the check is done.
    pub unfinished: CrashMarker,
}

impl FinalCheck {
    /// `is_settled`: what appeared at a path was decided during the run.
    pub fn run(
        self,
        is_settled: impl Fn(&Path, &Copy) -> bool,
        say: &mut dyn FnMut(&Path, GuardChange, String),
    ) {
        restore::restore(&self.unprotected, &self.aside, say);
        self.look_for_new_repositories(say);
        for path in self.baseline.arrivals() {
            let copy = Copy::of_own(&path);
            let is_stub = copy.is_nothing() && stubs::is_stub(&self.state, &path);
            if !is_stub && !is_settled(&path, &copy) {
                say(
                    &path,
                    GuardChange::SetAside,
                    set_aside_arrival(&self.project, &path, &copy, &self.aside, self.baseline.why(&path)),
                );
            }
        }
        let now = changed_instructions::instructions(&self.instructed, &self.host);
        for change in changed_instructions::compare(&self.instructions, &now) {
            // Without a copy, the difference still shows it.
            let _ = self.aside.keep(&change.path, &change.before);
            say(&change.path, GuardChange::Instructions, change.text);
        }
        forget_old(&self.state);
        drop(self.unfinished);
    }

    fn look_for_new_repositories(&self, say: &mut dyn FnMut(&Path, GuardChange, String)) {
        /// Limit of reported repositories without set-aside files.
        const MAX_REPORTED: usize = 20;
        let mut untold = 0_usize;
        let mut told = 0;
        for (entry, done) in disarm_new::disarm_all(&self.directories, &self.baseline, &self.aside) {
            let text = match done.is_empty() {
                true if told >= MAX_REPORTED => {
                    untold += 1;
                    continue;
                }
                true => {
                    told += 1;
                    format!("new repository: {}", entry.display())
                }
                false => set_aside(&entry, &done),
            };
            say(&entry, GuardChange::NewRepository, text);
        }
        if untold > 0 {
            let text = format!("and {untold} more new repositories, in which nothing had to be set aside");
            say(&self.project, GuardChange::NewRepository, text);
        }
    }
}

/// Moves an automatically run file that was created inside out of the way. Returns what to say.
pub fn set_aside_arrival(
    project: &Path,
    path: &Path,
    copy: &Copy,
    aside: &SavedVersions,
    why: Option<&str>,
) -> String {
    let shown = path.strip_prefix(project).unwrap_or(path).display().to_string();
    match disarm_new::move_away(path, copy, aside) {
        Ok(()) => arrived(&shown, path, why),
        Err(error) => format!(
            "{shown} was created inside and could not be set aside ({error}): check it before you use it"
        ),
    }
}

pub fn set_aside(entry: &Path, done: &[String]) -> String {
    format!(
        "new repository: {}; files that would run automatically were set aside (`agentsh undo FILE` restores \
         them): {}",
        entry.display(),
        done.join("; ")
    )
}

/// The message about a file that appeared and was set aside; `why` where no table says it.
pub fn arrived(shown: &str, path: &Path, why: Option<&str>) -> String {
    let mut parts = path.ancestors().skip(1).take(2).filter_map(|above| path.strip_prefix(above).ok());
    let entry = parts.find_map(|part| builtin_paths::guarded(part.to_str()?, true));
    let mut nested = builtin_paths::NESTED_READ_ONLY.iter();
    let nested = nested.find(|(name, _)| path.ancestors().any(|above| above.ends_with(name)));
    let of_table = entry.map(|entry| entry.why).or(nested.map(|(_, why)| *why));
    let why = why.or(of_table).unwrap_or("runs automatically");
    let allow = Allow { write: true, words: vec![path.display().to_string()], ..Allow::default() };
    let allow = allow.line().map(|line| format!("; to let the agent make it: `{line}`")).unwrap_or_default();
    format!(
        "{shown} was created during the run and set aside ({why}); `agentsh undo {}` restores it{allow}",
        path.display()
    )
}
