//! `WWW-Authenticate` (RFC 9110, section 11.6.1) for bearer tokens (RFC 6750, RFC 9728).

/// The challenge of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// The URL of its metadata.
    pub resource_metadata: Option<String>,
    /// Names of scopes, in order.
    pub scopes: Vec<String>,
    /// Such as `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
}

impl Challenge {
    /// The first challenge for bearer tokens in the values of the header, if there is one.
    #[must_use]
    pub fn read<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        values.into_iter().find_map(|value| Self::of_value(value.as_bytes()))
    }

    fn of_value(value: &[u8]) -> Option<Self> {
        let mut rest = ChallengeParser(value);
        let mut found: Option<Self> = None;
        loop {
            rest.skip(b" \t,");
            let word = rest.token();
            if word.is_empty() {
                // The rest is invalid.
                return found;
            }
            let after_word = rest.0;
            rest.skip(b" \t");
            let is_parameter = rest.0.first() == Some(&b'=') && rest.0.get(1) != Some(&b'=');
            if !is_parameter {
                if found.is_some() {
                    // The next challenge.
                    return found;
                }
                rest.0 = after_word;
                if word.eq_ignore_ascii_case(b"bearer") {
                    found = Some(Self::default());
                } else {
                    rest.skip_token68();
                }
                continue;
            }
            rest.0 = rest.0.get(1..).unwrap_or_default();
            rest.skip(b" \t");
            let value = rest.value()?;
            if let Some(found) = &mut found {
                found.take(word, value);
            }
        }
    }

    /// The first of two equal parameters counts.
    fn take(&mut self, name: &[u8], value: String) {
        match name.to_ascii_lowercase().as_slice() {
            b"resource_metadata" => {
                self.resource_metadata.get_or_insert(value);
            }
            b"error" => {
                self.error.get_or_insert(value);
            }
            b"scope" if self.scopes.is_empty() => {
                self.scopes = value.split(' ').filter(|scope| is_scope(scope)).map(str::to_owned).collect();
            }
            _ => {}
        }
    }
}

/// Whether a scope is spelled as in RFC 6749: visible ASCII without quotation mark and backslash.
#[must_use]
pub fn is_scope(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    !text.is_empty() && text.len() <= 256 && text.bytes().all(plain)
}

/// The unread rest.
struct ChallengeParser<'v>(&'v [u8]);

impl<'v> ChallengeParser<'v> {
    fn skip(&mut self, what: &[u8]) {
        let end = self.0.iter().position(|byte| !what.contains(byte)).unwrap_or(self.0.len());
        self.0 = self.0.get(end..).unwrap_or_default();
    }

    fn token(&mut self) -> &'v [u8] {
        let in_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let end = self.0.iter().position(|byte| !in_token(byte)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        token
    }

    /// One word after a scheme without parameters.
    fn skip_token68(&mut self) {
        let before = self.0;
        self.skip(b" \t");
        let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
        let end = self.0.iter().position(|byte| !in_word(byte)).unwrap_or(self.0.len());
        let rest = self.0.get(end..).unwrap_or_default();
        let padding = rest.iter().take_while(|byte| **byte == b'=').count();
        let rest = rest.get(padding..).unwrap_or_default();
        // Else it was the name of the first parameter.
        let is_word =
            end > 0 && rest.iter().find(|byte| !b" \t".contains(byte)).is_none_or(|byte| *byte == b',');
        self.0 = if is_word { rest } else { before };
    }

    /// A token or a text between quotation marks; None for neither, or one without an end.
    fn value(&mut self) -> Option<String> {
        if self.0.first() != Some(&b'"') {
            let token = self.token();
            return (!token.is_empty()).then(|| String::from_utf8_lossy(token).into_owned());
        }
        let mut text = Vec::new();
        let mut bytes = self.0.iter().enumerate().skip(1);
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'"' => {
                    self.0 = self.0.get(at + 1..).unwrap_or_default();
                    return String::from_utf8(text).ok();
                }
                b'\\' => text.push(*bytes.next()?.1),
                other => text.push(*other),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use proptest::prelude::*;

    fn read(value: &str) -> Option<Challenge> {
        Challenge::read([value])
    }

    #[test]
    fn challenge_examples_of_the_specifications_are_read() {
        let found = read(
            "Bearer resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource\",\n  \
             scope=\"files:read files:write\"",
        );
        // Line breaks within a header are obsolete in HTTP.
        assert_eq!(found.unwrap().scopes, Vec::<String>::new());
        let found = read(
            "Bearer error=\"insufficient_scope\", scope=\"files:read files:write\", \
             resource_metadata=\"https://mcp.example.com/r\", error_description=\"say \\\"please\\\", then\"",
        )
        .unwrap();
        assert_eq!(found.error.as_deref(), Some("insufficient_scope"));
        assert_eq!(found.scopes, ["files:read", "files:write"]);
        assert_eq!(found.resource_metadata.as_deref(), Some("https://mcp.example.com/r"));
    }

    #[test]
    fn bearer_challenge_is_found_among_others() {
        let bearer = "bearer Realm=x , SCOPE = a,scope=b";
        for value in [
            bearer.to_owned(),
            format!("Negotiate, {bearer}"),
            format!("Negotiate YWJj==, {bearer}, Basic realm=\"y\", error=z"),
            format!("Digest qop=\"auth, auth-int\", nonce=1, {bearer}"),
        ] {
            let found = read(&value).unwrap();
            assert_eq!((found.scopes.as_slice(), found.error), (&["a".to_owned()][..], None), "{value}");
        }
        assert_eq!(read("Bearer"), Some(Challenge::default()));
        assert_eq!(Challenge::read(["Basic realm=x", "Bearer error=e"]).unwrap().error.as_deref(), Some("e"));
        for none in ["", "Basic realm=x", "bearerx a=b", "\"Bearer\"", "Basic a=\"Bearer error=x"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn challenge_scopes_with_invalid_characters_are_dropped() {
        let found = read("Bearer scope=\"ok b\\\"ad ünder\"").unwrap();
        assert_eq!(found.scopes, ["ok"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_an_end(words in prop::collection::vec(prop::sample::select(vec![
            "Bearer", " ", ",", "=", "\"", "\\", "scope", "a", "Basic", "==", "error", "é",
        ]), 0..60)) {
            let _ = read(&words.concat());
        }
    }
}
