//! One pass over a text that names the values in it: linear, because every character is looked at by a bounded number
//! of bounded checks.

use super::{numbers, tokens};

/// Longest title of a PEM block, in bytes.
const MAX_TITLE: usize = 60;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    ApiKey = 1,
    PrivateKey,
    Jwt,
    /// What stands after `password=`, `"token":` and the like.
    NamedSecret,
    ConnectionString,
    /// Looks random, and nothing says what it is.
    HighEntropy,
    Iban,
    Card,
    NationalId,
    Phone,
    Email,
    Url,
    Ip,
    Uuid,
    /// A hash or another long hexadecimal number.
    HexId,
    Path,
    /// A checksum, the name of a resource, of a message or of a document.
    Id,
}

/// Bytes `start..end` of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entity {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

impl Kind {
    /// A piece of it is as bad as the whole.
    #[must_use]
    pub fn is_secret(self) -> bool {
        matches!(
            self,
            Self::ApiKey
                | Self::PrivateKey
                | Self::Jwt
                | Self::NamedSecret
                | Self::ConnectionString
                | Self::HighEntropy
        )
    }

    /// Says something about a person or an account; only the whole value counts.
    #[must_use]
    pub fn is_personal(self) -> bool {
        matches!(self, Self::Iban | Self::Card | Self::NationalId | Self::Phone)
    }

    /// Names a place or a thing; using it is what it is there for.
    #[must_use]
    pub fn is_reference(self) -> bool {
        !self.is_secret() && !self.is_personal()
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
            Self::PrivateKey => "private-key",
            Self::Jwt => "jwt",
            Self::NamedSecret => "named-secret",
            Self::ConnectionString => "connection-string",
            Self::HighEntropy => "high-entropy",
            Self::Iban => "iban",
            Self::Card => "card",
            Self::NationalId => "national-id",
            Self::Phone => "phone",
            Self::Email => "email",
            Self::Url => "url",
            Self::Ip => "ip",
            Self::Uuid => "uuid",
            Self::HexId => "hex-id",
            Self::Path => "path",
            Self::Id => "id",
        }
    }

    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    const ALL: [Self; 17] = [
        Self::ApiKey,
        Self::PrivateKey,
        Self::Jwt,
        Self::NamedSecret,
        Self::ConnectionString,
        Self::HighEntropy,
        Self::Iban,
        Self::Card,
        Self::NationalId,
        Self::Phone,
        Self::Email,
        Self::Url,
        Self::Ip,
        Self::Uuid,
        Self::HexId,
        Self::Path,
        Self::Id,
    ];
}

/// The values in `text`, at most `limit`, in the order of their starts. They may lie inside each other: a URL with a
/// key in it is both.
#[must_use]
pub fn find(text: &str, limit: usize) -> Vec<Entity> {
    find_with(text, limit, false)
}

/// As [`find`], for what is looked up: also numbers that would need a word that says what they are.
#[must_use]
pub fn find_sought(text: &str, limit: usize) -> Vec<Entity> {
    find_with(text, limit, true)
}

fn find_with(text: &str, limit: usize, sought: bool) -> Vec<Entity> {
    let mut found = Vec::new();
    private_keys(text, limit, &mut found);
    tokens::find(text, limit, &mut found);
    numbers::find(text, limit, sought, &mut found);
    found.sort_by_key(|entity| (entity.start, entity.end));
    found.dedup();
    within_ids(&mut found);
    found.truncate(limit);
    found
}

/// A number inside of the name of a thing is part of it. Linear: they are in the order of their starts.
fn within_ids(found: &mut Vec<Entity>) {
    if found.iter().all(|entity| entity.kind != Kind::Id) {
        return;
    }
    // What begins where an id does stands before it when it is shorter.
    found.sort_by_key(|entity| (entity.start, entity.kind != Kind::Id, entity.end));
    let mut end = 0;
    found.retain(|entity| {
        let is_own = entity.kind.is_personal() || entity.kind == Kind::HighEntropy;
        if entity.kind == Kind::Id {
            end = end.max(entity.end);
        }
        entity.end > end || !is_own
    });
    found.sort_by_key(|entity| (entity.start, entity.end));
}

/// What stands between the `BEGIN` and the `END` line, or the end of the text.
fn private_keys(text: &str, limit: usize, found: &mut Vec<Entity>) {
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&text.as_bytes()[from..], b"-----BEGIN") {
        let title = from + at + 10;
        from = title;
        let Some(length) = memchr::memmem::find(&text.as_bytes()[title..], b"-----") else { return };
        if length > MAX_TITLE || !text[title..title + length].contains("PRIVATE KEY") {
            continue;
        }
        let start = title + length + 5;
        let end = memchr::memmem::find(&text.as_bytes()[start..], b"-----END");
        let end = end.map_or(text.len(), |length| start + length);
        if found.len() < limit && end > start {
            found.push(Entity { kind: Kind::PrivateKey, start, end });
        }
        from = end;
    }
}

#[cfg(test)]
#[path = "entities_tests.rs"]
mod tests;
