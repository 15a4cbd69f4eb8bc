//! The grants of a server's package profile, which is known only after pinning.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use agentsh_base::remedy;
use agentsh_dlp::flow::labels::Labels;
use agentsh_mcp::StartError;
use agentsh_pin::Resolved;
use agentsh_policy::profile::{self, ConfigPlace, Package, ProfileGrant, What};
use agentsh_policy::{HostPattern, NetworkRule, ProcessPolicy, Ruled, ServerPolicy, ServerProfile, domain};
use agentsh_sandbox::layout::Grant;
use agentsh_sandbox::plan::Access;
use agentsh_store::Event;
use agentsh_store::words::LayerState;

use super::address::Address;
use super::declared::Declaration;
use super::{Session, grants};
use agentsh_host::{Facts, Record};

/// One server's grants from all policies.
#[derive(Debug, Default)]
pub struct ServerGrants {
    pub profile: Option<ServerProfile>,
    pub process: ProcessPolicy,
    pub grants: Vec<Grant>,
    /// Its persistent directory.
    pub own_state: Vec<Grant>,
    /// Defaults: set unless the user's environment or the server's configuration does.
    pub env: BTreeMap<String, String>,
}

/// Applies the profile of a pinned program and creates its directory.
///
/// # Errors
/// An invalid profile of the user; a state directory that cannot be created.
pub fn apply(
    session: &Session,
    declaration: &Declaration,
    resolved: &Resolved,
) -> Result<ServerGrants, StartError> {
    let id = &declaration.id;
    let mcp = &session.facts.policy.mcp;
    let (package, found) = find(&session.facts, &session.record, declaration, resolved)?;
    session.live.servers.labels.borrow_mut().insert(
        id.clone(),
        Labels::of_server(trusted_policy(&session.facts, declaration), package.as_ref(), found.as_ref()),
    );
    let process = if declaration.has_grants_by_name() {
        mcp.process_of(id, found.as_ref())
    } else {
        let process = mcp.process_of_foreign(id, found.as_ref());
        if process != mcp.process_of(id, found.as_ref()) {
            tell_withheld(&session.facts, &session.record, declaration);
        }
        process
    };
    let mut given = ServerGrants { process, ..ServerGrants::default() };
    let Some(profile) = found else { return Ok(given) };
    let entry = mcp.servers.get(id);
    if declaration.from_user {
        for opened in &profile.opened {
            for value in values(&session.facts, declaration, &opened.value) {
                open(&session.facts, &session.record, entry, opened, &value, &mut given);
            }
        }
    } else {
        // The project defines this start, so it does not get the user's variables.
        let kept = std::mem::take(&mut given.process.env.allow);
        let (withheld, kept): (Vec<_>, Vec<_>) =
            kept.into_iter().partition(|entry| entry.rule.file == profile.file);
        given.process.env.allow = kept;
        let names: Vec<String> = withheld
            .into_iter()
            .map(|entry| entry.value)
            .filter(|name| session.facts.context.env.contains_key(name))
            .collect();
        if !names.is_empty() {
            let change = format!("sandbox: {{mcp: {{servers: [{{id: {:?}, env_allow: {names:?}}}]}}}}", id.0);
            session.record.note(&format!(
                "server '{id}' came with the project and does not get {}; to pass it: {}",
                names.join(", "),
                remedy::shown(&change)
            ));
        }
    }
    if let Some(state) = &profile.state {
        let directory = state_directory(&session.facts, declaration)?;
        for (name, file) in &state.value.env {
            let path = if file.is_empty() { directory.clone() } else { directory.join(file) };
            given.env.insert(name.clone(), path.display().to_string());
        }
        given.own_state.push(Grant { path: directory, access: Access::ReadWrite });
    }
    session.record.journal.record(Event::Enforcement {
        server_id: Some(id.clone()),
        layer: "profile".to_owned(),
        asked: resolved.identity.clone(),
        got: format!("{} {}", profile.file, profile.digest()),
        state: LayerState::Enforced,
        why: String::new(),
    });
    given.profile = Some(profile);
    Ok(given)
}

/// The user's policy for a name, if it applies to this server.
fn trusted_policy<'s>(facts: &'s Facts, declaration: &Declaration) -> Option<&'s ServerPolicy> {
    facts.policy.mcp.servers.get(&declaration.id).filter(|_| declaration.has_grants_by_name())
}

fn tell_withheld(facts: &Facts, record: &Record, declaration: &Declaration) {
    let id = &declaration.id;
    let Some(entry) = facts.policy.mcp.servers.get(id) else { return };
    let place = declaration.place.as_deref().unwrap_or_default();
    let file = place.rsplit_once(':').map_or(place, |(file, _)| file);
    record.note(&format!(
        "server '{id}' came with the project ({place}) and has the name of an entry in your policy ({}): until you approve it, that entry can only restrict it; to approve it: {}",
        entry.rule,
        agentsh_agents::agreement::command(Path::new(file))
    ));
}

