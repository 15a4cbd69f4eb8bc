//! Secrets and personal data beyond doubt, with their exact places, to be replaced by tags.

mod addresses;
mod keys;
mod labelled;
mod numbers;

use std::ops::Range;

use crate::views;

/// A value with its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    pub kind: &'static str,
    pub place: Range<usize>,
    /// The value within the place; the rest is its name, scheme or host.
    pub value: Range<usize>,
}

impl Secret {
    /// A secret that is only its value.
    #[must_use]
    pub fn without_label(kind: &'static str, place: Range<usize>) -> Self {
        Self { kind, value: place.clone(), place }
    }
}

/// The secrets in a text as written, unordered. Linear time.
#[must_use]
pub fn find(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    keys::private_keys(text, &mut found);
    keys::vendors(text, &mut found);
    addresses::addresses(text, &mut found);
    numbers::find(text, &mut found);
    labelled::cloud_secrets(text.as_bytes(), &mut found);
    let mut named = Vec::new();
    labelled::find(text, &mut named);
    // A value with a known format is reported without its name.
    found.sort_by_key(|secret| secret.place.start);
    named.retain(|named| {
        let next = found.partition_point(|other| other.place.start < named.place.start);
        found.get(next).is_none_or(|other| other.place.start >= named.place.end)
    });
    found.extend(named);
    found
}

/// The secrets in a text as written and in each of its views, in order and disjoint. Linear time.
#[must_use]
pub fn find_in_views(text: &str) -> Vec<Secret> {
    sort_and_merge(with_views(text))
}

/// Like [`find_in_views`], unordered.
pub(crate) fn with_views(text: &str) -> Vec<Secret> {
    let mut found = find(text);
    views::visit(text, &mut |view, _| add_view(view, &mut found));
    found
}

/// Adds the secrets in a view, at their places in the original.
pub fn add_view(view: &views::View, found: &mut Vec<Secret>) {
    let of_view = find(&view.text).into_iter();
    found.extend(of_view.map(|secret| Secret::without_label(secret.kind, view.original_range(secret.place))));
}

/// In order and disjoint: the longest of those that begin first.
#[must_use]
pub fn sort_and_merge(mut found: Vec<Secret>) -> Vec<Secret> {
    found.retain(|secret| !secret.place.is_empty());
    found.sort_by_key(|secret| (secret.place.start, std::cmp::Reverse(secret.place.end)));
    let mut kept: Vec<Secret> = Vec::with_capacity(found.len());
    for secret in found {
        match kept.last_mut() {
            Some(last) if secret.place.start < last.place.end => {
                last.place.end = last.place.end.max(secret.place.end);
            }
            _ => kept.push(secret),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prefix that is read backwards may be all that there is, or end what is not a key.
    #[test]
    fn prefix_of_a_key_alone_is_no_key() {
        for prefix in crate::key_formats::certain_prefixes() {
            let turned: String = prefix.chars().rev().collect();
            for text in [
                prefix.to_owned(),
                format!("a {prefix}"),
                turned.clone(),
                format!("REPORT {turned}"),
                format!(".{turned}."),
            ] {
                assert!(find(&text).is_empty(), "{text}");
            }
        }
        let key = "SG.aB3dE6gH9jK2mN5pQ8sT1v.W4yZ7aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9jK2";
        let turned: String = key.chars().rev().collect();
        assert!(!find(key).is_empty() && !find(&format!("see {turned}")).is_empty());
    }
}
