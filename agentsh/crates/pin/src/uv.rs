//! `uvx`, `uv tool run`, `uv run`, `pipx run`: the environment that is already on disk, and its command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::command::{self, Command};
use super::context::{Context, Target};
use super::search::{self, Found};
use super::store::PackageRequest;
use super::tree::{Listed, TreeSource};
use super::uv_line::{self, Line, Spec, normal, numbers};
use super::{Launcher, PinError};
use crate::policy::profile::Registry;

/// None if the words start no program.
pub(super) fn resolve(
    context: &mut Context<'_>,
    command: &Command,
    found: &Found,
) -> Result<Option<Target>, PinError> {
    if search::file_name(&found.path) == "uvx" {
        let line = uv_line::parse("uvx", &command.args, &command.cwd)?;
        return tool(context, command, line, "uvx", Launcher::Uvx);
    }
    // `uv [--directory D] run ...`: flags may be on both sides of the subcommand.
    let mut outer = uv_line::parse("uv", &command.args, &command.cwd)?;
    let first = |index: usize| outer.words.get(index).and_then(|word| word.to_str()).unwrap_or_default();
    let (kind, skip) = match (first(0), first(1)) {
        ("run", _) => ("uv run", 1),
        ("tool", "run") => ("uv tool run", 2),
        _ => {
            context.note("what uv starts");
            return Ok(None);
        }
    };
    let words = outer.words.split_off(skip);
    let base = outer.directory.clone().unwrap_or_else(|| command.cwd.clone());
    let mut inner = uv_line::parse(kind, &words, &base)?;
    inner.directory = inner.directory.or(outer.directory);
    inner.project = inner.project.or(outer.project);
    if kind == "uv run" {
        return run(context, command, inner);
    }
    tool(context, command, inner, kind, Launcher::Uvx)
}

pub(super) fn resolve_pipx(
    context: &mut Context<'_>,
    command: &Command,
    _found: &Found,
) -> Result<Option<Target>, PinError> {
    if command.arg(0) != "run" {
        context.note("what pipx starts");
        return Ok(None);
    }
    let line = uv_line::parse("pipx run", command.args.get(1..).unwrap_or_default(), &command.cwd)?;
    tool(context, command, line, "pipx run", Launcher::Pipx)
}

/// A command of a package with a separate environment.
fn tool(
    context: &mut Context<'_>,
    command: &Command,
    line: Line,
    launcher: &str,
    kind: Launcher,
) -> Result<Option<Target>, PinError> {
    let Some(word) = line.words.first().and_then(|word| word.to_str()) else {
        return Err(PinError::Unsupported {
            what: format!("{launcher} without a command"),
            instead: "name one".to_owned(),
        });
    };
    let mut specs = line.specs;
    let name_end = word.find(['@', '=', '<', '>', '!', '~', '[']).unwrap_or(word.len());
    let name = word.get(..name_end).unwrap_or_default();
    // Without `--from` the command is the package too.
    let explicit = command.args.iter().any(|arg| {
        let arg = arg.to_string_lossy();
        ["--from", "--spec"].iter().any(|flag| arg == *flag || arg.starts_with(&format!("{flag}=")))
    });
    if !explicit {
        specs.insert(0, Spec::parse(word)?);
    }
    context.has_more_packages |= specs.len() > 1;
    let wanted = PackageRequest { registry: Registry::Pypi, specs: specs.iter().map(Spec::text).collect() };
    let stored = context.request.store.map(|store| store.find(&wanted)).transpose()?.flatten();
    let candidates = match stored {
        Some(tree) => vec![tree],
        None if kind == Launcher::Pipx => pipx_environments(context),
        None => uv_environments(context),
    };
    let Some((environment, version)) = choose(&candidates, &specs, name) else {
        return missing_package(context, command, launcher, word, Some(wanted));
    };
    let mut target =
        start(context, command, &environment, name, line.words.get(1..), line.directory.as_deref())?;
    target.launcher = kind;
    let package = specs.first().map(|spec| spec.name.replace('_', "-")).unwrap_or_default();
    target.identity = format!("pypi:{package}@{version}");
    Ok(Some(target))
}

