//! Results of the agent's own tools, from its request to the model: agentsh sees them nowhere else.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::MAX_DEPTH;
use crate::json::{self, Json};
use crate::request::{each_text, question};
use crate::route::Provider;

/// Prefix of MCP tools' names, whose results are known already.
const OF_SERVERS: &str = "mcp";

/// Results of the agent's own tools, with the tools' names. None for an unparsable request.
#[must_use]
pub fn read(provider: Provider, body: &[u8]) -> Vec<(String, String)> {
    let Ok(tree) = json::read_to_depth(body, MAX_DEPTH) else { return Vec::new() };
    let asked = question(provider, &tree);
    let messages = |name: &str| asked.member(name).and_then(Json::as_array).unwrap_or_default();
    let mut found = OwnCalls::default();
    match provider {
        Provider::Anthropic => {
            for block in messages("messages").iter().flat_map(|message| items(message.member("content"))) {
                match block_type(block).as_deref() {
                    Some("tool_use") => found.call(block.member("id"), block.member("name"), false),
                    Some("tool_result") => found.result(block.member("tool_use_id"), block.member("content")),
                    _ => {}
                }
            }
        }
        Provider::OpenAiChat | Provider::Ollama => {
            for message in messages("messages") {
                for call in items(message.member("tool_calls")) {
                    let name = call.member("function").and_then(|function| function.member("name"));
                    found.call(call.member("id"), name, false);
                }
                found.result(message.member("tool_call_id"), message.member("content"));
            }
        }
        Provider::OpenAiResponses => {
            for item in messages("input") {
                let kind = block_type(item).unwrap_or_default();
                if kind.ends_with("_call") {
                    let is_of_server =
                        item.member("namespace").is_some_and(|value| value.as_text().is_some());
                    found.call(item.member("call_id"), item.member("name"), is_of_server);
                } else if kind.ends_with("_output") {
                    found.result(item.member("call_id"), item.member("output"));
                }
            }
        }
        Provider::Google => {
            for part in messages("contents").iter().flat_map(|content| items(content.member("parts"))) {
                let response = part.member("functionResponse");
                let Some((name, said)) =
                    response.and_then(|it| Some((it.member("name")?, it.member("response")?)))
                else {
                    continue;
                };
                let name = name.as_text().unwrap_or_default();
                if !name.starts_with(OF_SERVERS) {
                    each_string(said, &mut |text| {
                        found.texts.push((name.clone().into_owned(), text.into_owned()))
                    });
                }
            }
        }
    }
    found.texts
}

#[derive(Default)]
struct OwnCalls {
    /// Names of own calls, by id.
    own: BTreeMap<String, String>,
    texts: Vec<(String, String)>,
}

impl OwnCalls {
    fn call(&mut self, id: Option<&Json<'_>>, name: Option<&Json<'_>>, is_of_server: bool) {
        let id = id.and_then(Json::as_text);
        let name = name.and_then(Json::as_text).unwrap_or(Cow::Borrowed("shell"));
        if let Some(id) = id.filter(|_| !is_of_server && !name.starts_with(OF_SERVERS)) {
            self.own.insert(id.into_owned(), name.into_owned());
        }
    }

    fn result(&mut self, id: Option<&Json<'_>>, said: Option<&Json<'_>>) {
        let Some(name) = id.and_then(Json::as_text).and_then(|id| self.own.get(&*id)) else { return };
        each_text(said, &mut |text| self.texts.push((name.clone(), text.into_owned())));
    }
}

fn block_type<'j>(block: &'j Json<'_>) -> Option<Cow<'j, str>> {
    block.member("type").and_then(Json::as_text)
}

fn items<'j, 'a>(value: Option<&'j Json<'a>>) -> &'j [Json<'a>] {
    value.and_then(Json::as_array).unwrap_or_default()
}

fn each_string(value: &Json<'_>, each: &mut dyn FnMut(Cow<'_, str>)) {
    match value {
        Json::Object(members) => members.iter().for_each(|(_, value)| each_string(value, each)),
        Json::Array(values) => values.iter().for_each(|value| each_string(value, each)),
        _ => value.as_text().into_iter().for_each(each),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(provider: Provider, body: &str) -> Vec<(String, String)> {
        read(provider, body.as_bytes())
    }

    #[test]
    fn results_of_own_tools_are_read_and_those_of_servers_are_not() {
        let own = |name: &str, text: &str| vec![(name.to_owned(), text.to_owned())];
        let anthropic = r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"Read"},
            {"type":"tool_use","id":"b","name":"mcp__git__log"}]},{"role":"user","content":[
            {"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"KEY=1"}]},
            {"type":"tool_result","tool_use_id":"b","content":"KEY=2"}]}]}"#;
        assert_eq!(texts(Provider::Anthropic, anthropic), own("Read", "KEY=1"));
        let chat = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"bash"}},
            {"id":"b","function":{"name":"mcp__git__log"}}]},{"role":"tool","tool_call_id":"a","content":"KEY=1"},
            {"role":"tool","tool_call_id":"b","content":"KEY=2"}]}"#;
        assert_eq!(texts(Provider::OpenAiChat, chat), own("bash", "KEY=1"));
        let responses = r#"{"input":[{"type":"function_call","call_id":"a","name":"exec_command"},
            {"type":"function_call","call_id":"b","name":"log","namespace":"mcp__git__"},
            {"type":"function_call_output","call_id":"a","output":"KEY=1"},
            {"type":"function_call_output","call_id":"b","output":"KEY=2"}]}"#;
        assert_eq!(texts(Provider::OpenAiResponses, responses), own("exec_command", "KEY=1"));
        let google = r#"{"contents":[{"parts":[{"functionResponse":{"name":"read_file","response":{"output":"KEY=1"}}},
            {"functionResponse":{"name":"mcp_git_log","response":{"output":"KEY=2"}}}]}]}"#;
        assert_eq!(texts(Provider::Google, google), own("read_file", "KEY=1"));
        assert!(texts(Provider::Google, "[").is_empty());
    }
}
