#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::path::Path;

use proptest::prelude::*;

use super::Policy;
use super::builtin_profiles::PROFILES;
use super::diagnostic::Source;
use super::locks::Locks;
use super::model::{Question, Ruled};
use super::narrow;
use super::profile::{self, Package, Registry, ServerProfile};
use super::read;
use crate::types::{RuleRef, ServerId};

const NOWHERE: &str = "/nonexistent";

fn parsed(name: &str, text: &str) -> ServerProfile {
    profile::parse(&format!("built-in:servers/{name}.yaml"), text)
        .unwrap_or_else(|error| panic!("{}", error.render()))
        .unwrap()
}

fn connect(policy: &Policy, id: &str, profile: Option<&ServerProfile>, host: &str) -> super::Answer {
    let question = Question::Connect(host.to_owned(), 443);
    policy.ask_with(Some(&ServerId(id.to_owned())), profile, &question, &ServerProfile::test_context())
}

fn policy(text: &str) -> Policy {
    super::parse("policy.yaml", text).unwrap_or_else(|error| panic!("{}", error.render()))
}

fn github() -> ServerProfile {
    let package = Package::new(Registry::Npm, "@modelcontextprotocol/server-github");
    profile::of_package(&package, Path::new(NOWHERE)).unwrap().unwrap()
}

#[test]
fn every_profile_reads_and_passes_its_tests() {
    assert!(PROFILES.len() >= 20);
    let mut packages = std::collections::BTreeSet::new();
    for (name, text) in PROFILES {
        let profile = parsed(name, text);
        assert!(profile.tests.len() >= 3, "{name} tests too little");
        assert!(profile.source.is_some() && profile.sink.is_some(), "{name} has no flow labels");
        for package in &profile.packages {
            assert!(packages.insert(package.value.clone()), "{} has two profiles", package.value);
        }
        if let Err(error) = profile.tested() {
            panic!("{}", error.render());
        }
    }
}

#[test]
fn every_file_of_the_directory_is_built_in() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../policies/servers");
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let built_in: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, built_in);
}

#[test]
fn a_package_is_known_by_the_identity_of_its_pin() {
    for (identity, expected) in [
        ("npm:@modelcontextprotocol/server-github@2025.4.8", Some("npm:@modelcontextprotocol/server-github")),
        ("npm:tavily-mcp@0.2.1", Some("npm:tavily-mcp")),
        ("npm:tavily-mcp", Some("npm:tavily-mcp")),
        ("pypi:Awslabs.AWS_documentation@1.0", Some("pypi:awslabs-aws-documentation")),
        ("file:/home/user/server.js", None),
        ("npm:/home/user/server", None),
        ("python-module:mcp_server_git", None),
        ("", None),
    ] {
        let package = Package::of_identity(identity).map(|package| package.to_string());
        assert_eq!(package.as_deref(), expected, "{identity}");
    }
    let found = |identity: &str| {
        let package = Package::of_identity(identity).unwrap();
        profile::of_package(&package, Path::new(NOWHERE)).unwrap().map(|profile| profile.name)
    };
    assert_eq!(found("npm:@modelcontextprotocol/server-github@1").as_deref(), Some("github"));
    assert_eq!(found("pypi:mcp_server_git@1").as_deref(), Some("git"));
    assert_eq!(found("npm:server-github@1"), None);
    assert_eq!(found("pypi:tavily-mcp@1"), None);
}

