//! The environment of one process: what the policy lets through, what the server's own configuration adds, and
//! what a sandbox needs. Values never leave this file except into the process.

use std::collections::BTreeMap;

use crate::policy::{EnvPolicy, env};
use crate::types::ServerId;

use super::Context;

/// Whose environment it is: where a rule that changes a decision would stand.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'a> {
    Agent,
    Server(&'a ServerId),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    pub passed: BTreeMap<String, String>,
    /// Names only.
    pub stripped: Vec<String>,
}

#[must_use]
pub fn filter(policy: &EnvPolicy, host: &BTreeMap<String, String>, asker: Asker<'_>) -> Filtered {
    let section = match asker {
        Asker::Agent => "agent".to_owned(),
        Asker::Server(id) => format!("sandbox.mcp.servers[{id}]"),
    };
    let mut filtered = Filtered::default();
    for (name, value) in host {
        if policy.decide(name, &section).pass {
            filtered.passed.insert(name.clone(), value.clone());
        } else {
            filtered.stripped.push(name.clone());
        }
    }
    filtered
}

/// Adds the `env` block of a server's own configuration. It names its variables one by one, which is as good as a
/// listing when the user wrote it; a block that came with the project may not say what programs load.
pub fn overlay(
    into: &mut BTreeMap<String, String>,
    block: &BTreeMap<String, String>,
    policy: &EnvPolicy,
    users_word: bool,
) {
    for (name, value) in block {
        let listed = policy.allow.iter().any(|entry| entry.value == *name);
        if users_word || listed || !env::is_loader(name) {
            into.insert(name.clone(), value.clone());
        }
    }
}

/// Variables whose values would point out of the sandbox get the sandbox's own.
pub fn settle(env: &mut BTreeMap<String, String>, context: &Context) {
    env.insert("HOME".to_owned(), context.home.display().to_string());
    if env.contains_key("TMPDIR") {
        env.insert("TMPDIR".to_owned(), "/tmp".to_owned());
    }
    env.entry("PATH".to_owned()).or_insert_with(|| "/usr/local/bin:/usr/bin:/bin".to_owned());
    // Byte code beside the sources would change a pinned tree, and cannot be written anyway.
    env.entry("PYTHONDONTWRITEBYTECODE".to_owned()).or_insert_with(|| "1".to_owned());
}
