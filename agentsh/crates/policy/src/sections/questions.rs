//! `tests:`: a policy's own tests.

use super::prelude::*;
use crate::domain;
use crate::model::{PolicyTest, Question};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tests {
    pub tests: Vec<PolicyTest>,
}

const TEST: &[Key] = keys! {
    /// May `host:port` be connected to?
    "connect": Kind::Text;
    /// May this path be read?
    "read": Kind::Text;
    /// May this path be written?
    "write": Kind::Text;
    /// May this program be executed?
    "exec": Kind::Text;
    /// Is this variable passed on?
    "env": Kind::Text;
    /// May `server/tool` be called?
    "tool": Kind::Text;
    /// The server that asks.
    "from": Kind::Text, default: "the agent";
    /// The answer that is right.
    "expect": Kind::Word(&["allow", "deny"]);
};

impl Section<Policy> for Tests {
    const KEYS: &'static [Key] = keys! {
        /// Questions, and the answers that the author of the file expects. A policy that contradicts them is not
        /// loaded.
        "tests": Kind::Whole(&Kind::Map(TEST)), default: "none",
            merge: "each file has its own, asked of that file and the layers below it",
            example: "[{connect: \"example.com:443\", expect: deny}, {read: ~/.ssh/id_ed25519, expect: deny}]";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        Self { tests: tests(reader, fields.find("tests")) }
    }

    fn merge(&self, below: &mut Policy) {
        below.tests.clone_from(&self.tests);
    }

    fn narrow(&self, base: &mut Policy, _: &mut Narrowing<'_>) {
        self.merge(base);
    }

    fn describe(_: &Policy, _: &str, _: &mut Lines) {}
}

const QUESTIONS: [&str; 6] = ["connect", "read", "write", "exec", "env", "tool"];

pub fn tests(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Vec<PolicyTest> {
    reader.all(here, test)
}

/// `host:port` of a question; without a port 443, as in `agentsh policy allow`.
pub fn connect(text: &str) -> Result<Question, String> {
    let example = "write a host, such as `example.com` or `example.com:8443`";
    let (host, port) = domain::split_port(text).map_err(|error| format!("{error}; {example}"))?;
    domain::normalise(host).map_err(|error| format!("{error}; {example}"))?;
    Ok(Question::Connect(host.to_owned(), port.unwrap_or(443)))
}

/// `server/tool` of a question.
pub fn tool(text: &str) -> Option<(ServerId, Question)> {
    let (server, tool) = text.split_once('/')?;
    (!server.is_empty() && !tool.is_empty())
        .then(|| (ServerId(server.to_owned()), Question::Tool(tool.to_owned())))
}

fn test(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<PolicyTest> {
    let fields = reader.map(here, TEST)?;
    let words = [("allow", true), ("deny", false)];
    let expect = reader.word(fields.find("expect"), &words);
    if fields.find("expect").is_none() {
        reader.problem(here, "this test expects nothing", "add `expect: allow` or `expect: deny`");
    }
    let mut from = match fields.find("from") {
        Some(here) => Some(ServerId(reader.text(&here)?)),
        None => None,
    };
    let asked: Vec<(&str, Here<'_>)> =
        QUESTIONS.iter().filter_map(|key| Some((*key, fields.find(key)?))).collect();
    let [(key, here_asked)] = asked.as_slice() else {
        let help = format!("write one of {} per test", crate::diagnostic::one_of(&QUESTIONS));
        return reader.fault(here, "a test asks exactly one question", help);
    };
    let text = reader.text(here_asked)?;
    let question = match *key {
        "connect" => match connect(&text) {
            Ok(question) => question,
            Err(why) => {
                return reader.fault(here_asked, why, None);
            }
        },
        "read" => Question::Read(text),
        "write" => Question::Write(text),
        "exec" => Question::Exec(text),
        "env" => Question::Env(text),
        _ => {
            let (server, question) = match (tool(&text), &from) {
                (Some(named), _) => named,
                (None, Some(from)) => (from.clone(), Question::Tool(text)),
                (None, None) => {
                    return reader.fault(here_asked, "which server's tool?", "write `server/tool`");
                }
            };
            if from.as_ref().is_some_and(|from| *from != server) {
                return reader.fault(here_asked, "`from` names a different server than the tool", None);
            }
            from = Some(server);
            question
        }
    };
    Some(PolicyTest { rule: reader.rule(here), question, from, expect_allow: expect?.value })
}
