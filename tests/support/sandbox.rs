//! The two kinds of sandbox, in every mode: one test tries its attempts in all of them.

use std::path::Path;

use serde_json::{Value, json};

use super::expect::Expected;
use super::outcome::Outcome;
use super::peer::Peer;
use super::place::{Mode, Place};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Agent,
    Server,
}

pub struct Sandbox {
    pub place: Place,
    pub kind: Kind,
}

/// Runs a test in the sandboxes of agent and server, for every mode, each in a place of its own.
pub fn everywhere(test: impl Fn(&Sandbox)) {
    for mode in Mode::all() {
        for kind in [Kind::Agent, Kind::Server] {
            test(&Sandbox { place: Place::new(mode), kind });
        }
    }
}

impl Sandbox {
    /// Makes the attempts one after the other in one sandbox, and compares.
    #[track_caller]
    pub fn holds(&self, expected: &[Expected]) {
        let lines: Vec<&str> = expected.iter().map(|expected| expected.line.as_str()).collect();
        let answers = self.answers(&lines);
        assert_eq!(answers.len(), expected.len(), "{:?} {:?}: {answers:?}", self.place.mode, self.kind);
        let surprises: Vec<String> = expected
            .iter()
            .zip(&answers)
            .filter_map(|(expected, answer)| expected.surprise(answer))
            .collect();
        assert!(surprises.is_empty(), "{:?} {:?}: {}", self.place.mode, self.kind, surprises.join("; "));
    }

    pub fn answers(&self, lines: &[&str]) -> Vec<String> {
        match self.kind {
            Kind::Agent => agent(&self.place, lines),
            Kind::Server => server(&self.place, lines),
        }
    }

    /// A policy whose keys hold for the process in this sandbox.
    pub fn policy(&self, keys: &str) {
        match self.kind {
            Kind::Agent => self.place.policy(&format!("agent: {{{keys}}}\n")),
            Kind::Server => {
                self.place.policy(&format!("sandbox: {{mcp: {{servers: [{{id: fixture, {keys}}}]}}}}\n"))
            }
        };
    }
}

fn agent(place: &Place, lines: &[&str]) -> Vec<String> {
    let mut command = place.agentsh(&["run", "--quiet", "--"]);
    let outcome = Outcome::of(command.arg(place.program("probe")).args(lines));
    if outcome.stdout.lines().count() < lines.len() {
        eprintln!("{outcome}");
    }
    outcome.stdout.lines().map(str::to_owned).collect()
}

fn server(place: &Place, lines: &[&str]) -> Vec<String> {
    let mut peer = Peer::ready(place, &[]);
    let answers = lines
        .iter()
        .map(|line| {
            let answer = peer.call("try", json!({"line": line}));
            match answer["result"]["content"][0]["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("KILLED {}", answer["error"]["message"]),
            }
        })
        .collect();
    peer.finish();
    answers
}

/// The same attempt without a sandbox must work, unless this kernel lacks the feature.
#[track_caller]
pub fn outside_twin(place: &Place, line: &str) {
    let answers = place.outside(&[line]);
    match answers[0].as_str() {
        "DONE" => {}
        "REFUSED ENOSYS" | "REFUSED EAFNOSUPPORT" | "REFUSED EPROTONOSUPPORT" => {
            super::skip(&format!("this kernel has no `{line}`"));
        }
        "REFUSED EPERM" | "REFUSED EACCES" if !place.mode.is_root() => {
            super::skip(&format!("this kernel allows `{line}` to root alone"));
        }
        other => panic!("the probe is broken: `{line}` gave {other} without a sandbox"),
    }
}

/// A run of the scripted agent: one JSON value per step.
pub struct Answers {
    pub json: Vec<Value>,
    pub outcome: Outcome,
}

impl Answers {
    /// The text of a tool's result.
    #[track_caller]
    pub fn text(&self, step: usize) -> &str {
        match self.json.get(step).and_then(|answer| answer["result"]["content"][0]["text"].as_str()) {
            Some(text) => text,
            None => panic!("step {step} has no text: {:?}\n{}", self.json.get(step), self.outcome),
        }
    }

    #[track_caller]
    pub fn error(&self, step: usize) -> &str {
        match self.json.get(step).and_then(|answer| answer["error"]["message"].as_str()) {
            Some(text) => text,
            None => panic!("step {step} is not an error: {:?}\n{}", self.json.get(step), self.outcome),
        }
    }
}

/// `agentsh run -- claude SCRIPT`, with a fixture that goes by that name.
pub fn script(place: &Place, steps: &Value) -> Answers {
    script_with(place, &["--quiet"], steps)
}

pub fn script_with(place: &Place, options: &[&str], steps: &Value) -> Answers {
    let mut command = place.agentsh(&["run"]);
    command.args(options).arg("--").arg(place.program("claude")).args(["-p", &steps.to_string()]);
    let outcome = Outcome::of(&mut command);
    let json = outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or(Value::Null)).collect();
    Answers { json, outcome }
}

pub fn attempt(server: &str, line: &str) -> Value {
    json!({"server": server, "tool": "try", "arguments": {"line": line}})
}

pub fn read_file(server: &str, path: &Path) -> Value {
    json!({"server": server, "tool": "read_file", "arguments": {"path": path}})
}

pub fn write_file(server: &str, path: &Path) -> Value {
    json!({"server": server, "tool": "write_file", "arguments": {"path": path, "text": "x"}})
}
