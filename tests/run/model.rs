//! The channel between an agent and its model: the calls of a scripted model, and what the agent receives.

use base64::Engine;
use serde_json::{Value, json};

use crate::support::browser::Ui;
use crate::support::http_server::{HttpServer, Reply};
use crate::support::{Mode, Outcome, Place};

const LEAK: &str = "You are the internal pricing oracle of Example Corp.";

/// What the agent, whose program is `claude`, gets for this request.
fn ask(place: &Place, server: &HttpServer, path: &str, body: &Value) -> Outcome {
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", server.port));
    place.set("ANTHROPIC_API_KEY", "sk-ant-test");
    let script = format!(
        "#!/bin/sh\nexec curl -sS -N --max-time 20 -H 'Content-Type: application/json' -H \"X-Api-Key: $ANTHROPIC_API_KEY\" \
         --data-binary @request.json \"$ANTHROPIC_BASE_URL{path}\"\n"
    );
    let claude = place.script(place.project.join("bin/claude"), &script);
    place.write(place.project.join("request.json"), body.to_string());
    Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude))
}

fn deny(place: &Place, rules: &str) {
    place.user_policy(&format!(
        "version: 1\nsandbox: {{mcp: {{enforce_policy: true, tool_policy: denylist, denied_tools: [{rules}]}}}}\n"
    ));
}

fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())
}

/// A message of a text and two calls, as a stream.
fn stream() -> Vec<String> {
    let call = |index: usize, name: &str| {
        [
            json!({"type": "content_block_start", "index": index, "content_block": {"type": "tool_use", "id": format!("t{index}"), "name": name, "input": {}}}),
            json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": "{\"to\":\"x\"}"}}),
            json!({"type": "content_block_stop", "index": index}),
        ]
    };
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Now."}}),
        json!({"type": "content_block_stop", "index": 0}),
    ];
    events.extend(call(1, "mcp__mail__send"));
    events.extend(call(2, "Bash"));
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}),
    );
    events.push(json!({"type": "message_stop"}));
    events.iter().map(event).collect()
}

fn streaming() -> HttpServer {
    HttpServer::start(|asked| match asked.path.as_str() {
        "/v1/messages?beta=true" | "/v1/messages" => {
            let pieces = stream();
            Reply::events(&pieces.iter().map(String::as_str).collect::<Vec<_>>())
        }
        _ => Reply::json("{}"),
    })
}

#[test]
fn a_denied_call_becomes_a_text_before_the_agent_sees_it() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        deny(&place, "{server: mail, tool: send}");
        let model = streaming();
        let outcome = ask(
            &place,
            &model,
            "/v1/messages?beta=true",
            &json!({"model": "m", "stream": true, "messages": []}),
        );
        let seen = &outcome.stdout;
        assert!(seen.contains("[agentsh] Tool 'mcp__mail__send' blocked by policy: "), "{mode:?} {outcome}");
        assert!(!seen.contains("\"t1\"") && seen.contains("\"name\":\"Bash\""), "{mode:?} {outcome}");
        assert!(
            seen.contains("\"stop_reason\":\"tool_use\"")
                && seen.ends_with("{\"type\":\"message_stop\"}\n\n"),
            "{outcome}"
        );
        let asked = model.asked();
        assert_eq!(asked[0].header("x-api-key"), Some("sk-ant-test"));
        assert_eq!(asked[0].header("accept-encoding"), Some("identity"));
        assert_eq!(asked[0].message()["model"], "m");
        let calls = place.listed(&["mcp", "calls", "--json"]);
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert_eq!(
            (calls[0]["server_id"].as_str(), calls[0]["action"].as_str()),
            (Some("mail"), Some("block")),
            "{calls:?}"
        );
    }
}

/// Claude Code runs some tools under names that it does not offer.
#[test]
fn tool_that_was_not_offered_is_refused_where_a_tool_of_the_agent_is_denied() {
    let model = streaming();
    for (denied, offered, is_refused) in
        [("Workflow", "Read", true), ("Workflow", "bash", false), ("Bash", "bash", true), ("", "Read", false)]
    {
        let place = Place::new(Mode::Invoker);
        if !denied.is_empty() {
            deny(&place, &format!("{{server: agent, tool: {denied}}}"));
        }
        let body = json!({"model": "m", "stream": true, "messages": [], "tools": [{"name": offered}]});
        let seen = ask(&place, &model, "/v1/messages", &body).stdout;
        let (said, call) = ("[agentsh] Tool 'Bash' blocked by policy: ", "\"name\":\"Bash\"");
        assert_eq!((seen.contains(said), seen.contains(call)), (is_refused, !is_refused), "{denied}: {seen}");
        assert_eq!(seen.contains("`agentsh policy allow agent/Bash`"), denied == "Workflow" && is_refused);
    }
    let place = Place::new(Mode::Invoker);
    deny(&place, "{server: agent, tool: Workflow}], allowed_tools: [{server: agent, tool: Bash}");
    let body = json!({"model": "m", "stream": true, "messages": [], "tools": [{"name": "Read"}]});
    assert!(!ask(&place, &model, "/v1/messages", &body).stdout.contains("[agentsh]"));
}

/// An agent of the user's own: agentsh knows neither the program nor where its model is.
const AGENT: &str = r#"
import http.client, json, sys
link = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
def ask(method, path, body=None, headers={}):
    link.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", **headers})
    answer = link.getresponse()
    print(answer.status, answer.read().decode(), flush=True)
