//! Answers that an agent stores in its own files: kept after the run, and restored at the next start.
//!
//! The agent works on private copies of its files. At the end they are read out of the sandbox: only the keys that the
//! adapter lists, only values of the listed shape, and only if the agent changed them. Answers that permit nothing more go
//! back into the user's own file; the others are kept for the next run in this project (decision 170).

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde_json::{Map, Value, json};

use agentsh_agents::{Format, InjectedFile, KeptFile, Key, Kind, Launch, Shape, json as strict};
use agentsh_sandbox::open_inside;
use agentsh_sandbox::remount_guards::Namespaces;

use super::files;
use agentsh_host::copies::write_anew;
use agentsh_host::{Facts, Record};

/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Members of a list or of an object of counts.
const MAX_MEMBERS: usize = 512;
const MAX_WORD: usize = 64;
const MAX_NAME: usize = 128;
const MAX_RULE: usize = 1024;
/// How often a file is read again that another program writes at the same time.
const TRIES: usize = 3;

/// The file with the answers that are kept for a project.
const NAME: &str = "remembered.json";

/// The files as the agent was given them.
#[derive(Debug, Default)]
pub struct RememberedFiles(Vec<(KeptFile, Value)>);

impl RememberedFiles {
    /// The paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(remembered, _)| remembered.path.as_path())
    }
}

/// Puts what was kept of earlier runs into the agent's copies.
#[must_use]
pub fn give(facts: &Facts, kind: Kind, launch: &mut Launch) -> RememberedFiles {
    let kept = read_kept(facts, kind);
    let mut given = Vec::new();
    for remembered in std::mem::take(&mut launch.remembered) {
        let own = kept.get(&*remembered.path.to_string_lossy());
        let standing = launch.files.iter_mut().find(|file| file.path == remembered.path);
        let text = match &standing {
            Some(file) => String::from_utf8_lossy(&file.content).into_owned(),
            None => users(&remembered.path).map(|(text, _)| text).unwrap_or_default(),
        };
        let of_user = read(remembered.format, &text).unwrap_or(Value::Null);
        // A choice that the user's own file makes wins over one that was made inside.
        let is_chosen = |key: &&Key| key.shape == Shape::Word && value_at(&of_user, &key.at).is_some();
        let changes: Changes = remembered
            .keys
            .iter()
            .filter(|key| !key.opens_nothing && !is_chosen(key))
            .filter_map(|key| Some((key.at.clone(), fitting(own?.get(&name(key))?, key.shape)?)))
            .collect();
        let with = if changes.is_empty() { None } else { set(remembered.format, &text, &changes) };
        if let Some(text) = &with {
            let content = text.clone().into_bytes();
            match standing {
                Some(file) => file.content = content,
                None => {
                    let path = remembered.path.clone();
                    let home = &facts.context.home;
                    launch.home_state.retain(|state| home.join(&state.path) != path);
                    launch.files.push(InjectedFile { path, content, mode: 0o600 });
                }
            }
        }
        let document = read(remembered.format, with.as_deref().unwrap_or(&text)).unwrap_or(Value::Null);
        given.push((remembered, document));
    }
    RememberedFiles(given)
}

