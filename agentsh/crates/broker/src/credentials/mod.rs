//! Secrets that the agent uses and never sees: the session reads them before the agent starts and adds them to its
//! requests (see [`agentsh_net::credentials`]). Inside there is a placeholder where each tool looks for its secret.

mod netrc;
mod source;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agentsh_net::credentials::{Broker, Credential};
use agentsh_policy::{CredentialSource, HostRule, Ruled};
use agentsh_sandbox::Enforcement;
use agentsh_sandbox::spec::{Contribution, EnvChange, Feature, File};
use agentsh_store::escape;

pub(super) use source::run as ask_program;

use agentsh_host::users_networks::users_networks;
use agentsh_host::{Context, git_identity, registries, registry_settings};
use agentsh_host::{Facts, Record};

/// A secret that is shorter is not looked for in the values of variables.
const MIN_SCRUBBED: usize = 8;

/// The credentials of the agent's sandbox.
#[derive(Default)]
pub struct BrokerSetup {
    pub broker: Option<Rc<Broker>>,
    /// Generated files of the home: path inside and content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Additional lines of git's global configuration.
    pub git: String,
    /// Files that hold secrets.
    pub hidden: Vec<PathBuf>,
    variables: BTreeMap<String, String>,
    /// Secrets and their placeholders.
    secrets: Vec<(String, String)>,
}

/// The result of a source.
pub(super) struct Secret {
    pub user: Option<String>,
    pub secret: String,
}

/// Reads every secret that the policy names. A missing one is reported, and the agent runs without it.
pub async fn read(facts: &Facts, record: &Record) -> BrokerSetup {
    let asked = &facts.policy.agent_only.credentials;
    if asked.is_empty() {
        return BrokerSetup::default();
    }
    let mut brokered = BrokerSetup::default();
    let Ok(random) = agentsh_base::random::bytes::<8>() else {
        record.note("no credential is used: the system's random number generator failed");
        return brokered;
    };
    let mark = format!("agentsh_{}_", agentsh_base::hex(&random));
    let mut placeholders: BTreeMap<(CredentialSource, String), String> = BTreeMap::new();
    let mut credentials = Vec::new();
    for ruled in asked {
        let credential = &ruled.value;
        if let CredentialSource::File(path) = &credential.source {
            brokered.hidden.push(agentsh_policy::place::resolve(path, &facts.paths()));
        }
        let found = match source::read(facts, credential).await {
            Ok(found) => found,
            Err(why) => {
                let host = escape::line(&credential.host);
                let why = escape::line(&why);
                record.note(&format!("no credential for '{host}': {why}, by {}", ruled.rule));
                continue;
            }
        };
        // One placeholder for one account, because a tool sends the same one to all hosts of its forge.
        let number = placeholders.len();
        let key = (credential.source.clone(), found.secret.clone());
        let placeholder = placeholders.entry(key).or_insert_with(|| format!("{mark}{number:04}")).clone();
        for name in &credential.variables {
            brokered.variables.entry(name.clone()).or_insert_with(|| placeholder.clone());
        }
        brokered.secrets.push((found.secret.clone(), placeholder.clone()));
        credentials.push(Credential {
            host: credential.host.clone(),
            port: credential.port,
            placeholder,
            user: found.user,
            secret: found.secret,
            requests: credential.requests.clone(),
            rule: ruled.rule.clone(),
        });
    }
    if let Some(host) = host_of_gh(facts) {
        brokered.variables.entry("GH_HOST".to_owned()).or_insert(host);
    }
    brokered.tools(facts, &credentials);
    let got = format!("{} of {}: placeholders inside, secrets on the wire", credentials.len(), asked.len());
    record.enforcement(None, &[Enforcement::enforced("credentials", got)]);
    brokered.broker = Some(Rc::new(Broker::new(credentials, &mark)));
    brokered
}

/// The default host of `gh`: the user's own choice, or the server without which it would use github.com.
fn host_of_gh(facts: &Facts) -> Option<String> {
    let all = facts.policy.agent_only.credentials.iter().map(|ruled| &ruled.value);
    let hosts: Vec<String> = all
        .filter(|one| one.source == CredentialSource::Gh && agentsh_policy::forge_of(&one.host) == one.host)
        .map(|one| authority(&one.host, one.port))
        .collect();
    let chosen = facts.context.env.get("GH_HOST").filter(|host| hosts.contains(host)).cloned();
    let is_own = |host: &&String| !agentsh_policy::is_github(host);
    chosen.or_else(|| hosts.iter().all(|host| is_own(&host)).then(|| hosts.first().cloned()).flatten())
}

