//! Everything that Node's resolution can reach from an entry file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::PinError;
use super::context::Context;
use super::file::Role;
use super::package::{self, Package};
use super::search;
use super::tree::{Code, Selection, TreeSource};

/// The code that Node, Bun and Deno load from a working directory: the rest of it is data, which changes.
static SCRIPTS: Code = Code {
    tries_exact_names: true,
    endings: &["js", "mjs", "cjs", "node", "wasm", "ts", "mts", "cts", "jsx", "tsx"],
    names: &[
        "package.json",
        "tsconfig.json",
        "jsconfig.json",
        "deno.json",
        "deno.jsonc",
        "import_map.json",
        "node.config.json",
        "bunfig.toml",
    ],
    installed: Some("node_modules"),
};

/// Pins the trees of `entry` (no links in it) and returns what the entry is.
pub(super) fn pin(context: &mut Context<'_>, entry: &Path) -> Result<String, PinError> {
    let file_identity = format!("file:{}", entry.display());
    let package = package::enclosing(entry)?;
    if let Some(package) = package.as_ref().filter(|package| context.holds_project(&package.root)) {
        // The manifest says how its scripts are parsed.
        context.file(&package.root.join("package.json"), Role::Entry)?;
    }
    let is_apart = |root: &Path| !context.is_personal(root) && !context.holds_project(root);
    let package = package.filter(|package| is_apart(&package.root));
    let before = context.trees.len();
    let identity = if let Some(modules) = outermost_modules(entry) {
        if is_global(&modules)? {
            global(context, &modules, entry)?;
        } else {
            context.tree("node_modules", &modules, Selection::default())?;
        }
        package.map_or(file_identity, |package| package.identity())
    } else if let Some(Package { root, .. }) = package {
        context.tree("package", &root, Selection { code: Some(&SCRIPTS), ..Selection::default() })?;
        ancestors(context, root.parent(), "../")?;
        file_identity
    } else {
        let directory = entry.parent().unwrap_or(Path::new("/")).to_owned();
        scripts(context, &directory, entry, &SCRIPTS)?;
        ancestors(context, Some(&directory), "")?;
        file_identity
    };
    annotate(context, before)?;
    Ok(identity)
}

/// `node_modules` of `directory` and of everything above it: Node looks in all of them.
fn ancestors(context: &mut Context<'_>, directory: Option<&Path>, prefix: &str) -> Result<(), PinError> {
    let mut prefix = prefix.to_owned();
    for directory in directory.into_iter().flat_map(Path::ancestors) {
        if let Some(modules) = search::directory(&directory.join("node_modules")) {
            context.tree(&format!("{prefix}node_modules"), &modules, Selection::default())?;
        }
        prefix.push_str("../");
    }
    Ok(())
}

/// The loadable files in a script's directory and below. Of a directory that holds a whole life (`~`, `/tmp`), or the
/// project next to other things, only the script itself is pinned, and only it is shown.
pub(super) fn scripts(
    context: &mut Context<'_>,
    directory: &Path,
    entry: &Path,
    code: &'static Code,
) -> Result<(), PinError> {
    if context.is_personal(directory) || context.holds_project(directory) {
        context.show_script(entry, directory);
        return Ok(());
    }
    context.tree("script", directory, Selection { code: Some(code), ..Selection::default() })
}

fn outermost_modules(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .filter(|part| part.file_name().is_some_and(|name| name == "node_modules"))
        .last()
        .map(Path::to_owned)
}

/// `PREFIX/lib/node_modules`: one directory of separate installations, each with its dependencies inside, not
/// one tree that belongs together.
fn is_global(modules: &Path) -> Result<bool, PinError> {
    let parent = modules.parent();
    let exists = |path: PathBuf| path.try_exists().map_err(|source| PinError::io(&path, source));
    Ok(parent.is_some_and(|parent| parent.file_name().is_some_and(|name| name == "lib"))
        && !exists(modules.join(".package-lock.json"))?
        && !exists(modules.join("../package.json"))?)
}

/// The package itself, and those of its neighbours that anything in it declares (an optional dependency that is
/// not there today would be loaded from there tomorrow).
fn global(context: &mut Context<'_>, modules: &Path, entry: &Path) -> Result<(), PinError> {
    let inside = entry.strip_prefix(modules).unwrap_or(entry);
    let mut parts = inside.iter();
    let first = parts.next().unwrap_or_default();
    let mut name = PathBuf::from(first);
    if first.to_string_lossy().starts_with('@') {
        name.push(parts.next().unwrap_or_default());
    }
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![name]);
    while let Some(name) = waiting.pop() {
        let Some(root) = search::directory(&modules.join(&name)) else { continue };
        if !seen.insert(name.clone()) {
            continue;
        }
        let label = if seen.len() == 1 { "package".to_owned() } else { format!("../{}", name.display()) };
        let before = context.trees.len();
        context.tree(&label, &root, Selection::default())?;
        let manifests: Vec<PathBuf> = context
            .trees
            .iter()
            .skip(before)
            .flat_map(|tree| {
                tree.manifest
                    .keys()
                    .filter(|path| path.ends_with("package.json"))
                    .map(|path| tree.root.join(path))
            })
            .collect();
        for manifest in manifests {
            // Packages carry broken manifests as test data; Node does not read those either.
            if let Some(Ok(Some(package))) = manifest.parent().map(package::read) {
                let plain = |name: &&String| !name.starts_with('.') && !name.contains("..");
                waiting.extend(package.dependencies.iter().filter(plain).map(PathBuf::from));
            }
        }
        waiting.sort();
        waiting.dedup();
        waiting.reverse();
    }
    Ok(())
}

/// Versions from lock files, for people: the digest is over the files.
fn annotate(context: &mut Context<'_>, first: usize) -> Result<(), PinError> {
    const LOCKS: [&str; 3] = [".package-lock.json", "node_modules/.package-lock.json", "package-lock.json"];
    for tree in context.trees.iter_mut().skip(first) {
        for lock in LOCKS {
            if tree.source == TreeSource::Files
                && let Some(packages) = package::locked(&tree.root.join(lock))?
            {
                tree.packages = packages;
                tree.source = TreeSource::NpmLock;
            }
        }
    }
    Ok(())
}
