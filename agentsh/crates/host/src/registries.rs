//! Package registries for the project's dependencies: only GET, with inspection.
//!
//! The lock files of the project say which ecosystems it uses. They do not decide which hosts are opened, since a file of the
//! project could name any: hosts come from the user's own configuration, or else from the defaults of the installed tools.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use url::Url;

use agentsh_base::small_file;
use agentsh_base::types::RuleRef;
use agentsh_policy::{HostRule, NetworkPolicy, NetworkRule, Precedence, RequestRule, Ruled, domain};
use agentsh_sandbox::host::{Host, PathKind};
use agentsh_sandbox::spec::{Contribution, Feature};

use crate::project_sources::ApprovedSources;
use crate::users_networks::users_networks;
use crate::{Context, apt, go_modules, host_programs, registry_settings};

/// Maximum size of one configuration file.
const MAX_BYTES: u64 = 1 << 20;
/// Variables that name registries.
pub(crate) const NPM_VARIABLES: &[&str] = &["npm_config_registry", "NPM_CONFIG_REGISTRY", "YARN_REGISTRY"];
pub(crate) const PYTHON_VARIABLES: &[&str] =
    &["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"];

/// Requests that only read.
const READ_ONLY_REQUESTS: [&str; 2] = ["GET /**", "HEAD /**"];

/// Questions that a registry takes by POST, and that change nothing there: which versions have known faults.
const READ_ONLY_POSTS: [(&str, &str); 3] = [
    ("npm", "POST /**/-/npm/v1/security/advisories/bulk"),
    ("npm", "POST /**/-/npm/v1/security/audits"),
    ("npm", "POST /**/-/npm/v1/security/audits/quick"),
];

/// A way of packaging, and what in a project shows that it is used.
struct Ecosystem {
    id: &'static str,
    files: &'static [&'static str],
    hosts: fn(&Context) -> Vec<RegistryAddress>,
}

/// The address of a registry, and the file or variable that names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistryAddress {
    pub url: String,
    pub said_by: String,
}

const ECOSYSTEMS: &[Ecosystem] = &[
    Ecosystem {
        id: "npm",
        files: &[
            "package.json",
            "package-lock.json",
            "npm-shrinkwrap.json",
            "yarn.lock",
            "pnpm-lock.yaml",
            "bun.lock",
            "bun.lockb",
            "deno.lock",
        ],
        hosts: npm,
    },
    Ecosystem { id: "cargo", files: &["Cargo.toml", "Cargo.lock"], hosts: cargo },
    Ecosystem {
        id: "python",
        files: &[
            "pyproject.toml",
            "uv.lock",
            "poetry.lock",
            "pdm.lock",
            "Pipfile.lock",
            "requirements.txt",
            "requirements-dev.txt",
            "setup.py",
            "tox.ini",
        ],
        hosts: python,
    },
    Ecosystem { id: "go", files: &["go.mod", "go.sum", "go.work"], hosts: go },
    Ecosystem { id: "ruby", files: &["Gemfile", "Gemfile.lock"], hosts: ruby },
    Ecosystem {
        id: "maven",
        files: &["pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"],
        hosts: maven,
    },
    Ecosystem { id: "debian", files: &["debian/control"], hosts: |_| debian() },
];

