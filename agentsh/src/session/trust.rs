//! The certificate authorities inside: the machine's, the user's, and the session's own if a rule has `inspect`.

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

/// Whether a rule needs TLS inspection.
#[must_use]
pub fn is_wanted(rules: &NetworkPolicy) -> bool {
    rules.allow.iter().any(|rule| rule.value.inspect)
}

/// The authority for these rules; None if not needed. One per session.
#[must_use]
pub fn authority(session: &Session, rules: &NetworkPolicy) -> Option<Rc<Authority>> {
    if !is_wanted(rules) {
        return None;
    }
    // Without it, connections under these rules are refused.
    session.live.network.authority.get_or_init(|| Authority::new().ok().map(Rc::new)).clone()
}

/// Variables that name a CA bundle, for programs with a list of their own, if the user names one to any program. With
/// the user's authorities and the session's over the system's, if these are more.
#[must_use]
pub fn contribution(context: &Context, authority: Option<&Authority>, with_java: bool) -> Contribution {
    assemble(context, authority, &[], false, with_java)
}

/// The same for a fetch, with the package manager's own authorities. Also if the machine's are all, because Node has
/// its own list.
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
    let bundle_and_file =
        |bundle: &&str| Some((PathBuf::from(*bundle), context.paths.canonical(Path::new(*bundle))?));
    let (named_so, system) = authorities::SYSTEM_CA_BUNDLES.iter().find_map(bundle_and_file).unzip();
    // Only files that the user names, because they are read on the user's behalf.
    let named = authorities::named_authorities(
        &|name| context.env.get(name).cloned(),
        Some(&context.project),
        &|path| context.host.is_missing(path),
    );
    // Often a dozen variables name one file, mostly the machine's.
    let mut seen: BTreeSet<PathBuf> = system.iter().cloned().chain(named_so).collect();
    // The variable itself is not passed on. A tool's own configuration is as outside.
    let names_machine = VARIABLES
        .iter()
        .any(|name| context.env.get(*name).is_some_and(|value| seen.contains(Path::new(value))));
    let is_new = |source: &&Source| match source {
        Source::File(path) => {
            !path.starts_with(OWN_DIRECTORY)
                && seen.insert(path.clone())
                && path.canonicalize().is_ok_and(|real| real == *path || seen.insert(real))
        }
        Source::Text(_) => true,
    };
    let extra = named.iter().map(|named| &named.source).chain(more).filter(is_new);
    // Unreadable ones are not trusted.
    let extra: Vec<String> = extra.filter_map(|source| source.pem().ok()).collect();
    // The machine's list is long, and most runs add nothing.
    if authority.is_none() && extra.is_empty() && !((with_machine || names_machine) && system.is_some()) {
        return part;
    }
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    };
    let of_machine = system.iter().filter_map(|path| std::fs::read(path).ok()).map(text).collect::<String>();
    let known: BTreeSet<&str> = certificates(&of_machine).collect();
    let is_new = extra.iter().flat_map(|text| certificates(text)).any(|one| !known.contains(one));
    let is_more = authority.is_some() || is_new || with_machine;
    if !is_more && system.is_none() {
        return part;
    }
    let path = system.unwrap_or_else(|| Path::new(OWN_DIRECTORY).join("authorities.pem"));
    let value = path.display().to_string();
    // A server's own declaration applies unless TLS is inspected.
    let change = match authority {
        Some(_) => EnvChange::Set,
        None => EnvChange::ReplaceInherited,
    };
    part.environment = VARIABLES.iter().map(|name| change((*name).to_owned(), value.clone())).collect();
    if !is_more {
        return part;
    }
    let own = authority.map(Authority::certificate);
    let texts = own.iter().chain([&of_machine]).chain(&extra);
    let bundle = bundle(texts.map(String::as_str));
    if with_java {
        part.files.extend(java_stores(context, &bundle));
    }
    part.files.push(File::new(path, bundle, 0o444));
    part
}

/// The same for each installed Java.
fn java_stores(context: &Context, bundle: &[u8]) -> Vec<File> {
    let stores = java::stores(context);
    if stores.is_empty() {
        return Vec::new();
    }
    let content = java::store(bundle);
    stores.into_iter().map(|path| File::new(path, content.clone(), 0o444)).collect()
}

/// The certificates of all texts, each once, without other content.
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
        // A truncated one would take the next one's end.
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
