//! Review mode: the project is a copy-on-write layer during a run, and a person applies or discards the changes.
//!
//! `STATE/review/SESSION/` holds `upper` and `work` (the kernel's), `base` (what the project was), `about`, and one
//! `apply-N` for each apply and undo.

pub mod apply;
mod base;
pub mod changes;
pub mod diff;
mod directory_handle;
mod guarded;
mod hard_links;
mod journal;
mod merge;
mod originals;
mod plan;
mod recover;
mod shown_paths;
mod tree;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use self::base::Base;
use self::changes::{Change, Trees};
use self::directory_handle::{DirectoryHandle, bytes};
use self::guarded::Guarded;
use self::journal::Run;
use self::originals::{Copying, Originals};
use super::Context;
use super::copies::write_anew;
use agentsh_sandbox::mount_list::MountList;
use agentsh_sandbox::name_aliases;
use agentsh_sandbox::plan::{Access, UPPER, WORK};
use agentsh_sandbox::spec::PathRules;

pub use self::directory_handle::{Kind, hash};
pub use self::guarded::GuardedPaths;
pub use self::journal::Mark;
pub use self::plan::{Applied, Selection};
pub use self::shown_paths::ShownPaths;

/// Reviews of which nothing is left but what an undo needs.
const MAX_KEPT: usize = 50;
const RUN_METADATA_FILE: &str = "about";
/// Held while the run lasts.
const RUNNING: &str = "running";
/// A layer that is being removed.
const REMOVED_LAYER: &str = "gone";
/// Held while changes are applied.
const APPLYING: &str = "applying";

#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("cannot {doing} {path}: {source}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{0}")]
    Refused(String),
    /// The requested layer or file does not exist.
    #[error("{0}")]
    Nothing(String),
}

pub(super) type Result<T> = std::result::Result<T, ReviewError>;

fn io_at<'p>(doing: &'static str, path: &'p Path) -> impl Fn(io::Error) -> ReviewError + 'p {
    move |source| ReviewError::Io { doing, path: path.to_owned(), source }
}