/// The registries of the project's ecosystems, and the built-in ones of tools without a configuration (`first_index` of the
/// session).
#[must_use]
pub fn contribution(
    context: &Context,
    first: &[RegistryAddress],
    known_sources: &ApprovedSources,
) -> Contribution {
    let mut part = Contribution::new(Feature::Registries);
    // Without them a name of the user's own registry would be looked up in another one.
    part.files = registry_settings::files(context);
    part.environment = registry_settings::variables(context);
    let mut known = BTreeSet::new();
    // Read once: a look for each name costs more.
    let directories = BTreeSet::from([&context.project, &context.directory]);
    let files: BTreeSet<PathBuf> =
        directories.into_iter().flat_map(|directory| files_in(context, directory)).collect();
    for ecosystem in ECOSYSTEMS {
        if !ecosystem.files.iter().any(|file| files.contains(Path::new(file))) {
            continue;
        }
        let built_in = first.iter().filter(|_| ecosystem.id == "cargo").cloned();
        for found in (ecosystem.hosts)(context).into_iter().chain(built_in) {
            let rule = RuleRef { id: format!("registry of {}", ecosystem.id), file: found.said_by, line: 0 };
            if let Some(mut value) = reading(&found.url, &rule)
                && known.insert(value.host.to_string() + &format!("{:?}", value.ports))
            {
                if ecosystem.id == "go" {
                    value.requests = go_modules::requests(context, &found.url, known_sources)
                        .into_iter()
                        .map(|value| Ruled { value, rule: rule.clone() })
                        .collect();
                }
                let asking = READ_ONLY_POSTS.iter().filter(|(id, _)| *id == ecosystem.id);
                let asking = asking.filter_map(|(_, text)| RequestRule::parse(text).ok());
                value.requests.extend(asking.map(|value| Ruled { value, rule: rule.clone() }));
                part.hosts.push(HostRule { rule: Ruled { value, rule }, precedence: Precedence::Last });
            }
        }
    }
    part
}

/// The names of the files in a directory and in its `debian`, as they are in [`ECOSYSTEMS`].
fn files_in(context: &Context, directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (at, below) in [(directory.to_owned(), ""), (directory.join("debian"), "debian")] {
        let listed =
            Some(&at).filter(|at| !context.host.is_missing(at)).and_then(|at| context.host.listing(at));
        let names = listed.iter().flat_map(|listed| &listed.names);
        files.extend(
            names
                .filter(|(_, kind)| *kind != PathKind::Directory)
                .map(|(name, _)| Path::new(below).join(name)),
        );
    }
    files
}

/// Whether the project fetches with programs of Java, which trust authorities of their own.
#[must_use]
pub fn uses_java(rules: &NetworkPolicy) -> bool {
    rules.allow.iter().any(|rule| rule.rule.id == "registry of maven")
}

fn debian() -> Vec<RegistryAddress> {
    apt::archives(read).into_iter().map(|(url, said_by)| RegistryAddress { url, said_by }).collect()
}

/// A rule that allows reading a registry.
fn reading(address: &str, rule: &RuleRef) -> Option<NetworkRule> {
    let url = Url::parse(address.strip_prefix("sparse+").unwrap_or(address)).ok()?;
    if !matches!(url.scheme(), "https" | "http") {
        return None;
    }
    let pattern = domain::parse_pattern(url.host_str()?).ok()?;
    let mut value = NetworkRule::plain(pattern, vec![url.port_or_known_default()?]);
    value.inspect = true;
    let requests = READ_ONLY_REQUESTS.iter().filter_map(|text| RequestRule::parse(text).ok());
    value.requests = requests.map(|value| Ruled { value, rule: rule.clone() }).collect();
    value.addresses = users_networks(rule);
    Some(value)
}

/// The user's own configuration first: `registry=` and `@scope:registry=`. Without a `registry` what npm has built in.
fn npm(context: &Context) -> Vec<RegistryAddress> {
    let mut found = variables(context, NPM_VARIABLES);
    let mut has_default = !found.is_empty();
    let files = [context.home.join(".npmrc"), "/etc/npmrc".into(), "/usr/etc/npmrc".into()];
    for file in files.into_iter().filter(|file| !context.host.is_missing(file)) {
        for line in read(&file).lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            let key = key.trim();
            if key == "registry" || key.starts_with('@') && key.ends_with(":registry") {
                has_default |= key == "registry";
                found.push(RegistryAddress { url: unquote(value), said_by: file.display().to_string() });
            }
        }
    }
    let definitions = "node_modules/@npmcli/config/lib/definitions/definitions.js";
    if !has_default
        && let Some(package) = host_programs::find(context, "npm").and_then(|npm| find_above(&npm, "npm"))
    {
        let file = package.join(definitions);
        let text = read(&file);
        let default = text.split("('registry', {").nth(1).and_then(|rest| rest.split("default:").nth(1));
        found.extend(
            default
                .and_then(next_string)
                .map(|url| RegistryAddress { url, said_by: file.display().to_string() }),
        );
    }
    found
}

