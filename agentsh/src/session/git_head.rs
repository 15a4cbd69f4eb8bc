//! Reads the commit of a repository without git, at the start and end of every session.

use std::path::Path;

use agentsh_base::small_file;

/// Limit of a ref file.
const MAX_NAME_BYTES: u64 = 4 << 10;
/// Limit of packed refs.
const MAX_PACKED_BYTES: u64 = 16 << 20;

/// None: not a working tree, or without commits. Its content is untrusted.
#[must_use]
pub fn head(project: &Path) -> Option<String> {
    let name = |path: &Path| small_file::text(path, MAX_NAME_BYTES);
    let dot = project.join(".git");
    let (own, said) = match name(&dot.join("HEAD")) {
        Some(said) => (dot, said),
        None => {
            let own = project.join(name(&dot)?.strip_prefix("gitdir:")?.trim());
            let said = name(&own.join("HEAD"))?;
            (own, said)
        }
    };
    let id = match said.strip_prefix("ref:").map(str::trim) {
        None => said,
        Some(branch) => {
            let common = name(&own.join("commondir")).map_or(own.clone(), |named| own.join(named.trim()));
            name(&common.join(branch)).or_else(|| packed(&common, branch))?
        }
    };
    let id = id.trim();
    // A ref may name any file, so only a commit id is accepted.
    let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

fn packed(common: &Path, branch: &str) -> Option<String> {
    let text = small_file::text(common.join("packed-refs"), MAX_PACKED_BYTES)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(_, name)| *name == branch).map(|(id, _)| id.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn a_head_is_found_wherever_git_keeps_it() {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let found = |project: &str| head(&place.path().join(project));
        assert_eq!(found("main"), None);
        write("main/.git/HEAD", "ref: refs/heads/trunk\n");
        assert_eq!(found("main"), None, "no commit yet");
        write("main/.git/packed-refs", &format!("# pack-refs\n{one} refs/heads/trunk\n"));
        assert_eq!(found("main"), Some(one.clone()));
        write("main/.git/refs/heads/trunk", &format!("{two}\n"));
        assert_eq!(found("main"), Some(two));
        write("main/.git/worktrees/side/HEAD", &format!("{one}\n"));
        write("main/.git/worktrees/side/commondir", "../..\n");
        write("side/.git", &format!("gitdir: {}\n", place.path().join("main/.git/worktrees/side").display()));
        assert_eq!(found("side"), Some(one.clone()), "detached");
        write("main/.git/worktrees/side/HEAD", "ref: refs/heads/trunk\n");
        write("main/.git/refs/heads/trunk", "a secret\n");
        assert_eq!(found("side"), None, "nothing but a commit is read");
    }
}
