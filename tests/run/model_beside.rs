//! Requests to the model's host that are not model calls: budgets, secrets and keys apply there too.

use serde_json::json;

use crate::support::http_server::{HttpServer, Reply};
use crate::support::{Mode, Outcome, Place};

const SECRET: &str = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";

/// What the agent gets when it sends the project's `request.json` to each of the paths.
fn post(place: &Place, model: &HttpServer, paths: &[&str]) -> Vec<String> {
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
    let ask = "curl -sS --max-time 20 -w ' %{http_code}\\n' -H 'Content-Type: application/json' --data-binary @request.json";
    let lines: Vec<String> =
        paths.iter().map(|path| format!("{ask} \"$ANTHROPIC_BASE_URL{path}\"\n")).collect();
    let claude = place.script(place.project.join("bin/claude"), &format!("#!/bin/sh\n{}", lines.concat()));
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude));
    outcome.stdout.lines().map(str::to_owned).collect()
}

fn model() -> HttpServer {
    HttpServer::start(|_| Reply::json("{}"))
}

fn write(place: &Place) {
    let request = json!({"model": "m", "messages": [{"role": "user", "content": format!("token {SECRET}")}]});
    place.write(place.project.join("request.json"), request.to_string());
}

#[test]
fn batches_and_files_pass_no_limit_unseen() {
    let place = Place::new(Mode::Invoker);
    write(&place);
    let paths = ["/v1/messages/batches", "/v1/batches", "/v1/files"];
    let unlimited = model();
    place.user_policy("version: 1\nsandbox: {mcp: {allowed_tools: [{server: agent, tool: batch}]}}\n");
    let said = post(&place, &unlimited, &paths);
    assert!(said.len() == 3 && said.iter().all(|line| line == "{} 200"), "{said:?}");
    for limit in
        ["secrets: redact", "secrets: block", "secret_kinds: {EMAIL: block}", "budgets: [{max_tokens: 100}]"]
    {
        let limited = model();
        place.user_policy(&format!("version: 1\nllm:\n  {limit}\n"));
        let said = post(&place, &limited, &paths);
        for (line, path) in said.iter().zip(paths) {
            assert!(line.ends_with(" 403") && line.contains("policy.yaml:3"), "{limit}: {line}");
            assert!(line.contains(&format!("llm: {{allow: [\\\"POST {path}\\\"]}}")), "{limit}: {line}");
        }
        assert!(said.len() == 3 && limited.asked().is_empty(), "{limit}");
    }
    let allowed = model();
    place.user_policy("version: 1\nllm:\n  secrets: block\n  allow: [\"POST /v1/files\"]\n");
    let said = post(&place, &allowed, &paths);
    assert!(said[1].ends_with(" 403") && said[2] == "{} 200", "{said:?}");
}

