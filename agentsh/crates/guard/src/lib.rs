//! The decision engine for MCP messages: no I/O, no clock, no runtime; time is a parameter.

use agentsh_base::{json, types};
use agentsh_policy as policy;

pub mod anomaly;
pub mod checks;
pub mod content;
pub mod decision;
pub mod interface;
pub mod outline;
pub mod rate;
pub mod verdict;

mod guard;
mod hidden;

pub use agentsh_dlp::threads;
pub use decision::{
    Caller, Check, Decision, Finding, Offer, OffloadJob, Precompute, PrecomputeJob, PrecomputedFinding,
    PrecomputedFindings, Refusal, Report, Rewrite, Severity, Subject, SubjectKind, UsedEntry, remedy,
};
pub use guard::Guard;
pub use verdict::{Outcome, Reason, Verdict};
