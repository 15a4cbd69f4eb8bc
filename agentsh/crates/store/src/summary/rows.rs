//! The lines of a [`Summary`](super::Summary), one struct for each list.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use crate::types::{RuleRef, ServerId};
use crate::words::{
    Action, AdvisorySource, BundleState, ExitCause, ForgotReason, LayerState, Sender, Severity,
};

/// Maximum number of different entries of one kind. Further ones are counted as not listed: untrusted processes make
/// up names, and a summary must not grow with them.
pub(super) const MAX_ENTRIES: usize = 500;

/// Serialised as the list of its values, ordered by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries<K, V>(BTreeMap<K, V>);

impl<K: Ord, V> Entries<K, V> {
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.0.values()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut()
    }

    pub(super) fn find(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// The entry of `key`, made when there is room for it; otherwise it is counted in `lost`.
    pub(super) fn put(&mut self, key: K, lost: &mut u64, make: impl FnOnce() -> V) -> Option<&mut V> {
        if self.0.len() >= MAX_ENTRIES && !self.0.contains_key(&key) {
            *lost += 1;
            return None;
        }
        Some(self.0.entry(key).or_insert_with(make))
    }
}

impl<K, V> Default for Entries<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K, V: Serialize> Serialize for Entries<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.values())
    }
}

/// Results that are not remembered, or not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Forgotten {
    pub server_id: Option<ServerId>,
    pub reason: ForgotReason,
    pub results: u64,
    pub detail: String,
}

/// One program of one sandbox; `server_id` is null for the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    pub server_id: Option<ServerId>,
    pub program: String,
    pub hash: String,
    pub starts: u64,
    pub last_exit_code: Option<u8>,
    pub last_cause: Option<ExitCause>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolCalls {
    pub server_id: ServerId,
    pub tool_name: String,
    pub allowed: u64,
    pub alerted: u64,
    pub blocked: u64,
    /// Allowed and alerted calls that never reached the server.
    pub undelivered: u64,
}

/// Something that was refused, and the rule that refused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// `call`, `server`, or `message`: a result or request of a server that was withheld.
    pub what: &'static str,
    pub server_id: ServerId,
    pub tool_name: Option<String>,
    pub reason: String,
    pub detail: Option<String>,
    pub rule: RuleRef,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    pub server_id: Option<ServerId>,
    pub layer: String,
    pub asked: String,
    pub got: String,
    pub state: LayerState,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rejected {
    pub server_id: ServerId,
    pub from: Sender,
    pub reason: String,
    /// Details of the last one.
    pub detail: String,
    pub count: u64,
    /// How often each detail came: of the first few different ones.
    pub details: BTreeMap<String, u64>,
}

/// Data that went, or would have gone, from one server to another, or to a host that is not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowRow {
    /// None: a host that is not listed.
    pub from: Option<ServerId>,
    pub to: ServerId,
    /// The host, if the row is about one.
    pub host: Option<String>,
    /// Calls that carried a copy of it.
    pub copies: u64,
    /// Calls after something was read, with no copy in them.
    pub without_copy: u64,
    pub passed: u64,
    pub refused: u64,
    /// Details of the last call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    pub server_id: ServerId,
    pub binary_path: String,
    pub expected_hash: String,
    pub actual_hash: String,
    pub action: Action,
    pub changed: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Crashes {
    pub server_id: ServerId,
    pub last_exit_code: u8,
    pub pending_calls: usize,
    pub count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    pub server_id: ServerId,
    pub method: String,
    pub count: u64,
}

/// Calls that were allowed and never reached their server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undelivered {
    pub server_id: ServerId,
    pub calls: u64,
    /// Why the last one did not.
    pub detail: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RemovedVariables {
    pub server_id: Option<ServerId>,
    pub names: BTreeSet<String>,
}

/// A server with advisories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdvisoryRow {
    pub server_id: ServerId,
    pub kind: AdvisorySource,
    pub id: String,
    pub subject: String,
    pub severity: Severity,
    pub summary: String,
    pub fixed: Option<String>,
    pub action: Action,
    pub rule: RuleRef,
}

/// Texts that could not be classified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unclassified {
    pub server_id: ServerId,
    pub action: Action,
    /// Why the last one could not.
    pub detail: String,
    pub count: u64,
}

/// Answers of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answers {
    pub model: String,
    pub count: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The cost of answers with a known price, in millionths of a dollar.
    pub cost_micro_usd: u64,
    /// Answers whose price is not known.
    pub unpriced: u64,
}

/// Requests to a model, and its answers, that were withheld for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Withheld {
    pub reason: String,
    pub count: u64,
}

/// A signed policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bundle {
    pub name: String,
    pub version: Option<u64>,
    pub state: BundleState,
    pub detail: String,
}

/// Connections to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Connections {
    pub server_id: Option<ServerId>,
    /// A name, or an address that policy names as such.
    pub host: String,
    pub port: u16,
    pub protocol: String,
    pub rule: RuleRef,
    pub closed: u64,
    pub failed: u64,
    /// Why the last one failed.
    pub detail: String,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// A file or a system call that was refused: once for each program, or path, and purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedInside {
    pub server_id: Option<ServerId>,
    /// The path, or the program.
    pub subject: String,
    /// The requested access.
    pub access: String,
    /// Why, where the rule does not say it.
    pub detail: String,
    pub rule: RuleRef,
    /// The piece of policy that would allow it.
    pub change: Option<String>,
}

/// A destination that was refused: a connection, or a name that was looked up (port 0).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedConnection {
    pub server_id: Option<ServerId>,
    pub host: String,
    pub port: u16,
    pub reason: String,
    pub detail: String,
    pub rule: RuleRef,
    /// The piece of policy that would allow it.
    pub change: Option<String>,
    pub count: u64,
}

impl RefusedConnection {
    /// A program that connects to `localhost` tries both addresses.
    #[must_use]
    pub(crate) fn shown_host(&self) -> &str {
        if self.reason == "loopback-port-not-open" { "localhost" } else { &self.host }
    }

    /// The agent contacts the host by itself, for telemetry or updates.
    pub(crate) fn is_background(&self) -> bool {
        self.reason == "telemetry-or-update"
    }
}
