//! The one form of answer: `CLEAN CODE`, or `FLAGGED CODE` and a reason.

#[derive(Debug, PartialEq, Eq)]
pub enum Word<'a> {
    Clean,
    Flagged(&'a str),
}

/// None: it is something else, whatever else stands in it.
pub fn read<'a>(text: &'a str, code: &str) -> Option<Word<'a>> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("CLEAN ") {
        return (rest == code).then_some(Word::Clean);
    }
    let rest = text.strip_prefix("FLAGGED ")?.strip_prefix(code)?;
    // A reason may be missing, but it does not begin inside the code.
    match rest.chars().next() {
        None => Some(Word::Flagged("no reason given")),
        Some(' ' | ':' | '\n' | '\r') => Some(Word::Flagged(rest.trim_start_matches([' ', ':', '\n', '\r']))),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_exact_form_is_clean() {
        assert_eq!(read("CLEAN 5f", "5f"), Some(Word::Clean));
        assert_eq!(read("\nCLEAN 5f \n", "5f"), Some(Word::Clean));
        assert_eq!(read("FLAGGED 5f: a key in base64", "5f"), Some(Word::Flagged("a key in base64")));
        assert_eq!(read("FLAGGED 5f", "5f"), Some(Word::Flagged("no reason given")));
        for text in [
            "CLEAN",
            "clean 5f",
            "CLEAN 5f.",
            "CLEAN 5f FLAGGED 5f",
            "CLEAN 6f",
            "CLEAN  5f",
            "**CLEAN 5f**",
            "`CLEAN 5f`",
            "The answer is CLEAN 5f",
            "CLEAN 5f\nCLEAN 5f",
            "FLAGGED",
            "FLAGGED 5f0",
            "",
            "CLEAN5f",
            "{\"verdict\":\"CLEAN 5f\"}",
            "NOT CLEAN 5f",
        ] {
            assert_eq!(read(text, "5f"), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_without_the_code_is_clean(text in "(CLEAN|FLAGGED)?.{0,40}") {
            prop_assume!(!text.contains("5fd1"));
            prop_assert_eq!(read(&text, "5fd1"), None);
        }
    }
}
