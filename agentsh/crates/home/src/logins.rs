//! Files with logins: inside is a copy with the agent's own account alone, and a renewal of that account goes to the user's file
//! (decision 826). What is renewed elsewhere meanwhile reaches the copy.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use agentsh_agents::{Access, Format, Kind, Launch};
use agentsh_host::copies::write_anew;
use agentsh_host::{Facts, Record};
use agentsh_store::words::GuardChange;
use agentsh_store::{Event, escape};

use super::files;
use super::remember::{self, Stamp};

/// A longer text is not a token.
const MAX_TOKEN: usize = 64 << 10;

/// The logins of one run.
#[derive(Debug, Default)]
pub struct Logins(Vec<Login>);

#[derive(Debug)]
struct Login {
    /// The user's.
    path: PathBuf,
    copy: PathBuf,
    own: Vec<String>,
    /// As they were when last read.
    outside: Map<String, Value>,
    inside: Map<String, Value>,
    stamps: [Option<Stamp>; 2],
    /// Whether this run has reported it; one line per run is enough.
    is_told: bool,
}

impl Logins {
    /// Makes the copies.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn copy(facts: &Facts, kind: Kind, launch: &Launch) -> std::io::Result<Self> {
        let mut logins = Vec::new();
        for state in &launch.home_state {
            let Access::Login(own) = state.access else { continue };
            let path = facts.context.home.join(&state.path);
            let copy = files::login_copy(facts, kind, launch, &path);
            let stamps = [stamp(&path), None];
            let mut own: Vec<String> = own.iter().map(|name| (*name).to_owned()).collect();
            if own.is_empty() {
                own.extend(launch.accounts.iter().cloned());
            }
            let outside = users(&path, &own).unwrap_or_default();
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(copy.parent().unwrap_or(&copy))?;
            write_anew(&copy, &serde_json::to_vec(&outside)?, 0o600)?;
            logins.push(Login { path, copy, own, inside: outside.clone(), outside, stamps, is_told: false });
        }
        Ok(Self(logins))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares both sides of each. `is_last`: the agent has ended.
    pub fn compare(&mut self, facts: &Facts, record: &Record, kind: Kind, is_last: bool) {
        for login in &mut self.0 {
            let stamps = [stamp(&login.path), stamp(&login.copy)];
            if is_last || stamps != login.stamps {
                login.stamps = stamps;
                if let Err(why) = login.compare(facts, is_last)
                    && !std::mem::replace(&mut login.is_told, true)
                {
                    let path = escape::line(&login.path.to_string_lossy()).into_owned();
                    let title = kind.title();
                    let text = format!(
                        "{path} stays as it is: {why}; if it no longer works, log in with {title} outside agentsh"
                    );
                    record.note(&text);
                    record.journal.record(Event::GuardChanged {
                        server_id: None,
                        path,
                        what: GuardChange::Refused,
                        detail: text,
                    });
                }
            }
        }
    }
}

