//! Members of a client's message other than its content: ids, `_meta`, unknown ones. They are searched too, because
//! data can leave in them.

use crate::json::{Json, unescape};

use super::client_capabilities;

/// The parts of a request or an answer that are judged under a name of their own.
const JUDGED: [&str; 5] = ["jsonrpc", "method", "params", "result", "error"];
/// The same of the parameters of a call.
const JUDGED_CALL_MEMBERS: [&str; 2] = ["name", "arguments"];
/// Maximum number of digits of a number that counts as a counter.
const MAX_COUNTER_DIGITS: usize = 10;

/// The members of an object without these.
pub(super) fn members_but<'a>(value: &Json<'a>, names: &[&str]) -> Vec<(&'a str, Json<'a>)> {
    let members = value.as_object().unwrap_or_default().iter();
    members.filter(|(raw, _)| !names.contains(&&*unescape(raw))).cloned().collect()
}

/// All other members from which a server could read text. None: there are none.
pub(super) fn extra_members<'a>(tree: &Json<'a>, method: &str) -> Option<Json<'a>> {
    let mut rest = members_but(tree, &JUDGED);
    if method == "tools/call"
        && let Some(params) = tree.member("params")
    {
        rest.extend(members_but(params, &JUDGED_CALL_MEMBERS));
    }
    rest.iter()
        .any(|(raw, value)| !UNINFORMATIVE_NAMES.contains(raw) || says_something(value))
        .then_some(Json::Object(rest))
}

/// Members of `_meta` about the connection: the handshake of requests without sessions, and where progress goes.
const OF_CONNECTION: [&str; 4] = [
    client_capabilities::VERSION,
    client_capabilities::CAPABILITIES,
    "io.modelcontextprotocol/clientInfo",
    "progressToken",
];
/// Members of `_meta` with which clients count their own calls: other ones in each, so that no answer about a call would
/// ever count for the next.
const CLIENTS_OWN: [&str; 5] =
    ["claudecode/toolUseId", "x-codex-turn-metadata", "vscode.requestId", "traceparent", "tracestate"];

/// A request that a person is asked about: as it will be forwarded, and what is shown of it, to which the answer is
/// bound. That is everything, but for what belongs to the connection; a call that has arguments alone is its arguments.
pub(super) fn question_forms<'a>(tree: &Json<'a>, is_call: bool) -> (Json<'a>, Json<'a>) {
    let part = |value: &Json<'a>, is_in: &dyn Fn(&str) -> bool| match value {
        Json::Object(members) => {
            Json::Object(members.iter().filter(|(raw, _)| is_in(&unescape(raw))).cloned().collect())
        }
        other => other.clone(),
    };
    let without_meta = |params: &mut Json<'a>, names: &[&str]| {
        let Some(meta) = params.member_mut("_meta") else { return };
        *meta = part(meta, &|name| !names.contains(&name));
        if meta.as_object().is_some_and(<[_]>::is_empty) {
            *params = part(params, &|name| name != "_meta");
        }
    };
    let mut forwarded = part(tree, &|name| ["jsonrpc", "id", "method", "params"].contains(&name));
    if let Some(params) = forwarded.member_mut("params") {
        without_meta(params, &CLIENTS_OWN);
    }
    let mut shown = forwarded.member("params").cloned().unwrap_or(Json::Null);
    without_meta(&mut shown, &OF_CONNECTION);
    if is_call {
        shown = part(&shown, &|name| name != "name");
        match shown.as_object() {
            Some([]) => shown = Json::Null,
            Some([(raw, arguments)]) if unescape(raw) == "arguments" => shown = arguments.clone(),
            _ => {}
        }
    }
    (forwarded, shown)
}

/// Names that say nothing by themselves.
const UNINFORMATIVE_NAMES: [&str; 3] = ["id", "_meta", "progressToken"];

fn says_something(value: &Json<'_>) -> bool {
    match value {
        Json::Null | Json::Bool(_) => false,
        Json::Number(raw) => raw.len() > MAX_COUNTER_DIGITS,
        Json::String(raw) => !raw.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(members) => {
            members.iter().any(|(raw, value)| !UNINFORMATIVE_NAMES.contains(raw) || says_something(value))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::json::read;

    #[test]
    fn extra_members_leave_out_what_is_judged_elsewhere() {
        let extra_members = |text: &str| {
            let tree = read(text.as_bytes()).unwrap();
            extra_members(&tree, "tools/call").map(|rest| rest.to_compact())
        };
        for plain in [
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"a":"long text"}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":4}}}"#,
        ] {
            assert_eq!(extra_members(plain), None, "{plain}");
        }
        for (carries, rest) in [
            (r#"{"jsonrpc":"2.0","id":"text","method":"tools/call"}"#, r#"{"id":"text"}"#),
            (r#"{"id":123456789012345,"method":"tools/call"}"#, r#"{"id":123456789012345}"#),
            (
                r#"{"id":1,"params":{"name":"t","_meta":{"progressToken":"text"},"more":[1]}}"#,
                r#"{"id":1,"_meta":{"progressToken":"text"},"more":[1]}"#,
            ),
            (r#"{"id":1,"params":{"_meta":{"x.y/text":true}}}"#, r#"{"id":1,"_meta":{"x.y/text":true}}"#),
            (r#"{"id":1,"text":null}"#, r#"{"id":1,"text":null}"#),
        ] {
            assert_eq!(extra_members(carries).as_deref(), Some(rest), "{carries}");
        }
    }

    #[test]
    fn a_person_is_shown_all_that_is_forwarded() {
        let asked = |text: &str| {
            let tree = read(text.as_bytes()).unwrap();
            let (forwarded, shown) = question_forms(&tree, true);
            (forwarded.to_compact(), shown.to_compact())
        };
        for (sent, forwarded, shown) in [
            (r#"{"id":1,"params":{"name":"t"}}"#, None, "null"),
            (r#"{"id":1,"params":{"name":"t","arguments":{"a":1}}}"#, None, r#"{"a":1}"#),
            (
                r#"{"id":1,"params":{"name":"t","arguments":{"a":1},"_meta":{"progressToken":4}}}"#,
                None,
                r#"{"a":1}"#,
            ),
            (
                r#"{"id":1,"x":2,"params":{"name":"t","arguments":{},"_meta":{"claudecode\/toolUseId":"toolu_1"}}}"#,
                Some(r#"{"id":1,"params":{"name":"t","arguments":{}}}"#),
                "{}",
            ),
            (
                r#"{"id":1,"params":{"name":"t","arguments":{},"_meta":{"progressToken":4,"to":"b"},"task":{}}}"#,
                None,
                r#"{"arguments":{},"_meta":{"to":"b"},"task":{}}"#,
            ),
        ] {
            let expected = (forwarded.unwrap_or(sent).to_owned(), shown.to_owned());
            assert_eq!(asked(sent), expected, "{sent}");
        }
    }
}