#[test]
fn profile_applies_unless_the_policy_says_otherwise() {
    let github = github();
    let answer = connect(&policy("version: 1"), "gh", Some(&github), "api.github.com");
    assert!(answer.allow);
    assert_eq!(answer.rule.file, "built-in:servers/github.yaml");
    assert!(answer.rule.line > 1);
    assert_eq!(github.reason(&answer.rule), Some("the only address in the program"));
    assert!(!connect(&policy("version: 1"), "gh", None, "api.github.com").allow);

    let own = "version: 1\nsandbox: {mcp: {servers: [{id: gh, network: {allow: [example.com]}}]}}";
    assert!(!connect(&policy(own), "gh", Some(&github), "api.github.com").allow);
    assert!(connect(&policy(own), "gh", Some(&github), "example.com").allow);
    // A key that the entry leaves out keeps the profile's.
    let question = Question::Env("GITHUB_PERSONAL_ACCESS_TOKEN".to_owned());
    let id = ServerId("gh".to_owned());
    let ask = |text: &str| {
        policy(text).ask_with(Some(&id), Some(&github), &question, &ServerProfile::test_context()).allow
    };
    assert!(ask(own));
    assert!(!ask("version: 1\nsandbox: {mcp: {servers: [{id: gh, env_allow: []}]}}"));
    assert!(!ask(
        "version: 1\nsandbox: {mcp: {server_policy: denylist, enforce_policy: true, denied_servers: [{id: gh}]}}"
    ));
}

fn narrowed(user: &str, project: &str) -> Result<Policy, String> {
    let source = Source { name: ".agentsh.yaml", text: project };
    let raw = read::read(source, false).unwrap();
    narrow::narrow(policy(user), &raw, source)
        .map_err(|problems| problems.iter().map(|problem| problem.message.clone()).collect())
}

#[test]
fn a_project_narrows_a_profile_and_never_widens_it() {
    let github = github();
    let project = |text: &str| format!("version: 1\nsandbox: {{mcp: {{servers: [{{id: gh, {text}}}]}}}}");
    // No grant of the profile is left.
    let none = narrowed("version: 1", &project("network: {allow: []}")).unwrap();
    assert!(!connect(&none, "gh", Some(&github), "api.github.com").allow);
    // A grant of any profile may be named; it applies only if the profile is this server's.
    let some = narrowed("version: 1", &project("network: {allow: [{host: slack.com, port: 443}]}")).unwrap();
    assert!(!connect(&some, "gh", Some(&github), "slack.com").allow);
    assert!(!connect(&some, "gh", Some(&github), "api.github.com").allow);
    assert!(!connect(&some, "gh", None, "slack.com").allow);
    let same =
        narrowed("version: 1", &project("network: {allow: [{host: api.github.com, port: 443}]}")).unwrap();
    assert!(connect(&same, "gh", Some(&github), "api.github.com").allow);
    // A grant of no profile is a mistake, as is one that the user's own entry excludes.
    let error = narrowed("version: 1", &project("network: {allow: [evil.example]}")).unwrap_err();
    assert!(error.contains("would allow `evil.example`"), "{error}");
    let user = project("network: {allow: [example.com]}");
    assert!(narrowed(&user, &project("network: {allow: [api.github.com]}")).is_err());
    let error = narrowed("version: 1", &project("install_scripts: allow")).unwrap_err();
    assert!(error.contains("scripts"), "{error}");
    let error = narrowed("version: 1", &project("env_allow: [AWS_SECRET_ACCESS_KEY]")).unwrap_err();
    assert!(error.contains("would pass on"), "{error}");
}

#[test]
fn every_layer_that_narrows_a_profile_counts() {
    let github = github();
    let servers = |text: &str| format!("version: 1\nsandbox: {{mcp: {{servers: [{{id: gh{text}}}]}}}}");
    let user = servers(", network: {allow: []}");
    let source = Source { name: "policy.yaml", text: &user };
    let raw = read::read(source, false).unwrap();
    let rule = RuleRef { id: "sandbox.mcp.servers".to_owned(), file: "bundle".to_owned(), line: 1 };
    let locks = Locks(vec![Ruled { value: rule.id.clone(), rule }]);
    let mut base = policy("version: 1");
    narrow::merge_narrowed(&mut base, &raw, &locks, source).unwrap();
    assert!(!connect(&base, "gh", Some(&github), "api.github.com").allow);
    // A project that names the server without a section restores no grant.
    for project in [servers(""), servers(", network: {allow: []}")] {
        let source = Source { name: ".agentsh.yaml", text: &project };
        let raw = read::read(source, false).unwrap();
        let narrowed = narrow::narrow(base.clone(), &raw, source).unwrap();
        assert!(!connect(&narrowed, "gh", Some(&github), "api.github.com").allow);
    }
    // And it cannot name again what an earlier layer took away.
    let project = servers(", network: {allow: [{host: api.github.com, port: 443}]}");
    let source = Source { name: ".agentsh.yaml", text: &project };
    let raw = read::read(source, false).unwrap();
    assert!(narrow::narrow(base, &raw, source).is_err());
}