/// However the run ends, no copy of a token stays.
impl Drop for Login {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.copy);
        for directory in self.copy.ancestors().skip(1).take(2) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl Login {
    fn compare(&mut self, facts: &Facts, is_last: bool) -> Result<(), String> {
        // A file that is being written is read again later.
        let Some(mut outside) = users(&self.path, &self.own) else { return Ok(()) };
        let text = remember::left_in(&self.copy).unwrap_or_default();
        let inside = match remember::read(Format::Json, &text) {
            Some(Value::Object(inside)) if is_last || !text.trim().is_empty() => inside,
            _ if is_last => Map::new(),
            _ => return Ok(()),
        };
        let is_new_outside = outside != self.outside;
        let mut result = Ok(());
        if inside != self.inside {
            match renewed_login(&outside, &inside) {
                Some(next) if next == outside => {}
                Some(_) => match self.write_back(facts, &inside) {
                    Ok(()) => outside = users(&self.path, &self.own).unwrap_or(outside),
                    Err(error) => result = Err(format!("a renewed login cannot be stored: {error}")),
                },
                None => {
                    result = Err("what was written inside is not a renewal of the same account".to_owned());
                }
            }
            self.inside = inside;
        }
        if is_new_outside
            && !is_last
            && self.inside != outside
            && write_in_place(&self.copy, &outside).is_ok()
        {
            self.inside.clone_from(&outside);
        }
        self.outside = outside;
        result
    }

    fn write_back(&self, facts: &Facts, inside: &Map<String, Value>) -> std::io::Result<()> {
        if self.path.canonicalize()?.starts_with(&facts.context.project) {
            return Err(std::io::Error::other("the file lies in the project"));
        }
        remember::merge(facts, &self.path, Format::Json, |document| {
            let outside = own_members(document.clone(), &self.own).unwrap_or_default();
            let next = renewed_login(&outside, inside).unwrap_or(outside);
            next.into_iter().map(|(name, value)| (vec![name], value)).collect()
        })
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    path.metadata().ok().as_ref().map(remember::stamp)
}

/// The agent's own account in the user's file. None while it cannot be read.
fn users(path: &Path, own: &[String]) -> Option<Map<String, Value>> {
    let (text, _) = remember::users(path).ok()?;
    own_members(remember::read(Format::Json, &text)?, own)
}

fn own_members(document: Value, own: &[String]) -> Option<Map<String, Value>> {
    let Value::Object(mut document) = document else { return None };
    document.retain(|name, _| own.is_empty() || own.contains(name));
    Some(document)
}

/// The agent has this very file: it, or its directory, is mounted.
fn write_in_place(copy: &Path, document: &Map<String, Value>) -> std::io::Result<()> {
    let content = serde_json::to_vec(document)?;
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(copy)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    // Never empty in between.
    file.write_all(&content)?;
    file.set_len(content.len() as u64)
}

/// The login outside after its renewal inside. Only tokens and times differ; a renewal that is older than what is there changes
/// nothing, and neither does anything else without a new token. None: it is another account, or none.
pub(super) fn renewed_login(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let mut found = Differences::default();
    let next = found.object(old, new);
    match found {
        Differences { has_lost: true, .. } | Differences { has_new: true, has_others: true, .. } => None,
        Differences { has_new: false, .. } => Some(old.clone()),
        _ => Some(next),
    }
}

#[derive(Default)]
struct Differences {
    has_new: bool,
    has_others: bool,
    has_lost: bool,
}

impl Differences {
    fn object(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
        if newest(new).is_some_and(|new| Some(new) < newest(old)) {
            return old.clone();
        }
        old.iter().map(|(name, was)| (name.clone(), self.member(name, was, new.get(name)))).collect()
    }

    fn member(&mut self, name: &str, was: &Value, now: Option<&Value>) -> Value {
        match (was, now) {
            (Value::Object(was), Some(Value::Object(now))) => return Value::Object(self.object(was, now)),
            (Value::Null, _) => {}
            (was, Some(now)) if is_same(was, now) => {}
            (was, None | Some(Value::Null)) => self.has_lost |= was.is_object() || is_token(name),
            (Value::String(_), Some(Value::String(now)))
                if (is_token(name) || is_time(name))
                    && !now.is_empty()
                    && now.len() <= MAX_TOKEN
                    && !now.contains(char::is_control) =>
            {
                self.has_new |= is_token(name);
                return now.as_str().into();
            }
            (Value::Number(_), Some(Value::Number(now))) if is_time(name) => {
                return Value::Number(now.clone());
            }
            _ => self.has_others = true,
        }
        was.clone()
    }
}

fn is_token(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("token") || ["access", "refresh"].contains(&name.as_str())
}

fn is_time(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("expir") || name == "last_refresh"
}

/// The newest time among the members, in no particular unit: a number, or the digits of a date.
fn newest(members: &Map<String, Value>) -> Option<u64> {
    let times = members.iter().filter(|(name, _)| is_time(name));
    let digits =
        |text: &str| text.chars().filter(char::is_ascii_digit).take(14).collect::<String>().parse().ok();
    let times = times.filter_map(|(_, value)| match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => digits(text),
        _ => None,
    });
    times.max()
}

