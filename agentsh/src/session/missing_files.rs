//! Files of this machine that a program looked for and that are not there inside, or may not be written: told where a session
//! learns or was asked to. They stay as they are.

use std::path::{Component, Path, PathBuf};

use super::refused_files::{self, Refusal};
use super::{Session, why};
use crate::policy::Question;
use crate::sandbox::seccomp::Wanted;
use crate::types::ServerId;

/// Of their own in every sandbox, or shown to everybody.
const OTHERS: [&str; 11] =
    ["/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/tmp"];
/// Different ones that are looked at; of more, nothing is learned.
const MOST_LOOKED_AT: usize = 50_000;

/// A call looked for a file and goes on.
pub fn hear(session: &Session, server: Option<&ServerId>, pid: u32, wanted: &Wanted) {
    let Some(path) = absolute(pid, wanted) else { return };
    if OTHERS.iter().any(|other| path.starts_with(other)) {
        return;
    }
    let mut seen = session.looked_for.borrow_mut();
    let key = (server.cloned(), path, wanted.writes);
    if seen.len() >= MOST_LOOKED_AT || seen.contains(&key) {
        return;
    }
    let (_, path, _) = &key;
    let found = missing(session, server, pid, path, wanted.writes);
    seen.insert(key);
    drop(seen);
    if let Some(path) = found {
        let right = if wanted.writes { "fs.write_file" } else { "fs.read_file" };
        let path = path.to_string_lossy().into_owned();
        let refusal = Refusal { owner: server.cloned(), rights: vec![right.to_owned()], path };
        refused_files::tell(session, &refusal);
    }
}

/// What would have to be granted; None where nothing would, or where it is not there outside either.
fn missing(
    session: &Session,
    server: Option<&ServerId>,
    pid: u32,
    path: &Path,
    writes: bool,
) -> Option<PathBuf> {
    let is_outside = |path: &Path| path.symlink_metadata().is_ok();
    let inside = |path: &Path| {
        let below = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(pid.to_string()).join("root").join(below).symlink_metadata().is_ok()
    };
    let wanted = match (is_outside(path), path.parent()) {
        (true, _) => path,
        // A new file in a directory that is not there inside.
        (false, Some(directory)) if writes && is_outside(directory) && !inside(directory) => directory,
        _ => return None,
    };
    let text = wanted.to_string_lossy().into_owned();
    let question = if writes { Question::Write(text) } else { Question::Read(text) };
    let answer = why::ask(session, server, &question);
    // What nothing grants and is there all the same is the sandbox's own.
    let is_own = answer.rule.file == "default" && inside(wanted);
    (!answer.allow && !is_own).then(|| wanted.to_owned())
}

/// By its letters; None for what cannot be known.
fn absolute(pid: u32, wanted: &Wanted) -> Option<PathBuf> {
    if wanted.path.as_os_str().is_empty() {
        return None;
    }
    let from = if wanted.path.is_absolute() {
        PathBuf::from("/")
    } else {
        let process = Path::new("/proc").join(pid.to_string());
        let link = match wanted.directory {
            Some(number) => process.join("fd").join(number.to_string()),
            None => process.join("cwd"),
        };
        std::fs::read_link(link).ok().filter(|directory| directory.is_absolute())?
    };
    let mut path = PathBuf::from("/");
    for part in from.join(&wanted.path).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            _ => {}
        }
    }
    Some(path)
}
