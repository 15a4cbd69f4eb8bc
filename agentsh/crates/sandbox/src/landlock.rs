//! Landlock in addition to the mount tree, in the newest version of the kernel, with a report of that version.
//!
//! It repeats the file rules and adds what mounts cannot restrict: signals and abstract sockets that cross the
//! sandbox's border. Its TCP rules are not used, because they do not cover UDP, MPTCP and TCP Fast Open.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};

use rustix::fs::{FileType, OFlags};

use super::plan::{Kind, LandlockAccess, LandlockRule, Mount, NodeContent, Tier};
use super::report::{Enforcement, State};
use super::stage::{StageContext, StageError};

/// Newest requested version.
const REQUESTED_ABI: ABI = ABI::V7;
/// From this version renames, truncation, device ioctls, signals and abstract sockets are covered.
const COMPLETE_ABI: i32 = 6;
/// Below this version a file that may not be opened can be truncated by name.
const MIN_ABI_WITH_TRUNCATE: i32 = 3;

const RESTRICTED_KINDS: &str = "files, signals and abstract sockets";

/// Applies the rules permanently. A missing path grants nothing. `mounts` are the plan's.
///
/// # Errors
/// When a rule cannot be built. A kernel without Landlock, or with a version that is too old without a mount tree, is
/// not an error but a missing layer.
pub fn apply(
    rules: &[LandlockRule],
    mounts: &[Mount],
    tier: Tier,
    numbered: &[(u32, OwnedFd)],
) -> Result<Enforcement, StageError> {
    let all = AccessFs::from_all(REQUESTED_ABI);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|ruleset| ruleset.scope(Scope::from_all(REQUESTED_ABI)))
        .and_then(Ruleset::create)
        .map_err(to_io)
        .at("create the Landlock ruleset")?;
    // For the audit log; older kernels do not have this switch.
    ruleset = ruleset.log_new_exec(true).map_err(to_io).at("make Landlock log its refusals")?;
    for rule in needed_rules(rules, mounts) {
        let Ok(path) = PathFd::new(&rule.path) else { continue };
        ruleset = ruleset
            .add_rule(PathBeneath::new(path, rights(rule.access, all)))
            .map_err(to_io)
            .on("add the Landlock rule for", rule.path.display())?;
    }
    for (stream, access) in given_open(numbered) {
        ruleset = ruleset
            .add_rule(PathBeneath::new(stream, access & all))
            .map_err(to_io)
            .at("add the Landlock rule for a standard stream")?;
    }
    // It is set already.
    let status = ruleset.no_new_privs(false).restrict_self().map_err(to_io).at("apply Landlock")?;
    Ok(describe(&status.landlock, tier))
}

/// Drops rules that repeat the rule of a directory above: a right applies to everything below, including other mounts.
fn needed_rules<'p>(rules: &'p [LandlockRule], mounts: &[Mount]) -> Vec<&'p LandlockRule> {
    let places: BTreeMap<&Path, &NodeContent> =
        mounts.iter().map(|mount| (mount.target.as_path(), &mount.what)).collect();
    let all = AccessFs::from_all(REQUESTED_ABI);
    let mut given: BTreeMap<&Path, BitFlags<AccessFs>> = BTreeMap::new();
    let mut needed = Vec::new();
    for rule in rules {
        let wanted = rights(rule.access, all);
        // A message queue is opened without passing its mount point.
        let is_by_path = matches!(
            places.get(rule.path.as_path()),
            Some(NodeContent::Bind { .. } | NodeContent::Tmpfs { .. } | NodeContent::Overlay { .. })
        );
        let mut above = rule.path.ancestors().skip(1).filter(|_| is_by_path);
        let gives = |above: &Path| given.get(above).is_some_and(|given| given.contains(wanted));
        if !above.any(|above| gives(above) && leads_to(above, &rule.path, &places)) {
            needed.push(rule);
        }
        given.entry(&rule.path).or_insert(wanted);
    }
    needed
}

