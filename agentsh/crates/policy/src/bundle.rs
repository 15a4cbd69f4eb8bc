//! A signed policy: four lines of a minisign signature, one line of manifest, and the policy text.
//!
//! The signature is over everything after its fourth line, so `minisign` itself can check it.

use std::str::FromStr as _;

use jiff::Timestamp;
use minisign_verify::{PublicKey, Signature};

use super::diagnostic::{PolicyError, Source};
use super::keys::{Key, Kind, keys};
use super::locks::{Locks, is_section};
use super::reader::{Here, Reader};
use super::search::{self, Layer};
use super::yaml;

/// The only format there is.
pub const FORMAT: &str = "agentsh-bundle/1";
/// Lines before the manifest.
const SIGNATURE: usize = 4;
/// Largest bundle, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// A policy with a valid signature.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    pub name: String,
    /// Counts up; an older one is refused.
    pub version: u64,
    pub issued: Option<Timestamp>,
    pub expires: Timestamp,
    pub locks: Locks,
    /// Sections that an earlier version locked, and that this one opens on purpose.
    pub widens: Locks,
    /// The key that signed it.
    pub signer: String,
    /// The whole bundle, as stored.
    pub text: String,
    /// The file name in its rules.
    file: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("it is not a bundle: {0}")]
    Form(&'static str),
    #[error("its signature is not one of {0}")]
    Signature(String),
    #[error("it is the bundle '{found}', not the requested '{wanted}'")]
    Name { found: String, wanted: String },
    #[error("it expired at {0}")]
    Expired(Timestamp),
    #[error("it is version {found}, but version {kept} is in force: an older version is refused")]
    Older { found: u64, kept: u64 },
    #[error("it differs from the version {0} that is in force: each version is published only once")]
    Changed(u64),
    #[error("it opens {0}, which the version in force locks; the signer has to list it under `widens`")]
    Widens(String),
    #[error("{0}")]
    Policy(String),
}

const MANIFEST: &[Key] = keys! {
    "format": Kind::Text;
    "name": Kind::Text;
    "version": Kind::Number(1, u32::MAX as u64);
    "issued": Kind::Text;
    "expires": Kind::Text;
    "locked": Kind::Whole(&Kind::Text);
    "widens": Kind::Whole(&Kind::Text);
};

impl Bundle {
    /// Reads a bundle that one of these keys signed. `file` is what its rules will name.
    ///
    /// # Errors
    /// What is wrong with it. The signature is checked first.
    pub fn read(file: &str, text: &str, keys: &[String]) -> Result<Self, BundleError> {
        let (signature, body) = split(text)?;
        let signer = signer(signature, body.as_bytes(), keys)?;
        let (manifest, policy) = body.split_once('\n').ok_or(BundleError::Form("it has no policy"))?;
        let manifest = Manifest::read(file, manifest)?;
        if policy.trim().is_empty() {
            return Err(BundleError::Form("its policy is empty"));
        }
        let bundle = Self {
            name: manifest.name,
            version: manifest.version,
            issued: manifest.issued,
            expires: manifest.expires,
            locks: manifest.locks,
            widens: manifest.widens,
            signer,
            text: text.to_owned(),
            file: file.to_owned(),
        };
        bundle.layer().map_err(|error| BundleError::Policy(error.to_string()))?;
        Ok(bundle)
    }

    /// Its policy, with lines counted as in the whole file.
    pub(super) fn layer(&self) -> Result<Layer, PolicyError> {
        let policy = self.text.splitn(SIGNATURE + 2, '\n').nth(SIGNATURE + 1).unwrap_or_default();
        search::layer(self.file.clone(), format!("{}{policy}", "\n".repeat(SIGNATURE + 1)))
    }
}

