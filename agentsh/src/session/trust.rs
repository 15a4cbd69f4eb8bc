//! Whom programs inside trust: the machine's authorities, those that the user's variables and tools name, and the session's own
//! where the policy has a rule with `inspect`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::egress::authorities::{self, Source, VARIABLES};
use crate::net::authority::Authority;
use crate::policy::NetworkPolicy;
use crate::sandbox::layout::OWN_DIRECTORY;

use super::Session;

mod java;

/// Where distributions keep the certificates of all authorities in one file, the first that is there.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/cacert.pem",
];

/// A file of the sandbox: path inside, content, mode.
type File = (PathBuf, Vec<u8>, u32);

/// Whether this machine can tell who is who: without authorities no far side can prove its name to the session.
#[must_use]
pub fn can_prove(env: &BTreeMap<String, String>) -> bool {
    BUNDLES.iter().any(|bundle| Path::new(bundle).exists())
        || ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| env.contains_key(*name))
}

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
    session.network.authority.get_or_init(|| Authority::new().ok().map(Rc::new)).clone()
}

/// What makes the programs of a sandbox trust whom the user trusts, and the session's own authority where a rule needs it: a
/// bundle over the system's own, and the variables that name it. None where the machine's own is all there is.
#[must_use]
pub fn give(session: &Session, rules: &NetworkPolicy, env: &mut BTreeMap<String, String>) -> Option<File> {
    assemble(session, rules, &[], false, env)
}

/// The same for a fetch, with authorities that the package manager's own word names. The machine's count there too where they are
/// all: Node has a list of its own, and would not look at them.
#[must_use]
pub fn give_to_fetch(
    session: &Session,
    rules: &NetworkPolicy,
    more: &[Source],
    env: &mut BTreeMap<String, String>,
) -> Option<File> {
    assemble(session, rules, more, true, env)
}

fn assemble(
    session: &Session,
    rules: &NetworkPolicy,
    more: &[Source],
    with_machine: bool,
    env: &mut BTreeMap<String, String>,
) -> Option<File> {
    let authority = authority(session, rules);
    let system = BUNDLES.iter().find_map(|bundle| std::fs::canonicalize(bundle).ok());
    // Only the user's own word counts: a file that somebody else names would be read for them.
    let named =
        authorities::named(&|name| session.context.env.get(name).cloned(), Some(&session.context.project));
    let is_foreign = |source: &&Source| match source {
        Source::File(path) => !path.starts_with(OWN_DIRECTORY),
        Source::Text(_) => true,
    };
    let extra = named.iter().map(|named| &named.source).chain(more).filter(is_foreign);
    // What cannot be read is not trusted.
    let extra: Vec<String> = extra.filter_map(|source| source.pem().ok()).collect();
    // The list of a machine is long, and most runs have nothing to add to it.
    if authority.is_none() && extra.is_empty() && !(with_machine && system.is_some()) {
        return None;
    }
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    };
    let of_machine = system.iter().filter_map(|path| std::fs::read(path).ok()).map(text).collect::<String>();
    let known: BTreeSet<&str> = certificates(&of_machine).collect();
    let is_new = extra.iter().flat_map(|text| certificates(text)).any(|one| !known.contains(one));
    if authority.is_none() && !is_new && !(with_machine && system.is_some()) {
        return None;
    }
    let path = system.unwrap_or_else(|| Path::new(OWN_DIRECTORY).join("authorities.pem"));
    for variable in VARIABLES {
        // What a server's own declaration names holds where no connection of it ends here.
        let declared = env.get(variable).filter(|value| session.context.env.get(variable) != Some(value));
        if authority.is_some() || declared.is_none() {
            env.insert(variable.to_owned(), path.display().to_string());
        }
    }
    let own = authority.map(|authority| authority.certificate());
    let texts = own.iter().chain([&of_machine]).chain(&extra);
    Some((path, bundle(texts.map(String::as_str)), 0o444))
}

/// The same for Java, in the place of each store that is installed here.
#[must_use]
pub fn give_java(session: &Session, bundle: &[u8]) -> Vec<File> {
    let stores = java::stores(&session.context);
    if stores.is_empty() {
        return Vec::new();
    }
    let content = java::store(bundle);
    stores.into_iter().map(|path| (path, content.clone(), 0o444)).collect()
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
