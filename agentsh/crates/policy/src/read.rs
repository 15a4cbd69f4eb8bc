//! Reads the top level of the tree into a [`RawPolicy`]. The sections read the rest.

use super::builtin;
use super::diagnostic::{Diagnostic, Source, closest, one_of};
use super::keys::{Key, Kind, keys};
use super::model::Ruled;
use super::reader::{Here, Reader};
use super::sections::inspect::{self, INSPECT};
use super::sections::{Policy, RawAgent, RawMcp, RawProcess, RawRoot};
use super::yaml::{self, Entry, Node, Value};
use crate::types::RuleRef;

/// One policy file as written: checked, but not merged yet.
#[derive(Clone, Debug, Default)]
pub struct RawPolicy {
    pub extends: Extends,
    pub agent: RawProcess,
    pub agent_only: RawAgent,
    /// The keys that `inspect` sets, then `sandbox.mcp` and `mcp_rules`.
    pub mcp: Vec<RawMcp>,
    /// The keys that `inspect` sets, then the file itself.
    pub root: Vec<RawRoot>,
    pub warnings: Vec<Ruled<String>>,
}

/// The base of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Extends {
    /// The layers below it.
    #[default]
    Below,
    Nothing(RuleRef),
    /// A built-in policy.
    BuiltIn(&'static str, RuleRef),
}

const SANDBOX: &[Key] = keys! {
    /// MCP servers, their tools and their sandboxes.
    "mcp": Kind::Mcp;
};

/// The keys at the top of a file, those of [`RawRoot`] apart.
const TOP: &[Key] = keys! {
    /// The format of the file.
    "version": Kind::Number(1, 1), default: "1", merge: "each file has its own", example: "1";
    /// What the file starts from: a built-in policy, or `none`. After `none`, a list also replaces the default.
    "extends": Kind::Word(&["none", "default", "claude", "codex", "strict", "observe", "gateway"]),
        default: "the layers below",
        merge: "the highest layer that writes it decides; the layers below that one are left out",
        example: "strict";
    /// What the agent and everything that it starts may do.
    "agent": Kind::Agent;
    /// What happens to each finding in each kind of text, on one scale. Each line sets another key of the policy.
    /// Within one file that other key wins if both are written; a higher file wins over a lower one. `agentsh policy
    /// show` prints the keys with the line that decided.
    "inspect": Kind::Map(INSPECT);
    /// Rules for MCP servers, their tools and messages.
    "sandbox": Kind::Map(SANDBOX);
    /// Another place for the keys of `sandbox.mcp`.
    "mcp_rules": Kind::Mcp;
};

/// Every key at the top of a policy.
#[must_use]
pub fn top_keys() -> Vec<&'static Key> {
    TOP.iter().chain(RawRoot::keys()).collect()
}

/// Reads one file, and reports every mistake that can be found in one go. Lists of a `bare` file replace the defaults, as
/// after `extends: none`.
pub fn read(source: Source<'_>, bare: bool) -> Result<RawPolicy, Vec<Diagnostic>> {
    let tree = yaml::parse(source).map_err(|problem| vec![*problem])?;
    let mut reader = Reader::new(source);
    let mut policy = RawPolicy::default();
    if let Some(fields) = reader.known(&Here::root(&tree), &top_keys()) {
        version(&mut reader, fields.find("version"));
        policy.extends = extends(&mut reader, fields.find("extends"));
        reader.is_bare = bare || matches!(policy.extends, Extends::Nothing(_));
        if let Some(here) = fields.find("agent")
            && let Some(fields) = reader.known(&here, &Kind::Agent.keys())
        {
            policy.agent = RawProcess::read(&mut reader, &fields);
            policy.agent_only = RawAgent::read(&mut reader, &fields);
        }
        if let Some(tree) = fields.find("inspect").and_then(|here| inspect::resolve(&mut reader, &here))
            && let Some(fields) = reader.names(&Here::root(&tree))
        {
            reader.is_front = true;
            let mcp = fields.find("sandbox").and_then(|here| reader.names(&here)?.find("mcp"));
            if let Some(fields) = mcp.and_then(|here| reader.names(&here)) {
                policy.mcp.push(RawMcp::read(&mut reader, &fields));
            }
            policy.root.push(RawRoot::read(&mut reader, &fields));
            reader.is_front = false;
        }
        let sandbox = fields.find("sandbox").and_then(|here| reader.map(&here, SANDBOX));
        let places = [sandbox.and_then(|sandbox| sandbox.find("mcp")), fields.find("mcp_rules")];
        if let [Some(first), Some(second)] = &places {
            contradictions(&mut reader, first, second);
        }
        for here in places.into_iter().flatten() {
            if let Some(fields) = reader.known(&here, &Kind::Mcp.keys()) {
                policy.mcp.push(RawMcp::read(&mut reader, &fields));
                // The second place is next to the first, not in place of it.
                reader.is_bare = false;
            }
        }
        policy.root.push(RawRoot::read(&mut reader, &fields));
    }
    policy.warnings = reader.finish()?;
    Ok(policy)
}

