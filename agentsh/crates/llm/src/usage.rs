//! Token usage as the provider counts it.

use crate::dialect::number;
use crate::json::Json;

/// Tokens of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input, with cached tokens.
    pub input: u64,
    /// Output, with thoughts.
    pub output: u64,
}

impl Usage {
    /// From an answer or event.
    pub(crate) fn of(tree: &Json<'_>) -> Option<Self> {
        fn usage_member<'a, 'b>(place: &'b Json<'a>) -> Option<&'b Json<'a>> {
            place.member("usage").or_else(|| place.member("usageMetadata"))
        }
        let nested = |name: &str| tree.member(name).and_then(usage_member);
        let found = usage_member(tree).or_else(|| nested("message")).or_else(|| nested("response"));
        let found = found.or_else(|| tree.member("eval_count").map(|_| tree))?;
        let sum = |names: &[&str]| {
            names.iter().fold(0_u64, |sum, name| sum.saturating_add(number(found, name).unwrap_or(0)))
        };
        Some(Self {
            input: sum(&[
                "input_tokens",
                "cache_read_input_tokens",
                "cache_creation_input_tokens",
                "prompt_tokens",
                "promptTokenCount",
                "prompt_eval_count",
            ]),
            output: sum(&[
                "output_tokens",
                "completion_tokens",
                "candidatesTokenCount",
                "thoughtsTokenCount",
                "eval_count",
            ]),
        })
    }

    /// Counts grow over a stream, and some events lack one.
    pub(crate) fn merge(&mut self, other: Option<Self>) {
        let other = other.unwrap_or_default();
        self.input = self.input.max(other.input);
        self.output = self.output.max(other.output);
    }
}
