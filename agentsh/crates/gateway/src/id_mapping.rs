//! Ids and progress tokens on a connection that several clients share: renamed, because clients may use the same ones.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::json::{self, Json};
use crate::mcp::jsonrpc::{Id, Key};

use super::message::{Incoming, Kind, SUBSCRIPTION};

#[derive(Default)]
pub struct IdMapping {
    next: u64,
    originals: HashMap<Key, Original>,
}

struct Original {
    id: Box<str>,
    token: Option<Box<str>>,
}

impl IdMapping {
    pub fn rename(&mut self, mut message: Incoming) -> Incoming {
        let Kind::Request { id, .. } = &mut message.kind else { return message };
        self.next += 1;
        let name = self.next.to_string();
        let key = Key::Number(name.as_str().into());
        let line = std::mem::take(&mut message.line);
        let Ok(mut tree) = json::read(&line) else {
            message.line = line;
            return message;
        };
        let mut original = Original { id: id.spelled.clone(), token: None };
        set(&mut tree, &["id"], &name);
        let token = ["params", "_meta", "progressToken"];
        if message.token.is_some() {
            original.token = find(&tree, &token).map(|token| token.to_compact().into());
            set(&mut tree, &token, &name);
            message.token = Some(key.clone());
        }
        tree.write(&mut message.line);
        *id = Id { key: key.clone(), spelled: name.as_str().into() };
        self.originals.insert(key, original);
        message
    }

    /// Whether the request was renamed here.
    pub fn knows(&self, key: &Key) -> bool {
        self.originals.contains_key(key)
    }

    pub fn forget(&mut self, key: &Key) {
        self.originals.remove(key);
    }

    pub fn restore_answer<'l>(&self, key: &Key, tree: Json<'_>, line: &'l [u8]) -> Cow<'l, [u8]> {
        self.with_original_id(key, tree, line, &["id"], |original| Some(&original.id))
    }

    pub fn restore_progress<'l>(&self, key: &Key, tree: Json<'_>, line: &'l [u8]) -> Cow<'l, [u8]> {
        self.with_original_id(key, tree, line, &["params", "progressToken"], |original| {
            original.token.as_deref()
        })
    }

    pub fn restore_subscription<'l>(&self, key: &Key, tree: Json<'_>, line: &'l [u8]) -> Cow<'l, [u8]> {
        self.with_original_id(key, tree, line, &["params", "_meta", SUBSCRIPTION], |original| {
            Some(&original.id)
        })
    }

    fn with_original_id<'l>(
        &self,
        key: &Key,
        tree: Json<'_>,
        line: &'l [u8],
        path: &[&str],
        spelled: impl Fn(&Original) -> Option<&str>,
    ) -> Cow<'l, [u8]> {
        let Some(spelled) = self.originals.get(key).and_then(spelled) else { return Cow::Borrowed(line) };
        let Ok(value) = json::read(spelled.as_bytes()) else { return Cow::Borrowed(line) };
        let mut tree = tree;
        if let Some(place) = value_at(&mut tree, path) {
            *place = value;
        }
        let mut out = Vec::with_capacity(line.len());
        tree.write(&mut out);
        Cow::Owned(out)
    }
}

fn value_at<'t, 'a>(tree: &'t mut Json<'a>, path: &[&str]) -> Option<&'t mut Json<'a>> {
    path.iter().try_fold(tree, |tree, name| tree.member_mut(name))
}

fn find<'t, 'a>(tree: &'t Json<'a>, path: &[&str]) -> Option<&'t Json<'a>> {
    path.iter().try_fold(tree, |tree, name| tree.member(name))
}

fn set<'a>(tree: &mut Json<'a>, path: &[&str], number: &'a str) {
    if let Some(place) = value_at(tree, path) {
        *place = Json::Number(number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn clients_that_use_the_same_id_get_their_own_answers() {
        let mut names = IdMapping::default();
        let ask = r#"{"jsonrpc":"2.0","id":"a\u0041","method":"tools/call","params":{"name":"x","n":1.50,"_meta":{"progressToken":7}}}"#;
        let one = names.rename(Incoming::read(ask.as_bytes()).unwrap());
        let two = names.rename(Incoming::read(ask.as_bytes()).unwrap());
        assert_ne!(one.id().unwrap().key, two.id().unwrap().key);
        let line = String::from_utf8(one.line.clone()).unwrap();
        assert!(
            line.contains(r#""id":1,"#) && line.contains(r#""progressToken":1"#) && line.contains("1.50"),
            "{line}"
        );
        let key = two.id().unwrap().key.clone();
        let answer = br#"{"jsonrpc":"2.0","id":2,"result":{"v":1.0}}"#;
        let restored = names.restore_answer(&key, json::read(answer).unwrap(), answer);
        assert_eq!(&*restored, br#"{"jsonrpc":"2.0","id":"a\u0041","result":{"v":1.0}}"#);
        let progress = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}"#;
        let restored = names.restore_progress(&key, json::read(progress).unwrap(), progress);
        assert!(String::from_utf8(restored.into_owned()).unwrap().contains(r#""progressToken":7"#));
        names.forget(&key);
        assert_eq!(&*names.restore_answer(&key, json::read(answer).unwrap(), answer), answer);
    }
}