/// Facts about a run, stored next to its layer.
#[derive(Debug, Serialize, Deserialize)]
struct RunMetadata {
    #[serde(with = "bytes")]
    project: PathBuf,
    command: Vec<String>,
    unmasked: Vec<Name>,
    guard_all: bool,
    /// By what the run knew: where it was started, its environment, and what the home named.
    #[serde(default)]
    guarded: GuardedPaths,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Name(#[serde(with = "bytes")] PathBuf);

/// The layer of a run that has begun.
pub struct Layer {
    pub directory: PathBuf,
    /// Before the lock is released, so that no reader sees half of it.
    _originals: Copying,
    /// The lock is held while this file is open.
    _running: File,
}

/// Makes the layer of a session. The project is looked at before anything can change in it inside.
///
/// # Errors
/// When it cannot be made, or there is too much to look at.
pub fn begin(
    context: &Context,
    session: &str,
    command: &[String],
    unmasked: &[PathBuf],
    guard_all: bool,
) -> Result<Layer> {
    let directory = context.state.join("review").join(session);
    let begun = begin_in(context, directory.clone(), command, unmasked, guard_all);
    if begun.is_err() {
        // It holds nothing yet.
        let _ = tree::remove(&directory);
    }
    begun
}

fn begin_in(
    context: &Context,
    directory: PathBuf,
    command: &[String],
    unmasked: &[PathBuf],
    guard_all: bool,
) -> Result<Layer> {
    let project = context.project.canonicalize().map_err(io_at("find", &context.project))?;
    holds_no_mount(&project)?;
    if name_aliases::has_name_aliases(&project) {
        return Err(ReviewError::Refused(format!(
            "files in {} can be reached by several names (different letter case, Windows short names), so \
             agentsh cannot tell which file a change belongs to; work in a Linux directory instead, such as one \
             in your home",
            project.display()
        )));
    }
    let make = |path: &Path, mode: u32| {
        fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(io_at("make", path))
    };
    make(&directory, 0o700)?;
    let upper = directory.join(UPPER);
    make(&upper, 0o700)?;
    make(&directory.join(WORK), 0o700)?;
    let running = lock(&directory, RUNNING)?
        .ok_or_else(|| ReviewError::Refused("the layer of this session is in use".to_owned()))?;
    // The directory of the project itself is shown as that of the layer.
    let mode = fs::metadata(&project).map_err(io_at("look at", &project))?.permissions().mode() & 0o777;
    fs::set_permissions(&upper, fs::Permissions::from_mode(mode)).map_err(io_at("make", &upper))?;
    let base = Base::of(&project).map_err(io_at("review", &project))?;
    base.write(&directory).map_err(io_at("write what is in the project below", &directory))?;
    let originals = Copying::begin(&project, &directory, &base);
    let about = RunMetadata {
        project,
        command: command.to_vec(),
        unmasked: unmasked.iter().cloned().map(Name).collect(),
        guard_all,
        guarded: GuardedPaths::default(),
    };
    let text = serde_json::to_vec(&about).map_err(io::Error::other).map_err(io_at("describe", &directory))?;
    let place = directory.join(RUN_METADATA_FILE);
    write_new(&place, &text).map_err(io_at("write", &place))?;
    Ok(Layer { directory, _originals: originals, _running: running })
}

impl Layer {
    /// Writes down what a run on the project itself would guard, by these rules.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_guards(&self, rules: &PathRules) -> Result<()> {
        let place = self.directory.join(RUN_METADATA_FILE);
        let guarded = GuardedPaths::of(&PathRules { layer: None, ..rules.clone() });
        let written = fs::read(&place).and_then(|text| {
            let about: RunMetadata = serde_json::from_slice(&text)?;
            write_anew(&place, &serde_json::to_vec(&RunMetadata { guarded, ..about })?, 0o600)
        });
        written.map_err(io_at("write", &place))
    }
}

/// The rules by which a run in the project guards files.
#[must_use]
pub fn guard_rules(context: &Context) -> PathRules {
    PathRules {
        home: context.home.clone(),
        project: context.project.clone(),
        project_access: Some(Access::ReadWrite),
        stubs: true,
        git: crate::user_git::global_settings(context),
        named: crate::named_files::named_files(context),
        shared_sockets: true,
        ..PathRules::default()
    }
}

/// A layer shows one file system: what is mounted inside the project would be missing.
fn holds_no_mount(project: &Path) -> Result<()> {
    let mounted = MountList::open_own().and_then(|mut mounted| mounted.points());
    let mounted = mounted.map_err(io_at("read what is mounted in", project))?;
    match mounted.into_iter().find(|point| point.starts_with(project) && point != project) {
        Some(point) => Err(ReviewError::Refused(format!(
            "{} is mounted inside the project, and overlayfs would not show it; unmount it, or run without --review",
            point.display()
        ))),
        None => Ok(()),
    }
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    use io::Write;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// None when another process holds it.
fn lock(directory: &Path, name: &str) -> Result<Option<File>> {
    let path = directory.join(name);
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(io_at("open", &path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(io_at("lock", &path)(error.into())),
    }
}

/// One session's layer, found during the session or after it.
pub struct Review {
    pub session: String,
    pub project: PathBuf,
    pub command: Vec<String>,
    directory: PathBuf,
    about: RunMetadata,
}

/// Reviews with a layer, the newest first.
#[must_use]
pub fn waiting(state: &Path) -> Vec<Review> {
    all(state).into_iter().filter(Review::has_layer).collect()
}

/// Every review of which something is left, the newest first.
#[must_use]
pub fn all(state: &Path) -> Vec<Review> {
    let Ok(directory) = state.join("review").canonicalize() else { return Vec::new() };
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut found: Vec<Review> = entries.filter_map(|entry| Review::read(entry.path())).collect();
    // Identities of sessions begin with the time.
    found.sort_by(|one, other| other.session.cmp(&one.session));
    found
}

/// The review of a session, named by its identity, the beginning of it, or `latest`; without a name the newest one of
/// the project around a directory.
///
/// # Errors
/// When there is no review, or the name fits several.
pub fn find(state: &Path, named: Option<&str>, here: &Path) -> Result<Review> {
    let mut found = all(state);
    let none = |why: String| Err(ReviewError::Nothing(why));
    match named {
        None => {
            let here = here.canonicalize().unwrap_or_else(|_| here.to_owned());
            let is_here = |review: &Review| here.starts_with(&review.project);
            let newest = found.iter().position(|review| is_here(review) && review.has_layer());
            match newest.or_else(|| found.iter().position(is_here)) {
                Some(at) => Ok(found.swap_remove(at)),
                None => none(
                    "no session has a layer over this project; `agentsh review --list` lists all layers"
                        .to_owned(),
                ),
            }
        }
        Some("latest") if !found.is_empty() => Ok(found.swap_remove(0)),
        Some(name) => {
            found.retain(|review| review.session.starts_with(name));
            match (found.pop(), found.is_empty()) {
                (Some(review), true) => Ok(review),
                (Some(_), false) => Err(ReviewError::Refused(format!(
                    "several sessions begin with '{name}'; type more characters"
                ))),
                (None, _) => none(format!(
                    "session '{name}' has no layer; `agentsh review --list` lists those that have one"
                )),
            }
        }
    }
}

impl Review {
    fn read(directory: PathBuf) -> Option<Self> {
        let session = directory.file_name()?.to_str()?.to_owned();
        let about: RunMetadata =
            serde_json::from_slice(&fs::read(directory.join(RUN_METADATA_FILE)).ok()?).ok()?;
        Some(Self {
            session,
            project: about.project.clone(),
            command: about.command.clone(),
            directory,
            about,
        })
    }

    /// Whether the layer still exists.
    #[must_use]
    pub fn has_layer(&self) -> bool {
        self.directory.join(UPPER).is_dir()
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(lock(&self.directory, RUNNING), Ok(None))
    }

    /// The directory of the layer's own versions of files.
    #[must_use]
    pub fn layer_directory(&self) -> PathBuf {
        self.directory.join(UPPER)
    }

    /// An apply was killed and not finished: how much of how much is done.
    #[must_use]
    pub fn interrupted(&self) -> Option<(usize, usize)> {
        let run = Run::last(&self.directory).ok()??;
        (!run.has_ended()).then(|| (run.done().count(), run.began().total))
    }

    fn trees(&self) -> Result<Trees> {
        let upper = self.layer_directory();
        Ok(Trees {
            project: self.open_project()?,
            upper: DirectoryHandle::open(&upper).map_err(io_at("open the layer", &upper))?,
            // While it runs, the file may be written any moment.
            originals: (!self.is_running()).then(|| Originals::of(&self.directory)),
        })
    }

    fn open_project(&self) -> Result<DirectoryHandle> {
        DirectoryHandle::open(&self.project).map_err(io_at("open the project", &self.project))
    }

    /// The changes of the layer that are not in the project yet.
    ///
    /// # Errors
    /// When the layer or the project cannot be read.
    pub fn changes(&self, context: &Context) -> Result<(Vec<Change>, Trees)> {
        if !self.has_layer() {
            return Err(ReviewError::Refused(format!(
                "nothing of session {} waits to be applied",
                self.session
            )));
        }
        let trees = self.trees()?;
        let found = changes::find(&trees, &self.base()?, &self.guarded(context));
        Ok((found.map_err(io_at("read the layer", &self.directory))?, trees))
    }

    /// The original state of the project, with what was applied since.
    fn base(&self) -> Result<Base> {
        let mut base = Base::read(&self.directory).map_err(io_at("read the base of", &self.directory))?;
        for run in Run::all(&self.directory).map_err(io_at("read what was applied of", &self.directory))? {
            base.follow(&run);
        }
        Ok(base)
    }

    fn guarded(&self, context: &Context) -> Guarded {
        let rules = PathRules {
            project: self.project.clone(),
            unmasked: self.about.unmasked.iter().map(|name| name.0.clone()).collect(),
            guard_all: self.about.guard_all,
            ..guard_rules(context)
        };
        let path = context.env.get("PATH").map_or("", String::as_str);
        Guarded::of(&rules, &self.about.guarded, path)
    }

    /// Removes the layer. What was applied can still be undone.
    ///
    /// # Errors
    /// While the run lasts, or when something cannot be removed.
    pub fn discard(&self) -> Result<()> {
        let running = lock(&self.directory, RUNNING)?;
        if running.is_none() {
            return Err(ReviewError::Refused(format!(
                "session {} is still running; end it before you discard its layer",
                self.session
            )));
        }
        let has_applied = !Run::all(&self.directory).unwrap_or_default().is_empty();
        let remove = |path: &Path| match tree::remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_at("remove", path)(error)),
            _ => Ok(()),
        };
        // In one step: half a layer must not pass for a whole one.
        let gone = self.directory.join(REMOVED_LAYER);
        remove(&gone)?;
        match fs::rename(self.layer_directory(), &gone) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_at("discard", &gone)(error));
            }
            _ => {}
        }
        if !has_applied {
            return remove(&self.directory);
        }
        remove(&gone)?;
        remove(&self.directory.join(originals::NAME))?;
        remove(&self.directory.join(WORK))
    }
}

/// Removes the oldest of those of which only the undo is left.
pub fn forget_old(state: &Path) {
    for review in all(state).into_iter().filter(|review| !review.has_layer()).skip(MAX_KEPT) {
        let _ = tree::remove(&review.directory);
    }
}
