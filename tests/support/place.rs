//! The machine of one test, as far as a test can have one: a home, a project, and the user who works there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::Value;

use super::outcome::Outcome;
use super::programs::Programs;
use super::schema;
use super::{is_root, processes, skip};

/// Who starts agentsh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The user who runs the tests.
    Invoker,
    /// uid 1000, when root runs the tests.
    User,
}

const USER: u32 = 1000;

impl Mode {
    /// The modes that can be had here. Names the missing one.
    pub fn all() -> Vec<Self> {
        if !is_root() {
            skip("started by root: the tests are not run by root");
            return vec![Self::Invoker];
        }
        if !user_namespaces() {
            skip("started by an ordinary user: user namespaces are not allowed here");
            return vec![Self::Invoker];
        }
        vec![Self::Invoker, Self::User]
    }

    pub fn is_root(self) -> bool {
        self == Self::Invoker && is_root()
    }
}

/// Whether an ordinary user may make a user namespace.
fn user_namespaces() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let place = Place::new(Mode::User);
        place.outside(&["unshare user"]) == ["DONE"]
    })
}

pub struct Place {
    pub mode: Mode,
    directory: tempfile::TempDir,
    base: PathBuf,
    pub home: PathBuf,
    /// Below the home, as projects are.
    pub project: PathBuf,
    programs: Arc<Programs>,
    online: bool,
    /// The value of `--network`; None omits the option.
    pub backend: Option<&'static str>,
    environment: Mutex<Vec<(String, String)>>,
}

/// See [`Place::without_definitions`].
pub const WITHOUT_DEFINITIONS: &str =
    "version: 1\nsandbox: {mcp: {version_pinning: {enabled: false}, content: {definitions: off}}}\n";

impl Place {
    pub fn new(mode: Mode) -> Self {
        Self::below(mode, "")
    }

    /// The same, with everything below one more directory.
    pub fn below(mode: Mode, name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Six random letters and digits look like a secret now and then, and the record does not hold those.
        let directory = loop {
            let number = std::process::id().wrapping_mul(1000) + NEXT.fetch_add(1, Ordering::Relaxed);
            let of_place = format!("agentsh-suite-{:06}", number % 1_000_000);
            match tempfile::Builder::new().prefix(&of_place).rand_bytes(0).tempdir() {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => break made.unwrap(),
            }
        };
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let base = directory.path().join(name);
        let home = base.join("home");
        let project = home.join("project");
        let place = Self {
            mode,
            base,
            home,
            project,
            programs: Programs::shared(),
            directory,
            online: false,
            backend: None,
            environment: Mutex::default(),
        };
        place.make_directory(&place.project);
        place.make_directory(&place.path("run"));
        fs::set_permissions(place.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
        place
    }

    /// On a machine whose only network is the small internet of the fixture.
    pub fn online(mut self) -> Self {
        self.online = true;
        self
    }

    /// With this backend of the network in every sandbox.
    pub fn policed_by(mut self, backend: &'static str) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Next to the home: outside of everything that a sandbox sees.
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.path(name)
    }

    /// Makes a directory, and the missing ones above it, for the user of this place.
    pub fn make_directory(&self, path: &Path) {
        if path.exists() {
            return;
        }
        self.make_directory(path.parent().unwrap());
        fs::create_dir(path).unwrap();
        self.own(path);
    }

    /// Writes a file of the user. Relative paths are below the project.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project.join(path);
        self.make_directory(path.parent().unwrap());
        fs::write(&path, content).unwrap();
        self.own(&path);
        path
    }

