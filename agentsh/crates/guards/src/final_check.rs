//! The check after all processes of a sandbox have ended: nothing appears after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::baseline::{Baseline, MovedDirectory, Stored, path_now};
use super::changed_instructions::{self, Instructions, Nested};
use super::disarm_new::{self, DisarmOutcome};
use super::restore;
use agentsh_base::remedy::{Allow, typed};
use agentsh_host::copies::Copy;
use agentsh_host::undo::{SavedVersions, forget_old};
use agentsh_host::{project_sources, repositories};
use agentsh_policy::builtin_paths;
use agentsh_sandbox::host::RealHost;
use agentsh_sandbox::stubs;
use agentsh_store::words::GuardChange;

/// What existed before the start, and where to look.
pub struct FinalCheck {
    /// Shown paths are relative to it.
    pub project: PathBuf,
    pub baseline: Baseline,
    /// Searched for repositories.
    pub directories: Vec<PathBuf>,
    /// Directories that may have instruction files at their top. None if their former content is unknown.
    pub instructed: BTreeSet<PathBuf>,
    pub instructions: Instructions,
    /// Instruction files further below.
    pub nested: Nested,
    /// Guarded files that nothing protected while the sandbox ran.
    pub unprotected: BTreeMap<PathBuf, Copy>,
    pub state: PathBuf,
    pub aside: SavedVersions,
    pub host: RealHost,
}

impl FinalCheck {
    /// Without instruction files, because their former content is unknown.
    pub fn of(state: &Path, session: &str, directories: Vec<PathBuf>, baseline: Baseline) -> Self {
        Self {
            project: PathBuf::new(),
            baseline,
            directories,
            instructed: BTreeSet::new(),
            instructions: BTreeMap::new(),
            nested: BTreeMap::new(),
            unprotected: BTreeMap::new(),
            aside: SavedVersions::new(state, session),
            state: state.to_owned(),
            host: RealHost::default(),
        }
    }

    /// The check of these moved directories only, at their present paths.
    pub fn with_current_paths(self, moved: &[MovedDirectory]) -> Self {
        let directories: Vec<PathBuf> = moved.iter().map(|moved| moved.to.clone()).collect();
        let now = |path| {
            let path = path_now(path, moved);
            directories.iter().any(|root| path.starts_with(root)).then_some(path)
        };
        let instructions = self.instructions.into_iter();
        let unprotected = self.unprotected.into_iter();
        Self {
            project: path_now(self.project, moved),
            baseline: Stored::from(self.baseline).with_current_paths(moved),
            instructed: self.instructed.into_iter().filter_map(now).collect(),
            nested: self.nested.into_iter().map(|(path, key)| (path_now(path, moved), key)).collect(),
            instructions: instructions.filter_map(|(path, what)| Some((now(path)?, what))).collect(),
            unprotected: unprotected.filter_map(|(path, copy)| Some((now(path)?, copy))).collect(),
            directories,
            ..self
        }
    }

    /// `is_settled`: what appeared at a path was decided during the run.
    pub fn run(
        self,
        is_settled: impl Fn(&Path, &Copy) -> bool,
        say: &mut dyn FnMut(&Path, GuardChange, String),
    ) {
        let configs = self.unprotected.iter().filter(|(path, _)| path.ends_with("config"));
        let added = configs.flat_map(|(path, was)| {
            let before = repositories::addresses_of(was.text().unwrap_or_default());
            let now = repositories::addresses_in(path.parent().unwrap_or(path)).into_iter();
            now.filter(move |address| !before.contains(address))
        });
        self.note_remotes(added, say);
        restore::restore(&self.unprotected, &self.aside, say);
        let mut obeyed_in = self.look_for_new_repositories(say);
        let is_there = |path: &PathBuf| self.directories.iter().any(|root| path.starts_with(root));
        for path in self.baseline.last_arrivals().into_iter().filter(is_there) {
            let (path, copy) = self.baseline.found_at(&path, &self.directories);
            if copy == Copy::Absent {
                continue;
            }
            let is_stub = copy.is_nothing() && stubs::is_stub(&self.state, &path);
            if !is_stub && !is_settled(&path, &copy) {
                let why = self.baseline.obeyed_reason(&path);
                let (what, text) = set_aside_arrival(&self.project, &path, &copy, &self.aside, why);
                say(&path, what, text);
            }
        }
        let mut now = changed_instructions::instructions(&self.instructed, &self.baseline, &self.host);
        now.retain(|path, _| !self.instructed.is_empty() && is_there(path));
        obeyed_in.retain(|directory| !self.instructed.is_empty() && !self.instructed.contains(directory));
        let below = changed_instructions::nested_instructions(&obeyed_in, &self.host);
        let below = changed_instructions::changed_below(&self.nested, &below);
        for change in changed_instructions::compare(&self.instructions, &now).into_iter().chain(below) {
            // If no copy can be kept, the report still shows the difference.
            let _ = self.aside.keep(&change.path, &change.before);
            say(&change.path, GuardChange::Instructions, change.text);
        }
        forget_old(&self.state);
    }

