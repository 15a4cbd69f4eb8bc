//! The risk of a tool, by its name and its server's annotations. Annotations only raise the risk.

use agentsh_base::json::Json;
use agentsh_base::{words, words_of_name};
use serde::{Deserialize, Serialize};

words! {
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Risk {
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

words! {
    /// How a verb is found in a name.
    #[derive(Default)]
    pub enum Names {
        /// As a whole word.
        #[default]
        Words = "words",
        /// Anywhere.
        Literal = "literal",
    }
}

const HIGH: [&str; 10] =
    ["delete", "remove", "destroy", "drop", "exec", "shell", "bash", "deploy", "publish", "write"];
const MEDIUM: [&str; 9] = ["create", "update", "modify", "edit", "push", "send", "post", "put", "upload"];

/// The risk of a tool as it is in a listing.
#[must_use]
pub fn risk(tool: &Json<'_>, names: Names) -> Risk {
    let name = tool.member("name").and_then(Json::as_text).unwrap_or_default();
    let hint = |hint: &str| {
        let annotations = tool.member("annotations");
        matches!(annotations.and_then(|annotations| annotations.member(hint)), Some(Json::Bool(true)))
    };
    match hint("destructiveHint") || hint("openWorldHint") {
        true => Risk::High,
        false => of_name(&name, names),
    }
}

/// The risk of a tool of which the name alone is known.
#[must_use]
pub fn of_name(name: &str, names: Names) -> Risk {
    // `delete2` is a second `delete`.
    let letters = name.chars().map(|letter| if letter.is_numeric() { ' ' } else { letter });
    let (words, lower) = (words_of_name(letters), name.to_lowercase());
    let any = |verbs: &[&str]| match names {
        Names::Words => words.iter().any(|word| verbs.iter().any(|verb| is_form(word, verb))),
        Names::Literal => verbs.iter().any(|verb| lower.contains(verb)),
    };
    if any(&HIGH) {
        Risk::High
    } else if any(&MEDIUM) {
        Risk::Medium
    } else {
        Risk::Low
    }
}

fn is_form(word: &str, verb: &str) -> bool {
    word.strip_prefix(verb).is_some_and(|rest| matches!(rest, "" | "s" | "es" | "ute" | "utes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_risk_follows_names_and_hints() {
        for (tool, expected) in [
            (r#"{"name":"x","annotations":{"destructiveHint":true,"readOnlyHint":true}}"#, Risk::High),
            (r#"{"name":"writeFile","annotations":{"readOnlyHint":true}}"#, Risk::High),
            (r#"{"name":"DELETE_FILE"}"#, Risk::High),
            (r#"{"name":"git_push"}"#, Risk::Medium),
            (r#"{"name":"input_text"}"#, Risk::Low),
            (r#"{"name":"compute"}"#, Risk::Low),
            (r#"{"name":"executive_summary"}"#, Risk::Low),
            (r#"{"name":"execute_command"}"#, Risk::High),
        ] {
            let tool = agentsh_base::json::read(tool.as_bytes()).unwrap_or(Json::Null);
            assert_eq!(risk(&tool, Names::Words), expected, "{tool:?}");
        }
        for (name, words, literal) in [
            ("input_text", Risk::Low, Risk::Medium),
            ("compute", Risk::Low, Risk::Medium),
            ("executive_summary", Risk::Low, Risk::High),
            ("get_weather", Risk::Low, Risk::Low),
            ("DELETE_FILE", Risk::High, Risk::High),
            ("delete2", Risk::High, Risk::High),
            ("v2runShell3", Risk::High, Risk::High),
        ] {
            assert_eq!(
                (of_name(name, Names::Words), of_name(name, Names::Literal)),
                (words, literal),
                "{name}"
            );
        }
    }
}
