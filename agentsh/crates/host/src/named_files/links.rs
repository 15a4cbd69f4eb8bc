//! Links of the home that lead into a writable directory, as those of people who keep their files in a repository do.

use std::collections::VecDeque;
use std::path::Path;

use agentsh_policy::builtin_paths::HOME_READ_ONLY;
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::{Host, PathKind};
use agentsh_sandbox::spec::NamedKind;

use super::NamedFiles;

/// Directories that are read, those near the home first, and how deep: `.config/systemd/user/x.service`.
const MAX_DIRECTORIES: usize = 600;
const MAX_LEVELS: usize = 3;
/// Links that are followed.
const MAX_FOLLOWED: usize = 2_000;
/// Of caches, states and packages: no program obeys what it keeps there.
const PASSED_OVER: [&str; 4] = [".cache", ".local/state", ".git", "node_modules"];

impl NamedFiles<'_> {
    pub(super) fn follow_links(&mut self, host: &CachedHost<'_>) {
        let home = &self.context.home;
        let (mut open, mut links) = (VecDeque::from([(home.clone(), 0)]), Vec::new());
        let mut rest = MAX_DIRECTORIES;
        while let Some((directory, level)) = open.pop_front() {
            for (name, kind) in host.names(&directory).unwrap_or_default() {
                let path = directory.join(&name);
                let is_dotted = name.as_encoded_bytes().starts_with(b".");
                let mut rows = HOME_READ_ONLY.iter().map(|(row, _)| Path::new(row));
                if level == 0 && !is_dotted && !rows.any(|row| row.starts_with(&name)) {
                    continue;
                }
                match kind {
                    PathKind::Symlink if links.len() < MAX_FOLLOWED => links.push(path),
                    PathKind::Directory
                        if level < MAX_LEVELS
                            && rest > 0
                            && !self.roots.contains(&path)
                            && path != self.context.data
                            && !PASSED_OVER.iter().any(|passed| path.ends_with(passed)) =>
                    {
                        rest -= 1;
                        open.push_back((path, level + 1));
                    }
                    _ => {}
                }
            }
        }
        for link in links {
            let why = format!("the link {} leads to it", self.display_path(&link));
            self.add(&link, NamedKind::Directory, &why);
        }
    }
}
