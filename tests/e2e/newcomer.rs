//! A newcomer's first minutes with agentsh, in a clean root of Debian: the package, `doctor`, the demo, an agent in
//! tmux with one server, suspend and resume, one refusal that is then allowed by following its message, and the
//! report.
//!
//! `cargo xtask walk` makes the root and starts this with `AGENTSH_E2E_ROOT` set. Everything is typed into a terminal of 80
//! columns, and read from it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::agents::{NOTE, script};
use crate::model::{FAREWELL, anthropic, chat, gemini, openai};

const ENTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../xtask/src/dist/enter.sh");
/// A screen that does not show an expected text by then never will.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(240);
const COLUMNS: usize = 80;
const PROMPT: &str = "newcomer$";

pub fn unavailable() -> Option<&'static str> {
    match std::env::var_os("AGENTSH_E2E_ROOT") {
        Some(_) => None,
        None => Some("AGENTSH_E2E_ROOT is not set: use `cargo xtask walk`"),
    }
}

fn root() -> PathBuf {
    std::env::var_os("AGENTSH_E2E_ROOT").expect("checked by `unavailable`").into()
}

/// The differences between agents.
struct Agent {
    /// What is typed to start it.
    typed: &'static str,
    /// The text on its screen when it waits for a task.
    ready: &'static str,
    /// What it asks, and the keys that say yes.
    asks: &'static [(&'static str, &'static [&'static str])],
    /// Its Ctrl-Z suspends it.
    is_suspended: bool,
    /// Keys that end it.
    leave: &'static [&'static str],
}

/// The package, installed once as the administrator does.
fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let mut command = Command::new("sh");
        command.arg(ENTER).arg(root()).args(["dpkg", "--install", "/tmp/agentsh.deb"]);
        let done = command.output().expect("sh");
        let said =
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        println!("dpkg --install agentsh.deb\n{said}");
    });
}