/// Below which paths of a host (`NAME` or `NAME:PORT`) the user's npm has registries: it looks for a secret under the very path.
#[must_use]
pub fn npm_paths(context: &Context, place: &str) -> BTreeSet<String> {
    let is_there = |url: &Url| match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => place == format!("{host}:{port}"),
        (Some(host), None) => place == host,
        _ => false,
    };
    let found = npm(context).into_iter().filter_map(|found| Url::parse(&found.url).ok());
    let paths = found.filter(is_there).map(|url| url.path().trim_matches('/').to_owned());
    // A value must not begin another setting in a line of the file.
    let is_plain = |path: &String| !path.is_empty() && !path.contains(['=', ';', '#', '$', '%']);
    paths.filter(is_plain).collect()
}

/// The hosts of the user's npm registries.
#[must_use]
pub fn npm_hosts(context: &Context) -> Vec<String> {
    let urls = npm(context).into_iter().filter_map(|found| Url::parse(&found.url).ok());
    urls.filter_map(|url| url.host_str().map(str::to_owned)).collect()
}

/// Whether the project uses cargo, and the user's cargo knows no registry yet.
#[must_use]
pub fn cargo_is_new(context: &Context) -> bool {
    let directories = BTreeSet::from([&context.project, &context.directory]);
    let is_file = |file: PathBuf| !context.host.is_missing(&file) && file.is_file();
    let is_used = |file: &&str| directories.iter().any(|directory| is_file(directory.join(file)));
    let files = ECOSYSTEMS.iter().find(|ecosystem| ecosystem.id == "cargo").map_or(&[][..], |one| one.files);
    files.iter().any(is_used) && cargo(context).is_empty()
}

/// Every registry that the user's cargo has an index of, and where its packages are.
fn cargo(context: &Context) -> Vec<RegistryAddress> {
    let home = context.env.get("CARGO_HOME").map_or_else(|| context.home.join(".cargo"), PathBuf::from);
    let mut found = Vec::new();
    for config in ["config.toml", "config"].map(|name| home.join(name)) {
        let Ok(table) = read(&config).parse::<toml::Table>() else { continue };
        for section in ["registries", "source"] {
            let entries = table.get(section).and_then(toml::Value::as_table);
            for entry in entries.into_iter().flat_map(|table| table.values()) {
                let address = entry.get("index").or_else(|| entry.get("registry"));
                let address = address.and_then(toml::Value::as_str);
                found.extend(address.map(|url| RegistryAddress {
                    url: url.to_owned(),
                    said_by: config.display().to_string(),
                }));
            }
        }
    }
    let indices = std::fs::read_dir(home.join("registry/index"));
    for index in indices.into_iter().flatten().flatten() {
        let name = index.file_name().to_string_lossy().into_owned();
        // `HOST-HASH`
        let Some((host, _)) = name.rsplit_once('-') else { continue };
        let file = index.path().join("config.json");
        let said_by = file.display().to_string();
        found.push(RegistryAddress { url: format!("https://{host}/"), said_by: said_by.clone() });
        let config = serde_json::from_str::<serde_json::Value>(&read(&file)).unwrap_or_default();
        let packages = config.get("dl").and_then(serde_json::Value::as_str);
        found.extend(packages.map(|url| RegistryAddress { url: url.to_owned(), said_by }));
    }
    found
}

/// `index-url` of pip and uv, else what pip has built in.
fn python(context: &Context) -> Vec<RegistryAddress> {
    let mut found = variables(context, PYTHON_VARIABLES);
    let files = [
        context.config.join("pip/pip.conf"),
        context.home.join(".pip/pip.conf"),
        "/etc/pip.conf".into(),
        context.config.join("uv/uv.toml"),
        "/etc/uv/uv.toml".into(),
    ];
    for file in files {
        for line in read(&file).lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            if ["index-url", "extra-index-url", "index_url", "extra_index_url", "url"].contains(&key.trim()) {
                found.push(RegistryAddress { url: unquote(value), said_by: file.display().to_string() });
            }
        }
    }
    let has_default = found.iter().any(|found| !found.url.is_empty());
    if !has_default && let Some(file) = pip(context) {
        // PackageIndex("https://…/", file_storage_domain="…")
        let text = read(&file);
        let default = text.split("PackageIndex(").find(|rest| rest.trim_start().starts_with(['"', '\'']));
        let said_by = file.display().to_string();
        let domain = default.and_then(|rest| rest.split("file_storage_domain=").nth(1)).and_then(next_string);
        found.extend(
            default.and_then(next_string).map(|url| RegistryAddress { url, said_by: said_by.clone() }),
        );
        found.extend(domain.map(|domain| RegistryAddress { url: format!("https://{domain}/"), said_by }));
    }
    found
}