fn missing_package(
    context: &mut Context<'_>,
    command: &Command,
    launcher: &str,
    package: &str,
    wanted: Option<PackageRequest>,
) -> Result<Option<Target>, PinError> {
    if context.request.accept_missing_package {
        context.note(format!("{package}, which {launcher} would download when it starts"));
        return Ok(None);
    }
    let words: Vec<String> = command.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let program = command.word.to_string_lossy().into_owned();
    Err(PinError::PackageNotInstalled {
        package: package.to_owned(),
        instead: format!("run `{program} {}` once yourself so that it is in the cache", words.join(" ")),
        wanted: wanted.map(Box::new),
    })
}

/// The environment that holds all of `specs` and the command; of several the newest version, then the first path.
fn choose(candidates: &[PathBuf], specs: &[Spec], name: &str) -> Option<(PathBuf, String)> {
    let mut fitting: Vec<(Vec<u64>, std::cmp::Reverse<PathBuf>, String)> = Vec::new();
    for environment in candidates.iter().filter(|path| path.join("pyvenv.cfg").is_file()) {
        let versions: Option<Vec<String>> = specs.iter().map(|spec| spec.installed(environment)).collect();
        let has_command = name.is_empty() || environment.join("bin").join(name).exists();
        if let (true, Some(version)) = (has_command, versions.and_then(|all| all.into_iter().next())) {
            fitting.push((numbers(&version), std::cmp::Reverse(environment.clone()), version));
        }
    }
    fitting.sort();
    fitting.pop().map(|(_, environment, version)| (environment.0, version))
}

fn start(
    context: &mut Context<'_>,
    command: &Command,
    environment: &Path,
    name: &str,
    rest: Option<&[OsString]>,
    directory: Option<&Path>,
) -> Result<Target, PinError> {
    let mut next = command.next(environment.join("bin").join(name), rest.unwrap_or_default().to_vec());
    if let Some(directory) = directory {
        next.cwd = directory.to_owned();
        context.cwd = Some(directory.to_owned());
    }
    command::resolve(context, next)
}

/// `uv run`: a command, script or module in the project's environment.
fn run(context: &mut Context<'_>, command: &Command, line: Line) -> Result<Option<Target>, PinError> {
    let cwd = line.directory.clone().unwrap_or_else(|| command.cwd.clone());
    let word = line.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let project = line.project.clone().or_else(|| {
        let is_meant = |directory: &&Path| line.specs.is_empty() || context.counts(directory);
        let around = cwd.ancestors().filter(is_meant);
        around.into_iter().find(|directory| directory.join("pyproject.toml").is_file()).map(Path::to_owned)
    });
    let script = search::absolute(&cwd, Path::new(&word));
    let is_script = !line.module && search::file_name(&script).ends_with(".py") && script.is_file();
    let own = is_script && search::text(&script, 16 << 20)?.is_some_and(|text| text.contains("# /// script"));
    let is_of_project = line.specs.is_empty() || project.is_some() || own;
    // Packages on top of a project's are not enough to run in it, and only uv knows how to add them.
    let wanted = (!is_of_project).then(|| PackageRequest {
        registry: Registry::Pypi,
        specs: line.specs.iter().map(Spec::text).collect(),
    });
    let environment = if own {
        let stem = normal(script.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default());
        let mut all = uv_environments(context);
        all.retain(|path| {
            normal(search::file_name(path)).starts_with(&format!("{stem}_"))
                && path.join("pyvenv.cfg").is_file()
        });
        all.into_iter().max_by_key(|path| std::fs::metadata(path).and_then(|data| data.modified()).ok())
    } else if !line.specs.is_empty() {
        let name = if is_script || line.module { "python" } else { word.as_str() };
        let candidates = match (&wanted, context.request.store) {
            (Some(wanted), Some(store)) => store.find(wanted)?.map(|tree| vec![tree]),
            _ => None,
        };
        let candidates = candidates.unwrap_or_else(|| uv_environments(context));
        choose(&candidates, &line.specs, name).map(|(environment, _)| environment)
    } else {
        project_environment(context, &cwd, project.as_deref())
    };
    let Some(environment) = environment else {
        return missing_package(context, command, "uv run", &word, wanted);
    };
    let mut words = line.words.clone();
    let name = if line.module || is_script || word == "-" || word.is_empty() {
        if line.module {
            words.insert(0, "-m".into());
        }
        "python".to_owned()
    } else {
        words.remove(0);
        word.clone()
    };
    let path = std::iter::once(environment.join("bin")).chain(search::path_directories(&command.path_env));
    let path = std::env::join_paths(path).unwrap_or_else(|_| command.path_env.clone());
    context.set("VIRTUAL_ENV", environment.display().to_string());
    context.set("PATH", path.to_string_lossy());
    let mut inner = command.clone();
    inner.cwd = cwd;
    inner.path_env = path;
    context.cwd = line.directory;
    // A command that the environment does not have is looked for in PATH, as uv does.
    inner.word = if environment.join("bin").join(&name).exists() {
        environment.join("bin").join(&name).into_os_string()
    } else {
        name.into()
    };
    inner.args = words;
    let mut target = command::resolve(context, inner)?;
    if let Some(project) = project {
        annotate(context, &project.join("uv.lock"))?;
    }
    target.launcher = Launcher::Uvx;
    Ok(Some(target))
}

