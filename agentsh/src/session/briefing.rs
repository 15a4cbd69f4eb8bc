//! Tells the agent in its own context what the sandbox allows, without a file in the project.

use std::fmt::Write as _;

use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_sandbox::spec::{Contribution, Feature, network_rules};
use agentsh_store::escape;

use super::project_sources::ApprovedSources;
use agentsh_broker::{credentials, ssh};
use agentsh_host::Facts;
use agentsh_host::{registries, remotes};

/// Limit of named hosts.
const MAX_HOSTS: usize = 12;
/// Limit of named directories of each kind.
const MAX_PATHS: usize = 8;

/// None if the policy switches the briefing off.
#[must_use]
pub fn text(facts: &Facts) -> Option<String> {
    if facts.policy.agent_only.tell_sandbox.as_ref().is_some_and(|tell| !tell.value) {
        return None;
    }
    let process = &facts.policy.agent;
    let project = escape::line(&facts.context.project.display().to_string()).into_owned();
    let names = |list: &[agentsh_policy::Ruled<String>]| {
        let names: Vec<String> = list
            .iter()
            .map(|entry| entry.value.as_str())
            .filter(|value| *value != "." && *value != "./**")
            .take(MAX_PATHS)
            .map(|value| escape::line(value).into_owned())
            .collect();
        if names.is_empty() { "nothing else".to_owned() } else { names.join(", ") }
    };
    let mut parts = vec![Contribution {
        hosts: credentials::hosts(&facts.policy.agent_only.credentials),
        ..Contribution::new(Feature::Credentials)
    }];
    parts.push(ssh::hosts(&facts.policy.agent_only.ssh));
    if !agentsh_host::facts::lists_programs(process) {
        let known = ApprovedSources::of(&facts.context);
        parts.extend([
            registries::contribution(&facts.context, &[], known),
            remotes::contribution(&facts.context, known),
        ]);
    }
    let rules = network_rules(&process.network, &parts);
    let mut hosts: Vec<String> = Vec::new();
    for rule in &rules.allow {
        let host = escape::line(&rule.value.to_string()).into_owned();
        if hosts.len() < MAX_HOSTS && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts.extend(rules.loopback.iter().take(MAX_HOSTS).map(|port| format!("localhost:{}", port.value)));
    let hosts = if hosts.is_empty() { "nothing else".to_owned() } else { hosts.join(", ") };
    let guarded = if facts.is_reviewed {
        "The project is a copy-on-write layer: everything in it can be written, and the user looks at it before it reaches \
         the real one (renaming a directory that was there before may fail with EXDEV: copy it instead)"
    } else {
        "Read-only in the project: git hooks and .git/config, and files that start programs outside (editor tasks, \
         .envrc, .mcp.json, agent settings)"
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "You run inside an agentsh sandbox.\n\
         - Files: the project is {project}. Writable: it, /tmp, and {}. Readable: the system, installed toolchains, and {}. \
         The home is private and mostly empty; what you leave there is gone afterwards.\n\
         - {guarded}.\n\
         - Network: your model, and {hosts}. Everything else is refused.\n\
         - EACCES, EPERM, EROFS, EBUSY or ENXIO on a file, ENOENT of a path in the home that should exist, or a refused connection is \
         the sandbox's policy, not a fault of the tool: do not retry or work around it. Ask \
         `{OWN_DIRECTORY}/agentsh why PATH|HOST|COMMAND`, which names the rule and the line that allows it, and tell \
         the user that line.\n\
         - From code, `{OWN_DIRECTORY}/agentsh call SERVER TOOL JSON` calls a tool of an MCP server.",
        names(&process.filesystem.write),
        names(&process.filesystem.read),
    );
    Some(text)
}
