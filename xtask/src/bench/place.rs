//! Where benchmarks run: the release binaries, and a home and a project of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::run::{cargo, find, succeed, target};

pub struct Place {
    pub agentsh: PathBuf,
    /// The measuring program, inside the project.
    pub bench: PathBuf,
    /// A static program that does nothing, inside the project.
    pub nothing: PathBuf,
    pub home: PathBuf,
    pub project: PathBuf,
}

/// The release build of the program itself, with `agentsh-server` next to it.
///
/// # Errors
/// When it does not build.
pub fn agentsh() -> Result<PathBuf> {
    for program in ["agentsh", "agentsh-server"] {
        succeed(&mut cargo(["build", "--release", "--locked", "-p", program, "--bins"]))?;
    }
    Ok(target().join("release/agentsh"))
}

impl Place {
    pub fn make(binary: Option<&Path>) -> Result<Self> {
        for (program, package) in
            [("cc", "gcc libc6-dev"), ("bwrap", "bubblewrap"), ("taskset", "util-linux")]
        {
            if find(program).is_none() {
                bail!("`{program}` is missing; as root: apt-get install {package}");
            }
        }
        let built = binary.map_or_else(agentsh, |given| Ok(given.to_owned()))?;
        // Linked as agentsh itself is: a sandbox re-executes the program that makes it, here the measuring one.
        let measuring = ["rustc", "--release", "--locked", "-p", "agentsh", "--example", "bench"];
        succeed(cargo(measuring).args(["--", "-C", "target-feature=+crt-static"]))?;
        let root = target().join("bench");
        let _ = std::fs::remove_dir_all(&root);
        let (home, project) = (root.join("home"), root.join("project"));
        for directory in [&home, &project] {
            std::fs::create_dir_all(directory)?;
        }
        let place = Self {
            agentsh: root.join("agentsh"),
            bench: project.join("bench"),
            nothing: project.join("true"),
            home,
            project,
        };
        let copy = |from: &Path, to: &Path| {
            std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))
        };
        copy(&built, &place.agentsh)?;
        // A binary that was given may have its servers inside.
        let server = built.with_file_name("agentsh-server");
        if server.exists() {
            copy(&server, &place.agentsh.with_file_name("agentsh-server"))?;
        }
        copy(&target().join("release/examples/bench"), &place.bench)?;
        let source = place.project.join("true.c");
        std::fs::write(&source, "int main(void) { return 0; }\n")?;
        succeed(Command::new("cc").args(["-static", "-O2", "-o"]).arg(&place.nothing).arg(source))?;
        for (file, ids) in [("proxy.json", &["e"][..]), ("two.json", &["e", "n"])] {
            let server = |id: &&str| json!({"id": id, "command": place.bench, "args": ["echo"]});
            let servers = json!({"servers": ids.iter().map(server).collect::<Vec<_>>()});
            std::fs::write(place.home.join(file), servers.to_string())?;
        }
        place.configuration(1, "one.json")?;
        place.configuration(3, "three.json")?;
        Ok(place)
    }

    /// A program in the project, with the home of the benchmarks.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.project).env_clear().env("HOME", &self.home).env("PATH", "/usr/bin:/bin");
        command
    }

    /// The last line of what the programs of the benchmark say.
    pub fn measure<W: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Result<Value> {
        let output = succeed(self.command(&self.bench).args(words))?;
        serde_json::from_str(output.lines().last().unwrap_or_default()).with_context(|| output.clone())
    }

    /// Servers for the client, and the policy that makes agentsh put bridges into that file.
    fn configuration(&self, servers: usize, file: &str) -> Result<()> {
        let entry = json!({"command": self.bench, "args": ["echo"]});
        let names = (0..servers).map(|number| (format!("echo{number}"), entry.clone()));
        let config = json!({"mcpServers": names.collect::<serde_json::Map<_, _>>()});
        std::fs::write(self.home.join(file), config.to_string())?;
        let policy = format!("version: 1\nagent: {{mcp_config: {}}}\n", self.home.join(file).display());
        std::fs::write(self.home.join(file).with_extension("yaml"), policy)?;
        Ok(())
    }

    /// The client under `agentsh run`, with its servers behind bridges.
    pub fn bridged(&self, file: &str) -> Vec<String> {
        let file = self.home.join(file);
        let policy = file.with_extension("yaml");
        let words = [
            self.agentsh.as_path(),
            Path::new("run"),
            Path::new("--quiet"),
            Path::new("--policy"),
            &policy,
            Path::new("--"),
            &self.bench,
            Path::new("client"),
            Path::new("--config"),
            &file,
        ];
        words.into_iter().map(|word| word.display().to_string()).collect()
    }

    /// The client with one server, directly.
    pub fn direct(&self) -> Vec<String> {
        let bench = self.bench.display().to_string();
        vec![bench.clone(), "client".to_owned(), bench, "echo".to_owned()]
    }

    /// The client with the servers of a file behind `agentsh proxy`: one (`proxy.json`), or a second one as well that
    /// only says something (`two.json`).
    pub fn aggregated(&self, file: &str) -> Vec<String> {
        let (bench, agentsh) = (self.bench.display().to_string(), self.agentsh.display().to_string());
        let file = self.home.join(file).display().to_string();
        [vec![bench, "client".to_owned(), agentsh], ["proxy", "--config", &file].map(str::to_owned).to_vec()]
            .concat()
    }

    /// The client with one server behind `agentsh mcp run`.
    pub fn proxied(&self) -> Vec<String> {
        let bench = self.bench.display().to_string();
        let agentsh = self.agentsh.display().to_string();
        let rest = ["mcp", "run", "--id", "echo", "--", &bench, "echo"].map(str::to_owned);
        [vec![bench.clone(), "client".to_owned(), agentsh], rest.to_vec()].concat()
    }
}
