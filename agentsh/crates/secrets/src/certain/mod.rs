//! What is secret or personal beyond doubt, with the exact place of each, so that a tag can stand there instead.

mod keys;
mod named;
mod numbers;
mod runs;
mod words;

use std::ops::Range;

/// A value and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    pub kind: &'static str,
    pub place: Range<usize>,
    /// What of the place is the value: the rest is its name, its scheme or its host.
    pub value: Range<usize>,
}

impl Secret {
    /// One that is nothing but its value.
    #[must_use]
    pub fn whole(kind: &'static str, place: Range<usize>) -> Self {
        Self { kind, value: place.clone(), place }
    }
}

/// The secrets that stand in a text as it is written, in no order. Linear.
#[must_use]
pub fn find(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    keys::private_keys(text, &mut found);
    keys::vendors(text, &mut found);
    words::addresses(text, &mut found);
    numbers::find(text, &mut found);
    named::cloud_secrets(text.as_bytes(), &mut found);
    let mut named = Vec::new();
    named::find(text, &mut named);
    // A value that is known by its form is told as that, without its name.
    found.sort_by_key(|secret| secret.place.start);
    named.retain(|named| {
        let next = found.partition_point(|other| other.place.start < named.place.start);
        found.get(next).is_none_or(|other| other.place.start >= named.place.end)
    });
    found.extend(named);
    found
}

/// In the order in which they stand, none inside of another: the longest of those that begin first stay.
#[must_use]
pub fn settle(mut found: Vec<Secret>) -> Vec<Secret> {
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
    fn the_beginning_of_a_key_is_no_key_whichever_way_it_is_read() {
        for prefix in crate::forms::certain_prefixes() {
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
