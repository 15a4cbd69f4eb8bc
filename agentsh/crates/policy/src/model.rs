//! The resolved policy: immutable, ordered plain data; every entry has its place.

use std::collections::BTreeMap;

use agentsh_base::words;
use ipnet::IpNet;
use sha2::{Digest, Sha256};

use crate::sections::{ProcessPolicy, RawProcess};
use crate::table::Entries;
use crate::types::{RuleRef, ServerId};

/// One file that the policy is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenLayer {
    /// The name of the layer: `user`, `project`.
    pub word: &'static str,
    /// `sha256:` of the text.
    pub hash: String,
}

impl WrittenLayer {
    pub(crate) fn new(word: &'static str, text: &str) -> Self {
        let digest = Sha256::digest(text);
        Self {
            word,
            hash: digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}")),
        }
    }
}

/// A value and the rule that sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruled<T> {
    pub value: T,
    pub rule: RuleRef,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkPolicy {
    pub allow: Vec<Ruled<NetworkRule>>,
    /// Ports of the host's own loopback that are opened by number.
    pub loopback: Vec<Ruled<u16>>,
    /// None: the proxy of the user's environment.
    pub proxy: Option<Ruled<ProxyChoice>>,
    /// Whether a person is asked about a host that no rule names; None: where one can answer.
    pub unknown: Option<Ruled<bool>>,
    /// Hosts and ports that no rule opens.
    pub shut: Vec<Ruled<(crate::domain::Host, u16)>>,
}

/// The proxy for connections that leave this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyChoice {
    /// None, even if the environment names some.
    Off,
    /// The one of HTTPS_PROXY and NO_PROXY.
    Environment,
    /// This one. It may hold a password.
    Url(String),
}

impl std::fmt::Display for ProxyChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Environment => f.write_str("environment"),
            Self::Url(url) => {
                let shown = url.rsplit_once('@').map_or(url.as_str(), |(_, host)| host);
                f.write_str(shown)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkRule {
    pub host: HostPattern,
    /// Empty means 443 and 80.
    pub ports: Vec<u16>,
    /// `protocol: tcp`: anything over TCP, without the TLS and HTTP name checks.
    pub any_tcp: bool,
    /// `inspect: true`: TLS ends at agentsh, so that single requests can be judged.
    pub inspect: bool,
    /// `allow`: the requests that are let through. Empty means every request. Only with `inspect`.
    pub requests: Vec<Ruled<RequestRule>>,
    /// `addresses`: blocks of addresses that are not public and that this name may nevertheless resolve to.
    pub addresses: Vec<Ruled<IpNet>>,
}

/// One entry of a rule's `allow`: `GET /repos/**`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRule {
    /// Glob of names over the method: `GET`, `*`.
    pub method: String,
    /// Glob over the components of the path: `*` stays inside one, `**` is any number of them.
    pub path: String,
    /// No more than git's own fetch says: see [`RequestRule::git_fetch`].
    pub is_git_fetch: bool,
}

/// Matching is on labels, never on substrings. Lower-case, IDNA-mapped, no trailing dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// `example.com`
    Exact(String),
    /// `*.example.com`: exactly one more label. Holds `example.com`.
    OneLabel(String),
    /// `**.example.com`: one label or more. Holds `example.com`.
    AnyDepth(String),
    /// An address or a CIDR block written as such: network address and prefix length.
    Net(std::net::IpAddr, u8),
}

/// `env_allow`, `env_deny`, `env_inherit`, as documented.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvPolicy {
    pub allow: Vec<Ruled<String>>,
    pub deny: Vec<Ruled<String>>,
    /// Variables in no list pass, except the loader variables: `env_inherit: all`, or a deny list alone.
    pub others: bool,
    /// The place where `env_inherit` was written.
    pub inherit_rule: Option<RuleRef>,
    /// Never passed, whatever `allow` says: a layer above removes it.
    pub never: Vec<Ruled<String>>,
}

words! {
    #[derive(Default)]
    pub enum ListMode {
        #[default]
        None = "none",
        Allowlist = "allowlist",
        Denylist = "denylist",
    }
}

/// All three fields must match. `server` and `tool` are globs (`*`, `?`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRule {
    pub server: String,
    pub tool: String,
    /// `sha256:` + 64 hex digits of the tool's canonical definition.
    pub content_hash: Option<String>,
}

