//! Finds all forms of destinations in one string.

use super::key::{Key, Trust};
use super::{Destination, Form, Sink, bare, mail, shell, url_forms};
use crate::text::{Decoded, Step, View};

/// Reports every destination in `text`, a string of a call's arguments; `key` is its name, if any (for the items of an array:
/// that of the array). Some are reported more than once. Linear.
///
/// What is encoded in the text is not looked at: see [`find_in_views`].
pub fn find(text: &str, key: Option<&str>, sink: &mut dyn FnMut(Destination)) {
    find_with(text, Key::of(key), sink);
}

/// Like [`find`], for the text and everything that decodes from it. Positions are those in `text`.
pub fn find_in_views(text: &str, decoded: &Decoded, key: Option<&str>, sink: &mut dyn FnMut(Destination)) {
    find(text, key, sink);
    decoded.views().for_each(|view| find_in_view(&view, key, sink));
}

/// Like [`find`], for a number: under a key for hosts, programs read it as an address.
pub fn find_number(text: &str, key: Option<&str>, sink: &mut dyn FnMut(Destination)) {
    let key = Key::of(key);
    if key.trust == Trust::Host && (8..=10).contains(&text.len()) && text.parse::<u32>().is_ok() {
        bare::find(text, key, sink);
    }
}

fn find_in_view(view: &View<'_>, key: Option<&str>, sink: &mut dyn FnMut(Destination)) {
    // Another order of the same letters makes names by chance.
    if view.how.last().is_some_and(|step| step.is_permutation()) {
        return;
    }
    let still_the_value = view.how.iter().all(|step| *step == Step::Escapes);
    find_with(view.text, Key::of(key.filter(|_| still_the_value)), &mut |mut found| {
        found.at = view.at.clone();
        sink(found);
    });
}

fn find_with(text: &str, key: Key, sink: &mut Sink<'_>) {
    url_forms::find(text, key, sink);
    bare::find(text, key, sink);
    mail::find(text, sink);
    shell::find(text, key.runs, sink);
    backwards(text, sink);
}

/// Addresses that are written from the end. Nothing else has these signs in this order.
fn backwards(text: &str, sink: &mut Sink<'_>) {
    if !text.contains("//:") {
        return;
    }
    let turned: String = text.chars().rev().collect();
    url_forms::find(&turned, Key::of(None), &mut |mut found| {
        if found.form == Form::Url {
            found.at = 0..text.len();
            sink(found);
        }
    });
}
