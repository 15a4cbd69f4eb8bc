//! Detects the format of a document by its content.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};

use serde_json::Value;

use super::deny::{self, List, Signed};
use super::kev::Catalogue;
use super::osv::Record;
use super::source::{Reading, Source, read_exactly_at};
use super::status::Summary;
use super::{archive, list, policy};

/// Behind the name of a list: the file of its signatures.
pub const SIGNATURES: &str = ".minisig";
/// Longest single record, in bytes.
pub(crate) const MAX_RECORD: usize = 4 << 20;
/// Longest document that is neither a list, nor lines, nor an archive, in bytes: it is held as a whole.
pub const MAX_DOCUMENT: u64 = 16 << 20;

/// Files of signatures in an archive.
const MAX_SIGNATURES: usize = 10_000;

#[derive(Clone, Debug)]
pub enum Document {
    /// A record, with its text.
    Osv(Box<Record>, String),
    Kev(Catalogue),
    /// With its signatures, if they are next to it in an archive.
    Deny(List, Option<Signed>),
    Status(Summary),
}

/// The documents of a source.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    pub all: Vec<Document>,
    /// Records that could not be read, and why the first one.
    pub unread: u64,
    pub why: Option<String>,
}

/// Records of a source that were handed on, and those that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub read: u64,
    pub unread: u64,
    /// Why the first one could not be.
    pub why: Option<String>,
}

/// Reads a small source: one JSON document, a list of documents, one per line, or an archive of them.
///
/// # Errors
/// It contains nothing that can be read.
pub fn documents(bytes: &[u8]) -> Result<Documents, String> {
    let mut found = Documents::default();
    let tally = for_each_document(&bytes, |document| {
        found.all.push(document);
        Ok(())
    })?;
    (found.unread, found.why) = (tally.unread, tally.why);
    Ok(found)
}

/// Hands on every document of a source, one after the other: a list, lines and an archive may be of any size, since no more than
/// one of their records is in memory.
///
/// # Errors
/// `take` failed, the source cannot be read to its end, or it contains nothing that can be read.
pub fn for_each_document(
    source: &impl Source,
    mut take: impl FnMut(Document) -> Result<(), String>,
) -> Result<Tally, String> {
    let unreadable = |error: std::io::Error| format!("it cannot be read: {error}");
    let mut tally = Tally::default();
    let length = source.length().map_err(unreadable)?;
    let mut first = [0; 512];
    let count = source.read_at(&mut first, 0).map_err(unreadable)?;
    let first = first.get(..count).unwrap_or_default();
    if archive::is_zip(first) {
        let signatures = signatures(source)?;
        archive::each_named(
            source,
            archive::MAX_WHOLE,
            |name| name.ends_with(".json"),
            |name, text| {
                let taken = std::str::from_utf8(text)
                    .map_err(|_| "it is not UTF-8".to_owned())
                    .and_then(parse_document);
                let beside = signatures.get(&format!("{name}{SIGNATURES}"));
                tally.add(taken.map(|document| with_signatures(document, text, beside)), name, &mut take)
            },
        )?;
    } else if first.trim_ascii_start().starts_with(b"[") {
        list::for_each_item(source, |number, item| {
            tally.add(document(item, None), &format!("entry {number}"), &mut take)
        })?;
    } else if length > MAX_DOCUMENT {
        lines(source, &mut tally, &mut take)?;
    } else {
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = read_exactly_at(source, 0, size)
            .map_err(unreadable)?
            .ok_or("it was truncated while agentsh read it")?;
        read_small_source(&bytes, &mut tally, &mut take)?;
    }
    match tally.read {
        0 => Err(tally.why.unwrap_or_else(|| "it is empty".to_owned())),
        _ => Ok(tally),
    }
}

