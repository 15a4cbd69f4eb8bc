//! What a document is: told by what stands in it.

use serde_json::Value;

use super::deny::{self, List};
use super::kev::Catalogue;
use super::osv::Record;
use super::status::Summary;
use super::{archive, policy};

/// Longest single record, in bytes.
const MAX_RECORD: usize = 4 << 20;

#[derive(Clone, Debug)]
pub enum Document {
    /// A record, with its text.
    Osv(Box<Record>, String),
    Kev(Catalogue),
    Deny(List),
    Status(Summary),
}

/// What a source gave.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    pub all: Vec<Document>,
    /// Records that could not be read, and why the first one.
    pub unread: u64,
    pub why: Option<String>,
}

/// Everything that a source's bytes hold: one JSON document, a list of them, one a line, or an archive of them.
///
/// # Errors
/// When there is nothing in it that can be read.
pub fn documents(bytes: &[u8]) -> Result<Documents, String> {
    let mut found = Documents::default();
    if archive::is_zip(bytes) {
        archive::each(bytes, archive::MAX_WHOLE, |name, text| {
            if name.ends_with(".json") {
                let taken = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned()).and_then(one);
                found.add(taken, name);
            }
        })?;
        return found.or_nothing();
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(items)) => {
            for (number, item) in items.into_iter().enumerate() {
                found.add(document(item, None), &format!("entry {}", number + 1));
            }
        }
        Ok(whole) => found.all.push(document(whole, Some(text))?),
        Err(error) => {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            // A document that is cut off is no list of lines.
            if !lines.iter().all(|line| line.trim_start().starts_with('{') && line.trim_end().ends_with('}'))
            {
                return Err(format!("it is not JSON: {error}"));
            }
            for (number, line) in lines.iter().enumerate() {
                found.add(one(line), &format!("line {}", number + 1));
            }
        }
    }
    found.or_nothing()
}

impl Documents {
    fn add(&mut self, taken: Result<Document, String>, place: &str) {
        match taken {
            Ok(document) => self.all.push(document),
            Err(why) => {
                self.unread += 1;
                self.why.get_or_insert_with(|| format!("{place}: {why}"));
            }
        }
    }

    fn or_nothing(self) -> Result<Self, String> {
        match self.all.is_empty() {
            true => Err(self.why.unwrap_or_else(|| "there is nothing in it".to_owned())),
            false => Ok(self),
        }
    }
}

fn one(text: &str) -> Result<Document, String> {
    let value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    document(value, Some(text))
}

/// `text`: as it was written, where that is known.
fn document(value: Value, text: Option<&str>) -> Result<Document, String> {
    let text = text.map_or_else(|| value.to_string(), |text| text.trim().to_owned());
    let has = |key: &str| value.get(key).is_some();
    if value.get("format").and_then(Value::as_str) == Some(deny::FORMAT) {
        List::read(&text).map(Document::Deny)
    } else if has("vulnerabilities") {
        Catalogue::read(&text).map(Document::Kev)
    } else if has("status") && has("page") {
        Summary::read(&text).map(Document::Status)
    } else if !has("id") || !(has("affected") || has("modified")) {
        Err("it is neither an OSV record, a KEV list, a deny list nor a status summary".to_owned())
    } else if text.len() > MAX_RECORD {
        Err(format!("it is larger than {} MiB", MAX_RECORD >> 20))
    } else {
        Record::read(&text).map(|record| Document::Osv(Box::new(record), text))
    }
}

/// The kind of advisory that a document leads to.
#[must_use]
pub fn kind(document: &Document) -> policy::AdvisoryKind {
    match document {
        Document::Osv(..) => policy::AdvisoryKind::Dependency,
        Document::Kev(_) => policy::AdvisoryKind::Vendor,
        Document::Deny(_) => policy::AdvisoryKind::Community,
        Document::Status(_) => policy::AdvisoryKind::Availability,
    }
}
