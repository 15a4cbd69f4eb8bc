//! The last answers of a registry, by server: used if the registry cannot be reached, and for the name of a server,
//! which it cannot change. Each answer is authenticated with a key of this user, so that lines written by others are
//! ignored.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use ring::hmac;
use serde::{Deserialize, Serialize};

use agentsh_base::random;

use agentsh_host::copies::write_anew;

/// Next to the journal, which no sandbox reaches.
const NAME: &str = "vouched.json";
/// The file of the key, next to the answers: 64 hex digits.
const KEY: &str = "vouched.key";
/// Longest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Servers that are remembered.
const MAX_COUNT: usize = 4_096;
/// Seconds after which the same answer is stored again.
const REWRITE_INTERVAL_S: u64 = 3600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationOutcome {
    /// How the server calls itself.
    pub name: String,
    pub hash: String,
    /// Seconds since 1970.
    pub at: u64,
}

/// An answer as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Signed {
    name: String,
    hash: String,
    at: u64,
    /// HMAC-SHA256 over these fields and over server, project and registry.
    signature: String,
}

impl Signed {
    fn text(&self, about: &str) -> String {
        serde_json::json!([about, self.name, self.hash, self.at]).to_string()
    }

    fn read(self, about: &str, secret: &[u8]) -> Option<VerificationOutcome> {
        let given = bytes(&self.signature)?;
        hmac::verify(&mac_key(secret), self.text(about).as_bytes(), &given).ok()?;
        Some(VerificationOutcome { name: self.name, hash: self.hash, at: self.at })
    }
}

fn mac_key(secret: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = |at: usize| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    hex.len().is_multiple_of(2).then(|| (0..hex.len()).step_by(2).map(digits).collect())?
}

/// The key, created if it is missing.
fn secret(state: &Path) -> std::io::Result<Vec<u8>> {
    let file = state.join(KEY);
    let known = fs::read_to_string(&file).ok().and_then(|text| bytes(text.trim()));
    if let Some(known) = known.filter(|known| known.len() == 32) {
        return Ok(known);
    }
    let new = random::hex::<32>().map_err(std::io::Error::other)?;
    write_anew(&file, new.as_bytes(), 0o600)?;
    bytes(&new).ok_or_else(|| std::io::Error::other("no key"))
}

/// The key of one server of one project, at one registry.
#[must_use]
pub fn key(registry: &str, project: &Path, server: &str) -> String {
    serde_json::json!([registry, project.to_string_lossy(), server]).to_string()
}

/// The last answer. An unreadable or unsigned one does not count.
#[must_use]
pub fn find(state: &Path, key: &str) -> Option<VerificationOutcome> {
    let signed = read(&file(state)).remove(key)?;
    signed.read(key, &secret(state).ok()?)
}

/// Remembers an answer.
///
/// # Errors
/// When it is not on disk.
pub fn keep(state: &Path, key: &str, vouched: &VerificationOutcome) -> std::io::Result<()> {
    let secret = secret(state)?;
    let file = file(state);
    let mut all = read(&file);
    let known = all.get(key).cloned().and_then(|signed| signed.read(key, &secret));
    let same = |known: &VerificationOutcome| known.name == vouched.name && known.hash == vouched.hash;
    if known.is_some_and(|known| same(&known) && vouched.at.saturating_sub(known.at) < REWRITE_INTERVAL_S) {
        return Ok(());
    }
    all.remove(key);
    let signed = sign(&secret, key, vouched);
    make_room(&mut all, length(key, &signed), &secret)?;
    all.insert(key.to_owned(), signed);
    write_anew(&file, &serde_json::to_vec(&all)?, 0o600)
}

fn sign(secret: &[u8], key: &str, vouched: &VerificationOutcome) -> Signed {
    let VerificationOutcome { name, hash, at } = vouched.clone();
    let mut signed = Signed { name, hash, at, signature: String::new() };
    let mac = hmac::sign(&mac_key(secret), signed.text(key).as_bytes());
    signed.signature = agentsh_base::hex(mac.as_ref());
    signed
}

/// Bytes of the file that an entry takes.
fn length(key: &str, signed: &Signed) -> u64 {
    let text = serde_json::to_vec(&(key, signed)).map_or(usize::MAX, |text| text.len());
    u64::try_from(text).unwrap_or(u64::MAX)
}

