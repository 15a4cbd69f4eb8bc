//! Whom programs inside trust: the machine's authorities, those that the user's variables and tools name, and the session's own
//! where the policy has a rule with `inspect`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agentsh_egress::authorities::{self, Source, VARIABLES};
use agentsh_net::authority::Authority;
use agentsh_policy::NetworkPolicy;
use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_sandbox::spec::{Contribution, EnvChange, Feature, File};

use super::{Context, Session};

mod java;

/// Whether a rule wants TLS to end at agentsh.
#[must_use]
pub fn is_wanted(rules: &NetworkPolicy) -> bool {
    rules.allow.iter().any(|rule| rule.value.inspect)
}

/// The authority for a sandbox with these rules; None when no rule needs one. A session has one at most.
#[must_use]
pub fn authority(session: &Session, rules: &NetworkPolicy) -> Option<Rc<Authority>> {
    if !is_wanted(rules) {
        return None;
    }
    // Without one, connections under these rules are refused.
    session.live.network.authority.get_or_init(|| Authority::new().ok().map(Rc::new)).clone()
}

/// What makes the programs of a sandbox trust whom the user trusts, and the session's own authority where a rule needs it: a
/// bundle over the system's own, and the variables that name it. Nothing where the machine's own is all there is.
#[must_use]
pub fn contribution(context: &Context, authority: Option<&Authority>, with_java: bool) -> Contribution {
    assemble(context, authority, &[], false, with_java)
}

/// The same for a fetch, with authorities that the package manager's own word names. The machine's count there too where they are
/// all: Node has a list of its own, and would not look at them.
#[must_use]
pub fn contribution_to_fetch(
    context: &Context,
    authority: Option<&Authority>,
    more: &[Source],
) -> Contribution {
    assemble(context, authority, more, true, false)
}

fn assemble(
    context: &Context,
    authority: Option<&Authority>,
    more: &[Source],
    with_machine: bool,
    with_java: bool,
) -> Contribution {
    let mut part = Contribution::new(Feature::Trust);
    let bundle_and_file = |bundle: &&str| Some((PathBuf::from(*bundle), std::fs::canonicalize(bundle).ok()?));
    let (named_so, system) = authorities::SYSTEM_CA_BUNDLES.iter().find_map(bundle_and_file).unzip();
    // Only the user's own word counts: a file that somebody else names would be read for them.
    let named = authorities::named(&|name| context.env.get(name).cloned(), Some(&context.project));
    // A dozen variables often name one file, and most often the machine's own.
    let mut seen: BTreeSet<PathBuf> = system.iter().cloned().chain(named_so).collect();
    let is_new = |source: &&Source| match source {
        Source::File(path) => {
            !path.starts_with(OWN_DIRECTORY)
                && seen.insert(path.clone())
                && path.canonicalize().is_ok_and(|real| real == *path || seen.insert(real))
        }
        Source::Text(_) => true,
    };
    let extra = named.iter().map(|named| &named.source).chain(more).filter(is_new);
    // What cannot be read is not trusted.
    let extra: Vec<String> = extra.filter_map(|source| source.pem().ok()).collect();
    // The list of a machine is long, and most runs have nothing to add to it.
    if authority.is_none() && extra.is_empty() && !(with_machine && system.is_some()) {
        return part;
    }
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    };
    let of_machine = system.iter().filter_map(|path| std::fs::read(path).ok()).map(text).collect::<String>();
    let known: BTreeSet<&str> = certificates(&of_machine).collect();
    let is_new = extra.iter().flat_map(|text| certificates(text)).any(|one| !known.contains(one));
    if authority.is_none() && !is_new && !(with_machine && system.is_some()) {
        return part;
    }
    let path = system.unwrap_or_else(|| Path::new(OWN_DIRECTORY).join("authorities.pem"));
    let value = path.display().to_string();
    // What a server's own declaration names holds where no connection of it ends here.
    let change = match authority {
        Some(_) => EnvChange::Set,
        None => EnvChange::ReplaceInherited,
    };
    part.environment = VARIABLES.iter().map(|name| change((*name).to_owned(), value.clone())).collect();
    let own = authority.map(Authority::certificate);
    let texts = own.iter().chain([&of_machine]).chain(&extra);
    let bundle = bundle(texts.map(String::as_str));
    if with_java {
        part.files.extend(java_stores(context, &bundle));
    }
    part.files.push(File::new(path, bundle, 0o444));
    part
}

/// The same for Java, in the place of each store that is installed here.
fn java_stores(context: &Context, bundle: &[u8]) -> Vec<File> {
    let stores = java::stores(context);
    if stores.is_empty() {
        return Vec::new();
    }
    let content = java::store(bundle);
    stores.into_iter().map(|path| File::new(path, content.clone(), 0o444)).collect()
}

/// Every certificate of the texts once, and no other part of them.
fn bundle<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let (mut seen, mut all) = (BTreeSet::new(), String::new());
    for certificate in texts.flat_map(certificates).filter(|one| seen.insert(*one)) {
        all.extend([certificate, "\n"]);
    }
    all.into_bytes()
}

fn certificates(text: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    text.match_indices(BEGIN).filter_map(|(start, _)| {
        let rest = text.get(start..)?;
        let whole = rest.get(..rest.find(END)? + END.len())?;
        // One that is cut off would take the next one's end.
        (!whole.get(BEGIN.len()..)?.contains(BEGIN)).then_some(whole)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn only_certificates_get_into_the_bundle() {
        let one = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
        let two = "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----";
        let key = "-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n";
        let mixed = format!("# note\n{one}\n{key}{two}-----BEGIN CERTIFICATE-----\ncut off\n{one}\n");
        let whole = bundle([one, mixed.as_str(), "nothing"].into_iter());
        assert_eq!(String::from_utf8(whole).unwrap(), format!("{one}\n{two}\n"));
    }
}
