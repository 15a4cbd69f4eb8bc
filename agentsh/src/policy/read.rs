//! The tree to a [`RawPolicy`]: the top level, and what one process may touch.

use super::diagnostic::{Diagnostic, Source};
use super::model::{Limits, Ruled};
use super::path;
use super::raw::{RawPolicy, RawProcess};
use super::read_mcp;
use super::read_network;
use super::read_questions;
use super::reader::{Fields, Here, List, Reader};
use super::units;
use super::yaml::{self, Value};

/// Keys that an agent and a server have in common.
pub const PROCESS_KEYS: [&str; 9] = [
    "network",
    "filesystem",
    "limits",
    "exec",
    "env_allow",
    "env_deny",
    "allowed_env",
    "denied_env",
    "env_inherit",
];

/// `install_scripts`: whether what a package wants to run at its installation may run.
pub const SCRIPTS: [(&str, bool); 2] = [("allow", true), ("deny", false)];

/// Least memory with which a process tree can start at all.
const MIN_MEMORY: u64 = 1 << 20;

/// Reads one file. Every mistake that can be found in one go is reported.
pub fn read(source: Source<'_>) -> Result<RawPolicy, Vec<Diagnostic>> {
    let tree = yaml::parse(source).map_err(|problem| vec![*problem])?;
    let mut reader = Reader::new(source);
    let mut policy = RawPolicy::default();
    if let Some(fields) =
        reader.fields(&Here::root(&tree), &["version", "agent", "sandbox", "mcp_rules", "tests"])
    {
        version(&mut reader, fields.find("version"));
        if let Some(here) = fields.find("agent") {
            agent(&mut reader, &here, &mut policy);
        }
        if let Some(here) = fields.find("sandbox")
            && let Some(sandbox) = reader.fields(&here, &["mcp"])
            && let Some(here) = sandbox.find("mcp")
        {
            policy.mcp = read_mcp::section(&mut reader, &here);
        }
        if let Some(here) = fields.find("mcp_rules") {
            let rules = read_mcp::section(&mut reader, &here);
            read_mcp::merge(&mut reader, &mut policy.mcp, rules);
        }
        policy.tests = read_questions::tests(&mut reader, fields.find("tests"));
    }
    policy.warnings = reader.finish()?;
    Ok(policy)
}

/// The part of a process that stands directly among `fields`.
pub fn process(reader: &mut Reader<'_>, fields: &Fields<'_>) -> RawProcess {
    let mut process = RawProcess {
        env_allow: names(reader, fields, &["env_allow", "allowed_env"]),
        env_deny: names(reader, fields, &["env_deny", "denied_env"]),
        env_inherit: reader.word(fields.find("env_inherit"), &[("all", true), ("none", false)]),
        ..RawProcess::default()
    };
    if let Some(here) = fields.find("network") {
        read_network::section(reader, &here, &mut process);
    }
    if let Some(here) = fields.find("filesystem")
        && let Some(files) = reader.fields(&here, &["read", "write", "deny", "unmask"])
    {
        process.read = reader.list(files.find("read"), path_pattern);
        process.write = reader.list(files.find("write"), writable_pattern);
        process.deny = reader.list(files.find("deny"), denied_pattern);
        process.unmask = reader.list(files.find("unmask"), path_pattern);
    }
    if let Some(here) = fields.find("limits") {
        process.limits = limits(reader, &here);
    }
    if let Some(here) = fields.find("exec")
        && let Some(exec) = reader.fields(&here, &["allow"])
    {
        process.exec_allow = reader.list(exec.find("allow"), exec_pattern);
        if let Some(list) = process.exec_allow.as_ref().filter(|list| list.value.is_empty()) {
            let help =
                "name the programs, or remove the key to allow every program that can be seen".to_owned();
            reader.problem_of_rule(&list.rule, "an empty list would let nothing run", Some(help));
        }
    }
    process
}

pub fn limits(reader: &mut Reader<'_>, here: &Here<'_>) -> Limits {
    let Some(limits) = reader.fields(here, &["memory", "pids", "open_files", "cpu"]) else {
        return Limits::default();
    };
    Limits {
        memory: memory(reader, limits.find("memory")),
        pids: reader.number(limits.find("pids"), 1, 4_194_304),
        open_files: reader.number(limits.find("open_files"), 16, 1_048_576),
        cpu_percent: cpu(reader, limits.find("cpu")),
    }
}

