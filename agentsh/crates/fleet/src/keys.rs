//! Keys of hosts, and the signature of each request.

use std::io;

use agentsh_base::random;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};

/// The id of the host that a request comes from.
pub const HOST: &str = "agentsh-host";
/// The time of the request, in milliseconds since 1970.
pub const TIME: &str = "agentsh-time";
/// SHA-256 of the body as it is sent, as hex digits. It is signed, so that a body is read only of who signed it.
pub const BODY: &str = "agentsh-body";
/// Over everything that [`signed_text`] puts together, as hex digits.
pub const SIGNATURE: &str = "agentsh-signature";

pub struct HostKey {
    pair: Ed25519KeyPair,
}

impl HostKey {
    /// 32 random bytes as hex digits, for [`HostKey::read`].
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn make() -> io::Result<String> {
        random::hex::<32>()
    }

    /// None: these are not 64 hex digits.
    #[must_use]
    pub fn read(seed: &str) -> Option<Self> {
        let bytes = unhex(seed)?;
        Some(Self { pair: Ed25519KeyPair::from_seed_unchecked(&bytes).ok()? })
    }

    /// The part that the server stores.
    #[must_use]
    pub fn public(&self) -> String {
        agentsh_base::hex(self.pair.public_key().as_ref())
    }

    #[must_use]
    pub fn sign(&self, text: &str) -> String {
        agentsh_base::hex(self.pair.sign(text.as_bytes()).as_ref())
    }
}

/// Everything of a request that counts. `path` is with its query; `body` is what [`BODY`] says.
#[must_use]
pub fn signed_text(method: &str, path: &str, host: &str, time: &str, body: &str) -> String {
    format!("agentsh fleet request 1\n{method}\n{path}\n{host}\n{time}\n{body}")
}

#[must_use]
pub fn is_signed(public: &str, text: &str, signature: &str) -> bool {
    let (Some(public), Some(signature)) = (unhex(public), unhex(signature)) else { return false };
    UnparsedPublicKey::new(&ED25519, public).verify(text.as_bytes(), &signature).is_ok()
}

/// SHA-256 as hex digits.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    agentsh_base::hex(&Sha256::digest(bytes))
}

#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// The hash from its hex digits.
#[must_use]
pub fn hash(text: &str) -> Option<[u8; 32]> {
    unhex(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn a_signature_holds_for_one_request_of_one_host() {
        let (one, other) = (HostKey::make().unwrap(), HostKey::make().unwrap());
        let (one, other) = (HostKey::read(&one).unwrap(), HostKey::read(&other).unwrap());
        let text = signed_text("POST", "/v1/events", "h1", "5", &digest(b"body"));
        let signature = one.sign(&text);
        assert!(is_signed(&one.public(), &text, &signature));
        assert!(!is_signed(&other.public(), &text, &signature));
        for changed in [
            signed_text("GET", "/v1/events", "h1", "5", &digest(b"body")),
            signed_text("POST", "/v1/heads", "h1", "5", &digest(b"body")),
            signed_text("POST", "/v1/events", "h2", "5", &digest(b"body")),
            signed_text("POST", "/v1/events", "h1", "6", &digest(b"body")),
            signed_text("POST", "/v1/events", "h1", "5", &digest(b"bodY")),
        ] {
            assert!(!is_signed(&one.public(), &changed, &signature));
        }
        assert!(HostKey::read("00").is_none() && unhex("0g").is_none() && unhex("é").is_none());
    }
}
