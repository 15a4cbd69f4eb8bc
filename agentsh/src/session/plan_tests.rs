//! What the shipped policies make of one project, as people read it: a change of a policy shows here as a change of mounts.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;

use crate::policy::{self, PathContext, builtin};
use crate::sandbox::layout::{Layout, Request, layout};
use crate::sandbox::plan::{Access, Identity, LandlockAccess, What};
use crate::sandbox::testing::FakeHost;

use super::grants;

const HOME: &str = "/home/u";
const PROJECT: &str = "/home/u/project";

/// A project of Node under git, in a home with keys and caches.
fn host() -> FakeHost {
    FakeHost::of(&[
        "/usr/bin/",
        "/usr/lib/",
        "/bin -> usr/bin",
        "/lib -> usr/lib",
        "/etc/ssl/",
        "/dev/null ?",
        "/home/u/.ssh/id_ed25519",
        "/home/u/.aws/credentials",
        "/home/u/.bashrc",
        "/home/u/.cache/",
        "/home/u/.npm/",
        "/home/u/.claude/",
        "/home/u/.claude.json",
        "/home/u/.codex/",
        "/home/u/project/.git/config = [core]\n\thooksPath = .husky\n",
        "/home/u/project/.git/hooks/",
        "/home/u/project/.git/HEAD",
        "/home/u/project/.husky/pre-commit",
        "/home/u/project/.env",
        "/home/u/project/CLAUDE.md",
        "/home/u/project/package.json",
    ])
}

fn planned(name: &str) -> String {
    let policy = policy::parse(name, builtin::text(name).unwrap()).unwrap();
    let context = PathContext { home: HOME.into(), project: PROJECT.into() };
    let process = &policy.agent;
    let expanded = grants::expand(&process.filesystem, &context);
    assert_eq!(expanded.refused, None);
    let filesystem = &process.filesystem;
    let project_access = if filesystem.may_write(Path::new(PROJECT), &context) {
        Some(Access::ReadWrite)
    } else {
        filesystem.may_read(Path::new(PROJECT), &context).then_some(Access::ReadOnly)
    };
    let request = Request {
        identity: Identity { host_uid: 1000, host_gid: 1000, from_root: false },
        user: "u",
        home: Path::new(HOME),
        project: Path::new(PROJECT),
        project_access,
        layer: None,
        grants: expanded.grants,
        own_state: Vec::new(),
        denied: expanded.denied,
        unmasked: expanded.unmasked,
        guard_all: filesystem.guard_all.as_ref().is_some_and(|all| all.value),
        pinned: Vec::new(),
        program_roots: Vec::new(),
        links: Vec::new(),
        private_bytes: 1 << 30,
        files: Vec::new(),
        extra: Vec::new(),
        caches: Vec::new(),
        stand_ins: true,
        beyond_landlock: Vec::new(),
        sets_git: false,
        for_agent: true,
        bridge: None,
        execute: Vec::new(),
        shared_sockets: true,
        terminal: None,
    };
    told(&layout(&request, &host()))
}

fn told(layout: &Layout) -> String {
    let mut lines: Vec<String> = Vec::new();
    for mount in &layout.mounts {
        let what = match &mount.what {
            What::Directory { mode } => format!("directory {mode:o}"),
            What::File { mode: 0, .. } => "hidden".to_owned(),
            What::File { content, mode } => format!("file of {} bytes, {mode:o}", content.len()),
            What::Symlink { to } => format!("-> {}", to.display()),
            What::Tmpfs { mode: 0o555, .. } => "hidden".to_owned(),
            What::Tmpfs { bytes, mode } => format!("private, {} MiB, {mode:o}", bytes >> 20),
            What::Bind { access: Access::ReadOnly, .. } => "read".to_owned(),
            What::Bind { access: Access::ReadWrite, .. } => "write".to_owned(),
            What::Bind { access: Access::Device, .. } => "device".to_owned(),
            What::Overlay { .. } => "layer".to_owned(),
            What::Copy { .. } => "copy".to_owned(),
            What::Proc => "proc".to_owned(),
            What::Devpts => "terminals".to_owned(),
        };
        lines.push(format!("{}: {what}", mount.target.display()));
    }
    lines.extend(
        layout.placeholders.iter().map(|(path, kind)| format!("stand-in {kind:?}: {}", path.display())),
    );
    lines.extend(layout.refused.iter().map(|(path, why)| format!("refused {}: {why}", path.display())));
    let writable = layout.landlock.iter().filter(|rule| matches!(rule.access, LandlockAccess::Write { .. }));
    lines.extend(writable.map(|rule| format!("landlock write {}", rule.path.display())));
    lines.join("\n")
}

#[test]
fn shipped_policies_make_these_plans() {
    for (name, _) in builtin::POLICIES {
        insta::assert_snapshot!(format!("plan_{name}"), planned(name));
    }
}
