//! Batch results that a provider stored: one JSON value, or one per line.

use crate::dialect::whole_answer;
use crate::json::{self, Json};
use crate::route::Provider;
use crate::{Answer, EngineEvent, Judge, LlmError, MAX_DEPTH};

/// The answer for the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilteredAnswer {
    /// None: unchanged.
    pub body: Option<Vec<u8>>,
    pub told: Vec<EngineEvent>,
}

/// Judges the calls of every answer. Other text, such as an uploaded document, has no answers.
///
/// # Errors
/// When it begins as JSON and cannot be parsed, or an answer has an unexpected form: it is withheld.
pub fn judge(body: &[u8], judge: &mut dyn Judge) -> Result<FilteredAnswer, LlmError> {
    let start = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    if !start.starts_with(b"{") && !start.starts_with(b"[") {
        return Ok(FilteredAnswer::default());
    }
    let (mut out, mut told) = (Vec::with_capacity(body.len()), Vec::new());
    match json::read_to_depth(start, MAX_DEPTH) {
        Ok(tree) => write(&tree, false, judge, &mut told, &mut out)?,
        Err(_) => {
            for line in start.split_inclusive(|byte| *byte == b'\n') {
                if !line.trim_ascii().is_empty() {
                    write(&json::read_to_depth(line, MAX_DEPTH)?, false, judge, &mut told, &mut out)?;
                }
                out.push(b'\n');
            }
        }
    }
    let body = (!told.is_empty()).then_some(out);
    Ok(FilteredAnswer { body, told })
}

/// The member of an answer that holds its calls, for each API.
const LISTS: [(Provider, &str); 4] = [
    (Provider::Anthropic, "content"),
    (Provider::OpenAiChat, "choices"),
    (Provider::OpenAiResponses, "output"),
    (Provider::Google, "candidates"),
];

/// The member with the turns of a request or training conversation.
const TURNS: &str = "messages";

/// The API of an answer: it says so, or has calls where clients look for them. In the `turns` of a conversation only
/// explicit answers count.
///
/// # Errors
/// When a client of another API would find calls in it too, which would not be judged.
fn provider_of_answer(tree: &Json<'_>, turns: bool) -> Result<Option<Provider>, LlmError> {
    let Some(members) = tree.as_object() else { return Ok(None) };
    let is =
        |name: &str, word: &str| tree.member(name).and_then(Json::as_text).is_some_and(|text| text == word);
    let is_list = |name: &str| tree.member(name).and_then(Json::as_array).is_some();
    let calls =
        |provider: Provider| whole_answer(provider).read(tree).is_ok_and(|(calls, _)| !calls.is_empty());
    let is_answer = |provider: Provider| match provider {
        Provider::Anthropic => {
            (is("type", "message") && tree.member("stop_reason").is_some()) || (!turns && calls(provider))
        }
        Provider::OpenAiChat => is("object", "chat.completion") || calls(provider),
        Provider::OpenAiResponses => (is("object", "response") && is_list("output")) || calls(provider),
        Provider::Google => is_list("candidates"),
        // Ollama keeps no batches.
        Provider::Ollama => false,
    };
    let Some((provider, list)) = LISTS.into_iter().find(|(provider, _)| is_answer(*provider)) else {
        return Ok(None);
    };
    if LISTS.iter().any(|(other, name)| *other != provider && (is_answer(*other) || is_list(name))) {
        return Err(LlmError::Shape("it can be read as an answer of two APIs"));
    }
    let mut beside = members.iter().filter(|(name, _)| *name != list);
    if beside.try_fold(false, |found, (name, value)| {
        Ok::<_, LlmError>(found || holds_answer(value, *name == TURNS)?)
    })? {
        return Err(LlmError::Shape("an answer is nested in an answer"));
    }
    Ok(Some(provider))
}

/// Whether an answer is anywhere in it.
fn holds_answer(tree: &Json<'_>, turns: bool) -> Result<bool, LlmError> {
    if provider_of_answer(tree, turns)?.is_some() {
        return Ok(true);
    }
    match tree {
        Json::Array(items) => {
            items.iter().try_fold(false, |found, item| Ok(found || holds_answer(item, turns)?))
        }
        Json::Object(members) => members
            .iter()
            .try_fold(false, |found, (name, value)| Ok(found || holds_answer(value, *name == TURNS)?)),
        _ => Ok(false),
    }
}

