//! `max_argument_bytes`: the maximum length of a tool argument.

use super::prelude::*;
use crate::units;

const MIN_LENGTH: u64 = 1;
/// No line is longer.
const MAX_COUNT: u64 = 1 << 30;

table! {
    /// What one file writes.
    struct Arguments;

    /// Longest argument of a tool call, in bytes of its JSON. A call with a longer one is refused.
    max_argument_bytes: One<u64> = Kind::Number(MIN_LENGTH, MAX_COUNT),
        default: "none: a call is as long as a message may be", example: "65536"
        => show |most| units::show_bytes(*most);
}

impl Section<McpPolicy> for Arguments {
    in_table! { McpPolicy [max_argument_bytes]: read merge describe }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let most = in_force(&base.max_argument_bytes, u64::MAX);
        let message = "this file would raise `max_argument_bytes`";
        narrowing.set(&self.max_argument_bytes, &mut base.max_argument_bytes, |own| *own > most, message);
    }
}
