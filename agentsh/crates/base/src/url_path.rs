//! The path of a request, if every server reads it the same way.

/// Longest path that is read, in bytes.
const MAX_PATH: usize = 8192;
/// More components than any useful path has.
const MAX_COMPONENTS: usize = 128;

/// The decoded components of a request's path; None when it can be read in several ways: dots, escaped slashes,
/// empty components in the middle, `;` (which some servers cut off), bytes that are not text.
#[must_use]
pub fn components(target: &str) -> Option<Vec<String>> {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let rest = path.strip_prefix('/')?;
    if path.len() > MAX_PATH || path.contains(['\\', '#', ';']) {
        return None;
    }
    let parts: Vec<&str> = rest.split('/').collect();
    let last = parts.len().checked_sub(1)?;
    if parts.len() > MAX_COMPONENTS {
        return None;
    }
    let mut whole = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let plain = decode_part(part)?;
        let is_odd = plain.contains(['/', '\\', '%', ';', '#', '?']) || plain.contains(char::is_control);
        if is_odd || plain == "." || plain == ".." || (plain.is_empty() && at != last) {
            return None;
        }
        whole.push(plain);
    }
    Some(whole)
}

fn decode_part(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut input = part.bytes();
    while let Some(byte) = input.next() {
        if byte == b'%' {
            let high = char::from(input.next()?).to_digit(16)?;
            let low = char::from(input.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_can_be_read_in_two_ways_has_no_components() {
        let words = |target: &str| components(target).map(|found| found.join("|"));
        assert_eq!(words("/a/%62?c=/d").as_deref(), Some("a|b"));
        assert_eq!(words("/").as_deref(), Some(""));
        assert_eq!(words("/a/").as_deref(), Some("a|"));
        for target in
            ["", "a", "//a", "/a//b", "/a/../b", "/%2e/b", "/a%2fb", "/a;b", "/a%00", "/%ff", "/%zz", "/a\\b"]
        {
            assert_eq!(words(target), None, "{target}");
        }
    }
}
