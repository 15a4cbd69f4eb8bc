//! Certificate and key of the gateway.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::config::Tls;

/// # Errors
/// What is wrong with the files.
pub fn acceptor(tls: &Tls) -> Result<TlsAcceptor, String> {
    let read = |what: &str, file: &std::path::Path, error: &dyn std::fmt::Display| {
        format!("cannot use the {what} {}: {error}", file.display())
    };
    let judged = |what: &str, file: &std::path::Path| {
        let bytes = std::fs::read(file).map_err(|error| read(what, file, &error))?;
        let judged = agentsh_base::users_files::judged(file, "the gateway's certificate or key", &bytes);
        judged.map(|()| bytes).map_err(|why| read(what, file, &why))
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&judged("certificate", &tls.certificate)?).collect();
    let chain = chain.map_err(|error| read("certificate", &tls.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_slice(&judged("key", &tls.key)?);
    let key = key.map_err(|error| read("key", &tls.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| read("certificate", &tls.certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
