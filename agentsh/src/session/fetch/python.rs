//! PyPI: pip fills a relocatable virtual environment.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use agentsh_egress::authorities::Source;
use agentsh_host::address::Address;
use agentsh_policy::profile::{Package, Registry};

use super::stage::{self, Task};
use super::{FetchError, Job, failure};

const TOOL: &str = "pip";
const PYTHON: &str = "python3";
/// Prints pip's configuration.
const ASK: &str = "import json\n\
from pip._internal.configuration import Configuration\n\
from pip._internal.models.index import PyPI\n\
c = Configuration(isolated=False)\n\
c.load()\n\
print(json.dumps({'items': dict(c.items()), 'index': PyPI.simple_url, 'files': PyPI.file_storage_domain}))\n";
/// Larger files in `bin` are programs, not pip's scripts.
const MAX_COMMAND: u64 = 1 << 20;
const SYSTEM_SETTINGS: [&str; 2] = ["/etc/pip.conf", "/etc/xdg/pip/pip.conf"];

#[derive(Debug, Default, PartialEq, Eq)]
struct Settings {
    env: BTreeMap<String, String>,
    registries: Vec<Address>,
    trusts: Vec<Source>,
}

pub async fn install(job: &Job<'_>) -> Result<(), FetchError> {
    let settings = settings(job).await?;
    let tree = job.tree();
    let task = |args: Vec<String>, env: BTreeMap<String, String>, reach| Task {
        tool: TOOL,
        program: PYTHON,
        args,
        env,
        read: Vec::new(),
        files: Vec::new(),
        reach,
        trusts: settings.trusts.clone(),
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let place = tree.display().to_string();
    let made =
        stage::run(job, task(words(&["-I", "-m", "venv", "--without-pip", &place]), BTreeMap::new(), &[]))
            .await?;
    if made.code != 0 {
        return Err(failure("python3 -m venv", &[], &format!("{}{}", made.output, made.errors)));
    }
    let python = tree.join("bin/python").display().to_string();
    let mut args = words(&[
        "-m",
        "pip",
        "--python",
        &python,
        "install",
        "--no-compile",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--no-input",
        "--quiet",
        "--retries",
        "1",
        "--timeout",
        "30",
    ]);
    if !job.run_scripts {
        args.extend(words(&["--only-binary", ":all:"]));
    }
    args.push("--".to_owned());
    args.extend(job.wanted.specs.iter().cloned());
    let done = stage::run(job, task(args, settings.env.clone(), &settings.registries)).await?;
    let output = format!("{}{}", done.output, done.errors);
    if done.code != 0 {
        return Err(match failure(TOOL, &settings.registries, &output) {
            FetchError::Failed { .. } if output.contains("No matching distribution") => {
                no_wheel(job, &settings, &output).await
            }
            other => other,
        });
    }
    relocate(&tree).map_err(|source| FetchError::Io { doing: "make the environment movable", source })
}

/// pip reports a missing package and a source-only one in the same way: asks the index.
async fn no_wheel(job: &Job<'_>, settings: &Settings, output: &str) -> FetchError {
    let registry = settings.registries.first().map(|address| address.host.clone()).unwrap_or_default();
    if job.run_scripts || !output.contains("from versions: none") {
        return FetchError::Missing { registry };
    }
    for spec in &job.wanted.specs {
        let package = Package::of_spec(Registry::Pypi, spec);
        let words = [
            "-m",
            "pip",
            "index",
            "versions",
            "--disable-pip-version-check",
            "--no-input",
            "--",
            &package.name,
        ];
        let asking = Task {
            tool: TOOL,
            program: PYTHON,
            args: words.map(str::to_owned).into(),
            env: settings.env.clone(),
            read: Vec::new(),
            files: Vec::new(),
            reach: &settings.registries,
            trusts: settings.trusts.clone(),
        };
        match stage::run(job, asking).await {
            Ok(done) if done.code == 0 => {}
            Ok(done) if done.errors.contains("No matching distribution") => {
                return FetchError::Missing { registry };
            }
            // An older pip cannot tell.
            Ok(_) | Err(_) => {}
        }
    }
    FetchError::NeedsScripts { line: job.scripts_line() }
}

async fn settings(job: &Job<'_>) -> Result<Settings, FetchError> {
    let context = &job.session.facts.context;
    let mut files = Vec::new();
    let named = context.env.get("PIP_CONFIG_FILE").map(PathBuf::from);
    let own = [context.config.join("pip/pip.conf"), context.home.join(".pip/pip.conf")];
    for path in own.into_iter().chain(named) {
        if let Some(text) = stage::configuration(&path) {
            files.push((path, text));
        }
    }
    let done = stage::run(
        job,
        Task {
            tool: TOOL,
            program: PYTHON,
            args: ["-c".to_owned(), ASK.to_owned()].into(),
            env: stage::variables(job, &["PIP_", "XDG_CONFIG_HOME"]),
            read: SYSTEM_SETTINGS.iter().map(PathBuf::from).filter(|path| path.is_file()).collect(),
            files,
            reach: &[],
            trusts: Vec::new(),
        },
    )
    .await?;
    let answer: Value = serde_json::from_str(&done.output).map_err(|_| failure(TOOL, &[], &done.errors))?;
    read(&answer, &stage::variables(job, &["UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL"]))
        .ok_or(FetchError::NoRegistry { tool: TOOL })
}

/// The indexes that pip would use; for uv, its variables come first.
fn read(answer: &Value, uv: &BTreeMap<String, String>) -> Option<Settings> {
    let items = answer.get("items")?.as_object()?;
    let configured = |name: &str| {
        [":env:", "install", "global"]
            .iter()
            .find_map(|section| items.get(&format!("{section}.{name}"))?.as_str().map(str::to_owned))
    };
    let default = answer.get("index")?.as_str()?.to_owned();
    let of_uv = |names: &[&str]| names.iter().find_map(|name| uv.get(*name).cloned());
    let index = of_uv(&["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
        .or_else(|| configured("index-url"))
        .unwrap_or_else(|| default.clone());
    let extra = of_uv(&["UV_EXTRA_INDEX_URL"]).or_else(|| configured("extra-index-url")).unwrap_or_default();
    let mut settings = Settings::default();
    settings.registries.push(Address::parse(&index, 443)?);
    for url in extra.split_whitespace() {
        settings.registries.push(Address::parse(url, 443)?);
    }
    if index == default
        && let Some(files) = answer.get("files").and_then(Value::as_str)
    {
        // The default index has files on another host, which pip knows.
        settings.registries.push(Address::parse(files, 443)?);
    }
    settings.env.insert("PIP_INDEX_URL".to_owned(), index);
    if !extra.is_empty() {
        settings.env.insert("PIP_EXTRA_INDEX_URL".to_owned(), extra);
    }
    if let Some(certificate) = configured("cert") {
        // In the bundle for PIP_CERT, with the user's other authorities.
        settings.trusts.push(Source::File(certificate.into()));
    }
    if let Some(hosts) = configured("trusted-host") {
        settings.env.insert("PIP_TRUSTED_HOST".to_owned(), hosts);
    }
    // The rest of the user's configuration is not used.
    settings.env.insert("PIP_CONFIG_FILE".to_owned(), "/dev/null".to_owned());
    settings.registries.sort();
    settings.registries.dedup();
    Some(settings)
}

/// Makes commands find their interpreter relative to themselves. Files are only opened through directories without
/// links, because the package could write there.
fn relocate(tree: &Path) -> std::io::Result<()> {
    const HEADER: &str =
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python3' \"$0\" \"$@\"\n' '''\n";
    let own = tree.join("bin/").display().to_string();
    let top = directory(CWD, tree)?;
    let commands = directory(&top, Path::new("bin"))?;
    for entry in Dir::read_from(&commands)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().to_lowercase().starts_with("activate") {
            rustix::fs::unlinkat(&commands, name, AtFlags::empty())?;
            continue;
        }
        let Some(text) = text(&commands, name)? else { continue };
        let lines = |count: usize| text.splitn(count + 1, '\n').nth(count).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        let second = text.lines().nth(1).unwrap_or_default();
        let body = if first.starts_with("#!") && first.contains(&own) {
            lines(1)
        } else if first == "#!/bin/sh" && second.starts_with("'''exec'") && second.contains(&own) {
            lines(3)
        } else {
            continue;
        };
        // In place, to keep the mode.
        overwrite(&commands, name, &format!("{HEADER}{body}"))?;
    }
    let settings = c"pyvenv.cfg";
    let text = text(&top, settings)?.ok_or(std::io::ErrorKind::InvalidData)?;
    let kept = text.lines().filter(|line| !line.starts_with("command"));
    overwrite(&top, settings, &(kept.collect::<Vec<_>>().join("\n") + "\n"))
}

fn directory(at: impl AsFd, path: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

/// None for other than regular text files.
fn text(at: impl AsFd, name: &CStr) -> std::io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match rustix::fs::openat(at, name, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_COMMAND {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).ok())
}

fn overwrite(at: impl AsFd, name: &CStr, content: &str) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    std::fs::File::from(rustix::fs::openat(at, name, flags, Mode::empty())?).write_all(content.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn the_index_is_the_one_that_is_configured_last() {
        let hosts = |items: Value, uv: &[(&str, &str)]| {
            let answer = serde_json::json!({"items": items, "index": "https://index.example/simple", "files": "files.example"});
            let uv = uv.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let settings = read(&answer, &uv).unwrap();
            settings.registries.iter().map(|to| format!("{}:{}", to.host, to.port)).collect::<Vec<_>>()
        };
        assert_eq!(hosts(serde_json::json!({}), &[]), ["files.example:443", "index.example:443"]);
        let items = serde_json::json!({"global.index-url": "https://a.example/", ":env:.index-url": "http://127.0.0.1:1/"});
        assert_eq!(hosts(items.clone(), &[]), ["127.0.0.1:1"]);
        assert_eq!(hosts(items, &[("UV_DEFAULT_INDEX", "https://u.example")]), ["u.example:443"]);
    }

    #[test]
    fn environment_commands_find_their_interpreter_anywhere() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path();
        std::fs::create_dir(tree.join("bin")).unwrap();
        let own = tree.join("bin/python3").display().to_string();
        std::fs::write(tree.join("bin/short"), format!("#!{own}\nimport x\n")).unwrap();
        std::fs::write(
            tree.join("bin/long"),
            format!("#!/bin/sh\n'''exec' {own} \"$0\" \"$@\"\n' '''\nimport x\n"),
        )
        .unwrap();
        std::fs::write(tree.join("bin/other"), "#!/bin/sh\necho\n").unwrap();
        std::fs::write(tree.join("bin/activate"), "").unwrap();
        let (outside, script) = (tempfile::tempdir().unwrap(), format!("#!{own}\nimport x\n"));
        std::fs::write(outside.path().join("script"), &script).unwrap();
        std::os::unix::fs::symlink(outside.path().join("script"), tree.join("bin/link")).unwrap();
        std::fs::write(tree.join("pyvenv.cfg"), format!("home = /usr/bin\ncommand = {own}\n")).unwrap();
        relocate(tree).unwrap();
        let text = |name: &str| std::fs::read_to_string(tree.join(name)).unwrap();
        assert!(text("bin/short").starts_with("#!/bin/sh\n'''exec' \"$(dirname"));
        assert!(text("bin/short").ends_with("' '''\nimport x\n"));
        assert_eq!(text("bin/short"), text("bin/long"));
        assert_eq!(text("bin/other"), "#!/bin/sh\necho\n");
        assert!(!tree.join("bin/activate").exists());
        assert_eq!(text("pyvenv.cfg"), "home = /usr/bin\n");
        assert_eq!(text("bin/link"), script, "what a link names is not the package's");
        // A package that ran could put links in place of what is written.
        std::fs::rename(tree.join("pyvenv.cfg"), outside.path().join("settings")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("settings"), tree.join("pyvenv.cfg")).unwrap();
        assert!(relocate(tree).is_err());
        std::fs::rename(tree.join("bin"), outside.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("bin"), tree.join("bin")).unwrap();
        assert!(relocate(tree).is_err());
    }
}
