//! Readable plans of one project under each shipped policy and feature: a change of a policy, a feature or the merge
//! shows here as a change of mounts, variables and network rules.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use agentsh_agents::{Endpoint, Scheme, TlsInspection};
use agentsh_base::types::RuleRef;
use agentsh_policy::{PathContext, Policy, Ruled, builtin};
use agentsh_sandbox::layout::{Layout, layout};
use agentsh_sandbox::plan::{Access, LandlockAccess, NodeContent, Terminal};
use agentsh_sandbox::spec::{
    CacheLayer, Contribution, EnvChange, Feature, File, Grant, PathRules, ProcessKind, ProjectLayer,
    RelocatedPath, Rules, SandboxSpec, merge,
};
use agentsh_sandbox::testing::{self, FakeHost};

use super::grants;
use super::specify::AGENT_SECTION;
use agentsh_broker::{credentials, ssh};
use agentsh_host::toolchains::Toolchains;
use agentsh_model::endpoints::of_endpoints;

const HOME: &str = "/home/u";
const PROJECT: &str = "/home/u/project";

/// A project of Node under git, in a home with keys and caches.
fn host(more: &[&str]) -> FakeHost {
    let common = [
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
        "/home/u/.cargo/bin/cargo",
        "/home/u/.cargo/credentials.toml",
        "/home/u/.netrc",
        "/home/u/tool-1.2/bin/tool",
        "/home/u/main/.git/worktrees/x/HEAD",
        "/home/u/main/.git/config",
    ];
    FakeHost::of(&[&common[..], more].concat())
}

/// What a row of the table changes.
type Change = fn(&mut Row);

/// One sandbox before the merge.
struct Row {
    policy: Policy,
    kind: ProcessKind,
    layer: Option<ProjectLayer>,
    from_root: bool,
    has_neighbours: bool,
    host: Vec<&'static str>,
    parts: Vec<Contribution>,
}

fn at(path: &str) -> PathBuf {
    Path::new(HOME).join(path)
}

fn read(path: &str) -> Grant {
    Grant { path: at(path), access: Access::ReadOnly }
}

fn toolchains() -> Contribution {
    Toolchains {
        grants: vec![read(".cargo"), read("tool-1.2")],
        links: BTreeMap::from([(at("tool"), "tool-1.2".into())]),
        hidden: vec![at(".cargo/credentials.toml")],
        env: BTreeSet::from(["CARGO_HOME".to_owned()]),
        set: BTreeMap::from([("GOFLAGS".to_owned(), "-mod=mod".to_owned())]),
        ..Toolchains::default()
    }
    .contribution()
}

fn caches() -> Contribution {
    let (host, inside) = ("/data/caches/npm".into(), at(".npm"));
    let layer = CacheLayer { lower: at(".cache"), layer: "/data/layers/0".into(), inside: at(".cache") };
    Contribution {
        elsewhere: vec![RelocatedPath { host, inside, access: Access::ReadWrite }],
        caches: vec![layer],
        ..Contribution::new(Feature::Caches)
    }
}

fn agent_home() -> Contribution {
    let own = Grant { path: at(".claude"), access: Access::ReadWrite };
    let file = File::new(at(".claude.json"), "{}", 0o600);
    Contribution { files: vec![file], ..Contribution::new(Feature::AgentHome).with_own_files([own]) }
}

fn git_identity() -> Contribution {
    let file = File::new(at(".gitconfig"), "[user]\n", 0o644);
    Contribution { files: vec![file], ..Contribution::new(Feature::GitIdentity) }
}

fn endpoints(ends_tls: bool) -> Contribution {
    let endpoint = |host: &str, port| Endpoint {
        scheme: Scheme::Https,
        host: host.to_owned(),
        port,
        why: "model of the agent".to_owned(),
        key: Default::default(),
        judged: TlsInspection::ByDefault,
        only_keys: false,
        requests: &[],
    };
    of_endpoints(&[endpoint("api.model.example", 443), endpoint("localhost", 4000)], |_| ends_tls)
}

fn with_policy(row: &mut Row, text: &str) {
    row.policy = agentsh_policy::parse("p.yaml", text).unwrap();
}

