//! Merges contributions into one specification. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::environment;
use super::{
    Contribution, Feature, File, Grant, PathRules, Placed, Process, SandboxSpec, make_room, network,
};
use crate::policy::{EnvPolicy, NetworkPolicy, Ruled};

/// The policy's rules for the process, and its inputs.
pub struct Rules<'a> {
    pub env: &'a EnvPolicy,
    /// The section of the policy for rules about a variable: `agent`, or `sandbox.mcp.servers[ID]`.
    pub section: &'a str,
    /// The caller's variables.
    pub inherited: &'a BTreeMap<String, String>,
    pub network: &'a NetworkPolicy,
}

/// Merges contributions into one sandbox. [`Feature`] gives the precedence, whatever the order of `parts`.
///
/// `paths` has home, project and its access; its lists are filled here.
#[must_use]
pub fn merge(process: Process, paths: PathRules, rules: &Rules<'_>, parts: Vec<Contribution>) -> SandboxSpec {
    let mut parts = parts;
    parts.sort_by_key(|part| part.by);
    let ordered: Vec<&Contribution> = parts.iter().collect();
    let filtered = environment::filter(rules.env, rules.inherited, rules.section);
    let filtered = environment::apply(filtered, rules.env, rules.inherited, &ordered);
    SandboxSpec {
        process,
        paths: path_rules(paths, &ordered),
        placed: place_files(&ordered),
        environment: filtered.passed,
        stripped: filtered.stripped,
        network: network::rules(rules.network, &ordered),
        notices: ordered.iter().flat_map(|part| part.notices.clone()).collect(),
        enforcement: ordered.iter().flat_map(|part| part.enforcement.clone()).collect(),
    }
}

/// The network rules of these contributions, for features that depend on rules.
#[must_use]
pub fn network_rules(policy: &NetworkPolicy, parts: &[Contribution]) -> NetworkPolicy {
    network::rules(policy, &in_order(parts))
}

/// The environment of these contributions, for features that replace values.
#[must_use]
pub fn environment_so_far(rules: &Rules<'_>, parts: &[Contribution]) -> BTreeMap<String, String> {
    let filtered = environment::filter(rules.env, rules.inherited, rules.section);
    environment::apply(filtered, rules.env, rules.inherited, &in_order(parts)).passed
}

/// All hidden paths, for caches, which must not show them.
#[must_use]
pub fn hidden_paths(parts: &[Contribution]) -> Vec<PathBuf> {
    in_order(parts).iter().flat_map(|part| part.hidden.iter().map(|one| one.value.clone())).collect()
}

/// Grants of people, by policy or command line.
#[must_use]
pub fn user_grants(parts: &[Contribution]) -> Vec<PathBuf> {
    let of_policy = parts.iter().filter(|part| part.by == Feature::Policy);
    of_policy.flat_map(|part| part.grants.iter().map(|grant| grant.value.path.clone())).collect()
}

/// The remaining links, after named paths replaced some.
#[must_use]
pub fn links(parts: &[Contribution]) -> BTreeMap<PathBuf, PathBuf> {
    linked(&in_order(parts)).0
}

fn in_order(parts: &[Contribution]) -> Vec<&Contribution> {
    let mut ordered: Vec<&Contribution> = parts.iter().collect();
    ordered.sort_by_key(|part| part.by);
    ordered
}

fn linked(parts: &[&Contribution]) -> (BTreeMap<PathBuf, PathBuf>, Vec<Ruled<Grant>>) {
    let mut links: BTreeMap<PathBuf, PathBuf> = parts.iter().flat_map(|part| part.links.clone()).collect();
    let by_people = |part: &&&Contribution| part.by == Feature::Policy;
    let named: Vec<PathBuf> = parts
        .iter()
        .filter(by_people)
        .flat_map(|part| part.grants.iter().map(|grant| grant.value.path.clone()))
        .collect();
    let linking = parts.iter().filter(|part| !part.links.is_empty());
    let shown: Vec<Grant> =
        linking.flat_map(|part| part.grants.iter().map(|grant| grant.value.clone())).collect();
    let more = make_room(&mut links, &named, &shown);
    let rule = Feature::Toolchains.rule();
    (links, more.into_iter().map(|value| Ruled { value, rule: rule.clone() }).collect())
}

fn path_rules(base: PathRules, parts: &[&Contribution]) -> PathRules {
    let named = named_by_people(parts);
    let mut paths = base;
    for part in parts {
        paths.grants.extend(part.grants.iter().cloned());
        paths.own.extend(part.own.iter().cloned());
        paths.hidden.extend(part.hidden.iter().cloned());
        paths.unmasked.extend(part.unmasked.iter().cloned());
        let placed =
            part.elsewhere.iter().map(|one| &one.inside).chain(part.files.iter().map(|file| &file.path));
        // A mount needs a mount point.
        paths.with_stub.extend(placed.filter(|path| path.starts_with(&paths.project)).cloned());
        if part.by.lifts_masks() {
            let own = part.own.iter().map(|own| own.value.path.clone());
            let whole = part.files.iter().filter(|file| part.by.yields_to_policy() && !file.appends);
            let files = whole.map(|file| file.path.clone()).filter(|path| !is_below(path, &named));
            paths.unmasked.extend(own.chain(files));
        }
    }
    paths.grants.extend(linked(parts).1);
    paths
}

fn place_files(parts: &[&Contribution]) -> Placed {
    let named = named_by_people(parts);
    let mut placed = Placed { links: linked(parts).0, ..Placed::default() };
    for part in parts {
        let yields = |path: &Path| part.by.yields_to_policy() && is_below(path, &named);
        for file in part.files.iter().filter(|file| !yields(&file.path)) {
            add_file(&mut placed.files, file);
        }
        placed.elsewhere.extend(part.elsewhere.iter().filter(|one| !yields(&one.inside)).cloned());
        placed.caches.extend(part.caches.iter().filter(|one| !yields(&one.inside)).cloned());
        placed.beyond_landlock.extend(part.beyond_landlock.iter().cloned());
    }
    placed
}

/// An appending file is appended to the existing one, if any.
fn add_file(files: &mut Vec<File>, file: &File) {
    let there = files.iter_mut().rfind(|there| there.path == file.path).filter(|_| file.appends);
    match there {
        Some(there) => there.content.extend_from_slice(&file.content),
        None => files.push(file.clone()),
    }
}

/// What the policy grants or denies.
fn named_by_people(parts: &[&Contribution]) -> BTreeSet<PathBuf> {
    let of_policy = parts.iter().filter(|part| part.by == Feature::Policy);
    let granted = of_policy.clone().flat_map(|part| part.grants.iter().map(|grant| &grant.value.path));
    granted
        .chain(of_policy.flat_map(|part| part.hidden.iter().map(|hidden| &hidden.value)))
        .cloned()
        .collect()
}

fn is_below(path: &Path, places: &BTreeSet<PathBuf>) -> bool {
    path.ancestors().any(|above| places.contains(above))
}
