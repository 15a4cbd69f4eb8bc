//! Contributions become one specification. Pure: nothing here looks at the host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::environment;
use super::{
    Contribution, Feature, File, Grant, PathRules, Placed, Process, SandboxSpec, make_room, network,
};
use crate::policy::{EnvPolicy, NetworkPolicy, Ruled};

/// What a policy says of the process, with what it is applied to.
pub struct Rules<'a> {
    pub env: &'a EnvPolicy,
    /// Where a rule about a variable would stand: `agent`, or `sandbox.mcp.servers[ID]`.
    pub section: &'a str,
    /// The variables of whoever started agentsh.
    pub inherited: &'a BTreeMap<String, String>,
    pub network: &'a NetworkPolicy,
}

/// Puts together what features give to one sandbox. Who wins is the order of [`Feature`], whatever the order of `parts`.
///
/// `paths` says where home and project are and what the project's access is; its lists are filled here.
#[must_use]
pub fn merge(process: Process, paths: PathRules, rules: &Rules<'_>, parts: Vec<Contribution>) -> SandboxSpec {
    let mut parts = parts;
    parts.sort_by_key(|part| part.by);
    let ordered: Vec<&Contribution> = parts.iter().collect();
    let filtered = environment::filter(rules.env, rules.inherited, rules.section);
    let filtered = environment::apply(filtered, rules.inherited, &ordered);
    SandboxSpec {
        process,
        paths: path_rules(paths, &ordered),
        placed: placed(&ordered),
        environment: filtered.passed,
        stripped: filtered.stripped,
        network: network::rules(rules.network, &ordered),
        notices: ordered.iter().flat_map(|part| part.notices.clone()).collect(),
        enforcement: ordered.iter().flat_map(|part| part.enforcement.clone()).collect(),
    }
}

/// The network rules that these contributions make; for features that depend on which rules there are.
#[must_use]
pub fn network_rules(policy: &NetworkPolicy, parts: &[Contribution]) -> NetworkPolicy {
    network::rules(policy, &in_order(parts))
}

/// The environment that these contributions make; for features that replace what others have set.
#[must_use]
pub fn environment_so_far(rules: &Rules<'_>, parts: &[Contribution]) -> BTreeMap<String, String> {
    let filtered = environment::filter(rules.env, rules.inherited, rules.section);
    environment::apply(filtered, rules.inherited, &in_order(parts)).passed
}

/// Everything that is hidden; for caches, which must not show what lies there.
#[must_use]
pub fn hidden(parts: &[Contribution]) -> Vec<PathBuf> {
    in_order(parts).iter().flat_map(|part| part.hidden.iter().map(|one| one.value.clone())).collect()
}

/// What people granted themselves, by policy or by command line.
#[must_use]
pub fn user_grants(parts: &[Contribution]) -> Vec<PathBuf> {
    let of_policy = parts.iter().filter(|part| part.by == Feature::Policy);
    of_policy.flat_map(|part| part.grants.iter().map(|grant| grant.value.path.clone())).collect()
}

/// The links that are left when what people named has its room.
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
    let granted = granted_by_people(parts);
    let mut paths = base;
    for part in parts {
        paths.grants.extend(part.grants.iter().cloned());
        paths.own.extend(part.own.iter().cloned());
        paths.hidden.extend(part.hidden.iter().cloned());
        paths.unmasked.extend(part.unmasked.iter().cloned());
        let placed =
            part.elsewhere.iter().map(|one| &one.inside).chain(part.files.iter().map(|file| &file.path));
        // A mount needs something to lie on.
        paths.with_stand_in.extend(placed.filter(|path| path.starts_with(&paths.project)).cloned());
        if part.by.lifts_masks() {
            let own = part.own.iter().map(|own| own.value.path.clone());
            let whole = part.files.iter().filter(|file| part.by.yields_to_grants() && !file.appends);
            let files = whole.map(|file| file.path.clone()).filter(|path| !is_below(path, &granted));
            paths.unmasked.extend(own.chain(files));
        }
    }
    paths.grants.extend(linked(parts).1);
    paths
}

fn placed(parts: &[&Contribution]) -> Placed {
    let granted = granted_by_people(parts);
    let mut placed = Placed { links: linked(parts).0, ..Placed::default() };
    for part in parts {
        let yields = |path: &Path| part.by.yields_to_grants() && is_below(path, &granted);
        for file in part.files.iter().filter(|file| !yields(&file.path)) {
            add_file(&mut placed.files, file);
        }
        placed.elsewhere.extend(part.elsewhere.iter().filter(|one| !yields(&one.inside)).cloned());
        placed.caches.extend(part.caches.iter().filter(|one| !yields(&one.inside)).cloned());
        placed.beyond_landlock.extend(part.beyond_landlock.iter().cloned());
    }
    placed
}

/// What appends goes behind the file that is there; without one it is the file.
fn add_file(files: &mut Vec<File>, file: &File) {
    let there = files.iter_mut().rfind(|there| there.path == file.path).filter(|_| file.appends);
    match there {
        Some(there) => there.content.extend_from_slice(&file.content),
        None => files.push(file.clone()),
    }
}

fn granted_by_people(parts: &[&Contribution]) -> BTreeSet<PathBuf> {
    let of_policy = parts.iter().filter(|part| part.by == Feature::Policy);
    of_policy.flat_map(|part| part.grants.iter().map(|grant| grant.value.path.clone())).collect()
}

fn is_below(path: &Path, grants: &BTreeSet<PathBuf>) -> bool {
    path.ancestors().any(|above| grants.contains(above))
}