    /// Addresses that were written inside do not count where they turn up.
    pub(super) fn note_remotes(
        &self,
        addresses: impl IntoIterator<Item = String>,
        say: &mut dyn FnMut(&Path, GuardChange, String),
    ) {
        if let Err(error) = project_sources::note_added_remotes(&self.state, addresses) {
            let text = format!("new remotes could not be stored ({error}): check `git remote -v`");
            say(&self.project, GuardChange::NotPutBack, text);
        }
    }

    /// Gives directories with names that are obeyed.
    fn look_for_new_repositories(&self, say: &mut dyn FnMut(&Path, GuardChange, String)) -> Vec<PathBuf> {
        /// Limit of reported repositories without set-aside files.
        const MAX_REPORTED: usize = 20;
        let mut untold = 0_usize;
        let mut told = 0;
        let (found, obeyed_in) = disarm_new::disarm_all(&self.directories, &self.baseline, &self.aside);
        let new = found
            .iter()
            .map(|(entry, _)| entry.as_path())
            .filter(|entry| !self.baseline.existed_before(entry));
        self.note_remotes(new.flat_map(repositories::addresses_in), say);
        for (entry, done) in found {
            if done.names.is_empty() && told >= MAX_REPORTED {
                untold += 1;
                continue;
            }
            told += usize::from(done.names.is_empty());
            let (what, text) = set_aside(&entry, &done, &self.baseline);
            say(&entry, what, text);
        }
        if untold > 0 {
            let text = format!("and {untold} more new repositories, in which nothing had to be set aside");
            say(&self.project, GuardChange::NewRepository, text);
        }
        obeyed_in
    }
}

/// Moves an automatically run file that was created inside out of the way. Returns what to say.
pub fn set_aside_arrival(
    project: &Path,
    path: &Path,
    copy: &Copy,
    aside: &SavedVersions,
    why: Option<&str>,
) -> (GuardChange, String) {
    let shown = path.strip_prefix(project).unwrap_or(path).display().to_string();
    match disarm_new::move_away(path, copy, aside) {
        Ok(None) => (GuardChange::SetAside, set_aside_message(&shown, path, why)),
        Ok(Some(name)) => (
            GuardChange::SetAside,
            format!("{shown} was created during the run and is now called {}: look at it", name.display()),
        ),
        Err(error) => (
            GuardChange::NotPutBack,
            format!(
                "{shown} was created inside and could not be set aside ({error}): check it before you use it"
            ),
        ),
    }
}

pub fn set_aside(entry: &Path, done: &DisarmOutcome, baseline: &Baseline) -> (GuardChange, String) {
    let shown = entry.display();
    let undo = "`agentsh undo FILE` restores them";
    let names = done.names.join("; ");
    let (what, text) = match (baseline.existed_before(entry), names.is_empty()) {
        (false, true) => (GuardChange::NewRepository, format!("new repository: {shown}")),
        (false, false) => (
            GuardChange::NewRepository,
            format!(
                "new repository: {shown}; what the user's git would obey was set aside ({undo}): {names}"
            ),
        ),
        (true, _) => (
            GuardChange::SetAside,
            format!(
                "{shown}: git data that makes git show other commits than it pushes was set aside ({undo}): {names}"
            ),
        ),
    };
    (if done.is_incomplete { GuardChange::NotPutBack } else { what }, text)
}

/// The message about a file that appeared and was set aside; `why` where no table says it.
pub fn set_aside_message(shown: &str, path: &Path, why: Option<&str>) -> String {
    let mut parts = path.ancestors().skip(1).take(2).filter_map(|above| path.strip_prefix(above).ok());
    let entry = parts.find_map(|part| builtin_paths::guarded(part.to_str()?, true));
    let mut nested = builtin_paths::NESTED_READ_ONLY.iter();
    let nested = nested.find(|(name, _)| path.ancestors().any(|above| above.ends_with(name)));
    let of_table = entry.map(|entry| entry.why).or(nested.map(|(_, why)| *why));
    let why = why.or(of_table).unwrap_or("runs automatically");
    let allow = Allow { write: true, words: vec![path.display().to_string()], ..Allow::default() };
    let allow = allow.line().map(|line| format!("; to let the agent make it: `{line}`")).unwrap_or_default();
    format!("{shown} was created during the run and set aside ({why}); {} restores it{allow}", undo(path))
}

/// The command that restores a file, as a shell reads it.
pub fn undo(path: &Path) -> String {
    format!("`agentsh undo {}`", typed(&path.to_string_lossy()).unwrap_or("FILE".into()))
}
