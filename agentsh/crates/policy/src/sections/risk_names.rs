//! `risk_names`: how the risk of a tool is read from its name.

use super::prelude::*;
use crate::risk::Names;

word_values!(Names);

table! {
    /// What one file writes.
    struct RiskNames;

    /// How `risk` of a rule reads names of tools: `words` finds a verb only as a whole word, `literal` anywhere in
    /// a name, as ThornGuard does: `input_text` has `put`.
    risk_names: One<Names> = Kind::Word(&["words", "literal"]), default: "words", example: "literal";
}

impl Section<McpPolicy> for RiskNames {
    in_table! { McpPolicy [risk_names]: read merge describe }

    /// `literal` finds every name that the search by words finds, and more.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let is_literal = in_force(&base.risk_names, Names::Words) == Names::Literal;
        let allows_more = |own: &Names| is_literal && *own == Names::Words;
        let message = "this file would loosen `risk_names`";
        narrowing.set(&self.risk_names, &mut base.risk_names, allows_more, message);
    }
}
