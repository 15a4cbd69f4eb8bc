//! `max_line_bytes` and `request_timeout`: limits of messages.

use super::prelude::*;
use crate::units;

/// Longest line that `max_line_bytes` can ask for.
const MAX_LINE: u64 = 1 << 30;
const MIN_LINE: u64 = 1024;

table! {
    /// What one file writes.
    struct WireSettings;

    /// Longest message of a client or a server, in bytes.
    max_line_bytes: One<u64> = Kind::Number(MIN_LINE, MAX_LINE), default: "16777216", example: "1048576";
    /// How long a request may stay unanswered before it is cancelled; at least `1s`.
    request_timeout: One<u64> = Kind::Duration, default: "none: the client decides", example: "5m"
        => read timeout;
}

impl Section<McpPolicy> for WireSettings {
    const KEYS: &'static [Key] = Self::TABLE;

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        Table::read(reader, None, fields)
    }

    fn merge(&self, below: &mut McpPolicy) {
        if let Some(bytes) = &self.max_line_bytes {
            below.max_line_bytes = bytes.value;
            below.note("max_line_bytes", &bytes.rule);
        }
        if let Some(timeout) = &self.request_timeout {
            below.request_timeout_s = Some(timeout.value.div_ceil(1_000));
            below.note("request_timeout", &timeout.rule);
        }
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        if let Some(bytes) = self.max_line_bytes.as_ref().filter(|bytes| bytes.value > base.max_line_bytes) {
            narrowing.refuse(&bytes.rule, "this file would raise `max_line_bytes`");
        }
        if let Some(timeout) = &self.request_timeout
            && base.request_timeout_s.is_some_and(|in_force| timeout.value.div_ceil(1_000) > in_force)
        {
            narrowing.refuse(&timeout.rule, "this file would lengthen `request_timeout`");
        }
        Section::merge(self, base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let rule = policy.place_of("max_line_bytes");
        lines.add(&format!("{name}.max_line_bytes"), units::show_bytes(policy.max_line_bytes), &rule);
        if let Some(seconds) = policy.request_timeout_s {
            let rule = policy.place_of("request_timeout");
            lines.add(&format!("{name}.request_timeout"), format!("{seconds}s"), &rule);
        }
    }
}

fn timeout(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u64> {
    let duration = reader.milliseconds(here)?;
    if duration < 1_000 {
        let rule = reader.rule(here);
        reader.problem_of_rule(&rule, "a request needs at least `1s`", None);
        return None;
    }
    Some(duration)
}