/// Keeps the agent's changes. A failure is reported: the agent asks again the next time.
pub fn keep(
    facts: &Facts,
    record: &Record,
    kind: Kind,
    launch: &Launch,
    given: &RememberedFiles,
    inside: Option<&Namespaces>,
) {
    let mut kept = read_kept(facts, kind);
    let before = kept.clone();
    for (remembered, was) in &given.0 {
        let KeptFile { path, format, .. } = remembered;
        // A directory of the run outlives the place where it was mounted.
        let text = match files::file_of_run(facts, kind, launch, path) {
            Some(file) => left_in(&file),
            None => inside.and_then(|inside| content_inside(facts, inside, path)),
        };
        let Some(now) = text.and_then(|text| read(*format, &text)) else { continue };
        let changed =
            |key: &&Key| value_at(&now, &key.at).is_some_and(|value| value_at(was, &key.at) != Some(value));
        let changes: Vec<(&Key, Value)> = remembered
            .keys
            .iter()
            .filter(changed)
            .filter_map(|key| Some((key, fitting(value_at(&now, &key.at)?, key.shape)?)))
            .collect();
        let (back, own): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(key, _)| key.opens_nothing);
        if !own.is_empty() {
            let of_file = kept.entry(path.to_string_lossy().into_owned()).or_default();
            of_file.extend(own.into_iter().map(|(key, value)| (name(key), value)));
        }
        let grown = |document: &Value| -> Changes {
            let is_member = |(key, value): &&(&Key, Value)| match key.shape {
                Shape::MemberOf(object) => {
                    value.as_str().is_some_and(|name| document[object].get(name).is_some())
                }
                _ => true,
            };
            let of_key = |(key, value): &(&Key, Value)| {
                (key.at.clone(), advanced_counter(value, value_at(document, &key.at), key.shape))
            };
            back.iter().filter(is_member).map(of_key).collect()
        };
        if !back.is_empty()
            && let Err(error) = merge(facts, path, *format, grown)
        {
            let shown = agentsh_store::escape::line(&path.to_string_lossy()).into_owned();
            record.note(&format!("cannot store in {shown} what {} received: {error}", kind.title()));
        }
    }
    if kept != before
        && let Err(error) = write_kept(facts, kind, &kept)
    {
        record.note(&format!("cannot store what {} received in this project: {error}", kind.title()));
    }
}

/// By file, and by the name of the key.
type RememberedValues = BTreeMap<String, BTreeMap<String, Value>>;

fn read_kept(facts: &Facts, kind: Kind) -> RememberedValues {
    let Ok((text, _)) = users(&files::of_project(facts, kind).join(NAME)) else {
        return RememberedValues::new();
    };
    serde_json::from_str(&text).unwrap_or_default()
}

fn write_kept(facts: &Facts, kind: Kind, kept: &RememberedValues) -> std::io::Result<()> {
    let directory = files::of_project(facts, kind);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    write_anew(&directory.join(NAME), &serde_json::to_vec_pretty(kept)?, 0o600)
}

fn name(key: &Key) -> String {
    json!(key.at).to_string()
}

/// The content that the agent left at a path.
fn content_inside(facts: &Facts, inside: &Namespaces, path: &Path) -> Option<String> {
    text_of(open_inside::open(&facts.context.zygote, inside, path).ok().flatten()?)
}

/// Like [`content_inside`], in a directory that was the agent's, which may contain anything.
pub(super) fn left_in(file: &Path) -> Option<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(file).ok()?;
    text_of(Some(file).filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?)
}

