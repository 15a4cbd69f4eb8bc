//! Secrets and personal data with their exact places, to be replaced by tags.

use agentsh_secrets::certain::Secret;

use crate::finding::Redaction;

/// The text with tags for secrets.
#[must_use]
pub fn redacted(text: &str, secrets: &[Secret]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for secret in secrets {
        out.push_str(text.get(at..secret.place.start).unwrap_or_default());
        out.push_str("[REDACTED ");
        out.push_str(secret.kind);
        out.push(']');
        at = secret.place.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

pub(crate) fn redactions(pointer: &str, secrets: &[Secret]) -> Vec<Redaction> {
    secrets
        .iter()
        .map(|secret| Redaction {
            kind: secret.kind,
            pointer: pointer.to_owned(),
            start: secret.place.start,
            end: secret.place.end,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentsh_secrets::certain::find_in_views as find;

    fn shown(text: &str) -> String {
        let shown = redacted(text, &find(text));
        assert_eq!(redacted(&shown, &find(&shown)), shown, "redacted twice");
        shown
    }

    #[test]
    fn secrets_and_personal_data_are_replaced_exactly() {
        let jwt = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
        for (text, expected) in [
            ("mail a@b.co ok", "mail [REDACTED EMAIL] ok"),
            ("mail u@xn--mnchen-3ya.de ok", "mail [REDACTED EMAIL] ok"),
            ("ssn 665-12-3456.", "ssn [REDACTED SSN]."),
            ("call (555) 123-4567!", "call [REDACTED PHONE]!"),
            ("PHONE=+44 20 7850 5758\n", "PHONE=[REDACTED PHONE]\n"),
            ("card 4111 1111 1111 1111 x", "card [REDACTED CREDIT CARD] x"),
            ("k=AKIAIOSFODNN7EXAMPLE z", "k=[REDACTED AWS KEY] z"),
            ("t ghp_a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2", "t [REDACTED GITHUB TOKEN]"),
            ("xoxb-1234567890-1234567890-aBcDaBcDaBcDaBcDaBcDaBcD", "[REDACTED SLACK TOKEN]"),
            (&format!("bearer {jwt} z"), "bearer [REDACTED JWT] z"),
            (
                "x -----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY----- y",
                "x [REDACTED PRIVATE KEY] y",
            ),
            ("x -----BEGIN PRIVATE KEY-----\nAAAA", "x [REDACTED PRIVATE KEY]"),
            ("iban DE18 7276 1316 1527 2122 33 x", "iban [REDACTED IBAN] x"),
            ("redis://lee:sxOhnlPqDj6z5gDs@db.helio.dev/app in", "[REDACTED CONNECTION STRING] in"),
            ("password=3PnbzuttDVBxclCMbS5HQ+ and", "[REDACTED PASSWORD] and"),
            ("{\"password\": \"3PnbzuttDVBxclCMbS5HQ\"}", "{\"password\": \"[REDACTED PASSWORD]\"}"),
            (
                "Authorization: Bearer cqpZZX7lUPG2MKH2bIhp4xeLk5P-uEuNpLqmaInU",
                "Authorization: [REDACTED BEARER TOKEN]",
            ),
            ("p=QUtJQUlPU0ZPRE5ON0VYQU1QTEU= q", "p=[REDACTED AWS KEY] q"),
            ("p=%41%4B%49%41IOSFODNN7EXAMPLE q", "p=[REDACTED AWS KEY] q"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn numbers_and_ids_that_are_no_secret_stay() {
        for text in [
            "ssn 000-12-3456.",
            "ssn 900-12-3456.",
            "ssn 123456789.",
            "5551234567",
            "id 555-12",
            "v1.2.3",
            "n 1234567812345670 x",
            "n 41111111111111 x",
            "n 411111111111111111111 x",
            "k=AKIAshort",
            "git@github.com:a/b.git",
            "@types/x@1.4.1",
            "2026-04-11T15:15:23.096Z",
            "34.7.219.238:17436",
            "978-7-4475-6478-5",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "api_key is required",
            "3ce0010a-9bbd-7318-c3ee-fb9a7a66af90",
            "sha512-abcdefghijk",
            "21.021476, 91.464533",
            "eyJhbGciOiJIUzI1NiJ9",
            "process.env.OPENAI_API_KEY",
            "[REDACTED EMAIL]",
            "password=changeme",
        ] {
            assert_eq!(shown(text), text);
        }
    }
}
