//! The ways in which a text can be hidden in another.

use agentsh_base::words;

words! {
    /// One decoding step. A view lists its steps, outermost first.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Step {
        /// The text has other characters between its own.
        Apart = "every-nth",
        Ascii85 = "ascii85",
        Base32 = "base32",
        Base64 = "base64",
        Base85 = "base85",
        Binary = "binary",
        CharacterCodes = "character-codes",
        /// Encoded words of mail headers.
        EncodedWords = "encoded-words",
        /// Percent and backslash escapes, nested in any order.
        Escapes = "escapes",
        Hex = "hex",
        /// Pieces of an encoding with words between them.
        Interspersed = "interspersed",
        Invisible = "invisible",
        Morse = "morse",
        Reversed = "reversed",
        ReversedWords = "reversed-words",
        Rot47 = "rot47",
        /// A shifted or mirrored alphabet.
        Shifted = "shifted",
        /// Without its digits.
        WithoutDigits = "without-digits",
        /// Standing on its head.
        Upturned = "upturned",
    }
}

impl Step {
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