/// A program of the project never counts as a known package, because a repository can use any name in `package.json`.
fn find(
    facts: &Facts,
    record: &Record,
    declaration: &Declaration,
    resolved: &Resolved,
) -> Result<(Option<Package>, Option<ServerProfile>), StartError> {
    let Some(package) = Package::of_identity(&resolved.identity) else { return Ok((None, None)) };
    let context = &facts.context;
    let of_project = |path: &Path| path.starts_with(&context.project) && !path.starts_with(&context.data);
    let own = resolved.trees.iter().map(|tree| tree.root.as_path());
    let files = resolved.files.iter().map(|file| file.path.as_path());
    let inside = own.chain(files).any(of_project);
    let found = profile::of_package(&package, &context.config).map_err(|error| {
        StartError::permanent(error.render().trim_end().trim_start_matches("error: ").to_owned())
    })?;
    // Code that the project adds could act in the package's name.
    let added = resolved.has_additions && !declaration.from_user;
    if (inside || added)
        && let Some(found) = &found
    {
        let why =
            if inside { "its program is in the project" } else { "the project adds code to its program" };
        let (id, profile) = (&declaration.id, &found.name);
        record.note(&format!("server '{id}' does not get the profile {profile}: {why}"));
        return Ok((None, None));
    }
    Ok(((!inside && !added).then_some(package), found))
}

/// The values at a place of the server's configuration.
fn values(facts: &Facts, declaration: &Declaration, opened: &ProfileGrant) -> Vec<String> {
    let args = &declaration.args;
    match &opened.from {
        ConfigPlace::Env(name) => {
            let value = declaration.env.get(name).or_else(|| facts.context.env.get(name));
            value.cloned().into_iter().collect()
        }
        ConfigPlace::Option(option) => {
            let joined = args.iter().filter_map(|arg| arg.strip_prefix(option.as_str())?.strip_prefix('='));
            let apart = args.windows(2).filter_map(|pair| match pair {
                [name, value] if name == option => Some(value.as_str()),
                _ => None,
            });
            joined.chain(apart).map(str::to_owned).collect()
        }
        ConfigPlace::Url(scheme) => {
            let of_scheme = |arg: &&String| {
                arg.split_once("://").is_some_and(|(found, _)| found.eq_ignore_ascii_case(scheme))
            };
            args.iter().filter(of_scheme).cloned().collect()
        }
    }
}

fn open(
    facts: &Facts,
    record: &Record,
    entry: Option<&ServerPolicy>,
    opened: &Ruled<ProfileGrant>,
    value: &str,
    given: &mut ServerGrants,
) {
    // A replacing list is complete.
    let is_written = |key: &str| entry.is_some_and(|entry| entry.is_whole(key));
    match &opened.value.what {
        What::Host { port, any_tcp } => {
            for address in Address::list(value, *port) {
                if address.is_loopback() && !is_written("network.loopback") {
                    let rule = Ruled { value: address.port, rule: opened.rule.clone() };
                    given.process.network.loopback.push(rule);
                } else if !address.is_loopback()
                    && !is_written("network.allow")
                    && let Some(host) = pattern(&address.host)
                {
                    let value =
                        NetworkRule { any_tcp: *any_tcp, ..NetworkRule::plain(host, vec![address.port]) };
                    given.process.network.allow.push(Ruled { value, rule: opened.rule.clone() });
                }
            }
        }
        What::Path | What::Directory if is_written("filesystem.write") => {}
        what => {
            let paths = facts.paths();
            let path = agentsh_policy::place::resolve(value, &paths);
            let path = match what {
                What::Directory => path.parent().map_or_else(PathBuf::new, Path::to_owned),
                _ => path,
            };
            // Naming a file does not mean granting a huge directory.
            if paths.home.starts_with(&path) || ["/tmp", "/var/tmp"].iter().any(|all| path == Path::new(all))
            {
                record.note(&format!(
                    "the directory of '{value}' is not granted: it contains too much else; give the file its own directory"
                ));
                return;
            }
            let (granted, refused) =
                grants::from_arguments(&[path.display().to_string()], &paths.project, &paths, true);
            given.grants.extend(granted);
            refused.iter().for_each(|line| record.note(&format!("not opened: {line}")));
        }
    }
}

fn pattern(host: &str) -> Option<HostPattern> {
    // A star in a URL is a mistake, never a pattern.
    if host.contains('*') { None } else { domain::parse_pattern(host).ok() }
}

/// `$XDG_STATE_HOME/agentsh/servers/ID`: one per server of the user, and per project for a project's server.
fn state_directory(facts: &Facts, declaration: &Declaration) -> Result<PathBuf, StartError> {
    use std::os::unix::fs::DirBuilderExt;
    let mut name: String = declaration
        .id
        .0
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' })
        .take(64)
        .collect();
    if name != declaration.id.0 || !declaration.from_user {
        let scope =
            if declaration.from_user { String::new() } else { facts.context.project.display().to_string() };
        let hash = Sha256::digest(format!("{}\0{scope}", declaration.id.0));
        name.push('-');
        hash.iter().take(8).for_each(|byte| name.push_str(&format!("{byte:02x}")));
    }
    let directory = facts.context.state.join("servers").join(name);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
        StartError::permanent(format!("cannot create the state directory {}: {error}", directory.display()))
    })?;
    Ok(directory)
}
