//! `tests:`: what a policy says about itself.

use super::domain;
use super::model::{PolicyTest, Question};
use super::reader::{Here, Reader};
use crate::types::ServerId;

const QUESTIONS: [&str; 6] = ["connect", "read", "write", "exec", "env", "tool"];

pub fn tests(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Vec<PolicyTest> {
    let list = reader.list(here, test);
    list.map(|list| list.value).unwrap_or_default().into_iter().map(|entry| entry.value).collect()
}

/// `host:port` of a question.
pub fn connect(text: &str) -> Result<Question, String> {
    let example = "write `host:port`, such as `example.com:443`";
    let (host, port) = domain::split_port(text).map_err(|error| format!("{error}; {example}"))?;
    let port = port.ok_or_else(|| format!("the port is missing; {example}"))?;
    domain::normalise(host).map_err(|error| format!("{error}; {example}"))?;
    Ok(Question::Connect(host.to_owned(), port))
}

/// `server/tool` of a question.
pub fn tool(text: &str) -> Option<(ServerId, Question)> {
    let (server, tool) = text.split_once('/')?;
    (!server.is_empty() && !tool.is_empty())
        .then(|| (ServerId(server.to_owned()), Question::Tool(tool.to_owned())))
}

fn test(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<PolicyTest> {
    let mut keys = QUESTIONS.to_vec();
    keys.extend(["from", "expect"]);
    let fields = reader.fields(here, &keys)?;
    let words = [("allow", true), ("deny", false)];
    let expect = reader.word(fields.find("expect"), &words);
    if fields.find("expect").is_none() {
        reader.problem(
            here,
            "this test expects nothing",
            Some("add `expect: allow` or `expect: deny`".into()),
        );
    }
    let mut from = match fields.find("from") {
        Some(here) => Some(ServerId(reader.text(&here)?)),
        None => None,
    };
    let asked: Vec<(&str, Here<'_>)> =
        QUESTIONS.iter().filter_map(|key| Some((*key, fields.find(key)?))).collect();
    let [(key, here_asked)] = asked.as_slice() else {
        let help = format!("write one of {} per test", super::diagnostic::one_of(&QUESTIONS));
        reader.problem(here, "a test asks exactly one question", Some(help));
        return None;
    };
    let text = reader.text(here_asked)?;
    let question = match *key {
        "connect" => match connect(&text) {
            Ok(question) => question,
            Err(why) => {
                reader.problem(here_asked, why, None);
                return None;
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
                    reader.problem(
                        here_asked,
                        "which server's tool?",
                        Some("write `server/tool`".to_owned()),
                    );
                    return None;
                }
            };
            if from.as_ref().is_some_and(|from| *from != server) {
                reader.problem(here_asked, "`from` names another server than the tool does", None);
                return None;
            }
            from = Some(server);
            question
        }
    };
    Some(PolicyTest { rule: reader.rule(here), question, from, expect_allow: expect?.value })
}
