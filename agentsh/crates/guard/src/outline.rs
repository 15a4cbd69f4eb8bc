//! A stored definition, from which a change can be shown member by member: the canonical text if it is short,
//! otherwise with hashes in place of long members.

use std::collections::{BTreeMap, BTreeSet};

use crate::interface::{canonical, canonical_member, hash, hash_of};
use crate::json::{self, Json};

/// Members that are longer than this are kept as a hash where the whole is too long, in bytes.
const MAX_INLINE_BYTES: usize = 512;

/// The canonical definition, in at most `most` bytes. None: it has so many members that not even their hashes fit.
#[must_use]
pub fn outline(definition: &Json<'_>, most: usize) -> Option<String> {
    let whole = canonical(definition);
    if whole.len() <= most {
        return String::from_utf8(whole).ok();
    }
    let members = definition.as_object()?;
    let hashes: Vec<(&str, String)> = members
        .iter()
        .map(|(raw, value)| (*raw, canonical_member(&json::unescape(raw), value)))
        .filter(|(_, form)| form.len() > MAX_INLINE_BYTES)
        .map(|(raw, form)| (raw, hash_of(&form)))
        .collect();
    let short = members.iter().map(|(raw, value)| {
        let hashed = hashes.iter().find(|(name, _)| name == raw);
        (*raw, hashed.map_or_else(|| value.clone(), |(_, hash)| Json::String(hash)))
    });
    let text = canonical(&Json::Object(short.collect()));
    String::from_utf8(text).ok().filter(|text| text.len() <= most)
}

/// Names of the members that are not what they were, sorted. `before` is an outline. None: the whole changed.
#[must_use]
pub fn changed_members(before: &Json<'_>, after: &Json<'_>) -> Option<Vec<String>> {
    let (before, after) = (by_name(before)?, by_name(after)?);
    let spelled: BTreeSet<&Vec<u8>> = before.keys().chain(after.keys()).collect();
    let differs = |name: &Vec<u8>| match (before.get(name), after.get(name)) {
        (Some((raw, before)), Some((_, after))) => {
            (!is_same(&json::unescape(raw), before, after)).then_some(raw)
        }
        (one, other) => one.or(other).map(|(raw, _)| raw),
    };
    Some(spelled.into_iter().filter_map(differs).map(|raw| json::unescape(raw).into_owned()).collect())
}

/// By the canonical spelling of their names: what no two names share.
fn by_name<'a, 'b>(value: &'b Json<'a>) -> Option<BTreeMap<Vec<u8>, (&'a str, &'b Json<'a>)>> {
    let members = value.as_object()?.iter();
    Some(members.map(|(raw, value)| (canonical(&Json::String(raw)), (*raw, value))).collect())
}

/// Whether they differ only at `ignored`, JSON pointers. `before` is an outline: a member kept as a hash counts as one value.
#[must_use]
pub fn is_same_but(before: &Json<'_>, after: &Json<'_>, ignored: &[String]) -> bool {
    changed_but(before, after, ignored).is_some_and(|names| names.is_empty())
}

/// Like [`changed_members`], without the members at the JSON pointers in `ignored`.
#[must_use]
pub fn changed_but(before: &Json<'_>, after: &Json<'_>, ignored: &[String]) -> Option<Vec<String>> {
    let (mut before, mut after) = (before.clone(), after.clone());
    for pointer in ignored {
        remove(&mut before, pointer);
        remove(&mut after, pointer);
    }
    changed_members(&before, &after)
}

/// Equal except for the order of sets. A text that looks like a hash has the hash of other content only by a collision.
fn is_same(name: &str, before: &Json<'_>, after: &Json<'_>) -> bool {
    let is_hash = |text: &str| text.len() == 71 && text.starts_with("sha256:");
    let form = canonical_member(name, after);
    canonical_member(name, before) == form
        || before
            .as_text()
            .is_some_and(|text| is_hash(&text) && (*text == hash_of(&form) || *text == hash(after)))
}

fn remove(value: &mut Json<'_>, pointer: &str) {
    let mut steps: Vec<String> =
        pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let Some(last) = steps.pop() else { return };
    let inner = steps.iter().try_fold(value, |value, step| value.member_mut(step));
    if let Some(Json::Object(members)) = inner {
        members.retain(|(raw, _)| json::unescape(raw) != last);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn read(text: &str) -> Json<'_> {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn long_definition_is_stored_as_hashes_that_show_what_changed() {
        let long = |letter: &str, title: &str| {
            format!(r#"{{"title":"{title}","description":"{}","name":"t"}}"#, letter.repeat(5000))
        };
        let (before, same, text, title) = (long("a", "x"), long("a", "x"), long("b", "x"), long("a", "y"));
        let kept = outline(&read(&before), 4096).unwrap();
        assert!(kept.len() < 200 && kept.contains("sha256:") && kept.contains(r#""title":"x""#), "{kept}");
        let kept = read(&kept);
        assert_eq!(changed_members(&kept, &read(&same)).unwrap(), [""; 0]);
        assert_eq!(changed_members(&kept, &read(&text)).unwrap(), ["description"]);
        assert_eq!(changed_members(&kept, &read(&title)).unwrap(), ["title"]);
        assert!(is_same_but(&kept, &read(&title), &["/title".to_owned()]));
        assert!(!is_same_but(&kept, &read(&text), &["/title".to_owned()]));
        let many: String = (0..500).map(|at| format!(r#""m{at}":{at},"#)).collect();
        assert_eq!(outline(&read(&format!("{{{many}\"z\":1}}")), 1000), None);
    }

    #[test]
    fn ignored_members_may_change_and_others_may_not() {
        let before = read(r#"{"name":"t","annotations":{"title":"a","readOnlyHint":true}}"#);
        let ignored = ["/annotations/title".to_owned(), "/_meta".to_owned()];
        for (after, same) in [
            (r#"{"name":"t","annotations":{"title":"b","readOnlyHint":true},"_meta":{"v":2}}"#, true),
            (r#"{"name":"t","annotations":{"readOnlyHint":true}}"#, true),
            (r#"{"name":"t","annotations":{"title":"a","readOnlyHint":false}}"#, false),
            (r#"{"name":"u","annotations":{"title":"a","readOnlyHint":true}}"#, false),
            (r#""text""#, false),
        ] {
            assert_eq!(is_same_but(&before, &read(after), &ignored), same, "{after}");
        }
    }
}
