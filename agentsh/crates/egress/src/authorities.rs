//! Certificate authorities that the user trusts in addition to the machine's: from variables and the configuration of
//! tools.
//!
//! A network with a private authority requires a setting in each tool. An authority named for one tool counts for all requests of
//! agentsh and for programs inside (decision 410). Files of a project are not read, because the user did not write them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Variables that name a file: OpenSSL, Node, Python's requests, curl, pip, git, Deno, AWS, cargo, Codex.
pub const VARIABLES: [&str; 10] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CODEX_CA_CERTIFICATE",
];

/// The places where distributions keep all certificate authorities in one file. The first that exists is used.
pub const SYSTEM_CA_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/cacert.pem",
];

/// Whether this machine has authorities: without them no server can prove its name to the session.
#[must_use]
pub fn can_prove(env: &BTreeMap<String, String>) -> bool {
    SYSTEM_CA_BUNDLES.iter().any(|bundle| Path::new(bundle).exists())
        || ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| env.contains_key(*name))
}

/// npm takes its settings from variables in either case.
const OF_NPM: [&str; 2] = ["NPM_CONFIG_CAFILE", "npm_config_cafile"];
/// Maximum size of a configuration, and of a file with certificates.
const MAX_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    /// PEM, in the configuration itself.
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAuthorities {
    /// A variable or a file.
    pub said_by: String,
    pub source: Source,
}

impl Source {
    /// # Errors
    /// When a file cannot be read, or is larger than any list of authorities.
    pub fn pem(&self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => read_bounded(path).map_err(|error| format!("{}: {error}", path.display())),
        }
    }
}

impl NamedAuthorities {
    /// # Errors
    /// When they cannot be read, with who names them.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let said = |why: String| format!("{}: {why}", self.said_by);
        let pem = self.source.pem().map_err(said)?;
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        certificates.map_err(|error| said(error.to_string()))
    }
}

/// The authorities that the user's variables and tool configurations name, in no order that matters. Files of
/// `project`, and those that are known to be missing, are not read.
#[must_use]
pub fn named_authorities(
    variable: &dyn Fn(&str) -> Option<String>,
    project: Option<&Path>,
    is_missing: &dyn Fn(&Path) -> bool,
) -> Vec<NamedAuthorities> {
    let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    // If the project contains the home, they cannot be distinguished.
    let project = project.filter(|project| !home.as_ref().is_some_and(|home| home.starts_with(project)));
    let is_of_project = |path: &Path| project.is_some_and(|project| path.starts_with(project));
    let mut found = Vec::new();
    for name in VARIABLES.iter().chain(&OF_NPM) {
        if let Some(path) = variable(name).map(PathBuf::from).filter(|path| path.is_absolute()) {
            found.push(NamedAuthorities {
                said_by: format!("the variable {name}"),
                source: Source::File(path),
            });
        }
    }
    for (tool, file) in configurations(variable, home.as_deref()) {
        // Variables may lead there, and whoever works in the project writes it.
        if is_of_project(&file) || is_missing(&file) {
            continue;
        }
        let Ok(text) = read_bounded(&file) else { continue };
        for value in tool.values(&text) {
            if let Some(source) = tool.source(&value, &file, home.as_deref()) {
                found.push(NamedAuthorities { said_by: file.display().to_string(), source });
            }
        }
    }
    found
}

/// The repository around the current directory, or that directory: the project, if nothing else names one.
#[must_use]
pub fn project_here() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let top = here.ancestors().find(|above| above.join(".git").exists()).unwrap_or(&here);
    Some(top.to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Npm,
    Pip,
    Git,
    Cargo,
}

