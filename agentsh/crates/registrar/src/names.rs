//! Server names: which are equal, and which only look alike.

use unicode_normalization::UnicodeNormalization;

/// Longest name, in characters.
pub const MAX_LENGTH: usize = 256;

/// The normalised name of a server (NFC), or why it is invalid. Invisible characters are not allowed.
pub fn normal(name: &str) -> Result<String, &'static str> {
    let name: String = name.nfc().collect();
    if name.chars().count() > MAX_LENGTH {
        return Err("Name should have at most 256 characters");
    }
    if name.chars().any(is_invisible) {
        return Err("Name should have no control characters and none that cannot be seen");
    }
    if name.trim() != name || name.is_empty() {
        return Err("Name should not begin or end with white space");
    }
    Ok(name)
}

/// The skeleton of a name: equal for names that people cannot tell apart (Unicode TR39), in any case.
pub fn skeleton(name: &str) -> String {
    unicode_security::skeleton(&name.to_lowercase()).collect::<String>().to_lowercase()
}

/// A name as it reads: what looks like an ASCII letter is that letter.
pub fn reading(name: &str) -> String {
    let letter = |character: char| {
        let prototype = unicode_security::skeleton(character.encode_utf8(&mut [0; 4])).collect::<String>();
        if !character.is_ascii() && prototype.is_ascii() { prototype } else { character.to_string() }
    };
    name.chars().map(letter).collect()
}

fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_names_are_normalised() {
        assert_eq!(normal("caf\u{65}\u{301}"), Ok("caf\u{e9}".to_owned()));
        for bad in ["", " a", "a\n", "a\u{200b}b", "a\u{202e}b", "a\u{e0041}", &"x".repeat(257)] {
            assert!(normal(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_look_alike_share_a_skeleton() {
        assert_eq!(skeleton("wx"), skeleton("w\u{445}"));
        assert_eq!(skeleton("Slack"), skeleton("slack"));
        assert_ne!(skeleton("server-1"), skeleton("server-2"));
    }
}
