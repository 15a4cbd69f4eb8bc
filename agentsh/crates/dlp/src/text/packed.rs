//! Files with compressed text. They are not unpacked: no decompressor for hostile input belongs in this process.

use memchr::memmem;

/// The first bytes of compressed or encrypted files.
const SIGNS: [&[u8]; 8] = [
    b"PK\x03\x04",
    b"\x1f\x8b\x08",
    b"BZh",
    b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07",
    b"\x04\x22\x4d\x18",
];

pub(super) fn is_packed(bytes: &[u8]) -> bool {
    // Three letters are a word; this one is followed by the size of a block, and by the digits of pi.
    let is_bzip2 = || bytes.get(4..8) == Some(b"1AY&");
    let is_document = || bytes.starts_with(b"%PDF-") && memmem::find(bytes, b"/FlateDecode").is_some();
    SIGNS.iter().any(|sign| bytes.starts_with(sign) && (*sign != b"BZh" || is_bzip2())) || is_document()
}

#[cfg(test)]
mod tests {
    use crate::text::{Limits, visit};

    fn is_packed(bytes: &[u8]) -> bool {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        visit(&hex, &Limits::default(), &mut |_| {}).packed
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..length).map(|_| byte()).collect()
    }

    #[test]
    fn compressed_file_is_known_by_its_magic_bytes() {
        for sign in [
            &b"PK\x03\x04\x14\0"[..],
            b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
            b"BZh91AY&SY",
            b"\xfd7zXZ\0\0\x04",
            b"\x28\xb5\x2f\xfd\x04\x58",
            b"7z\xbc\xaf\x27\x1c",
            b"Rar!\x1a\x07",
            b"\x04\x22\x4d\x18",
            b"%PDF-1.4\n1 0 obj\n<< /Filter /FlateDecode >>\nstream\n",
        ] {
            assert!(is_packed(&[sign, &noise(80)].concat()), "{}", sign.escape_ascii());
            assert!(is_packed(&[sign, &noise(4000)].concat()), "{}", sign.escape_ascii());
        }
    }

    #[test]
    fn pictures_and_words_are_not_packed() {
        for bytes in [
            &[b"\x89PNG\r\n\x1a\n".as_slice(), &noise(400)].concat(),
            &b"BZhelper and PK are words, and so is Rar! here".to_vec(),
            &b"%PDF-1.4\n1 0 obj\n<< /Length 4 >>\nstream\nabcd".to_vec(),
            &noise(400),
        ] {
            assert!(!is_packed(bytes), "{}", bytes.escape_ascii());
        }
    }
}