/// An ordinary user of the root, with a shell in a terminal of tmux.
struct Newcomer {
    name: String,
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Newcomer {
    fn new(name: &str) -> Self {
        install();
        let user = format!(
            "id {name} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {name}; \
             exec setpriv --reuid {name} --regid {name} --init-groups env -i HOME=/home/{name} USER={name} LANG=C.UTF-8 \
             SHELL=/bin/bash PATH=/usr/local/bin:/usr/bin:/bin sh"
        );
        let mut command = Command::new("sh");
        command.arg(ENTER).arg(root()).args(["sh", "-c", &user]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("sh");
        let input = shell.stdin.take().expect("a pipe");
        let output = BufReader::new(shell.stdout.take().expect("a pipe"));
        let mut newcomer = Self { name: name.to_owned(), shell, input, output };
        newcomer.ask("mkdir -p ~/project && cd ~/project");
        newcomer
    }

    /// The output of a line in a shell next to the terminal.
    fn ask(&mut self, line: &str) -> String {
        const END: &str = "--end-of-the-answer";
        writeln!(self.input, "{{ {line}\n}} 2>&1; echo; echo {END}").expect("the shell reads");
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("the shell's output is text");
            assert!(read > 0, "the shell ended: {answer}");
            if line.trim_end() == END {
                return answer.trim_end().to_owned();
            }
            answer.push_str(&line);
        }
    }

    fn write(&mut self, path: &str, content: &str) {
        let line = format!(
            "mkdir -p \"$(dirname {path})\"; cat > {path} <<'--end-of-file'\n{content}\n--end-of-file"
        );
        self.ask(&line);
    }

    /// A terminal with a login's shell in it, and these variables.
    fn opens_a_terminal(&mut self, environment: &[(&str, String)]) {
        let set: String = environment.iter().map(|(name, value)| format!("-e {name}='{value}' ")).collect();
        self.ask(&format!(
            // The shell that tmux starts commands with drops a prompt that it is given.
            "tmux -f /dev/null new-session -d -s w -x {COLUMNS} -y 40 {set} \
             'exec env PS1=\"{PROMPT} \" bash --norc --noprofile -i'; tmux set -g history-limit 5000"
        ));
        self.sees(PROMPT);
    }

    fn screen(&mut self) -> String {
        self.ask("tmux capture-pane -p -t w")
    }

    /// Everything since the terminal was opened or cleared; lines that the terminal broke are whole.
    fn history(&mut self) -> String {
        self.ask("tmux capture-pane -p -J -S - -t w")
    }

    fn presses(&mut self, keys: &[&str]) {
        for key in keys {
            self.ask(&format!("tmux send-keys -t w {key}"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Types letter by letter, as far as an agent is concerned.
    fn types(&mut self, text: &str) {
        let quoted = text.replace('\'', "'\\''");
        self.ask(&format!("tmux send-keys -t w -l '{quoted}'"));
        // At once it would look like something that is pasted.
        std::thread::sleep(Duration::from_millis(800));
        self.presses(&["Enter"]);
    }

    #[track_caller]
    fn sees(&mut self, what: &str) -> String {
        self.answers(&[], what)
    }

    /// Waits for `what`, and answers questions until then.
    #[track_caller]
    fn answers(&mut self, asks: &[(&str, &[&str])], what: &str) -> String {
        let started = Instant::now();
        loop {
            let screen = self.screen();
            let asked = asks.iter().find(|(question, _)| screen.contains(question));
            if let Some((_, keys)) = asked {
                std::thread::sleep(Duration::from_millis(300));
                self.presses(keys);
            } else if screen.contains(what) {
                return screen;
            }
            assert!(
                started.elapsed() < SCREEN_TIMEOUT,
                "{}: no '{what}' on the screen:\n{screen}",
                self.name
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Tells the agent something until its model has said its last word; an agent that is not ready yet drops what is typed.
    #[track_caller]
    fn hears(&mut self, agent: &Agent, text: &str) {
        self.types(text);
        let (started, mut typed) = (Instant::now(), Instant::now());
        loop {
            let screen = self.screen();
            if let Some((_, keys)) = agent.asks.iter().find(|(question, _)| screen.contains(question)) {
                self.presses(keys);
            } else if screen.contains(FAREWELL) {
                return;
            } else if typed.elapsed() > Duration::from_secs(10) {
                match screen.contains(text) {
                    true => self.presses(&["Enter"]),
                    false => self.types(text),
                }
                typed = Instant::now();
            }
            assert!(started.elapsed() < SCREEN_TIMEOUT, "{}: no answer on the screen:\n{screen}", self.name);
            std::thread::sleep(Duration::from_millis(400));
        }
    }

    /// Answers what an agent asks, for a while or until something has happened.
    fn says_yes(&mut self, agent: &Agent, is_done: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_done() && started.elapsed() < Duration::from_secs(12) {
            let screen = self.screen();
            if let Some((_, keys)) = agent.asks.iter().find(|(question, _)| screen.contains(question)) {
                self.presses(keys);
            }
            std::thread::sleep(Duration::from_millis(400));
        }
    }

    fn clears(&mut self) {
        self.presses(&["C-l"]);
        self.ask("tmux clear-history -t w");
    }

    /// Ends the agent, and gives what is in the terminal since it was cleared.
    #[track_caller]
    fn leaves(&mut self, agent: &Agent) -> String {
        self.ask("tmux clear-history -t w");
        self.presses(agent.leave);
        let (started, mut pressed) = (Instant::now(), Instant::now());
        loop {
            let shown = self.history();
            if shown.trim_end().ends_with(PROMPT) {
                return shown;
            }
            if pressed.elapsed() > Duration::from_secs(10) {
                self.presses(agent.leave);
                pressed = Instant::now();
            }
            assert!(started.elapsed() < SCREEN_TIMEOUT, "{}: no prompt\n{shown}", self.name);
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// A command of the shell, and what it printed.
    #[track_caller]
    fn runs(&mut self, line: &str) -> String {
        self.clears();
        self.types(&format!("{line}; echo en''ded $?"));
        self.sees("ended ");
        let shown = self.history();
        println!("{}: {PROMPT} {line}\n{shown}\n", self.name);
        for line in shown.lines() {
            assert!(
                line.chars().count() <= COLUMNS || line.contains("echo en''ded"),
                "wider than the terminal: {line}"
            );
        }
        shown
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "tmux kill-server; exit");
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The answer of a port of the machine to a newcomer's program.
const ANSWER: &str = "the port answers";

/// Something that listens on the machine, as a database of the project would.
fn port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let length = ANSWER.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{ANSWER}"
            );
        }
    });
    port
}

/// Before any agent: what a newcomer types after the installation.
fn looks_around(newcomer: &mut Newcomer) {
    let doctor = newcomer.runs("agentsh doctor");
    for layer in ["user-namespace", "mount-tree", "network-namespace", "seccomp", "landlock", "event-store"] {
        assert!(doctor.contains(&format!("enforced    {layer}")), "{doctor}");
    }
    // Once each, and nothing to do where nothing can be done.
    for once in ["other agents", "why: no such cgroup"] {
        assert!(doctor.matches(once).count() <= 1, "{once}: {doctor}");
    }
    assert!(!doctor.contains("what to do: nothing"), "{doctor}");
    let demo = newcomer.runs("agentsh demo");
    assert!(demo.contains(" attacks refused") && !demo.contains("SUCCEEDED"), "{demo}");
    assert!(newcomer.runs("agentsh sessions").contains("verb demo"));
}

/// One agent, from its start to the report.
fn walk(newcomer: &mut Newcomer, agent: &Agent, called: impl Fn() -> bool) {
    let port = port();
    let ask = format!("!curl -sS --max-time 9 http://127.0.0.1:{port}/");
    newcomer.types(agent.typed);
    newcomer.answers(agent.asks, agent.ready);

    newcomer.hears(agent, "read the note please");
    // An agent whose server is not there yet answers without it, and is asked again.
    for _ in 0..8 {
        if called() {
            break;
        }
        std::thread::sleep(Duration::from_secs(8));
        newcomer.types("read the note please");
        newcomer.says_yes(agent, &called);
    }
    assert!(called(), "the tool was called:\n{}", newcomer.screen());

    // Suspended, the shell has the terminal; resumed, the agent draws again.
    if agent.is_suspended {
        newcomer.presses(&["C-z"]);
        newcomer.sees("Stopped");
        newcomer.types("echo sh''ell $((40+2))");
        newcomer.sees("shell 42");
        newcomer.types("fg");
        newcomer.answers(agent.asks, agent.ready);
    }

    // Something that is not allowed, and what is said about it.
    newcomer.types(&ask);
    newcomer.sees("Failed to connect");
    let after = newcomer.leaves(agent);
    println!("{}: after {}\n{after}\n", newcomer.name, agent.typed);
    assert!(!after.contains("waits for your answer"), "nothing waits any more: {after}");
    let (_, said) = after.rsplit_once("to allow: ").expect("how to allow it");
    let command = said.lines().map(str::trim).next().filter(|line| line.starts_with("agentsh policy allow "));
    let command = command.expect("a command");
    assert!(command.contains(&format!("localhost:{port}")), "{said}");

    // Taken literally.
    newcomer.runs(command);
    assert!(newcomer.runs("agentsh policy check").contains(": ok, "));
    newcomer.clears();
    newcomer.types(agent.typed);
    newcomer.answers(agent.asks, agent.ready);
    newcomer.types(&ask);
    newcomer.sees(ANSWER);
    let after = newcomer.leaves(agent);
    println!("{}: the second time\n{after}\n", newcomer.name);
    assert!(!after.contains(&format!("127.0.0.1:{port}:")), "nothing of it is refused: {after}");

    let calls = newcomer.runs("agentsh mcp calls");
    assert!(calls.contains("read_text_file") && calls.contains("allow"), "{calls}");
    let report = newcomer.runs("agentsh report latest");
    assert!(report.contains("exit status") && report.contains("intact"), "{report}");
    let sessions = newcomer.runs("agentsh sessions");
    assert!(sessions.contains("state ended") && !sessions.contains("state open"), "{sessions}");
}

const SERVER: &str = "mcp-server-filesystem";

pub const WALKS: [(&str, fn()); 4] =
    [("claude", claude), ("codex", codex), ("gemini", gemini), ("opencode", opencode)];

fn claude() {
    let model = anthropic::start(script());
    let mut newcomer = Newcomer::new("claude-user");
    newcomer.write("note.txt", NOTE);
    let servers = json!({"mcpServers": {"fs": {"command": SERVER, "args": ["."]}}});
    newcomer.write(".mcp.json", &servers.to_string());
    // It asked its model's own host whether it is there, which it is not here.
    newcomer.write("~/.claude.json", r#"{"hasCompletedOnboarding": true, "theme": "dark"}"#);
    newcomer.opens_a_terminal(&[
        ("ANTHROPIC_BASE_URL", format!("http://{}", model.address)),
        ("ANTHROPIC_API_KEY", "sk-test".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("ENABLE_TOOL_SEARCH", "false".to_owned()),
        ("MCP_CONNECTION_NONBLOCKING", "false".to_owned()),
    ]);
    looks_around(&mut newcomer);
    let agent = Agent {
        typed: "agentsh run claude",
        ready: "(shift+tab to cycle)",
        asks: &[
            ("Quick safety check", &["Down", "Enter"]),
            ("Do you want to use this API key?", &["Up", "Enter"]),
            ("Auto mode can't check actions in this session\n", &["Enter"]),
            ("Do you want to proceed?", &["Down", "Enter"]),
        ],
        is_suspended: true,
        leave: &["C-c", "C-c"],
    };
    walk(&mut newcomer, &agent, || anthropic::result(&model.conversation()).is_some());
}

fn codex() {
    let model = openai::start(script());
    let mut newcomer = Newcomer::new("codex-user");
    newcomer.write("note.txt", NOTE);
    let configuration = format!(
        "model = \"scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
         base_url = \"http://{}/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n\n\
         [mcp_servers.fs]\ncommand = \"{SERVER}\"\nargs = [\".\"]\n",
        model.address
    );
    newcomer.write("~/.codex/config.toml", &configuration);
    newcomer.opens_a_terminal(&[("SCRIPTED_KEY", "sk-test".to_owned())]);
    let agent = Agent {
        typed: "agentsh run codex",
        ready: "? for shortcuts",
        asks: &[("Trust this folder?", &["Enter"])],
        is_suspended: true,
        leave: &["C-c", "C-c"],
    };
    walk(&mut newcomer, &agent, || openai::result(&model.conversation()).is_some());
}

fn gemini() {
    let model = gemini::start(script());
    let mut newcomer = Newcomer::new("gemini-user");
    newcomer.write("note.txt", NOTE);
    let settings = json!({
        "mcpServers": {"fs": {"command": SERVER, "args": ["."]}},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    });
    newcomer.write("~/.gemini/settings.json", &settings.to_string());
    newcomer.opens_a_terminal(&[
        ("GEMINI_API_KEY", "k".to_owned()),
        ("GOOGLE_GEMINI_BASE_URL", format!("http://{}", model.address)),
    ]);
    let agent = Agent {
        typed: "agentsh run -- gemini -m gemini-2.5-flash",
        ready: "Type your message",
        asks: &[
            ("Do you trust the files in this folder?", &["Enter"]),
            ("Allow execution of MCP tool", &["Enter"]),
        ],
        // The key undoes what was typed.
        is_suspended: false,
        leave: &["Escape", "C-c", "C-c"],
    };
    walk(&mut newcomer, &agent, || gemini::result(&script(), &model.conversation()).is_some());
}

fn opencode() {
    let model = chat::start(script());
    let mut newcomer = Newcomer::new("opencode-user");
    newcomer.write("note.txt", NOTE);
    let configuration = json!({
        "model": "scripted/m",
        "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": format!("http://{}/v1", model.address), "apiKey": "k"},
            "models": {"m": {"name": "m"}},
        }},
        "mcp": {"fs": {"type": "local", "command": [SERVER, "."]}},
    });
    newcomer.write("~/.config/opencode/opencode.json", &configuration.to_string());
    newcomer.opens_a_terminal(&[]);
    let agent = Agent {
        typed: "agentsh run opencode",
        ready: "ctrl+p commands",
        asks: &[],
        is_suspended: true,
        leave: &["C-c"],
    };
    walk(&mut newcomer, &agent, || chat::result(&model.conversation()).is_some());
}
