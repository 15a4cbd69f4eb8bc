//! The surroundings of a case: its own home and project, and the user who starts agentsh there.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Who starts agentsh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    Root,
    /// An ordinary user: ourselves, or, when we are root, an id that has no rights here.
    User,
}

/// The first id that distributions give to people.
const USER: u32 = 1000;
/// A case that takes longer than this hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);

impl Starter {
    pub fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
        }
    }

    pub fn unavailable(self) -> Option<&'static str> {
        if std::env::var_os("AGENTSH_E2E_DIR").is_none() {
            Some("AGENTSH_E2E_DIR is not set: use `cargo xtask test e2e`")
        } else if self == Self::Root && !is_root() {
            Some("needs root")
        } else {
            None
        }
    }
}

pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

/// A directory of the installation.
pub fn installed(path: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("AGENTSH_E2E_DIR").expect("checked by `unavailable`")).join(path)
}

pub struct Place {
    root: PathBuf,
    pub home: PathBuf,
    pub project: PathBuf,
    starter: Starter,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    /// An empty home and an empty project.
    pub fn new(starter: Starter) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = installed("work").join(number.to_string());
        let _ = std::fs::remove_dir_all(&root);
        let place = Self { home: root.join("home"), project: root.join("project"), root, starter };
        for directory in [&place.root, &place.home, &place.project] {
            std::fs::create_dir_all(directory).expect("a new directory");
            place.give(directory);
        }
        place
    }

    /// Writes a file as the starter's own, with its directories.
    pub fn write(&self, path: &Path, content: &str) {
        let directory = path.parent().expect("a file has a directory");
        if !directory.exists() {
            std::fs::create_dir_all(directory).expect("a new directory");
            self.give(directory);
        }
        std::fs::write(path, content).expect("a new file");
        self.give(path);
    }

    /// Writes a program of the starter's.
    pub fn program(&self, path: &Path, content: &str) {
        self.write(path, content);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    }

    /// Installs the Node packages into the project. Copies, since a link made elsewhere counts as a change.
    pub fn node_modules(&self) {
        let target = self.project.join("node_modules");
        std::fs::create_dir(&target).expect("a new directory");
        self.give(&target);
        let source = installed("npm/node_modules");
        let entries = std::fs::read_dir(&source).expect("the installed packages");
        // The agents and the libraries of models are not packages of the project, and large.
        let wanted = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            !["@anthropic-ai", "@google", "@openai", "openai"].iter().any(|agent| name == OsStr::new(agent))
                && !name.as_encoded_bytes().starts_with(b"opencode-linux-")
        });
        let mut copy = Command::new("cp");
        copy.arg("-a").args(wanted.map(|entry| entry.path())).arg(&target);
        assert!(copy.status().expect("cp").success(), "cannot copy the packages into the project");
    }

    /// A program in the project, as the starter, with nothing in its environment but what is said here.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = if self.starter == Starter::User && is_root() {
            let mut command = Command::new("setpriv");
            let id = USER.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", installed("npm/node_modules/.bin").display());
        command
            .current_dir(&self.project)
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", path)
            .env("TERM", "dumb");
        command
    }

    pub fn agentsh<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(agentsh());
        command.args(arguments);
        command
    }

    /// The answer of a verb that prints JSON.
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let ended = run(&mut self.agentsh(arguments));
        assert_eq!(ended.status, Some(0), "{arguments:?}: {ended:?}");
        serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {ended:?}"))
    }

    fn give(&self, path: &Path) {
        if self.starter == Starter::User && is_root() {
            std::os::unix::fs::lchown(path, Some(USER), Some(USER)).expect("root may give files away");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

/// The binary under test.
pub fn agentsh() -> PathBuf {
    std::env::var_os("AGENTSH_E2E_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_agentsh").into(), PathBuf::from)
}

/// Runs to the end, within [`TEST_TIMEOUT`].
pub fn run(command: &mut Command) -> Ended {
    let [mut stdout, mut stderr] = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
    let (out, error) = (stdout.try_clone().unwrap(), stderr.try_clone().unwrap());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(error)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            break status.code();
        }
        if started.elapsed() > crate::support::patience(TEST_TIMEOUT) {
            let _ = child.kill();
            let _ = child.wait();
            let (stdout, stderr) = (text(&mut stdout), text(&mut stderr));
            panic!("{command:?} did not end\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    Ended { status, stdout: text(&mut stdout), stderr: text(&mut stderr) }
}

fn text(file: &mut std::fs::File) -> String {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a file of our own");
    String::from_utf8_lossy(&bytes).into_owned()
}
