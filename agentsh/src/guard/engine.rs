//! Everything that is decided about one MCP server and its tools, in one place.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::policy::{McpPolicy, RateLimits, Ruled};
use crate::types::ServerId;

use super::rate::Bucket;
use super::tool_policy::Tool;
use super::verdict::{Outcome, Reason, Verdict};
use super::{server_policy, tool_policy};

/// The decisions of one session. Lists are only advisory while the policy is not enforced; rate limits have a switch
/// of their own and always count.
#[derive(Clone, Debug)]
pub struct Guard {
    policy: McpPolicy,
    buckets: BTreeMap<ServerId, Bucket>,
}

impl Guard {
    #[must_use]
    pub fn new(policy: &McpPolicy) -> Self {
        Self { policy: policy.clone(), buckets: BTreeMap::new() }
    }

    /// May the server be started?
    pub fn judge_server(&self, server: &ServerId) -> Verdict {
        self.strictest(|layer| server_policy::judge(layer, server))
    }

    /// May the tool be seen in `tools/list`, and called as far as the lists say? Server first, then tool.
    pub fn judge_tool(&self, tool: Tool<'_>) -> Verdict {
        self.strictest(|layer| {
            let server = server_policy::judge(layer, tool.server);
            if server.is_block() {
                return server;
            }
            let verdict = tool_policy::judge(layer, tool);
            // The rule that names something is the one to show.
            if verdict.reason == Reason::NoRule && server.reason == Reason::ServerAllowed {
                server
            } else {
                verdict
            }
        })
    }

    /// Whether `tools/list` may show a tool with this definition.
    #[must_use]
    pub fn tool_visible(&self, server: &ServerId, name: &str, hash: &str) -> bool {
        !self.judge_tool(Tool { server, name, hash: Some(hash), listed: true }).is_block()
    }

    /// One call: server policy, tool policy, rate limit. `now` is time since any moment that is the same for all
    /// calls of the session.
    pub fn judge_call(
        &mut self,
        server: &ServerId,
        name: &str,
        hash: Option<&str>,
        listed: bool,
        now: Duration,
    ) -> Verdict {
        let verdict = self.judge_tool(Tool { server, name, hash, listed });
        if verdict.is_block() {
            return verdict;
        }
        let Some(limit) = rate_of(&self.policy.rate_limits, server) else { return verdict };
        let bucket = self.buckets.entry(server.clone()).or_insert_with(|| Bucket::new(limit.value, now));
        match bucket.take(now) {
            Ok(()) => verdict,
            Err(retry_after) => Verdict {
                outcome: Outcome::Block,
                reason: Reason::RateLimited,
                rule: limit.rule.clone(),
                retry_after,
            },
        }
    }

    /// The policy's own lists and those of every layer below it, each as far as it is enforced: the strictest verdict
    /// wins, of two that are equal the first.
    fn strictest(&self, judge: impl Fn(&McpPolicy) -> Verdict) -> Verdict {
        let mut strictest = as_enforced(&self.policy, judge(&self.policy));
        let mut below = self.policy.narrowed_by.as_deref();
        while let Some(layer) = below {
            let narrowed = as_enforced(layer, judge(layer));
            if weight(narrowed.outcome) > weight(strictest.outcome) {
                strictest = narrowed;
            }
            below = layer.narrowed_by.as_deref();
        }
        strictest
    }
}

fn as_enforced(layer: &McpPolicy, verdict: Verdict) -> Verdict {
    if layer.enforce || verdict.outcome != Outcome::Block {
        verdict
    } else {
        Verdict { outcome: Outcome::Alert, ..verdict }
    }
}

fn weight(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Allow => 0,
        Outcome::Alert => 1,
        Outcome::Block => 2,
    }
}

fn rate_of<'a>(limits: &'a RateLimits, server: &ServerId) -> Option<&'a Ruled<crate::policy::Rate>> {
    limits.per_server.get(server).or(limits.default.as_ref())
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
