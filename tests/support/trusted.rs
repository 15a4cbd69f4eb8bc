//! Certificates of an unknown authority, and every way in which a user can trust it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::place::Place;

/// A new authority, and a certificate with its key for these names: each PEM.
pub fn issued(names: &[&str]) -> (String, String) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority of a test");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut leaf = CertificateParams::new(names).unwrap();
    leaf.use_authority_key_identifier_extension = true;
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    (issuer.pem(), format!("{}{}", leaf.pem(), key.serialize_pem()))
}

/// A server that proves itself with this certificate.
pub fn server(secret: &str) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = CertificateDer::pem_slice_iter(secret.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(secret.as_bytes()).unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

/// A place where the user configures trusted authorities, and how to write it.
pub type Source = (&'static str, fn(&Place, &Path));

pub const SOURCES: [Source; 10] = [
    ("NODE_EXTRA_CA_CERTS", |place, pem| place.set("NODE_EXTRA_CA_CERTS", shown(pem))),
    ("SSL_CERT_FILE", |place, pem| place.set("SSL_CERT_FILE", shown(pem))),
    ("REQUESTS_CA_BUNDLE", |place, pem| place.set("REQUESTS_CA_BUNDLE", shown(pem))),
    ("npm_config_cafile", |place, pem| place.set("npm_config_cafile", shown(pem))),
    (".npmrc cafile", |place, pem| add(place, ".npmrc", &format!("cafile={}", pem.display()))),
    (".npmrc ca", |place, pem| {
        let text = fs::read_to_string(pem).unwrap().trim_end().replace('\n', "\\n");
        add(place, ".npmrc", &format!("ca=\"{text}\""));
    }),
    ("pip.conf cert", |place, pem| {
        add(place, ".config/pip/pip.conf", &format!("[install]\ncert = {}", pem.display()));
    }),
    ("git http.sslCAInfo", |place, pem| {
        add(place, ".gitconfig", &format!("[http]\n\tsslCAInfo = {}", pem.display()));
    }),
    ("cargo http.cainfo", |place, pem| {
        add(place, ".cargo/config.toml", &format!("[http]\ncainfo = \"{}\"", pem.display()));
    }),
    ("cargo http.cainfo, from the home", |place, pem| {
        let name = pem.file_name().unwrap().to_string_lossy();
        add(place, "own.pem", &fs::read_to_string(pem).unwrap());
        add(place, ".cargo/config.toml", &format!("[http]\ncainfo = \"own.pem\" # {name}"));
    }),
];

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// More lines for a file of the home.
fn add(place: &Place, file: &str, lines: &str) {
    let path = place.home.join(file);
    let before = fs::read_to_string(&path).unwrap_or_default();
    place.write(&path, format!("{before}{lines}\n"));
}
