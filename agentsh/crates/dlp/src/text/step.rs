//! The ways in which a text can be hidden in another.

/// One decoding step. A view lists its steps, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The text has other characters between its own.
    Apart,
    Ascii85,
    Base32,
    Base64,
    Base85,
    Binary,
    CharacterCodes,
    /// Encoded words of mail headers.
    EncodedWords,
    /// Percent and backslash escapes, nested in any order.
    Escapes,
    Hex,
    /// Pieces of an encoding with words between them.
    Interspersed,
    Invisible,
    Morse,
    Reversed,
    ReversedWords,
    Rot47,
    /// A shifted or mirrored alphabet.
    Shifted,
    /// Without its digits.
    WithoutDigits,
    /// Standing on its head.
    Upturned,
}

impl Step {
    /// The name in findings and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apart => "every-nth",
            Self::Ascii85 => "ascii85",
            Self::Base32 => "base32",
            Self::Base64 => "base64",
            Self::Base85 => "base85",
            Self::Binary => "binary",
            Self::CharacterCodes => "character-codes",
            Self::EncodedWords => "encoded-words",
            Self::Escapes => "escapes",
            Self::Hex => "hex",
            Self::Interspersed => "interspersed",
            Self::Invisible => "invisible",
            Self::Morse => "morse",
            Self::Reversed => "reversed",
            Self::ReversedWords => "reversed-words",
            Self::Rot47 => "rot47",
            Self::WithoutDigits => "without-digits",
            Self::Shifted => "shifted",
            Self::Upturned => "upturned",
        }
    }

    /// Whether it only moves or replaces characters, so that it fits every text and proves nothing alone.
    #[must_use]
    pub fn is_permutation(self) -> bool {
        matches!(
            self,
            Self::Apart
                | Self::Reversed
                | Self::ReversedWords
                | Self::Shifted
                | Self::Rot47
                | Self::WithoutDigits
        )
    }
}
