//! One tool, prompt, resource or the instructions, as `kiji1` sees it.

use crate::canonical::{write, write_text};
use crate::json::Json;
use crate::listing::InterfaceError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Tool,
    Prompt,
    Resource,
    Instructions,
}

/// A component and its canonical text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    pub kind: Kind,
    /// Name of a tool or prompt, URI of a resource; empty for instructions.
    pub name: String,
    pub canonical: String,
}

/// The interface of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// How the server calls itself: shown, and kiji's key, but nothing that proves who it is.
    pub name: String,
    pub components: Vec<Component>,
}

impl Interface {
    #[must_use]
    pub fn hash(&self) -> String {
        crate::hash(self.components.iter().map(|component| component.canonical.as_str()))
    }

    /// The components as one JSON array, in the form that a registry accepts.
    #[must_use]
    pub fn to_json(&self) -> String {
        let texts: Vec<&str> = self.components.iter().map(|component| component.canonical.as_str()).collect();
        format!("[{}]", texts.join(","))
    }
}

impl Kind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Instructions => "server_instructions",
        }
    }
}

pub(crate) fn tool(item: &Json<'_>) -> Result<Component, InterfaceError> {
    let name = required_text(item, "name")?;
    let mut members =
        vec![("description", text(item, "description")?), ("input_schema", schema(item, "inputSchema")?)];
    members.push(("name", quote(&name)));
    let output = schema(item, "outputSchema")?;
    if output != "{}" {
        members.push(("output_schema", output));
    }
    Ok(Component { kind: Kind::Tool, canonical: object(members, Kind::Tool), name })
}

pub(crate) fn prompt(item: &Json<'_>) -> Result<Component, InterfaceError> {
    let name = required_text(item, "name")?;
    let mut arguments = Vec::new();
    match item.member("arguments") {
        None | Some(Json::Null) => {}
        Some(Json::Array(listed)) => {
            for argument in listed {
                let wanted = match argument.member("required") {
                    None | Some(Json::Null) => false,
                    Some(Json::Bool(wanted)) => *wanted,
                    Some(_) => return Err(InterfaceError::Type("required")),
                };
                let (description, name) = (text(argument, "description")?, required_text(argument, "name")?);
                let name = quote(&name);
                arguments
                    .push(format!(r#"{{"description":{description},"name":{name},"required":{wanted}}}"#));
            }
        }
        Some(_) => return Err(InterfaceError::Type("arguments")),
    }
    let members = vec![
        ("arguments", format!("[{}]", arguments.join(","))),
        ("description", text(item, "description")?),
        ("name", quote(&name)),
    ];
    Ok(Component { kind: Kind::Prompt, canonical: object(members, Kind::Prompt), name })
}

pub(crate) fn resource(item: &Json<'_>) -> Result<Component, InterfaceError> {
    let uri = required_text(item, "uri")?;
    let canonical = format!(
        r#"{{"description":{},"mime_type":{},"name":{},"type":"resource","uri":{}}}"#,
        text(item, "description")?,
        text(item, "mimeType")?,
        text(item, "name")?,
        quote(&uri)
    );
    Ok(Component { kind: Kind::Resource, canonical, name: uri })
}

/// None when there are no instructions, or empty ones.
pub(crate) fn instructions(result: &Json<'_>) -> Result<Option<Component>, InterfaceError> {
    let text = text(result, "instructions")?;
    let canonical = format!(r#"{{"instructions":{text},"type":"server_instructions"}}"#);
    let component = Component { kind: Kind::Instructions, name: String::new(), canonical };
    Ok((text != "\"\"").then_some(component))
}

/// All members but the type are sorted already, and `type` comes last.
fn object(members: Vec<(&str, String)>, kind: Kind) -> String {
    let members: String = members.iter().map(|(name, value)| format!("\"{name}\":{value},")).collect();
    format!("{{{members}\"type\":\"{}\"}}", kind.as_str())
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_text(text, &mut out);
    out
}

fn required_text(item: &Json<'_>, name: &'static str) -> Result<String, InterfaceError> {
    match item.member(name) {
        Some(value @ Json::String(_)) => Ok(value.as_text().unwrap_or_default().into_owned()),
        _ => Err(InterfaceError::Type(name)),
    }
}

/// Text that may be missing.
fn text(item: &Json<'_>, name: &'static str) -> Result<String, InterfaceError> {
    match item.member(name) {
        None | Some(Json::Null) => Ok("\"\"".to_owned()),
        Some(value @ Json::String(_)) => Ok(quote(&value.as_text().unwrap_or_default())),
        Some(_) => Err(InterfaceError::Type(name)),
    }
}

/// A schema that may be missing.
fn schema(item: &Json<'_>, name: &'static str) -> Result<String, InterfaceError> {
    match item.member(name) {
        None | Some(Json::Null) => Ok("{}".to_owned()),
        Some(value @ Json::Object(_)) => {
            let mut out = String::new();
            write(value, &mut out);
            Ok(out)
        }
        Some(_) => Err(InterfaceError::Type(name)),
    }
}
