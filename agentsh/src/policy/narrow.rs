//! A policy inside the project can only take away: a cloned repository must not be able to grant itself anything.
//!
//! Its deny lists are added. Its allow lists replace the ones in force when everything on them is in force anyway,
//! and are a mistake otherwise. Whatever is wider than without the file is a mistake, never silently ignored.

use super::diagnostic::{Diagnostic, Source};
use super::glob;
use super::limits::{limits_for_agent, limits_for_server};
use super::model::{
    DataSink, DataSource, EnvPolicy, FilesystemPolicy, Limits, NetworkPolicy, OnChange, Pinning, Policy,
    ProcessPolicy, Ruled,
};
use super::narrow_mcp;
use super::path;
use super::raw::{RawPinning, RawPolicy, RawProcess, RawServer};
use super::reader::List;
use super::resolve;
use crate::types::RuleRef;

/// Mistakes found so far, all in the project's file.
pub struct Narrowing<'t> {
    source: Source<'t>,
    problems: Vec<Diagnostic>,
    /// What profiles give. Which of them is a server's is known only when it starts.
    profiles: Vec<ProcessPolicy>,
    /// What a profile may give to the server that is looked at, beyond what the user's policy says.
    possible: Vec<ProcessPolicy>,
}

/// `base` as far as the project's file leaves it.
pub fn narrow(base: Policy, raw: RawPolicy, source: Source<'_>) -> Result<Policy, Vec<Diagnostic>> {
    let mut narrowing =
        Narrowing { source, problems: Vec::new(), profiles: Vec::new(), possible: Vec::new() };
    if let Some(config) = &raw.agent_mcp_config {
        narrowing.refuse(&config.rule, "a policy inside the project cannot name the agent's configuration");
    }
    let mut policy = base;
    narrowing.process(&mut policy.agent, &raw.agent, limits_for_agent());
    if !raw.mcp.servers.is_empty() {
        narrowing.profiles = super::profile::builtin_all().map(|profile| profile.process).collect();
    }
    for (id, server) in &raw.mcp.servers {
        narrowing.server(&mut policy, id, server);
    }
    narrow_mcp::narrow(&mut narrowing, &mut policy.mcp, &raw.mcp);
    if !narrowing.problems.is_empty() {
        return Err(narrowing.problems);
    }
    let own = resolve::resolve(source.name, raw);
    policy.source = format!("{}, narrowed by {}", policy.source, source.name);
    policy.warnings.extend(own.warnings);
    policy.tests = own.tests;
    policy.mcp.not_enforced.extend(own.mcp.not_enforced.iter().cloned());
    policy.mcp.narrowed_by = Some(Box::new(narrow_mcp::layer(&policy.mcp, own.mcp)));
    Ok(policy)
}

/// What of `process` the project's policy leaves; whatever it asks for beyond that is not given.
pub fn intersect(process: &mut ProcessPolicy, raw: &RawProcess) {
    let source = Source { name: "", text: "" };
    let mut narrowing =
        Narrowing { source, problems: Vec::new(), profiles: Vec::new(), possible: Vec::new() };
    narrowing.process(process, raw, limits_for_server());
}

