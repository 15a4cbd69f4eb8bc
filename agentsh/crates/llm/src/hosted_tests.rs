#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use super::*;

fn asked(provider: Provider, body: &str) -> Vec<(String, HostedReach)> {
    let found = read(provider, &parse(body).unwrap()).0;
    found.into_iter().map(|hosted| (hosted.tool, hosted.reach)).collect()
}

fn one(tool: &str, reach: HostedReach) -> Vec<(String, HostedReach)> {
    vec![(tool.to_owned(), reach)]
}

#[test]
fn ordinary_requests_contain_no_hosted_tool() {
    for (provider, body) in [
        (
            Provider::Anthropic,
            r#"{"system":"s","tools":[{"name":"Bash","input_schema":{"properties":{"image_url":{"default":{"url":"https://e/"}}}}},
            {"type":"custom","name":"x"},{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"}],
            "messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},
            {"type":"document","source":{"type":"text","media_type":"text/plain","data":"see https://e/"}},
            {"type":"search_result","source":"https://e/","title":"t","content":[]}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"image_url":"https://e/","source":{"url":"https://e/"}}}]}]}"#,
        ),
        (
            Provider::OpenAiChat,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"https://e/"},
            {"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}},
            {"type":"file","title":"https://e/","file":{"file_data":"data:text/plain;base64,aGk="}}]}],
            "tools":[{"type":"function","function":{"name":"f","parameters":{"examples":[{"image_url":"https://e/"}]}}}]}"#,
        ),
        (
            Provider::OpenAiResponses,
            r#"{"input":[{"type":"message","content":[{"type":"input_image","image_url":"DATA:image/png;base64,aGk="}]},
            {"type":"function_call","arguments":"{\"file_url\":\"https://e/\"}","call_id":"c","name":"f"}],
            "tools":[{"type":"function","name":"f","parameters":{}},{"type":"custom","name":"apply_patch"},{"type":"local_shell"},
            {"type":"shell"},{"type":"shell","environment":{"type":"local"}},
            {"type":"namespace","name":"mcp__fs","tools":[{"type":"function","name":"read"}]}]}"#,
        ),
        (
            Provider::Google,
            r#"{"contents":[{"parts":[{"inlineData":{"data":"aGk="}},{"functionResponse":{"name":"f","response":{"fileUri":"https://e/"}}},
            {"functionCall":{"name":"f","args":{"fileUri":"https://e/"}}}]}],"tools":[{"functionDeclarations":[{"name":"f"}]}]}"#,
        ),
    ] {
        assert_eq!(asked(provider, body), [], "{provider:?}");
    }
}

