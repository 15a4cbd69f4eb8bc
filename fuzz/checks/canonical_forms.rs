//! A definition has one form and one hash, however its members are ordered and spaced; an outline reports no change
//! where there is none. The same holds for the registry's form.

use super::guard::interface::{canonical, hash};
use super::guard::outline::{changed_members, is_same_but, outline};
use super::json::{Json, read};
use super::registry;

pub fn check(data: &[u8]) {
    let Ok(value) = read(data) else { return };
    let form = canonical(&value);
    let again = read(&form).unwrap();
    assert_eq!(canonical(&again), form, "a canonical form has another form");
    let mut spelled = String::new();
    turned(&value, &mut spelled);
    let other = read(spelled.as_bytes()).unwrap();
    assert_eq!(hash(&other), hash(&value), "{spelled} has another hash");
    registered(&value, &spelled);
    for most in [64, 4096] {
        let Some(kept) = outline(&value, most) else { continue };
        assert!(kept.len() <= most, "{} bytes are kept", kept.len());
        let kept = read(kept.as_bytes()).unwrap();
        assert!(changed_members(&kept, &other).is_none_or(|names| names.is_empty()), "nothing changed");
        assert!(kept.as_object().is_none() || is_same_but(&kept, &other, &["/a".to_owned()]));
    }
}

/// As a tool, a prompt and a resource that a server lists.
fn registered(value: &Json<'_>, spelled: &str) {
    const OPENING: &str = r#"{"result":{"capabilities":{"tools":{},"prompts":{},"resources":{}}}}"#;
    let listed = |section: &str, entry: &str| {
        // A page is one line; inside of strings no line ends.
        let page = format!(r#"{{"result":{{"{section}":[{entry}]}}}}"#).replace('\n', " ").into_bytes();
        let mut captured = registry::Captured { opening: OPENING.into(), ..registry::Captured::default() };
        match section {
            "tools" => captured.tools = page,
            "prompts" => captured.prompts = page,
            _ => captured.resources = page,
        }
        registry::read(&captured)
    };
    for section in ["tools", "prompts", "resources"] {
        let (one, other) = (listed(section, &value.to_compact()), listed(section, spelled));
        assert_eq!(one, other, "{spelled} is another entry of {section}");
        let Ok(interface) = one else { continue };
        for component in &interface.components {
            let text = component.canonical.as_bytes();
            let again = registry::canonical(&read(text).unwrap());
            assert_eq!(again, component.canonical, "a canonical form has another form");
        }
    }
}

/// The same value with its members from the last to the first, and white space between all tokens.
fn turned(value: &Json<'_>, out: &mut String) {
    match value {
        Json::Array(items) => {
            out.push_str("[ ");
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "\t, " } else { "" });
                turned(item, out);
            }
            out.push_str("\n]");
        }
        Json::Object(members) => {
            out.push_str("{ ");
            for (at, (raw, member)) in members.iter().rev().enumerate() {
                out.push_str(if at > 0 { " ,\r\n" } else { "" });
                out.push_str(&format!("\"{raw}\" : "));
                turned(member, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_compact()),
    }
}
