//! Handles inotify events: names next to guards, and directories in which a repository may appear.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::super::name_watcher::NameChange;
use super::super::new_repositories;
use super::Watch;
use agentsh_host::copies::Copy;
use agentsh_sandbox::host::may_be_module;

/// Events of one name that are kept.
const MAX_EVENTS: usize = 8;

impl Watch {
    pub(super) fn watch_guarded(&mut self) {
        let of_guards = self.guards.iter().filter_map(|mount| mount.target.parent());
        let watched = self.check.baseline.watched_directories();
        let directories: BTreeSet<&Path> = of_guards.chain(watched.iter().map(PathBuf::as_path)).collect();
        if let Some(names) = &mut self.names {
            for directory in directories {
                names.watch(directory, true);
            }
        }
    }

    /// Watches every directory in which a repository may appear, up to the limit.
    pub(super) fn watch_tree(&mut self) {
        let mut open: std::collections::VecDeque<PathBuf> = self.check.directories.iter().cloned().collect();
        while let Some(directory) = open.pop_front() {
            if self.has_ended() {
                if let Some(names) = &mut self.names {
                    names.is_incomplete = true;
                }
                return;
            }
            open.extend(self.watch_new(&directory));
            if self.names.as_ref().is_none_or(|names| names.is_incomplete) {
                return;
            }
        }
    }

    /// Watches one directory, and returns its subdirectories.
    fn watch_new(&mut self, directory: &Path) -> Vec<PathBuf> {
        if let Some(names) = &mut self.names {
            match self.unfinished.device_around(directory) {
                Some(device) => names.hold(directory, device),
                None => drop(names.watch(directory, false)),
            }
        }
        let (mut inner, mut begins) = (Vec::new(), false);
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            begins |= new_repositories::begins_bare(&path);
            if new_repositories::is_repository_name(&path) {
                self.note_repository(&path);
            } else if self.check.baseline.is_arrival(&path) && !self.targets.contains(&path) {
                // Created before the watch.
                self.arrivals.insert(path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == "node_modules" {
                    // Too many to watch: searched periodically.
                    self.look_again.get_or_insert_with(Instant::now);
                } else {
                    inner.push(path);
                }
            }
        }
        // Created before the watch, too.
        let is_begun = begins && new_repositories::is_repository(directory) || may_be_module(directory);
        if is_begun && !self.check.baseline.existed_before(directory) {
            self.note_bare(directory);
        }
        inner
    }

    fn note_bare(&mut self, directory: &Path) {
        if !new_repositories::is_repository_name(directory) && !self.new_repository_watcher.holds(directory) {
            self.note_repository(directory);
        }
    }

    pub(super) fn note_repository(&mut self, entry: &Path) {
        if !self.check.baseline.existed_before(entry) {
            if entry.file_name().is_some_and(|name| name != ".git") && entry.is_dir() {
                // Nothing below is watched, and to git it is a directory like others.
                self.look_again.get_or_insert_with(Instant::now);
            }
            self.new_repository_watcher.note(entry, self.names.as_mut(), &self.check.host);
        } else if !self.targets.contains(entry) {
            self.is_moved = true;
        }
    }

    /// Reads events. True when a guard may be lost.
    pub(super) fn read_events(&mut self) -> bool {
        self.release();
        let Some(names) = &mut self.names else { return false };
        let happened = names.read_changes();
        let mut matters = std::mem::take(&mut self.is_moved);
        for (path, what, is_directory) in happened {
            self.new_repository_watcher.handle_event(&path, self.names.as_mut(), &self.check.host);
            if what == NameChange::Gone && is_directory {
                self.unfinished.follow(&path, self.names.as_mut());
            }
            let is_held = self.targets.contains(&path)
                || self.copies.get(&path).is_some_and(|copy| *copy != Copy::Absent)
                || self.new_repository_watcher.holds(&path);
            if is_held {
                let seen = self.seen.entry(path.clone()).or_default();
                if seen.len() < MAX_EVENTS {
                    seen.push(what);
                }
                matters |= what != NameChange::Written;
            }
            if matches!(what, NameChange::Made | NameChange::MovedHere) {
                if new_repositories::is_repository_name(&path) {
                    self.note_repository(&path);
                    continue;
                }
                if self.check.baseline.is_arrival(&path) {
                    if !is_held || self.check.baseline.leads_away(&path) {
                        self.arrivals.insert(path);
                    }
                    continue;
                }
                let above = path.parent().unwrap_or(&path).to_owned();
                let begins_bare = new_repositories::begins_bare(&path);
                if begins_bare || may_be_module(&above) {
                    self.note_bare(&above);
                }
                if is_directory && !is_held && !begins_bare {
                    let mut open = vec![path];
                    while let Some(directory) = open.pop() {
                        open.extend(self.watch_new(&directory));
                    }
                }
            }
        }
        matters | std::mem::take(&mut self.is_moved)
    }
}