    /// Writes an executable script.
    pub fn script(&self, path: impl AsRef<Path>, content: &str) -> PathBuf {
        let path = self.write(path, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The user's policy, with nothing below it: what a test writes is all there is.
    pub fn policy(&self, text: &str) -> PathBuf {
        let is_map = text.contains(": ") || text.contains(":\n");
        let bare = if is_map { format!("{}\nextends: none\n", text.trim_end()) } else { text.to_owned() };
        self.user_policy(&bare)
    }

    /// The user's policy as he writes it, over the built-in one.
    pub fn user_policy(&self, text: &str) -> PathBuf {
        self.write(self.home.join(".config/agentsh/policy.yaml"), text)
    }

    /// Nothing is judged by the definitions of tools, so that agentsh lists none: for servers that answer a fixed sequence.
    pub fn without_definitions(&self) -> PathBuf {
        self.user_policy(WITHOUT_DEFINITIONS)
    }

    /// Gives a path to the user of this place.
    pub fn own(&self, path: &Path) {
        if let Some(id) = self.user() {
            std::os::unix::fs::lchown(path, Some(id), Some(id)).unwrap();
        }
    }

    fn user(&self) -> Option<u32> {
        (self.mode == Mode::User).then_some(USER)
    }

    /// A program started by the user of this place, in the project, with an environment like that after a login.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.project);
        command.env("HOME", &self.home).env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.env("XDG_RUNTIME_DIR", self.path("run")).env("USER", "tester");
        command.envs(self.environment.lock().unwrap().iter().cloned());
        if let Some(id) = self.user() {
            command.uid(id).gid(id);
        }
        command
    }

    /// One variable more for every program that is started.
    pub fn set(&self, name: &str, value: impl Into<String>) {
        self.environment.lock().unwrap().push((name.to_owned(), value.into()));
    }

    /// The rows that a verb with `--json` prints.
    pub fn listed(&self, words: &[&str]) -> Vec<Value> {
        let outcome = Outcome::of(&mut self.agentsh(words)).expect_code(0);
        serde_json::from_str(&outcome.stdout).unwrap()
    }

    /// The size of the record on disk.
    pub fn record_bytes(&self) -> u64 {
        let directory = fs::read_dir(self.home.join(".local/state/agentsh")).unwrap();
        let files = directory.map(|entry| entry.unwrap().metadata().unwrap());
        files.filter(fs::Metadata::is_file).map(|file| file.len()).sum()
    }

    pub fn events(&self, kind: &str) -> Vec<Value> {
        self.listed(&["mcp", "events", "--type", kind, "--json"])
    }

    pub fn detections(&self) -> Vec<Value> {
        self.listed(&["mcp", "detections", "--json"])
    }

    /// A proxy that refuses what it finds.
    pub fn halting(&self, words: &[&str]) -> Command {
        let mut command = self.agentsh(words);
        command.env("CANARY_MCP_RESPONSE_MODE", "halt");
        command
    }

    pub fn agentsh(&self, words: &[&str]) -> Command {
        let verb = match words {
            ["run", ..] => 1,
            ["mcp", "run", ..] => 2,
            _ => 0,
        };
        let mut words = words.to_vec();
        if let (Some(backend), 1..) = (self.backend, verb) {
            words.splice(verb..verb, ["--network", backend]);
        }
        let words = &words[..];
        if self.online {
            return self.on_the_internet(words);
        }
        let mut command = self.command(self.program("agentsh"));
        command.args(words);
        command
    }

    fn on_the_internet(&self, words: &[&str]) -> Command {
        let mut command = self.command(self.program("internet"));
        let uid = self.user().unwrap_or_else(|| nix::unistd::getuid().as_raw());
        if is_root() {
            // It makes the namespaces as root and starts agentsh as the user.
            command.uid(0).gid(0);
        }
        command.arg(self.internet_log()).arg(uid.to_string()).arg(self.program("agentsh")).args(words);
        command
    }

    /// The log of the small internet: one line for each DNS query and connection.
    pub fn internet_log(&self) -> PathBuf {
        self.path("internet.log")
    }

    /// `agentsh run -- sh -c SCRIPT`
    pub fn shell(&self, script: &str) -> Outcome {
        Outcome::of(&mut self.agentsh(&["run", "--quiet", "--", "sh", "-c", script]))
    }

    /// The probe's output without any sandbox.
    pub fn outside(&self, attempts: &[&str]) -> Vec<String> {
        let outcome = Outcome::of(self.command(self.program("probe")).args(attempts));
        outcome.stdout.lines().map(str::to_owned).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After a failed test something may still run, with this place in its arguments or as its directory.
        let name = self.directory.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        processes::end(&name);
        processes::end_below(self.directory.path());
        if !std::thread::panicking() {
            let strangers = schema::strangers(&self.home.join(".local/state/agentsh/agentsh.db"));
            assert!(strangers.is_empty(), "docs/events.schema.json does not have these: {strangers:#?}");
        }
    }
}
