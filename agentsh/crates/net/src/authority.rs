//! The session's certificate authority for TLS inspection, and the authorities that the session trusts. The key is only
//! in this process's memory.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ServerConfig};

/// A program must not depend on a certificate much longer than its session.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// Covers differences between clocks.
const CLOCK_SKEW: Duration = Duration::from_secs(24 * 3600);
/// Limit of cached certificates; a wildcard matches any number of names.
const MAX_NAMES: usize = 256;

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The key of all certificates shown inside.
    key: KeyPair,
    /// By name.
    shown: RefCell<BTreeMap<String, Arc<ServerConfig>>>,
    outside: OnceCell<Result<Arc<ClientConfig>, String>>,
}

impl Authority {
    /// # Errors
    /// When keys cannot be made.
    pub fn new() -> Result<Self, String> {
        let key = || KeyPair::generate().map_err(|error| format!("cannot make a key: {error}"));
        let mut params = with_validity(CertificateParams::default());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "agentsh, for one session");
        let issuer = CertifiedIssuer::self_signed(params, key()?)
            .map_err(|error| format!("cannot make a certificate: {error}"))?;
        Ok(Self { issuer, key: key()?, shown: RefCell::default(), outside: OnceCell::new() })
    }

    /// The certificate that sandboxes are to trust, as PEM.
    #[must_use]
    pub fn certificate(&self) -> String {
        let text = STANDARD.encode(self.issuer.der());
        let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
        format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
    }

    /// The TLS configuration with which agentsh answers a program as `name`.
    pub(super) fn server_config(&self, name: &str) -> Result<Arc<ServerConfig>, String> {
        if let Some(config) = self.shown.borrow().get(name) {
            return Ok(Arc::clone(config));
        }
        let text =
            |error: &dyn std::fmt::Display| format!("cannot create a certificate for '{name}': {error}");
        let mut params =
            with_validity(CertificateParams::new([name.to_owned()]).map_err(|error| text(&error))?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.distinguished_name.push(DnType::CommonName, name.chars().take(64).collect::<String>());
        let leaf = params.signed_by(&self.key, &self.issuer).map_err(|error| text(&error))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| text(&error))?
            .with_no_client_auth();
        let mut config =
            config.with_single_cert(vec![leaf.der().clone()], key).map_err(|error| text(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let mut shown = self.shown.borrow_mut();
        if shown.len() < MAX_NAMES {
            shown.insert(name.to_owned(), Arc::clone(&config));
        }
        Ok(config)
    }

    /// The TLS configuration for servers: the machine's authorities, with those of SSL_CERT_FILE and
    /// NODE_EXTRA_CA_CERTS.
    pub(super) fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        self.outside.get_or_init(trusted_config).clone()
    }
}

fn with_validity(mut params: CertificateParams) -> CertificateParams {
    let now = SystemTime::now();
    params.not_before = now.checked_sub(CLOCK_SKEW).unwrap_or(now).into();
    params.not_after = now.checked_add(CERTIFICATE_LIFETIME).unwrap_or(now).into();
    params
}

fn trusted_config() -> Result<Arc<ClientConfig>, String> {
    let roots = agentsh_egress::tls::machine_roots().map_err(|why| {
        format!("this machine has no certificate authorities ({why}); install `ca-certificates`")
    })?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn certificates_are_kept_up_to_a_number() {
        let authority = Authority::new().unwrap();
        let first = authority.server_config("a.test").unwrap();
        assert!(Arc::ptr_eq(&first, &authority.server_config("a.test").unwrap()));
        for number in 0..MAX_NAMES {
            authority.server_config(&format!("n{number}.test")).unwrap();
        }
        assert_eq!(authority.shown.borrow().len(), MAX_NAMES);
    }
}