/// Forgets the oldest answers, until one more entry of this length has room. What is not signed is older than all.
fn make_room(all: &mut BTreeMap<String, Signed>, new: u64, secret: &[u8]) -> std::io::Result<()> {
    let Some(most) = MAX_BYTES.checked_sub(new.saturating_add(2)) else {
        return Err(std::io::Error::other("the answer is too long"));
    };
    let mut bytes: u64 = all.iter().map(|(key, signed)| length(key, signed)).sum();
    if all.len() < MAX_COUNT && bytes <= most {
        return Ok(());
    }
    let age = |(key, signed): (&String, &Signed)| {
        let at = signed.clone().read(key, secret).map(|vouched| vouched.at);
        (at, key.clone(), length(key, signed))
    };
    let mut oldest_first: Vec<_> = all.iter().map(age).collect();
    oldest_first.sort();
    for (_, key, length) in oldest_first {
        if all.len() < MAX_COUNT && bytes <= most {
            break;
        }
        all.remove(&key);
        bytes = bytes.saturating_sub(length);
    }
    Ok(())
}

fn file(state: &Path) -> PathBuf {
    state.join(NAME)
}

fn read(file: &Path) -> BTreeMap<String, Signed> {
    let mut text = Vec::new();
    let Ok(open) = fs::File::open(file) else { return BTreeMap::new() };
    let Ok(_) = open.take(MAX_BYTES).read_to_end(&mut text) else { return BTreeMap::new() };
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&text).unwrap_or_default();
    // An invalid entry does not invalidate the others.
    all.into_iter().filter_map(|(key, value)| Some((key, serde_json::from_value(value).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn stored_answer_that_was_edited_or_moved_is_ignored() {
        let state = tempfile::tempdir().unwrap();
        let (one, other) = (key("r", Path::new("/p"), "one"), key("r", Path::new("/p"), "other"));
        let answer = VerificationOutcome { name: "n".to_owned(), hash: "h".to_owned(), at: 7 };
        keep(state.path(), &one, &answer).unwrap();
        assert_eq!(find(state.path(), &one), Some(answer.clone()));
        // The same answer is stored again after some time.
        keep(state.path(), &one, &VerificationOutcome { at: 8, ..answer.clone() }).unwrap();
        assert_eq!(find(state.path(), &one).unwrap().at, 7);
        keep(state.path(), &one, &VerificationOutcome { at: 7 + REWRITE_INTERVAL_S, ..answer.clone() })
            .unwrap();
        assert_eq!(find(state.path(), &one).unwrap().at, 7 + REWRITE_INTERVAL_S);
        let text = fs::read_to_string(file(state.path())).unwrap();
        for (from, to) in [("\"n\"", "\"m\""), ("\"h\"", "\"i\""), ("3607", "9607"), ("one", "other")] {
            fs::write(file(state.path()), text.replace(from, to)).unwrap();
            assert_eq!(find(state.path(), if to == "other" { &other } else { &one }), None, "{to}");
        }
        fs::write(file(state.path()), &text).unwrap();
        fs::write(state.path().join(KEY), "0".repeat(64)).unwrap();
        assert_eq!(find(state.path(), &one), None);
    }

    #[test]
    fn stored_answers_are_bounded_oldest_first() {
        let state = tempfile::tempdir().unwrap();
        let secret = secret(state.path()).unwrap();
        let answer = |name: &str, at| VerificationOutcome { name: name.to_owned(), hash: "h".to_owned(), at };
        let fill = |count: usize, name: &str| {
            // The first by name is the newest.
            let entry = |number: usize| {
                let key = format!("{number:05}");
                let signed = sign(&secret, &key, &answer(name, 9_999 - number as u64));
                (key, signed)
            };
            let all: BTreeMap<String, Signed> = (0..count).map(entry).collect();
            fs::write(file(state.path()), serde_json::to_vec(&all).unwrap()).unwrap();
        };
        let is_known = |number: usize| find(state.path(), &format!("{number:05}")).is_some();
        fill(MAX_COUNT, "n");
        keep(state.path(), "zz", &answer("n", 10_000)).unwrap();
        assert!(is_known(0) && is_known(MAX_COUNT - 2) && !is_known(MAX_COUNT - 1));
        assert!(find(state.path(), "zz").is_some());
        // Unverified records are evicted before verified ones.
        let mut all = read(&file(state.path()));
        all.get_mut("00000").unwrap().at = u64::MAX;
        fs::write(file(state.path()), serde_json::to_vec(&all).unwrap()).unwrap();
        keep(state.path(), "zzz", &answer("n", 10_001)).unwrap();
        assert!(!is_known(0) && is_known(MAX_COUNT - 2));
        // Long names take no other answer along than they need the room of.
        fill(40, &"n".repeat(100_000));
        keep(state.path(), "zz", &answer(&"n".repeat(400_000), 10_000)).unwrap();
        assert!(is_known(0) && is_known(36) && !is_known(39) && find(state.path(), "zz").is_some());
        assert!(keep(state.path(), "zzz", &answer(&"n".repeat(5 << 20), 10_001)).is_err());
        assert!(is_known(0) && find(state.path(), "zz").is_some());
    }
}
