//! The ssh agent inside: it signs with the keys and for the servers that the policy names, and records every use. It
//! contains no key: the user's own ssh agent signs, or one that the session starts outside.

mod holder;
mod known_hosts;
mod request;
mod serve;
mod session_bind;
mod wire;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

use agentsh_policy::{Ruled, SshAccess};
use agentsh_sandbox::Enforcement;
use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::spec::{Contribution, Feature, File, RelocatedPath};
use agentsh_store::escape;

use agentsh_host::Facts;
use agentsh_host::users_networks::users_networks;
use agentsh_host::{Context, Record, git_identity};
use holder::{AgentSocket, AgentSockets};
use request::Key;

#[derive(Default)]
pub struct SshGrants {
    /// Generated files of the home: path inside and content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Additional lines of git's global configuration.
    pub git: String,
    /// The socket, here; it is shown at [`socket_in_sandbox`].
    pub socket: Option<PathBuf>,
    /// Serves while it lives.
    _serving: Option<serve::Serving>,
}

/// The path of the socket in the sandbox.
#[must_use]
pub fn socket_in_sandbox() -> PathBuf {
    Path::new(OWN_DIRECTORY).join("ssh-agent")
}

impl SshGrants {
    /// The agent's socket, what tools need to use it, and the hosts that it may be used for.
    #[must_use]
    pub fn contribution(&self, context: &Context, ssh: &[Ruled<SshAccess>]) -> Contribution {
        let files = self.files.iter().map(|(path, content)| File::new(path.clone(), content.clone(), 0o600));
        let part = Contribution {
            files: files.chain(git_identity::append_lines(context, self.git.clone())).collect(),
            ..hosts(ssh)
        };
        let Some(socket) = &self.socket else { return part };
        let socket =
            RelocatedPath { host: socket.clone(), inside: socket_in_sandbox(), access: Access::ReadOnly };
        let variable = ("SSH_AUTH_SOCK".to_owned(), socket_in_sandbox().display().to_string());
        Contribution { elsewhere: vec![socket], ..part.setting([variable]) }
    }
}

/// The hosts of `ssh` that no other rule allows.
#[must_use]
pub fn hosts(ssh: &[Ruled<SshAccess>]) -> Contribution {
    let mut part = Contribution::new(Feature::Ssh);
    for Ruled { value, rule } in ssh {
        for host in &value.hosts {
            if host.is_local() {
                part.loopback.push(Ruled { value: host.port, rule: rule.clone() });
            } else if let Some(mut host) = host.host_rule(rule) {
                // The user's configuration says where the user's own forge is.
                host.rule.value.addresses = users_networks(rule);
                part.hosts.push(host);
            }
        }
    }
    part
}

/// Finds the keys that the policy names, and serves them on a socket in this directory. A missing one is reported, and the
/// agent runs without it.
///
/// # Errors
/// When the socket cannot be made.
pub async fn open(facts: &Facts, record: &Rc<Record>, directory: &Path) -> std::io::Result<SshGrants> {
    let asked = &facts.policy.agent_only.ssh;
    if asked.is_empty() {
        return Ok(SshGrants::default());
    }
    let mut holders = AgentSockets::new(&facts.context, directory).await;
    let (mut keys, mut known) = (Vec::new(), BTreeSet::new());
    let mut missing = BTreeSet::new();
    for entry in asked {
        let hosts = known_hosts::of(facts, record, entry, &mut known).await;
        for text in &entry.value.keys {
            match find(facts, &mut holders, text).await {
                Ok((holder, public, comment)) => {
                    let key = Key {
                        fingerprint: fingerprint(&public),
                        public,
                        comment,
                        hosts: hosts.clone(),
                        entries: vec![entry.clone()],
                    };
                    add(&mut keys, key, holder);
                }
                Err(why) => {
                    missing.insert(text);
                    record.note(&format!(
                        "the ssh key '{}' is not used: {}, by {}",
                        escape::line(text),
                        escape::line(&why),
                        entry.rule
                    ));
                }
            }
        }
    }
    // A key that several entries name is one key.
    let wanted = keys.len() + missing.len();
    let got = format!("{} of {wanted} keys: an agent inside, keys outside", keys.len());
    record.enforcement(None, &[Enforcement::enforced("ssh agent", got)]);
    let git = signing(facts, asked, &keys);
    let home = &facts.context.home;
    let config = format!(
        "Host *\n    IdentityAgent {}\n    UserKnownHostsFile {}\n    StrictHostKeyChecking yes\n",
        socket_in_sandbox().display(),
        home.join(".ssh/known_hosts").display()
    );
    let files = vec![
        (home.join(".ssh/known_hosts"), known.into_iter().collect::<String>().into_bytes()),
        (home.join(".ssh/config"), config.into_bytes()),
    ];
    let socket = directory.join("ssh-agent");
    let serving = serve::Serving::begin(record, &socket, keys, holders)?;
    Ok(SshGrants { files, git, socket: Some(socket), _serving: Some(serving) })
}

/// Two entries may name one key for different servers.
fn add(keys: &mut Vec<(Key, AgentSocket)>, key: Key, holder: AgentSocket) {
    match keys.iter_mut().find(|(known, _)| known.public == key.public) {
        Some((known, _)) => known.adds(key),
        None => keys.push((key, holder)),
    }
}

/// The key that an entry of the policy means, and who holds it.
async fn find(
    facts: &Facts,
    holders: &mut AgentSockets,
    text: &str,
) -> Result<(AgentSocket, Vec<u8>, String), String> {
    if text.starts_with("SHA256:") {
        let found = holders.of_user(|public| fingerprint(public) == text);
        return found
            .ok_or_else(|| "your ssh agent does not have it; `ssh-add -l` lists its keys".to_owned());
    }
    let path = agentsh_policy::place::resolve(text, &facts.paths());
    let path = path.to_string_lossy();
    let private = PathBuf::from(path.strip_suffix(".pub").unwrap_or(&path));
    if private.starts_with(&facts.context.project) {
        return Err("a key inside the project is readable by the agent".to_owned());
    }
    let beside = PathBuf::from(format!("{}.pub", private.display()));
    let line = std::fs::read_to_string(&beside)
        .map_err(|error| format!("cannot read {}: {error}", beside.display()))?;
    let mut words = line.split_whitespace().skip(1);
    let public = words.next().and_then(|word| STANDARD.decode(word).ok());
    let public = public.ok_or_else(|| format!("{} is not a public key", beside.display()))?;
    let comment = words.collect::<Vec<_>>().join(" ");
    let holder = holders.of_file(&private, &public).await?;
    Ok((holder, public, comment))
}

/// The fingerprint, as `ssh-add -l` prints it.
fn fingerprint(public: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(public)))
}

/// Commits are signed by the first key that may.
fn signing(facts: &Facts, asked: &[Ruled<SshAccess>], keys: &[(Key, AgentSocket)]) -> String {
    let signs = |key: &&(Key, AgentSocket)| key.0.signs("git").is_some();
    let Some((key, _)) = keys.iter().find(signs).filter(|_| !asked.is_empty()) else { return String::new() };
    let kind = wire::Bytes(&key.public).text().unwrap_or_default();
    let public = STANDARD.encode(&key.public);
    let mut text = format!("[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = \"key::{kind} {public}\"\n");
    for section in git_identity::signed_by_ssh(&facts.context) {
        text.push_str(&format!("[{section}]\n\tgpgSign = true\n"));
    }
    text
}