fn project_environment(context: &Context<'_>, cwd: &Path, project: Option<&Path>) -> Option<PathBuf> {
    let configured = context.variable("UV_PROJECT_ENVIRONMENT");
    let found = match (project, configured) {
        (Some(project), Some(place)) => project.join(place),
        (Some(project), None) => project.join(".venv"),
        (None, _) => match context.variable("VIRTUAL_ENV") {
            Some(active) => PathBuf::from(active),
            None => cwd.ancestors().map(|directory| directory.join(".venv")).find(|path| path.is_dir())?,
        },
    };
    found.join("pyvenv.cfg").is_file().then_some(found)
}

/// Versions from `uv.lock`, for people: the digest is over the files.
fn annotate(context: &mut Context<'_>, lock: &Path) -> Result<(), PinError> {
    let Some(text) = search::text(lock, 64 << 20)? else { return Ok(()) };
    let value: toml::Table = toml::from_str(&text)
        .map_err(|error| PinError::BadManifest { path: lock.to_owned(), why: error.message().to_owned() })?;
    let packages = value.get("package").and_then(toml::Value::as_array);
    let versions = packages.into_iter().flatten().filter_map(|package| {
        let text = |key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        let name = text("name")?;
        Some((name.clone(), Listed { name, version: text("version")? }))
    });
    if let Some(tree) = context.trees.iter_mut().find(|tree| tree.name == "venv") {
        tree.packages = versions.collect();
        tree.source = TreeSource::UvLock;
    }
    Ok(())
}

fn uv_environments(context: &Context<'_>) -> Vec<PathBuf> {
    let home = context.request.home;
    let directory = |name: &str| context.variable(name).map(PathBuf::from);
    let data = directory("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
    let cache = directory("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"));
    let tools = directory("UV_TOOL_DIR").unwrap_or_else(|| data.join("uv/tools"));
    let cache = directory("UV_CACHE_DIR").unwrap_or_else(|| cache.join("uv"));
    let mut found = search::subdirectories(&tools);
    for area in search::subdirectories(&cache) {
        let name = search::file_name(&area);
        if name.starts_with("environments-v") || name.starts_with("archive-v") {
            found.extend(search::subdirectories(&area));
        }
    }
    // One environment may be reachable by several links.
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|path| std::fs::canonicalize(path).is_ok_and(|real| seen.insert(real)));
    found
}

fn pipx_environments(context: &Context<'_>) -> Vec<PathBuf> {
    let home = context.request.home;
    let homes = match context.variable("PIPX_HOME") {
        Some(directory) => vec![PathBuf::from(directory)],
        None => vec![home.join(".local/share/pipx"), home.join(".local/pipx")],
    };
    let mut found: Vec<PathBuf> = homes
        .iter()
        .flat_map(|home| {
            ["venvs", ".cache"].into_iter().flat_map(|part| search::subdirectories(&home.join(part)))
        })
        .collect();
    found.extend(search::subdirectories(&home.join(".cache/pipx")));
    found
}