pub fn version(reader: &mut Reader<'_>, here: Option<Here<'_>>) {
    let Some(here) = here else { return };
    match &here.node.value {
        Value::Integer(1) => {}
        Value::Integer(other) => {
            let help = "this agentsh reads `version: 1`".to_owned();
            reader.problem(&here, format!("version {other} is not known"), Some(help));
        }
        other => reader.wrong_type(&here, "the number 1", other),
    }
}

fn agent(reader: &mut Reader<'_>, here: &Here<'_>, policy: &mut RawPolicy) {
    let mut keys = PROCESS_KEYS.to_vec();
    keys.push("mcp_config");
    let Some(fields) = reader.fields(here, &keys) else { return };
    policy.agent = process(reader, &fields);
    if let Some(here) = fields.find("mcp_config")
        && let Some(text) = path_pattern(reader, &here)
    {
        if text.contains(['*', '?']) {
            reader.problem(&here, "this is one file, not a pattern", None);
        }
        policy.agent_mcp_config = Some(reader.ruled(&here, text));
    }
}

/// A list of names of variables under one of several spellings of its key.
fn names(reader: &mut Reader<'_>, fields: &Fields<'_>, spellings: &[&str]) -> List<String> {
    let found: Vec<Here<'_>> = spellings.iter().filter_map(|key| fields.find(key)).collect();
    if let [_, second, ..] = found.as_slice() {
        let help = format!("`{}` means the same; keep one of them", spellings.first().unwrap_or(&""));
        reader.problem(second, "this list stands here twice", Some(help));
    }
    reader.list(found.into_iter().next(), variable)
}

pub fn variable(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let name = reader.text(here)?;
    if name.contains('=') || name.contains(char::is_whitespace) {
        let help = "write the name alone; values stand in a server's `env:` map".to_owned();
        reader.problem(here, "this is not the name of a variable", Some(help));
        return None;
    }
    Some(name)
}

pub fn path_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = reader.text(here)?;
    match path::check(&text) {
        Ok(()) => Some(text),
        Err(why) => {
            reader.problem(here, why, None);
            None
        }
    }
}

/// What the home lacks cannot be covered: keys, programs and what starts with the next login would be anybody's.
pub fn writable_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = path_pattern(reader, here)?;
    if !path::is_whole_home(&text) {
        return Some(text);
    }
    let help = "name the directories in it that may change, such as `~/notes`".to_owned();
    reader.problem(
        here,
        format!("`{text}` holds the whole home directory, which is never writable"),
        Some(help),
    );
    None
}

/// A pattern that means less than it looks like would deny nothing.
pub fn denied_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = path_pattern(reader, here)?;
    let Some(sign) = text.chars().find(|sign| matches!(sign, '[' | ']' | '{' | '}')) else {
        return Some(text);
    };
    let help = "write one line for each, with `*`, `?` and `**`; a `?` stands for such a sign in a name too"
        .to_owned();
    reader.problem(
        here,
        format!("`{sign}` is no wildcard here, so that this would deny next to nothing"),
        Some(help),
    );
    None
}

fn exec_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = path_pattern(reader, here)?;
    if text.starts_with(['/', '~']) || text.starts_with("./") || text.starts_with("**") {
        return Some(text);
    }
    let help = format!("write `/usr/bin/{text}`, or `**/{text}` for that name anywhere");
    reader.problem(here, "a program is named by its absolute path", Some(help));
    None
}

fn memory(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Option<Ruled<u64>> {
    let here = here?;
    let value = match &here.node.value {
        Value::Integer(value) => u64::try_from(*value).ok(),
        Value::Text(text) => units::bytes(text),
        other => {
            reader.wrong_type(&here, "a size such as `512MiB`", other);
            return None;
        }
    };
    match value {
        Some(value) if value >= MIN_MEMORY => Some(reader.ruled(&here, value)),
        Some(value) => {
            reader.problem(&here, format!("{value} bytes are too little to start a program"), None);
            None
        }
        None => {
            let help = "write `4GiB`, `512MiB`, `1g` or plain bytes".to_owned();
            reader.problem(&here, "this is not a size", Some(help));
            None
        }
    }
}

fn cpu(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Option<Ruled<u64>> {
    let here = here?;
    let value = match &here.node.value {
        Value::Text(text) => units::percent(text),
        _ => None,
    };
    match value {
        Some(value) if (1..=102_400).contains(&value) => Some(reader.ruled(&here, value)),
        _ => {
            let help = "write a share of one processor: `200%` is two processors".to_owned();
            reader.problem(&here, "this is not a share of a processor", Some(help));
            None
        }
    }
}
