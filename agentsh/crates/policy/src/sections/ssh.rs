//! `agent.ssh`: keys that sign for the agent and are never inside.

use std::fmt;

use super::prelude::*;
use crate::domain::{self, Host};
use crate::model::NetworkRule;
use crate::network::{HostRule, Precedence};

const PORT: u16 = 22;

/// Keys, and what each of them may be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshAccess {
    /// Files or fingerprints, as written. Never empty.
    pub keys: Vec<String>,
    pub hosts: Vec<SshHost>,
    /// Namespaces of signatures over files: `git`.
    pub sign: Vec<String>,
}

/// A server that a key may log in to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SshHost {
    /// A normalised name or address.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            PORT => f.write_str(&self.host),
            port => write!(f, "{}:{port}", self.host),
        }
    }
}

impl fmt::Display for SshAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.hosts.iter().map(ToString::to_string);
        let uses: Vec<String> = hosts.chain(self.sign.iter().map(|name| format!("sign {name}"))).collect();
        write!(f, "{}: {}", self.keys.join(", "), uses.join(", "))
    }
}

impl SshAccess {
    fn covers(&self, inner: &Self) -> bool {
        inner.keys.iter().all(|key| self.keys.contains(key))
            && inner.hosts.iter().all(|host| self.hosts.contains(host))
            && inner.sign.iter().all(|name| self.sign.contains(name))
    }
}

impl SshHost {
    /// Whether it is this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        domain::normalise(&self.host).is_ok_and(|host| host.is_local())
    }

    /// The rule that opens its host if no other rule does.
    #[must_use]
    pub fn host_rule(&self, rule: &RuleRef) -> Option<HostRule> {
        let mut value = NetworkRule::plain(domain::parse_pattern(&self.host).ok()?, vec![self.port]);
        value.any_tcp = true;
        let rule = Ruled { value, rule: rule.clone() };
        Some(HostRule { rule, precedence: Precedence::IfUnruled })
    }
}

const SSH: &[Key] = keys! {
    /// The keys: files (`~/.ssh/id_ed25519`, with its public half next to it) or fingerprints (`SHA256:...`) of keys in
    /// the user's own ssh agent.
    "keys": Kind::Whole(&Kind::Text), default: "required";
    /// Servers that these keys log in to, each a name with a port if that is not 22. The user's known_hosts must
    /// contain their host keys. The entry also allows them in the network.
    "hosts": Kind::Whole(&Kind::Text), default: "none";
    /// What else these keys sign, as namespaces of `ssh-keygen -Y sign`: `git` for commits and tags.
    "sign": Kind::Whole(&Kind::Text), default: "none";
};

table! {
    /// What one file writes.
    struct Ssh;

    /// An ssh agent inside that signs only with these keys and for these servers; each use is recorded. See
    /// docs/credentials.md.
    ssh: Entries<SshAccess> = Kind::Either(&[Kind::Map(SSH), Kind::List(&Kind::Map(SSH))]),
        default: "none: there is no ssh agent inside",
        merge: "adds, unless written as `{replace: [...]}`",
        example: "{keys: [~/.ssh/id_ed25519], hosts: [git.example.com], sign: [git]}"
        => show ToString::to_string => whole entries;
}

impl Section<AgentPolicy> for Ssh {
    in_table! { AgentPolicy [ssh]: read merge describe }

    fn narrow(&self, base: &mut AgentPolicy, narrowing: &mut Narrowing<'_>) {
        let covered =
            |base: &[Ruled<SshAccess>], own: &SshAccess| base.iter().any(|outer| outer.value.covers(own));
        let message = |_: &SshAccess| "this file would allow more uses of ssh keys".to_owned();
        base.ssh.narrow(&self.ssh, narrowing, covered, message);
    }
}

