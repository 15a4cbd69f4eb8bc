//! The modules that a Go proxy may be asked for: only those that `go.mod`, `go.sum` and `go.work` name. A proxy
//! fetches from the host in the name, so any other name would be a way to any host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use url::Url;

use super::Context;
use super::project_sources::ApprovedSources;
use agentsh_policy::RequestRule;
use agentsh_sandbox::host::Host;

/// The name of the kind in [`super::project_sources`].
pub const KIND: &str = "the Go module";
/// The file that names the project and its modules.
const FILE: &str = "go.mod";
/// Files of a project that name modules.
pub const FILES: [&str; 4] = [FILE, "go.work", "go.sum", "go.work.sum"];
/// Maximum size of one file.
const MAX_BYTES: u64 = 8 << 20;
/// Modules that are read; of more, the others are not asked for.
const MAX_MODULES: usize = 5_000;
/// The module that the go command fetches if `go.mod` requires a newer toolchain.
const TOOLCHAIN_MODULE: &str = "golang.org/toolchain";

/// Every module that the project's files name.
#[must_use]
pub fn named_modules(context: &Context) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut directories = BTreeSet::from([context.project.clone(), context.directory.clone()]);
    // Read once: a look for each name costs more.
    directories.iter().for_each(|directory| drop(context.host.listing(directory)));
    let read = |file: &Path| if context.host.is_missing(file) { String::new() } else { read(file) };
    for directory in directories.clone() {
        directories.extend(used_by(&read(&directory.join("go.work")), &directory));
    }
    for directory in directories {
        found.extend(of_go_mod(&read(&directory.join(FILE))));
        for list in ["go.sum", "go.work.sum"] {
            let text = read(&directory.join(list));
            found.extend(text.lines().filter_map(|line| module(line.split_whitespace().next()?)));
        }
    }
    found.into_iter().take(MAX_MODULES).collect()
}

/// The modules for [`super::project_sources`].
#[must_use]
pub fn named_sources(context: &Context) -> Vec<(&'static str, String)> {
    named_modules(context).into_iter().map(|module| (KIND, module)).collect()
}

/// The name that the project's `go.mod` gives to the project itself.
#[must_use]
pub fn own_name(context: &Context) -> String {
    let text = read(&context.project.join(FILE));
    let name = text.lines().find_map(|line| line.trim().strip_prefix("module ")).unwrap_or_default();
    name.split("//").next().unwrap_or_default().trim().to_owned()
}

/// The requests for those of them that are known, to a proxy or a checksum database at this address.
#[must_use]
pub fn requests(context: &Context, address: &str, known: &ApprovedSources) -> Vec<RequestRule> {
    let base = Url::parse(address).map(|url| url.path().trim_end_matches('/').to_owned()).unwrap_or_default();
    let modules = named_modules(context).into_iter().filter(|module| known.holds(KIND, module));
    let fixed = ["supported", "latest", "tile/**"].into_iter();
    let fixed = fixed.flat_map(|rest| [format!("GET {base}/sumdb/*/{rest}"), format!("GET {base}/{rest}")]);
    let of_module = |module: String| {
        let module = escape_upper_case(&module);
        [
            format!("GET {base}/{module}/@v/**"),
            format!("GET {base}/{module}/@latest"),
            format!("GET {base}/sumdb/*/lookup/{module}@*"),
            format!("GET {base}/lookup/{module}@*"),
        ]
    };
    let asked = modules.chain([TOOLCHAIN_MODULE.to_owned()]).flat_map(of_module);
    fixed.chain(asked).filter_map(|text| RequestRule::parse(&text).ok()).collect()
}

/// Directories of `use` in a `go.work`.
fn used_by(text: &str, directory: &Path) -> Vec<PathBuf> {
    words_of_directive(text, "use").into_iter().map(|path| directory.join(path)).collect()
}

/// Modules of `require` and the right sides of `replace` in a `go.mod`.
fn of_go_mod(text: &str) -> BTreeSet<String> {
    let required = words_of_directive(text, "require");
    let replaced = lines(text, "replace").into_iter().filter_map(|line| {
        line.split_once("=>").map(|(_, to)| to.split_whitespace().next().unwrap_or_default().to_owned())
    });
    required.into_iter().chain(replaced).filter_map(|word| module(&word)).collect()
}

/// The first word of each line of a directive.
fn words_of_directive(text: &str, directive: &str) -> Vec<String> {
    let first = |line: String| line.split_whitespace().next().map(|word| word.trim_matches('"').to_owned());
    lines(text, directive).into_iter().filter_map(first).collect()
}

/// The arguments of a directive, in a line of its own or in a block.
fn lines(text: &str, directive: &str) -> Vec<String> {
    let (mut found, mut in_block) = (Vec::new(), false);
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        match line.strip_prefix(directive).map(str::trim) {
            _ if in_block && line == ")" => in_block = false,
            _ if in_block => found.push(line.to_owned()),
            Some("(") => in_block = true,
            Some(rest) if line.len() > directive.len() && rest.len() < line.len() - directive.len() => {
                found.push(rest.to_owned());
            }
            _ => {}
        }
    }
    found
}

/// A module has a host in front, and is in no way that a rule or a server could read differently.
fn module(word: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let has_host = word.split('/').next().is_some_and(|host| host.contains('.') && !host.starts_with('.'));
    let is_whole = word.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    (has_host && is_whole && word.bytes().all(is_plain)).then(|| word.to_owned())
}

/// The spelling of upper case at proxies: `!a` for `A`.
fn escape_upper_case(module: &str) -> String {
    let spell = |letter: char| match letter.is_ascii_uppercase() {
        true => vec!['!', letter.to_ascii_lowercase()],
        false => vec![letter],
    };
    module.chars().flat_map(spell).collect()
}

fn read(file: &Path) -> String {
    use std::io::Read;
    let mut text = String::new();
    let found = std::fs::metadata(file).is_ok_and(|found| found.is_file());
    let opened = found.then(|| std::fs::File::open(file).ok()).flatten();
    let read = opened.map(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    if read.is_some_and(|read| read.is_ok()) { text } else { String::new() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn modules_of_go_mod() {
        let text = "module example.com/own // comment\ngo 1.22\nrequire example.com/one v1.0.0\nrequire (\n\texample.com/Two \
                    v2.0.0 // indirect\n\t../local v0\n)\nreplace example.com/one => example.com/fork v1.1.0\n\
                    replace example.com/x => ./here\n";
        let found: Vec<String> = of_go_mod(text).into_iter().collect();
        assert_eq!(found, ["example.com/Two", "example.com/fork", "example.com/one"]);
        assert_eq!(
            used_by("use (\n\t./a\n)\nuse ./b\n", Path::new("/w")),
            [Path::new("/w/./a"), Path::new("/w/./b")]
        );
    }

    #[test]
    fn malformed_module_path_is_refused_and_capitals_are_escaped() {
        for word in
            ["", "fmt", "a/b", "example.com/../x", "example.com//x", "example.com/a%2fb", ".example/x"]
        {
            assert_eq!(module(word), None, "{word}");
        }
        assert_eq!(escape_upper_case("github.com/BurntSushi/toml"), "github.com/!burnt!sushi/toml");
    }
}