/// The signed text: the manifest, which must be one line, and the policy.
///
/// # Errors
/// When one of them cannot be used.
pub fn body(manifest: &str, policy: &str) -> Result<String, BundleError> {
    Manifest::read("the manifest", manifest)?;
    let body = format!("{manifest}\n{}\n", policy.trim_end());
    match body.len() > MAX_BYTES / 2 {
        true => Err(BundleError::Form("it is larger than 512 KiB")),
        false => Ok(body),
    }
}

struct Manifest {
    name: String,
    version: u64,
    issued: Option<Timestamp>,
    expires: Timestamp,
    locks: Locks,
    widens: Locks,
}

impl Manifest {
    fn read(file: &str, line: &str) -> Result<Self, BundleError> {
        let text = format!("{}{line}\n", "\n".repeat(SIGNATURE));
        let source = Source { name: file, text: &text };
        let wrong = |error: PolicyError| BundleError::Policy(error.to_string());
        let tree = yaml::parse(source).map_err(|problem| wrong(PolicyError::Invalid(vec![*problem])))?;
        let mut reader = Reader::new(source);
        let missing = BundleError::Form("its manifest lacks one of format, name, version and expires");
        let Some(fields) = reader.map(&Here::root(&tree), MANIFEST) else { return Err(missing) };
        let format = reader.word(fields.find("format"), &[(FORMAT, ())]);
        let name = fields.find("name").and_then(|here| {
            let name = reader.text(&here)?;
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            if name.len() > 64 || !name.bytes().all(is_plain) {
                return reader.fault(&here, "a name has at most 64 letters, digits, `-` and `_`", None);
            }
            Some(name)
        });
        let version = reader.number(fields.find("version"), 1, u64::from(u32::MAX));
        let time = |reader: &mut Reader<'_>, here: Option<Here<'_>>| {
            let here = here?;
            let text = reader.text(&here)?;
            let time = Timestamp::from_str(&text).ok();
            if time.is_none() {
                reader.problem(&here, "this is not a time such as `2026-01-31T00:00:00Z`", None);
            }
            time
        };
        let (issued, expires) =
            (time(&mut reader, fields.find("issued")), time(&mut reader, fields.find("expires")));
        let path = |reader: &mut Reader<'_>, here: &Here<'_>| {
            let path = reader.text(here)?;
            if !is_section(&path) {
                return reader.fault(here, format!("`{path}` is not a section of a policy"), None);
            }
            Some(path)
        };
        let locked = reader.list(fields.find("locked"), path);
        let widens = reader.list(fields.find("widens"), path);
        reader.finish().map_err(|problems| wrong(PolicyError::Invalid(problems)))?;
        match (format, name, version, expires) {
            (Some(_), Some(name), Some(version), Some(expires)) => Ok(Self {
                name,
                version: version.value,
                issued,
                expires,
                locks: Locks(locked.map(|list| list.value).unwrap_or_default()),
                widens: Locks(widens.map(|list| list.value).unwrap_or_default()),
            }),
            _ => Err(missing),
        }
    }
}

fn split(text: &str) -> Result<(&str, &str), BundleError> {
    if text.len() > MAX_BYTES {
        return Err(BundleError::Form("it is larger than 1 MiB"));
    }
    if !text.starts_with("untrusted comment:") {
        return Err(BundleError::Form("it does not begin with a signature of minisign"));
    }
    let end = text.match_indices('\n').nth(SIGNATURE - 1).map(|(at, _)| at + 1);
    let end = end.ok_or(BundleError::Form("it ends within its signature"))?;
    Ok(text.split_at(end))
}

fn signer(signature: &str, body: &[u8], keys: &[String]) -> Result<String, BundleError> {
    let none = || BundleError::Signature(keys.join(", "));
    let signature = Signature::decode(signature).map_err(|_| none())?;
    let signed = |key: &&String| {
        PublicKey::from_base64(key).is_ok_and(|key| key.verify(body, &signature, false).is_ok())
    };
    keys.iter().find(signed).cloned().ok_or_else(none)
}
