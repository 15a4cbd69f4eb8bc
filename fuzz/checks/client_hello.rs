//! Any pieces give the same answer; an answer stays; a name is one that a host can have.

use super::net::tls_sni::{Hello, Reader, read};

pub fn check(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = read(bytes);
    let mut reader = Reader::default();
    let mut answer = Hello::NeedMore;
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        let next = reader.feed(piece);
        assert!(answer == Hello::NeedMore || answer == next, "an answer changed");
        answer = next;
    }
    assert_eq!(answer, whole, "the pieces made a difference");
    if let Hello::Name { name, .. } = &whole {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        assert!(!name.is_empty() && name.len() <= 253 && name.bytes().all(is_plain));
    }
}