/// Whether the path from a mount to one below it consists of mount points and the sandbox's own directories, without
/// links.
fn leads_to(above: &Path, below: &Path, places: &BTreeMap<&Path, &NodeContent>) -> bool {
    let between: Vec<&Path> = below.ancestors().skip(1).take_while(|path| *path != above).collect();
    let mut is_own = false;
    for (at, path) in std::iter::once(above).chain(between.into_iter().rev()).enumerate() {
        match places.get(path) {
            Some(NodeContent::Tmpfs { .. }) => is_own = true,
            Some(NodeContent::Bind { kind: Kind::Directory, .. } | NodeContent::Overlay { .. }) => {
                is_own = false
            }
            None | Some(NodeContent::Directory { .. }) if is_own && at > 0 => {}
            _ => return false,
        }
    }
    true
}

/// Files and terminals behind inherited descriptors, which programs reopen by name (`/dev/stderr`): allowed as far as
/// the descriptor does.
fn given_open(numbered: &[(u32, OwnedFd)]) -> Vec<(BorrowedFd<'_>, BitFlags<AccessFs>)> {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    fn rights_of_stream(stream: BorrowedFd<'_>) -> Option<(BorrowedFd<'_>, BitFlags<AccessFs>)> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(stream).ok()?.st_mode);
        let mut access = match rustix::fs::fcntl_getfl(stream).ok()? & OFlags::RWMODE {
            OFlags::RDONLY => AccessFs::ReadFile.into(),
            OFlags::WRONLY => AccessFs::WriteFile | AccessFs::Truncate,
            _ => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate,
        };
        match kind {
            FileType::RegularFile => {}
            FileType::CharacterDevice => access |= AccessFs::IoctlDev,
            // Objects without a name in a file system need no rule.
            _ => return None,
        }
        Some((stream, access))
    }
    streams
        .into_iter()
        .chain(numbered.iter().map(|(_, open)| open.as_fd()))
        .filter_map(rights_of_stream)
        .collect()
}

/// A nested domain for the program, so that it cannot signal pid 1. Without signal scopes (before Linux 6.12) it can;
/// pid 1 ignores signals that it does not handle.
///
/// # Errors
/// When the kernel refuses a supported ruleset.
pub fn isolate_from_pid_1() -> Result<(), StageError> {
    let apply = || -> io::Result<()> {
        let root = PathFd::new("/").map_err(to_io)?;
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            // A domain that does not handle moves between directories forbids them all.
            .handle_access(AccessFs::Refer)
            .and_then(|ruleset| ruleset.scope(Scope::Signal))
            .and_then(Ruleset::create)
            .and_then(|ruleset| ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer)))
            .and_then(|ruleset| ruleset.no_new_privs(false).restrict_self())
            .map(|_| ())
            .map_err(to_io)
    };
    apply().at("separate the program from pid 1")
}

fn rights(access: LandlockAccess, all: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    let read = AccessFs::from_read(REQUESTED_ABI);
    match access {
        LandlockAccess::Read => read,
        LandlockAccess::ReadNoExecute => read & !BitFlags::from(AccessFs::Execute),
        LandlockAccess::Write { execute, sockets } => {
            let mut rights = all;
            if !execute {
                rights.remove(AccessFs::Execute);
            }
            if !sockets {
                rights.remove(AccessFs::MakeSock);
            }
            rights
        }
    }
}

fn describe(status: &LandlockStatus, tier: Tier) -> Enforcement {
    let asked = RESTRICTED_KINDS;
    match status {
        LandlockStatus::Available { effective_abi, .. } => describe_version(*effective_abi as i32, tier),
        LandlockStatus::NotEnabled => {
            absent(asked, "Landlock is built into this kernel but not enabled at boot (lsm=)")
        }
        LandlockStatus::NotImplemented => absent(asked, "this kernel has no Landlock (needs 5.13 or later)"),
    }
}