#[test]
fn profile_errors_have_a_place_and_a_suggestion() {
    for (text, message, help) in [
        ("package: {npm: x}\nwhy: y\nnetwrk: {}", "unknown key `netwrk`", "did you mean `network`?"),
        ("package: {nmp: x}\nwhy: y", "unknown key `nmp`", "did you mean `npm`?"),
        ("package: {npm: x@1.2}\nwhy: y", "not the name of a package", "without a version"),
        ("package: {}\nwhy: y", "is empty", "npm: NAME"),
        ("package: {npm: x}", "the reason is missing", "add `why:`"),
        (
            "package: {npm: x}\nwhy: y\nnetwork: {allow: [{host: a.example}]}",
            "the reason is missing",
            "add `why:`",
        ),
        ("package: {npm: x}\nwhy: y\nnetwork: {allow: [{hots: a.example, why: z}]}", "`hots`", "`host`"),
        (
            "package: {npm: x}\nwhy: y\nenv_allow: [{name: \"A=B\", why: z}]",
            "name of a variable",
            "only the name",
        ),
        ("package: {npm: x}\nwhy: y\nflow: {source: secret}", "unknown value `secret`", "private"),
        ("package: {npm: x}\nwhy: y\ninstall_scripts: {do: yes, why: z}", "install_scripts", ""),
        ("package: {npm: x}\nwhy: y\nstate: {why: z, env: {A: ../b}}", "state directory", "memory.json"),
        (
            "package: {npm: x}\nwhy: y\nfrom_configuration: [{env: A, url: b, opens: path, why: z}]",
            "does not say where",
            "one of",
        ),
        (
            "package: {npm: x}\nwhy: y\nfrom_configuration: [{env: A, opens: host, why: z}]",
            "needs a port",
            "port:",
        ),
        ("package: {npm: x}\nwhy: y\nversion: 2", "version 2", "version: 1"),
    ] {
        let error = profile::parse("x.yaml", text).unwrap_err().render();
        assert!(error.contains(message) && error.contains(help), "{text}\n{error}");
        assert!(error.contains("x.yaml:"), "{error}");
    }
    assert!(profile::parse("x.yaml", "version: 1").unwrap().is_none());
    let unknown = profile::named("githb", Path::new(NOWHERE)).unwrap_err().to_string();
    assert!(unknown.contains("did you mean `github`?"), "{unknown}");
}

#[test]
fn a_profile_of_the_user_wins_over_a_built_in_one_and_must_pass_its_tests() {
    let config = tempfile::tempdir().unwrap();
    let directory = config.path().join("agentsh/servers");
    std::fs::create_dir_all(&directory).unwrap();
    let text = "version: 1\npackage: {npm: \"@modelcontextprotocol/server-github\"}\nwhy: mine\n\
                tests: [{connect: \"api.github.com:443\", expect: deny}]\n";
    std::fs::write(directory.join("github.yaml"), text).unwrap();
    let package = Package::new(Registry::Npm, "@modelcontextprotocol/server-github");
    let mine = profile::of_package(&package, config.path()).unwrap().unwrap();
    assert_eq!(mine.why, "mine");
    assert_eq!(profile::named("github", config.path()).unwrap().why, "mine");
    std::fs::write(directory.join("github.yaml"), text.replace("deny", "allow")).unwrap();
    assert!(profile::of_package(&package, config.path()).is_err());
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "(package: \\{npm: x\\}\n)?.{0,200}") {
        let _ = profile::parse("x.yaml", &text);
    }

    #[test]
    fn profile_lookup_takes_any_identity_without_a_panic(text in ".{0,40}") {
        let _ = Package::of_identity(&text);
    }
}