impl Narrowing<'_> {
    pub fn refuse(&mut self, rule: &RuleRef, message: impl Into<String>) {
        let help = "a policy inside the project can only narrow; put it in your own policy \
                    (~/.config/agentsh/policy.yaml, or `--policy FILE`)";
        self.problems.push(self.source.diagnostic_for_rule(rule, message, Some(help.to_owned())));
    }

    fn server(&mut self, policy: &mut Policy, id: &crate::types::ServerId, raw: &RawServer) {
        let starts = [
            raw.command.as_ref().map(|command| &command.rule),
            raw.args.as_ref().map(|args| &args.rule),
            raw.url.as_ref().map(|url| &url.rule),
        ];
        if let Some(rule) = starts.into_iter().flatten().next() {
            self.refuse(rule, format!("a policy inside the project cannot say how server `{id}` is started"));
        }
        if let Some(env) = &raw.env {
            self.refuse(
                &env.rule,
                format!("a policy inside the project cannot set variables of server `{id}`"),
            );
        }
        if let Some(scripts) = raw.install_scripts.as_ref().filter(|scripts| scripts.value) {
            self.refuse(&scripts.rule, "a policy inside the project cannot let a package run its scripts");
        }
        let lax = [
            raw.source
                .as_ref()
                .filter(|source| source.value == DataSource::Public)
                .map(|source| &source.rule),
            raw.sink.as_ref().filter(|sink| sink.value == DataSink::Local).map(|sink| &sink.rule),
        ];
        for rule in lax.into_iter().flatten() {
            self.refuse(rule, "a policy inside the project cannot vouch for a server");
        }
        let slot = policy.mcp.servers.entry(id.clone()).or_insert_with(|| super::model::ServerPolicy {
            rule: raw.rule.clone(),
            command: None,
            args: Vec::new(),
            env: std::collections::BTreeMap::new(),
            install_scripts: None,
            source: None,
            sink: None,
            process: ProcessPolicy::server_default(),
            written: std::collections::BTreeSet::new(),
            project: None,
        });
        self.possible = self.profiles.iter().map(|profile| slot.over(profile)).collect();
        if raw.install_scripts.is_some() {
            slot.install_scripts.clone_from(&raw.install_scripts);
        }
        slot.source = raw.source.clone().or(slot.source.take());
        slot.sink = raw.sink.clone().or(slot.sink.take());
        slot.project = Some(Box::new(raw.process.clone()));
        self.process(&mut slot.process, &raw.process, limits_for_server());
        self.possible.clear();
    }

    fn process(&mut self, base: &mut ProcessPolicy, raw: &RawProcess, defaults: Limits) {
        self.network(&mut base.network, raw);
        self.filesystem(&mut base.filesystem, raw);
        self.env(&mut base.env, raw);
        self.limits(&mut base.limits, &raw.limits, defaults);
        if let Some(list) = &raw.exec_allow {
            for entry in &list.value {
                let inner = path::written(&entry.value);
                let covered = base.exec.allow.is_empty()
                    || base.exec.allow.iter().any(|outer| {
                        outer.value == entry.value
                            || (!glob::is_literal(&outer.value)
                                && glob::is_literal(&entry.value)
                                && path::is(&path::written(&outer.value), &inner))
                    });
                if !covered {
                    self.refuse(
                        &entry.rule,
                        format!("`{}` may not be executed without this file", entry.value),
                    );
                }
            }
            base.exec.allow.clone_from(&list.value);
        }
    }

    fn network(&mut self, base: &mut NetworkPolicy, raw: &RawProcess) {
        if let Some(list) = &raw.network_allow {
            for entry in &list.value {
                let possible = self.possible.iter().any(|profile| profile.network.permits(&entry.value));
                if !possible && !base.permits(&entry.value) {
                    self.refuse(
                        &entry.rule,
                        format!("`{}` cannot be reached without this file", entry.value),
                    );
                }
            }
            let permitted: Vec<_> =
                list.value.iter().filter(|entry| base.permits(&entry.value)).cloned().collect();
            base.narrow(&permitted);
        }
        if let Some(list) = &raw.loopback {
            let covered = |base: &NetworkPolicy, entry: &Ruled<u16>| {
                base.loopback.iter().any(|outer| outer.value == entry.value)
            };
            for entry in &list.value {
                let possible = self.possible.iter().any(|profile| covered(&profile.network, entry));
                if !possible && !covered(base, entry) {
                    let message =
                        format!("port {} of this machine is not open without this file", entry.value);
                    self.refuse(&entry.rule, message);
                }
            }
            base.loopback = list.value.iter().filter(|entry| covered(base, entry)).cloned().collect();
        }
    }

    /// Giving up the right to write keeps the right to read, unless that is listed too.
    fn filesystem(&mut self, base: &mut FilesystemPolicy, raw: &RawProcess) {
        let readable: Vec<Ruled<String>> = base.read.iter().chain(&base.write).cloned().collect();
        let possible = |with_read: bool| -> Vec<Ruled<String>> {
            let of = |profile: &ProcessPolicy| {
                let read = if with_read { profile.filesystem.read.clone() } else { Vec::new() };
                read.into_iter().chain(profile.filesystem.write.clone())
            };
            self.possible.iter().flat_map(of).collect()
        };
        let (may_read, may_write) = (possible(true), possible(false));
        let read = self.paths_covered(&raw.read, &readable, &may_read, "be read");
        let write = self.paths_covered(&raw.write, &base.write, &may_write, "be written");
        for entry in raw.unmask.iter().flat_map(|list| &list.value) {
            if !base.unmask.iter().any(|outer| outer.value == entry.value) {
                self.refuse(&entry.rule, format!("`{}` cannot be unmasked here", entry.value));
            }
        }
        if let Some(list) = &raw.unmask {
            let given = |entry: &&Ruled<String>| base.unmask.iter().any(|outer| outer.value == entry.value);
            base.unmask = list.value.iter().filter(given).cloned().collect();
        }
        match (&raw.read, &raw.write) {
            (Some(_), _) => base.read = read,
            (None, Some(_)) => base.read = readable,
            (None, None) => {}
        }
        if raw.write.is_some() {
            base.write = write;
        }
        base.deny.extend(raw.deny.iter().flat_map(|list| list.value.iter().cloned()));
    }

    /// The entries that `base` covers. One that `possible` covers is no mistake.
    fn paths_covered(
        &mut self,
        list: &List<String>,
        base: &[Ruled<String>],
        possible: &[Ruled<String>],
        what: &str,
    ) -> Vec<Ruled<String>> {
        let covered = |by: &[Ruled<String>], entry: &Ruled<String>| {
            let inner = path::written(&entry.value);
            by.iter().any(|outer| path::covers_pattern(&path::written(&outer.value), &inner))
        };
        let entries = || list.iter().flat_map(|list| &list.value);
        for entry in entries() {
            if !covered(base, entry) && !covered(possible, entry) {
                self.refuse(&entry.rule, format!("`{}` cannot {what} without this file", entry.value));
            }
        }
        entries().filter(|entry| covered(base, entry)).cloned().collect()
    }

    fn env(&mut self, base: &mut EnvPolicy, raw: &RawProcess) {
        if let Some(inherit) = &raw.env_inherit {
            if inherit.value && !base.inherit_all {
                self.refuse(&inherit.rule, "the environment is not passed on without this file");
            }
            base.inherit_all &= inherit.value;
            base.inherit_rule = Some(inherit.rule.clone());
        }
        if let Some(list) = &raw.env_allow {
            for entry in &list.value {
                let possible = self.possible.iter().any(|profile| env_covered(&profile.env, &entry.value));
                if !possible && !env_covered(base, &entry.value) {
                    self.refuse(&entry.rule, format!("`{}` is not passed on without this file", entry.value));
                }
            }
            let left = list.value.iter().filter(|entry| env_covered(base, &entry.value)).cloned().collect();
            if base.allow.is_empty() {
                base.never.append(&mut base.deny);
            }
            base.allow = left;
            base.deny.clear();
            // An empty list is a list: nothing but the standard variables is left.
            base.inherit_all = false;
        }
        base.never.extend(raw.env_deny.iter().flat_map(|list| list.value.iter().cloned()));
    }

    fn limits(&mut self, base: &mut Limits, raw: &Limits, defaults: Limits) {
        let in_force = base.clone().or(defaults);
        for (name, slot, wanted, limit) in [
            ("memory", &mut base.memory, &raw.memory, in_force.memory),
            ("pids", &mut base.pids, &raw.pids, in_force.pids),
            ("open_files", &mut base.open_files, &raw.open_files, in_force.open_files),
            ("cpu", &mut base.cpu_percent, &raw.cpu_percent, in_force.cpu_percent),
        ] {
            let Some(wanted) = wanted else { continue };
            if limit.as_ref().is_some_and(|limit| wanted.value > limit.value) {
                self.refuse(&wanted.rule, format!("the limit of {name} is lower without this file"));
            }
            if limit.as_ref().is_none_or(|limit| wanted.value <= limit.value) {
                *slot = Some(wanted.clone());
            }
        }
    }

    pub fn pinning(&mut self, base: &mut Pinning, raw: &RawPinning) {
        let strictness = |on_change: OnChange| match on_change {
            OnChange::Allow => 0,
            OnChange::Alert => 1,
            OnChange::Block => 2,
        };
        let message = "pinning is stricter without this file";
        if let Some(enabled) = &raw.enabled {
            if base.enabled && !enabled.value {
                self.refuse(&enabled.rule, message);
            }
            base.enabled = enabled.value;
        }
        if let Some(on_change) = &raw.on_change {
            if strictness(on_change.value) < strictness(base.on_change) {
                self.refuse(&on_change.rule, message);
            }
            base.on_change = on_change.value;
        }
        if let Some(trust) = &raw.auto_trust_first {
            if trust.value && !base.auto_trust_first {
                self.refuse(&trust.rule, message);
            }
            base.auto_trust_first = trust.value;
        }
        if let Some(binary) = &raw.pin_binary {
            if base.pin_binary && !binary.value {
                self.refuse(&binary.rule, message);
            }
            base.pin_binary = binary.value;
        }
    }
}

/// Whether listing `entry` passes nothing that is not passed anyway.
fn env_covered(base: &EnvPolicy, entry: &str) -> bool {
    if glob::is_literal(entry) {
        return base.decide(entry, "agent").pass;
    }
    // A glob never passes loader variables, and secrets only where nothing is listed.
    if base.allow.is_empty() {
        return base.inherit_all || !base.deny.is_empty();
    }
    base.allow.iter().any(|outer| glob::covers(&outer.value, entry))
}
