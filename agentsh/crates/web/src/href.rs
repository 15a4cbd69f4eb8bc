//! Links within the pages. They begin with one slash and a fixed word, so none leads to another site.

use std::fmt::Write as _;

/// A path and a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Href(String);

impl Href {
    /// The path of these words, which may be untrusted text.
    #[must_use]
    pub fn to(words: &[&str]) -> Self {
        let mut text = String::new();
        for word in words {
            text.push('/');
            encode(word, &mut text);
        }
        if text.is_empty() {
            text.push('/');
        }
        Self(text)
    }

    /// With a parameter more.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        encode(name, &mut self.0);
        self.0.push('=');
        encode(value, &mut self.0);
        self
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn encode(text: &str, out: &mut String) {
    // A segment of dots alone would be taken for a way up, even when it is encoded: it is never an id that leads somewhere.
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'_' | b'~')
            || (byte == b'.' && text.len() > 2)
        {
            out.push(char::from(byte));
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn href_escapes_its_parts_and_stays_on_this_site() {
        assert_eq!(Href::to(&[]).as_str(), "/");
        let href = Href::to(&["server", "//evil.example/?x#y é"]).with("q", "a&b=c");
        assert_eq!(href.as_str(), "/server/%2F%2Fevil.example%2F%3Fx%23y%20%C3%A9?q=a%26b%3Dc");
    }
}
