//! Words: enums that are closed sets of them, texts that are written as doc comments, and names.

/// The text of a doc comment, whose lines begin with a space.
#[must_use]
pub const fn without_margin(comment: &'static str) -> &'static str {
    match comment.split_at_checked(1) {
        Some((_, text)) => text,
        None => "",
    }
}

/// `1 file`, `2 files`.
#[must_use]
pub fn counted(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// The words of a name, in lower case: at what is no letter or digit, and where a capital follows a small letter.
/// `baseUrl`, `base_url` and `base-url` are `base` and `url`.
#[must_use]
pub fn words_of_name(name: impl Iterator<Item = char>) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for character in name {
        let begins = character.is_uppercase() && after_small;
        if (begins || !character.is_alphanumeric()) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        after_small = character.is_lowercase();
    }
    words
}

/// An enum whose variants are written as words: in files, in events, for people. The function that gives the word is
/// `as_str`, unless the enum names another one.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $visibility:vis enum $name:ident {
        $($(#[$note:meta])* $variant:ident = $word:literal,)+
    }) => {
        $crate::words! { $(#[$about])* $visibility enum $name: as_str { $($(#[$note])* $variant = $word,)+ } }
    };
    ($(#[$about:meta])* $visibility:vis enum $name:ident: $method:ident {
        $($(#[$note:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$note])* $variant,)+
        }

        impl $name {
            /// Each word and what it means, in the order of the variants.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)+];

            #[must_use]
            pub const fn $method(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}