/// One entry, or a list of them.
fn entries(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Entries<SshAccess> {
    let is_one = |here: &Here<'_>| matches!(&here.node.value, Value::Map(entries) if !entries.iter().any(|entry| entry.key == "replace"));
    match here {
        Some(here) if is_one(&here) => {
            let one = reader.one(Some(here.clone()), access);
            one.map(|one| Listed { value: vec![one], rule: reader.rule(&here), replaces: false }).into()
        }
        here => reader.adding(here, access).into(),
    }
}

fn access(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<SshAccess> {
    let fields = reader.map(here, SSH)?;
    let mut texts = |key: &str| {
        let list = reader.list(fields.find(key), |reader, here| Some((reader.text(here)?, here.clone())));
        list.map(|list| list.value.into_iter().map(|entry| entry.value).collect::<Vec<_>>())
    };
    let (keys, hosts, sign) = (texts("keys"), texts("hosts"), texts("sign"));
    let keys = keys.unwrap_or_default();
    if keys.is_empty() {
        let help = "write `{keys: [~/.ssh/id_ed25519], hosts: [git.example.com]}`";
        return reader.fault(here, "this entry names no key", help);
    }
    for (key, here) in &keys {
        if !key.starts_with(['/', '~']) && !key.starts_with("SHA256:") {
            let help = "write the path of a key, or its fingerprint as `ssh-add -l` shows it";
            return reader.fault(here, "this is not a key", help);
        }
    }
    let mut found = Vec::new();
    for (text, here) in hosts.unwrap_or_default() {
        let parsed = domain::split_port(&text).ok();
        let host = parsed.and_then(|(host, port)| Some((domain::normalise(host).ok()?, port)));
        let Some((host, port)) = host.filter(|_| !text.contains(['*', '/', '@'])) else {
            let help = "write one name, such as `git.example.com` or `git.example.com:2222`";
            return reader.fault(&here, "this is not a server", help);
        };
        let host = match host {
            Host::Name(name) => name,
            Host::Address(address) => address.to_string(),
        };
        found.push(SshHost { host, port: port.unwrap_or(PORT) });
    }
    let sign: Vec<String> = sign.unwrap_or_default().into_iter().map(|(name, _)| name).collect();
    if found.is_empty() && sign.is_empty() {
        let help = "add `hosts: [git.example.com]`, or `sign: [git]`";
        return reader.fault(here, "these keys are used for nothing", help);
    }
    Some(SshAccess { keys: keys.into_iter().map(|(key, _)| key).collect(), hosts: found, sign })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn parsed(agent: &str) -> crate::Policy {
        crate::parse("p.yaml", &format!("agent: {{{agent}}}"))
            .unwrap_or_else(|error| panic!("{}", error.render()))
    }

    #[test]
    fn ssh_section_takes_one_entry_or_several() {
        let one = parsed("ssh: {keys: [~/.ssh/a], hosts: [Git.Example, \"h.example:2222\"], sign: [git]}");
        let [entry] = one.agent_only.ssh.as_slice() else { panic!() };
        assert_eq!(entry.value.to_string(), "~/.ssh/a: git.example, h.example:2222, sign git");
        let two = parsed("ssh: [{keys: [\"SHA256:abc\"], hosts: [a.example]}, {keys: [/k], sign: [git]}]");
        assert_eq!(two.agent_only.ssh.len(), 2);
    }

    #[test]
    fn ssh_hosts_are_opened_on_their_port() {
        let policy = parsed(
            "network: {allow: [a.example]}, ssh: {keys: [/k], hosts: [a.example, \"localhost:2222\"]}",
        );
        let entry = &policy.agent_only.ssh[0];
        let mut rules = policy.agent.network.clone();
        let others = entry.value.hosts.iter().filter(|host| !host.is_local());
        others.for_each(|host| rules.insert(host.host_rule(&entry.rule).unwrap()));
        let host = domain::normalise("a.example").unwrap();
        assert!(rules.rule_for(&host, 22).unwrap().value.any_tcp);
        assert!(!rules.rule_for(&host, 443).unwrap().value.any_tcp);
        assert_eq!(entry.value.hosts.iter().map(SshHost::is_local).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn malformed_ssh_entries_are_refused() {
        for (entry, said) in [
            ("{hosts: [a.example]}", "names no key"),
            ("{keys: [id_rsa], hosts: [a.example]}", "this is not a key"),
            ("{keys: [/k]}", "used for nothing"),
            ("{keys: [/k], hosts: [\"*.example\"]}", "this is not a server"),
            ("{keys: [/k], hosts: [\"git@a.example\"]}", "this is not a server"),
        ] {
            let error = crate::parse("p.yaml", &format!("agent: {{ssh: {entry}}}")).unwrap_err().render();
            assert!(error.contains(said), "{entry}: {error}");
        }
    }
}