/// `sandbox.mcp.exfiltration`: data of one server in calls of another one.
#[derive(Clone, Debug, PartialEq)]
pub struct ExfiltrationPolicy {
    /// Whether `run` and `mcp run` look into arguments and results. `proxy` always does.
    pub enabled: bool,
    /// The outcome of a call with a finding.
    pub on_detection: OnFlow,
    /// The outcome of an external call after a private read, with or without a match. None: one alert for each pair of
    /// servers.
    pub on_private_to_external: Option<Ruled<OnFlow>>,
    /// Pairs of servers between which data may go.
    pub allow: Entries<FlowPair>,
    /// Rules between some servers instead of `on_private_to_external`.
    pub pairs: Entries<FlowRule>,
    /// Refused flows from one server to another until nothing goes between them any more without a person.
    pub close_after: Option<Ruled<u64>>,
    /// The outcome for unreadable bytes. None: an alert.
    pub on_opaque: Option<Ruled<OnFlow>>,
    /// The place of the invisible marker in the prose of results. None: agentsh changes no result.
    pub marker: Option<MarkerPlace>,
    /// Hosts that arguments may name; None: every host that the server's network rules allow.
    pub allowed_domains: Option<Ruled<Vec<Ruled<NetworkRule>>>>,
    pub rule: RuleRef,
    /// The place where each key was written.
    pub written: BTreeMap<&'static str, RuleRef>,
}

words! {
    /// The outcome of a flow.
    pub enum OnFlow {
        Allow = "allow",
        Alert = "alert",
        Ask = "ask",
        Block = "block",
    }
}

/// Source (results) and target (arguments) of a flow, each a pattern of server names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPair {
    pub from: String,
    pub to: String,
}

impl std::fmt::Display for FlowPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}

impl FlowPair {
    #[must_use]
    pub fn names(&self, from: &str, to: &str) -> bool {
        super::glob::matches(&self.from, from) && super::glob::matches(&self.to, to)
    }
}

/// The rule between the servers of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    pub pair: FlowPair,
    /// None: the action of the section.
    pub action: Option<OnFlow>,
    /// Texts that may go in any case.
    pub values: Vec<String>,
}

impl std::fmt::Display for FlowRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pair.fmt(f)?;
        if let Some(action) = self.action {
            write!(f, ": {}", action.as_str())?;
        }
        if !self.values.is_empty() {
            write!(f, ", values {}", self.values.join(", "))?;
        }
        Ok(())
    }
}

/// Flows that are refused before a pair of servers is closed.
pub const CLOSE_AFTER: u64 = 3;

impl ExfiltrationPolicy {
    /// Some layer wrote the section.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.rule.line > 0
    }

    /// The outcome of a finding in `run` and `mcp run`: an alert, unless the section is written.
    #[must_use]
    pub fn in_run(&self) -> OnFlow {
        if self.is_written() { self.on_detection } else { OnFlow::Alert }
    }

    /// The marker in `run` and `mcp run`: none, unless the section is written.
    #[must_use]
    pub fn marker_in_run(&self) -> Option<MarkerPlace> {
        self.marker.filter(|_| self.is_written())
    }

    /// The entry that lets data go from one server to another.
    #[must_use]
    pub fn allows(&self, from: &str, to: &str) -> Option<&RuleRef> {
        self.allow.iter().find(|entry| entry.value.names(from, to)).map(|entry| &entry.rule)
    }

    /// The written outcome of an external call after a private read: for the two servers, else for all.
    #[must_use]
    pub fn on_flow(&self, from: &str, to: &str) -> Option<(OnFlow, &RuleRef)> {
        let of_pair = self.pairs.iter().filter(|entry| entry.value.pair.names(from, to));
        let mut written = of_pair.filter_map(|entry| Some((entry.value.action?, &entry.rule)));
        let section = || self.on_private_to_external.as_ref().map(|action| (action.value, &action.rule));
        written.next().or_else(section)
    }

    /// Texts that may go from one server to the other in any case.
    pub fn values<'p>(&'p self, from: &str, to: &str) -> impl Iterator<Item = &'p str> {
        let of_pair = self.pairs.iter().filter(move |entry| entry.value.pair.names(from, to));
        of_pair.flat_map(|entry| &entry.value.values).map(String::as_str)
    }
}

/// The place of the marker in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerPlace {
    Suffix,
    Prefix,
    Both,
    /// After a word that is chosen at random each time.
    Between,
}

words! {
    /// The label of a server's results.
    pub enum DataSource {
        /// May be seen by this user only.
        Private = "private",
        /// Its prose and code may be shared, its secrets and personal data may not.
        Shareable = "shareable",
        /// Everybody can read it.
        Public = "public",
    }
}