/// Lists without regard to their order, as those of scopes.
fn is_same(was: &Value, now: &Value) -> bool {
    let sorted = |items: &[Value]| {
        let mut items: Vec<String> = items.iter().map(Value::to_string).collect();
        items.sort();
        items
    };
    match (was, now) {
        (Value::Array(was), Value::Array(now)) => sorted(was) == sorted(now),
        (was, now) => was == now,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use serde_json::json;

    #[test]
    fn renewed_login_is_accepted_only_for_the_same_account() {
        let map = |value: Value| value.as_object().unwrap().clone();
        let claude = |token: &str, expires: u64, plan: Value, scopes: Value| {
            map(json!({"claudeAiOauth": {"accessToken": token, "refreshToken": "r", "expiresAt": expires,
                "scopes": scopes, "subscriptionType": plan}}))
        };
        let (a, max) = (json!(["a", "b"]), json!("max"));
        let old = claude("one", 10, max.clone(), a.clone());
        let new = claude("two", 20, max.clone(), a.clone());
        for (now, expected) in [
            (new.clone(), Some(&new)),
            (claude("two", 20, max.clone(), json!(["b", "a"])), Some(&new)),
            // The plan was not found out.
            (claude("two", 20, Value::Null, a.clone()), Some(&new)),
            // Older, and without a token.
            (claude("two", 5, max.clone(), a.clone()), Some(&old)),
            (claude("one", 10, json!("pro"), a.clone()), Some(&old)),
            (claude("one", u64::MAX, max.clone(), a.clone()), Some(&old)),
            (claude("two", 20, json!("pro"), a.clone()), None),
            (claude("two", 20, max.clone(), json!(["a"])), None),
            (claude("", 20, max.clone(), a.clone()), Some(&old)),
            (map(json!({"claudeAiOauth": {"accessToken": "two"}})), None),
            (map(json!({})), None),
        ] {
            assert_eq!(renewed_login(&old, &now).as_ref(), expected, "{now:?}");
        }
        // Added members are not copied back.
        let mut more = new.clone();
        more.insert("mcpOAuth".to_owned(), json!({"x": {"accessToken": "t"}}));
        assert_eq!(renewed_login(&old, &more).as_ref(), Some(&new));
        let codex = |account: &str, token: &str, at: &str| {
            map(
                json!({"OPENAI_API_KEY": null, "tokens": {"id_token": "i", "access_token": token, "refresh_token": "r",
                "account_id": account}, "last_refresh": at}),
            )
        };
        let old = codex("a", "one", "2026-01-02T03:04:05.123Z");
        let new = codex("a", "two", "2026-01-02T03:04:06.5Z");
        assert_eq!(renewed_login(&old, &new).as_ref(), Some(&new));
        assert_eq!(renewed_login(&new, &old).as_ref(), Some(&new));
        assert_eq!(renewed_login(&old, &codex("b", "two", "2026-01-02T03:04:06.5Z")), None);
        let mut keyed = old.clone();
        keyed.insert("OPENAI_API_KEY".to_owned(), json!("sk-other"));
        assert_eq!(renewed_login(&old, &keyed).as_ref(), Some(&old));
        // The place that gets the token, and a key.
        let qwen = |token: &str, place: &str| map(json!({"access_token": token, "resource_url": place}));
        assert_eq!(renewed_login(&qwen("one", "a"), &qwen("two", "evil")), None);
        let key = |key: &str| map(json!({"openai": {"type": "api", "key": key}}));
        assert_eq!(renewed_login(&key("k"), &key("other")), Some(key("k")));
    }
}
