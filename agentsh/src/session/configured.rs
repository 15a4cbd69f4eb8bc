//! The servers that an agent's configuration and the policy declare.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::context::Context;
use super::declared::{Declaration, Declared};
use super::run_error::RunError;
use super::{agreements, briefing, remote};
use agentsh_agents::{Kind, Launch, Transport};
use agentsh_base::types::ServerId;
use agentsh_host::Facts;
use agentsh_policy::Policy;
use agentsh_sandbox::layout::OWN_DIRECTORY;

/// Adapts this agent's start.
///
/// # Errors
/// When its configuration cannot be read.
pub fn adapt(facts: &Facts, kind: Kind, argv: &[String]) -> Result<Launch, RunError> {
    // There is no way to inform an unknown agent.
    let told = if kind.is_unknown() { None } else { briefing::text(facts) };
    adapt_by(&facts.context, &facts.policy, kind, argv, told.as_deref())
}

fn adapt_by(
    context: &Context,
    policy: &Policy,
    kind: Kind,
    argv: &[String],
    told: Option<&str>,
) -> Result<Launch, RunError> {
    let paths = context.paths();
    let config = policy.agent_only.mcp_config.as_ref();
    let config = config.map(|ruled| agentsh_policy::place::resolve(&ruled.value, &paths));
    config.iter().for_each(|file| agentsh_base::users_files::note(file, "the agent's list of servers"));
    let extra = policy_servers(policy);
    let agreed = agreements::load(&context.state);
    let bridge = format!("{OWN_DIRECTORY}/agentsh");
    let socket = format!("{OWN_DIRECTORY}/bridge");
    let mut launch = agentsh_agents::adapt(
        kind,
        &agentsh_agents::Context {
            argv,
            env: &context.env,
            home: &context.home,
            project: &context.project,
            cwd: &context.directory,
            bridge: &bridge,
            socket: &socket,
            inject_dir: Path::new(OWN_DIRECTORY),
            generic_config: config.as_deref(),
            extra: &extra,
            agreed: &agreed,
            told,
        },
    )?;
    refuse_borrowed_names(policy, &mut launch);
    Ok(launch)
}

/// Removes project servers from allow lists, which mean the user's servers of these names.
fn refuse_borrowed_names(policy: &Policy, launch: &mut Launch) {
    let is_borrowed = |id: &ServerId, origin: &agentsh_agents::Origin| {
        origin.scope == agentsh_agents::Scope::Project && !origin.agreed && policy.mcp.allows_by_name(id)
    };
    let servers = std::mem::take(&mut launch.servers);
    for (id, server) in servers {
        if is_borrowed(&id, &server.origin) {
            let file = &server.origin.file;
            let approve = agentsh_agents::agreement::command(file);
            let why = format!(
                "{}:{}: an allow list of your policy names it, and you have not approved this file; to approve: `{approve}`",
                file.display(),
                server.origin.line
            );
            launch.refused.push((id, why));
        } else {
            launch.servers.insert(id, server);
        }
    }
}

fn policy_servers(policy: &Policy) -> BTreeMap<ServerId, agentsh_agents::Declared> {
    let mut servers = BTreeMap::new();
    for (id, server) in &policy.mcp.servers {
        let transport = match (&server.command, &server.url) {
            (Some(command), _) => Transport::Stdio {
                command: command.clone(),
                args: server.args.clone(),
                env: server.env.clone(),
                cwd: None,
            },
            // Headers are filled in at the connection.
            (None, Some(url)) => Transport::Remote {
                url: url.value.clone(),
                headers: BTreeMap::new(),
                kind: agentsh_agents::RemoteKind::Http,
            },
            (None, None) => continue,
        };
        let origin = agentsh_agents::Origin {
            file: PathBuf::from(&server.rule.file),
            line: server.rule.line,
            nth: servers.len(),
            scope: agentsh_agents::Scope::Policy,
            agreed: false,
        };
        servers.insert(id.clone(), agentsh_agents::Declared { id: id.clone(), transport, origin });
    }
    servers
}

/// URLs of remote servers in any agent's configuration or the policy. Unreadable configurations are skipped.
#[must_use]
pub fn configured_urls(context: &Context, policy: &Policy) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for kind in Kind::all() {
        let Some(program) = kind.program() else { continue };
        let Ok(launch) = adapt_by(context, policy, kind, &[program.to_owned()], None) else { continue };
        for (id, declared) in declarations(context, policy, &launch) {
            if let Declared::Url(declaration) = declared {
                found.entry(id.0).or_default().insert(declaration.url);
            }
        }
    }
    found
}

/// Configured servers: Claude Code's, then Codex's, then the policy's.
///
/// # Errors
/// When a configuration cannot be read.
pub fn configured(context: &Context, policy: &Policy) -> Result<BTreeMap<ServerId, Declared>, RunError> {
    let mut found = BTreeMap::new();
    for name in ["codex", "claude"] {
        let launch = adapt_by(context, policy, Kind::of(name), &[name.to_owned()], None)?;
        found.extend(declarations(context, policy, &launch));
    }
    Ok(found)
}

/// An agent's servers in order: the user's before the project's.
#[must_use]
pub fn in_order(launch: &Launch) -> Vec<ServerId> {
    let mut servers: Vec<_> = launch.servers.iter().collect();
    servers.sort_by_key(|(_, server)| {
        let origin = &server.origin;
        (origin.scope == agentsh_agents::Scope::Project, &origin.file, origin.line, origin.nth)
    });
    servers.into_iter().map(|(id, _)| id.clone()).collect()
}

#[must_use]
pub fn declarations(context: &Context, policy: &Policy, launch: &Launch) -> BTreeMap<ServerId, Declared> {
    let mut declared = BTreeMap::new();
    for (id, server) in &launch.servers {
        let from_user = server.origin.scope != agentsh_agents::Scope::Project;
        let place = Some(match server.origin.line {
            0 => server.origin.file.display().to_string(),
            line => format!("{}:{line}", server.origin.file.display()),
        });
        let id = id.clone();
        let declaration = match &server.transport {
            Transport::Stdio { command, args, env, cwd } => Declared::Command(Declaration {
                id: id.clone(),
                command: command.clone(),
                args: args.clone(),
                env: env.clone(),
                cwd: cwd.as_ref().map(PathBuf::from),
                from_user,
                agreed: server.origin.agreed,
                place,
                id_is_derived: false,
            }),
            Transport::Remote { url, headers, .. } => Declared::Url(remote::Declaration {
                id: id.clone(),
                url: url.clone(),
                headers: match policy.mcp.servers.get(&id) {
                    Some(server) if server.url.is_some() && server.command.is_none() => {
                        remote::expand_headers(&server.headers, &context.env)
                    }
                    _ => Ok(headers.clone().into_iter().collect()),
                },
                from_user,
                place,
                is_configured: true,
            }),
        };
        declared.insert(id, declaration);
    }
    declared
}