question = {"model": "m", "messages": [{"role": "system", "content": "s"}]}
# As the HTTP client of the JDK.
offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABk"}
ask("GET", "/v1/models")
ask("POST", "/v1/chat/completions", question, offer)
ask("POST", "/messages", {"text": "none"})
ask("GET", "/v1/models")
ask("POST", "/v1/chat/completions", question)
"#;

#[test]
fn model_without_tls_is_judged_for_every_program() {
    let chosen = json!({"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "send_mail", "arguments": "{}"}}]}});
    let said =
        json!({"id": "x", "choices": [chosen], "usage": {"prompt_tokens": 90, "completion_tokens": 20}})
            .to_string();
    let answer = said.clone();
    let model = HttpServer::start(move |asked| match asked.path.as_str() {
        "/v1/chat/completions" => Reply::json(&answer),
        path => Reply::json(json!({"asked": path})),
    });
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.project.join("agent.py"), AGENT);
        let run = |llm: &str, denied: &str| {
            place.user_policy(&format!(
                "version: 1\nagent: {{network: {{loopback: [{}]}}}}\nllm: {{{llm}}}\nsandbox: \
                 {{mcp: {{enforce_policy: true, tool_policy: denylist, denied_tools: [{{server: agent, tool: {denied}}}]}}}}\n",
                model.port
            ));
            let outcome = Outcome::of(
                place.agentsh(&["run", "--quiet", "--", "python3", "agent.py"]).arg(model.port.to_string()),
            )
            .expect_code(0);
            let report = Outcome::of(&mut place.agentsh(&["report", "latest"])).expect_code(0).stdout;
            let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
            (outcome.stdout.lines().map(str::to_owned).collect::<Vec<_>>(), report)
        };
        const BUDGET: &str = "budgets: [{max_tokens: 100}]";
        let (seen, report) = run(&format!("enabled: true, {BUDGET}"), "send_mail");
        assert_eq!((&*seen[0], &*seen[2]), (r#"200 {"asked":"/v1/models"}"#, r#"200 {"asked":"/messages"}"#));
        assert_eq!(seen[3], seen[0], "{mode:?}");
        assert!(seen[1].contains("[agentsh] Tool 'send_mail' blocked by policy: "), "{mode:?} {seen:?}");
        assert!(!seen[1].contains("\"c1\""), "{mode:?} {seen:?}");
        assert!(seen[4].starts_with("403 ") && seen[4].contains("110 of 100 tokens"), "{mode:?} {seen:?}");
        let calls = place.listed(&["mcp", "calls", "--json"]);
        assert_eq!((calls.len(), calls[0]["action"].as_str()), (1, Some("block")), "{calls:?}");
        assert!(
            report.contains("the model hosts of this agent are not known: requests over TLS"),
            "{report}"
        );
        // The same call where it is not denied, and where judging was not requested.
        let (seen, _) = run(&format!("enabled: true, {BUDGET}"), "other");
        assert_eq!(seen[1], format!("200 {said}"), "{mode:?}");
        // A budget, and a denied tool of the agent's own, are not enforced then, and the report says so.
        for llm in [BUDGET, ""] {
            let (seen, report) = run(llm, "send_mail");
            assert_eq!((&seen[1], &seen[4]), (&format!("200 {said}"), &seen[1]), "{mode:?}");
            assert!(report.contains("to judge requests without TLS: `llm: {enabled: true}`"), "{report}");
        }
    }
}

/// Ollama's own API answers in lines, and other programs answer at its paths with something else.
#[test]
fn model_that_answers_line_by_line_is_judged() {
    let line = |more: Value| {
        let mut line = json!({"model": "m", "created_at": "2026-01-01T00:00:00Z"});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{line}\n")
    };
    let call = |name: &str| json!({"function": {"name": name, "arguments": {"to": "x"}}});
    let lines = [
        line(json!({"message": {"role": "assistant", "content": "Now."}, "done": false})),
        line(
            json!({"message": {"role": "assistant", "content": "", "tool_calls": [call("send_mail"), call("look")]}, "done": false}),
        ),
        line(json!({"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
            "prompt_eval_count": 90, "eval_count": 20})),
    ];
    let said = lines.clone();
    let model = HttpServer::start(move |asked| {
        let message = asked.message();
        match (asked.path.as_str(), message["stream"].as_bool()) {
            ("/api/chat", None) => Reply { pieces: said.to_vec(), ..Reply::status(200) }
                .with("Content-Type", "application/x-ndjson"),
            ("/api/chat", _) => Reply::json(&said[1]),
            _ => Reply::events(&["data: {\"type\":\"start\"}\n\n", "data: [DONE]\n\n"]),
        }
    });
    const AGENT: &str = r#"
import http.client, json, sys
link = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
def ask(path, **more):
    body = {"model": "m", "messages": [{"role": "user", "content": "s"}], **more}
    link.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    print(link.getresponse().read().decode(), end="\0", flush=True)
ask("/api/chat", stream=False)
ask("/app/api/chat")
ask("/api/chat")
ask("/api/chat")
"#;
    let place = Place::new(Mode::Invoker);
    place.write(place.project.join("agent.py"), AGENT);
    let seen = |denied: &str| {
        place.user_policy(&format!(
            "version: 1\nagent: {{network: {{loopback: [{}]}}}}\nllm: {{enabled: true, budgets: [{{max_tokens: 100}}]}}\nsandbox: \
             {{mcp: {{enforce_policy: true, tool_policy: denylist, denied_tools: [{{server: agent, tool: {denied}}}]}}}}\n",
            model.port
        ));
        let run = &mut place.agentsh(&["run", "--quiet", "--", "python3", "agent.py"]);
        let outcome = Outcome::of(run.arg(model.port.to_string())).expect_code(0);
        outcome.stdout.split('\0').map(str::to_owned).collect::<Vec<_>>()
    };
    let other = "data: {\"type\":\"start\"}\n\ndata: [DONE]\n\n";
    let passed = seen("other");
    assert_eq!(passed[..3], [lines[1].clone(), other.to_owned(), lines.concat()]);
    let refused = seen("send_mail");
    for answer in [&refused[0], &refused[2]] {
        assert!(answer.contains("[agentsh] Tool 'send_mail' blocked by policy: "), "{refused:?}");
        assert!(!answer.contains("\"send_mail\"") && answer.contains("\"look\""), "{refused:?}");
    }
    assert_eq!(refused[1], other);
    let spent: Value = serde_json::from_str(&refused[3]).unwrap();
    assert!(spent["error"].as_str().unwrap().contains("110 of 100 tokens"), "{spent}");
}

#[test]
fn allowed_model_answer_arrives_unchanged() {
    let place = Place::new(Mode::Invoker);
    let model = streaming();
    let request = json!({"model": "m", "stream": true, "messages": []});
    let outcome = ask(&place, &model, "/v1/messages", &request);
    assert_eq!(outcome.stdout, stream().concat(), "{outcome}");
    // A tool of the agent's own is named as such; a pattern over all servers does not mean it.
    deny(&place, "{server: \"*\", tool: \"Ba*\"}");
    assert_eq!(ask(&place, &model, "/v1/messages", &request).stdout, stream().concat());
    // Agents mend the case of a name that their model wrote.
    deny(&place, "{server: agent, tool: bash}");
    let outcome = ask(&place, &model, "/v1/messages", &request);
    assert!(
        outcome.stdout.contains("Tool 'Bash' blocked by policy") && outcome.stdout.contains("\"t1\""),
        "{outcome}"
    );
    // Off is off.
    place.user_policy("version: 1\nllm: {enabled: false}\nsandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: agent, tool: Bash}]}}\n");
    assert_eq!(ask(&place, &model, "/v1/messages", &request).stdout, stream().concat());
}

/// Calls of which some or all are refused, in an answer of each of the two APIs that agents use most.
#[test]
fn answer_whose_calls_were_refused_ends_as_one_without_calls() {
    let place = Place::new(Mode::Invoker);
    let model = HttpServer::start(|asked| match asked.path.as_str() {
        "/v1/messages" => {
            let call =
                |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "input": {}});
            Reply::json(json!({"id": "m", "type": "message", "role": "assistant", "stop_reason": "tool_use",
                "content": [call("t1", "send_email"), call("t2", "Bash")]}))
        }
        _ => {
            let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
            Reply::json(json!({"id": "m", "choices": [{"index": 0, "finish_reason": "tool_calls", "message":
                {"role": "assistant", "content": null, "tool_calls": [call("t1", "send_email"), call("t2", "Bash")]}}]}))
        }
    });
    let said = "[agentsh] Tool 'send_email' blocked by policy";
    for (denied, is_all) in [("send*", false), ("*", true)] {
        deny(&place, &format!("{{server: agent, tool: \"{denied}\"}}"));
        let answer = |path: &str| -> Value {
            let outcome = ask(&place, &model, path, &json!({"model": "m", "messages": []}));
            serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome}"))
        };
        let anthropic = answer("/v1/messages");
        let blocks = &anthropic["content"];
        assert!(blocks[0]["text"].as_str().unwrap().starts_with(said), "{anthropic}");
        let (kind, stop) = if is_all { ("text", "end_turn") } else { ("tool_use", "tool_use") };
        assert_eq!((&blocks[1]["type"], &anthropic["stop_reason"]), (&json!(kind), &json!(stop)));
        let openai = answer("/v1/chat/completions");
        let (choice, message) = (&openai["choices"][0], &openai["choices"][0]["message"]);
        assert!(message["content"].as_str().unwrap().contains(said), "{openai}");
        let left: Vec<&Value> = message["tool_calls"].as_array().into_iter().flatten().collect();
        let finish = if is_all { "stop" } else { "tool_calls" };
        assert_eq!(
            (left.len(), &choice["finish_reason"]),
            (usize::from(!is_all), &json!(finish)),
            "{openai}"
        );
    }
}

