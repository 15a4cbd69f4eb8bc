//! Which entry of a listing a request uses.

use crate::json::Json;
use crate::policy::glob;

use super::{Offer, SubjectKind};

/// Longest template that is matched, in bytes; a longer one counts as one that every URI fits.
const MAX_TEMPLATE: usize = 1024;

/// An entry of a listing as a request names it: a prompt by its name, a resource by its URI, a template as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedEntry {
    pub kind: Offer,
    pub name: String,
}

impl UsedEntry {
    /// None: the request uses nothing that is listed.
    #[must_use]
    pub fn from_request(method: &str, params: &Json<'_>) -> Option<Self> {
        let text = |value: &Json<'_>, name: &str| Some(value.member(name)?.as_text()?.into_owned());
        let (kind, name) = match method {
            "prompts/get" => (Offer::Prompt, text(params, "name")?),
            "resources/read" | "resources/subscribe" => (Offer::Resource, text(params, "uri")?),
            "completion/complete" => {
                let reference = params.member("ref")?;
                // Servers read the member that fits the type.
                let is_prompt = text(reference, "type").is_some_and(|kind| kind == "ref/prompt");
                let prompt = text(reference, "name").map(|name| (Offer::Prompt, name));
                let template = text(reference, "uri").map(|uri| (Offer::Template, uri));
                if is_prompt { prompt.or(template)? } else { template.or(prompt)? }
            }
            _ => return None,
        };
        Some(Self { kind, name })
    }

    /// Whether it is this entry: a URI is also one of every template that it fits.
    #[must_use]
    pub fn is_of(&self, kind: Offer, name: &str) -> bool {
        match (self.kind, kind) {
            (Offer::Resource, Offer::Template) => matches_template(&pattern(name), &self.name),
            // A completion may name a URI without an expression.
            (Offer::Template, Offer::Resource) => self.name == name,
            (own, listed) => own == listed && self.name == name,
        }
    }
}

impl SubjectKind<'_> {
    /// The entry of a listing that is used; None: nothing, or a tool.
    #[must_use]
    pub fn uses(&self) -> Option<UsedEntry> {
        match self {
            Self::Request { method, params: Some(params) } => UsedEntry::from_request(method, params),
            _ => None,
        }
    }
}

/// A template as a pattern of names: every expression in it matches any text.
pub(crate) fn pattern(template: &str) -> String {
    if template.len() > MAX_TEMPLATE {
        return "*".to_owned();
    }
    let mut pattern = String::new();
    let mut rest = template;
    while let Some((literal, expression)) = rest.split_once('{') {
        pattern.push_str(literal);
        pattern.push('*');
        rest = expression.split_once('}').map_or("", |(_, rest)| rest);
    }
    pattern + rest
}

pub(crate) fn matches_template(pattern: &str, uri: &str) -> bool {
    glob::matches(pattern, uri)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::json;

    #[test]
    fn resource_uri_belongs_to_its_entry_and_matching_templates() {
        let used = |method: &str, params: &str| {
            UsedEntry::from_request(method, &json::read(params.as_bytes()).unwrap())
        };
        let read = used("resources/read", r#"{"uri":"note:///7/text"}"#).unwrap();
        for (kind, name, expected) in [
            (Offer::Resource, "note:///7/text", true),
            (Offer::Resource, "note:///8/text", false),
            (Offer::Template, "note:///{id}/text{?q}", true),
            (Offer::Template, "file:///{id}", false),
            (Offer::Prompt, "note:///7/text", false),
        ] {
            assert_eq!(read.is_of(kind, name), expected, "{kind:?} {name}");
        }
        let completed = r#"{"ref":{"type":"ref/resource","uri":"note:///{id}"}}"#;
        let completed = used("completion/complete", completed).unwrap();
        assert!(completed.is_of(Offer::Template, "note:///{id}"));
        assert!(!completed.is_of(Offer::Template, "note:///{other}"));
        assert_eq!(used("resources/list", "{}"), None);
    }
}
