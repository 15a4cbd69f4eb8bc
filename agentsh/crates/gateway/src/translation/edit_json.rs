//! Sets and removes members of a message, and leaves the rest as it was written.

use crate::json::{self, Json};
use crate::mcp::jsonrpc::Id;

/// Sets a member, replacing or appending. No effect on other values.
pub fn set<'a>(tree: &mut Json<'a>, name: &'a str, value: Json<'a>) {
    if let Some(place) = tree.member_mut(name) {
        *place = value;
    } else if let Json::Object(members) = tree {
        members.push((name, value));
    }
}

pub fn set_default<'a>(tree: &mut Json<'a>, name: &'a str, value: Json<'a>) {
    if tree.member(name).is_none() {
        set(tree, name, value);
    }
}

pub fn remove(tree: &mut Json<'_>, names: &[&str]) {
    if let Json::Object(members) = tree {
        members.retain(|(raw, _)| !names.contains(&json::unescape(raw).as_ref()));
    }
}

/// A member object, created if missing.
pub fn object<'t, 'a>(tree: &'t mut Json<'a>, name: &'a str) -> Option<&'t mut Json<'a>> {
    if !matches!(tree.member(name), Some(Json::Object(_))) {
        set(tree, name, Json::Object(Vec::new()));
    }
    tree.member_mut(name)
}

/// Parses JSON that is known to be valid.
pub fn parse_valid(text: &str) -> Json<'_> {
    json::read(text.as_bytes()).unwrap_or(Json::Null)
}

pub fn line(tree: &Json<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    tree.write(&mut line);
    line
}

pub fn answer(id: &str, result: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

pub fn error(id: &str, code: i32, message: &str) -> Vec<u8> {
    let message = json::escape_text(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#).into_bytes()
}

pub fn request(id: &str, method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#).into_bytes()
}

pub fn notification(method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#).into_bytes()
}

/// The rest of an id with a prefix.
pub fn strip_id_prefix<'i>(id: &'i Id, prefix: &str) -> Option<&'i str> {
    id.spelled.strip_prefix('"')?.strip_suffix('"')?.strip_prefix(prefix)
}
