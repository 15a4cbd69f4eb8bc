//! `agent.credentials`: secrets that the session adds to requests and that are never inside.

use std::fmt;

use super::network;
use super::prelude::*;
use crate::domain;
use crate::model::{HostPattern, NetworkRule, RequestRule};
use crate::network::{HostRule, Precedence};

/// The requests of a credential whose entry lists none: reading.
const READING: [&str; 3] = ["GET /**", "HEAD /**", "POST /**/git-upload-pack"];

/// One secret of the user, and its allowed use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// A normalised host name.
    pub host: String,
    pub port: u16,
    pub source: Source,
    /// Variables that hold the placeholder inside.
    pub variables: Vec<String>,
    /// Never empty.
    pub requests: Vec<Ruled<RequestRule>>,
}

/// The source of a secret. The session reads it before the agent starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// `gh auth token`
    Gh,
    /// `git credential fill`
    GitCredential,
    /// `~/.netrc`
    Netrc,
    /// The desktop's own store of secrets.
    Keyring,
    /// A variable of the user's environment.
    Env(String),
    /// A file that only the user can read.
    File(String),
}

impl Source {
    /// # Errors
    /// Says what may be written.
    pub fn parse(text: &str) -> Result<Self, String> {
        match (text, text.split_once(':')) {
            ("gh", _) => Ok(Self::Gh),
            ("git-credential", _) => Ok(Self::GitCredential),
            ("netrc", _) => Ok(Self::Netrc),
            ("keyring", _) => Ok(Self::Keyring),
            (_, Some(("env", name))) if is_variable(name) => Ok(Self::Env(name.to_owned())),
            (_, Some(("file", path))) if path.starts_with(['/', '~']) => Ok(Self::File(path.to_owned())),
            _ => {
                Err("write `gh`, `git-credential`, `netrc`, `keyring`, `env:NAME` or `file:/PATH`".to_owned())
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gh => f.write_str("gh"),
            Self::GitCredential => f.write_str("git-credential"),
            Self::Netrc => f.write_str("netrc"),
            Self::Keyring => f.write_str("keyring"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests: Vec<String> = self.requests.iter().map(|request| request.value.to_string()).collect();
        write!(f, "{}:{}, from {}: {}", self.host, self.port, self.source, requests.join(", "))
    }
}

impl Credential {
    /// Whether everything that `inner` may be used for is among what this one may be used for.
    fn covers(&self, inner: &Self) -> bool {
        let is_known = |wanted: &Ruled<RequestRule>| {
            self.requests.iter().any(|request| request.value.covers(&wanted.value))
        };
        (&self.host, self.port, &self.source) == (&inner.host, inner.port, &inner.source)
            && inner.requests.iter().all(is_known)
    }
}

impl Credential {
    /// The rule that opens its host: TLS to it ends at agentsh, and without another rule only the credential's requests pass.
    /// It comes before all others, because a secret is sent only where requests can be read.
    #[must_use]
    pub fn host_rule(&self, rule: &RuleRef) -> Option<HostRule> {
        let mut value = NetworkRule::plain(domain::parse_pattern(&self.host).ok()?, vec![self.port]);
        value.inspect = true;
        value.requests.clone_from(&self.requests);
        let rule = Ruled { value, rule: rule.clone() };
        Some(HostRule { rule, precedence: Precedence::FirstJoined })
    }
}

const CREDENTIAL: &[Key] = keys! {
    /// One name, with a port if that is not 443. The secret goes nowhere else.
    "host": Kind::Text, default: "required";
    /// Where the session gets the secret: `gh` (`gh auth token`), `git-credential` (`git credential fill`), `netrc`,
    /// `keyring` (`secret-tool`), `env:NAME`, or `file:PATH` (readable only for the user).
    "from": Kind::Text, default: "required";
    /// Variables that hold the placeholder inside.
    "as": Kind::Whole(&Kind::Text),
        default: "`gh`: GH_TOKEN and GITHUB_TOKEN, for your own server GH_ENTERPRISE_TOKEN and GITHUB_ENTERPRISE_TOKEN; `env:NAME`: NAME; else none";
    /// The requests that the secret goes on, as `METHOD /path`. Pushing is `POST /OWNER/NAME/git-receive-pack`.
    "allow": Kind::Whole(&Kind::Text),
        default: "what reads: `GET /**`, `HEAD /**`, `POST /**/git-upload-pack`";
};

table! {
    /// What one file writes.
    struct Credentials;

    /// Secrets that the session adds to the agent's requests in place of placeholders. They are never visible
    /// inside. See docs/credentials.md.
    credentials: Entries<Credential> = Kind::List(&Kind::Map(CREDENTIAL)), default: "none",
        example: "[{host: github.com, from: gh, allow: [\"GET /**\", \"POST /*/*/git-upload-pack\"]}]"
        => read credential => show ToString::to_string;
}

impl Section<AgentPolicy> for Credentials {
    in_table! { AgentPolicy [credentials]: read merge describe }

    fn narrow(&self, base: &mut AgentPolicy, narrowing: &mut Narrowing<'_>) {
        let mut own = self.credentials.clone();
        for entry in &mut own {
            // The variables are the user's.
            if let Some(outer) = base.credentials.iter().find(|outer| outer.value.covers(&entry.value)) {
                entry.value.variables.clone_from(&outer.value.variables);
            }
        }
        let covered =
            |base: &[Ruled<Credential>], own: &Credential| base.iter().any(|outer| outer.value.covers(own));
        let message =
            |own: &Credential| format!("this file would add a credential of '{}' to more requests", own.host);
        base.credentials.narrow(&own, narrowing, covered, message);
    }
}

/// The variables in which `gh` looks for the token of a host. They differ for github.com and a self-hosted
/// server.
fn variables_of_gh(host: &str) -> [&'static str; 2] {
    match is_github(host) {
        true => ["GH_TOKEN", "GITHUB_TOKEN"],
        false => ["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"],
    }
}

/// The API of a forge has another host with the same account.
#[must_use]
pub fn forge_of(host: &str) -> &str {
    ["api.", "uploads."].iter().find_map(|prefix| host.strip_prefix(prefix)).unwrap_or(host)
}

/// Whether `gh` takes a host for github.com itself.
#[must_use]
pub fn is_github(host: &str) -> bool {
    host == "github.com" || host.ends_with(".github.com") || host.ends_with(".ghe.com")
}

fn credential(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Credential> {
    let fields = reader.map(here, CREDENTIAL)?;
    let (Some(host), Some(from)) = (fields.find("host"), fields.find("from")) else {
        return reader.fault(here, "this entry needs a `host` and `from`", "write `{host: HOST, from: gh}`");
    };
    let (text, source) = (reader.text(&host)?, reader.text(&from)?);
    let source = match Source::parse(&source) {
        Ok(source) => source,
        Err(help) => {
            return reader.fault(&from, "secrets do not come from there", help);
        }
    };
    let parsed = domain::parse_rule(&text);
    let (name, port) = match parsed.as_ref().map(|rule| (&rule.host, rule.ports.as_slice())) {
        Ok((HostPattern::Exact(name), [])) => (name.clone(), 443),
        Ok((HostPattern::Exact(name), [port])) => (name.clone(), *port),
        _ => {
            let help = "write one name, such as `git.example.com` or `git.example.com:8443`";
            return reader.fault(&host, "a credential belongs to one host", help);
        }
    };
    let variables = reader.list(fields.find("as"), |reader, here| {
        let name = reader.text(here)?;
        if !is_variable(&name) {
            return reader.fault(here, format!("`{name}` is not a variable name"), None);
        }
        Some(name)
    });
    let variables = match (variables, &source) {
        (Some(list), _) => list.value.into_iter().map(|name| name.value).collect(),
        (None, Source::Gh) => variables_of_gh(&name).map(str::to_owned).to_vec(),
        (None, Source::Env(name)) => vec![name.clone()],
        (None, _) => Vec::new(),
    };
    let requests = match reader.list(fields.find("allow"), network::request) {
        Some(list) if list.value.is_empty() => {
            return reader.fault(here, "an empty `allow` uses the secret for nothing", "remove the entry");
        }
        Some(list) => list.value,
        None => {
            let rule = reader.rule(here);
            let reading = READING.iter().filter_map(|text| RequestRule::parse(text).ok());
            reading.map(|value| Ruled { value, rule: rule.clone() }).collect()
        }
    };
    Some(Credential { host: name, port, source, variables, requests })
}

pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::domain::normalise;

    fn parsed(agent: &str) -> crate::Policy {
        crate::parse("p.yaml", &format!("agent: {{{agent}}}"))
            .unwrap_or_else(|error| panic!("{}", error.render()))
    }

    fn mistake(entry: &str) -> String {
        crate::parse("p.yaml", &format!("agent: {{credentials: [{entry}]}}")).unwrap_err().render()
    }

    #[test]
    fn credential_entry_has_defaults() {
        let policy = parsed(
            "credentials: [{host: Git.Example, from: gh}, {host: \"n.example:8443\", from: \"env:NPM_TOKEN\", \
                             allow: [\"PUT /pkg\"]}, {host: c.example, from: netrc, as: [A]}]",
        );
        let [first, second, third] = policy.agent_only.credentials.as_slice() else { panic!() };
        assert_eq!((first.value.host.as_str(), first.value.port), ("git.example", 443));
        assert_eq!(first.value.variables, ["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"]);
        let allows = |credential: &Credential, method: &str, path: &str| {
            credential.requests.iter().any(|request| request.value.matches(method, path))
        };
        assert!(allows(&first.value, "POST", "/o/r/git-upload-pack"));
        assert!(!allows(&first.value, "POST", "/o/r/git-receive-pack"));
        assert_eq!(
            (second.value.port, second.value.variables.as_slice()),
            (8443, &["NPM_TOKEN".to_owned()][..])
        );
        assert!(!allows(&second.value, "GET", "/pkg"));
        assert_eq!(third.value.variables, ["A"]);
    }

    #[test]
    fn malformed_credential_entries_are_refused() {
        for (entry, said) in [
            ("{host: a.example}", "needs a `host` and `from`"),
            ("{host: \"*.example.com\", from: gh}", "belongs to one host"),
            ("{host: 192.0.2.1, from: gh}", "belongs to one host"),
            ("{host: a.example, from: env}", "do not come from there"),
            ("{host: a.example, from: \"env:A B\"}", "do not come from there"),
            ("{host: a.example, from: \"file:relative\"}", "do not come from there"),
            ("{host: a.example, from: gh, allow: []}", "for nothing"),
            ("{host: a.example, from: gh, as: [\"A=B\"]}", "not a variable name"),
        ] {
            assert!(mistake(entry).contains(said), "{entry}: {}", mistake(entry));
        }
    }

    #[test]
    fn credential_host_is_opened_for_its_requests_alone() {
        let policy = parsed(
            "network: {allow: [b.example, \"*.example.com\"]}, credentials: [{host: a.example, from: gh, \
                             allow: [\"GET /x\"]}, {host: b.example, from: gh, allow: [\"GET /x\"]}]",
        );
        let mut rules = policy.agent.network.clone();
        for Ruled { value, rule } in &policy.agent_only.credentials {
            rules.insert(value.host_rule(rule).unwrap());
        }
        let rule = |host: &str, port| rules.rule_for(&normalise(host).unwrap(), port).unwrap();
        let own = rule("a.example", 443);
        assert!(own.value.inspect && own.value.requests.len() == 1 && own.rule.id.contains("credentials"));
        assert!(rules.rule_for(&normalise("a.example").unwrap(), 80).is_none());
        // An open host stays open, and is inspected.
        assert!(rule("b.example", 443).value.inspect && rule("b.example", 443).value.requests.is_empty());
        assert!(!rule("b.example", 80).value.inspect);
    }
}
