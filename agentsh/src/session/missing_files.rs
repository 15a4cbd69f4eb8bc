//! Reports files of this machine that a program looked for and could not see or write: with `--learn` or
//! `--tell-files` at once, and refused writes otherwise at the end of a run that failed, and to `agentsh why`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::refused_files::{self, Refusal};
use super::{Session, why};
use agentsh_base::types::ServerId;
use agentsh_policy::Question;
use agentsh_sandbox::open_inside;
use agentsh_sandbox::remount_guards::Namespaces;
use agentsh_sandbox::seccomp::{FileEffect, MissingFile};
use agentsh_store::escape;

/// In every sandbox, or generated.
const OTHERS: [&str; 12] = [
    "/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/run",
    "/var/tmp",
];
/// Limit of examined paths, and of their bytes.
const MAX_EXAMINED_PATHS: usize = 50_000;
const MAX_BYTES: usize = 8 << 20;

/// Limits of remembered and of listed places in the home.
const MAX_MADE: usize = 100;
const MAX_GONE: usize = 5;

type Key = (Option<ServerId>, PathBuf, bool);

/// Files that were looked for: the program, and whether for writing.
#[derive(Debug, Default)]
pub struct MissingFileLog {
    seen: BTreeSet<Key>,
    bytes: usize,
    /// There were more.
    pub is_cut: bool,
}

impl MissingFileLog {
    /// Whether it is new and within the limit.
    fn add(&mut self, key: Key) -> bool {
        if self.is_cut || self.seen.contains(&key) {
            return false;
        }
        self.bytes += key.1.as_os_str().len();
        self.is_cut = self.seen.len() >= MAX_EXAMINED_PATHS || self.bytes > MAX_BYTES;
        !self.is_cut && self.seen.insert(key)
    }
}

/// Handles a lookup, which continues.
pub fn handle_lookup(session: &Session, server: Option<&ServerId>, pid: u32, wanted: &MissingFile) {
    let Some(path) = wanted.absolute(pid) else { return };
    if OTHERS.iter().any(|other| path.starts_with(other)) {
        return;
    }
    let key = (server.cloned(), path.clone(), wanted.writes);
    if !session.live.refusals.looked_for.borrow_mut().add(key) {
        return;
    }
    let found = missing_grant(session, server, pid, &path, wanted.writes);
    if let Some((path, right)) = found {
        let path = path.to_string_lossy().into_owned();
        let refusal = Refusal { owner: server.cloned(), rights: vec![right.to_owned()], path };
        refused_files::report_refusal(session, &refusal);
    }
}

/// Directories of the sandbox itself: no grant replaces them by the host's.
const OWN: [&str; 6] = ["/dev", "/etc", "/proc", "/run", "/sys", "/var/run"];

/// Handles a call that changes a file, and continues. A mount that is read-only inside will refuse it. That is
/// recorded but not reported, because many programs try it and continue without.
pub fn hear_change(session: &Session, server: Option<&ServerId>, pid: u32, path: &Path, effect: FileEffect) {
    let exists = || path.symlink_metadata().is_ok();
    let Session { facts, live, .. } = session;
    let is_in_project = path.starts_with(&facts.context.project);
    let may_be_new = matches!(effect, FileEffect::Makes | FileEffect::Writes) && !is_in_project;
    let mut made = live.agent.made_at_home.borrow_mut();
    if may_be_new && server.is_none() && made.len() < MAX_MADE {
        made.extend(made_at_home(&facts.context.home, pid, path));
    }
    let is_done = match effect {
        _ if is_in_project || OWN.iter().any(|own| path.starts_with(own)) => true,
        FileEffect::Makes => exists(),
        FileEffect::Changes | FileEffect::Unlinks | FileEffect::RemovesDirectory => !exists(),
        FileEffect::Writes => false,
    };
    if is_done || why::view_inside(pid, path).is_some_and(|(_, is_read_only, _)| !is_read_only) {
        return;
    }
    let there = path.ancestors().find(|above| above.symlink_metadata().is_ok()).unwrap_or(path);
    // As outside.
    if rustix::fs::access(there, Access::WRITE_OK).is_err() {
        return;
    }
    let refusal = Refusal {
        owner: server.cloned(),
        rights: vec!["fs.write_file".to_owned()],
        path: there.to_string_lossy().into_owned(),
    };
    if facts.tells_files {
        return refused_files::report_refusal(session, &refusal);
    }
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    live.refusals.writes.borrow_mut().add(program.trim_end_matches('\n'), refusal);
}

