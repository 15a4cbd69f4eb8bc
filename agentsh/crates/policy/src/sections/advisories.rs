//! `sandbox.mcp.advisories`: what happens to a server with an advisory.

use super::detection::Severity;
use super::prelude::*;

words! {
    /// The outcome for a server with an advisory. From the mildest to the strictest.
    #[derive(PartialOrd, Ord)]
    pub enum OnAdvisory {
        /// Not compared.
        Off = "off",
        /// It runs, with a warning.
        Warn = "warn",
        /// The server is not started.
        Block = "block",
    }
}

words! {
    /// The kind of an advisory.
    #[derive(PartialOrd, Ord)]
    pub enum AdvisoryKind {
        /// A record about the version of a package that runs.
        Dependency = "dependency",
        /// A list of what is known to be attacked.
        Vendor = "vendor",
        /// Lists that several people signed.
        Community = "community",
        /// A server that often fails, or whose operator says that it does.
        Availability = "availability",
    }
}

impl AdvisoryKind {
    pub const ALL: [Self; 4] = [Self::Dependency, Self::Vendor, Self::Community, Self::Availability];
}

/// A page that says how a service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFeed {
    /// A URL, or a file.
    pub source: String,
    /// The servers that are on that service.
    pub servers: Vec<String>,
}

impl std::fmt::Display for StatusFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {}", self.source, self.servers.join(", "))
    }
}

word_values!(OnAdvisory, Severity);

/// Different signers that a deny list's entry needs.
const QUORUM: u64 = 3;
/// The rate of failing calls, in thousandths.
const MAX_ERROR_RATE: u64 = 500;

impl AdvisoryPolicy {
    /// The outcome for a server with this kind of advisory, and its rule.
    #[must_use]
    pub fn on(&self, kind: AdvisoryKind) -> Ruled<OnAdvisory> {
        let written = self.slot(kind).clone();
        let id = format!("sandbox.mcp.advisories.{}", kind.as_str());
        written.unwrap_or_else(|| Ruled { value: OnAdvisory::Warn, rule: RuleRef::default_rule(&id) })
    }

    fn slot(&self, kind: AdvisoryKind) -> &Option<Ruled<OnAdvisory>> {
        match kind {
            AdvisoryKind::Dependency => &self.dependency,
            AdvisoryKind::Vendor => &self.vendor,
            AdvisoryKind::Community => &self.community,
            AdvisoryKind::Availability => &self.availability,
        }
    }

    /// `block` refuses from here on; what is less bad is a warning.
    #[must_use]
    pub fn block_from(&self) -> Severity {
        in_force(&self.block_from, Severity::Low)
    }

    /// Different signers that an entry of a deny list needs; at least one.
    #[must_use]
    pub fn quorum(&self) -> u64 {
        in_force(&self.quorum, QUORUM)
    }

    /// Share of calls that may fail, in thousandths.
    #[must_use]
    pub fn max_error_rate(&self) -> u64 {
        in_force(&self.max_error_rate, MAX_ERROR_RATE)
    }

    #[must_use]
    pub fn ignores(&self, id: &str) -> bool {
        self.ignore.iter().any(|known| known.value.eq_ignore_ascii_case(id))
    }
}

