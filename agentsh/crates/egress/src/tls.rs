//! TLS verification with the certificate authorities that this machine trusts.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::authorities;

/// Further authorities, as Node.js and Codex take them: a PEM file each.
const CA_FILE_VARIABLES: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "CODEX_CA_CERTIFICATE"];

/// The authorities of this machine, or of the file that SSL_CERT_FILE names; those of further files; and those that the
/// configuration of the user's tools names.
///
/// # Errors
/// When there are no roots, or the additional ones cannot be read.
pub fn machine_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    for name in CA_FILE_VARIABLES {
        let Some(path) = std::env::var_os(name).filter(|path| !path.is_empty()) else { continue };
        let shown = |error: &dyn std::fmt::Display| format!("{name} '{}': {error}", path.to_string_lossy());
        for certificate in CertificateDer::pem_file_iter(&path).map_err(|error| shown(&error))? {
            let certificate = certificate.map_err(|error| shown(&error))?;
            roots.add(certificate).map_err(|error| shown(&error))?;
        }
    }
    let project = authorities::project_here();
    for named in
        authorities::named_authorities(&|name| std::env::var(name).ok(), project.as_deref(), &|_| false)
    {
        // An unreadable certificate is not trusted; the tool that it was meant for reports it.
        roots.add_parsable_certificates(named.certificates().unwrap_or_default());
    }
    if roots.is_empty() {
        return Err(found.errors.first().map_or_else(|| "none is installed".to_owned(), ToString::to_string));
    }
    Ok(roots)
}

/// Speaks HTTP/2 with servers that do.
///
/// # Errors
/// When the library has no usable cipher.
pub fn connector(roots: RootCertStore) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
