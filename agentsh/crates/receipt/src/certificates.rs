//! X.509 certificates, as sigstore or an organisation's certificate authority issues them: a key signs with its chain, and a
//! verifier names the authorities and the identity that the certificate must have. Nothing is asked over a network, so a
//! certificate must be valid when the receipt was issued and when it is verified.

use std::time::Duration;

use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, TrustAnchor, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, Error, KeyUsage};

use super::envelope::EnvelopeRefusal;
use super::keys::{KeyError, fingerprint_of};

/// Begins each certificate of a PEM file.
pub const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// id-kp-codeSigning of RFC 5280, without the tag: needed if the certificate names any purpose.
const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];
/// subjectAltName of RFC 5280.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// 1.3.6.1.4.1.57264.1.8, "Issuer (V2)" of Fulcio's OID information: who vouched for the identity.
const OIDC_ISSUER: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xbf, 0x30, 1, 8];
/// The same in older certificates: a bare text.
const OLD_OIDC_ISSUER: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xbf, 0x30, 1, 1];
/// Limit for one envelope; sigstore's chains have three.
const MAX_CERTIFICATES: usize = 8;

/// A private key and the certificates from its own up to, without, the root.
pub struct CertifiedKey {
    pair: Pair,
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl CertifiedKey {
    /// A PEM file with a PKCS#8 key and its certificates, the own one first.
    ///
    /// # Errors
    /// When one of them is missing, or the first certificate is not that of the key.
    pub fn read(text: &str) -> Result<Self, KeyError> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyError::Pkcs8)?;
        let key = key.secret_pkcs8_der();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key, &SystemRandom::new())
            .map(Pair::P256);
        let pair = pair.or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(key).map(Pair::Ed25519));
        let pair = pair.map_err(|_| KeyError::Pkcs8)?;
        let public = match &pair {
            Pair::P256(pair) => pair.public_key().as_ref(),
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
        };
        let mut chain = certificates(text)?;
        // A verifier has the root himself.
        chain.retain(|one| parse_certificate(one).is_ok_and(|parsed| parsed.issuer() != parsed.subject()));
        match chain.first().map(parse_certificate) {
            Some(Ok(own)) if own.subject_public_key_info().ends_with(public) => Ok(Self { pair, chain }),
            _ => Err(KeyError::Certificate),
        }
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.pair {
            Pair::Ed25519(pair) => Ok(pair.sign(bytes).as_ref().to_vec()),
            Pair::P256(pair) => pair
                .sign(&SystemRandom::new(), bytes)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(|error| KeyError::Random(error.to_string())),
        }
    }

    pub(crate) fn fingerprint(&self) -> String {
        let own = self.chain.first().and_then(|own| parse_certificate(own).ok());
        own.map_or_else(String::new, |own| fingerprint_of(&own.subject_public_key_info()))
    }
}

/// The accepted certificate authorities, and the accepted subjects.
#[derive(Debug)]
pub struct Authorities {
    roots: Vec<TrustAnchor<'static>>,
    identity: String,
    issuer: Option<String>,
}

impl Authorities {
    /// A PEM file with root certificates; the e-mail address, URI or DNS name that a signer's certificate must have; and the
    /// OpenID issuer, for certificates that name one.
    ///
    /// # Errors
    /// When the file has no certificate, or one that cannot be read.
    pub fn read(text: &str, identity: &str, issuer: Option<&str>) -> Result<Self, KeyError> {
        let certificates = certificates(text)?;
        let roots =
            certificates.iter().map(|one| webpki::anchor_from_trusted_cert(one).map(|root| root.to_owned()));
        let roots: Vec<_> = roots.collect::<Result<_, _>>().map_err(|_| KeyError::Certificate)?;
        match roots.is_empty() {
            true => Err(KeyError::Certificate),
            false => Ok(Self { roots, identity: identity.to_owned(), issuer: issuer.map(str::to_owned) }),
        }
    }