/// Says what the agent leaves in such a home.
pub fn tell_what_is_gone(session: &Session, inside: &Namespaces) {
    let context = &session.facts.context;
    // Directories and devices count as existing, too.
    let is_there = |place: &&PathBuf| {
        !matches!(open_inside::open(&context.zygote, inside, &context.home.join(place)), Ok(None))
    };
    let made = session.live.agent.made_at_home.take();
    let shown =
        made.iter().filter(is_there).map(|place| format!("~/{}", escape::line(&place.to_string_lossy())));
    let shown: Vec<_> = shown.take(MAX_GONE).collect();
    if !shown.is_empty() {
        let more = if shown.len() == MAX_GONE { " and perhaps more" } else { "" };
        session.record.note(&format!(
            "not kept, because the home inside ends with the run: {}{more}; install into the project, or outside",
            shown.join(", ")
        ));
    }
}

/// The place below the home of a new file, command or library in a home of the sandbox's own: its user looks
/// for it later. None in other hidden directories, where programs keep their own data.
fn made_at_home(home: &Path, pid: u32, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(home).ok()?;
    let is_installed = |part: &std::ffi::OsStr| part == "bin" || part == "lib";
    let is_hidden = below.as_os_str().as_encoded_bytes().starts_with(b".");
    let parts = match below.iter().position(is_installed) {
        Some(at) if !below.starts_with(".cache") => at + 1,
        None if !is_hidden => 1,
        _ => return None,
    };
    let (found, _, device) = why::view_inside(pid, path)?;
    let (_, _, own) = why::view_inside(pid, home)?;
    let is_private = device == own && rustix::fs::stat(home).is_ok_and(|there| there.st_dev != own);
    (found != path && is_private).then(|| below.iter().take(parts).collect())
}

/// The missing grant and Landlock right; None if none is missing, or the file does not exist outside either.
fn missing_grant(
    session: &Session,
    server: Option<&ServerId>,
    pid: u32,
    path: &Path,
    writes: bool,
) -> Option<(PathBuf, &'static str)> {
    let inside = |path: &Path| {
        let below = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(pid.to_string()).join("root").join(below).symlink_metadata().is_ok()
    };
    let found = path.symlink_metadata();
    let right = match (&found, path.parent()) {
        (Ok(found), _) => match (found.is_dir(), writes) {
            (true, true) => "fs.make_dir",
            (true, false) => "fs.read_dir",
            (false, true) => "fs.write_file",
            (false, false) => "fs.read_file",
        },
        // A new file in an invisible directory.
        (Err(_), Some(directory)) if writes && directory.symlink_metadata().is_ok() && !inside(directory) => {
            "fs.make_reg"
        }
        _ => return None,
    };
    let text = path.to_string_lossy().into_owned();
    let question = if writes { Question::Write(text) } else { Question::Read(text) };
    let answer = why::ask(&session.facts, session.live.agent.spec.get(), server, &question);
    // It exists without a grant: it belongs to the sandbox itself.
    let is_own = answer.rule.file == "default" && inside(path);
    (!answer.allow && !is_own).then(|| (path.to_owned(), right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_file_log_is_bounded_and_marked_as_cut() {
        let mut looked = MissingFileLog::default();
        let name = |number: usize| PathBuf::from(format!("/{number}/{}", "x".repeat(4_000)));
        let heard = (0..5_000).filter(|number| looked.add((None, name(*number), false))).count();
        assert!(heard > 1_000 && heard < 2_200 && looked.is_cut, "{heard}");
        assert!(!looked.add((None, "/short".into(), false)));
    }
}
