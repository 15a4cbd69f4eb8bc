#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod claude;
mod clients;
mod codex;
mod generic;
mod hostile;
mod others;
mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use agentsh_base::types::ServerId;

/// A home, a project inside it and an `/etc`, in a directory that is removed afterwards.
struct World {
    root: tempfile::TempDir,
    env: BTreeMap<String, String>,
    extra: BTreeMap<ServerId, Declared>,
    generic: Option<PathBuf>,
    agreed: BTreeSet<String>,
    told: Option<String>,
    /// Below the project.
    cwd: String,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["home", "home/work/.git", "etc"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        Self {
            root,
            env: BTreeMap::new(),
            extra: BTreeMap::new(),
            generic: None,
            agreed: BTreeSet::new(),
            told: None,
            cwd: String::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.root.path()).unwrap().join(name)
    }

    fn home(&self, name: &str) -> PathBuf {
        self.path("home").join(name)
    }

    fn project(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.home("work") } else { self.home("work").join(name) }
    }

    fn write(&self, path: &Path, content: impl AsRef<[u8]>) -> &Self {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    fn policy_server(&mut self, name: &str, command: &str) {
        let origin = Origin {
            file: PathBuf::from("policy.yaml"),
            line: 7,
            nth: 0,
            scope: Scope::Policy,
            agreed: false,
        };
        let id = ServerId(name.to_owned());
        let transport =
            Transport::Stdio { command: command.to_owned(), args: vec![], env: BTreeMap::new(), cwd: None };
        self.extra.insert(id.clone(), Declared { id, transport, origin });
    }

    fn try_adapt(&self, kind: Kind, argv: &[&str]) -> Result<Launch, AgentError> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let (home, project) = (self.path("home"), self.project(""));
        let cwd = self.project(&self.cwd);
        let context = Context {
            argv: &argv,
            env: &self.env,
            home: &home,
            project: &project,
            cwd: &cwd,
            bridge: "/run/agentsh/agentsh",
            socket: "/run/agentsh/mcp.sock",
            inject_dir: Path::new("/run/agentsh/inject"),
            generic_config: self.generic.as_deref(),
            extra: &self.extra,
            agreed: &self.agreed,
            told: self.told.as_deref(),
        };
        kind.adapt(&context, &self.path("etc"))
    }

    fn adapt(&self, kind: Kind, argv: &[&str]) -> Launch {
        self.try_adapt(kind, argv).unwrap()
    }
}

fn claude_code() -> Kind {
    Kind::of("claude")
}

fn codex_cli() -> Kind {
    Kind::of("codex")
}

fn unknown() -> Kind {
    Kind::of("nobody-knows-it")
}

fn names(launch: &Launch) -> Vec<&str> {
    launch.servers.keys().map(|id| id.0.as_str()).collect()
}

fn command<'l>(launch: &'l Launch, name: &str) -> &'l str {
    match &launch.servers[&ServerId(name.to_owned())].transport {
        Transport::Stdio { command, .. } => command,
        Transport::Remote { .. } => panic!("{name} is remote"),
    }
}

fn args<'l>(launch: &'l Launch, name: &str) -> &'l [String] {
    match &launch.servers[&ServerId(name.to_owned())].transport {
        Transport::Stdio { args, .. } => args,
        Transport::Remote { .. } => panic!("{name} is remote"),
    }
}

fn origin<'l>(launch: &'l Launch, name: &str) -> &'l Origin {
    &launch.servers[&ServerId(name.to_owned())].origin
}

fn reason<'l>(launch: &'l Launch, name: &str) -> &'l str {
    &launch.refused.iter().find(|(id, _)| id.0 == name).unwrap_or_else(|| panic!("{name} is not refused")).1
}

fn injected<'l>(launch: &'l Launch, end: &str) -> &'l [u8] {
    &launch.files.iter().find(|file| file.path.ends_with(end)).unwrap_or_else(|| panic!("no {end}")).content
}

fn replacement<'l>(launch: &'l Launch, path: &Path) -> &'l [u8] {
    &launch.replaced.iter().find(|(replaced, _)| replaced == path).unwrap().1
}

fn json_of(content: &[u8]) -> Value {
    serde_json::from_slice(content).unwrap()
}

fn toml_of(content: &[u8]) -> toml::Table {
    std::str::from_utf8(content).unwrap().parse().unwrap()
}

fn state<'l>(launch: &'l Launch, path: &str) -> Option<&'l HomeState> {
    launch.home_state.iter().find(|state| state.path == Path::new(path))
}

fn hosts(launch: &Launch) -> Vec<(&str, u16)> {
    launch.endpoints.iter().map(|endpoint| (endpoint.host.as_str(), endpoint.port)).collect()
}

#[test]
fn agents_are_recognised_by_program_name_and_path() {
    for program in [
        "claude",
        "/usr/bin/claude",
        "/opt/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
        "/home/u/.local/share/claude/versions/2.1.197",
    ] {
        assert_eq!(Kind::of(program), claude_code(), "{program}");
    }
    for program in ["codex", "./codex", "/opt/node_modules/@openai/codex/bin/codex.js"] {
        assert_eq!(Kind::of(program), codex_cli(), "{program}");
    }
    for program in ["", "claude-like", "/home/codex/bin/x", "myclaude"] {
        assert_eq!(Kind::of(program), unknown(), "{program}");
    }
}

#[test]
fn an_agent_gets_its_own_variables_and_no_cloud_keys() {
    assert!(claude_code().own_environment().contains(&"ANTHROPIC_*"));
    assert!(codex_cli().own_environment().contains(&"CODEX_*"));
    assert!(unknown().own_environment().is_empty());
    for kind in Kind::all() {
        assert!(!kind.own_environment().iter().any(|name| name.starts_with("AWS_") && name.contains('*')));
    }
}
