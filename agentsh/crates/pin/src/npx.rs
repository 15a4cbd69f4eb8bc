//! `npx PACKAGE` and the like: the package that is already on disk, searched in npx's order.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::command::{self, Command};
use super::context::{Context, Target};
use super::npx_line::{self, Line, Spec};
use super::package::{self, Package};
use super::search::{self, Found};
use super::semver::Version;
use super::store::PackageRequest;
use super::{Launcher, PinError};
use crate::policy::profile::Registry;

/// None when the words are not those of a package launcher.
pub(super) fn resolve(
    context: &mut Context<'_>,
    command: &Command,
    found: &Found,
) -> Result<Option<Target>, PinError> {
    let launcher = search::file_name(&found.path);
    let Some(line) = npx_line::parse(launcher, &command.args)? else {
        if launcher != "bun" {
            context.note(format!("what {launcher} starts (name the program itself, or use npx)"));
        }
        return Ok(None);
    };
    let Some((package, entry)) = find_installed(context, command, found, &line)? else {
        if context.request.accept_missing_package {
            context.note(format!("{}, which {launcher} would download when it starts", line.package.text()));
            return Ok(None);
        }
        let words: Vec<String> = command.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        return Err(PinError::PackageNotInstalled {
            package: line.package.text(),
            instead: format!(
                "run `{launcher} {}` once yourself so that it is in the cache, or install it: `npm install {}`",
                words.join(" "),
                line.package.text()
            ),
            wanted: Some(Box::new(package_request(&line))),
        });
    };
    context.has_more_packages |= !line.beside.is_empty();
    let mut target = start(context, command, &entry, line.rest)?;
    target.launcher = Launcher::Npx;
    target.identity = package.identity();
    Ok(Some(target))
}

fn package_request(line: &Line) -> PackageRequest {
    let specs = std::iter::once(&line.package).chain(&line.beside).map(Spec::text).collect();
    PackageRequest { registry: Registry::Npm, specs }
}

/// The entry file's own first line says what runs it; a JavaScript file without one is given to node.
fn start(
    context: &mut Context<'_>,
    command: &Command,
    entry: &Path,
    rest: Vec<OsString>,
) -> Result<Target, PinError> {
    let mut words = rest;
    let shebang = command::shebang_line(entry)?;
    let suffix = entry.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    let next = match shebang {
        None if matches!(suffix, "js" | "mjs" | "cjs") => {
            words.insert(0, entry.as_os_str().to_owned());
            command.next("node", words)
        }
        _ => command.next(entry.as_os_str(), words),
    };
    // Registered files of a package need not be executable: npx makes them so.
    let native = search::command(&next.word, &next.cwd, &next.path_env);
    if matches!(native, Err(PinError::NotExecutable { .. }))
        && let Some(line) = command::shebang_line(entry)?
    {
        let argument = line.argument.into_iter();
        let words = argument.chain([entry.as_os_str().to_owned()]).chain(next.args).collect();
        return command::resolve(context, command.next(line.interpreter.into_os_string(), words));
    }
    command::resolve(context, next)
}

fn find_installed(
    context: &Context<'_>,
    command: &Command,
    found: &Found,
    line: &Line,
) -> Result<Option<(Package, PathBuf)>, PinError> {
    let globals = global_directories(context, command, found)?;
    // A bare word is first a command that some installed package brings.
    let bare = line.package.wanted.is_none() && !line.explicit && !line.package.name.starts_with('@');
    if bare && let Some(hit) = by_command(context, command, &globals, line)? {
        return Ok(Some(hit));
    }
    let counts = |directory: &&Path| line.only_installed || context.counts(directory);
    let local = command.cwd.ancestors().filter(counts).map(|directory| directory.join("node_modules"));
    for modules in local.chain(globals) {
        if let Some(hit) = in_modules(&modules, line)? {
            return Ok(Some(hit));
        }
    }
    if let Some(store) = context.request.store
        && let Some(tree) = store.find(&package_request(line))?
    {
        return in_modules(&tree.join("node_modules"), line);
    }
    let mut cached = Vec::new();
    for modules in cache_directories(context) {
        if let Some((package, entry)) = in_modules(&modules, line)? {
            let asked = modules
                .parent()
                .map(package::read)
                .transpose()?
                .flatten()
                .is_some_and(|holder| holder.requested.contains(&line.package.text()));
            let version = package.version.as_deref().and_then(Version::parse);
            cached.push((version, asked, std::cmp::Reverse(modules), package, entry));
        }
    }
    cached.sort_by(|a, b| (&a.0, a.1, &a.2).cmp(&(&b.0, b.1, &b.2)));
    Ok(cached.pop().map(|(_, _, _, package, entry)| (package, entry)))
}

