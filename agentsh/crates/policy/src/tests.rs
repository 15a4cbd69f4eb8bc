//! The `tests:` of a policy: questions and the answers that its author expects. A policy that contradicts its own
//! tests is not loaded.

use super::diagnostic::{Diagnostic, Source};
use super::model::{PolicyTest, Question};
use super::path::PathContext;
use super::sections::Policy;

/// One test whose answer is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub test: PolicyTest,
    pub answer: super::explain::Answer,
}

/// Asks every test, in the order of the file.
#[must_use]
pub fn run(policy: &Policy, context: &PathContext) -> Vec<Failure> {
    let asked =
        policy.tests.iter().map(|test| (test, policy.ask(test.from.as_ref(), &test.question, context)));
    asked
        .filter(|(test, answer)| test.expect_allow != answer.allow)
        .map(|(test, answer)| Failure { test: test.clone(), answer })
        .collect()
}

impl Failure {
    pub(super) fn diagnostic(&self, source: Source<'_>) -> Diagnostic {
        let (expected, got) = if self.test.expect_allow { ("allow", "denied") } else { ("deny", "allowed") };
        let message = format!(
            "this test expects `{expected}`, but {} is {got}: {}",
            describe(&self.test),
            self.answer.text
        );
        let help = format!("decided by {}", self.answer.rule);
        source.diagnostic_for_rule(&self.test.rule, message, Some(help))
    }
}

/// `connect example.com:443 from github`.
#[must_use]
pub fn describe(test: &PolicyTest) -> String {
    let what = match &test.question {
        Question::Connect(host, port) if host.contains(':') => format!("connect [{host}]:{port}"),
        Question::Connect(host, port) => format!("connect {host}:{port}"),
        Question::Read(path) => format!("read {path}"),
        Question::Write(path) => format!("write {path}"),
        Question::Exec(path) => format!("exec {path}"),
        Question::Env(name) => format!("env {name}"),
        Question::Tool(tool) => format!("tool {tool}"),
    };
    match &test.from {
        Some(server) => format!("{what} from {server}"),
        None => what,
    }
}
