//! `risk_names`: how the risk of a tool is read from its name.

use super::prelude::*;
use crate::risk::Names;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RiskNames {
    pub names: Option<Ruled<Names>>,
}

impl Section<McpPolicy> for RiskNames {
    const KEYS: &'static [Key] = keys! {
        /// How `risk` of a rule reads names of tools: `words` finds a verb only as a whole word, `literal` anywhere in
        /// a name, as ThornGuard does: `input_text` has `put`.
        "risk_names": Kind::Word(&["words", "literal"]), default: "words", example: "literal";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        Self { names: reader.word(fields.find("risk_names"), Names::WORDS) }
    }

    fn merge(&self, below: &mut McpPolicy) {
        merge_key(&self.names, &mut below.risk_names);
    }

    /// `literal` finds every name that the search by words finds, and more.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let is_literal =
            |names: &Option<Ruled<Names>>| names.as_ref().is_some_and(|names| names.value == Names::Literal);
        match &self.names {
            Some(own) if is_literal(&base.risk_names) && own.value == Names::Words => {
                narrowing.refuse(&own.rule, "this file would loosen `risk_names`");
            }
            _ => self.merge(base),
        }
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        lines.list(&format!("{name}.risk_names"), &policy.risk_names, |names| names.as_str());
    }
}