/// The authority as a URL contains it.
fn authority(host: &str, port: u16) -> String {
    if port == 443 { host.to_owned() } else { format!("{host}:{port}") }
}

/// The hosts of the agent's credentials: before all others, since a secret goes only where requests can be read.
#[must_use]
pub fn hosts(credentials: &[Ruled<agentsh_policy::Credential>]) -> Vec<HostRule> {
    let host = |Ruled { value, rule }: &Ruled<agentsh_policy::Credential>| {
        let mut host = value.host_rule(rule)?;
        // The user's configuration says where the user's own forge is.
        host.rule.value.addresses = users_networks(rule);
        Some(host)
    };
    credentials.iter().filter_map(host).collect()
}

impl BrokerSetup {
    /// Placeholders where tools look for secrets, and in place of secrets in variables.
    #[must_use]
    pub fn contribution(
        &self,
        context: &Context,
        credentials: &[Ruled<agentsh_policy::Credential>],
    ) -> Contribution {
        let long = self.secrets.iter().filter(|(secret, _)| secret.len() >= MIN_SCRUBBED);
        let scrubbed = long.cloned().map(|(secret, placeholder)| EnvChange::Scrub { secret, placeholder });
        let variables = self.variables.clone().into_iter().map(|(name, value)| EnvChange::Set(name, value));
        let files = self.files.iter().map(|(path, content)| File::new(path.clone(), content.clone(), 0o600));
        Contribution {
            files: files.chain(git_identity::append_lines(context, self.git.clone())).collect(),
            environment: scrubbed.chain(variables).collect(),
            hosts: hosts(credentials),
            ..Contribution::new(Feature::Credentials).hiding(self.hidden.iter().cloned())
        }
    }

    /// Says the placeholders where tools look for secrets.
    fn tools(&mut self, facts: &Facts, credentials: &[Credential]) {
        let (mut netrc, mut npmrc) = (String::new(), registry_settings::of_npmrc(&facts.context));
        for one in credentials {
            let user = one.user.as_deref().unwrap_or("x-access-token");
            let placeholder = &one.placeholder;
            let place = authority(&one.host, one.port);
            // Writing to a string cannot fail.
            let _ = writeln!(netrc, "machine {} login {user} password {placeholder}", one.host);
            let _ = writeln!(npmrc, "//{place}/:_authToken={placeholder}");
            for path in registries::npm_paths(&facts.context, &place) {
                let _ = writeln!(npmrc, "//{place}/{path}/:_authToken={placeholder}");
            }
            self.git.push_str(&git(&one.host, &place, user, placeholder));
        }
        let home = &facts.context.home;
        self.files =
            vec![(home.join(".netrc"), netrc.into_bytes()), (home.join(".npmrc"), npmrc.into_bytes())];
    }
}

/// A helper that says the placeholder, and ssh addresses as https ones: no key is inside.
fn git(host: &str, place: &str, user: &str, placeholder: &str) -> String {
    format!(
        "[credential \"https://{place}\"]\n\thelper = \"\"\n\thelper = \"!f() {{ test \\\"$1\\\" = get && echo \
         username={user} && echo password={placeholder}; }}; f\"\n\
         [url \"https://{place}/\"]\n\tinsteadOf = \"git@{host}:\"\n\tinsteadOf = \"ssh://git@{host}/\"\n"
    )
}

/// A file of secrets must belong to the user, and no other user may read it.
pub(super) fn private(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    const MAX_BYTES: u64 = 64 << 10;
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("cannot read {shown}: {error}");
    // Opened first, so that what is judged is what is read; a pipe must not be waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot)?;
    agentsh_base::users_files::note(path, "a credential that agentsh uses");
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return Err(format!("{shown} is not a plain file of at most 64 KiB"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("other users can access {shown}; `chmod 600 {shown}`"));
    }
    if found.uid() != rustix::process::getuid().as_raw() {
        return Err(format!("{shown} belongs to another user"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}
