//! Finds all values of a text in one linear pass.

use super::{numbers, tokens};

/// Limit of a PEM block's title, in bytes.
const MAX_TITLE: usize = 60;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    ApiKey = 1,
    PrivateKey,
    Jwt,
    /// After `password=`, `"token":` and the like.
    NamedSecret,
    ConnectionString,
    /// Random-looking, without a name.
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
    /// A checksum, or the name of a resource, message or document.
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
    /// A part is as bad as the whole.
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

    /// About a person or account; only the whole counts.
    #[must_use]
    pub fn is_personal(self) -> bool {
        matches!(self, Self::Iban | Self::Card | Self::NationalId | Self::Phone)
    }

    /// A name of a place or resource that is meant to be used.
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

/// The values in `text`, at most `limit`, by start. They may nest: a URL with a key is both.
#[must_use]
pub fn find(text: &str, limit: usize) -> Vec<Entity> {
    find_with(text, limit, false)
}

/// Like [`find`], for lookups: also numbers that would need a label.
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

/// Drops numbers inside names. Linear: ordered by start.
fn within_ids(found: &mut Vec<Entity>) {
    if found.iter().all(|entity| entity.kind != Kind::Id) {
        return;
    }
    // Of values with the same start, the longer one comes last.
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

/// Between the BEGIN and END lines, or to the end of the text.
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
