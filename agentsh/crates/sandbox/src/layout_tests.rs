//! Layouts on a host that is a table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use std::path::{Path, PathBuf};

use crate::host::RealHost;
use crate::layout::{Layout, Stub, layout};
use crate::plan::{Access, Executable, Kind, LandlockAccess, NodeContent};
use crate::policy::Ruled;
use crate::spec::{
    Feature, File, Grant, PinnedBytes, PinnedFile, ProcessKind, ProjectLayer, RelocatedPath, SandboxSpec,
};
use crate::testing::{self, FakeHost};

const HOME: &str = "/home/u";
const PROJECT: &str = "/home/u/project";

/// A process that may write the project.
fn bare() -> SandboxSpec {
    testing::spec(HOME, PROJECT)
}

/// An agent in its project, on a host with what every test needs.
fn spec(change: impl FnOnce(&mut SandboxSpec)) -> impl FnOnce(&[&str]) -> Layout {
    let mut spec = bare();
    spec.process.kind = ProcessKind::Agent;
    spec.paths.has_project_directory = true;
    change(&mut spec);
    move |lines| layout(&spec, &host(lines))
}

fn host(lines: &[&str]) -> FakeHost {
    let common = ["/usr/bin/", "/bin -> usr/bin", "/dev/null ?", "/home/u/project/"];
    FakeHost::of(&[&common[..], lines].concat())
}

fn ruled<T>(value: T) -> Ruled<T> {
    Ruled { value, rule: Feature::Policy.rule() }
}

fn grant(path: &str, access: Access) -> Ruled<Grant> {
    ruled(Grant { path: path.into(), access })
}

/// The final content of a path: the last mount counts.
fn at<'l>(layout: &'l Layout, path: &str) -> Option<&'l NodeContent> {
    layout.mounts.iter().rev().find(|mount| mount.target == Path::new(path)).map(|mount| &mount.what)
}

fn order(layout: &Layout, path: &str) -> usize {
    layout
        .mounts
        .iter()
        .rposition(|mount| mount.target == Path::new(path))
        .unwrap_or_else(|| panic!("no {path}"))
}

#[track_caller]
fn is_bound(layout: &Layout, path: &str, wanted: Access) {
    match at(layout, path) {
        Some(NodeContent::Bind { access, .. }) => assert_eq!(*access, wanted, "{path}"),
        other => panic!("{path}: {other:?}"),
    }
}

#[track_caller]
fn is_hidden(layout: &Layout, path: &str) {
    match at(layout, path) {
        Some(NodeContent::Tmpfs { mode: 0o555, .. } | NodeContent::File { mode: 0, .. }) => {}
        other => panic!("{path}: {other:?}"),
    }
}

fn why<'l>(layout: &'l Layout, path: &str) -> &'l str {
    let found = layout.refused.iter().find(|(refused, _)| refused == Path::new(path));
    found.map_or("", |(_, why)| why)
}

#[test]
fn grants_are_mounted_shortest_first_over_a_private_home() {
    let layout = spec(|spec| {
        spec.paths.grants = vec![
            grant("/home/u/project/docs", Access::ReadOnly),
            grant("/srv", Access::ReadOnly),
            grant("/srv", Access::ReadWrite),
            grant("/data", Access::ReadOnly),
        ];
    })(&["/home/u/project/docs/", "/srv/", "/data/", "/home/u/notes"]);
    is_bound(&layout, "/srv", Access::ReadWrite);
    is_bound(&layout, "/data", Access::ReadOnly);
    is_bound(&layout, "/home/u/project/docs", Access::ReadOnly);
    assert!(matches!(at(&layout, HOME), Some(NodeContent::Tmpfs { mode: 0o700, .. })));
    assert!(order(&layout, "/data") < order(&layout, HOME));
    assert!(order(&layout, HOME) < order(&layout, PROJECT));
    assert!(order(&layout, PROJECT) < order(&layout, "/home/u/project/docs"));
    assert_eq!(at(&layout, "/home/u/notes"), None);
    assert!(matches!(at(&layout, "/bin"), Some(NodeContent::Symlink { to }) if to == Path::new("usr/bin")));
}