fn by_command(
    context: &Context<'_>,
    command: &Command,
    globals: &[PathBuf],
    line: &Line,
) -> Result<Option<(Package, PathBuf)>, PinError> {
    let name = &line.package.name;
    let counts = |directory: &&Path| line.only_installed || context.counts(directory);
    let local = command.cwd.ancestors().filter(counts).map(|directory| directory.join("node_modules/.bin"));
    let global = globals.iter().filter_map(|modules| Some(modules.parent()?.parent()?.join("bin")));
    for directory in local.chain(global) {
        let entry = match search::file(&directory.join(name)) {
            Ok(found) => found.real,
            Err(error) if error.is_absent() => continue,
            Err(error) => return Err(error),
        };
        if let Some(package) = package::enclosing(&entry)?.filter(Package::is_installed) {
            return Ok(Some((package, entry)));
        }
    }
    Ok(None)
}

fn in_modules(modules: &Path, line: &Line) -> Result<Option<(Package, PathBuf)>, PinError> {
    for spec in &line.beside {
        if find_satisfying(modules, spec)?.is_none() {
            return Ok(None);
        }
    }
    let Some(first) = find_satisfying(modules, &line.package)? else { return Ok(None) };
    let mut candidates = vec![first];
    for spec in &line.beside {
        candidates.extend(find_satisfying(modules, spec)?);
    }
    for package in candidates {
        if let Some(bin) = package.bin(line.command.as_deref()) {
            return Ok(Some((package, search::file(&bin)?.real)));
        }
    }
    Err(PinError::BadManifest {
        path: modules.join(&line.package.name).join("package.json"),
        why: match &line.command {
            Some(command) => format!("does not name a command {command}"),
            None => "has no command, or several and none with the name of the package".to_owned(),
        },
    })
}

fn find_satisfying(modules: &Path, spec: &Spec) -> Result<Option<Package>, PinError> {
    let package = package::read(&modules.join(&spec.name))?;
    Ok(package.filter(|package| {
        package.version.as_deref().map_or(spec.wanted.is_none(), |version| spec.satisfied_by(version))
    }))
}

/// `node_modules` of user-wide installations: configured ones, where the launcher itself lives, where node does.
fn global_directories(
    context: &Context<'_>,
    command: &Command,
    found: &Found,
) -> Result<Vec<PathBuf>, PinError> {
    let mut prefixes = Vec::new();
    let names = ["npm_config_prefix", "NPM_CONFIG_PREFIX"];
    prefixes.extend(names.iter().filter_map(|name| context.variable(name)).map(PathBuf::from));
    if let Some(settings) = search::text(&context.request.home.join(".npmrc"), 1 << 20)? {
        let value = settings.lines().filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "prefix").then(|| value.trim().trim_matches('"').to_owned())
        });
        for value in value {
            let home = context.request.home;
            let rest = ["${HOME}/", "~/"].iter().find_map(|word| value.strip_prefix(word).map(str::to_owned));
            prefixes.push(rest.map_or_else(|| PathBuf::from(&value), |rest| home.join(rest)));
        }
    }
    let node = search::command("node".as_ref(), &command.cwd, &command.path_env).ok();
    for path in
        [Some(&found.path), Some(&found.real), node.as_ref().map(|node| &node.real)].into_iter().flatten()
    {
        let above = path.ancestors().skip(1);
        let binaries =
            above.filter(|part| part.file_name().is_some_and(|name| name == "bin" || name == "lib"));
        prefixes.extend(binaries.filter_map(Path::parent).map(Path::to_owned));
    }
    if found.path.starts_with("/usr") {
        prefixes.push(PathBuf::from("/usr/local"));
    }
    let mut directories: Vec<PathBuf> = Vec::new();
    for prefix in prefixes.into_iter().filter(|prefix| prefix.is_absolute()) {
        let modules = prefix.join("lib/node_modules");
        if !directories.contains(&modules) && modules.is_dir() {
            directories.push(modules);
        }
    }
    Ok(directories)
}

fn cache_directories(context: &Context<'_>) -> Vec<PathBuf> {
    let home = context.request.home;
    let names = ["npm_config_cache", "NPM_CONFIG_CACHE"];
    let npm = names.iter().find_map(|name| context.variable(name));
    let npm = npm.map_or_else(|| home.join(".npm"), PathBuf::from);
    let cache = context.variable("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let mut directories = search::subdirectories(&npm.join("_npx"));
    for request in search::subdirectories(&cache.join("pnpm/dlx")) {
        directories.extend(search::subdirectories(&request));
    }
    directories
        .into_iter()
        .map(|directory| directory.join("node_modules"))
        .filter(|path| path.is_dir())
        .collect()
}
