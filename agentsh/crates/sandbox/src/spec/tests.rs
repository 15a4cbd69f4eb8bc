//! Tests of precedence, and that explanations match enforcement.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::layout::layout;
use crate::plan::NodeContent;
use crate::policy::{EnvPolicy, NetworkRule, RequestRule, domain};
use crate::testing::{self, FakeHost};
use crate::types::RuleRef;

const HOME: &str = "/home/u";
const PROJECT: &str = "/home/u/p";

fn merged(parts: Vec<Contribution>) -> SandboxSpec {
    with_environment(&[], parts)
}

fn with_environment(inherited: &[(&str, &str)], parts: Vec<Contribution>) -> SandboxSpec {
    let base = testing::spec(HOME, PROJECT);
    let inherited = inherited.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (env, network) = (EnvPolicy::default(), NetworkPolicy::default());
    let rules = Rules { env: &env, section: "agent", inherited: &inherited, network: &network };
    merge(base.process, base.paths, &rules, parts)
}

fn part(by: Feature) -> Contribution {
    Contribution::new(by)
}

fn grant(path: &str, access: Access) -> Grant {
    Grant { path: path.into(), access }
}

fn set(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn file(path: &str, text: &str) -> File {
    File::new(path.into(), text, 0o600)
}

#[test]
fn contributions_are_merged_in_feature_order() {
    let (adapter, credentials) = (
        part(Feature::Adapter).setting([set("A", "adapter")]),
        part(Feature::Credentials).setting([set("A", "last")]),
    );
    for parts in [vec![adapter.clone(), credentials.clone()], vec![credentials, adapter]] {
        assert_eq!(merged(parts).environment["A"], "last");
    }
}

#[test]
fn files_of_features_do_not_cover_what_the_user_granted() {
    let mut credentials = part(Feature::Credentials);
    credentials.files = vec![file("/home/u/.netrc", "placeholder"), file("/home/u/.npmrc", "placeholder")];
    let policy = part(Feature::Policy).granting([grant("/home/u/.netrc", Access::ReadOnly)]);
    let spec = merged(vec![credentials, policy]);
    let placed: Vec<_> = spec.placed.files.iter().map(|file| file.path.as_path()).collect();
    assert_eq!(placed, [Path::new("/home/u/.npmrc")]);
    // Files placed in a masked directory must be visible there.
    assert_eq!(spec.paths.unmasked, [PathBuf::from("/home/u/.npmrc")]);
}

#[test]
fn injected_file_that_appends_follows_the_existing_one() {
    let mut git = part(Feature::GitIdentity);
    git.files = vec![file("/home/u/.gitconfig", "[user]\n")];
    let mut ssh = part(Feature::Ssh);
    ssh.files = vec![File::appended("/home/u/.gitconfig".into(), "[gpg]\n", 0o600)];
    let spec = merged(vec![ssh, git]);
    assert_eq!(spec.placed.files.len(), 1);
    assert_eq!(spec.placed.files[0].content, b"[user]\n[gpg]\n");
}

#[test]
fn secrets_are_replaced_in_every_variable_and_never_put_back() {
    let mut credentials = part(Feature::Credentials);
    let scrub = EnvChange::Scrub { secret: "s3cret".to_owned(), placeholder: "placeholder".to_owned() };
    credentials.environment = vec![scrub];
    let adapter = part(Feature::Adapter).setting([set("URL", "https://u:s3cret@host")]);
    let mut toolchains = part(Feature::Toolchains);
    toolchains.environment = vec![EnvChange::Pass("TOOL_*".to_owned())];
    let spec =
        with_environment(&[("TOOL_TOKEN", "s3cret"), ("OTHER", "x")], vec![credentials, adapter, toolchains]);
    assert_eq!(spec.environment["URL"], "https://u:placeholder@host");
    assert_eq!(spec.environment["TOOL_TOKEN"], "placeholder");
    assert_eq!(spec.stripped, ["OTHER"]);
}

#[test]
fn a_declared_certificate_bundle_holds_where_no_connection_is_inspected() {
    let trust = |change: fn(String, String) -> EnvChange| {
        let mut trust = part(Feature::Trust);
        trust.environment = vec![change("SSL_CERT_FILE".to_owned(), "/ours".to_owned())];
        let declared = part(Feature::Declaration).setting([set("SSL_CERT_FILE", "/theirs")]);
        merged(vec![trust, declared]).environment["SSL_CERT_FILE"].clone()
    };
    assert_eq!(trust(EnvChange::ReplaceInherited), "/theirs");
    assert_eq!(trust(EnvChange::Set), "/ours");
}

fn host(by: &str, host: &str, precedence: Precedence, requests: &[&str]) -> HostRule {
    let rule = RuleRef { id: by.to_owned(), file: "test".to_owned(), line: 1 };
    let mut value = NetworkRule::plain(domain::parse_pattern(host).unwrap(), vec![443]);
    let parse = |text: &&str| Ruled { value: RequestRule::parse(text).unwrap(), rule: rule.clone() };
    value.requests = requests.iter().map(parse).collect();
    HostRule { rule: Ruled { value, rule }, precedence }
}

#[test]
fn credential_and_remote_host_rules_follow_their_precedence() {
    let mut registries = part(Feature::Registries);
    registries.hosts = vec![host("registries", "a.example", Precedence::Last, &["GET /r"])];
    let mut remotes = part(Feature::Remotes);
    let remote = |name| host("remotes", name, Precedence::IfUnruled, &["GET /g"]);
    remotes.hosts = vec![remote("a.example"), remote("b.example")];
    let mut credentials = part(Feature::Credentials);
    credentials.hosts = vec![host("credentials", "a.example", Precedence::FirstJoined, &["POST /c"])];
    let spec = merged(vec![credentials, remotes, registries]);
    let deciding = |name: &str| spec.network.rule_for(&domain::normalise(name).unwrap(), 443).unwrap();
    assert_eq!(deciding("a.example").rule.id, "credentials");
    assert_eq!(deciding("a.example").value.requests.len(), 2);
    assert_eq!(deciding("b.example").rule.id, "remotes");
    assert_eq!(spec.network.allow.len(), 3);
}

#[test]
fn closed_host_is_not_opened_by_any_rule() {
    let mut closed = part(Feature::ClosedHosts);
    let rule = RuleRef::default_rule("fleet");
    closed.closed = vec![
        Ruled { value: ("a.example".to_owned(), 443), rule: rule.clone() },
        Ruled { value: ("127.0.0.1".to_owned(), 8443), rule: rule.clone() },
    ];
    let mut ssh = part(Feature::Ssh);
    ssh.hosts = vec![host("ssh", "a.example", Precedence::First, &[])];
    ssh.loopback = vec![Ruled { value: 8443, rule }];
    let spec = merged(vec![closed, ssh]);
    assert_eq!(spec.network.rule_for(&domain::normalise("a.example").unwrap(), 443), None);
    assert!(spec.network.loopback.is_empty());
}

#[test]
fn link_is_replaced_by_a_granted_path_behind_it() {
    let mut toolchains =
        part(Feature::Toolchains).granting([grant("/home/u/tool-1.2/lib", Access::ReadOnly)]);
    toolchains.links = BTreeMap::from([("/home/u/tool".into(), "tool-1.2".into())]);
    let plain = merged(vec![toolchains.clone()]);
    assert_eq!(plain.placed.links.len(), 1);
    assert_eq!(plain.explain(Path::new("/home/u/tool/lib/x")).visibility, Visibility::ReadOnly);
    let named = part(Feature::Policy).granting([grant("/home/u/tool/etc", Access::ReadOnly)]);
    let spec = merged(vec![toolchains, named]);
    assert!(spec.placed.links.is_empty());
    let shown = spec.paths.grants.iter().any(|grant| grant.value.path == Path::new("/home/u/tool/lib"));
    assert!(shown, "what the link led to is shown in its place");
}

#[test]
fn every_explanation_names_the_rule_that_opened_it() {
    let rule = RuleRef { id: "agent.filesystem.read[0]".to_owned(), file: "policy.yaml".to_owned(), line: 7 };
    let mut policy = part(Feature::Policy);
    policy.grants = vec![Ruled { value: grant("/srv/data", Access::ReadOnly), rule: rule.clone() }];
    let own = part(Feature::AgentHome).with_own_files([grant("/home/u/.claude", Access::ReadWrite)]);
    let spec = merged(vec![policy, own]);
    assert_eq!(spec.explain(Path::new("/srv/data/x")).rule, rule);
    assert_eq!(spec.explain(Path::new("/home/u/.claude/x")).rule, Feature::AgentHome.rule());
    assert_eq!(spec.explain(Path::new("/home/u/other")).visibility, Visibility::Absent);
}

/// Paths that no built-in rule contains.
const PLACES: [&str; 12] = [
    "/home/u/p",
    "/home/u/p/a",
    "/home/u/p/a/b",
    "/home/u/q",
    "/home/u/q/a",
    "/home/u/q/a/b",
    "/home/u/q/c",
    "/opt/x",
    "/opt/x/a",
    "/opt/x/a/b",
    "/home/u/.ssh/sub",
    "/home/u/r",
];

fn host_with_places() -> FakeHost {
    let mut lines = vec!["/usr/bin/", "/bin -> usr/bin", "/dev/null ?"];
    let places: Vec<String> = PLACES.iter().map(|place| format!("{place}/")).collect();
    lines.extend(places.iter().map(String::as_str));
    FakeHost::of(&lines)
}

/// What the mounts of a layout make of a path: the last that covers it decides.
fn enforced(mounts: &[crate::plan::Mount], path: &Path) -> Visibility {
    match mounts.iter().rev().find(|mount| path.starts_with(&mount.target)).map(|mount| (&mount.what, mount))
    {
        Some((NodeContent::Bind { access: Access::ReadOnly, .. }, _)) => Visibility::ReadOnly,
        Some((NodeContent::Bind { access: Access::ReadWrite, .. }, _)) => Visibility::ReadWrite,
        Some((NodeContent::Tmpfs { mode: 0o555, .. }, _)) => Visibility::Hidden,
        Some((NodeContent::File { mode: 0, .. }, _)) => Visibility::Hidden,
        Some((NodeContent::File { .. }, mount)) if mount.target == path => Visibility::ReadOnly,
        _ => Visibility::Absent,
    }
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::ReadOnly), Just(Access::ReadWrite)]
}