impl RawPolicy {
    /// Lays the file over what the layers below say.
    pub fn merge(&self, below: &mut Policy) {
        self.agent.merge(&mut below.agent);
        self.agent_only.merge(&mut below.agent_only);
        self.mcp.iter().for_each(|mcp| mcp.merge(&mut below.mcp));
        self.root.iter().for_each(|root| root.merge(below));
        below.warnings.extend(self.warnings.iter().cloned());
    }
}

pub fn version(reader: &mut Reader<'_>, here: Option<Here<'_>>) {
    let Some(here) = here else { return };
    match &here.node.value {
        Value::Integer(1) => {}
        Value::Integer(other) => {
            reader.problem(&here, format!("version {other} is not known"), "this agentsh reads `version: 1`");
        }
        other => {
            let _none: Option<()> = reader.wrong_type(&here, "the number 1", other);
        }
    }
}

fn extends(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Extends {
    let Some(here) = here else { return Extends::Below };
    let Some(name) = reader.text(&here) else { return Extends::Below };
    let rule = reader.rule(&here);
    if name == "none" {
        return Extends::Nothing(rule);
    }
    let known: Vec<&'static str> = builtin::POLICIES.iter().map(|(known, _)| *known).collect();
    if let Some(known) = known.iter().find(|known| **known == name) {
        return Extends::BuiltIn(known, rule);
    }
    let words: Vec<&str> = known.into_iter().chain(["none"]).collect();
    let help = match closest(&name, &words) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write {}", one_of(&words)),
    };
    reader.problem(&here, "this is not a built-in policy", help);
    Extends::Below
}

/// A key with different values under `sandbox.mcp` and `mcp_rules` is a mistake.
fn contradictions(reader: &mut Reader<'_>, first: &Here<'_>, second: &Here<'_>) {
    let (Value::Map(left), Value::Map(right)) = (&first.node.value, &second.node.value) else { return };
    for Entry { key, key_place, node } in right {
        let Some(other) = left.iter().find(|entry| entry.key == *key) else { continue };
        let here = Here { node, path: format!("{}.{key}", second.path), line: key_place.line };
        let line = other.key_place.line;
        let there = Here { node: &other.node, path: format!("{}.{key}", first.path), line };
        if is_map(node) && is_map(&other.node) {
            contradictions(reader, &there, &here);
        } else if scalar(node).is_some_and(|value| scalar(&other.node).is_some_and(|other| other != value)) {
            let help =
                format!("`{}` on line {} has a different value; keep one of them", there.path, there.line);
            let message = format!("`{}` contradicts an earlier key", here.path);
            let rule = reader.rule(&here);
            reader.problem_of_rule(&rule, message, help);
        }
    }
}

fn is_map(node: &Node) -> bool {
    matches!(node.value, Value::Map(_))
}

fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::Bool(value) => Some(value.to_string()),
        Value::Integer(value) => Some(value.to_string()),
        Value::Float(value) => Some(value.to_string()),
        Value::Text(text) => Some(text.clone()),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}