/// pip's own list of indices, in an installation of the machine or the user.
fn pip(context: &Context) -> Option<PathBuf> {
    let mut roots: Vec<PathBuf> = ["/usr/lib", "/usr/local/lib"].map(PathBuf::from).into();
    roots.push(context.home.join(".local/lib"));
    let versions = context.env.get("PYENV_ROOT").map_or_else(|| context.home.join(".pyenv"), PathBuf::from);
    roots.extend(directories(&versions.join("versions")).into_iter().map(|version| version.join("lib")));
    roots.extend(
        directories(&context.home.join(".local/share/uv/python")).into_iter().map(|one| one.join("lib")),
    );
    let pythons = roots.iter().flat_map(|root| directories(root));
    let packages = pythons
        .filter(|python| python.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")))
        .flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    packages.map(|packages| packages.join("pip/_internal/models/index.py")).find(|file| file.is_file())
}

/// `GOPROXY`, else what the installed Go has built in.
fn go(context: &Context) -> Vec<RegistryAddress> {
    let listed = |text: &str, said_by: &str| -> Vec<RegistryAddress> {
        let addresses = text.split([',', '|']).filter(|address| address.contains("://"));
        addresses
            .map(|url| RegistryAddress { url: url.trim().to_owned(), said_by: said_by.to_owned() })
            .collect()
    };
    let mut found = Vec::new();
    for variable in ["GOPROXY", "GOSUMDB"] {
        let value = context.env.get(variable).map(String::as_str).unwrap_or_default();
        found.extend(listed(value, &format!("the variable {variable}")));
    }
    let mut files = vec![context.config.join("go/env")];
    let root = context.env.get("GOROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(host_programs::find(context, "go")?.parent()?.parent()?.to_owned()));
    files.extend(root.map(|root| root.join("go.env")));
    for file in files {
        for line in read(&file).lines() {
            match line.split_once('=') {
                Some(("GOPROXY", value)) => found.extend(listed(value, &file.display().to_string())),
                Some(("GOSUMDB", name)) if !name.contains("://") && name.contains('.') => {
                    let url = format!("https://{}/", name.trim());
                    found.push(RegistryAddress { url, said_by: file.display().to_string() });
                }
                _ => {}
            }
        }
    }
    found
}

/// `:sources:` of the user's gem configuration, and bundler's mirrors.
fn ruby(context: &Context) -> Vec<RegistryAddress> {
    let mut found = Vec::new();
    for file in [context.home.join(".gemrc"), "/etc/gemrc".into(), context.home.join(".bundle/config")] {
        for word in read(&file).split_whitespace() {
            let url = unquote(word.trim_start_matches('-'));
            if url.starts_with("https://") {
                found.push(RegistryAddress { url, said_by: file.display().to_string() });
            }
        }
    }
    if found.is_empty() {
        let versions = directories(Path::new("/usr/lib/ruby"));
        let file =
            versions.into_iter().map(|version| version.join("rubygems.rb")).find(|file| file.is_file());
        let text = file.as_deref().map(read).unwrap_or_default();
        let default = text.split("DEFAULT_HOST").nth(1).and_then(next_string);
        let said_by = file.map(|file| file.display().to_string()).unwrap_or_default();
        found.extend(default.map(|url| RegistryAddress { url, said_by }));
    }
    found
}

/// Mirrors and repositories of the user's settings, else what the installed Maven has built in.
fn maven(context: &Context) -> Vec<RegistryAddress> {
    let mut found = Vec::new();
    for file in [context.home.join(".m2/settings.xml"), "/etc/maven/settings.xml".into()] {
        let text = without_comments(&read(&file));
        // Proxies and servers have no address of this kind.
        for url in text.split("<url>").skip(1).filter_map(|rest| rest.split_once("</url>")) {
            found.push(RegistryAddress { url: url.0.trim().to_owned(), said_by: file.display().to_string() });
        }
    }
    if found.is_empty() {
        let home =
            host_programs::find(context, "mvn").and_then(|mvn| Some(mvn.parent()?.parent()?.to_owned()));
        found.extend(home.and_then(|home| super_pom(&home.join("lib"))));
    }
    found
}

/// The repository that is in every project's model.
fn super_pom(libraries: &Path) -> Option<RegistryAddress> {
    const MAX_JAR_BYTES: u64 = 4 << 20;
    const MODEL: &str = "org/apache/maven/model/pom-4.0.0.xml";
    let files = std::fs::read_dir(libraries).ok()?.flatten().map(|entry| entry.path());
    let is_builder = |file: &PathBuf| {
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("maven-model-builder"))
    };
    let jar = files.filter(is_builder).max()?;
    let bytes =
        (std::fs::metadata(&jar).ok()?.len() <= MAX_JAR_BYTES).then(|| std::fs::read(&jar).ok())??;
    let mut model = String::new();
    let take = |name: &str, content: &[u8]| {
        if name == MODEL {
            model = String::from_utf8_lossy(content).into_owned();
        }
        Ok(())
    };
    agentsh_advisories::archive::for_each_file(&bytes.as_slice(), 64 << 20, take).ok()?;
    let (url, _) = model.split_once("<url>")?.1.split_once("</url>")?;
    Some(RegistryAddress { url: url.to_owned(), said_by: jar.display().to_string() })
}

fn without_comments(xml: &str) -> String {
    let mut pieces = xml.split("<!--");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.filter_map(|piece| piece.split_once("-->")).fold(first, |text, (_, rest)| text + rest)
}

fn variables(context: &Context, names: &[&str]) -> Vec<RegistryAddress> {
    let values = names.iter().filter_map(|name| Some((name, context.env.get(*name)?)));
    values
        .flat_map(|(name, value)| {
            let said_by = format!("the variable {name}");
            value
                .split_whitespace()
                .map(move |url| RegistryAddress { url: url.to_owned(), said_by: said_by.clone() })
        })
        .collect()
}

/// The directory of this name above a file.
fn find_above(file: &Path, name: &str) -> Option<PathBuf> {
    file.ancestors().find(|above| above.ends_with(name) && above.is_dir()).map(Path::to_owned)
}

pub fn directories(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Empty if there is none, or if it is too large for a configuration.
pub(crate) fn read(file: &Path) -> String {
    small_file::text(file, MAX_BYTES).unwrap_or_default()
}

fn unquote(text: &str) -> String {
    text.trim().trim_matches(['"', '\'']).to_owned()
}

/// The next string in a source text.
fn next_string(text: &str) -> Option<String> {
    let start = text.find(['"', '\''])?;
    let quote = text.get(start..)?.chars().next()?;
    let rest = text.get(start + 1..)?;
    rest.split_once(quote).map(|(string, _)| string.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn registry_host_is_allowed_for_reading_only() {
        let rule = RuleRef { id: "r".to_owned(), file: "f".to_owned(), line: 0 };
        let value = reading("sparse+https://index.example/api/", &rule).unwrap();
        assert!(value.inspect && value.ports == [443] && value.requests.len() == 2);
        assert_eq!(reading("http://mirror.example:8081/x", &rule).unwrap().ports, [8081]);
        for other in ["file:///x", "git+https://h/x", "ssh://h/x", "direct", "https://", "off"] {
            assert_eq!(reading(other, &rule), None, "{other}");
        }
    }

    #[test]
    fn comments_in_registry_configurations_are_ignored() {
        assert_eq!(without_comments("a<!-- b -->c<!-- d"), "ac");
    }

    #[test]
    fn quoted_registry_strings_are_read() {
        assert_eq!(next_string(" 'https://a.example/', x").as_deref(), Some("https://a.example/"));
        assert_eq!(next_string("\"b\"").as_deref(), Some("b"));
        assert_eq!((next_string("none"), next_string("'open")), (None, None));
    }
}
