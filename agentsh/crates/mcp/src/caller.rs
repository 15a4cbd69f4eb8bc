//! The origin of a gateway client's request. The gateway writes it into `_meta`, and it is removed before anything else
//! reads the request.

use std::collections::BTreeMap;

pub use crate::guard::Caller;

use crate::json::{self, Json, unescape};

/// The member of `params._meta`.
const NAME: &str = "io.agentsh/caller";

/// The request with its caller. None: it is not an object.
#[must_use]
pub fn with_caller(line: &[u8], caller: &Caller) -> Option<Vec<u8>> {
    let text = serde_json::json!({"address": caller.address, "headers": caller.headers}).to_string();
    let value = json::read(text.as_bytes()).ok()?;
    let mut tree = json::read(line).ok()?;
    let meta = object(object(&mut tree, "params")?, "_meta")?;
    remove(meta, NAME);
    if let Json::Object(members) = meta {
        members.push((NAME, value));
    }
    Some(tree.to_compact().into_bytes())
}

/// Takes it out.
pub(super) fn take(tree: &mut Json<'_>) -> Option<Caller> {
    let params = tree.member_mut("params")?;
    let meta = params.member_mut("_meta")?;
    let said = remove(meta, NAME)?;
    if meta.as_object().is_some_and(<[_]>::is_empty) {
        remove(params, "_meta");
        if params.as_object().is_some_and(<[_]>::is_empty) {
            remove(tree, "params");
        }
    }
    let address = said.member("address")?.as_text()?.parse().ok()?;
    let headers = said.member("headers")?.as_object()?.iter().map(|(name, values)| {
        let values = values.as_array().unwrap_or_default().iter().filter_map(Json::as_text);
        (unescape(name).into_owned(), values.map(std::borrow::Cow::into_owned).collect())
    });
    Some(Caller { address, headers: headers.collect::<BTreeMap<_, _>>() })
}

fn object<'t, 'a>(tree: &'t mut Json<'a>, name: &'static str) -> Option<&'t mut Json<'a>> {
    let members = tree.as_object()?;
    if !members.iter().any(|(raw, value)| unescape(raw) == name && value.as_object().is_some()) {
        remove(tree, name);
        if let Json::Object(members) = tree {
            members.push((name, Json::Object(Vec::new())));
        }
    }
    tree.member_mut(name)
}

fn remove<'a>(tree: &mut Json<'a>, name: &str) -> Option<Json<'a>> {
    let Json::Object(members) = tree else { return None };
    let at = members.iter().position(|(raw, _)| unescape(raw) == name)?;
    Some(members.remove(at).1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn caller_from_the_gateway_replaces_one_from_the_client() {
        let caller = Caller {
            address: "10.1.2.3".parse().unwrap(),
            headers: [("x-team".to_owned(), vec!["a \"b\"".to_owned()])].into(),
        };
        for (sent, left) in [
            (r#"{"id":1,"method":"tools/list"}"#, r#"{"id":1,"method":"tools/list"}"#),
            (
                r#"{"id":1,"params":{"name":"t","_meta":{"a":1}}}"#,
                r#"{"id":1,"params":{"name":"t","_meta":{"a":1}}}"#,
            ),
            (
                r#"{"id":1,"params":{"n":1,"_meta":{"io.agentsh\/caller":{"address":"127.0.0.1","headers":{}}}}}"#,
                r#"{"id":1,"params":{"n":1}}"#,
            ),
        ] {
            let told = with_caller(sent.as_bytes(), &caller).unwrap();
            let mut tree = json::read(&told).unwrap();
            assert_eq!(take(&mut tree).as_ref(), Some(&caller), "{sent}");
            assert_eq!(tree.to_compact(), left);
        }
    }
}
