//! OpenSSH keys: an Ed25519 key without a passphrase signs; a public key, or a file of allowed signers with validity
//! times, says who may have signed. A minisign key is also an Ed25519 key. Keys with X.509 certificates are in
//! [`certificates`](super::certificates).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sha2::{Digest, Sha256};

use super::certificates::{Authorities, CertifiedKey};
use super::envelope::EnvelopeRefusal;

const KIND: &str = "ssh-ed25519";
const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
const END: &str = "\n-----END OPENSSH PRIVATE KEY-----\n";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// Begins each file of minisign.
pub const MINISIGN: &str = "untrusted comment:";
/// The name of this use of a key in a file of allowed signers.
const NAMESPACE: &str = "agentsh";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("it is not an OpenSSH private key")]
    NotPrivate,
    #[error("it has a passphrase; give a key without one")]
    Passphrase,
    #[error("it is not of the kind {KIND}")]
    Kind,
    #[error("line {0} is not `PRINCIPALS [OPTIONS] {KIND} KEY`, as in a file of allowed signers: {1}")]
    Line(usize, String),
    #[error("it is not a minisign key")]
    Minisign,
    #[error("it has no PKCS#8 key of P-256 or Ed25519 (`openssl pkcs8 -topk8 -nocrypt` converts others)")]
    Pkcs8,
    #[error("its certificates cannot be read, or the first is not that of its key")]
    Certificate,
    #[error("it names no key of the kind {KIND} that may sign receipts")]
    Nobody,
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

pub enum SigningKey {
    Plain(Ed25519KeyPair),
    Certified(CertifiedKey),
}

/// Who may have signed: the owners of keys, or whoever has a certificate.
#[derive(Debug)]
pub enum Accepted {
    Keys(Vec<Signer>),
    Authorities(Authorities),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// An accepted signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The signer's name in the file, or the fingerprint.
    pub who: String,
    pub key: PublicKey,
    after: Option<Timestamp>,
    before: Option<Timestamp>,
}

impl SigningKey {
    /// The text of a new private key.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn make() -> Result<String, KeyError> {
        let random = |error: &dyn std::fmt::Display| KeyError::Random(error.to_string());
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| random(&error))?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|error| random(&error))?;
        let public = PublicKey::of(pair.public_key().as_ref()).ok_or(KeyError::Kind)?;
        let mut secret = vec![0; 8];
        let both = [&seed[..], &public.0].concat();
        for part in [KIND.as_bytes(), &public.0, &both, b"agentsh receipts"] {
            put(&mut secret, part);
        }
        // Filled up to whole blocks of eight bytes: 1, 2, 3.
        secret.extend((1..8).take((8 - secret.len() % 8) % 8));
        let mut bytes = MAGIC.to_vec();
        [&b"none"[..], b"none", b""].into_iter().for_each(|part| put(&mut bytes, part));
        bytes.extend(1_u32.to_be_bytes());
        put(&mut bytes, &public.blob());
        put(&mut bytes, &secret);
        let text = STANDARD.encode(bytes);
        let lines: Vec<&str> =
            text.as_bytes().chunks(70).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        Ok(format!("{BEGIN}{}{END}", lines.join("\n")))
    }

    /// # Errors
    /// When it is not such a key.
    pub fn read(text: &str) -> Result<Self, KeyError> {
        if text.contains("-----BEGIN ") && !text.contains(BEGIN.trim_end()) {
            return CertifiedKey::read(text).map(Self::Certified);
        }
        let body = text.trim_start().strip_prefix(BEGIN.trim_end()).and_then(|rest| rest.split_once("-----"));
        let body: String = body.ok_or(KeyError::NotPrivate)?.0.split_whitespace().collect();
        let bytes = STANDARD.decode(body).map_err(|_| KeyError::NotPrivate)?;
        Self::parse(bytes.strip_prefix(MAGIC).ok_or(KeyError::NotPrivate)?)?.ok_or(KeyError::NotPrivate)
    }

    /// Its seed and its public key, one after the other.
    #[must_use]
    pub fn of_pair(both: &[u8]) -> Option<Self> {
        let (seed, public) = both.split_at_checked(32)?;
        Ed25519KeyPair::from_seed_and_public_key(seed, public).ok().map(Self::Plain)
    }

    /// None: it ends too early.
    fn parse(mut rest: &[u8]) -> Result<Option<Self>, KeyError> {
        let mut fields = [&b""[..]; 3];
        for field in &mut fields {
            let Some(found) = take(&mut rest) else { return Ok(None) };
            *field = found;
        }
        if fields != [&b"none"[..], b"none", b""] {
            return Err(KeyError::Passphrase);
        }
        let Some(mut secret) = rest.split_off(..4).and_then(|_count| {
            take(&mut rest)?;
            take(&mut rest)
        }) else {
            return Ok(None);
        };
        if secret.split_off(..8).is_none() {
            return Ok(None);
        }
        if take(&mut secret) != Some(KIND.as_bytes()) {
            return Err(KeyError::Kind);
        }
        let (Some(public), Some(both)) = (take(&mut secret), take(&mut secret)) else { return Ok(None) };
        Ok(Self::of_pair(both).filter(|pair| pair.public().is_some_and(|own| own.0 == public)))
    }

    /// None: it has a certificate.
    #[must_use]
    pub fn public(&self) -> Option<PublicKey> {
        match self {
            Self::Plain(pair) => PublicKey::of(pair.public_key().as_ref()),
            Self::Certified(_) => None,
        }
    }

    #[must_use]
    pub fn fingerprint(&self) -> String {
        match self {
            Self::Plain(_) => self.public().map_or_else(String::new, |public| public.fingerprint()),
            Self::Certified(key) => key.fingerprint(),
        }
    }

    /// # Errors
    /// When the system gives no random numbers.
    pub fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, KeyError> {
        match self {
            Self::Plain(pair) => Ok(pair.sign(bytes).as_ref().to_vec()),
            Self::Certified(key) => key.sign(bytes),
        }
    }
}

