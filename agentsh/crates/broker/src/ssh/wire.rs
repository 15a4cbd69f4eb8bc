//! Values of the ssh protocol (RFC 4251, section 5), and the ssh agent messages (draft-ietf-sshm-ssh-agent) that are
//! used here.

pub const FAILURE: u8 = 5;
pub const SUCCESS: u8 = 6;
pub const REQUEST_IDENTITIES: u8 = 11;
pub const IDENTITIES_ANSWER: u8 = 12;
pub const SIGN_REQUEST: u8 = 13;
pub const SIGN_RESPONSE: u8 = 14;
pub const EXTENSION: u8 = 27;

/// The unread rest.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.string()?).ok()
    }

    /// Checks that nothing follows.
    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Appends a string.
pub fn put(into: &mut Vec<u8>, string: &[u8]) {
    // Nothing here is near 4 GiB: what comes in is bounded.
    let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
    into.extend(length.to_be_bytes());
    into.extend(string);
}

/// The public keys of an answer to [`REQUEST_IDENTITIES`], with their comments.
#[must_use]
pub fn identities(message: &[u8]) -> Option<Vec<(Vec<u8>, String)>> {
    let mut rest = Bytes(message);
    (rest.byte()? == IDENTITIES_ANSWER).then_some(())?;
    let count = rest.number()?;
    let mut found = Vec::new();
    for _ in 0..count {
        let key = rest.string()?.to_vec();
        found.push((key, String::from_utf8_lossy(rest.string()?).into_owned()));
    }
    Some(found)
}