#[test]
fn grant_is_held_in_place_if_its_parents_can_be_renamed() {
    let guards = |outer| {
        let layout = spec(|spec| {
            spec.paths.grants =
                vec![grant("/opt/tools", outer), grant("/opt/tools/versions/3/bin", Access::ReadOnly)];
        })(&["/opt/tools/versions/3/bin/"]);
        layout.guards.iter().any(|mount| mount.target == Path::new("/opt/tools/versions/3/bin"))
    };
    assert!(guards(Access::ReadWrite));
    // A toolchain is large, and nobody inside can move it: it is neither watched nor copied.
    assert!(!guards(Access::ReadOnly));
}

#[test]
fn grant_of_a_missing_path_link_or_socket_says_why_not() {
    let layout = spec(|spec| {
        spec.paths.grants = ["/missing", "/link", "/socket"].map(|path| grant(path, Access::ReadOnly)).into();
    })(&["/link -> /usr", "/socket ?"]);
    assert_eq!(why(&layout, "/missing"), "does not exist");
    assert_eq!(why(&layout, "/link"), "not a file or a directory");
    assert_eq!(why(&layout, "/socket"), "not a file or a directory");
}

#[test]
fn no_grant_undoes_a_guard() {
    let layout = spec(|spec| {
        spec.paths.grants = vec![
            grant("/home/u/project/.git/hooks", Access::ReadWrite),
            grant("/home/u/.ssh", Access::ReadWrite),
            grant("/home/u/.aws", Access::ReadOnly),
        ];
    })(&[
        "/home/u/project/.git/hooks/",
        "/home/u/project/.git/config = x",
        "/home/u/.ssh/",
        "/home/u/.aws/",
    ]);
    is_bound(&layout, "/home/u/project/.git/config", Access::ReadOnly);
    assert!(order(&layout, PROJECT) < order(&layout, "/home/u/project/.git/config"));
    // Named by a grant and unmasked by no rule.
    is_bound(&layout, "/home/u/project/.git/hooks", Access::ReadOnly);
    assert_eq!(why(&layout, "/home/u/.ssh"), "SSH keys");
    assert_eq!(why(&layout, "/home/u/.aws"), "AWS credentials");
    is_hidden(&layout, "/home/u/.ssh");
}

#[test]
fn granted_home_is_masked_except_for_unmasked_files() {
    let home = |unmasked: Vec<PathBuf>| {
        spec(|spec| {
            spec.paths.grants = vec![grant(HOME, Access::ReadOnly)];
            spec.paths.unmasked = unmasked;
            spec.paths.hidden = vec![ruled("/home/u/project/secret".into())];
        })(&["/home/u/.ssh/id", "/home/u/project/secret"])
    };
    is_hidden(&home(Vec::new()), "/home/u/.ssh");
    is_hidden(&home(Vec::new()), "/home/u/project/secret");
    assert_eq!(at(&home(vec!["/home/u/.ssh".into()]), "/home/u/.ssh"), None);
}

/// git replaces it, which fails at a mount.
#[test]
fn script_of_the_agent_is_no_mount_where_the_agent_may_write_it() {
    let script = "/home/u/project/sub/s.sh";
    let is_mount = |change: &dyn Fn(&mut SandboxSpec)| {
        let layout = spec(|spec| {
            spec.paths.project_access = Some(Access::ReadWrite);
            let bytes = PinnedBytes::Copied { from: 0 };
            spec.process.pinned = vec![PinnedFile { path: script.into(), bytes, executable: false }];
            change(spec);
        })(&[script]);
        matches!(at(&layout, script), Some(NodeContent::Copy { .. }))
    };
    assert!(!is_mount(&|_| {}));
    assert!(is_mount(&|spec| spec.process.kind = ProcessKind::Server));
    assert!(is_mount(&|spec| spec.process.pinned[0].executable = true));
    assert!(is_mount(&|spec| spec.paths.project_access = Some(Access::ReadOnly)));
    assert!(is_mount(&|spec| spec.paths.project_access = None));
    assert!(is_mount(&|spec| spec.paths.layer = Some(ProjectLayer::Lent)));
    let guards: [&dyn Fn(&mut SandboxSpec); 2] =
        [&|spec| spec.paths.hidden = vec![ruled("/home/u/project/sub".into())], &|spec| {
            spec.paths.grants = vec![grant("/home/u/project/sub", Access::ReadOnly)]
        }];
    assert!(guards.into_iter().all(is_mount));
}