fn write(
    tree: &Json<'_>,
    turns: bool,
    judge: &mut dyn Judge,
    told: &mut Vec<EngineEvent>,
    out: &mut Vec<u8>,
) -> Result<(), LlmError> {
    if let Some(provider) = provider_of_answer(tree, turns)? {
        let text = tree.to_compact();
        let answer = Answer::of(provider, text.as_bytes(), None, "", judge)?;
        told.extend(answer.told);
        out.extend_from_slice(answer.body.unwrap_or(text).as_bytes());
        return Ok(());
    }
    match tree {
        Json::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(item, turns, judge, told, out)?;
            }
            out.push(b']');
        }
        Json::Object(members) => {
            out.push(b'{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                out.push(b'"');
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\":");
                write(value, *name == TURNS, judge, told, out)?;
            }
            out.push(b'}');
        }
        plain => plain.write(out),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::{Call, Ruling};

    struct Denies(&'static str);

    impl Judge for Denies {
        fn judge(&mut self, call: &Call) -> Ruling {
            if call.name == self.0 { Ruling::Block("r".to_owned()) } else { Ruling::Allow }
        }
    }

    fn judged(body: &str) -> Result<FilteredAnswer, LlmError> {
        judge(body.as_bytes(), &mut Denies("bad"))
    }

    const ANTHROPIC: &str = r#"{"custom_id":"a","result":{"type":"succeeded","message":{"type":"message","role":"assistant","content":[{"type":"tool_use","id":"t","name":"NAME","input":{"n":1.0}}],"stop_reason":"tool_use"}}}"#;
    const CHAT: &str = r#"{"custom_id":"b","response":{"status_code":200,"body":{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"NAME","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}}}"#;
    const RESPONSES: &str = r#"{"response":{"body":{"object":"response","status":"completed","output":[{"type":"function_call","id":"f","call_id":"c","name":"NAME","arguments":"{}","status":"completed"}]}}}"#;
    const GOOGLE: &str = r#"{"done":true,"response":{"inlinedResponses":{"inlinedResponses":[{"response":{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"NAME","args":{}}}]},"finishReason":"STOP"}]}}]}}}"#;

    #[test]
    fn every_call_in_every_line_is_judged() {
        for form in [ANTHROPIC, CHAT, RESPONSES, GOOGLE] {
            let (good, bad) = (form.replace("NAME", "good"), form.replace("NAME", "bad"));
            let both = format!("{good}\n{bad}\n");
            let kept = judged(&both).unwrap();
            assert_eq!(kept.told.len(), 1, "{form}");
            let text = String::from_utf8(kept.body.unwrap()).unwrap();
            let (first, second) = text.split_once('\n').unwrap();
            assert_eq!(first, good);
            assert!(second.contains("[agentsh] Tool 'bad' blocked by policy: r"), "{second}");
            assert!(!second.contains("\"name\":\"bad\""), "{second}");
            assert_eq!(judged(&format!("{good}\n{good}")).unwrap(), FilteredAnswer::default());
            // As one value too.
            assert_eq!(judged(&format!("[{good},{bad}]")).unwrap().told.len(), 1);
        }
    }

    /// A gateway may leave out what marks an answer; clients look for its calls anyway.
    #[test]
    fn answer_without_its_type_field_is_judged() {
        let chat = CHAT.replace(r#""object":"chat.completion","#, "");
        let responses = RESPONSES.replace(r#""object":"response","status":"completed","#, "");
        let message =
            ANTHROPIC.replace(r#""type":"message","#, "").replace(r#","stop_reason":"tool_use""#, "");
        for form in [chat, responses, message] {
            assert!(
                !form.contains("chat.completion") && !form.contains("\"response\",") && form.contains("NAME")
            );
            let (good, bad) = (form.replace("NAME", "good"), form.replace("NAME", "bad"));
            let kept = judged(&format!("{good}\n{bad}\n")).unwrap();
            let text = String::from_utf8(kept.body.unwrap()).unwrap();
            assert!(kept.told.len() == 1 && text.starts_with(&good), "{text}");
            assert!(!text.contains("\"name\":\"bad\""), "{text}");
        }
        // Request files and training files repeat calls.
        let call = r#"{"type":"tool_use","id":"t","name":"bad","input":{}}"#;
        let function = r#"{"id":"t","type":"function","function":{"name":"bad","arguments":"{}"}}"#;
        for asked in [
            format!(
                r#"{{"custom_id":"a","params":{{"messages":[{{"role":"assistant","content":[{call}]}}]}}}}"#
            ),
            format!(r#"{{"messages":[{{"role":"assistant","content":null,"tool_calls":[{function}]}}]}}"#),
            r#"{"body":{"input":[{"type":"function_call","call_id":"c","name":"bad","arguments":"{}"}]}}"#
                .to_owned(),
            r#"{"choices":[{"message":"bad"}],"output":[{"type":"message"}],"content":[{"type":"text"}]}"#
                .to_owned(),
        ] {
            assert_eq!(judged(&asked), Ok(FilteredAnswer::default()), "{asked}");
        }
        let marked =
            format!(r#"{{"messages":[{{"type":"message","stop_reason":null,"content":[{call}]}}]}}"#);
        assert_eq!(judged(&marked).unwrap().told.len(), 1);
    }

    #[test]
    fn batch_result_that_two_apis_would_read_is_withheld() {
        let chat = r#""choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"bad","arguments":"{}"}}]},"finish_reason":"tool_calls"}]"#;
        let message = r#""type":"message","role":"assistant","stop_reason":null,"content":[]"#;
        let candidates = r#""candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"bad","args":{}}}]}}]"#;
        let output =
            r#""output":[{"type":"function_call","id":"f","call_id":"c","name":"bad","arguments":"{}"}]"#;
        for hidden in [
            format!(r#"{{{message},"object":"chat.completion",{chat}}}"#),
            // A client asks for the list that it knows, and for no mark.
            format!("{{{message},{chat}}}"),
            format!("{{{message},{output}}}"),
            format!("{{{message},{candidates}}}"),
            format!(r#"{{"object":"chat.completion","choices":[],{candidates}}}"#),
            format!(r#"{{"object":"response","output":[],{chat}}}"#),
            format!(r#"{{{message},"usage":[{{"a":{{"object":"chat.completion",{chat}}}}}]}}"#),
        ] {
            for form in
                [hidden.clone(), format!(r#"{{"response":{{"body":{hidden}}}}}"#), format!("{{}}\n{hidden}")]
            {
                assert!(matches!(judged(&form), Err(LlmError::Shape(_))), "{form}");
            }
        }
        // Each of them alone is read, and what a tool is given may look as it likes.
        for form in [
            format!("{{{message}}}"),
            format!(r#"{{"object":"response",{}}}"#, output.replace("bad", "good")),
            format!(
                "{{{}}}",
                candidates.replace("\"args\":{}", "\"args\":{\"candidates\":[]}").replace("bad", "good")
            ),
        ] {
            assert_eq!(judged(&form), Ok(FilteredAnswer::default()), "{form}");
        }
    }

    #[test]
    fn batch_file_of_malformed_json_is_withheld_and_text_is_not() {
        let bad = ANTHROPIC.replace("NAME", "bad");
        assert!(judged(&format!("{bad}\n{{\"a\":1,\"a\":2}}\n")).is_err());
        assert!(judged(&format!("{{\"a\":\n{bad}")).is_err());
        assert_eq!(judged("a document, {not} JSON").unwrap(), FilteredAnswer::default());
        assert_eq!(judged(r#"{"id":"b","status":"completed"}"#).unwrap(), FilteredAnswer::default());
        assert_eq!(judged("").unwrap(), FilteredAnswer::default());
        assert_eq!(judged(&format!("\u{feff} \n{bad}")).unwrap().told.len(), 1);
    }
}