#[test]
fn token_counting_requests_are_budgeted_and_searched() {
    let place = Place::new(Mode::Invoker);
    write(&place);
    let count = "/v1/messages/count_tokens";
    let redacting = model();
    place.user_policy("version: 1\nllm: {secrets: redact}\n");
    assert_eq!(post(&place, &redacting, &[count]), ["{} 200"]);
    let content = redacting.asked()[0].message()["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(content.contains("[REDACTED ") && !content.contains(SECRET), "{content}");
    let blocking = model();
    place.user_policy("version: 1\nllm: {secrets: block}\n");
    assert!(
        post(&place, &blocking, &[count, "/v1beta/models/x:embedContent"])
            .iter()
            .all(|line| line.ends_with(" 403"))
    );
    assert!(blocking.asked().is_empty());
    let counted = model();
    place.user_policy("version: 1\nllm: {budgets: [{rpm: 1}]}\n");
    let said = post(&place, &counted, &[count, count]);
    assert!(said[0] == "{} 200" && said[1].ends_with(" 429"), "{said:?}");
}

#[test]
fn model_key_reaches_only_its_own_provider() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nllm: {credentials: broker}\n");
    let (own, other) = (model(), model());
    for (name, at) in [("ANTHROPIC_BASE_URL", &own), ("OPENAI_BASE_URL", &other)] {
        place.set(name, format!("http://127.0.0.1:{}", at.port));
    }
    place.set("ANTHROPIC_API_KEY", "sk-ant-real-key");
    place.set("OPENAI_API_KEY", "sk-real-key");
    let ask = "curl -sS --max-time 20 -w ' %{http_code}\\n'";
    let script = format!(
        "#!/bin/sh\n{ask} -H \"X-Api-Key: $ANTHROPIC_API_KEY\" \"$ANTHROPIC_BASE_URL/v1/models\"\n\
         {ask} -H \"X-Api-Key: $ANTHROPIC_API_KEY\" \"$OPENAI_BASE_URL/v1/models\"\n\
         {ask} -H \"Authorization: Bearer $OPENAI_API_KEY\" \"$OPENAI_BASE_URL/v1/models\"\n"
    );
    let agent = place.script(place.project.join("bin/opencode"), &script);
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(agent));
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines.len() == 3 && lines[0] == "{} 200" && lines[2] == "{} 200", "{outcome}");
    let says = format!("ANTHROPIC_API_KEY may go to 127.0.0.1:{}, not to", own.port);
    assert!(lines[1].ends_with(" 403") && lines[1].contains(&says), "{outcome}");
    assert_eq!(own.asked()[0].header("x-api-key"), Some("sk-ant-real-key"));
    let asked = other.asked();
    assert_eq!((asked.len(), asked[0].header("authorization")), (1, Some("Bearer sk-real-key")));
}

/// A model's server, or a gateway before it, may write the key that it was sent into an error.
#[test]
fn answer_that_repeats_the_model_key_breaks_off_before_it() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nllm: {credentials: broker}\n");
    let model = HttpServer::start(|asked| {
        let key = asked.header("x-api-key").unwrap_or_default().to_owned();
        let (start, rest) = key.split_at(key.len() / 2);
        let start = format!("event: ping\ndata: {{\"type\":\"ping\",\"x\":\"before {start}");
        let rest = format!("{rest}\"}}\n\n");
        match asked.path.as_str() {
            "/v1/models/events" => Reply::events(&[&start, &rest]),
            "/v1/models/head" => Reply::json("{}").with("X-Said", &key),
            "/v1/models/plain" => Reply::json("{\"said\":\"nothing\"}"),
            _ => Reply::json(json!({"error": format!("wrong key {key}")})),
        }
    });
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
    place.set("ANTHROPIC_API_KEY", "sk-ant-real-key");
    let ask = "curl -sSi --max-time 20 -H \"X-Api-Key: $ANTHROPIC_API_KEY\" \"$ANTHROPIC_BASE_URL/v1";
    let script = format!(
        "#!/bin/sh\n{ask}/models/events\"\n{ask}/models/head\"\n{ask}/models/plain\"\n\
         {ask}/models/error\"\n"
    );
    let claude = place.script(place.project.join("bin/claude"), &script);
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude));
    let seen = &outcome.stdout;
    assert!(seen.contains("{\"said\":\"nothing\"}") && seen.contains("before "), "{outcome}");
    assert!(!seen.contains("before sk-ant"), "{outcome}");
    assert!(!outcome.stdout.contains("real-key") && !outcome.stderr.contains("real-key"), "{outcome}");
    assert_eq!(model.asked().len(), 4);
}