#[test]
fn stubs_reserve_missing_files_that_would_run_later() {
    let files = ["/home/u/project/.git/config = x", "/home/u/project/.git/HEAD", "/home/u/.claude/"];
    let layout = spec(|spec| {
        spec.paths.with_stub =
            [".mcp.json", "x.code-workspace"].map(|name| Path::new(PROJECT).join(name)).into();
    })(&files);
    let has_stub = |path: &str, kind| layout.stubs.contains(&(Path::new(PROJECT).join(path), kind));
    assert!(has_stub(".git/hooks", Stub::Directory));
    assert!(has_stub(".git/commondir", Stub::File));
    assert!(has_stub(".mcp.json", Stub::Socket));
    assert!(has_stub("x.code-workspace", Stub::Socket));
    assert!(has_stub(".claude", Stub::Directory));
    is_bound(&layout, "/home/u/project/.claude", Access::ReadOnly);
    // No program here obeys these at once: a new one is set aside, and until then nothing is created in the project.
    assert!(!has_stub(".vscode", Stub::Directory) && !has_stub(".envrc", Stub::Socket));
    assert_eq!(layout.worked_in, [PathBuf::from(PROJECT)]);
}

#[test]
fn git_ignores_stubs_besides_what_the_user_has_it_ignore() {
    let list = "/home/u/.config/git/ignore";
    let signs = ["/home/u/.claude/", "/home/u/.vscode/"];
    let names = |layout: &Layout| match at(layout, list) {
        Some(NodeContent::File { content, .. }) => String::from_utf8(content.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    let with_stub =
        |spec: &mut SandboxSpec| spec.paths.with_stub = [Path::new(PROJECT).join(".mcp.json")].into();
    let stubs = names(&spec(with_stub)(&signs));
    assert!(stubs.lines().any(|name| name == "/.claude"), "{stubs}");
    // A socket is seen by no git.
    assert!(!stubs.contains(".mcp.json"), "{stubs}");
    let own = File::new(list.into(), b"*.log".to_vec(), 0o644);
    let both = names(&spec(|spec| spec.placed.files.push(own.clone()))(&signs));
    assert!(both.starts_with("*.log\n") && both.lines().any(|name| name == "/.claude"), "{both}");
    // The directory that the policy shows there stays as it is.
    let shown = grant("/home/u/.config", Access::ReadWrite);
    let layout =
        spec(|spec| spec.paths.grants.push(shown.clone()))(&[&signs[..], &["/home/u/.config/"]].concat());
    assert!(at(&layout, list).is_none());
    assert!(at(&spec(|_| {})(&[]), list).is_none());
}

#[test]
fn without_stubs_existing_files_are_still_guarded() {
    let layout = spec(|spec| spec.paths.stubs = false)(&["/home/u/project/.git/hooks/"]);
    is_bound(&layout, "/home/u/project/.git/hooks", Access::ReadOnly);
    assert_eq!(at(&layout, "/home/u/project/.claude"), None);
    assert!(layout.stubs.iter().all(|(path, _)| path.ends_with("hooks")), "{:?}", layout.stubs);
}

#[test]
fn a_directory_in_which_nothing_can_be_made_is_read_only() {
    let mut host = host(&["/home/u/.claude/"]);
    host.unwritable.insert(PROJECT.into());
    let layout = layout(&bare(), &host);
    is_bound(&layout, PROJECT, Access::ReadOnly);
    assert!(why(&layout, PROJECT).contains("read-only inside"), "{:?}", layout.refused);
}

/// A mount over one name of a file does not lie over the others.
#[test]
fn directory_with_ambiguous_names_is_read_only() {
    let mut host = host(&["/home/u/project/.git/hooks/", "/home/u/project/secret"]);
    host.ambiguous.insert(PROJECT.into());
    let open = layout(&bare(), &host);
    is_bound(&open, PROJECT, Access::ReadOnly);
    assert!(why(&open, PROJECT).contains("read-only inside"), "{:?}", open.refused);
    // Nothing of what is guarded needs a place to be kept.
    assert!(open.stubs.is_empty(), "{:?}", open.stubs);
    let mut spec = bare();
    spec.paths.hidden = vec![ruled(Path::new(PROJECT).join("secret"))];
    is_hidden(&layout(&spec, &host), PROJECT);
    // A missing path needs no hiding, and the twin has one name for each file.
    spec.paths.hidden = vec![ruled(Path::new(PROJECT).join("nothing"))];
    is_bound(&layout(&spec, &host), PROJECT, Access::ReadOnly);
    host.ambiguous.clear();
    is_bound(&layout(&bare(), &host), PROJECT, Access::ReadWrite);
}

#[test]
fn words_of_git_commands_are_not_guarded_as_programs() {
    let config = "/home/u/project/.git/config = [alias]\n\tlast = log -1 HEAD\n\tcl = add a.txt\n\
                  \tcount = !git rev-list HEAD && ./tool index\n";
    let rest = [".git/HEAD", ".git/index", ".git/objects/", "a.txt", "tool"];
    let rest = rest.map(|name| format!("/home/u/project/{name}"));
    let lines: Vec<&str> = std::iter::once(config).chain(rest.iter().map(String::as_str)).collect();
    let layout = spec(|_| {})(&lines);
    for open in [".git/HEAD", ".git/index", "a.txt"] {
        assert_eq!(at(&layout, &format!("/home/u/project/{open}")), None, "{open}");
    }
    is_bound(&layout, "/home/u/project/tool", Access::ReadOnly);
}

#[test]
fn linked_working_tree_leads_to_its_repository() {
    let layout = spec(|_| {})(&[
        "/home/u/project/tree/.git = gitdir: ../store/x",
        "/home/u/project/store/x/config = [core]\n\thooksPath = .husky\n",
        "/home/u/project/store/x/HEAD",
        "/home/u/project/tree/.husky/",
    ]);
    is_bound(&layout, "/home/u/project/tree/.git", Access::ReadOnly);
    is_bound(&layout, "/home/u/project/store/x/config", Access::ReadOnly);
    // Hooks where the configuration says, counted from the working tree.
    is_bound(&layout, "/home/u/project/tree/.husky", Access::ReadOnly);
    // It is held, because it could be replaced after a rename.
    is_bound(&layout, "/home/u/project/store/x", Access::ReadWrite);
    assert!(layout.repositories.contains(&PathBuf::from("/home/u/project/store/x")));
}

#[test]
fn submodules_and_bare_repositories_are_guarded_where_they_lie() {
    let layout = spec(|_| {})(&[
        "/home/u/project/.git/modules/inner/HEAD",
        "/home/u/project/.git/modules/inner/config",
        "/home/u/project/bare/objects/",
        "/home/u/project/bare/refs/",
        "/home/u/project/bare/config",
    ]);
    is_bound(&layout, "/home/u/project/.git/modules/inner/config", Access::ReadOnly);
    is_bound(&layout, "/home/u/project/bare/config", Access::ReadOnly);
    is_bound(&layout, "/home/u/project/bare/objects", Access::ReadWrite);
}

#[test]
fn repository_behind_a_link_or_a_closed_directory_is_not_shown() {
    let layout =
        spec(|_| {})(&["/home/u/project/one/.git -> /srv/git", "/srv/git/", "/home/u/project/closed !"]);
    is_hidden(&layout, "/home/u/project/one/.git");
    assert!(why(&layout, "/home/u/project/one/.git").contains("not shown"));
    is_hidden(&layout, "/home/u/project/closed");
}

#[test]
fn more_repositories_than_can_be_guarded_are_hidden() {
    let lines: Vec<String> = (0..40).map(|number| format!("{PROJECT}/vendor/r{number}/.git/HEAD")).collect();
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    lines.push("/home/u/project/own/.git/HEAD");
    let mut host = host(&lines);
    host.most_mounts = 500 + 9 * 10;
    let layout = layout(&bare(), &host);
    is_hidden(&layout, "/home/u/project/vendor");
    is_bound(&layout, "/home/u/project/own/.git", Access::ReadWrite);
}

#[test]
fn landlock_opens_what_is_writable_and_nothing_beyond() {
    let elsewhere = |inside: &str| RelocatedPath {
        host: "/srv/shared".into(),
        inside: inside.into(),
        access: Access::ReadWrite,
    };
    let layout = spec(|spec| {
        spec.placed.elsewhere = vec![elsewhere("/run/extra")];
        spec.placed.beyond_landlock = vec![elsewhere("/run/beyond")];
        spec.paths.execute = vec!["/usr/bin/true".into()];
    })(&["/srv/shared/", "/usr/bin/true"]);
    let rule =
        |path: &str| layout.landlock.iter().find(|rule| rule.path == Path::new(path)).map(|rule| rule.access);
    is_bound(&layout, "/run/beyond", Access::ReadWrite);
    assert_eq!(rule("/run/beyond"), None);
    assert_eq!(rule("/run/extra"), Some(LandlockAccess::Write { execute: false, sockets: true }));
    assert_eq!(rule("/"), Some(LandlockAccess::ReadNoExecute));
    assert_eq!(rule("/usr/bin/true"), Some(LandlockAccess::Read));
    assert_eq!(rule("/srv/shared"), None);
    assert!(
        matches!(&layout.executable, Executable::Below(paths) if paths.contains(&"/usr/bin/true".into()))
    );
    assert!(matches!(at(&layout, "/run/beyond"), Some(NodeContent::Bind { kind: Kind::Directory, .. })));
}

#[test]
fn equal_hosts_give_equal_layouts() {
    let mut lines = vec!["/home/u/project/.git/config = x", "/home/u/project/a/.git/HEAD", "/home/u/.bashrc"];
    let one = spec(|_| {})(&lines);
    lines.reverse();
    assert_eq!(one, spec(|_| {})(&lines));
}

#[test]
fn deep_git_directory_is_looked_up_once() {
    let deep = format!("{PROJECT}/{}.git/config", "d/".repeat(150));
    // Its setting runs a command, so it has to stay guarded at its path.
    let host = host(&[&format!("{deep} = [core] sshCommand = x")]);
    let layout = layout(&bare(), &host);
    is_bound(&layout, &deep, Access::ReadOnly);
    is_bound(&layout, &format!("{PROJECT}/d/d"), Access::ReadWrite);
    assert!(host.looks.get() < 2_000, "{}", host.looks.get());
}

#[test]
fn a_tree_that_is_too_deep_is_hidden_near_its_top() {
    for (name, levels, shown) in [("a-name", 600, 200), (&*"n".repeat(250), 20, 13)] {
        hides_what_lies_deep(name, levels, shown);
    }
}

fn hides_what_lies_deep(name: &str, levels: usize, shown: usize) {
    let place = tempfile::tempdir().unwrap();
    let mut at = rustix::fs::open(place.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, name, rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, name, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    }
    let mut spec = bare();
    spec.paths.project = place.path().to_owned();
    let layout = layout(&spec, &RealHost::default());
    let hidden: Vec<_> = layout.refused.iter().map(|(path, _)| path.strip_prefix(place.path())).collect();
    assert_eq!(hidden.len(), 1, "{hidden:?}");
    assert_eq!(hidden[0].as_ref().unwrap().components().count(), shown, "{hidden:?}");
}
