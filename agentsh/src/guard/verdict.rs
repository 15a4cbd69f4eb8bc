//! A decision as a value: nothing downstream takes a `bool`.

use crate::types::RuleRef;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Allow,
    /// Goes through, and is recorded as something that a stricter policy would refuse.
    Alert,
    Block,
}

/// Why, as a stable code that scripts may match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    NoRule,
    ServerAllowed,
    ServerDenied,
    ServerNotAllowlisted,
    ToolAllowed,
    ToolDenied,
    ToolNotAllowlisted,
    UnknownTool,
    RateLimited,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    pub outcome: Outcome,
    pub reason: Reason,
    pub rule: RuleRef,
}

impl Outcome {
    /// As the event log and `--action` write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Alert => "alert",
            Self::Block => "block",
        }
    }
}

impl Reason {
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NoRule => "no-rule",
            Self::ServerAllowed => "server-allowed",
            Self::ServerDenied => "server-denied",
            Self::ServerNotAllowlisted => "server-not-allowlisted",
            Self::ToolAllowed => "tool-allowed",
            Self::ToolDenied => "tool-denied",
            Self::ToolNotAllowlisted => "tool-not-allowlisted",
            Self::UnknownTool => "unknown-tool",
            Self::RateLimited => "rate-limited",
        }
    }
}
