//! The ways in which a text can hide in another one.

/// One decoding. A view lists those that lead to it, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    Ascii85,
    Base32,
    Base36,
    Base58,
    Base62,
    Base64,
    Base85,
    Binary,
    /// Bytes that are no text, as they are.
    Bytes,
    CharacterCodes,
    /// Letters of Korean as syllables.
    Composed,
    /// One large number.
    Decimal,
    Deflate,
    /// Of the headers of a mail.
    EncodedWords,
    /// Percent, backslash, HTML and `U+` escapes, nested in any order.
    Escapes,
    Gzip,
    Hex,
    /// First letters of words, or every second or third letter.
    Initials,
    /// Numbers of several bytes each.
    Integers,
    Interleaved,
    /// Pieces of an encoding with words between them.
    Interspersed,
    Invisible,
    /// Signs for the letters that they look like.
    Leet,
    /// Without the tags and comments of HTML and XML.
    Markup,
    /// Bytes combined with one byte by exclusive or.
    Masked,
    Morse,
    /// Lines with numbers, times or the same words in front.
    NumberedLines,
    /// A letter shift by this many places, then something that decodes.
    Caesar(u8),
    Atbash,
    QuotedPrintable,
    Reversed,
    ReversedWords,
    Rot47,
    /// Words by which letters and digits are said.
    Spoken,
    SwappedCase,
    /// Standing on its head.
    Upturned,
    Uuencoded,
    Z85,
    Zip,
    Zlib,
}

impl Step {
    /// As findings and reports write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ascii85 => "ascii85",
            Self::Base32 => "base32",
            Self::Base36 => "base36",
            Self::Base58 => "base58",
            Self::Base62 => "base62",
            Self::Base64 => "base64",
            Self::Base85 => "base85",
            Self::Binary => "binary",
            Self::Bytes => "bytes",
            Self::CharacterCodes => "character-codes",
            Self::Composed => "composed",
            Self::Decimal => "decimal",
            Self::Deflate => "deflate",
            Self::EncodedWords => "encoded-words",
            Self::Escapes => "escapes",
            Self::Gzip => "gzip",
            Self::Hex => "hex",
            Self::Initials => "initials",
            Self::Integers => "integers",
            Self::Interleaved => "interleaved",
            Self::Interspersed => "interspersed",
            Self::Invisible => "invisible",
            Self::Leet => "leet",
            Self::Markup => "markup",
            Self::Masked => "masked",
            Self::Morse => "morse",
            Self::NumberedLines => "numbered-lines",
            Self::Caesar(_) => "caesar",
            Self::Atbash => "atbash",
            Self::QuotedPrintable => "quoted-printable",
            Self::Reversed => "reversed",
            Self::ReversedWords => "reversed-words",
            Self::Rot47 => "rot47",
            Self::Spoken => "spoken",
            Self::SwappedCase => "swapped-case",
            Self::Upturned => "upturned",
            Self::Uuencoded => "uuencoded",
            Self::Z85 => "z85",
            Self::Zip => "zip",
            Self::Zlib => "zlib",
        }
    }

    /// Whether it only moves or replaces characters, so that it fits every text and proves nothing alone.
    #[must_use]
    pub fn is_permutation(self) -> bool {
        matches!(
            self,
            Self::Caesar(_)
                | Self::Atbash
                | Self::Reversed
                | Self::ReversedWords
                | Self::Rot47
                | Self::SwappedCase
                | Self::Initials
                | Self::Interleaved
                | Self::Leet
        )
    }
}
