//! A policy inside the project can only narrow: a cloned repository must not grant itself anything.
//!
//! Its deny lists are added. Its allow lists replace the ones in force if everything on them is in force anyway, and are
//! an error otherwise. A key that would allow more than without the file is an error, never silently ignored. Each
//! section says how its keys are compared.

use super::diagnostic::{Diagnostic, Source};
use super::keys::Key;
use super::limits::{limits_for_agent, limits_for_server};
use super::locks::{self, Locks};
use super::model::Ruled;
use super::read::{Extends, RawPolicy};
use super::sections::limits::Limits;
use super::sections::{Policy, ProcessPolicy, RawProcess};
use crate::types::RuleRef;

/// Mistakes found so far, all in the project's file.
pub struct Narrowing<'t> {
    source: Source<'t>,
    /// How to correct the error.
    help: &'static str,
    problems: Vec<Diagnostic>,
    /// The rights of all profiles. The server's own one is known only when it starts.
    pub profiles: Vec<ProcessPolicy>,
    /// Rights that a profile may give to the current server, beyond the user's policy.
    pub possible: Vec<ProcessPolicy>,
    /// The default limits of the process that is looked at.
    pub limits: Limits,
}

/// `base` as far as the project's file leaves it.
pub fn narrow(base: Policy, raw: &RawPolicy, source: Source<'_>) -> Result<Policy, Vec<Diagnostic>> {
    let mut narrowing = Narrowing::new(source, limits_for_agent());
    if let Extends::Nothing(rule) | Extends::BuiltIn(_, rule) = &raw.extends {
        narrowing.refuse(rule, "a policy inside the project cannot choose what it starts from");
    }
    let mut policy = base;
    raw.agent.narrow(&mut policy.agent, &mut narrowing);
    raw.agent_only.narrow(&mut policy.agent_only, &mut narrowing);
    for mcp in &raw.mcp {
        mcp.narrow(&mut policy.mcp, &mut narrowing);
    }
    for root in &raw.root {
        root.narrow(&mut policy, &mut narrowing);
    }
    if !narrowing.problems.is_empty() {
        return Err(narrowing.problems);
    }
    policy.source = format!("{}, narrowed by {}", policy.source, source.name);
    policy.warnings.extend(raw.warnings.iter().cloned());
    Ok(policy)
}

/// Lays a file over a policy of which an organisation locks some sections: those it can only narrow.
pub fn merge_narrowed(
    policy: &mut Policy,
    raw: &RawPolicy,
    locks: &Locks,
    source: Source<'_>,
) -> Result<(), Vec<Diagnostic>> {
    let mut narrowing = Narrowing::new(source, limits_for_agent());
    narrowing.help = "your organisation locks this section: you can narrow it, and only the organisation can \
    widen it; `agentsh policy bundle status` names the organisation";
    if let Extends::Nothing(rule) | Extends::BuiltIn(_, rule) = &raw.extends {
        narrowing.refuse(rule, "`extends` would leave out what your organisation locks");
    }
    raw.agent.merge_within(&mut policy.agent, locks::AGENT, locks, &mut narrowing);
    raw.agent_only.merge_within(&mut policy.agent_only, locks::AGENT, locks, &mut narrowing);
    for mcp in &raw.mcp {
        mcp.merge_within(&mut policy.mcp, locks::MCP, locks, &mut narrowing);
    }
    for root in &raw.root {
        root.merge_within(policy, locks::ROOT, locks, &mut narrowing);
    }
    if !narrowing.problems.is_empty() {
        return Err(narrowing.problems);
    }
    policy.warnings.extend(raw.warnings.iter().cloned());
    Ok(())
}

/// Restricts `process` to what the project's policy leaves; further rights that it names are not given.
pub fn intersect(process: &mut ProcessPolicy, raw: &RawProcess) {
    let mut narrowing = Narrowing::new(Source { name: "", text: "" }, limits_for_server());
    raw.narrow(process, &mut narrowing);
}

impl<'t> Narrowing<'t> {
    fn new(source: Source<'t>, limits: Limits) -> Self {
        let help = "a policy inside the project can only narrow; put it in your own policy \
                    (~/.config/agentsh/policy.yaml, or `--policy FILE`)";
        Self { source, help, problems: Vec::new(), profiles: Vec::new(), possible: Vec::new(), limits }
    }

    pub fn refuse(&mut self, rule: &RuleRef, message: impl Into<String>) {
        self.problems.push(self.source.diagnostic_for_rule(rule, message, Some(self.help.to_owned())));
    }

    /// Refuses what is written at these places.
    pub fn refuse_all<'r>(&mut self, rules: impl IntoIterator<Item = &'r RuleRef>, message: &str) {
        rules.into_iter().for_each(|rule| self.refuse(rule, message));
    }

    /// Puts a value that is written in force, or refuses it if it allows more.
    pub fn set<T: Clone>(
        &mut self,
        written: &Option<Ruled<T>>,
        in_force: &mut Option<Ruled<T>>,
        allows_more: impl FnOnce(&T) -> bool,
        message: &str,
    ) {
        match written {
            Some(own) if allows_more(&own.value) => self.refuse(&own.rule, message),
            Some(own) => *in_force = Some(own.clone()),
            None => {}
        }
    }

    /// Refuses a value that is written and allows more than what is in force.
    pub fn refuse_if<T>(
        &mut self,
        written: &Option<Ruled<T>>,
        allows_more: impl FnOnce(&T) -> bool,
        message: &str,
    ) {
        if let Some(written) = written.as_ref().filter(|written| allows_more(&written.value)) {
            self.refuse(&written.rule, message);
        }
    }

    /// A section that is not locked, and changes one that is.
    pub(crate) fn refuse_section(&mut self, place: &str, keys: &[Key], lock: &str) {
        let id = keys.first().map_or("", |key| key.name);
        let id = if place.is_empty() { id.to_owned() } else { format!("{place}.{id}") };
        let rule = RuleRef { id: id.clone(), file: self.source.name.to_owned(), line: 1 };
        self.refuse(&rule, format!("`{id}` changes `{lock}`, which your organisation locks"));
    }
}