const CHANGES: &[(&str, Change)] = &[
    ("nothing else", |_| {}),
    ("toolchains", |row| row.parts.push(toolchains())),
    ("toolchains and caches", |row| row.parts.extend([toolchains(), caches()])),
    ("the agent's home", |row| row.parts.push(agent_home())),
    ("git identity", |row| row.parts.push(git_identity())),
    ("the model, unread", |row| row.parts.push(endpoints(false))),
    ("the model, inspected", |row| row.parts.push(endpoints(true))),
    ("a review layer", |row| row.layer = Some(ProjectLayer::Own("/data/review/1".into()))),
    ("a review layer and caches", |row| {
        row.layer = Some(ProjectLayer::Own("/data/review/1".into()));
        row.parts.push(caches());
    }),
    ("a server", |row| row.kind = ProcessKind::Server),
    ("a server beside a reviewed agent", |row| {
        row.kind = ProcessKind::Server;
        row.layer = Some(ProjectLayer::Lent);
    }),
    ("neighbours", |row| row.has_neighbours = true),
    ("root", |row| row.from_root = true),
    ("a nested repository", |row| row.host.push("/home/u/project/sub/.git/HEAD")),
    ("a linked working tree", |row| {
        row.host.push("/home/u/project/sub/.git = gitdir: /home/u/main/.git/worktrees/x")
    }),
    ("a link in the project", |row| row.host.push("/home/u/project/out -> /home/u/.ssh")),
    ("credentials", |row| {
        with_policy(
            row,
            "agent: {credentials: [{host: git.example, from: gh}], network: {allow: [git.example]}}",
        );
        row.parts.push(Contribution {
            hosts: credentials::hosts(&row.policy.agent_only.credentials),
            files: vec![File::new(at(".netrc"), "x", 0o600)],
            environment: vec![EnvChange::Scrub { secret: "s3cret".to_owned(), placeholder: "p".to_owned() }],
            ..Contribution::new(Feature::Credentials)
        });
    }),
    ("ssh", |row| {
        with_policy(row, "agent: {ssh: [{keys: [/k], hosts: [git.example, \"localhost:2222\"]}]}");
        row.parts.push(ssh::hosts(&row.policy.agent_only.ssh));
    }),
    ("a closed host", |row| {
        with_policy(row, "agent: {network: {allow: [fleet.example], loopback: [8443]}}");
        let closed =
            |host: &str, port| Ruled { value: (host.to_owned(), port), rule: RuleRef::default_rule("fleet") };
        let closed = vec![closed("fleet.example", 443), closed("localhost", 8443)];
        row.parts.push(Contribution { closed, ..Contribution::new(Feature::ClosedHosts) });
    }),
    ("grants", |row| {
        with_policy(
            row,
            "agent: {filesystem: {read: [\"~/.cargo\", \"~/.netrc\"], write: [\"~/.cache\"], deny: [.env], unmask: [.vscode]}}",
        );
        row.parts.extend([toolchains(), caches()]);
    }),
    ("a grant below what is hidden", |row| {
        with_policy(row, "agent: {filesystem: {read: [\"~/.cargo/bin\"], deny: [\"~/.cargo\"]}}");
    }),
    ("listed programs", |row| with_policy(row, "agent: {exec: {allow: [/usr/bin/git]}}")),
];

fn planned(name: &str, change: Change) -> String {
    let mut row = Row {
        policy: agentsh_policy::parse(name, builtin::text(name).unwrap()).unwrap(),
        kind: ProcessKind::Agent,
        layer: None,
        from_root: false,
        has_neighbours: false,
        host: Vec::new(),
        parts: Vec::new(),
    };
    change(&mut row);
    let spec = spec(&mut row);
    let host = host(&row.host);
    let layout = layout(&spec, &host);
    format!("{}\n{}", told(&layout), told_of(&spec))
}

fn spec(row: &mut Row) -> SandboxSpec {
    let context = PathContext { home: HOME.into(), project: PROJECT.into() };
    let policy = &row.policy.agent;
    let filesystem = &policy.filesystem;
    let mut parts = std::mem::take(&mut row.parts);
    parts.push(grants::contribution(filesystem, &context).unwrap());
    let base = testing::spec(HOME, PROJECT);
    let mut process = base.process;
    process.kind = row.kind;
    process.identity.from_root = row.from_root;
    process.terminal = if row.kind == ProcessKind::Agent { Terminal::Keep } else { Terminal::NewSession };
    let execute = policy.exec.allow.iter().filter(|entry| !entry.rule.id.is_empty() && entry.value != "**");
    let paths = PathRules {
        project_access: if filesystem.may_write(Path::new(PROJECT), &context) {
            Some(Access::ReadWrite)
        } else {
            filesystem.may_read(Path::new(PROJECT), &context).then_some(Access::ReadOnly)
        },
        layer: row.layer.clone(),
        has_project_directory: row.kind.is_agent(),
        guard_all: filesystem.guard.as_ref().is_some_and(|all| all.value),
        execute: execute.map(|entry| PathBuf::from(&entry.value)).collect(),
        shared_sockets: !row.has_neighbours,
        private_bytes: 1 << 30,
        ..base.paths
    };
    let inherited = ["LANG", "CARGO_HOME", "AWS_SECRET_ACCESS_KEY"];
    let inherited = inherited.iter().map(|name| ((*name).to_owned(), "s3cret".to_owned())).collect();
    let rules =
        Rules { env: &policy.env, section: AGENT_SECTION, inherited: &inherited, network: &policy.network };
    merge(process, paths, &rules, parts)
}

