//! Reads one profile file. Every entry has a reason.

use std::collections::BTreeMap;

use super::diagnostic::{Diagnostic, Source};
use super::model::Ruled;
use super::profile::{ConfigPlace, Package, ProfileGrant, Registry, ServerProfile, State, What};
use super::reader::{Fields, Here, Reader};
use super::sections::{self, RawProcess};
use super::table::{Entries, Table};
use super::yaml::{self, Value};
use super::{read, resolve};
use crate::texts::texts;

const KEYS: &[&str] = texts! {
    "version" "package" "why" "network" "filesystem" "env_allow" "limits" "state" "from_configuration" "flow"
    "install_scripts" "tests"
};

/// Whether a file means to be a profile and not a policy.
pub fn is_profile(source: Source<'_>) -> bool {
    let Ok(tree) = yaml::parse(source) else { return false };
    matches!(&tree.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == "package"))
}

/// Reads what one file says. Every mistake that can be found in one go is reported.
pub fn read(source: Source<'_>) -> Result<ServerProfile, Vec<Diagnostic>> {
    let tree = yaml::parse(source).map_err(|problem| vec![*problem])?;
    let mut reader = Reader::new(source);
    // Its lists are all that its package gets.
    reader.is_bare = true;
    let mut profile = ServerProfile::default();
    if let Some(fields) = reader.fields(&Here::root(&tree), KEYS) {
        read::version(&mut reader, fields.find("version"));
        packages(&mut reader, &fields, &mut profile);
        profile.why = reason(&mut reader, &fields, &Here::root(&tree)).unwrap_or_default();
        let process = process(&mut reader, &fields, &mut profile.reasons);
        profile.process = resolve::profile_process(&process);
        profile.state = fields.find("state").and_then(|here| state(&mut reader, &here, &mut profile.reasons));
        let opened = reader.list(fields.find("from_configuration"), |reader, here| {
            opened(reader, here, &mut profile.reasons)
        });
        profile.opened = opened.map(|list| list.value).unwrap_or_default();
        (profile.source, profile.sink) = sections::flow(&mut reader, fields.find("flow"));
        if let Some(here) = fields.find("install_scripts")
            && let Some(scripts) = reader.fields(&here, &["do", "why"])
        {
            profile.install_scripts = reader.word(scripts.find("do"), &sections::SCRIPTS);
            keep_reason(&mut reader, &scripts, &here, &mut profile.reasons);
        }
        profile.tests = sections::tests(&mut reader, fields.find("tests"));
    }
    reader.finish()?;
    Ok(profile)
}

fn packages(reader: &mut Reader<'_>, fields: &Fields<'_>, profile: &mut ServerProfile) {
    let Some(here) = fields.find("package") else { return };
    let Some(registries) = reader.fields(&here, &["npm", "pypi"]) else { return };
    for (key, registry) in Registry::WORDS {
        let Some(here) = registries.find(key) else { continue };
        let one = |reader: &mut Reader<'_>, here: &Here<'_>| {
            let name = reader.text(here)?;
            let plain = |letter: char| letter.is_ascii_alphanumeric() || "@/-_.".contains(letter);
            if !name.chars().all(plain) || name.get(1..).is_some_and(|rest| rest.contains('@')) {
                let help = "write the package's name without a version; a profile applies to all versions";
                return reader.fault(here, "this is not the name of a package", help);
            }
            Some(Package::new(*registry, &name))
        };
        if matches!(here.node.value, Value::List(_)) {
            let list = reader.list(Some(here), one);
            profile.packages.extend(list.map(|list| list.value).unwrap_or_default());
        } else if let Some(package) = one(reader, &here) {
            profile.packages.push(reader.ruled(&here, package));
        }
    }
    if profile.packages.is_empty() {
        let help = "write `package: {npm: NAME}` or `package: {pypi: NAME}`";
        reader.problem(&here, "`package` is empty", help);
    }
}

fn process(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    reasons: &mut BTreeMap<String, String>,
) -> RawProcess {
    let mut process = RawProcess::default();
    if let Some(here) = fields.find("network")
        && let Some(network) = reader.fields(&here, &["allow", "loopback"])
    {
        let allow = reader.list(network.find("allow"), |reader, here| {
            let rule = sections::network_map(reader, here, &["host", "port", "ports", "protocol", "why"])?;
            let fields = reader.names(here)?;
            keep_reason(reader, &fields, here, reasons);
            Some(rule)
        });
        process.network.allow = allow.into();
        let loopback = reader.list(network.find("loopback"), |reader, here| {
            let fields = reader.fields(here, &["port", "why"])?;
            keep_reason(reader, &fields, here, reasons);
            let port = required(reader, &fields, "port", here)?;
            sections::port(reader, &port)
        });
        process.network.loopback = loopback.into();
    }
    if let Some(here) = fields.find("filesystem")
        && let Some(files) = reader.fields(&here, &["read", "write", "deny"])
    {
        process.filesystem.read = paths(reader, files.find("read"), sections::path_pattern, reasons);
        process.filesystem.write = paths(reader, files.find("write"), sections::writable_pattern, reasons);
        process.filesystem.deny = paths(reader, files.find("deny"), sections::denied_pattern, reasons);
    }
    process.env.allow = reader.list(fields.find("env_allow"), |reader, here| {
        let fields = reader.fields(here, &["name", "why"])?;
        keep_reason(reader, &fields, here, reasons);
        let name = required(reader, &fields, "name", here)?;
        sections::variable(reader, &name)
    });
    process.limits = Table::read_at(reader, fields.find("limits"));
    process
}

