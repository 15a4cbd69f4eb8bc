//! Directories of installed programs. A command of the project may run only programs there or in the project.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agentsh_pin::{Resolved, Role};
use agentsh_policy::builtin_paths::HOME_MASKS;
use agentsh_sandbox::layout::is_system;

use super::Context;

/// Below the home directory: what installers and package managers keep.
const IN_HOME: &[&str] = &[
    ".asdf",
    ".bun",
    ".cache/deno",
    ".cache/node/corepack",
    ".cache/pipx",
    ".cache/pnpm",
    ".cache/uv",
    ".cargo/bin",
    ".deno",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".npm",
    ".npm-global",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".volta",
    "go/bin",
];
/// Variables of the user's environment that name such directories.
const VARIABLES: &[&str] = &[
    "BUN_INSTALL",
    "DENO_DIR",
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_PREFIX",
    "NVM_DIR",
    "PIPX_HOME",
    "PNPM_HOME",
    "PYENV_ROOT",
    "UV_CACHE_DIR",
    "UV_PYTHON_INSTALL_DIR",
    "UV_TOOL_DIR",
    "VIRTUAL_ENV",
    "VOLTA_HOME",
    "npm_config_cache",
    "npm_config_prefix",
];
/// A `bin` with one of these belongs to an installation.
const INTERPRETERS: &[&str] =
    &["node", "python3", "python", "bun", "deno", "uv", "ruby", "perl", "php", "java"];

/// The first file or directory that `resolved` would make visible although it is neither in the project nor where programs are
/// installed. The executed program itself is exempt, because it learns nothing from its own file.
#[must_use]
pub fn out_of_place<'r>(resolved: &'r Resolved, context: &Context) -> Option<&'r Path> {
    let places = program_directories(context);
    let masks: Vec<PathBuf> = HOME_MASKS.iter().map(|(mask, _)| context.home.join(mask)).collect();
    let executed =
        |path: &Path| resolved.files.iter().any(|file| file.path == path && file.role != Role::Entry);
    let is_fine = |path: &Path| {
        let below = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        is_system(path)
            || executed(path)
            || path.starts_with(&context.project)
            || path.starts_with(&context.data)
            || below(&places) && !below(&masks)
    };
    let files = resolved.files.iter().map(|file| file.path.as_path());
    let trees = resolved.trees.iter().map(|tree| tree.root.as_path());
    let shown = resolved.read_roots.iter().map(PathBuf::as_path);
    files.chain(trees).chain(shown).find(|path| !is_fine(path))
}

/// The directories as named, and with links followed.
fn program_directories(context: &Context) -> Vec<PathBuf> {
    let mut places: BTreeSet<PathBuf> = IN_HOME.iter().map(|path| context.home.join(path)).collect();
    places.extend(VARIABLES.iter().filter_map(|name| context.env.get(*name)).map(PathBuf::from));
    for directory in std::env::split_paths(context.env.get("PATH").map_or("", String::as_str)) {
        // Also behind its links, because some installers keep every program in a separate directory.
        let interpreters = INTERPRETERS.iter().map(|name| directory.join(name)).filter(|path| path.exists());
        for path in interpreters.flat_map(|path| [path.canonicalize().ok(), Some(path)]).flatten() {
            let directory = path.parent().filter(|directory| directory.ends_with("bin"));
            places.extend(directory.and_then(Path::parent).map(Path::to_owned));
        }
        places.insert(directory);
    }
    let real = places.iter().filter_map(|place| place.canonicalize().ok()).collect::<Vec<_>>();
    places.extend(real);
    places.retain(|place| place.is_absolute() && !holds_more(place, &context.home));
    places.into_iter().collect()
}

/// Whether a directory contains unrelated things.
fn holds_more(place: &Path, home: &Path) -> bool {
    home.starts_with(place)
        || [".local", ".config", ".cache", ".local/share"].iter().any(|part| place == home.join(part))
        || ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|shared| place == Path::new(shared))
}