/// The parts of a specification that are not mounts.
fn told_of(spec: &SandboxSpec) -> String {
    let mut text = String::new();
    for (name, value) in &spec.environment {
        writeln!(text, "env {name}={value}").unwrap();
    }
    for name in &spec.stripped {
        writeln!(text, "env without {name}").unwrap();
    }
    for Ruled { value, rule } in &spec.network.allow {
        let inspect = if value.inspect { ", inspected" } else { "" };
        let requests: Vec<String> = value.requests.iter().map(|one| one.value.to_string()).collect();
        let blocks = value.addresses.len();
        writeln!(
            text,
            "network {} {:?}{inspect}, {requests:?}, {blocks} address blocks ({})",
            value.host,
            value.ports(),
            rule.id
        )
        .unwrap();
    }
    for port in &spec.network.loopback {
        writeln!(text, "network localhost:{} ({})", port.value, port.rule.id).unwrap();
    }
    for closed in &spec.network.shut {
        writeln!(text, "network never {:?} ({})", closed.value, closed.rule.id).unwrap();
    }
    text
}

fn told(layout: &Layout) -> String {
    let mut lines: Vec<String> = Vec::new();
    for mount in &layout.mounts {
        let what = match &mount.what {
            NodeContent::Directory { mode } => format!("directory {mode:o}"),
            NodeContent::File { mode: 0, .. } => "hidden".to_owned(),
            NodeContent::File { content, mode } => format!("file of {} bytes, {mode:o}", content.len()),
            NodeContent::Symlink { to } => format!("-> {}", to.display()),
            NodeContent::Tmpfs { mode: 0o555, .. } => "hidden".to_owned(),
            NodeContent::Tmpfs { bytes, mode } => format!("private, {} MiB, {mode:o}", bytes >> 20),
            NodeContent::Bind { access: Access::ReadOnly, .. } => "read".to_owned(),
            NodeContent::Bind { access: Access::ReadWrite, .. } => "write".to_owned(),
            NodeContent::Bind { access: Access::Device, .. } => "device".to_owned(),
            NodeContent::Overlay { .. } => "layer".to_owned(),
            NodeContent::Copy { .. } => "copy".to_owned(),
            NodeContent::Proc => "proc".to_owned(),
            NodeContent::Mqueue => "message queues".to_owned(),
            NodeContent::Devpts => "terminals".to_owned(),
        };
        lines.push(format!("{}: {what}", mount.target.display()));
    }
    lines.extend(layout.stubs.iter().map(|(path, kind)| format!("stub {kind:?}: {}", path.display())));
    lines.extend(layout.refused.iter().map(|(path, why)| format!("refused {}: {why}", path.display())));
    let writable = layout.landlock.iter().filter(|rule| matches!(rule.access, LandlockAccess::Write { .. }));
    lines.extend(writable.map(|rule| format!("landlock write {}", rule.path.display())));
    lines.join("\n")
}

#[test]
fn plans_of_shipped_policies_match_their_snapshots() {
    for (name, _) in builtin::POLICIES {
        insta::assert_snapshot!(format!("plan_{name}"), planned(name, |_| {}));
    }
}

/// If all guards disappear, only a few are listed.
const MAX_GONE_LINES: usize = 6;

/// A hundred rows: each shows what it has that the plain plan of the same policy has not (`+`), and the other way (`-`).
#[test]
fn feature_differences_match_their_snapshots() {
    let mut table = String::new();
    for name in ["default", "claude", "codex", "strict", "observe"] {
        let plain = planned(name, |_| {});
        for (what, change) in CHANGES {
            writeln!(table, "## {name}, with {what}").unwrap();
            let changed = planned(name, *change);
            let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
            let (plain, changed) = (lines(&plain), lines(&changed));
            let only = |these: &[String], those: &[String]| {
                these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
            };
            let gone = only(&plain, &changed);
            for line in gone.iter().take(MAX_GONE_LINES) {
                writeln!(table, "- {line}").unwrap();
            }
            if let Some(more @ 1..) = gone.len().checked_sub(MAX_GONE_LINES) {
                writeln!(table, "- and {more} more, the last: {}", gone[gone.len() - 1]).unwrap();
            }
            for line in only(&changed, &plain) {
                writeln!(table, "+ {line}").unwrap();
            }
        }
    }
    insta::assert_snapshot!("plan_differences", table);
}