/// The destination of a server's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSink {
    /// Stays on this machine.
    Local,
    /// The data goes back only to the origin of the server's own results. Known for some packages; policies cannot
    /// set it.
    SameOrigin,
    /// Leaves.
    External,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinning {
    pub enabled: bool,
    pub on_change: OnChange,
    pub auto_trust_first: bool,
    pub pin_binary: bool,
    /// The outcome of calling a tool that its server did not list.
    pub unlisted: OnChange,
    /// Members of a definition that may change, as JSON pointers.
    pub ignore: Vec<String>,
    /// Further ones, of single servers.
    pub ignore_in: Vec<IgnoredIn>,
    /// The section, for what a refusal points to.
    pub rule: RuleRef,
    /// The place where each key was written.
    pub written: BTreeMap<&'static str, RuleRef>,
}

/// Members of the definitions of some entries that may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredIn {
    /// Patterns of names.
    pub server: String,
    pub name: String,
    /// JSON pointers.
    pub members: Vec<String>,
}

impl Pinning {
    /// The members of an entry that may change, as JSON pointers.
    #[must_use]
    pub fn ignored(&self, server: &str, name: &str) -> Vec<String> {
        let fits = |one: &&IgnoredIn| {
            crate::glob::matches(&one.server, server) && crate::glob::matches(&one.name, name)
        };
        let of_this = self.ignore_in.iter().filter(fits).flat_map(|one| &one.members);
        self.ignore.iter().chain(of_this).cloned().collect()
    }
}

words! {
    /// The outcome for something that changed. Strictest first.
    #[derive(PartialOrd, Ord)]
    pub enum OnChange {
        Block = "block",
        /// The entry is shown, and a person is asked about every use.
        Ask = "ask",
        Alert = "alert",
        Allow = "allow",
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    pub default: Option<Ruled<Rate>>,
    pub per_server: BTreeMap<ServerId, Ruled<Rate>>,
    /// Limits that are written and not in force.
    pub switched_off: Option<RuleRef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub calls_per_minute: u32,
    pub burst: u32,
}

/// One entry of `sandbox.mcp.servers`: it adds a server or overrides the one of that id.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerPolicy {
    pub rule: RuleRef,
    /// None: only the limits and grants of a server that the host's configuration declares.
    pub command: Option<String>,
    pub args: Vec<String>,
    /// The URL, instead of a command.
    pub url: Option<Ruled<String>>,
    /// Sent to it, with variables of the user's environment as `${NAME}`: the session fills them in.
    pub headers: BTreeMap<String, String>,
    pub env: BTreeMap<String, String>,
    /// `install_scripts`: whether scripts of its packages may run when they are fetched; None: as the profile says.
    pub install_scripts: Option<Ruled<bool>>,
    /// `flow`: these win over a profile and over what is known of a package.
    pub source: Option<Ruled<DataSource>>,
    pub sink: Option<Ruled<DataSink>>,
    pub process: ProcessPolicy,
    /// The layers' entries for `process`, lowest first: merged over a profile once that is known.
    pub own: Vec<RawProcess>,
    /// The layers that only restrict this server: the project's policy, and layers whose section an organisation locks.
    /// `process` is narrowed by all of them already; a profile is narrowed later.
    pub narrowing: Vec<RawProcess>,
}

/// One entry of `tests:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTest {
    pub rule: RuleRef,
    pub question: Question,
    /// None: the agent.
    pub from: Option<ServerId>,
    pub expect_allow: bool,
}

/// The questions of `policy explain` and `tests:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// `host:port`
    Connect(String, u16),
    Read(String),
    Write(String),
    Exec(String),
    Env(String),
    /// Server glob is `from`; the value is the tool's name.
    Tool(String),
}

impl Default for ExfiltrationPolicy {
    /// On, and strict where the section is written or `proxy` runs.
    fn default() -> Self {
        Self {
            enabled: true,
            on_detection: OnFlow::Block,
            on_private_to_external: None,
            allow: Entries::default(),
            pairs: Entries::default(),
            close_after: None,
            on_opaque: None,
            marker: Some(MarkerPlace::Suffix),
            allowed_domains: None,
            rule: RuleRef::default_rule("sandbox.mcp.exfiltration"),
            written: BTreeMap::new(),
        }
    }
}

impl Default for Pinning {
    /// An empty policy still pins the programs that it runs: trust on first use, stop on change.
    fn default() -> Self {
        Self {
            enabled: true,
            on_change: OnChange::Block,
            auto_trust_first: true,
            pin_binary: true,
            unlisted: OnChange::Block,
            ignore: Vec::new(),
            ignore_in: Vec::new(),
            rule: RuleRef::default_rule("sandbox.mcp.version_pinning"),
            written: BTreeMap::new(),
        }
    }
}