fn places(most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(proptest::sample::select(&PLACES[..]), 0..most)
}

proptest! {
    #[test]
    fn explained_access_is_what_the_mounts_enforce(
        grants in proptest::collection::vec((proptest::sample::select(&PLACES[..]), access()), 0..5),
        hidden in places(3),
        own in proptest::collection::vec((proptest::sample::select(&PLACES[3..]), access()), 0..2),
        unmasked in any::<bool>(),
        project in proptest::option::of(access()),
    ) {
        let mut policy = part(Feature::Policy)
            .granting(grants.iter().map(|(path, access)| grant(path, *access)))
            .hiding(hidden.iter().map(PathBuf::from));
        if unmasked {
            policy.unmasked = vec!["/home/u/.ssh/sub".into()];
        }
        let home = part(Feature::AgentHome).with_own_files(own.iter().map(|(path, access)| grant(path, *access)));
        let mut spec = merged(vec![policy, home]);
        spec.paths.project_access = project;
        let layout = layout(&spec, &host_with_places());
        for place in PLACES {
            for path in [PathBuf::from(place), Path::new(place).join("deep/er")] {
                let explained = spec.explain(&path);
                // Whether a mask or nothing at all keeps it away is the same to a program.
                let shown = |found| matches!(found, Visibility::ReadOnly | Visibility::ReadWrite).then_some(found);
                let enforced = enforced(&layout.mounts, &path);
                prop_assert_eq!(shown(explained.visibility), shown(enforced), "{}: {:?}", path.display(), explained);
            }
        }
    }
}
