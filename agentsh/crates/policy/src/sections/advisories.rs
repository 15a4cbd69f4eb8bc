//! `sandbox.mcp.advisories`: what happens to a server with an advisory.

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::section::{Section, merge_key, merge_list};
use crate::sections::McpPolicy;
use crate::sections::detection::{SEVERITIES, Severity};
use crate::types::RuleRef;

/// The outcome for a server with an advisory. From the mildest to the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnAdvisory {
    /// Not compared.
    Off,
    /// It runs, with a warning.
    Warn,
    /// The server is not started.
    Block,
}

impl OnAdvisory {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Block => "block",
        }
    }
}

/// The kind of an advisory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdvisoryKind {
    /// A record about the version of a package that runs.
    Dependency,
    /// A list of what is known to be attacked.
    Vendor,
    /// Lists that several people signed.
    Community,
    /// A server that often fails, or whose operator says that it does.
    Availability,
}

impl AdvisoryKind {
    pub const ALL: [Self; 4] = [Self::Dependency, Self::Vendor, Self::Community, Self::Availability];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dependency => "dependency",
            Self::Vendor => "vendor",
            Self::Community => "community",
            Self::Availability => "availability",
        }
    }
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

const WORDS: [(&str, OnAdvisory); 3] =
    [("off", OnAdvisory::Off), ("warn", OnAdvisory::Warn), ("block", OnAdvisory::Block)];

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
        let Some(fields) = fields.find("advisories").and_then(|here| reader.map(&here, ADVISORIES)) else {
            return Self::default();
        };
        let action = |reader: &mut Reader<'_>, key: &str| reader.word(fields.find(key), &WORDS);
        let written = AdvisoryPolicy {
            dependency: action(reader, "dependency"),
            vendor: action(reader, "vendor"),
            community: action(reader, "community"),
            availability: action(reader, "availability"),
            block_from: reader.word(fields.find("block_from"), &SEVERITIES),
            quorum: reader.number(fields.find("quorum"), 1, 100),
            max_error_rate: reader.share(fields.find("max_error_rate")),
            ..AdvisoryPolicy::default()
        };
        Self {
            written,
            ignore: reader.adding(fields.find("ignore"), |reader, here| reader.text(here)),
            signers: reader.adding(fields.find("signers"), signer),
            sources: reader.adding(fields.find("sources"), |reader, here| reader.text(here)),
            status: reader.adding(fields.find("status"), status),
        }
    }

    fn merge(&self, below: &mut McpPolicy) {
        let (own, below) = (&self.written, &mut below.advisories);
        merge_key(&own.dependency, &mut below.dependency);
        merge_key(&own.vendor, &mut below.vendor);
        merge_key(&own.community, &mut below.community);
        merge_key(&own.availability, &mut below.availability);
        merge_key(&own.block_from, &mut below.block_from);
        merge_key(&own.quorum, &mut below.quorum);
        merge_key(&own.max_error_rate, &mut below.max_error_rate);
        merge_list(&self.ignore, &mut below.ignore);
        merge_list(&self.signers, &mut below.signers);
        merge_list(&self.sources, &mut below.sources);
        merge_list(&self.status, &mut below.status);
    }

    /// Stricter words count; whom to believe is the user's choice.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        for kind in AdvisoryKind::ALL {
            if let Some(written) = self.written.slot(kind)
                && written.value < base.advisories.on(kind).value
            {
                narrowing.refuse(&written.rule, "fewer advisories apply with this file than without it");
            }
        }
        let later = self.written.block_from.as_ref().filter(|own| own.value > base.advisories.block_from());
        let more = self.written.quorum.as_ref().filter(|own| own.value > base.advisories.quorum());
        let worse =
            self.written.max_error_rate.as_ref().filter(|own| own.value > base.advisories.max_error_rate());
        let laxer = [later.map(|own| &own.rule), more.map(|own| &own.rule), worse.map(|own| &own.rule)];
        for rule in laxer.into_iter().flatten() {
            narrowing.refuse(rule, "fewer advisories apply with this file than without it");
        }
        let lists = [
            self.ignore.as_ref().map(|list| &list.rule),
            self.signers.as_ref().map(|list| &list.rule),
            self.sources.as_ref().map(|list| &list.rule),
            self.status.as_ref().map(|list| &list.rule),
        ];
        for rule in lists.into_iter().flatten() {
            narrowing.refuse(rule, "only the user decides whose advisories apply");
        }
        let own = Self { written: self.written.clone(), ..Self::default() };
        own.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let own = &policy.advisories;
        for kind in AdvisoryKind::ALL {
            let on = own.on(kind);
            lines.add(&format!("{name}.advisories.{}", kind.as_str()), on.value.as_str(), &on.rule);
        }
        if let Some(level) = &own.block_from {
            let word = level.value.as_str();
            lines.add(&format!("{name}.advisories.block_from"), word, &level.rule);
        }
        if let Some(quorum) = &own.quorum {
            lines.add(&format!("{name}.advisories.quorum"), quorum.value.to_string(), &quorum.rule);
        }
        if let Some(rate) = &own.max_error_rate {
            let shown = format!("{}.{:03}", rate.value / 1000, rate.value % 1000);
            lines.add(&format!("{name}.advisories.max_error_rate"), shown, &rate.rule);
        }
        lines.list(&format!("{name}.advisories.ignore"), &own.ignore, Clone::clone);
        lines.list(&format!("{name}.advisories.signers"), &own.signers, Clone::clone);
        lines.list(&format!("{name}.advisories.sources"), &own.sources, Clone::clone);
        lines.list(&format!("{name}.advisories.status"), &own.status, ToString::to_string);
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
    let servers = reader.list(fields.find("servers"), |reader, here| reader.text(here));
    let servers: Vec<String> =
        servers.into_iter().flat_map(|list| list.value).map(|entry| entry.value).collect();
    let Some(source) = fields.find("source").and_then(|here| reader.text(&here)) else {
        return reader.fault(here, "a status page has a `source`", None);
    };
    if servers.is_empty() {
        return reader.fault(here, "this status page is about no server", "add `servers: [ID]`");
    }
    Some(StatusFeed { source, servers })
}
