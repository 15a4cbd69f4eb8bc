//! `max_argument_bytes`: the maximum length of a tool argument.

use super::prelude::*;
use crate::units;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    pub most_bytes: Option<Ruled<u64>>,
}

const MIN_LENGTH: u64 = 1;
/// No line is longer.
const MAX_COUNT: u64 = 1 << 30;

impl Section<McpPolicy> for Arguments {
    const KEYS: &'static [Key] = keys! {
        /// Longest argument of a tool call, in bytes of its JSON. A call with a longer one is refused.
        "max_argument_bytes": Kind::Number(MIN_LENGTH, MAX_COUNT),
            default: "none: a call is as long as a message may be", example: "65536";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        Self { most_bytes: reader.number(fields.find("max_argument_bytes"), MIN_LENGTH, MAX_COUNT) }
    }

    fn merge(&self, below: &mut McpPolicy) {
        merge_key(&self.most_bytes, &mut below.max_argument_bytes);
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let in_force = base.max_argument_bytes.as_ref().map(|most| most.value);
        match &self.most_bytes {
            Some(own) if in_force.is_some_and(|most| own.value > most) => {
                narrowing.refuse(&own.rule, "this file would raise `max_argument_bytes`");
            }
            _ => self.merge(base),
        }
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let key = format!("{name}.max_argument_bytes");
        lines.list(&key, &policy.max_argument_bytes, |most| units::show_bytes(*most));
    }
}
