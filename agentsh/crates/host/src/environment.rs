//! The environment of one process: the additions of a server's configuration, and what a sandbox needs.

use std::collections::BTreeMap;
use std::ffi::OsString;

use agentsh_policy::{EnvPolicy, env};
use agentsh_sandbox::spec::EnvChange;

use super::Context;
use super::context::DEFAULT_PATH;

/// The `env` block of a server's own configuration. It names its variables one by one, which is as good as a listing when
/// the user wrote it; a block that came with the project may not say what programs load.
#[must_use]
pub fn declared_variables(
    block: &BTreeMap<String, String>,
    policy: &EnvPolicy,
    from_user: bool,
) -> Vec<EnvChange> {
    let listed = |name: &String| policy.allow.iter().any(|entry| entry.value == *name);
    let passes = |name: &String| from_user || listed(name) || !env::is_loader(name);
    let block = block.iter().filter(|(name, _)| passes(name));
    block.map(|(name, value)| EnvChange::Set(name.clone(), value.clone())).collect()
}

/// Variables whose values would point out of the sandbox get the sandbox's own.
#[must_use]
pub fn of_sandbox(context: &Context) -> Vec<EnvChange> {
    let text = |text: &str| text.to_owned();
    vec![
        EnvChange::Set(text("HOME"), context.home_as_given.display().to_string()),
        EnvChange::Replace(text("TMPDIR"), text("/tmp")),
        EnvChange::Default(text("PATH"), text(DEFAULT_PATH)),
        // Outside of a repository git would say that it stopped at a mount, which is one of the sandbox.
        EnvChange::Default(text("GIT_DISCOVERY_ACROSS_FILESYSTEM"), text("1")),
        // Byte code next to the sources would change a pinned tree.
        EnvChange::Default(text("PYTHONDONTWRITEBYTECODE"), text("1")),
    ]
}

/// Variables whose values are no text, by the same decision about their names.
#[must_use]
pub fn raw(policy: &EnvPolicy, context: &Context) -> Vec<OsString> {
    let passed = context.env_bytes.iter().filter(|(name, _)| policy.decide(name, "agent").pass);
    let assignment = |(name, value): (&String, &OsString)| {
        let mut assignment = OsString::from(format!("{name}="));
        assignment.push(value);
        assignment
    };
    passed.map(assignment).collect()
}