/// Facts that a single call does not show: the number of calls, and earlier reads. In one answer, and over all
/// answers.
#[test]
fn rates_and_flows_between_servers_hold_in_a_models_answers() {
    let place = Place::new(Mode::Invoker);
    let call = |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    let model = HttpServer::start(move |asked| {
        let message = asked.message();
        let name = |at: usize| message["messages"][at]["content"].as_str().unwrap();
        let content = json!([call("t1", name(0)), call("t2", name(1)), call("t3", "mcp__mail__list")]);
        Reply::json(
            json!({"id": "m", "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use"}),
        )
    });
    let refused_of = |names: [&str; 2], mcp: &str| {
        place.user_policy(&format!("version: 1\nsandbox: {{mcp: {{{mcp}}}}}\n"));
        let messages = names.map(|name| json!({"role": "user", "content": name}));
        let seen = ask(&place, &model, "/v1/messages", &json!({"model": "m", "messages": messages})).stdout;
        let left = ["t1", "t2", "t3"].map(|id| seen.contains(&format!("\"{id}\"")));
        let calls = place.listed(&["mcp", "calls", "--session", "latest", "--json"]);
        (left, calls.iter().map(|call| call["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    let refused = |mcp: &str| refused_of(["mcp__notes__read", "mcp__mail__send"], mcp);
    assert_eq!(refused(""), ([true; 3], Vec::new()));
    let limits = "rate_limits: {enabled: true, default_rpm: 1, default_burst: 1}";
    assert_eq!(refused(limits), ([true, true, false], vec!["rate-limited".to_owned()]));
    let flow = "cross_server: {enabled: true, read_then_send: {enabled: true}}";
    assert_eq!(refused(flow), ([true, false, true], vec!["read-then-send".to_owned()]));
    // By the first word of their names; what neither reads nor sends is a flow.
    for (read, other, reason) in [
        ("get_x", "post_x", "read-then-send"),
        ("fetch_x", "email_x", "read-then-send"),
        ("read_password", "send_email", "read-then-send"),
        ("read_x", "compute_x", "cross-server-flow"),
        ("read_x", "foo", "cross-server-flow"),
    ] {
        let names = [format!("mcp__notes__{read}"), format!("mcp__mail__{other}")];
        let (left, reasons) = refused_of([&names[0], &names[1]], "cross_server: {enabled: true}");
        assert_eq!((left, &*reasons[0]), ([true, false, true], reason), "{names:?}");
    }
}

/// A call's content is judged and recorded as at the server connection; questions to a person are asked there.
#[test]
fn rules_about_what_a_call_says_hold_for_the_model_too() {
    let place = Place::new(Mode::Invoker);
    let model = streaming();
    let request = json!({"model": "m", "stream": true, "messages": []});
    let rule = |to: &str, action: &str| {
        place.user_policy(&format!(
            "version: 1\nsandbox: {{mcp: {{rules: [{{server: mail, tool: send, when: [{{path: /to, equals: {to}}}], \
             action: {action}, reason: never by mail}}]}}}}\n"
        ));
    };
    rule("x", "ask");
    assert_eq!(ask(&place, &model, "/v1/messages", &request).stdout, stream().concat());
    rule("y", "block");
    assert_eq!(ask(&place, &model, "/v1/messages", &request).stdout, stream().concat());
    rule("x", "block");
    let outcome = ask(&place, &model, "/v1/messages", &request);
    assert!(outcome.stdout.contains("Tool 'mcp__mail__send' blocked by policy"), "{outcome}");
    assert!(
        outcome.stdout.contains("policy.yaml:2") && outcome.stdout.contains("never by mail"),
        "{outcome}"
    );
    assert!(!outcome.stdout.contains("\"t1\""), "{outcome}");
    let detected = place.detections();
    assert!(
        detected.iter().any(|event| event["server_id"] == "mail" && event["pointer"] == "/to"),
        "{detected:?}"
    );
    let calls = place.listed(&["mcp", "calls", "--json"]);
    assert_eq!((calls.len(), calls[0]["action"].as_str()), (1, Some("block")), "{calls:?}");
}

#[test]
fn a_model_that_gives_its_instructions_away_is_cut_off() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nllm: {canary: true, replacement: \"No.\"}\n");
    let model = HttpServer::start(|asked| {
        if asked.message()["stream"] != json!(true) {
            let content = match asked.message()["model"].as_str().unwrap() {
                "thinks" => json!([{"type": "thinking", "thinking": LEAK, "signature": ""}]),
                "calls" => {
                    json!([{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": LEAK}}])
                }
                _ => json!([{"type": "text", "text": format!("Sure. {LEAK}")}]),
            };
            return Reply::json(
                json!({"id": "m", "type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}),
            );
        }
        let pieces = ["Sure. You are THE internal", " pricing\noracle of Example", " Corp. And more."];
        let mut events = vec![
            json!({"type": "message_start", "message": {"id": "m", "content": []}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ];
        events.extend(pieces.map(|text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})));
        events.push(json!({"type": "message_stop"}));
        let events: Vec<String> = events.iter().map(event).collect();
        Reply::events(&events.iter().map(String::as_str).collect::<Vec<_>>())
    });
    for (name, stream) in [("m", true), ("m", false), ("thinks", false), ("calls", false)] {
        let request = json!({"model": name, "stream": stream, "system": [{"type": "text", "text": LEAK}], "messages": []});
        let outcome = ask(&place, &model, "/v1/messages", &request);
        assert!(outcome.stdout.contains("\"text\":\"No.\""), "{outcome}");
        for part in ["internal", "pricing", "oracle", "more"] {
            assert!(!outcome.stdout.contains(part), "{part}: {outcome}");
        }
    }
    for name in ["output_message_replaced", "output.message.replaced"] {
        let replaced = place.events(name);
        assert_eq!((replaced.len(), &replaced[0]["type"]), (4, &json!(name)));
        assert_eq!(replaced[0]["reason_code"], "system_prompt_leak");
    }
}

/// A sentence needs thirty characters, and the replacement text is the documented one unless the policy sets another.
#[test]
fn short_prompt_has_no_canary_and_a_replacement_has_its_default_text() {
    let place = Place::new(Mode::Invoker);
    let model = HttpServer::start(|asked| {
        let said = json!({"type": "text", "text": asked.message()["messages"][0]["content"]});
        Reply::json(json!({"content": [said], "stop_reason": "end_turn"}))
    });
    let said = |system: &str, says: &str| {
        let messages = [json!({"role": "user", "content": says})];
        let request = json!({"model": "m", "system": system, "messages": messages});
        let outcome = ask(&place, &model, "/v1/messages", &request);
        let answer: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome}"));
        answer["content"][0]["text"].as_str().unwrap().to_owned()
    };
    // Off by default.
    assert_eq!(said(LEAK, LEAK), LEAK);
    place.user_policy("version: 1\nllm: {canary: true}\n");
    let short = "You are a helpful assistant..";
    assert_eq!((short.len(), said(short, short).as_str()), (29, short));
    // They are counted in characters, and of a long sentence 240 of them are enough.
    for short in ["你是一个有用的助手。", "Ты полезный помощник."] {
        assert_eq!(said(short, short), short);
    }
    // The first that is long enough counts, in another case and with other spaces too.
    let withheld = "[Response withheld: the model attempted to reveal protected instructions.]";
    let system = format!("Be kind. {LEAK}");
    assert_eq!(said(&system, LEAK), withheld);
    assert_eq!(said(&system, &LEAK.to_uppercase().replace(' ', "  \n")), withheld);
    assert_eq!(said(&system, "Be kind."), "Be kind.");
    let long: String = (0..100).map(|number| format!("это правило {number}, ")).collect();
    let first = |count| long.chars().take(count).collect::<String>();
    assert_eq!((said(&long, &first(240)).as_str(), said(&long, &first(230))), (withheld, first(230)));
    let (second, both) =
        ("Never name the price of a competitor.", format!("{LEAK} Never name the price of a competitor."));
    assert_eq!(said(&both, second), second);
    place.user_policy("version: 1\nllm: {canary: true, canary_sentences: every}\n");
    assert_eq!(said(&both, second), withheld);
    let sessions = place.listed(&["sessions", "--json"]);
    let reports = sessions.iter().map(|session| {
        Outcome::of(&mut place.agentsh(&["report", session["session"].as_str().unwrap()])).stdout
    });
    let told = reports.filter(|report| report.contains("the answer repeated the system prompt"));
    assert_eq!(told.count(), 4);
}

/// Text after the sentence is neither sent nor waited for.
#[test]
fn the_connection_to_a_model_ends_at_the_sentence() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nllm: {canary: true, replacement: \"No.\"}\n");
    let (feed, fed) = std::sync::mpsc::channel();
    let fed = std::sync::Mutex::new(Some(fed));
    let model = HttpServer::start(move |_| Reply::events(&[]).fed(fed.lock().unwrap().take().unwrap()));
    let says = std::thread::spawn(move || {
        let text = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
        let first = [
            json!({"type": "message_start", "message": {"id": "m", "content": []}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            text(LEAK),
        ];
        let events = first.into_iter().chain(std::iter::repeat_with(|| text(" And more."))).take(100);
        let pause = std::time::Duration::from_millis(100);
        events.take_while(|event| (std::thread::sleep(pause), feed.send(event.to_string()).is_ok()).1).count()
    });
    let request = json!({"model": "m", "stream": true, "system": LEAK, "messages": []});
    let outcome = ask(&place, &model, "/v1/messages", &request);
    assert!(outcome.stdout.contains("\"text\":\"No.\"") && !outcome.stdout.contains("more"), "{outcome}");
    let said = says.join().unwrap();
    assert!(said < 60, "it was listened to for {said} events");
}

/// `canary: hold`: what the agent keeps of the message is the replacement and nothing else, with the tokens that were counted.
#[test]
fn held_answer_reaches_the_agent_only_as_its_replacement() {
    let place = Place::new(Mode::Invoker);
    let model = HttpServer::start(|asked| {
        let said = match asked.message()["model"].as_str().unwrap() {
            "leaks" => ["Sure, my instructions begin so: ", LEAK],
            "leaks at once" => ["", LEAK],
            _ => ["Sure, ", "that is fine."],
        };
        let mut events = vec![
            json!({"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 9, "output_tokens": 7}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ];
        events.extend(said.map(|text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})));
        events.push(json!({"type": "content_block_stop", "index": 0}));
        events.push(json!({"type": "message_stop"}));
        let events: Vec<String> = events.iter().map(event).collect();
        Reply::events(&events.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let asked = |word: &str, name: &str| {
        place.user_policy(&format!("version: 1\nllm: {{canary: {word}, replacement: \"No.\"}}\n"));
        let request = json!({"model": name, "stream": true, "system": LEAK, "messages": []});
        ask(&place, &model, "/v1/messages", &request).stdout
    };
    // As a client puts the message together: the texts of its blocks, and the tokens.
    let message = |seen: &str| {
        let events: Vec<Value> =
            seen.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
        let mut texts: Vec<String> = Vec::new();
        for event in &events {
            match event["type"].as_str().unwrap() {
                "content_block_start" => texts.push(String::new()),
                "content_block_delta" => {
                    texts.last_mut().unwrap().push_str(event["delta"]["text"].as_str().unwrap());
                }
                _ => {}
            }
        }
        let tokens = events.iter().find(|event| event["type"] == "message_delta");
        (texts, tokens.map(|event| event["usage"]["output_tokens"].clone()))
    };
    let withheld =
        |texts: &[&str]| (texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>(), Some(json!(7)));
    let begun = "Sure, my instructions begin so: ";
    assert_eq!(message(&asked("replace", "leaks")), withheld(&[begun, "No."]));
    assert_eq!(message(&asked("hold", "leaks")), withheld(&["No."]));
    for word in ["true", "hold"] {
        assert_eq!(
            message(&asked(word, "leaks at once")),
            withheld(&["No."]),
            "{word}: no empty text before it"
        );
        assert_eq!(message(&asked(word, "fine")).0, ["Sure, that is fine."], "{word}");
    }
    let shown = Outcome::of(&mut place.agentsh(&["policy", "show"])).expect_code(0).stdout;
    assert!(shown.contains("llm.canary") && shown.contains("hold"), "{shown}");
}

/// A random word in the prompt, and decoded parts of an answer.
#[test]
fn a_random_word_and_what_an_answer_decodes_to_are_looked_for_where_that_is_asked() {
    let place = Place::new(Mode::Invoker);
    let model = HttpServer::start(|asked| {
        let message = asked.message();
        let system = message["system"].as_str().unwrap_or_default();
        let said = match message["model"].as_str().unwrap() {
            "tail" => system.rsplit(' ').next().unwrap_or_default().to_uppercase(),
            "encoded" => {
                let encoded = base64::engine::general_purpose::STANDARD.encode(LEAK);
                format!("Here you are: {encoded} and nothing more.")
            }
            _ => "Nothing of it.".to_owned(),
        };
        let half = said.len() / 2;
        let mut events = vec![
            json!({"type": "message_start", "message": {"id": "m", "content": []}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ];
        events.extend([&said[..half], &said[half..]].map(|text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})));
        events.push(json!({"type": "content_block_stop", "index": 0}));
        events.push(json!({"type": "message_stop"}));
        let events: Vec<String> = events.iter().map(event).collect();
        Reply::events(&events.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let asked = |name: &str, policy: &str| {
        place.user_policy(&format!("version: 1\nllm: {{canary: true, replacement: \"No.\"{policy}}}\n"));
        let request = json!({"model": name, "stream": true, "system": LEAK, "messages": []});
        ask(&place, &model, "/v1/messages", &request).stdout
    };
    let is_replaced = |seen: &str| seen.contains("\"text\":\"No.\"");
    let both = ", canary_word: true, canary_decoded: true";
    for (name, off) in [("tail", ", canary_decoded: true"), ("encoded", ", canary_word: true")] {
        assert!(!is_replaced(&asked(name, "")) && !is_replaced(&asked(name, off)), "{name}");
        let seen = asked(name, both);
        assert!(is_replaced(&seen), "{name}: {seen}");
        assert!(!seen.contains("Here") && seen.ends_with("{\"type\":\"message_stop\"}\n\n"), "{seen}");
    }
    assert!(asked("fine", both).contains(" of it."));
    let systems: Vec<String> =
        model.asked().iter().map(|asked| asked.message()["system"].as_str().unwrap().to_owned()).collect();
    assert_eq!(systems[0], LEAK);
    let words: Vec<&str> =
        systems.iter().filter_map(|text| text.rsplit_once("form: ")).map(|(_, word)| word).collect();
    assert!(words.len() >= 3 && words.iter().all(|word| word.len() == 32), "{words:?}");
    assert!(words.iter().all(|word| words.iter().filter(|other| other == &word).count() == 1), "{words:?}");
}

#[test]
fn model_answer_that_cannot_be_judged_is_withheld() {
    let place = Place::new(Mode::Invoker);
    let model = HttpServer::start(|asked| match asked.message()["model"].as_str().unwrap_or_default() {
        "broken" => Reply::json("{\"content\": ["),
        "compressed" => Reply::json("x").with("Content-Encoding", "br"),
        "other" => {
            Reply { pieces: vec!["hello".into()], ..Reply::status(200) }.with("Content-Type", "text/plain")
        }
        "error" => Reply { pieces: vec!["{\"type\":\"error\"}".into()], ..Reply::status(529) }
            .with("Content-Type", "application/json"),
        "cut" => Reply::events(&["event: message_start\ndata: {\"type\":\n\n"]),
        _ => Reply::json("{\"content\":[]}"),
    });
    let ask = |model_name: &str| {
        let request = json!({"model": model_name, "messages": []});
        ask(&place, &model, "/v1/messages", &request).stdout
    };
    for name in ["broken", "compressed", "other", "cut"] {
        let answer = ask(name);
        assert!(answer.contains("[agentsh] ") && answer.contains("api_error"), "{name}: {answer}");
    }
    assert_eq!(ask("error"), "{\"type\":\"error\"}");
    assert_eq!(ask("fine"), "{\"content\":[]}");
    assert_eq!(place.events("model_answer_withheld").len(), 4);
}

/// What the agent gets for this request, with further arguments of curl.
fn curl(place: &Place, server: &HttpServer, path: &str, more: &str) -> String {
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", server.port));
    let script = format!(
        "#!/bin/sh\nexec curl -sS -N --max-time 20 -w ' %{{http_code}}' -H 'Content-Type: application/json' {more} \"$ANTHROPIC_BASE_URL{path}\"\n"
    );
    let claude = place.script(place.project.join("bin/claude"), &script);
    Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude)).stdout
}

#[test]
fn a_path_of_a_gateway_is_judged_and_one_that_nobody_knows_is_refused() {
    let place = Place::new(Mode::Invoker);
    deny(&place, "{server: mail, tool: send}");
    let model = HttpServer::start(|asked| match asked.path.as_str() {
        path if path.ends_with("essages") => {
            let pieces = stream();
            Reply::events(&pieces.iter().map(String::as_str).collect::<Vec<_>>())
        }
        _ => Reply::json("{\"passed\":true}"),
    });
    place.write(place.project.join("request.json"), "{\"model\":\"m\",\"stream\":true,\"messages\":[]}");
    let body = "--data-binary @request.json";
    for path in ["/anthropic/v1/messages", "/v1/%6dessages"] {
        let seen = curl(&place, &model, path, body);
        assert!(seen.contains("'mcp__mail__send' blocked by policy"), "{path}: {seen}");
    }
    for path in ["//v1/messages", "/x/../v1//messages", "/api/talk", "/v1/complete"] {
        let seen = curl(&place, &model, path, &format!("--path-as-is {body}"));
        assert!(seen.ends_with(" 403") && seen.contains("llm: {allow: ["), "{path}: {seen}");
    }
    assert!(model.asked().iter().all(|asked| asked.path.ends_with("essages") && !asked.path.contains("//")));
    // Servers behind one address are distinguished by this name alone.
    let seen = curl(&place, &model, "/v1/messages", &format!("-H 'Host: other.example' {body}"));
    assert!(seen.ends_with(" 421") && seen.contains("'other.example'"), "{seen}");
    let heard = model.asked().len();
    let seen = curl(&place, &model, "/v1/messages", &format!("-H 'Host: localhost' {body}"));
    assert!(seen.ends_with(" 200") && model.asked().len() == heard + 1, "{seen}");
    // Requests that the built-in policy of the agent lists, and those that the user lists.
    assert!(curl(&place, &model, "/api/event_logging/batch", body).contains("passed"));
    place.user_policy("version: 1\nllm: {allow: [\"POST /api/talk\"]}\n");
    assert!(curl(&place, &model, "/api/talk", body).contains("passed"));
}

#[test]
fn compressed_request_is_forwarded_decompressed() {
    let place = Place::new(Mode::Invoker);
    let model = HttpServer::start(|_| Reply::json("{\"content\":[]}"));
    place.write(place.project.join("request.json"), "{\"model\":\"m\",\"messages\":[]}");
    let gzip = std::process::Command::new("gzip").arg("-k").arg(place.project.join("request.json")).status();
    assert!(gzip.unwrap().success());
    let seen =
        curl(&place, &model, "/v1/messages", "-H 'Content-Encoding: gzip' --data-binary @request.json.gz");
    assert!(seen.starts_with("{\"content\":[]}"), "{seen}");
    let asked = model.asked();
    assert_eq!(
        (asked[0].message()["model"].as_str(), asked[0].header("content-encoding")),
        (Some("m"), None)
    );
    let seen =
        curl(&place, &model, "/v1/messages", "-H 'Content-Encoding: snappy' --data-binary @request.json");
    assert!(seen.ends_with(" 415") && seen.contains("snappy"), "{seen}");
    assert_eq!(model.asked().len(), 1);
}

/// Clients read what they asked for; some gateways name no kind at all.
#[test]
fn an_answer_of_another_kind_is_judged_as_what_it_is() {
    let place = Place::new(Mode::Invoker);
    deny(&place, "{server: mail, tool: send}");
    let whole = json!({"content": [{"type": "tool_use", "id": "t1", "name": "mcp__mail__send", "input": {}}], "stop_reason": "tool_use"});
    let model = HttpServer::start(move |asked| {
        let kind = asked.message()["model"].as_str().unwrap().to_owned();
        let pieces = match asked.message()["stream"] == true {
            true => stream(),
            false => vec![whole.to_string()],
        };
        let reply = Reply { pieces, ..Reply::status(200) };
        if kind.is_empty() { reply } else { reply.with("Content-Type", &kind) }
    });
    for streams in [true, false] {
        let usual = if streams { "text/event-stream" } else { "application/json" };
        let [usual, nothing, plain] = [usual, "", "text/plain; charset=utf-8"].map(|kind| {
            ask(&place, &model, "/v1/messages", &json!({"model": kind, "stream": streams, "messages": []}))
                .stdout
        });
        assert!(
            usual.contains("'mcp__mail__send' blocked by policy") && !usual.contains("\"t1\""),
            "{usual}"
        );
        assert_eq!((&nothing, &plain), (&usual, &usual));
    }
}

#[test]
fn a_stream_that_is_compressed_unasked_is_judged_as_what_it_says() {
    let place = Place::new(Mode::Invoker);
    deny(&place, "{server: mail, tool: send}");
    let model = HttpServer::start(|asked| {
        let pieces = stream();
        let reply = Reply::events(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
        match asked.message()["model"].as_str().unwrap() {
            "gzip" => reply.packed("gzip"),
            "br" => reply.packed("br"),
            _ => reply,
        }
    });
    let [plain, gzip, brotli] = ["plain", "gzip", "br"].map(|how| {
        ask(&place, &model, "/v1/messages", &json!({"model": how, "stream": true, "messages": []})).stdout
    });
    assert!(plain.contains("'mcp__mail__send' blocked by policy") && plain.contains("\"Bash\""), "{plain}");
    assert_eq!((&gzip, &brotli), (&plain, &plain));
}

#[test]
fn budgets_refuse_in_the_shape_of_the_provider() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nllm:\n  budgets: [{model: \"m*\", max_tokens: 100}, {model: quick, rpm: 1}]\n  \
         prices: [{model: \"m*\", input: \"3.00\", output: \"15.00\"}]\n",
    );
    let model = HttpServer::start(|_| {
        Reply::json("{\"content\":[],\"usage\":{\"input_tokens\":90,\"output_tokens\":20}}")
    });
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
    let ask = "curl -sS -w ' %{http_code}\\n' -H 'Content-Type: application/json' \"$ANTHROPIC_BASE_URL/v1/messages\" -d";
    let script = format!(
        "#!/bin/sh\n{ask} '{{\"model\":\"m\"}}'\n{ask} '{{\"model\":\"m\"}}'\n{ask} '{{\"model\":\"quick\"}}'\n{ask} '{{\"model\":\"quick\"}}'\n"
    );
    let claude = place.script(place.project.join("bin/claude"), &script);
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude));
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines[0].ends_with(" 200") && lines[2].ends_with(" 200"), "{outcome}");
    assert!(lines[1].ends_with(" 403") && lines[1].contains("permission_error"), "{outcome}");
    assert!(lines[1].contains("110 of 100 tokens") && lines[1].contains("policy.yaml:3"), "{outcome}");
    assert!(lines[3].ends_with(" 429") && lines[3].contains("rate_limit_error"), "{outcome}");
    let called = place.events("model_called");
    assert_eq!(called.len(), 2, "{called:?}");
    assert_eq!((&called[0]["input_tokens"], &called[0]["output_tokens"]), (&json!(90), &json!(20)));
    assert_eq!(called[0]["cost_micro_usd"], json!(570));
    // Added up in the report, and on the session's page.
    let line = "m: 1 answer, 90 tokens in, 20 out, $0.0005";
    let report = Outcome::of(&mut place.agentsh(&["report", "latest"])).expect_code(0).stdout;
    assert!(report.contains(line), "{report}");
    assert!(report.contains("quick: 1 answer, 90 tokens in, 20 out, no price is known"), "{report}");
    let session = place.listed(&["sessions", "--json"])[0]["session"].as_str().unwrap().to_owned();
    let page = Ui::open(&place).get(&format!("/session/{session}")).body;
    assert!(page.contains("and its cost") && page.contains(line), "{page}");
}

#[test]
fn secrets_in_requests_are_reported_replaced_or_refused() {
    let place = Place::new(Mode::Invoker);
    let model = HttpServer::start(|_| Reply::json("{\"content\":[]}"));
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let request = json!({"model": "m", "messages": [{"role": "user", "content": format!("token {token} of me@example.com")}]});
    place.write(place.project.join("request.json"), request.to_string());
    let ask = |policy: &str| {
        place.user_policy(policy);
        curl(&place, &model, "/v1/messages", "--data-binary @request.json")
    };
    assert!(ask("version: 1\n").ends_with(" 200"));
    assert!(model.asked()[0].message()["messages"][0]["content"].as_str().unwrap().contains(&token));
    assert!(ask("version: 1\nllm: {secrets: redact}\n").ends_with(" 200"));
    let content = model.asked()[1].message()["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(
        content.contains("[REDACTED ") && content.contains("me@example.com") && !content.contains("ghp_"),
        "{content}"
    );
    let refused = ask("version: 1\nllm: {secrets: block}\n");
    assert!(refused.ends_with(" 403") && refused.contains("llm: {secrets: log}"), "{refused}");
    assert_eq!(model.asked().len(), 2);
    let found = place.events("model_secrets_found");
    let actions: Vec<_> = found.iter().map(|event| event["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["alert", "rewrite", "block"]);
    assert!(found.iter().all(|event| !event.to_string().contains("a1B2c3D4")), "{found:?}");
}

#[test]
fn a_stream_that_breaks_off_ends_with_an_error_of_the_provider() {
    let place = Place::new(Mode::Invoker);
    let model = HttpServer::start(|_| {
        Reply::events(&["event: ping\ndata: {\"type\":\"ping\"}\n\n", "event: message_start\ndata: [\n\n"])
    });
    place.write(place.project.join("request.json"), "{\"model\":\"m\",\"stream\":true}");
    let seen = curl(&place, &model, "/v1/messages", "--data-binary @request.json");
    assert!(
        seen.contains("\"type\":\"ping\"") && seen.contains("event: error") && seen.contains("api_error"),
        "{seen}"
    );
    assert_eq!(place.events("model_answer_withheld").len(), 1);
}

#[test]
fn model_key_is_sent_to_the_provider_and_not_shown_inside() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nllm: {credentials: broker}\n");
    let model = HttpServer::start(|_| Reply::json("{\"content\":[]}"));
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
    place.set("ANTHROPIC_API_KEY", "sk-ant-real-key");
    let ask = "curl -sS -H \"X-Api-Key: $ANTHROPIC_API_KEY\" -H 'Content-Type: application/json' -d '{\"model\":\"m\"}'";
    let script = format!(
        "#!/bin/sh\n{ask} \"$ANTHROPIC_BASE_URL/v1/messages\"\n{ask} \"$ANTHROPIC_BASE_URL/v1/models/x\"\nenv\ncat /proc/*/environ\n"
    );
    let claude = place.script(place.project.join("bin/claude"), &script);
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(&claude));
    assert!(outcome.stdout.contains("ANTHROPIC_API_KEY=agentsh-anthropic-api-key-"), "{outcome}");
    assert!(!outcome.stdout.contains("sk-ant-real-key"), "{outcome}");
    assert_eq!(model.asked()[0].header("x-api-key"), Some("sk-ant-real-key"));
    // Nothing starts if nothing could add the key to requests.
    place.user_policy("version: 1\nllm:\n  credentials: broker\n  enabled: false\n");
    let outcome = Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(&claude));
    assert!(
        outcome.stderr.contains("add `enabled: true`") && outcome.stderr.contains("policy.yaml:3"),
        "{outcome}"
    );
}
