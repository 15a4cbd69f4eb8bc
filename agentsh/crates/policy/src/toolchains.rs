//! Toolchains below the home: where they are, which files are credentials, what they cache. The tables are
//! `policies/toolchains/*.yaml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::texts::files;

/// One toolchain. Paths begin with `~/`, `/`, `$NAME` or `${NAME:-default}`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Toolchain {
    pub id: String,
    /// The target of PATH in it.
    pub why: String,
    /// The toolchain is installed if one of these exists.
    pub detect: Vec<String>,
    /// Or PATH leads to a program of this name, wherever it was installed.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Shown read-only, as far as they exist.
    #[serde(default)]
    pub read: Vec<String>,
    /// Credentials among them.
    #[serde(default)]
    pub hide: Vec<String>,
    /// Configurations among them: hidden where they hold a token.
    #[serde(default)]
    pub hide_tokens: Vec<String>,
    /// Directories of fetched and built files: inside, each is a private writable directory for each project.
    #[serde(default)]
    pub cache: Vec<String>,
    /// Variables that pass when they are set.
    #[serde(default)]
    pub env: Vec<String>,
    /// Variables that are set if they are missing.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

/// Every table; one that cannot be read is left out, which a test rules out.
#[must_use]
pub fn builtin() -> Vec<Toolchain> {
    FILES.iter().filter_map(|(_, text)| read(text).ok()).collect()
}

fn read(text: &str) -> Result<Toolchain, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// A path of a table with its variables filled in. None: a variable without a default is not set, or not to an
/// absolute path.
#[must_use]
pub fn expand(path: &str, home: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let set = |name: &str| env.get(name).filter(|value| value.starts_with('/')).cloned();
    if let Some(rest) = path.strip_prefix("${") {
        let (variable, rest) = rest.split_once('}')?;
        let (name, default) = variable.split_once(":-")?;
        let start = set(name).or_else(|| expand(default, home, env))?;
        return Some(start.trim_end_matches('/').to_owned() + rest);
    }
    if let Some(name) = path.strip_prefix('$') {
        return set(name);
    }
    match path.strip_prefix("~/") {
        Some(rest) => Some(format!("{home}/{rest}")),
        None => Some(path.to_owned()),
    }
}

const FILES: &[(&str, &str)] = files! { "toolchains/":
    "asdf" "browsers" "bun" "ccache" "conda" "corepack" "deno" "dotnet" "fnm" "gem" "ghcup" "go" "gradle"
    "java" "linuxbrew" "local-bin" "maven" "mise" "nix" "npm" "npm-global" "nvm" "opam" "pip" "pipx" "pnpm"
    "poetry" "pyenv" "rbenv" "rustup" "rvm" "sdkman" "uv" "virtualenv" "volta" "yarn" "zig-and-others"
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn toolchain_tables_are_read_and_have_reasons() {
        for (name, text) in FILES {
            let table = read(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(table.id, *name);
            assert!(table.why.len() > 10 && !table.detect.is_empty(), "{name}");
            let paths = [&table.detect, &table.read, &table.hide, &table.hide_tokens, &table.cache]
                .into_iter()
                .flatten();
            for path in paths {
                assert!(
                    path.starts_with("~/") || path.starts_with('/') || path.starts_with('$'),
                    "{name}: {path}"
                );
                assert!(!path.contains("..") && !path.ends_with('/') && path != "~", "{name}: {path}");
            }
            assert!(table.programs.iter().all(|program| !program.contains('/')), "{name}");
        }
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../policies/toolchains");
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), FILES.len());
    }

    #[test]
    fn toolchain_variables_are_expanded() {
        let env: BTreeMap<String, String> =
            [("A", "/a/"), ("B", "relative")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let expand = |path: &str| expand(path, "/home/u", &env);
        assert_eq!(expand("~/x").as_deref(), Some("/home/u/x"));
        assert_eq!(expand("/usr/bin").as_deref(), Some("/usr/bin"));
        assert_eq!(expand("${A:-~/x}/bin").as_deref(), Some("/a/bin"));
        assert_eq!(expand("${C:-~/x}/bin").as_deref(), Some("/home/u/x/bin"));
        assert_eq!(expand("${B:-~/x}").as_deref(), Some("/home/u/x"));
        assert_eq!(expand("$A").as_deref(), Some("/a/"));
        assert_eq!((expand("$B"), expand("$C")), (None, None));
    }
}