impl PublicKey {
    fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    fn blob(&self) -> Vec<u8> {
        let mut blob = Vec::new();
        put(&mut blob, KIND.as_bytes());
        put(&mut blob, &self.0);
        blob
    }

    /// The fingerprint, as `ssh-keygen -l` prints it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint_of(&self.blob())
    }

    /// The line of a `.pub` file, without a comment.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{KIND} {}", STANDARD.encode(self.blob()))
    }

    fn read(text: &str) -> Option<Self> {
        let blob = STANDARD.decode(text).ok()?;
        let mut rest = blob.as_slice();
        (take(&mut rest)? == KIND.as_bytes()).then_some(())?;
        let key = Self::of(take(&mut rest)?)?;
        rest.is_empty().then_some(key)
    }

    /// The second line of minisign's public key: `Ed`, eight bytes of a number, the key.
    fn of_minisign(line: &str) -> Option<Self> {
        let bytes = STANDARD.decode(line.trim()).ok()?;
        bytes.strip_prefix(b"Ed").and_then(|rest| Self::of(rest.get(8..)?))
    }

    pub(crate) fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(bytes, signature).is_ok()
    }
}

pub(crate) fn fingerprint_of(public: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(public)))
}

impl Signer {
    /// A signer with this key, without a limit in time.
    #[must_use]
    pub fn of(who: &str, key: PublicKey) -> Self {
        Self { who: who.to_owned(), key, after: None, before: None }
    }

    pub(crate) fn valid_at(&self, time: Timestamp) -> Result<(), EnvelopeRefusal> {
        match (self.after, self.before) {
            (Some(after), _) if time < after => Err(EnvelopeRefusal::Early(self.who.clone(), after)),
            (_, Some(before)) if time >= before => Err(EnvelopeRefusal::Expired(self.who.clone(), before)),
            _ => Ok(()),
        }
    }
}

/// The accepted signers in a `.pub` file (of minisign, too) or a file of allowed signers. Keys of other kinds, and those for
/// other uses, are ignored.
///
/// # Errors
/// When a line cannot be understood, or no signer is left.
pub fn signers(text: &str) -> Result<Vec<Signer>, KeyError> {
    if text.starts_with(MINISIGN) {
        let key = text.lines().nth(1).and_then(PublicKey::of_minisign).ok_or(KeyError::Minisign)?;
        return Ok(vec![Signer::of(&key.fingerprint(), key)]);
    }
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let signer = signer(line).map_err(|why| KeyError::Line(number, why.to_owned()))?;
            found.extend(signer);
        }
    }
    if found.is_empty() { Err(KeyError::Nobody) } else { Ok(found) }
}

fn signer(line: &str) -> Result<Option<Signer>, &'static str> {
    let words = split(line, ' ');
    let kind = |word: &&str| ["ssh-", "ecdsa-", "sk-"].iter().any(|start| word.starts_with(start));
    let at = words.iter().take(3).position(kind).ok_or("it has no key")?;
    if words.get(at) != Some(&KIND) {
        return Ok(None);
    }
    let key = words.get(at + 1).and_then(|text| PublicKey::read(text)).ok_or("its key cannot be read")?;
    let who = if at == 0 { key.fingerprint() } else { words[0].trim_matches('"').to_owned() };
    let mut signer = Signer::of(&who, key);
    let twice = Err("it has an option twice");
    for option in split(words.get(1).filter(|_| at == 2).unwrap_or(&""), ',') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = value.trim_matches('"');
        match name.to_ascii_lowercase().as_str() {
            "namespaces" if value.contains('!') => return Err("its namespaces have a `!`"),
            "namespaces" if value.split(',').any(|name| matches!(name, NAMESPACE | "*")) => {}
            "namespaces" => return Ok(None),
            "valid-after" if signer.after.is_some() => return twice,
            "valid-after" => signer.after = Some(time(value).ok_or("valid-after is not a time")?),
            "valid-before" if signer.before.is_some() => return twice,
            "valid-before" => signer.before = Some(time(value).ok_or("valid-before is not a time")?),
            _ => return Err("it has an option that is not known here"),
        }
    }
    Ok(Some(signer))
}

/// The parts between separators that are not in quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    let parts = text.split(move |letter| {
        is_quoted ^= letter == '"';
        !is_quoted && (letter == separator || separator == ' ' && letter == '\t')
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// `YYYYMMDD[HHMM[SS]][Z]`. It is read as UTC, with or without the Z.
fn time(text: &str) -> Option<Timestamp> {
    let digits = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let whole = match digits.len() {
        8 => format!("{digits}000000"),
        12 => format!("{digits}00"),
        _ => digits.to_owned(),
    };
    let is_whole = whole.len() == 14 && whole.bytes().all(|byte| byte.is_ascii_digit());
    let time = DateTime::strptime("%Y%m%d%H%M%S", whole).ok().filter(|_| is_whole)?;
    time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

/// Writes a field as SSH does: its length as four bytes, then its bytes.
fn put(to: &mut Vec<u8>, part: &[u8]) {
    to.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend(part);
}

fn take<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (field, behind) = behind.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = behind;
    Some(field)
}
