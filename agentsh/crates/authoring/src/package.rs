//! The package of a server, as far as it is known without starting it, and so its profile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use agentsh_base::types::ServerId;
use agentsh_pin::{NoCache, PinError};
use agentsh_policy::profile::{self, Package, Registry, ServerProfile};
use agentsh_policy::{Policy, PolicyError, ServerPolicy};
use agentsh_store::{Pin, PinStore, StoreError};

use crate::CommandContext;

/// Facts about a server for a question about it.
#[derive(Debug, Default)]
pub struct ServerFacts {
    pub profile: Option<ServerProfile>,
    /// `npm:name@1.2.3`; None where the profile was named.
    pub package: Option<String>,
    /// How the package was found, or why there is no profile.
    note: &'static str,
    /// It was pinned, or a profile was named for it.
    pub is_known: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    #[error("{}", .0.render().trim_end().trim_start_matches("error: "))]
    Profile(#[from] PolicyError),
    #[error("cannot read the pins: {0}")]
    Pins(#[from] StoreError),
}

impl ServerFacts {
    pub fn named(name: &str, place: &CommandContext) -> Result<Self, Unknown> {
        let profile = profile::named(name, &place.config_home)?;
        Ok(Self { profile: Some(profile), is_known: true, ..Self::default() })
    }

    /// By its pin: of this project, else of the user. Without one, by the command in the user's policy.
    pub async fn of_server(id: &ServerId, policy: &Policy, place: &CommandContext) -> Result<Self, Unknown> {
        if let Some(pin) = pin_of(id, place).await? {
            return of_pin(&pin, place).map(|known| Self { is_known: true, ..known });
        }
        match policy.mcp.servers.get(id) {
            Some(entry) => of_command(entry, place),
            None => Ok(Self::default()),
        }
    }

    /// The source of the answer, for people.
    pub fn source_of_answer(&self) -> Option<String> {
        let package = self.package.as_ref()?;
        match &self.profile {
            Some(profile) => Some(format!("profile: {}, for {package}, {}", profile.file, self.note)),
            None if self.note.is_empty() => None,
            None => Some(format!("no profile for {package}: {}", self.note)),
        }
    }
}

async fn pin_of(id: &ServerId, place: &CommandContext) -> Result<Option<Pin>, StoreError> {
    // Asking makes no store.
    if !agentsh_store::exists(&place.state) {
        return Ok(None);
    }
    let pins = PinStore::new(&place.state);
    let of_project = pins.load(id, &place.project.display().to_string()).await?;
    match of_project {
        Some(pin) => Ok(Some(pin)),
        None => pins.load(id, "").await,
    }
}

fn of_pin(pin: &Pin, place: &CommandContext) -> Result<ServerFacts, Unknown> {
    let Some(package) = Package::of_identity(&pin.state.identity) else { return Ok(ServerFacts::default()) };
    // A pin does not contain the path of an npm package; a launcher prefers one in the project.
    let installed = place.project.join("node_modules").join(&package.name);
    let in_project = Path::new(&pin.state.program).starts_with(&place.project)
        || (package.registry == Registry::Npm && installed.exists());
    let mut known = of_package(&package, pin.state.identity.clone(), in_project, "which is pinned", place)?;
    if !pin.state.scope.is_empty()
        && let Some(profile) = &mut known.profile
    {
        // The project says how this program is started, so it gets none of the user's environment.
        profile.process.env.allow.clear();
    }
    Ok(known)
}

/// Looks for what the command would run, as a start does, and runs nothing.
fn of_command(entry: &ServerPolicy, place: &CommandContext) -> Result<ServerFacts, Unknown> {
    let Some(program) = &entry.command else { return Ok(ServerFacts::default()) };
    // A variable that is not UTF-8 is not passed to servers either.
    let mut env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    env.extend(entry.env.clone());
    let path_env = OsString::from(env.get("PATH").cloned().unwrap_or_default());
    let request = agentsh_pin::Request {
        program,
        args: &entry.args,
        cwd: &place.project,
        path_env: &path_env,
        home: &place.home,
        project: &place.project,
        env: &env,
        accept_missing_package: false,
        not_below: None,
        hidden: Some(&place.state),
        store: None,
    };
    let note = "which its command in the policy starts";
    match agentsh_pin::resolve(&request, &mut NoCache, &mut |_| {}) {
        Ok(resolved) => {
            let Some(package) = Package::of_identity(&resolved.identity) else {
                return Ok(ServerFacts::default());
            };
            let trees = resolved.trees.iter().map(|tree| tree.root.as_path());
            let files = resolved.files.iter().map(|file| file.path.as_path());
            let in_project = trees.chain(files).any(|path| path.starts_with(&place.project));
            of_package(&package, resolved.identity.clone(), in_project, note, place)
        }
        Err(PinError::PackageNotInstalled { wanted: Some(wanted), .. }) => {
            let spec = wanted.specs.first().map(String::as_str).unwrap_or_default();
            let package = Package::of_spec(wanted.registry, spec);
            of_package(&package, package.to_string(), false, note, place)
        }
        // A command that cannot be found cannot be started, and gets nothing.
        Err(_) => Ok(ServerFacts::default()),
    }
}

fn of_package(
    package: &Package,
    identity: String,
    in_project: bool,
    note: &'static str,
    place: &CommandContext,
) -> Result<ServerFacts, Unknown> {
    let found = profile::of_package(package, &place.config_home)?;
    let (profile, note) = match found {
        Some(_) if in_project => (None, "its program is in the project"),
        Some(profile) => (Some(profile), note),
        None => (None, ""),
    };
    Ok(ServerFacts { profile, package: Some(identity), note, is_known: true })
}