#[test]
fn urls_that_the_provider_loads_are_found_anywhere() {
    let url = "https://e.test/?d=1";
    for (provider, body) in [
        (Provider::OpenAiChat, r#"{"messages":[{"content":[{"type":"video","video":["%URL%"]}]}]}"#),
        (
            Provider::OpenAiChat,
            r#"{"messages":[{"content":[{"type":"input_audio","input_audio":{"data":"%URL%"}}]}]}"#,
        ),
        (Provider::OpenAiResponses, r#"{"input":[{"content":[{"type":"input_file","file_data":"%URL%"}]}]}"#),
        (
            Provider::Anthropic,
            r#"{"messages":[{"content":[{"type":"image","source":{"type":"url","url":"%URL%"}}]}]}"#,
        ),
        (
            Provider::Anthropic,
            r#"{"messages":[{"content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"url","url":"%URL%"}}]}]}]}"#,
        ),
        (
            Provider::Anthropic,
            r#"{"requests":[{"custom_id":"a","params":{"messages":[{"content":[{"source":{"type":"url","\u0075rl":"%URL%"}}]}]}}]}"#,
        ),
        (
            Provider::OpenAiChat,
            r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":" %URL%"}}]},{"content":[{"image_url":"%URL%"}]}]}"#,
        ),
        (
            Provider::OpenAiResponses,
            r#"{"input":[{"content":[{"type":"input_image","image_url":"%URL%"}]}]}"#,
        ),
        (Provider::OpenAiResponses, r#"{"input":[{"content":[{"type":"input_file","file_url":"%URL%"}]}]}"#),
        (
            Provider::OpenAiResponses,
            r#"{"input":[{"type":"function_call_output","output":[{"image_url":"%URL%"}]}]}"#,
        ),
        (
            Provider::OpenAiResponses,
            r#"{"prompt":{"id":"p","variables":{"x":{"type":"input_image","image_url":"%URL%"}}}}"#,
        ),
        (Provider::Google, r#"{"contents":[{"parts":[{"fileData":{"fileUri":"%URL%"}}]}]}"#),
        (Provider::Google, r#"{"contents":[{"parts":[{"file_data":{"file_uri":"%URL%"}}]}]}"#),
    ] {
        let body = body.replace("%URL%", url);
        assert_eq!(asked(provider, &body), one(FETCH, HostedReach::Url(url.to_owned())), "{body}");
    }
}

#[test]
fn tools_of_the_provider_are_named_with_their_reach() {
    let anthropic = |tool: &str| asked(Provider::Anthropic, &format!(r#"{{"tools":[{tool}]}}"#));
    let responses = |tool: &str| asked(Provider::OpenAiResponses, &format!(r#"{{"tools":[{tool}]}}"#));
    let google = |tool: &str| asked(Provider::Google, &format!(r#"{{"tools":[{tool}]}}"#));
    let domains = || HostedReach::Domains(vec!["a.test".to_owned()]);
    assert_eq!(
        anthropic(r#"{"type":"web_search_20250305","name":"web_search"}"#),
        one(SEARCH, HostedReach::Provider)
    );
    assert_eq!(
        anthropic(r#"{"type":"web_fetch_20250910","name":"web_fetch"}"#),
        one(FETCH, HostedReach::Anywhere)
    );
    assert_eq!(
        anthropic(r#"{"type":"web_fetch_20250910","allowed_domains":["a.test"]}"#),
        one(FETCH, domains())
    );
    assert_eq!(
        anthropic(r#"{"type":"web_fetch_20250910","allowed_domains":[]}"#),
        one(FETCH, HostedReach::Anywhere)
    );
    assert_eq!(anthropic(r#"{"type":"code_execution_20250825"}"#), one(CODE, HostedReach::Provider));
    assert_eq!(anthropic(r#"{"type":"telepathy_20270101"}"#), one("telepathy", HostedReach::Anywhere));
    let servers = r#"{"mcp_servers":[{"type":"url","name":"x","url":"https://e.test/mcp"}]}"#;
    let server = || HostedReach::Server("https://e.test/mcp".to_owned());
    assert_eq!(asked(Provider::Anthropic, servers), one(MCP, server()));
    assert_eq!(
        responses(r#"{"type":"mcp","server_label":"x","server_url":"https://e.test/mcp"}"#),
        one(MCP, server())
    );
    // The provider takes one of the two.
    let two = responses(r#"{"type":"mcp","url":"https://e.test/mcp","server_url":"https://f.test/mcp"}"#);
    assert_eq!(two.len(), 2);
    assert_eq!(
        responses(r#"{"type":"mcp","connector_id":"connector_gmail","server_url":"https://e.test/mcp"}"#),
        one(MCP, HostedReach::Anywhere)
    );
    assert_eq!(
        responses(r#"{"type":"web_search","external_web_access":false}"#),
        one(SEARCH, HostedReach::Provider)
    );
    assert_eq!(responses(r#"{"type":"web_search"}"#), one(SEARCH, HostedReach::Anywhere));
    // This one does not know the member.
    assert_eq!(
        responses(r#"{"type":"web_search_preview","external_web_access":false}"#),
        one(SEARCH, HostedReach::Anywhere)
    );
    assert_eq!(
        responses(r#"{"type":"web_search","filters":{"allowed_domains":["a.test"]}}"#),
        one(SEARCH, domains())
    );
    assert_eq!(
        responses(r#"{"type":"code_interpreter","container":{"type":"auto"}}"#),
        one(CODE, HostedReach::Provider)
    );
    let network = r#""network_policy":{"type":"allowlist","allowed_domains":["a.test"]}"#;
    assert_eq!(
        responses(&format!(r#"{{"type":"code_interpreter","container":{{"type":"auto",{network}}}}}"#)),
        one(CODE, domains())
    );
    assert_eq!(
        responses(&format!(r#"{{"type":"shell","environment":{{"type":"container_auto",{network}}}}}"#)),
        one(CODE, domains())
    );
    assert_eq!(
        asked(Provider::OpenAiResponses, r#"{"background":true}"#),
        one("background", HostedReach::Provider)
    );
    let later = r#"{"input":[{"type":"tool_search_output","tools":[{"type":"mcp","server_url":"https://e.test/mcp"}]}]}"#;
    assert_eq!(asked(Provider::OpenAiResponses, later), one(MCP, server()));
    assert_eq!(google(r#"{"googleSearch":{}}"#), one(SEARCH, HostedReach::Provider));
    assert_eq!(google(r#"{"url_context":{}}"#), one(FETCH, HostedReach::Anywhere));
    assert_eq!(google(r#"{"codeExecution":{}}"#), one(CODE, HostedReach::Provider));
    assert_eq!(google(r#"{"retrieval":{"externalApi":{}}}"#), one("retrieval", HostedReach::Anywhere));
    assert_eq!(
        google(r#"{"mcpServers":[{"streamableHttpTransport":{"url":"https://e.test/mcp"}}]}"#),
        one(MCP, server())
    );
    assert_eq!(
        asked(Provider::OpenAiChat, r#"{"web_search_options":{}}"#),
        one(SEARCH, HostedReach::Provider)
    );
    assert_eq!(
        asked(Provider::OpenAiChat, r#"{"plugins":[{"id":"web"}]}"#),
        one(SEARCH, HostedReach::Provider)
    );
}

#[test]
fn a_search_can_be_kept_to_the_index() {
    let body = r#"{"model":"m","tools":[{"type":"function","name":"f"},{"type":"web_search","external_web_access":true}],"n":1.0}"#;
    let narrowed = within_index(body.as_bytes()).unwrap();
    assert_eq!(narrowed, body.replace("true", "false"));
    let found = read(Provider::OpenAiResponses, &parse(body).unwrap()).0;
    assert!(has_index(Provider::OpenAiResponses, &found[0]) && !has_index(Provider::OpenAiChat, &found[0]));
}

#[test]
fn hosted_tools_in_forms_of_single_providers_are_found() {
    let google = r#"{"contents":[],"tools":{"urlContext":{}}}"#;
    assert_eq!(asked(Provider::Google, google), one(FETCH, HostedReach::Anywhere));
    let azure = r#"{"messages":[],"data_sources":[{"type":"azure_search","parameters":{"endpoint":"https://e.test"}}]}"#;
    assert_eq!(asked(Provider::OpenAiChat, azure), one("data_source", HostedReach::Anywhere));
    for body in [r#"{"model":"a/b:online"}"#, r#"{"enable_search":true}"#] {
        assert_eq!(asked(Provider::OpenAiChat, body), one(SEARCH, HostedReach::Provider), "{body}");
    }
}

#[test]
fn names_of_offered_tools_are_those_of_each_api() {
    let offered = |provider, body: &str| {
        let (_, offered) = read(provider, &parse(body).unwrap());
        offered.into_iter().collect::<Vec<_>>().join(" ")
    };
    // The history may have a name that was refused.
    let said = r#"{"messages":[{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"x"}}]}],"tools":[{"type":"function","function":{"name":"read","parameters":{"properties":{"tools":{"name":"y"}}}}}]}"#;
    assert_eq!(offered(Provider::OpenAiChat, said), "function read");
    let declared = r#"{"tools":[{"functionDeclarations":[{"name":"a"},{"name":"b"}]}]}"#;
    assert_eq!(offered(Provider::Google, declared), "a b");
    let nested = r#"{"tools":[{"type":"local_shell"},{"type":"namespace","name":"fs","tools":[{"type":"custom","name":"patch"}]}]}"#;
    assert_eq!(offered(Provider::OpenAiResponses, nested), "custom fs local_shell namespace patch");
}
