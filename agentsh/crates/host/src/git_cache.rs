//! A cache of git's settings, valid while the files that git reads are unchanged. Without it every run would start git
//! several times.
//!
//! Harmless settings are kept with their values; of others only the place where they are set, never a secret. An answer is valid as
//! long as the program and every file that it reads are unchanged, and files that were missing are still missing.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::context::Context;
use super::git_settings::{Scope, Setting, Settings, is_harmless, named_file};
use agentsh_base::small_file;
use agentsh_base::types::FileKey;
use agentsh_sandbox::host::RealHost;
use agentsh_sandbox::layout::is_system;

const MAX_BYTES: u64 = 1 << 20;

/// The answers of one git.
pub struct GitCache<'a> {
    file: PathBuf,
    program: &'a Path,
    host: &'a RealHost,
    /// `HOME` and `XDG_CONFIG_HOME`.
    home: String,
    config: String,
    /// Only of a program that comes with the system: another one may start whichever git it likes. Never where the environment
    /// speaks to git, which may say a secret.
    may_be_kept: bool,
}

#[derive(Serialize, Deserialize)]
struct CachedAnswer {
    surroundings: String,
    read: Vec<(PathBuf, Option<FileKey>)>,
    said: Settings,
}

impl<'a> GitCache<'a> {
    #[must_use]
    pub fn of(context: &'a Context, program: &'a Path) -> Self {
        let env = &context.env;
        let name = hex(program.as_os_str().as_encoded_bytes());
        let of_env = |name: &str| env.get(name).cloned().unwrap_or_default();
        Self {
            file: context.state.join("git").join(name),
            program,
            host: &context.host,
            home: of_env("HOME"),
            config: of_env("XDG_CONFIG_HOME"),
            may_be_kept: is_system(program) && !env.keys().any(|name| name.starts_with("GIT_CONFIG")),
        }
    }

    /// The last answer, where it would be the same now.
    #[must_use]
    pub fn cached_settings(&self) -> Option<Settings> {
        let text = self.may_be_kept.then(|| small_file::read(&self.file, MAX_BYTES).ok()).flatten()??;
        let kept: CachedAnswer = serde_json::from_slice(&text).ok()?;
        let is_same = kept.surroundings == self.environment_key()
            && kept.read.first().is_some_and(|(program, _)| program == self.program)
            && kept.read.iter().all(|(path, key)| match self.host.is_missing(path) {
                true => key.is_none(),
                false => file_key(path).is_some_and(|now| now == *key),
            });
        is_same.then_some(kept.said)
    }

    /// Keeps an answer. `variable` says which files one of git's variables names. Without it git is asked again.
    pub fn keep(&self, said: &[(Scope, Setting)], variable: impl Fn(&str) -> Option<Vec<PathBuf>>) {
        if !self.may_be_kept || !is_binary(self.program) {
            return;
        }
        let named = variable("GIT_CONFIG_SYSTEM").zip(variable("GIT_CONFIG_GLOBAL"));
        let named =
            named.map(|(system, global)| [system, global].concat()).or_else(|| self.of_distribution());
        let Some(named) = named else { return };
        let paths: Vec<PathBuf> = std::iter::once(self.program.to_owned()).chain(named).collect();
        let named = |scope: &Scope| match scope {
            Scope::File(file) => paths.contains(file),
            Scope::Environment => false,
        };
        if !said.iter().all(|(scope, _)| named(scope)) {
            return;
        }
        let read: Option<Vec<_>> =
            paths.into_iter().map(|path| Some((path.clone(), file_key(&path)?))).collect();
        let now = SystemTime::now();
        let is_settled = |(_, key): &(PathBuf, Option<FileKey>)| key.is_none_or(|key| key.is_settled(now));
        let Some(read) = read.filter(|read| read.iter().all(is_settled)) else { return };
        let said = said.iter().map(|(scope, setting)| (scope.clone(), harmless(setting))).collect();
        let kept = CachedAnswer { surroundings: self.environment_key(), read, said };
        // Asked again, then.
        let _ = serde_json::to_vec(&kept)
            .map_err(Into::into)
            .and_then(|text| small_file::replace(&self.file, &text));
    }

    /// The files that git reads without reporting them, for the git of a distribution, which always has the same directories.
    fn of_distribution(&self) -> Option<Vec<PathBuf>> {
        let is_it = self.program.parent().is_some_and(|directory| directory == Path::new("/usr/bin"));
        let home = Path::new(&self.home);
        let config = Some(Path::new(&self.config)).filter(|path| path.is_absolute());
        let config = config.map_or_else(|| home.join(".config"), Path::to_owned);
        let files = [PathBuf::from("/etc/gitconfig"), config.join("git/config"), home.join(".gitconfig")];
        (is_it && home.is_absolute()).then(|| files.into())
    }

    fn environment_key(&self) -> String {
        [self.home.as_str(), &self.config].join("\0")
    }
}

/// For a setting that is not copied, only the location is kept.
fn harmless(setting: &Setting) -> Setting {
    let is_include = matches!(setting.section.as_str(), "include" | "includeif") && setting.key == "path";
    if is_include || named_file(setting).is_some() || is_harmless(setting) {
        return setting.clone();
    }
    Setting { section: String::new(), subsection: None, key: String::new(), value: None }
}

/// The identity of what is at a path, links followed; inner None: nothing. None: it cannot be determined.
fn file_key(path: &Path) -> Option<Option<FileKey>> {
    match path.metadata() {
        Ok(found) => Some(Some(FileKey::from(&found))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

/// A script may start any other git.
fn is_binary(program: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(program).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

fn hex(bytes: &[u8]) -> String {
    agentsh_base::hex(Sha256::digest(bytes).iter().take(16))
}
