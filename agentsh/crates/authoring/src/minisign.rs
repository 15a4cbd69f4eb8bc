//! Keys of [minisign](https://jedisct1.github.io/minisign/), and signatures with them. A key with a password is opened by
//! minisign itself.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake2::digest::consts::U32;
use blake2::{Blake2b, Blake2b512, Digest as _};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use agentsh_base::random;
use agentsh_host::host_programs;

/// Bytes before the key's number: its kind, none for the password, the kind of checksum, salt and limits.
const HEAD: usize = 54;
/// Up to the checksum.
const WHOLE: usize = HEAD + 8 + 64;

pub struct SecretKey {
    number: [u8; 8],
    /// Seed and public key.
    both: [u8; 64],
    pair: Ed25519KeyPair,
}

impl SecretKey {
    /// # Errors
    /// When the system gives no random numbers.
    pub fn make() -> Result<Self, String> {
        let number = random::bytes().map_err(|error| error.to_string())?;
        let seed: [u8; 32] = random::bytes().map_err(|error| error.to_string())?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|error| error.to_string())?;
        let mut both = [0; 64];
        both[..32].copy_from_slice(&seed);
        both[32..].copy_from_slice(pair.public_key().as_ref());
        Ok(Self { number, both, pair })
    }

    /// # Errors
    /// When it is not such a key, or its password was not given.
    pub fn read(text: &str) -> Result<Self, String> {
        let none = || "it is not a secret key of minisign".to_owned();
        let decoded = |text: &str| {
            let bytes = text.lines().nth(1).and_then(|line| STANDARD.decode(line.trim()).ok());
            bytes.filter(|bytes| bytes.len() >= WHOLE && bytes.starts_with(b"Ed")).ok_or_else(none)
        };
        let mut bytes = decoded(text)?;
        if bytes[2..4] != [0, 0] {
            bytes = decoded(&without_password(text)?)?;
        }
        let number = bytes[HEAD..HEAD + 8].try_into().map_err(|_| none())?;
        let both: [u8; 64] = bytes[HEAD + 8..WHOLE].try_into().map_err(|_| none())?;
        let pair = Ed25519KeyPair::from_seed_and_public_key(&both[..32], &both[32..]);
        Ok(Self { number, both, pair: pair.map_err(|_| none())? })
    }

    /// The text of its file.
    #[must_use]
    pub fn text(&self) -> String {
        let key = [&self.number[..], &self.both].concat();
        let check = Blake2b::<U32>::new().chain_update(b"Ed").chain_update(&key).finalize();
        let bytes = [&b"Ed\0\0B2"[..], &[0; HEAD - 6], &key, &check].concat();
        format!("untrusted comment: minisign secret key\n{}\n", STANDARD.encode(bytes))
    }

    /// The public key, as configurations name it.
    #[must_use]
    pub fn public(&self) -> String {
        STANDARD.encode([b"Ed", &self.number[..], &self.both[32..]].concat())
    }

    /// Seed and public key of Ed25519, one after the other.
    #[must_use]
    pub fn key_pair(&self) -> &[u8] {
        &self.both
    }

    /// The four lines of a signature.
    #[must_use]
    pub fn sign(&self, message: &[u8], comment: &str) -> String {
        let signature = self.pair.sign(&Blake2b512::digest(message));
        let whole = self.pair.sign(&[signature.as_ref(), comment.as_bytes()].concat());
        let first = STANDARD.encode([b"ED", &self.number[..], signature.as_ref()].concat());
        let last = STANDARD.encode(whole);
        format!("untrusted comment: signature of agentsh\n{first}\ntrusted comment: {comment}\n{last}\n")
    }
}

/// The key's text without its password. It is never on a disk.
fn without_password(text: &str) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("it has a password, and cannot be opened: {error}");
    let minisign = host_programs::command_of_system("minisign");
    let mut minisign = minisign.ok_or_else(|| failed(&"the system has no `minisign`"))?;
    // Without close-on-exec, because minisign writes into it.
    let file = rustix::fs::memfd_create("key", rustix::fs::MemfdFlags::empty());
    let mut file = File::from(file.map_err(|error| failed(&error))?);
    file.write_all(text.as_bytes()).map_err(|error| failed(&error))?;
    minisign.args(["-C", "-W", "-s"]).arg(format!("/proc/self/fd/{}", file.as_raw_fd()));
    minisign
        .stdin(File::open("/dev/tty").map_or_else(|_| Stdio::inherit(), Stdio::from))
        .stderr(Stdio::inherit());
    let done = minisign.status().map_err(|error| failed(&error))?;
    if !done.success() {
        return Err(failed(&"minisign refused it"));
    }
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(|error| failed(&error))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn minisign_keys_and_signatures_work_with_another_implementation() {
        let own = SecretKey::make().unwrap();
        let theirs = minisign::SecretKeyBox::from_string(&own.text()).unwrap();
        let theirs = theirs.into_unencrypted_secret_key().unwrap();
        let public = minisign::PublicKey::from_base64(&own.public()).unwrap();
        assert!(minisign::PublicKey::from_secret_key(&theirs).unwrap() == public);
        for message in [&b""[..], b"text"] {
            let signature = minisign::SignatureBox::from_string(&own.sign(message, "why")).unwrap();
            assert_eq!(signature.trusted_comment().unwrap(), "why");
            let holds = |message: &[u8]| {
                minisign::verify(&public, &signature, std::io::Cursor::new(message), true, false, false)
            };
            assert!(holds(message).is_ok() && holds(b"other").is_err());
        }
        let pair = minisign::KeyPair::generate_unencrypted_keypair().unwrap();
        let read = SecretKey::read(&String::from(pair.sk.to_box(None).unwrap())).unwrap();
        assert_eq!(read.public(), pair.pk.to_base64());
        assert_eq!(SecretKey::read(&read.text()).unwrap().key_pair(), read.key_pair());
        for text in ["", "untrusted comment: x\nRWQ=\n", &own.text().replace("RWQ", "RWR")] {
            assert!(SecretKey::read(text).is_err(), "{text}");
        }
    }
}
