//! The server at the other end of an ssh connection: `session-bind@openssh.com`. The program inside shows the server's
//! host key and its signature over the session. It cannot forge that, so a signature for this session works only with
//! this server.

use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};

use super::wire::Bytes;

pub const NAME: &str = "session-bind@openssh.com";

/// A proven session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundSession {
    pub host_key: Vec<u8>,
    pub session: Vec<u8>,
}

/// Reads what follows the name of the extension, and proves it.
///
/// # Errors
/// A stable code.
pub fn read(content: &[u8]) -> Result<BoundSession, &'static str> {
    let mut rest = Bytes(content);
    let parts = (|| Some((rest.string()?, rest.string()?, rest.string()?, rest.byte()?)))();
    let (host_key, session, signed, is_forwarding) =
        parts.filter(|_| rest.end().is_some()).ok_or("malformed-request")?;
    if is_forwarding != 0 {
        return Err("forwarded-agent");
    }
    verify(host_key, session, signed).ok_or("host-key-not-proven")?;
    Ok(BoundSession { host_key: host_key.to_vec(), session: session.to_vec() })
}

/// Whether the owner of a host key signed these bytes.
fn verify(host_key: &[u8], bytes: &[u8], signed: &[u8]) -> Option<()> {
    let mut signature = Bytes(signed);
    let (algorithm, value) = (signature.text()?, signature.string()?);
    signature.end()?;
    let mut key = Bytes(host_key);
    let kind = key.text()?;
    let check = |how: &'static dyn signature::VerificationAlgorithm, public: &[u8], value: &[u8]| {
        UnparsedPublicKey::new(how, public).verify(bytes, value).ok()
    };
    match (kind, algorithm) {
        ("ssh-ed25519", "ssh-ed25519") => {
            let public = key.string()?;
            key.end()?;
            check(&signature::ED25519, public, value)
        }
        ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256") => {
            let (_curve, point) = (key.string()?, key.string()?);
            key.end()?;
            check(&signature::ECDSA_P256_SHA256_FIXED, point, &fixed(value, 32)?)
        }
        ("ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384") => {
            let (_curve, point) = (key.string()?, key.string()?);
            key.end()?;
            check(&signature::ECDSA_P384_SHA384_FIXED, point, &fixed(value, 48)?)
        }
        ("ssh-rsa", "rsa-sha2-256" | "rsa-sha2-512") => {
            let (e, n) = (positive(key.string()?)?, positive(key.string()?)?);
            key.end()?;
            let how = match algorithm {
                "rsa-sha2-256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                _ => &signature::RSA_PKCS1_2048_8192_SHA512,
            };
            RsaPublicKeyComponents { n, e }.verify(how, bytes, value).ok()
        }
        _ => None,
    }
}

/// A positive number without the zeros in front.
fn positive(number: &[u8]) -> Option<&[u8]> {
    let start = number.iter().position(|byte| *byte != 0)?;
    number.get(start..)
}

/// The two numbers of an ECDSA signature, each as long as the curve's.
fn fixed(value: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut rest = Bytes(value);
    let mut out = Vec::with_capacity(2 * length);
    for _ in 0..2 {
        let number = positive(rest.string()?)?;
        let zeros = length.checked_sub(number.len())?;
        out.resize(out.len() + zeros, 0);
        out.extend(number);
    }
    rest.end().map(|()| out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::super::wire::put;
    use super::*;

    fn bind(session: &[u8], signed: &[u8], forwards: u8) -> Vec<u8> {
        let pair = Ed25519KeyPair::from_pkcs8(
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref(),
        )
        .unwrap();
        let (mut key, mut signature, mut out) = (Vec::new(), Vec::new(), Vec::new());
        put(&mut key, b"ssh-ed25519");
        put(&mut key, pair.public_key().as_ref());
        put(&mut signature, b"ssh-ed25519");
        put(&mut signature, pair.sign(signed).as_ref());
        put(&mut out, &key);
        put(&mut out, session);
        put(&mut out, &signature);
        out.push(forwards);
        out
    }

    #[test]
    fn session_bind_without_the_hosts_signature_is_refused() {
        assert_eq!(read(&bind(b"session", b"session", 0)).unwrap().session, b"session");
        assert_eq!(read(&bind(b"session", b"another", 0)), Err("host-key-not-proven"));
        assert_eq!(read(&bind(b"session", b"session", 1)), Err("forwarded-agent"));
        let mut longer = bind(b"session", b"session", 0);
        longer.push(0);
        assert_eq!(read(&longer), Err("malformed-request"));
        for length in 0..longer.len() - 1 {
            assert!(read(&longer[..length]).is_err());
        }
    }
}