fn describe_version(version: i32, tier: Tier) -> Enforcement {
    let got = format!("version {version}");
    let less = |why| {
        Enforcement::weakened("landlock", RESTRICTED_KINDS, &format!("{got}: files"), State::Degraded, why)
    };
    match tier {
        _ if version >= COMPLETE_ABI => {
            Enforcement::enforced("landlock", format!("{got}: {RESTRICTED_KINDS}"))
        }
        Tier::Namespaces => less(
            "this kernel's Landlock lacks later rights; mounts and the network and pid namespaces cover them",
        ),
        Tier::Container if version < MIN_ABI_WITH_TRUNCATE => absent(
            RESTRICTED_KINDS,
            &format!(
                "this kernel's Landlock is of version {version}; below version {MIN_ABI_WITH_TRUNCATE} (Linux 6.2) every file of \
                 the user can be truncated"
            ),
        ),
        Tier::Container => less(
            "this kernel's Landlock lacks later rights (Linux 6.12 has them), and here nothing covers them: other \
             processes of this user in the container can be signalled",
        ),
    }
}

fn absent(asked: &str, why: &str) -> Enforcement {
    Enforcement::weakened("landlock", asked, "nothing", State::Absent, why)
}

fn to_io(error: impl std::error::Error) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Access as Shown, Source};

    fn mount(target: &str, what: NodeContent) -> Mount {
        Mount { target: target.into(), what }
    }

    fn bind() -> NodeContent {
        let source = Source::Path { path: "/x".into(), expect: None, no_links: true };
        NodeContent::Bind { source, access: Shown::ReadWrite, kind: Kind::Directory }
    }

    #[test]
    fn a_rule_is_left_out_where_one_above_holds_for_its_path() {
        let write = |path: &str, execute| LandlockRule {
            path: path.into(),
            access: LandlockAccess::Write { execute, sockets: true },
        };
        let rules = [
            LandlockRule { path: "/".into(), access: LandlockAccess::Read },
            write("/dev", true),
            write("/dev/mqueue", false),
            write("/home", true),
            write("/home/p", true),
            write("/home/p/.git", true),
            write("/home/.cache/pip", true),
            write("/home/p/a/b", true),
            write("/home/link/b", true),
            write("/srv", false),
            write("/srv/b", true),
        ];
        let mounts = [
            mount("/dev", NodeContent::Tmpfs { bytes: 1, mode: 0o755 }),
            mount("/dev/mqueue", NodeContent::Mqueue),
            mount("/home", NodeContent::Tmpfs { bytes: 1, mode: 0o700 }),
            mount("/home/p", bind()),
            mount("/home/p/.git", bind()),
            mount("/home/.cache/pip", bind()),
            mount("/home/p/a/b", bind()),
            mount("/home/link", NodeContent::Symlink { to: "/srv".into() }),
            mount("/home/link/b", bind()),
            mount("/srv", bind()),
            mount("/srv/b", bind()),
        ];
        let kept: Vec<&str> =
            needed_rules(&rules, &mounts).iter().filter_map(|rule| rule.path.to_str()).collect();
        assert_eq!(
            kept,
            ["/", "/dev", "/dev/mqueue", "/home", "/home/p/a/b", "/home/link/b", "/srv", "/srv/b"],
            "what lies behind a link, in a directory of the host, or has more rights keeps its rule"
        );
        assert_eq!(needed_rules(&rules, &[]).len(), rules.len(), "without mounts nobody knows");
    }

    #[test]
    fn landlock_alone_needs_version_3_and_says_what_it_lacks() {
        assert_eq!(describe_version(2, Tier::Container).state, State::Absent);
        let less = describe_version(3, Tier::Container);
        assert_eq!(less.state, State::Degraded);
        assert!(!less.why.contains("mounts") && less.why.contains("signalled"), "{}", less.why);
        assert_eq!(describe_version(COMPLETE_ABI, Tier::Container).state, State::Enforced);
        assert_eq!(describe_version(2, Tier::Namespaces).state, State::Degraded);
    }
}