const ACTION: Kind = Kind::Word(&["block", "warn", "off"]);
const STATUS: &[Key] = keys! {
    /// A URL, or a path.
    "source": Kind::Text, example: "\"https://status.example/api/v2/summary.json\"";
    /// Names of the servers that depend on that service.
    "servers": Kind::List(&Kind::Text), example: "[search]";
};
table! {
    /// The policy in force, each key with its place if it was written.
    struct AdvisoryPolicy;

    /// What happens to a server whose package, or one of its dependencies, has a known vulnerability (OSV) in this
    /// version. `block` does not start it.
    dependency: One<OnAdvisory> = ACTION, default: "warn", example: "block";
    /// What happens to such a server if the vulnerability is on the list of known exploited ones (KEV).
    vendor: One<OnAdvisory> = ACTION, default: "warn", example: "block";
    /// What happens to a server whose package or host is on deny lists that enough `signers` signed.
    community: One<OnAdvisory> = ACTION, default: "warn", example: "block";
    /// What happens to a server if more than `max_error_rate` of its calls of the last day failed, or its status page
    /// says that it is down.
    availability: One<OnAdvisory> = ACTION, default: "warn", example: "block";
    /// Lowest severity for `block`; anything below it is a warning.
    block_from: One<Severity> = Kind::Word(&["low", "medium", "high", "critical"]), default: "low",
        example: "high";
    /// Ids or aliases of advisories that agentsh ignores.
    pub ignore: Entries<String> = Kind::List(&Kind::Text), default: "none", example: "[GHSA-0000-0000-0000]";
    /// Public keys (minisign) of people whose deny lists apply.
    pub signers: Entries<String> = Kind::List(&Kind::Text), default: "none: deny lists are ignored",
        example: "[\"RWQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"]" => read signer;
    /// How many different signers an entry of the deny lists needs.
    quorum: One<u64> = Kind::Number(1, 100), default: "3", example: "2";
    /// Share of the calls of the last day that may fail.
    max_error_rate: One<u64> = Kind::Share, default: "0.5", example: "0.2"
        => show |rate| format!("{}.{:03}", rate / 1000, rate % 1000);
    /// Files, directories and URLs that `agentsh advisories update` reads: OSV records (also an `all.zip`), KEV lists,
    /// signed deny lists.
    pub sources: Entries<String> = Kind::List(&Kind::Text), default: "none", example: "[\"/srv/mirror/osv\"]";
    /// Status pages (`summary.json` of Statuspage) that `agentsh advisories update` reads.
    pub status: Entries<StatusFeed> = Kind::List(&Kind::Map(STATUS)), default: "none",
        example: "[{source: \"https://status.example/api/v2/summary.json\", servers: [search]}]"
        => read status => show ToString::to_string;
}

impl Section<McpPolicy> for AdvisoryPolicy {
    const KEYS: &'static [Key] = keys! {
        /// Security advisories about servers. agentsh uses what `agentsh advisories update` fetched, and makes no other
        /// request.
        "advisories": Kind::Map(Self::TABLE);
    };

    in_table! { McpPolicy (advisories): read merge }

    /// Stricter words count; whom to believe is the user's choice.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let (before, message) = (&base.advisories, "fewer advisories apply with this file than without it");
        for kind in AdvisoryKind::ALL {
            narrowing.refuse_if(self.slot(kind), |value| *value < before.on(kind).value, message);
        }
        narrowing.refuse_if(&self.block_from, |value| *value > before.block_from(), message);
        narrowing.refuse_if(&self.quorum, |value| *value > before.quorum(), message);
        narrowing.refuse_if(&self.max_error_rate, |value| *value > before.max_error_rate(), message);
        let lists = rules_of!(self; ignore, signers, sources, status);
        narrowing.refuse_all(lists, "only the user decides whose advisories apply");
        Section::merge(self, base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let own = &policy.advisories;
        let name = format!("{name}.advisories");
        for kind in AdvisoryKind::ALL {
            let on = own.on(kind);
            lines.add(&format!("{name}.{}", kind.as_str()), on.value.as_str(), &on.rule);
        }
        let others = ["block_from", "quorum", "max_error_rate", "ignore", "signers", "sources", "status"];
        own.describe_keys(&others, &name, lines);
    }
}

/// The form alone; whether it is a key shows when a list is verified with it.
fn signer(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let key = reader.text(here)?;
    let is_base64 = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    if key.len() != 56 || !key.starts_with("RW") || !is_base64 {
        let help = "write the second line of a minisign public key: 56 characters that begin with `RW`";
        return reader.fault(here, "this is not a public key of minisign", help);
    }
    Some(key)
}

fn status(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<StatusFeed> {
    let fields = reader.map(here, STATUS)?;
    let servers = reader.texts(fields.find("servers"));
    let Some(source) = fields.find("source").and_then(|here| reader.text(&here)) else {
        return reader.fault(here, "missing key `source`", None);
    };
    if servers.is_empty() {
        return reader.fault(here, "this status page is about no server", "add `servers: [ID]`");
    }
    Some(StatusFeed { source, servers })
}