/// The user's and the machine's configuration of each tool.
fn configurations(variable: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> Vec<(Tool, PathBuf)> {
    let said = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let at_home = |path: &str| home.map(|home| home.join(path));
    let config = said("XDG_CONFIG_HOME").or_else(|| at_home(".config"));
    let in_config = |path: &str| config.as_ref().map(|config| config.join(path));
    let machine = |path: &str| Some(PathBuf::from(path));
    let npm = said("NPM_CONFIG_USERCONFIG").or_else(|| said("npm_config_userconfig"));
    let (git, cargo) = (said("GIT_CONFIG_GLOBAL"), said("CARGO_HOME").or_else(|| at_home(".cargo")));
    let of_git = |path: Option<PathBuf>| if git.is_none() { path } else { None };
    let in_cargo = |path: &str| cargo.as_ref().map(|cargo| cargo.join(path));
    let all = [
        (Tool::Npm, npm.or_else(|| at_home(".npmrc"))),
        (Tool::Npm, machine("/etc/npmrc")),
        (Tool::Npm, machine("/usr/etc/npmrc")),
        (Tool::Npm, machine("/usr/local/etc/npmrc")),
        (Tool::Pip, in_config("pip/pip.conf")),
        (Tool::Pip, at_home(".pip/pip.conf")),
        (Tool::Pip, said("PIP_CONFIG_FILE")),
        (Tool::Pip, machine("/etc/pip.conf")),
        (Tool::Pip, machine("/etc/xdg/pip/pip.conf")),
        (Tool::Git, of_git(in_config("git/config"))),
        (Tool::Git, of_git(at_home(".gitconfig"))),
        (Tool::Git, git.clone()),
        (Tool::Git, machine("/etc/gitconfig")),
        (Tool::Cargo, in_cargo("config.toml")),
        (Tool::Cargo, in_cargo("config")),
    ];
    all.into_iter().filter_map(|(tool, file)| Some((tool, file?))).collect()
}

impl Tool {
    fn names(self, section: &str, key: &str) -> bool {
        match self {
            Self::Npm => section.is_empty() && matches!(key, "cafile" | "ca" | "ca[]"),
            Self::Pip => key == "cert",
            // An authority for a single address (`[http "https://…"]`) is trusted only there, which other tools cannot
            // express.
            Self::Git => section == "http" && key == "sslcainfo",
            Self::Cargo => section == "http" && key == "cainfo" || section.is_empty() && key == "http.cainfo",
        }
    }

    /// The four formats have the same lines where they say this: `[section]`, and `key = value`.
    fn values(self, text: &str) -> Vec<String> {
        let (mut found, mut section) = (Vec::new(), String::new());
        for line in text.lines() {
            let mut line = line.trim();
            if let Some((name, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                section = name.trim().to_ascii_lowercase();
                line = rest.trim();
            }
            if line.starts_with(['#', ';']) {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            if self.names(&section, &key.trim().to_ascii_lowercase()) {
                found.push(unquoted_value(value.trim()));
            }
        }
        found
    }

    fn source(self, value: &str, file: &Path, home: Option<&Path>) -> Option<Source> {
        if self == Self::Npm && value.contains("-----BEGIN CERTIFICATE-----") {
            return Some(Source::Text(value.replace("\\n", "\n")));
        }
        let path = match value.strip_prefix("~/") {
            Some(rest) => home?.join(rest),
            // From the directory that holds `.cargo`.
            None if self == Self::Cargo => file.parent()?.parent()?.join(value),
            None => PathBuf::from(value),
        };
        path.is_absolute().then_some(Source::File(path))
    }
}

/// The value without quotes, or without a comment after it.
fn unquoted_value(value: &str) -> String {
    if let Some(quote) = value.chars().next().filter(|first| ['"', '\''].contains(first)) {
        let rest = value.get(1..).unwrap_or_default();
        return rest.split(quote).next().unwrap_or_default().to_owned();
    }
    let end = [" #", " ;"].iter().filter_map(|mark| value.find(mark)).min().unwrap_or(value.len());
    value.get(..end).unwrap_or_default().trim_end().to_owned()
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let content = agentsh_base::small_file::read(path, MAX_BYTES)?;
    agentsh_base::users_files::note(path, "a certificate, or names one that agentsh trusts");
    let content =
        content.ok_or_else(|| std::io::Error::other("it is not a certificate file, or it is too large"))?;
    // Comments may be in any encoding.
    Ok(String::from_utf8_lossy(&content).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn of(tool: Tool, text: &str) -> Vec<Source> {
        let (file, home) = (Path::new("/home/u/.cargo/config.toml"), Path::new("/home/u"));
        tool.values(text).iter().filter_map(|value| tool.source(value, file, Some(home))).collect()
    }

    #[test]
    fn authorities_are_read_from_each_tools_configuration() {
        let file = |path: &str| vec![Source::File(path.into())];
        assert_eq!(of(Tool::Npm, "registry=x\ncafile = /a.pem\n"), file("/a.pem"));
        assert_eq!(of(Tool::Npm, "; cafile=/a.pem\ncafile=\"~/b c.pem\"\n"), file("/home/u/b c.pem"));
        let text = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----";
        let written = text.replace('\n', "\\n");
        assert_eq!(of(Tool::Npm, &format!("ca[]=\"{written}\"")), vec![Source::Text(text.to_owned())]);
        assert_eq!(of(Tool::Npm, "ca=null\n[own]\ncafile=/a.pem"), []);
        assert_eq!(of(Tool::Pip, "[global]\ncert = /a.pem\nclient-cert = /b"), file("/a.pem"));
        assert_eq!(of(Tool::Git, "[core]\nx=1\n[HTTP]\n\tsslCAInfo = ~/a.pem # mine"), file("/home/u/a.pem"));
        assert_eq!(of(Tool::Git, "[http] sslcainfo = \"/a.pem\""), file("/a.pem"));
        assert_eq!(of(Tool::Git, "[http \"https://one.example\"]\nsslCAInfo = /a.pem"), []);
        assert_eq!(of(Tool::Cargo, "[http]\ncainfo = \"/a.pem\" # x"), file("/a.pem"));
        assert_eq!(of(Tool::Cargo, "http.cainfo = 'ca.pem'"), file("/home/u/ca.pem"));
        assert_eq!(of(Tool::Cargo, "[source.x]\ncainfo = \"/a.pem\""), []);
    }

    #[test]
    fn authorities_of_user_variables_and_files_count() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path();
        std::fs::create_dir_all(home.join(".config/pip")).unwrap();
        std::fs::write(home.join(".config/pip/pip.conf"), "[global]\ncert = /pip.pem\n").unwrap();
        std::fs::create_dir(home.join("mine")).unwrap();
        std::fs::write(home.join("mine/own.npmrc"), "cafile=/npm.pem\n").unwrap();
        let own = home.join("mine/own.npmrc");
        let variable = |name: &str| match name {
            "HOME" => Some(home.display().to_string()),
            "NPM_CONFIG_USERCONFIG" => Some(own.display().to_string()),
            "REQUESTS_CA_BUNDLE" => Some("/requests.pem".to_owned()),
            "CURL_CA_BUNDLE" => Some("relative.pem".to_owned()),
            _ => None,
        };
        let of_project = super::named_authorities(&variable, Some(&home.join("mine")), &|_| false);
        assert!(
            !of_project.iter().any(|one| one.source == Source::File("/npm.pem".into())),
            "{of_project:?}"
        );
        let named = super::named_authorities(&variable, Some(home), &|_| false);
        for path in ["/pip.pem", "/npm.pem", "/requests.pem"] {
            assert!(named.iter().any(|one| one.source == Source::File(path.into())), "{path}: {named:?}");
        }
        assert!(!named.iter().any(|one| one.source == Source::File("relative.pem".into())), "{named:?}");
        assert!(named.iter().any(|one| one.said_by == "the variable REQUESTS_CA_BUNDLE"));
    }
}