fn paths(
    reader: &mut Reader<'_>,
    here: Option<Here<'_>>,
    pattern: fn(&mut Reader<'_>, &Here<'_>) -> Option<String>,
    reasons: &mut BTreeMap<String, String>,
) -> Entries<String> {
    let list = reader.list(here, |reader, here| {
        let fields = reader.fields(here, &["path", "why"])?;
        keep_reason(reader, &fields, here, reasons);
        let path = required(reader, &fields, "path", here)?;
        pattern(reader, &path)
    });
    list.into()
}

fn state(
    reader: &mut Reader<'_>,
    here: &Here<'_>,
    reasons: &mut BTreeMap<String, String>,
) -> Option<Ruled<State>> {
    let fields = reader.fields(here, &["env", "why"])?;
    keep_reason(reader, &fields, here, reasons);
    let mut state = State::default();
    if let Some(env) = fields.find("env")
        && let Some(names) = reader.names(&env)
    {
        for (name, entry) in names.all() {
            let Some(file) = reader.any_text(&entry) else { continue };
            if file.contains('/') || file == ".." || file == "." {
                let help = "write `memory.json`, or `\"\"` for the directory itself";
                reader.problem(&entry, "this is not the name of a file in the state directory", help);
            }
            state.env.insert(name.to_owned(), file);
        }
    }
    Some(reader.ruled(here, state))
}

fn opened(
    reader: &mut Reader<'_>,
    here: &Here<'_>,
    reasons: &mut BTreeMap<String, String>,
) -> Option<ProfileGrant> {
    let fields = reader.fields(here, &["option", "env", "url", "opens", "port", "protocol", "why"])?;
    keep_reason(reader, &fields, here, reasons);
    let mut places = Vec::new();
    for (key, make) in [
        ("option", ConfigPlace::Option as fn(String) -> ConfigPlace),
        ("env", ConfigPlace::Env),
        ("url", ConfigPlace::Url),
    ] {
        if let Some(here) = fields.find(key) {
            places.push(make(reader.text(&here)?));
        }
    }
    let Some(from) = places.pop().filter(|_| places.is_empty()) else {
        let help = "write one of `option`, `env` and `url`";
        return reader.fault(here, "this entry does not say where the value is", help);
    };
    required(reader, &fields, "opens", here)?;
    let words = [
        ("directory", What::Directory),
        ("path", What::Path),
        ("host", What::Host { port: 0, any_tcp: false }),
    ];
    let kinds: Vec<(&str, usize)> = words.iter().enumerate().map(|(at, (word, _))| (*word, at)).collect();
    let kind = reader.word(fields.find("opens"), &kinds)?.value;
    let any_tcp = reader.word(fields.find("protocol"), &[("tcp", true)]).is_some_and(|word| word.value);
    let port = fields.find("port").and_then(|port| sections::port(reader, &port));
    let what = match (words.get(kind).map(|(_, what)| what.clone())?, port) {
        (What::Host { .. }, Some(port)) => What::Host { port, any_tcp },
        (What::Host { .. }, None) => {
            return reader.fault(here, "a host needs a port", "add `port:`, for values that name none");
        }
        (what, None) if !any_tcp => what,
        _ => {
            return reader.fault(here, "only a host has a port and a protocol", None);
        }
    };
    Some(ProfileGrant { from, what })
}

fn required<'n>(
    reader: &mut Reader<'_>,
    fields: &Fields<'n>,
    key: &str,
    here: &Here<'_>,
) -> Option<Here<'n>> {
    let found = fields.find(key);
    if found.is_none() {
        reader.problem(here, format!("`{key}` is missing"), None);
    }
    found
}

fn keep_reason(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    here: &Here<'_>,
    reasons: &mut BTreeMap<String, String>,
) {
    if let Some(text) = reason(reader, fields, here) {
        reasons.insert(here.path.clone(), text);
    }
}

fn reason(reader: &mut Reader<'_>, fields: &Fields<'_>, here: &Here<'_>) -> Option<String> {
    match fields.find("why") {
        Some(why) => reader.text(&why),
        None => reader.fault(
            here,
            "the reason is missing",
            "add `why:` with the reason, for readers of this profile",
        ),
    }
}
