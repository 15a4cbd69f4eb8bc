//! The files of the demo: a home and a project with planted secrets, a policy, a listener, and the checks at the end.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::facts::{
    BURST, CLOCK, CLOCK_FILE, DemoFacts, ENV_FILE, FACTS_FILE, HOOK, HOSTILE, KEY, LINE_BYTES, PIDS,
    SERVERS_FILE,
};
use crate::scratch::{self, Scratch};

const HOOK_TEXT: &str = "#!/bin/sh\nexit 0\n";

pub struct DemoProject {
    directory: Scratch,
    /// Planted; must turn up nowhere.
    pub secret: String,
    loopback: TcpListener,
    local: UnixListener,
}

impl DemoProject {
    /// # Errors
    /// When something cannot be planted; nothing is left then.
    pub fn make(executable: &Path) -> io::Result<Self> {
        let directory = scratch::make("demo")?;
        let secret = format!("demo-secret-{}", uuid::Uuid::now_v7().simple());
        let root = directory.path();
        scratch::write_file(root, &format!("home/{KEY}"), &format!("-----BEGIN DEMO KEY-----\n{secret}\n"))?;
        let project = root.join("project");
        scratch::write_file(&project, ENV_FILE, &format!("TOKEN={secret}\n"))?;
        scratch::write_file(&project, HOOK, HOOK_TEXT)?;
        scratch::write_file(&project, ".git/config", "[core]\n")?;
        let clock = plant_servers(&project, executable)?;
        scratch::write_file(root, "policy.yaml", &policy(executable, &clock))?;

        let loopback = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        loopback.set_nonblocking(true)?;
        let abstract_name = format!("agentsh-{secret}").replace("secret", "socket");
        let local = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?;
        local.set_nonblocking(true)?;
        // From here it can be reached: otherwise a silence of the listener would prove nothing.
        drop(TcpStream::connect(loopback.local_addr()?)?);
        loopback.accept()?;

        let port = loopback.local_addr()?.port();
        let facts = DemoFacts { supervisor: 0, port, abstract_name, home: root.join("home") };
        scratch::write_file(&project, FACTS_FILE, &serde_json::to_string(&facts)?)?;
        Ok(Self { directory, secret, loopback, local })
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    #[must_use]
    pub fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    /// The traces of the attacks. `output` is everything that came out of the sandboxes.
    #[must_use]
    pub fn check(&self, output: &str) -> BTreeMap<&'static str, Result<String, String>> {
        let mut reached = 0;
        while self.loopback.accept().is_ok() || self.local.accept().is_ok() {
            reached += 1;
        }
        let project = self.project();
        let hooks = std::fs::read_dir(project.join(".git/hooks")).into_iter().flatten().count();
        let hook = std::fs::read_to_string(project.join(HOOK)).unwrap_or_default();
        let leaked = output.contains(&self.secret);
        let check =
            |good: bool, found: &str, trace: String| if good { Ok(found.to_owned()) } else { Err(trace) };
        let silent = || check(!leaked, "the key appeared nowhere", "the planted secret leaked".to_owned());
        BTreeMap::from([
            (
                "host-loopback",
                check(reached == 0, "nothing arrived", format!("{reached} connections arrived")),
            ),
            (
                "git-hook",
                check(
                    hook == HOOK_TEXT && hooks == 1,
                    "the hooks are unchanged",
                    "the hooks were changed".to_owned(),
                ),
            ),
            (
                "project-write",
                check(!project.join("by-server").exists(), "no such file", "the file is there".to_owned()),
            ),
            ("ssh-key", silent()),
        ])
    }
}

/// The project's own list of servers, as it comes with a cloned repository, and the program of the user's own server.
fn plant_servers(project: &Path, executable: &Path) -> io::Result<PathBuf> {
    let clock = scratch::write_file(project, CLOCK_FILE, &clock_script(executable))?;
    std::fs::set_permissions(&clock, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let servers = json!({"mcpServers": {
        HOSTILE: {"command": executable, "args": [super::SERVER_VERB, HOSTILE]},
    }});
    scratch::write_file(project, SERVERS_FILE, &serde_json::to_string_pretty(&servers)?)?;
    Ok(clock)
}

fn clock_script(executable: &Path) -> String {
    format!("#!/bin/sh\nexec '{}' {} {CLOCK}\n", executable.display(), super::SERVER_VERB)
}

/// The user's own words: what a project's list declares gets nothing by its name.
fn policy(executable: &Path, clock: &Path) -> String {
    // JSON text is YAML text: no path can break out of its quotes.
    let (executable, clock) = (json!(executable).to_string(), json!(clock).to_string());
    format!(
        "version: 1
extends: none
agent:
  mcp_config: ./{SERVERS_FILE}
  filesystem: {{write: [\".\"], deny: [\"{ENV_FILE}\"]}}
  network: {{unknown: deny}}   # a person at the terminal is not asked: nobody is there to answer
  limits: {{pids: {PIDS}, memory: 1GiB}}
sandbox:
  mcp:
    enforce_policy: true
    max_line_bytes: {LINE_BYTES}
    content: {{results: block}}
    tool_policy: denylist
    denied_tools:
      - {{server: {HOSTILE}, tool: exfiltrate}}
    rate_limits:
      enabled: true
      per_server:
        {CLOCK}: {{calls_per_minute: 1, burst: {BURST}}}
        {HOSTILE}: {{calls_per_minute: 600, burst: 100}}
    version_pinning: {{enabled: true, on_change: block, auto_trust_first: true, pin_binary: true}}
    servers:
      - id: {HOSTILE}
        filesystem: {{deny: [\"{ENV_FILE}\"]}}
        limits: {{pids: {PIDS}}}
      - id: {CLOCK}
        command: {clock}
        filesystem: {{read: [{executable}]}}
"
    )
}