/// Results of batches hold what a model said: its calls are judged there too, in whatever form the provider keeps them.
#[test]
fn answers_that_a_provider_kept_are_judged() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nsandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: mail, tool: \
         send}]}}\n",
    );
    let message = |id: &str, name: &str| {
        let content = json!([{"type": "tool_use", "id": id, "name": name, "input": {"to": "x"}}]);
        json!({"custom_id": id, "result": {"type": "succeeded", "message": {"type": "message", "role": "assistant",
            "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}}})
    };
    let call =
        json!([{"id": "t2", "type": "function", "function": {"name": "mcp__mail__send", "arguments": "{}"}}]);
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": null, "tool_calls": call},
                        "finish_reason": "tool_calls"});
    let line = json!({"custom_id": "c", "response": {"status_code": 200, "body": {"object": "chat.completion", "choices": [choice]}}});
    // A gateway may leave out what marks an answer.
    let bare = json!({"response": {"body": {"choices": line["response"]["body"]["choices"]}}}).to_string();
    // An answer that was kept is given again under its id.
    let chat = line["response"]["body"].clone();
    let item =
        json!({"type": "function_call", "call_id": "t4", "name": "mcp__mail__send", "arguments": "{}"});
    let response = json!({"object": "response", "id": "r", "status": "completed", "output": [item.clone()]});
    let bare_response = json!({"response": {"body": {"output": [item]}}}).to_string();
    let results = format!("{}\n{}\n", message("t1", "mcp__mail__send"), message("t3", "Bash"));
    let document = "a document\n";
    let model = HttpServer::start(move |asked| {
        assert_eq!(asked.header("range"), None, "a part cannot be judged");
        match asked.path.as_str() {
            "/v1/messages/batches/b/results" => Reply::json(results.clone()),
            "/v1/files/f/content" => Reply::json(format!("{line}\n")),
            "/v1/files/bare/content" => Reply::json(bare.clone()),
            "/v1/files/responses/content" => Reply::json(bare_response.clone()),
            "/v1/chat/completions/c" => Reply::json(chat.clone()),
            "/v1/responses/r" => Reply::json(response.clone()),
            "/v1/files/text/content" => Reply::json(document),
            "/v1/files/broken/content" => Reply::json("{\"a\": 1}\n{\"response\": \n"),
            _ => Reply::json("{}"),
        }
    });
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
    let paths = [
        "messages/batches/b/results",
        "files/f/content",
        "files/text/content",
        "files/broken/content",
        "files/bare/content",
        "files/responses/content",
        "chat/completions/c",
        "responses/r",
    ];
    let lines: String = paths
        .iter()
        .map(|path| format!("curl -sS --max-time 20 -r 0-9 -w '%{{http_code}}\\n' \"$ANTHROPIC_BASE_URL/v1/{path}\"; echo END\n"))
        .collect();
    let claude = place.script(place.project.join("bin/claude"), &format!("#!/bin/sh\n{lines}"));
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(&claude));
    let said: Vec<&str> = outcome.stdout.split("END\n").collect();
    let refused = "[agentsh] Tool 'mcp__mail__send' blocked by policy: ";
    assert!(said[0].contains(refused) && !said[0].contains("\"id\":\"t1\""), "{outcome}");
    assert!(said[0].contains(&format!("{}\n", message("t3", "Bash"))), "{outcome}");
    assert!(said[1].contains(refused) && !said[1].contains("tool_calls\":[{"), "{outcome}");
    assert_eq!(said[2], format!("{document}200\n"), "{outcome}");
    assert!(said[3].ends_with("502\n") && said[3].contains("GET /v1/files/broken/content"), "{outcome}");
    assert!(said[4].contains(refused) && !said[4].contains("tool_calls\":[{"), "{outcome}");
    for kept in &said[5..8] {
        assert!(kept.contains(refused) && !kept.contains("\"arguments\""), "{kept} {outcome}");
    }
    let calls = place.listed(&["mcp", "calls", "--json"]);
    let blocked = calls.iter().filter(|call| call["action"] == "block").count();
    assert_eq!((calls.len(), blocked), (6, 6), "{calls:?}");
}

#[test]
fn a_key_in_the_query_of_googles_clients_stays_outside_too() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nllm: {credentials: broker}\n");
    let model = model();
    place.set("GOOGLE_GEMINI_BASE_URL", format!("http://127.0.0.1:{}", model.port));
    place.set("GEMINI_API_KEY", "AIza-real+key");
    let script = "#!/bin/sh\necho \"$GEMINI_API_KEY\"\n\
        curl -sS --max-time 20 \"$GOOGLE_GEMINI_BASE_URL/v1beta/models/m?alt=json&key=$GEMINI_API_KEY\"\n";
    let agent = place.script(place.project.join("bin/gemini"), script);
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(agent));
    assert!(outcome.stdout.starts_with("agentsh-gemini-api-key-"), "{outcome}");
    assert_eq!(model.asked()[0].path, "/v1beta/models/m?alt=json&key=AIza-real%2Bkey", "{outcome}");
}