fn text_of(file: std::fs::File) -> Option<String> {
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The file's identity, its size, and its change time, which no program can set.
pub(super) type Stamp = (u64, u64, i64, i64);

pub(super) fn stamp(found: &Metadata) -> Stamp {
    (found.ino(), found.size(), found.ctime(), found.ctime_nsec())
}

/// The content of a user's file, and its identity; empty if there is no such file.
pub(super) fn users(path: &Path) -> std::io::Result<(String, Option<Stamp>)> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((String::new(), None)),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return Err(std::io::Error::other("it is not a regular file, or it is too large"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok((text, Some(stamp(&found))))
}

/// Values, each with the keys from the top of the document.
type Changes = Vec<(Vec<String>, Value)>;

/// Writes into the user's own file as it is now, and nothing else of the agent's copy.
pub(super) fn merge(
    facts: &Facts,
    path: &Path,
    format: Format,
    changes: impl Fn(&Value) -> Changes,
) -> std::io::Result<()> {
    // The target of a link is written; the agent itself writes files of the project.
    let real = match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => path.to_owned(),
        other => other?,
    };
    if real.starts_with(&facts.context.project) || !real.parent().is_some_and(Path::is_dir) {
        return Ok(());
    }
    for _ in 0..TRIES {
        let (text, stamp) = users(&real)?;
        let bad = || std::io::Error::other("it cannot be parsed");
        let document =
            if text.trim().is_empty() { Value::Null } else { read(format, &text).ok_or_else(bad)? };
        let mut changes = changes(&document);
        changes.retain(|(key, value)| value_at(&document, key) != Some(value));
        if changes.is_empty() {
            return Ok(());
        }
        let text = set(format, &text, &changes).ok_or_else(bad)?;
        let mode = real.metadata().map_or(0o600, |found| found.mode() & 0o777);
        if users(&real)?.1 == stamp {
            return write_anew(&real, text.as_bytes(), mode);
        }
    }
    Err(std::io::Error::other("another process keeps writing it"))
}

pub(super) fn read(format: Format, text: &str) -> Option<Value> {
    match format {
        _ if text.trim().is_empty() => Some(Value::Object(Map::new())),
        Format::Json => strict::parse(text, Path::new("")).ok(),
        Format::Toml => serde_json::to_value(text.parse::<toml::Table>().ok()?).ok(),
    }
}

/// The text with these values; None when something else is in the way.
fn set(format: Format, text: &str, changes: &Changes) -> Option<String> {
    match format {
        Format::Json => {
            let mut document = read(format, text)?;
            for (key, value) in changes {
                let (last, above) = key.split_last()?;
                let mut place = document.as_object_mut()?;
                for step in above {
                    let next = place.entry(step.clone()).or_insert_with(|| Value::Object(Map::new()));
                    place = next.as_object_mut()?;
                }
                place.insert(last.clone(), value.clone());
            }
            serde_json::to_string_pretty(&document).ok()
        }
        Format::Toml => {
            let mut document: toml_edit::DocumentMut = text.parse().ok()?;
            for (key, value) in changes {
                let (last, above) = key.split_last()?;
                let mut place = document.as_table_mut() as &mut dyn toml_edit::TableLike;
                for step in above {
                    let next = place.entry(step).or_insert_with(|| {
                        let mut table = toml_edit::Table::new();
                        table.set_implicit(true);
                        toml_edit::Item::Table(table)
                    });
                    place = next.as_table_like_mut()?;
                }
                let value: toml_edit::Value = match value {
                    Value::String(text) => text.as_str().into(),
                    Value::Bool(flag) => (*flag).into(),
                    Value::Number(number) => number.as_i64()?.into(),
                    _ => return None,
                };
                place.insert(last, toml_edit::Item::Value(value));
            }
            Some(document.to_string())
        }
    }
}

fn value_at<'v>(document: &'v Value, steps: &[String]) -> Option<&'v Value> {
    steps.iter().try_fold(document, |value, step| value.get(step))
}

/// The value, when it has the shape.
fn fitting(value: &Value, shape: Shape) -> Option<Value> {
    let is_count = |value: &Value| value.as_u64().is_some_and(|count| count < 1 << 31);
    let is_made_of = |text: &str, others: &str, longest: usize| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || others.contains(letter);
        !text.is_empty() && text.len() <= longest && text.chars().all(plain)
    };
    let is_word = |text: &str| is_made_of(text, "-_.", MAX_WORD);
    let are_texts = |longest: usize| {
        let fits = |text: &str| text.len() <= longest && !text.chars().any(char::is_control);
        value.as_array().is_some_and(|items| {
            items.len() <= MAX_MEMBERS && items.iter().all(|item| item.as_str().is_some_and(fits))
        })
    };
    let fits = match shape {
        Shape::Flag => value.is_boolean(),
        Shape::Count => is_count(value),
        Shape::Counts => value.as_object().is_some_and(|members| {
            members.len() <= MAX_MEMBERS
                && members.iter().all(|(name, value)| is_word(name) && is_count(value))
        }),
        Shape::Word | Shape::MemberOf(_) => value.as_str().is_some_and(is_word),
        Shape::Model => value.as_str().is_some_and(|text| is_made_of(text, "-_.:/@", MAX_NAME)),
        Shape::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
        Shape::Names => are_texts(MAX_NAME),
        Shape::Rules => are_texts(MAX_RULE),
    };
    fits.then(|| value.clone())
}

/// Another process may have advanced the counter.
fn advanced_counter(value: &Value, now: Option<&Value>, shape: Shape) -> Value {
    let larger = |value: &Value, now: Option<&Value>| {
        let now = now.and_then(Value::as_u64).unwrap_or(0);
        if value.as_u64() < Some(now) { now.into() } else { value.clone() }
    };
    match (shape, value) {
        (Shape::Count, value) => larger(value, now),
        (Shape::Counts, Value::Object(members)) => {
            let mut all = now.and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, count) in members {
                let count = larger(count, all.get(name));
                all.insert(name.clone(), count);
            }
            Value::Object(all)
        }
        (_, value) => value.clone(),
    }
}