/// The files of signatures in an archive.
fn signatures(source: &impl Source) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    archive::each_named(
        source,
        MAX_DOCUMENT,
        |name| name.ends_with(SIGNATURES),
        |name, text| {
            if found.len() >= MAX_SIGNATURES {
                return Err(format!("more than {MAX_SIGNATURES} files in it end in {SIGNATURES}"));
            }
            found.insert(name.to_owned(), String::from_utf8_lossy(text).into_owned());
            Ok(())
        },
    )?;
    Ok(found)
}

/// A deny list with the signatures next to it.
fn with_signatures(document: Document, text: &[u8], signatures: Option<&String>) -> Document {
    match (document, signatures) {
        (Document::Deny(list, _), Some(signatures)) => {
            Document::Deny(list, Some(Signed { text: text.to_vec(), signatures: signatures.clone() }))
        }
        (document, _) => document,
    }
}

/// One document, or one per line.
fn read_small_source(
    bytes: &[u8],
    tally: &mut Tally,
    take: &mut impl FnMut(Document) -> Result<(), String>,
) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    match serde_json::from_str::<Value>(text) {
        Ok(whole) => tally.add(Ok(document(whole, Some(text))?), "", take),
        Err(error) => {
            let rows: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            // A document that is cut off is not a list of lines.
            if !rows.iter().all(|line| is_line(line.as_bytes())) {
                return Err(format!("it is not JSON: {error}"));
            }
            rows.iter().enumerate().try_for_each(|(number, line)| {
                tally.add(parse_document(line), &format!("line {}", number + 1), take)
            })
        }
    }
}

/// More than is held at once: one document a line.
fn lines(
    source: &impl Source,
    tally: &mut Tally,
    take: &mut impl FnMut(Document) -> Result<(), String>,
) -> Result<(), String> {
    let mut reader = BufReader::with_capacity(64 << 10, Reading::of(source));
    for number in 1_u64.. {
        let mut line = Vec::new();
        let most = MAX_RECORD as u64 + 2;
        let count = reader.by_ref().take(most).read_until(b'\n', &mut line);
        let count = count.map_err(|error| format!("it cannot be read: {error}"))?;
        if count == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if count as u64 == most || !is_line(&line) {
            return Err(format!(
                "it is larger than {} MiB and is not an archive, a list or records of at most {} MiB per line \
                 (line {number})",
                MAX_DOCUMENT >> 20,
                MAX_RECORD >> 20
            ));
        }
        let text = std::str::from_utf8(&line).map_err(|_| "it is not UTF-8".to_owned());
        tally.add(text.and_then(parse_document), &format!("line {number}"), take)?;
    }
    Ok(())
}

fn is_line(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"{") && line.ends_with(b"}")
}

impl Tally {
    fn add(
        &mut self,
        taken: Result<Document, String>,
        place: &str,
        take: &mut impl FnMut(Document) -> Result<(), String>,
    ) -> Result<(), String> {
        match taken {
            Ok(document) => {
                self.read += 1;
                take(document)
            }
            Err(why) => {
                self.unread += 1;
                self.why.get_or_insert_with(|| format!("{place}: {why}"));
                Ok(())
            }
        }
    }
}

fn parse_document(text: &str) -> Result<Document, String> {
    let value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    document(value, Some(text))
}

/// `text`: as it was written, where that is known.
fn document(value: Value, text: Option<&str>) -> Result<Document, String> {
    let text = text.map_or_else(|| value.to_string(), |text| text.trim().to_owned());
    let has = |key: &str| value.get(key).is_some();
    if value.get("format").and_then(Value::as_str) == Some(deny::FORMAT) {
        List::read(&text).map(|list| Document::Deny(list, None))
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
pub fn advisory_kind(document: &Document) -> policy::AdvisoryKind {
    match document {
        Document::Osv(..) => policy::AdvisoryKind::Dependency,
        Document::Kev(_) => policy::AdvisoryKind::Vendor,
        Document::Deny(..) => policy::AdvisoryKind::Community,
        Document::Status(_) => policy::AdvisoryKind::Availability,
    }
}