    /// Whether the owner of this chain signed the bytes, and may have; gives his name.
    pub(crate) fn verify_signature(
        &self,
        chain: &[CertificateDer<'_>],
        keyid: &str,
        (bytes, signature): (&[u8], &[u8]),
        now: Timestamp,
    ) -> Result<String, EnvelopeRefusal> {
        let refused = |why: String| EnvelopeRefusal::Certificate(why);
        let (own, _) = chain.split_first().ok_or_else(|| refused("it is missing".to_owned()))?;
        let certificate =
            parse_certificate(own).map_err(|error| refused(format!("it cannot be read: {error}")))?;
        if fingerprint_of(&certificate.subject_public_key_info()) != keyid {
            return Err(refused(format!("it is not that of the key {keyid}")));
        }
        let algorithms = [webpki::ring::ECDSA_P256_SHA256, webpki::ring::ED25519];
        if !algorithms
            .iter()
            .any(|algorithm| certificate.verify_signature(*algorithm, bytes, signature).is_ok())
        {
            return Err(EnvelopeRefusal::Edited(keyid.to_owned()));
        }
        self.valid_at(chain, now)?;
        let extensions = Extensions::of(own).ok_or_else(|| refused("it cannot be read".to_owned()))?;
        // A constraint on one kind of name says nothing of another kind.
        let kind = match &self.identity {
            uri if uri.contains("://") => URI,
            address if address.contains('@') => EMAIL,
            _ => DNS_NAME,
        };
        if !extensions.names.contains(&(kind, self.identity.as_str())) {
            let names: Vec<&str> = extensions.names.iter().map(|(_, name)| *name).collect();
            let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
            let kind = match kind {
                URI => "URI",
                EMAIL => "e-mail address",
                _ => "DNS name",
            };
            return Err(refused(format!("it names {names}, and not the {kind} {}", self.identity)));
        }
        match (extensions.issuer, self.issuer.as_deref()) {
            (found, wanted) if found == wanted => Ok(self.identity.clone()),
            (Some(found), None) => {
                Err(refused(format!("it names the OpenID issuer {found}: accept it with --issuer")))
            }
            (found, _) => Err(refused(format!("its OpenID issuer is {}", found.unwrap_or("not named")))),
        }
    }

    /// Whether the chain leads to one of the roots and is valid at a time. Every certificate of the chain must be needed.
    pub(crate) fn valid_at(
        &self,
        chain: &[CertificateDer<'_>],
        time: Timestamp,
    ) -> Result<(), EnvelopeRefusal> {
        let at = |second: u64| {
            Timestamp::from_second(i64::try_from(second).unwrap_or(i64::MAX)).unwrap_or_default()
        };
        let Some((own, between)) = chain.split_first() else { return Ok(()) };
        let second = Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0));
        let verified = parse_certificate(own).and_then(|own| {
            let usage = KeyUsage::required_if_present(CODE_SIGNING);
            let second = UnixTime::since_unix_epoch(second);
            let path =
                own.verify_for_usage(ALL_VERIFICATION_ALGS, &self.roots, between, second, usage, None, None)?;
            Ok(path.intermediate_certificates().count() == between.len())
        });
        let who = || format!("{} (or a certificate above it)", self.identity);
        match verified {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(EnvelopeRefusal::Certificate("a certificate of its chain is not needed".to_owned()))
            }
            Err(Error::CertNotValidYet { not_before, .. }) => {
                Err(EnvelopeRefusal::Early(who(), at(not_before.as_secs())))
            }
            Err(Error::CertExpired { not_after, .. }) => {
                Err(EnvelopeRefusal::Expired(who(), at(not_after.as_secs())))
            }
            Err(error) => Err(EnvelopeRefusal::Certificate(match error {
                Error::UnknownIssuer | Error::InvalidSignatureForPublicKey => {
                    "none of the given authorities issued it".to_owned()
                }
                Error::RequiredEkuNotFoundContext(_) => "code signing is none of its purposes".to_owned(),
                Error::CaUsedAsEndEntity => "it is a CA certificate, which cannot sign receipts".to_owned(),
                Error::EndEntityUsedAsCa => "a certificate above it is not a CA certificate".to_owned(),
                Error::NameConstraintViolation => {
                    "an authority above it may not issue for its names, or has constraints on e-mail addresses or URIs, \
                     which are not supported"
                        .to_owned()
                }
                error => format!("it cannot be verified: {error}"),
            })),
        }
    }
}

fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    found.ok().filter(|found| found.len() <= MAX_CERTIFICATES).ok_or(KeyError::Certificate)
}

fn parse_certificate<'c>(one: &'c CertificateDer<'_>) -> Result<EndEntityCert<'c>, Error> {
    EndEntityCert::try_from(one)
}

/// Kinds of names, as RFC 5280 numbers them.
const EMAIL: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;

/// What webpki does not read of a certificate.
struct Extensions<'c> {
    /// E-mail addresses, URIs and DNS names, each with its kind.
    names: Vec<(u8, &'c str)>,
    issuer: Option<&'c str>,
}

impl<'c> Extensions<'c> {
    /// None: the certificate is not DER as RFC 5280 has it.
    fn of(certificate: &'c [u8]) -> Option<Self> {
        let inside = |bytes| sequence(&elements(bytes)?);
        let signed = inside(inside(certificate)?)?;
        let mut found = Self { names: Vec::new(), issuer: None };
        let extensions = elements(signed)?.into_iter().find(|(tag, _)| *tag == 0xa3);
        let Some((_, extensions)) = extensions else { return Some(found) };
        for (_, extension) in elements(inside(extensions)?)? {
            let parts = elements(extension)?;
            let (Some((6, kind)), Some((4, value))) = (parts.first(), parts.last()) else { return None };
            if *kind == ALTERNATIVE_NAMES {
                let names = elements(inside(value)?)?.into_iter();
                let texts = names.filter(|(kind, _)| [EMAIL, DNS_NAME, URI].contains(kind));
                found
                    .names
                    .extend(texts.filter_map(|(kind, name)| Some((kind, std::str::from_utf8(name).ok()?))));
            } else if *kind == OIDC_ISSUER || *kind == OLD_OIDC_ISSUER {
                let text = match elements(value).as_deref() {
                    Some([(0x0c, text)]) if *kind == OIDC_ISSUER => *text,
                    _ if *kind == OLD_OIDC_ISSUER => *value,
                    _ => return None,
                };
                let text = std::str::from_utf8(text).ok()?;
                // Both must say the same; otherwise the issuer is unknown.
                if found.issuer.replace(text).is_some_and(|before| before != text) {
                    return None;
                }
            }
        }
        Some(found)
    }
}

/// The content of a list that begins with a sequence.
fn sequence<'c>(elements: &[(u8, &'c [u8])]) -> Option<&'c [u8]> {
    elements.first().filter(|(tag, _)| *tag == 0x30).map(|(_, content)| *content)
}

/// The elements of DER one after the other, each as its tag and its content.
fn elements(mut rest: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    while let Some((&[tag, short], behind)) = rest.split_first_chunk::<2>() {
        let count = usize::from(short & 0x7f);
        let (length, behind) = match short {
            0..0x80 => (count, behind),
            _ => {
                let (long, behind) = behind.split_at_checked(count).filter(|(long, _)| long.len() <= 4)?;
                (long.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)), behind)
            }
        };
        let (content, behind) = behind.split_at_checked(length)?;
        found.push((tag, content));
        rest = behind;
    }
    rest.is_empty().then_some(found)
}
