//! Restores guarded files of a sandbox without mounts, after all of its processes have ended.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::final_check::undo;
use agentsh_host::copies;
use agentsh_host::copies::{Copy, make_directories_above};
use agentsh_host::undo::SavedVersions;
use agentsh_store::words::GuardChange;

/// Sets aside the program's changes of `guarded`, restores the old versions, and reports it.
pub fn restore(
    guarded: &BTreeMap<PathBuf, Copy>,
    aside: &SavedVersions,
    say: &mut dyn FnMut(&Path, GuardChange, String),
) {
    for (path, was) in guarded {
        let (replaced, is) = free_the_way(path, was);
        for (there, name) in replaced {
            let text = format!(
                "the program replaced {} on the path to {}; agentsh moved it to {}: check it before you use it",
                there.display(),
                path.display(),
                name.display()
            );
            say(&there, GuardChange::PutBack, text);
        }
        if is == *was || (is.is_nothing() && was.is_nothing()) {
            continue;
        }
        copies::let_owner_write(path);
        // Without room for a copy, or in a directory that its owner may not change, it is renamed.
        let undone = aside.keep(path, &is).and_then(|()| put_back(was, path));
        let undone = undone.or_else(|error| {
            let name = agentsh_host::copies::set_aside(path).map_err(|_| error)?;
            let text = format!("{} is now called {}", path.display(), name.display());
            say(path, GuardChange::SetAside, text);
            put_back(was, path)
        });
        let shown = path.display();
        match undone {
            Ok(()) => {
                let text =
                    format!("restored {shown}, which the program changed; {} has the change", undo(path));
                say(path, GuardChange::PutBack, text);
            }
            Err(error) => {
                let text = format!(
                    "cannot restore {shown}, which the program changed: {error}; check it before you use it"
                );
                say(path, GuardChange::NotPutBack, text);
            }
        }
    }
}

/// Sets aside what is new on the way to a guarded path, such as a link in place of `.git`. Returns what that was, its new
/// name, and what is at the path then.
fn free_the_way(path: &Path, was: &Copy) -> (Vec<(PathBuf, PathBuf)>, Copy) {
    let mut replaced = Vec::new();
    loop {
        let is = Copy::of(path);
        let Copy::Unreachable { there, .. } = &is else { return (replaced, is) };
        if is == *was {
            return (replaced, is);
        }
        let there = there.clone();
        match agentsh_host::copies::set_aside(&there) {
            Ok(name) => replaced.push((there, name)),
            // It is reported as a file that cannot be restored.
            Err(_) => return (replaced, is),
        }
    }
}

/// Restores what was there, with missing parent directories.
fn put_back(was: &Copy, path: &Path) -> io::Result<()> {
    if !was.is_nothing() {
        make_directories_above(path)?;
    }
    match was.put_back(path) {
        // Nothing was there, and not even its directory is.
        Err(error) if was.is_nothing() && error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
