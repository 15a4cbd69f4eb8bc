//! `sandbox.mcp.advisories`: what happens to a server with an advisory.

use agentsh_base::words;

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::section::{Section, merge_keys, merge_list, rules_of};
use crate::sections::McpPolicy;
use crate::sections::detection::Severity;
use crate::types::RuleRef;

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

/// The policy in force, each key with its place if it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdvisoryPolicy {
    dependency: Option<Ruled<OnAdvisory>>,
    vendor: Option<Ruled<OnAdvisory>>,
    community: Option<Ruled<OnAdvisory>>,
    availability: Option<Ruled<OnAdvisory>>,
    block_from: Option<Ruled<Severity>>,
    /// Ids that are not reported.
    pub ignore: Vec<Ruled<String>>,
    /// Public keys whose holders sign deny lists.
    pub signers: Vec<Ruled<String>>,
    quorum: Option<Ruled<u64>>,
    max_error_rate: Option<Ruled<u64>>,
    /// The addresses that `agentsh advisories update` reads.
    pub sources: Vec<Ruled<String>>,
    pub status: Vec<Ruled<StatusFeed>>,
}

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
        self.block_from.as_ref().map_or(Severity::Low, |level| level.value)
    }

    /// Different signers that an entry of a deny list needs; at least one.
    #[must_use]
    pub fn quorum(&self) -> u64 {
        self.quorum.as_ref().map_or(QUORUM, |quorum| quorum.value)
    }

    /// Share of calls that may fail, in thousandths.
    #[must_use]
    pub fn max_error_rate(&self) -> u64 {
        self.max_error_rate.as_ref().map_or(MAX_ERROR_RATE, |rate| rate.value)
    }

    #[must_use]
    pub fn ignores(&self, id: &str) -> bool {
        self.ignore.iter().any(|known| known.value.eq_ignore_ascii_case(id))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advisories {
    written: AdvisoryPolicy,
    ignore: List<String>,
    signers: List<String>,
    sources: List<String>,
    status: List<StatusFeed>,
}

const ACTION: Kind = Kind::Word(&["block", "warn", "off"]);
const STATUS: &[Key] = keys! {
    /// A URL, or a path.
    "source": Kind::Text, example: "\"https://status.example/api/v2/summary.json\"";
    /// Names of the servers that depend on that service.
    "servers": Kind::List(&Kind::Text), example: "[search]";
};
const ADVISORIES: &[Key] = keys! {
    /// What happens to a server whose package, or one of its dependencies, has a known vulnerability (OSV) in this
    /// version. `block` does not start it.
    "dependency": ACTION, default: "warn", example: "block";
    /// What happens to such a server if the vulnerability is on the list of known exploited ones (KEV).
    "vendor": ACTION, default: "warn", example: "block";
    /// What happens to a server whose package or host is on deny lists that enough `signers` signed.
    "community": ACTION, default: "warn", example: "block";
    /// What happens to a server if more than `max_error_rate` of its calls of the last day failed, or its status page
    /// says that it is down.
    "availability": ACTION, default: "warn", example: "block";
    /// Lowest severity for `block`; anything below it is a warning.
    "block_from": Kind::Word(&["low", "medium", "high", "critical"]), default: "low", example: "high";
    /// Ids or aliases of advisories that agentsh ignores.
    "ignore": Kind::List(&Kind::Text), default: "none", example: "[GHSA-0000-0000-0000]";
    /// Public keys (minisign) of people whose deny lists apply.
    "signers": Kind::List(&Kind::Text), default: "none: deny lists are ignored",
        example: "[\"RWQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"]";
    /// How many different signers an entry of the deny lists needs.
    "quorum": Kind::Number(1, 100), default: "3", example: "2";
    /// Share of the calls of the last day that may fail.
    "max_error_rate": Kind::Share, default: "0.5", example: "0.2";
    /// Files, directories and URLs that `agentsh advisories update` reads: OSV records (also an `all.zip`), KEV lists,
    /// signed deny lists.
    "sources": Kind::List(&Kind::Text), default: "none", example: "[\"/srv/mirror/osv\"]";
    /// Status pages (`summary.json` of Statuspage) that `agentsh advisories update` reads.
    "status": Kind::List(&Kind::Map(STATUS)), default: "none",
        example: "[{source: \"https://status.example/api/v2/summary.json\", servers: [search]}]";
};

impl Section<McpPolicy> for Advisories {
    const KEYS: &'static [Key] = keys! {
        /// Security advisories about servers. agentsh uses what `agentsh advisories update` fetched, and makes no other
        /// request.
        "advisories": Kind::Map(ADVISORIES);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "advisories", ADVISORIES) else { return Self::default() };
        let action = |reader: &mut Reader<'_>, key: &str| reader.word(fields.find(key), OnAdvisory::WORDS);
        let written = AdvisoryPolicy {
            dependency: action(reader, "dependency"),
            vendor: action(reader, "vendor"),
            community: action(reader, "community"),
            availability: action(reader, "availability"),
            block_from: reader.word(fields.find("block_from"), Severity::WORDS),
            quorum: reader.number(fields.find("quorum"), 1, 100),
            max_error_rate: reader.share(fields.find("max_error_rate")),
            ..AdvisoryPolicy::default()
        };
        Self {
            written,
            ignore: reader.adding(fields.find("ignore"), Reader::text),
            signers: reader.adding(fields.find("signers"), signer),
            sources: reader.adding(fields.find("sources"), Reader::text),
            status: reader.adding(fields.find("status"), status),
        }
    }

    fn merge(&self, below: &mut McpPolicy) {
        let (own, below) = (&self.written, &mut below.advisories);
        merge_keys!(own => below; dependency, vendor, community, availability, block_from, quorum, max_error_rate);
        merge_list(&self.ignore, &mut below.ignore);
        merge_list(&self.signers, &mut below.signers);
        merge_list(&self.sources, &mut below.sources);
        merge_list(&self.status, &mut below.status);
    }

    /// Stricter words count; whom to believe is the user's choice.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let (own, before) = (&self.written, base.advisories.clone());
        let message = "fewer advisories apply with this file than without it";
        for kind in AdvisoryKind::ALL {
            narrowing.refuse_if(own.slot(kind), |value| *value < before.on(kind).value, message);
        }
        narrowing.refuse_if(&own.block_from, |value| *value > before.block_from(), message);
        narrowing.refuse_if(&own.quorum, |value| *value > before.quorum(), message);
        narrowing.refuse_if(&own.max_error_rate, |value| *value > before.max_error_rate(), message);
        let lists = rules_of!(self; ignore, signers, sources, status);
        narrowing.refuse_all(lists, "only the user decides whose advisories apply");
        let own = Self { written: self.written.clone(), ..Self::default() };
        own.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let own = &policy.advisories;
        let key = |key: &str| format!("{name}.advisories.{key}");
        for kind in AdvisoryKind::ALL {
            let on = own.on(kind);
            lines.add(&key(kind.as_str()), on.value.as_str(), &on.rule);
        }
        lines.list(&key("block_from"), &own.block_from, |level| level.as_str());
        lines.list(&key("quorum"), &own.quorum, ToString::to_string);
        let thousandths = |rate: &u64| format!("{}.{:03}", rate / 1000, rate % 1000);
        lines.list(&key("max_error_rate"), &own.max_error_rate, thousandths);
        lines.list(&key("ignore"), &own.ignore, Clone::clone);
        lines.list(&key("signers"), &own.signers, Clone::clone);
        lines.list(&key("sources"), &own.sources, Clone::clone);
        lines.list(&key("status"), &own.status, ToString::to_string);
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
