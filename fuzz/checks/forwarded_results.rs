//! A forwarded result is JSON of the same form, and forwarding it again changes little: numbers, names and lists
//! stay.

use super::guard::Rewrite;
use super::json::{Json, read};
use super::scan::{Changes, Channel, forward, scan_outbound, scan_result};

pub fn check(data: &[u8]) {
    let Some((channel, bytes)) = data.split_first() else { return };
    let Ok(value) = read(bytes) else { return };
    let channel = [Channel::Output, Channel::Outbound][usize::from(*channel % 2)];
    let scan = match channel {
        Channel::Outbound => scan_outbound(&value),
        _ => scan_result(&value),
    };
    let changes = Changes { control: true, hidden: true, redacts: &|_| true, also: &|_| Vec::new() };
    let rewrites = forward(&value, &scan, channel, &changes);
    let mut passed = value.clone();
    Rewrite::apply(&rewrites, &mut passed);
    let text = passed.to_compact();
    let again = read(text.as_bytes()).unwrap();
    assert!(same_form(&value, &again), "{text} has another form");
}

fn same_form(one: &Json<'_>, other: &Json<'_>) -> bool {
    match (one, other) {
        (Json::String(_), Json::String(_)) => true,
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_form(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            let same = |(one, other): (&(&str, Json<'_>), &(&str, Json<'_>))| {
                one.0 == other.0 && same_form(&one.1, &other.1)
            };
            one.len() == other.len() && one.iter().zip(other).all(same)
        }
        _ => one == other,
    }
}
