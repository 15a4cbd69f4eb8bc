//! An interface as submitted to a registry: an array of components, hashed unchanged.

use crate::canonical::canonical;
use crate::component::{Component, Kind};
use crate::json::Json;
use crate::listing::{MAX_COMPONENTS, has_lone_surrogate};

/// Why a component cannot be registered, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentError {
    /// In the array.
    pub index: usize,
    /// The member with the mistake, if the mistake is in one.
    pub member: Option<&'static str>,
    pub reason: &'static str,
}

/// Reads the components. Members that `kiji1` does not know count as well: the hash is over what was sent.
///
/// # Errors
/// A component has a shape that its kind does not have, or half of a surrogate pair, or there are too many.
pub fn read_components(components: &[Json<'_>]) -> Result<Vec<Component>, ComponentError> {
    if components.len() > MAX_COMPONENTS {
        return Err(ComponentError {
            index: MAX_COMPONENTS,
            member: None,
            reason: "List should have at most 10000 items",
        });
    }
    components.iter().enumerate().map(|(index, item)| component(index, item)).collect()
}

fn component(index: usize, item: &Json<'_>) -> Result<Component, ComponentError> {
    let wrong = |member, reason| ComponentError { index, member, reason };
    if item.as_object().is_none() {
        return Err(wrong(None, "Input should be a valid dictionary"));
    }
    if has_lone_surrogate(item) {
        return Err(wrong(None, "Input should have no half of a surrogate pair"));
    }
    let kind = match item.member("type").and_then(Json::as_text).as_deref() {
        Some("tool") => Kind::Tool,
        Some("prompt") => Kind::Prompt,
        Some("resource") => Kind::Resource,
        Some("server_instructions") => Kind::Instructions,
        _ => {
            let reason = "Input should be 'tool', 'prompt', 'resource' or 'server_instructions'";
            return Err(wrong(Some("type"), reason));
        }
    };
    let text = |member: &'static str| match item.member(member) {
        Some(value @ Json::String(_)) => Ok(value.as_text().unwrap_or_default().into_owned()),
        _ => Err(wrong(Some(member), "Input should be a valid string")),
    };
    let name = match kind {
        Kind::Tool | Kind::Prompt => text("name")?,
        Kind::Resource => text("uri")?,
        Kind::Instructions => text("instructions").map(|_| String::new())?,
    };
    if item.member("description").is_some() {
        text("description")?;
    }
    let is = |member: &str, fits: fn(&Json<'_>) -> bool| item.member(member).is_none_or(fits);
    for schema in ["input_schema", "output_schema"] {
        if !is(schema, |value| matches!(value, Json::Object(_) | Json::Null)) {
            return Err(wrong(Some(schema), "Input should be a valid dictionary"));
        }
    }
    if !is("arguments", |value| matches!(value, Json::Array(_) | Json::Null)) {
        return Err(wrong(Some("arguments"), "Input should be a valid list"));
    }
    Ok(Component { kind, name, canonical: canonical(item) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::json::read;

    fn read_all(text: &str) -> Result<Vec<Component>, ComponentError> {
        read_components(read(text.as_bytes()).unwrap().as_array().unwrap())
    }

    #[test]
    fn unknown_members_are_part_of_the_hash() {
        let plain = read_all(r#"[{"type":"tool","name":"a","description":""}]"#).unwrap();
        let more = read_all(r#"[{"type":"tool","name":"a","description":"","x":1.0}]"#).unwrap();
        assert_ne!(plain, more);
        assert_eq!(more[0].canonical, r#"{"description":"","name":"a","type":"tool","x":1.0}"#);
    }

    #[test]
    fn submitted_component_with_a_wrong_member_is_refused() {
        for (text, member) in [
            (r#"[1]"#, None),
            (r#"[{"type":"tool","name":5}]"#, Some("name")),
            (r#"[{"type":"tool"}]"#, Some("name")),
            (r#"[{"type":"x","name":"a"}]"#, Some("type")),
            (r#"[{"name":"a"}]"#, Some("type")),
            (r#"[{"type":"tool","name":"\ud800"}]"#, None),
            (r#"[{"type":"tool","name":"a","description":[]}]"#, Some("description")),
            (r#"[{"type":"tool","name":"a","input_schema":[]}]"#, Some("input_schema")),
            (r#"[{"type":"prompt","name":"a","arguments":{}}]"#, Some("arguments")),
            (r#"[{"type":"resource","name":"a"}]"#, Some("uri")),
            (r#"[{"type":"server_instructions"}]"#, Some("instructions")),
        ] {
            assert_eq!(read_all(text).unwrap_err().member, member, "{text}");
        }
    }
}
