//! Tool names as the client sees them, and cursors over several servers.

use crate::json::write_text;
#[doc(inline)]
pub use crate::policy::proxy_file::colliding;

/// Between a server's id and the name of its tool or prompt.
pub const SEPARATOR: &str = "__";
/// Prefix of the proxy's cursors.
const CURSOR: &str = "agentsh1";

/// The server's index in `ids` and the name that it knows. Unique, because no id with its separator is a prefix of
/// another; see [`colliding`].
pub fn split<'n>(ids: &[String], shown: &'n str) -> Option<(usize, &'n str)> {
    ids.iter()
        .enumerate()
        .find_map(|(server, id)| Some((server, shown.strip_prefix(id.as_str())?.strip_prefix(SEPARATOR)?)))
}

/// Appends a cursor as a JSON string: for every server with more, its index and its own cursor as written.
pub fn write_cursor(more: &[(usize, String)], out: &mut Vec<u8>) {
    let mut text = CURSOR.to_owned();
    for (server, raw) in more {
        text.push_str(&format!(";{server}:{}:{raw}", raw.len()));
    }
    write_text(&text, out);
}

/// Parses [`write_cursor`]; None for anything else.
pub fn read_cursor(text: &str, servers: usize) -> Option<Vec<(usize, String)>> {
    let mut rest = text.strip_prefix(CURSOR)?;
    let mut more: Vec<(usize, String)> = Vec::new();
    while let Some(entry) = rest.strip_prefix(';') {
        let (server, tail) = entry.split_once(':')?;
        let (length, tail) = tail.split_once(':')?;
        let (server, length) = (server.parse::<usize>().ok()?, length.parse::<usize>().ok()?);
        let raw = tail.get(..length)?;
        if server >= servers || more.last().is_some_and(|(last, _)| *last >= server) || !is_spelling(raw) {
            return None;
        }
        more.push((server, raw.to_owned()));
        rest = tail.get(length..)?;
    }
    (rest.is_empty() && !more.is_empty()).then_some(more)
}

/// Whether a text is a valid JSON string body: it comes from the client.
fn is_spelling(raw: &str) -> bool {
    matches!(crate::json::read(format!("\"{raw}\"").as_bytes()), Ok(crate::json::Json::String(same)) if same == raw)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_belongs_to_one_server() {
        let ids = ["a".to_owned(), "fs".to_owned(), "fs-2".to_owned()];
        assert_eq!(split(&ids, "fs__read__file"), Some((1, "read__file")));
        assert_eq!(split(&ids, "fs-2__x"), Some((2, "x")));
        assert_eq!(split(&ids, "a__"), Some((0, "")));
        assert_eq!(split(&ids, "fs_read"), None);
        assert_eq!(split(&ids, "b__x"), None);
    }

    #[test]
    fn server_ids_that_could_collide_are_detected() {
        for (left, right) in [("a", "a"), ("a", "a__b"), ("a", "a_"), ("canary", "canary_"), ("x__y", "x")] {
            assert!(colliding(left, right), "{left} {right}");
        }
        for (left, right) in [("a", "ab"), ("a", "a-"), ("a_b", "a"), ("fs", "fs2")] {
            assert!(!colliding(left, right), "{left} {right}");
        }
    }

    proptest! {
        #[test]
        fn ids_that_do_not_collide_never_share_a_name(
            left in "[a-c_]{1,4}", right in "[a-c_]{1,4}", one in "[a-c_]{0,4}", other in "[a-c_]{0,4}"
        ) {
            prop_assume!(!colliding(&left, &right));
            prop_assert_ne!(format!("{left}__{one}"), format!("{right}__{other}"));
        }

        #[test]
        fn cursors_come_back_as_they_were_spelled(texts in prop::collection::vec(any::<String>(), 1..4)) {
            let more: Vec<(usize, String)> = texts.iter().enumerate().map(|(index, text)| {
                let mut spelled = Vec::new();
                write_text(text, &mut spelled);
                let spelled = String::from_utf8(spelled).unwrap();
                (index * 2, spelled[1..spelled.len() - 1].to_owned())
            }).collect();
            let mut out = Vec::new();
            write_cursor(&more, &mut out);
            let tree = crate::json::read(&out).unwrap();
            prop_assert_eq!(read_cursor(&tree.as_text().unwrap(), 7), Some(more));
        }

        #[test]
        fn cursor_of_any_text_is_refused_or_reads_back(text in "(agentsh1)?[;:0-9a\"\\\\]{0,20}") {
            if let Some(more) = read_cursor(&text, 3) {
                let mut out = Vec::new();
                write_cursor(&more, &mut out);
                let tree = crate::json::read(&out).unwrap();
                prop_assert_eq!(read_cursor(&tree.as_text().unwrap(), 3), Some(more));
            }
        }
    }
}
