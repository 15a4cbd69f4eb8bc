//! Trust in the session's own certificate authority, inside the sandboxes whose policy has a rule with `inspect`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

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

/// Variables that name such a file: OpenSSL, Node, Python's requests, curl, pip, git, Deno, AWS, cargo, Codex.
const VARIABLES: [&str; 10] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CODEX_CA_CERTIFICATE",
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

/// What makes the programs of a sandbox trust the authority: a bundle over the system's own, and the variables that
/// name it. None when no rule needs it.
#[must_use]
pub fn give(session: &Session, rules: &NetworkPolicy, env: &mut BTreeMap<String, String>) -> Option<File> {
    let authority = authority(session, rules)?;
    let system = BUNDLES.iter().find_map(|bundle| std::fs::canonicalize(bundle).ok());
    let mut sources: Vec<PathBuf> = system.iter().cloned().collect();
    // What the user trusts beside or instead of it. Only the user's own environment counts: a file that somebody else
    // names would be read for them.
    for variable in VARIABLES {
        let named = session.context.env.get(variable).map(PathBuf::from);
        sources.extend(named.filter(|path| path.is_absolute() && !path.starts_with(OWN_DIRECTORY)));
    }
    sources.dedup();
    let path = system.unwrap_or_else(|| Path::new(OWN_DIRECTORY).join("authorities.pem"));
    for variable in VARIABLES {
        env.insert(variable.to_owned(), path.display().to_string());
    }
    Some((path, bundle(&sources, &authority.certificate()), 0o444))
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

/// The certificates of the files, and no other part of them, with one more.
fn bundle(sources: &[PathBuf], own: &str) -> Vec<u8> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut text = format!("{}\n", own.trim_end());
    for source in sources {
        let Ok(content) = std::fs::read_to_string(source) else { continue };
        for rest in content.split(BEGIN).skip(1) {
            if let Some((body, _)) = rest.split_once(END) {
                text.extend([BEGIN, body, END, "\n"]);
            }
        }
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn only_certificates_get_into_the_bundle() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("mixed.pem");
        let one = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n";
        std::fs::write(&file, format!("# note\n{one}{key}{one}-----BEGIN CERTIFICATE-----\ncut off"))
            .unwrap();
        let missing = place.path().join("missing");
        assert_eq!(bundle(&[missing, file], "OWN\n"), format!("OWN\n{one}{one}").into_bytes());
    }
}
