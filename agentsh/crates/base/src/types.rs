//! Names that all crates share. Plain data: nothing here reads a file, a clock or the environment.

use std::fmt;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// One `agentsh run`, `mcp run` or `proxy`: a UUID v7, so that ids sort by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub uuid::Uuid);

/// The name of an MCP server: the key under which the host's configuration lists it, never the name that
/// the server gives itself.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerId(pub String);

/// A tool of one server. A bare tool name is never a key: two servers may use the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ToolId {
    pub server: ServerId,
    pub tool: String,
}

/// Identity and version of a file as `stat` tells them. A change of content changes `ctime_ns`, which only root or
/// a wrong clock can prevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileKey {
    pub dev: u64,
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}

impl From<&std::fs::Metadata> for FileKey {
    fn from(found: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let nanoseconds =
            |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Self {
            dev: found.dev(),
            ino: found.ino(),
            size: found.len(),
            mtime_ns: nanoseconds(found.mtime(), found.mtime_nsec()),
            ctime_ns: nanoseconds(found.ctime(), found.ctime_nsec()),
        }
    }
}

impl FileKey {
    /// Whether the next change shows: what changed less than two seconds before may change once more within one tick of the clock
    /// of files.
    #[must_use]
    pub fn is_settled(&self, now: std::time::SystemTime) -> bool {
        const TICK: std::time::Duration = std::time::Duration::from_secs(2);
        let changed = std::time::Duration::from_nanos(u64::try_from(self.ctime_ns).unwrap_or(0));
        now.duration_since(std::time::SystemTime::UNIX_EPOCH + changed).is_ok_and(|since| since > TICK)
    }
}

/// The place of a rule, which every refusal shows.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleRef {
    /// Dotted path of the key, such as `sandbox.mcp.denied_tools[0]`.
    pub id: String,
    /// The policy file, or `built-in:NAME` for a built-in policy.
    pub file: String,
    /// Line of the key in that file, counted from 1; 0 for a default.
    pub line: u64,
}

impl RuleRef {
    /// A rule that is in force because no policy says otherwise.
    #[must_use]
    pub fn default_rule(id: &str) -> Self {
        Self { id: id.to_owned(), file: "default".to_owned(), line: 0 }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server, self.tool)
    }
}

/// `policy.yaml:12 (sandbox.mcp.denied_tools[0])`, or `default (id)`.
impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{} ({})", self.file, self.id)
        } else {
            write!(f, "{}:{} ({})", self.file, self.line, self.id)
        }
    }
}

/// An exit status for people: `3`, `134 (SIGABRT)`. A program could also exit with 134 by itself, but none does.
#[must_use]
pub fn exit_status(code: u8) -> String {
    let signal = code.checked_sub(128).and_then(|number| Signal::try_from(i32::from(number)).ok());
    match signal {
        Some(signal) => format!("{code} ({signal})"),
        None => code.to_string(),
    }
}
