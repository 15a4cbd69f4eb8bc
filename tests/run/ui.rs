//! `agentsh ui`: every page of a real record, an approval given by a form, and requests that must be refused.

use std::io::BufRead;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::browser::Ui;
use crate::support::{Mode, Outcome, Peer, Place, patience, within};

const HOSTILE: &str = "<script>alert(1)</script>\u{202e}\u{200b}";

/// A session of an agent with a server whose id is markup: a call that passes, one that does not, a connection refused.
fn recorded(place: &Place) {
    place.user_policy(
        "version: 1\nsandbox:\n  mcp:\n    enforce_policy: true\n    tool_policy: denylist\n    denied_tools:\n      - {server: \"*\", tool: add}\n",
    );
    let server = place.program("fixture_server");
    let mut command = place.agentsh(&["mcp", "run", "--id", "<b>fs", "--"]);
    let mut peer = Peer::start(command.arg(server));
    peer.shake_hands();
    peer.request("tools/list", json!({}));
    peer.call("echo", json!({ "text": HOSTILE }));
    peer.try_call("add", json!({ "a": 1, "b": 2 }));
    peer.finish();
    place.shell("wget -q -T 2 http://refused.example/ ; exit 3");
}

#[test]
fn every_page_shows_what_is_on_record_and_nothing_of_it_is_markup() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        recorded(&place);
        let sessions = place.listed(&["sessions", "--json"]);
        let of = |verb: &str| {
            let found = sessions.iter().find(|session| session["verb"] == verb).expect(verb);
            found["session"].as_str().unwrap().to_owned()
        };
        let ui = Ui::open(&place);
        let server = "/server/%3Cb%3Efs";
        let session = format!("/session/{}", of("mcp run"));
        let page = |path: &str| {
            let got = ui.get(path);
            assert_eq!(got.status, 200, "{mode:?} {path}: {}", got.body);
            assert!(got.body.starts_with("<!doctype html>"), "{path}");
            let scripts = got.body.matches("<script").count();
            assert_eq!(scripts, 1, "{path}: only our own script: {}", got.body);
            assert!(!got.body.contains('\u{202e}') && !got.body.contains('\u{200b}'), "{path}");
            assert!(!got.body.contains("<b>") && !got.body.contains(" style="), "{path}: {}", got.body);
            assert!(got.head.contains("content-security-policy: default-src 'none'"), "{}", got.head);
            got.body
        };
        let now = page("/");
        assert!(now.contains("No pending approvals.") && now.contains("No session runs."), "{now}");
        assert!(now.contains("&lt;b&gt;fs") && now.contains("in its session"), "{now}");
        assert!(page("/sessions").contains("ended with 3"));
        let shown = page(&session);
        assert!(shown.contains("&lt;script&gt;alert(1)"), "{shown}");
        assert!(shown.contains("<span class=\"unseen\">\\u{202e}</span>"), "{shown}");
        // By which rule, and what would change it.
        assert!(shown.contains("policy.yaml:7 (sandbox.mcp.denied_tools[0])"), "{shown}");
        assert!(shown.contains("remove line 7 of "), "{shown}");
        assert!(shown.contains("<svg ") && shown.contains("1 call, 1 refused"), "{shown}");
        assert!(
            shown.contains("<title>client</title>") && !shown.contains("<title>agent</title>"),
            "{shown}"
        );
        // A hash is short, and all of it is its title.
        let hash = shown.split("<code title=\"sha256:").nth(1).expect("a hash").split('"').next().unwrap();
        assert!(
            hash.len() == 64 && shown.contains(&format!(">sha256:{}\u{2026}</code>", &hash[..12])),
            "{hash}"
        );
        assert!(!shown.contains(&format!(">sha256:{hash}")), "{shown}");
        assert!(shown.contains("Protection: enforced and not enforced"), "{shown}");
        let refused = page(&format!("{session}?show=refused"));
        assert!(
            refused.contains("<strong>add</strong>") && !refused.contains("<strong>echo</strong>"),
            "{refused}"
        );
        let calls = page(&format!("{session}?show=calls"));
        assert!(calls.contains("<strong>add</strong>") && calls.contains("<strong>echo</strong>"), "{calls}");
        assert!(
            !calls.contains("class=\"kind\">process<") && shown.contains("class=\"kind\">process<"),
            "{calls}"
        );
        assert!(calls.contains("show=calls\" aria-current=\"true\">Calls</a>"), "{calls}");
        let network = page(&format!("/session/{}?show=network", of("run")));
        assert!(
            network.contains("<strong>refused.example") && network.contains("<title>sh</title>"),
            "{network}"
        );
        assert!(!network.contains("class=\"kind\">process<"), "{network}");
        assert!(page("/servers").contains("pinned</span>"));
        let shown = page(server);
        assert!(shown.contains("<strong>echo</strong>") && shown.contains("at first sight"), "{shown}");
        assert!(page("/registry?q=x").contains("This machine has no registry"));
        assert!(page("/approvals").contains("No questions yet."));
        let policy = page("/policy");
        assert!(policy.contains("mcp.denied_tools") && policy.contains("policy.yaml:7"), "{policy}");
        let asked = page("/policy?server=%3Cb%3Efs&kind=tool&about=add");
        assert!(asked.contains("<span class=\"word bad\">denied</span>"), "{asked}");
        // The policy changes, and the page says what it would have done.
        place.user_policy("version: 1\n");
        let would = page(&format!("/policy?session={}", of("mcp run")));
        assert!(would.contains("1 of 2 would be decided differently."), "{would}");
        for (path, status) in
            [("/session/ffffffff", 404), ("/server/nobody", 404), ("/nothing", 404), ("/registry/x", 400)]
        {
            assert_eq!(ui.get(path).status, status, "{path}");
        }
        assert_eq!(ui.interrupt(), 0);
    }
}

#[test]
fn ui_requests_without_the_cookie_of_this_start_are_refused() {
    let place = Place::new(Mode::Invoker);
    recorded(&place);
    let mut ui = Ui::start(&place);
    let paths = ["/", "/sessions", "/servers", "/policy", "/events", "/style.css", "/live.js"];
    for path in paths {
        assert_eq!(ui.get(path).status, 401, "{path} without a cookie");
    }
    assert_eq!(ui.post("/approvals/x-1", "answer=once").status, 401);
    let link = ui.link.clone();
    // A name that was rebound to this address, also with the token.
    assert_eq!(ui.raw("GET", &link, &[("Host", "rebound.example:80")], "").status, 403);
    assert_eq!(ui.raw("GET", &link, &[("Host", "")], "").status, 403);
    assert_eq!(ui.get("/open?token=").status, 401);
    // A preview of the link does not use it up.
    assert_eq!(ui.raw("HEAD", &link, &[("Host", &ui.address.clone())], "").status, 200);
    assert_eq!(ui.get(&link[..link.len() - 1]).status, 401, "not the whole token");
    let cookie = {
        let got = ui.get(&link);
        assert_eq!(got.status, 200);
        got.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().to_owned()
    };
    assert_eq!(ui.get(&link).status, 401, "the link opens once");
    ui.cookie = cookie.split(';').next().unwrap().to_owned();
    assert_eq!(ui.get("/").status, 200);
    assert_eq!(ui.raw("GET", "/", &[("Host", "rebound.example")], "").status, 403);
    assert_eq!(
        ui.raw("GET", "/", &[("Host", &format!("localhost:{}", ui.address.split(':').nth(1).unwrap()))], "")
            .status,
        200
    );
    // Forms: of another site, without the token, with one that is not ours.
    let form = "token=0&bound=0&answer=once";
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
        assert_eq!(ui.raw("POST", "/approvals/x-1", &[("Origin", origin)], form).status, 403, "{origin}");
    }
    assert_eq!(ui.raw("POST", "/approvals/x-1", &[("Sec-Fetch-Site", "same-site")], form).status, 403);
    for form in ["answer=once", form, "token=&answer=once"] {
        let got = ui.post("/approvals/x-1", form);
        assert_eq!(got.status, 403, "{form}: {}", got.body);
        assert!(got.body.contains("the form has expired; reload the page"), "{}", got.body);
    }
    assert_eq!(ui.post("/", "x").status, 405);
    assert_eq!(ui.post("/approvals/x-1", &format!("token={}", "x".repeat(20_000))).status, 413);
    let name = ui.cookie.split('=').next().unwrap().to_owned();
    ui.cookie = format!("{name}={}", "0".repeat(64));
    assert_eq!(ui.get("/").status, 401, "a cookie that is not ours");
    // The page of an earlier start.
    let stale = Ui::start(&place);
    assert_eq!(stale.get(&link).status, 401);
}

pub(super) const ASKING: &str = "version: 1\nsandbox:\n  mcp:\n    approvals: {wait: 60s, headless: wait}\n    rules:\n      \
    - {name: sums, tool: add, when: [{path: /b, equals: \"40\"}], action: ask, reason: sums of forty are <i>delicate</i>}\n";

pub(super) fn agent(place: &Place, script: &str) -> Child {
    let servers =
        json!({"mcpServers": {"fixture": {"command": place.program("fixture_server"), "args": []}}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    let script = format!("#!/bin/sh\ncall() {{ /run/agentsh/agentsh call \"$@\"; }}\n{script}\n");
    let claude = place.script(place.project.join("bin/claude"), &script);
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(claude).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn an_answer_on_the_page_lets_a_waiting_call_go_on() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.user_policy(ASKING);
        let ui = Ui::open(&place);
        let mut news = ui.listen(0);
        let call = "call fixture add '{\"a\": 2, \"b\": 40}'";
        let other = "call fixture add '{\"a\": 3, \"b\": 40}'";
        let child = agent(
            &place,
            &format!("{call}; echo \"first $?\"; {call}; echo \"second $?\"; {other}; echo \"third $?\""),
        );
        let wait = || {
            let mut page = ui.get("/approvals");
            let waits =
                within(Duration::from_secs(30), || ui.get("/approvals").body.contains("name=\"bound\""));
            assert!(waits, "{mode:?}: {}", page.body);
            page = ui.get("/approvals");
            page
        };
        let page = wait();
        // The event stream reported it too.
        let heard = (&mut news).lines().take(80).map_while(Result::ok).any(|line| line == "event: news");
        assert!(heard, "no news came");
        assert!(page.body.contains("&lt;i&gt;delicate") && page.body.contains("1 waiting"), "{}", page.body);
        let who = format!("claude in {}", place.project.display()).replace(place.home.to_str().unwrap(), "~");
        let title = format!("{who} wants to call &#39;add&#39; of server &#39;fixture&#39;");
        assert!(page.body.contains(&title), "{title}: {}", page.body);
        // A lasting answer is shown apart, with the line that it writes.
        let always = page.body.split("class=\"always\"").nth(1).expect("a button apart");
        assert!(
            always.contains("value=\"always\"") && always.contains("writes <code>- {server:"),
            "{always}"
        );
        let now = ui.get("/").body;
        assert!(now.contains("runs</span>") && now.contains("&quot;b&quot;: 40"), "{now}");
        let action =
            page.body.split("action=\"/approvals/").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let path = format!("/approvals/{action}");
        let (token, bound) = (page.field("token").to_owned(), page.field("bound").to_owned());
        let form = |bound: &str, answer: &str| format!("token={token}&bound={bound}&answer={answer}");
        // Another question than the one that was looked at is not answered.
        assert_eq!(ui.post(&path, &form(&"0".repeat(64), "once")).status, 409);
        assert_eq!(ui.post(&path, &form(&bound, "perhaps")).status, 400);
        assert_eq!(
            ui.raw("POST", &path, &[("Origin", "http://evil.example")], &form(&bound, "once")).status,
            403
        );
        let done = ui.post(&path, &form(&bound, "once"));
        // The answer leads back to what waits.
        assert_eq!(done.status, 200, "{}", done.body);
        assert!(done.body.contains("<h1>Approvals</h1>"), "{}", done.body);
        assert!(done.body.contains(&format!("Approved: {title}.")), "{}", done.body);
        assert!(!ui.get("/approvals").body.contains("Approved: "), "said once");
        assert_eq!(ui.post(&path, &form(&bound, "once")).status, 409, "answered once");
        // `once` applied to one call. The next answer is permanent, and written to the policy.
        let page = wait();
        let action =
            page.body.split("action=\"/approvals/").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let done = ui.post(&format!("/approvals/{action}"), &form(page.field("bound"), "always"));
        assert!(done.body.contains("approved.yaml"), "{}", done.body);
        let page = wait();
        let action =
            page.body.split("action=\"/approvals/").nth(1).unwrap().split('"').next().unwrap().to_owned();
        assert_eq!(ui.post(&format!("/approvals/{action}"), &form(page.field("bound"), "deny")).status, 200);
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            out,
            "42\nfirst 0\n42\nsecond 0\nthird 1\n",
            "{mode:?} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let written = std::fs::read_to_string(place.home.join(".config/agentsh/approved.yaml")).unwrap();
        assert!(written.contains("server: \"fixture\", tool: \"add\", arguments: "), "{written}");
        assert!(ui.get("/approvals").body.contains("denied</span>"));
        // The session that ran a moment ago has ended.
        assert!(within(Duration::from_secs(5), || ui.get("/").body.contains("No session runs.")));
    }
}

/// A call waits for its answer, and what connects tries again: it is asked for first, whatever was asked before.
#[test]
fn pending_calls_are_shown_before_hosts() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(ASKING);
    let ui = Ui::open(&place);
    let connects = "wget -q -T 60 http://first.example/ &\nsleep 2";
    let mut child = agent(&place, &format!("{connects}\ncall fixture add '{{\"a\": 2, \"b\": 40}}'; wait"));
    let both = || {
        let page = ui.get("/approvals").body;
        page.find("wants to call &#39;add&#39;").zip(page.find("wants to connect to first.example:80"))
    };
    assert!(within(Duration::from_secs(30), || both().is_some()), "{}", ui.get("/approvals").body);
    let (call, host) = both().unwrap();
    assert!(call < host, "{}", ui.get("/approvals").body);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_session_is_not_shown_as_running() {
    let place = Place::new(Mode::Invoker);
    let mut child = place.agentsh(&["run", "--", "sleep", "60"]).stderr(Stdio::null()).spawn().unwrap();
    let ui = Ui::open(&place);
    assert!(within(Duration::from_secs(20), || ui.get("/").body.contains("runs</span>")));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(within(Duration::from_secs(5), || ui.get("/").body.contains("broken off</span>")));
}

/// Repeated events are one line, with their numbers added up; skills are separate from servers; and a file that was
/// refused is one of the refusals, with the command that allows it.
#[test]
fn equal_events_are_one_line_and_skills_no_servers() {
    let place = Place::new(Mode::Invoker);
    place.shell("exit 3");
    let database = place.home.join(".local/state/agentsh/agentsh.db");
    let store = rusqlite::Connection::open(database).unwrap();
    let add = |body: Value, server: Option<&str>| {
        store
            .execute(
                "INSERT INTO events (session, seq, time, type, body, prev, hash, server_id) SELECT session, max(seq) + 1, \
                 max(time), ?1, ?2, zeroblob(32), zeroblob(32), ?3 FROM events",
                (body["type"].as_str().unwrap(), body.to_string(), server),
            )
            .unwrap();
    };
    for call in 1..=3 {
        add(
            json!({"type": "model_called", "provider": "anthropic", "model": "m-1", "status": 200,
            "input_tokens": 100 * call, "output_tokens": call, "head_ms": call, "total_ms": call}),
            None,
        );
    }
    add(
        json!({"type": "guard_changed", "server_id": null, "path": ".git/hooks/x", "what": "refused",
        "detail": "read-only; to allow it: `agentsh policy allow --write .git/hooks`"}),
        None,
    );
    let skill = "skill:one@.claude/skills";
    add(json!({"type": "mcp_tools_list_changed", "server_id": skill}), Some(skill));
    let ui = Ui::open(&place);
    let page = ui.get("/session/latest").body;
    assert_eq!(page.matches("<strong>m-1</strong>").count(), 1, "{page}");
    assert!(
        page.contains("3 times</span>") && page.contains("anthropic, 600 tokens in, 6 tokens out"),
        "{page}"
    );
    for path in ["/", "/session/latest?show=refused", "/session/latest?show=files"] {
        let page = ui.get(path).body;
        assert!(page.contains("<strong>.git/hooks/x</strong>"), "{path}: {page}");
        assert!(
            page.contains("to change it: <code>agentsh policy allow --write .git/hooks</code>"),
            "{path}: {page}"
        );
        assert!(!page.contains("<strong>m-1</strong>"), "{path}: {page}");
    }
    let servers = ui.get("/servers").body;
    let (before, apart) = servers.split_once("<h2>Skills and plugins</h2>").expect("skills apart");
    assert!(!before.contains("skill:") && apart.contains(skill), "{servers}");
}

/// 10 000 calls of 200 servers in one session, and 4 000 pinned tools.
fn much(place: &Place) {
    recorded(place);
    let database = place.home.join(".local/state/agentsh/agentsh.db");
    let mut store = rusqlite::Connection::open(database).unwrap();
    let (session, seq): (String, i64) = store
        .query_row(
            "SELECT session, max(seq) FROM events WHERE session = (SELECT session FROM events WHERE id = 1)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    let change = store.transaction().unwrap();
    let mut seq = seq;
    let mut add = |server: &str, body: Value| {
        seq += 1;
        let action = body.get("action").and_then(Value::as_str).map(str::to_owned);
        let tool = body.get("tool_name").and_then(Value::as_str).map(str::to_owned);
        change
            .execute(
                "INSERT INTO events (session, seq, time, type, body, prev, hash, server_id, tool_name, action) \
                 VALUES (?1, ?2, '2026-03-04T05:06:07.000000Z', ?3, ?4, zeroblob(32), zeroblob(32), ?5, ?6, ?7)",
                (&session, seq, body["type"].as_str().unwrap(), body.to_string(), server, tool, action),
            )
            .unwrap();
    };
    for server in 0..200 {
        let id = format!("server-{server:03}");
        for tool in 0..50 {
            let (name, call) = (format!("tool-{}", tool % 20), server * 100 + tool);
            let action = if tool % 10 == 0 { "block" } else { "allow" };
            add(
                &id,
                json!({"type": "mcp_tool_called", "server_id": id, "tool_name": name, "jsonrpc_id": call, "input": {"path": "/a/b"}}),
            );
            add(
                &id,
                json!({"type": "mcp_tool_call_intercepted", "server_id": id, "tool_name": name, "jsonrpc_id": call,
                "tool_hash": null, "action": action, "reason": "tool-not-allowlisted",
                "rule": {"id": "sandbox.mcp.allowed_tools", "file": "policy.yaml", "line": 3}}),
            );
        }
        add(
            &id,
            json!({"type": "mcp_network_connection", "server_id": id, "connection": server, "name": format!("h{server}.example"),
            "address": null, "port": 443, "protocol": "tls", "action": "allow", "state": "closed", "detail": "",
            "rule": {"id": "r", "file": "policy.yaml", "line": 4}, "pid": null, "comm": null,
            "bytes_sent": 10, "bytes_received": 2000, "duration_ms": 5}),
        );
        for tool in 0..20 {
            change
                .execute(
                    "INSERT INTO interface_pins VALUES (?1, '', 'x', '', 'tool', ?2, 'sha256:00', ?3, '2026-03-04T05:06:07.000000Z', 'first-use')",
                    (&id, format!("tool-{tool}"), json!({"name": "t", "description": "d".repeat(3000)}).to_string()),
                )
                .unwrap();
        }
    }
    change.commit().unwrap();
}

#[test]
#[ignore = "takes long"]
fn ui_pages_are_fast_with_a_large_journal() {
    let place = Place::new(Mode::Invoker);
    much(&place);
    let limit = patience(Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 100 }));
    let ui = Ui::open(&place);
    let sessions = place.listed(&["sessions", "--json"]);
    let long =
        sessions.iter().find(|one| one["calls"].as_u64() > Some(9000)).unwrap()["session"].as_str().unwrap();
    let paths = [
        "/".to_owned(),
        "/sessions".to_owned(),
        format!("/session/{long}"),
        format!("/session/{long}?before=9000"),
        format!("/session/{long}?show=refused"),
        "/servers".to_owned(),
        "/servers?after=server-099".to_owned(),
        "/server/server-100".to_owned(),
        "/approvals".to_owned(),
        "/policy".to_owned(),
        format!("/policy?session={long}"),
        "/registry".to_owned(),
    ];
    let mut slow = Vec::new();
    for path in &paths {
        // A busy machine may interrupt one of them.
        let quickest = (0..3).map(|_| {
            let start = Instant::now();
            let got = ui.get(path);
            assert_eq!(got.status, 200, "{path}: {}", got.body);
            assert!(got.body.len() < 1 << 20, "{path}: {} bytes", got.body.len());
            start.elapsed()
        });
        let quickest = quickest.min().unwrap();
        if quickest > limit {
            slow.push(format!("{path}: {quickest:?}"));
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
    // All of it can be reached by turning pages, and back.
    let page = ui.get(&format!("/session/{long}")).body;
    let older = page.split("?before=").nth(1).unwrap().split('"').next().unwrap();
    let second = ui.get(&format!("/session/{long}?before={older}")).body;
    assert!(second.contains("?after=") && second.contains("?before="), "{second}");
    let servers = ui.get("/servers").body;
    assert!(servers.contains("server-048") && servers.contains("/servers?after=server-048"), "{servers}");
    let report = Outcome::of(&mut place.agentsh(&["report", long, "--format", "html"])).expect_code(0).stdout;
    assert!(report.contains("The session was long") && !report.contains("<a "), "{}", report.len());
}

/// Registrations are found by name, hash and tool and verified again, and a look-alike name is marked.
#[test]
fn the_registry_of_this_machine_can_be_searched() {
    let place = Place::new(Mode::Invoker);
    let mut command = place.agentsh(&["registry", "serve", "--open", "--listen", "127.0.0.1:0"]);
    let mut serve = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(serve.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
    let register = |name: &str, tool: &str, says: &str| {
        let opening = json!({"result": {"capabilities": {"tools": {}}, "serverInfo": {"name": name}}});
        let tools = json!({"result": {"tools": [{"name": tool, "description": says}]}});
        place.write("listing/initialize.json", opening.to_string());
        let folder = place.write("listing/tools.json", tools.to_string() + "\n");
        let folder = folder.parent().unwrap().to_str().unwrap().to_owned();
        let words = ["registry", "register", "--listing", &folder, "--registry", &url];
        Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    };
    register("slack", "post_message", "h\u{e9}llo w\u{f6}rld \u{1f980}");
    register("\u{455}lack-mirror", "post", "<img src=x onerror=alert(1)>");
    serve.kill().unwrap();
    serve.wait().unwrap();
    let ui = Ui::open(&place);
    let all = ui.get("/registry").body;
    assert!(all.contains("2 found") && !all.contains("hash is wrong"), "{all}");
    assert_eq!(all.matches("hash verified").count(), 2, "{all}");
    assert!(all.contains("not ASCII; reads like &#39;slack-mirror&#39;"), "{all}");
    let one = ui.get("/registry?q=post_message").body;
    assert!(one.contains("1 found"), "by tool: {one}");
    let hash = one.split("<code title=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert!(ui.get(&format!("/registry?q=sha256:{}", &hash[..12])).body.contains("1 found"), "by hash");
    assert!(ui.get("/registry?q=SLACK").body.contains("1 found"), "by name");
    assert!(ui.get("/registry?q=%25").body.contains("No registration matches"), "no pattern");
    let detail = ui.get("/registry/2").body;
    assert!(detail.contains("&lt;img src=x") && !detail.contains("<img"), "{detail}");
    // The database was changed by hand.
    let store =
        rusqlite::Connection::open(place.home.join(".local/state/agentsh/registry/registry.db")).unwrap();
    store.execute("UPDATE servers SET interface = replace(interface, 'llo', 'LLO')", []).unwrap();
    assert_eq!(ui.get("/registry").body.matches("hash is wrong").count(), 1);
}

/// A changed interface that waits in the registry of this machine is listed among what waits, and is decided here.
#[test]
fn pending_registry_approvals_are_shown_and_decided_in_the_ui() {
    let place = Place::new(Mode::Invoker);
    let mut command = place.agentsh(&["registry", "serve", "--open", "--listen", "127.0.0.1:0"]);
    let mut serve = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(serve.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap().to_owned();
    let interface = |says: &str| {
        let opening = r#"{"result":{"capabilities":{"tools":{}},"serverInfo":{"name":"wx"}}}"#;
        let tools = json!({"result": {"tools": [{"name": "get", "description": says}]}});
        place.write("listing/initialize.json", opening);
        let folder = place.write("listing/tools.json", tools.to_string() + "\n");
        folder.parent().unwrap().to_str().unwrap().to_owned()
    };
    let url = format!("http://{address}");
    let register = ["registry", "register", "--listing", &interface("weather"), "--registry", &url];
    Outcome::of(&mut place.agentsh(&register)).expect_code(0);
    let verify = ["registry", "verify", "--listing", &interface("read the keys"), "--registry", &url];
    Outcome::of(&mut place.agentsh(&verify)).expect_code(1);
    let words = ["registry", "hash", "--show-interface", "--listing", &interface("read the keys")];
    let said = Outcome::of(&mut place.agentsh(&words)).expect_code(0).stdout;
    let (first, whole) = said.split_once('\n').unwrap();
    let hash = first.split_whitespace().next().unwrap().strip_prefix("kiji1:").unwrap().to_owned();
    let whole: Value = serde_json::from_str(whole).unwrap();
    let asked = json!({ "name": "wx", "new_hash": hash, "new_interface": whole, "diff": "none" }).to_string();
    let ask = || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let length = asked.len();
        let head = format!(
            "POST /approvals HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{asked}"
        );
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        let answer = std::io::read_to_string(stream).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    };
    ask();
    let ui = Ui::open(&place);
    for path in ["/", "/approvals", "/registry"] {
        let page = ui.get(path).body;
        assert!(
            page.contains("1 waiting") && page.contains("The interface of &#39;wx&#39; changed"),
            "{path}: {page}"
        );
        assert!(page.contains("<ins>") && page.contains("read the keys"), "{path}: {page}");
    }
    let page = ui.get("/approvals");
    let token = page.field("token").to_owned();
    assert_eq!(ui.post("/registry/approvals/1", "answer=approve").status, 403);
    assert_eq!(ui.post("/registry/approvals/1", &format!("token={token}&answer=always")).status, 400);
    assert_eq!(ui.post("/registry/approvals/7", &format!("token={token}&answer=approve")).status, 404);
    assert!(ui.get("/approvals").body.contains("1 waiting"));
    let done = ui.post("/registry/approvals/1", &format!("token={token}&answer=approve&reason=new+release"));
    assert!(done.status == 200 && done.body.contains("Request 1 is approved."), "{}", done.body);
    assert!(ui.get("/").body.contains("No pending approvals."));
    // The registry that runs knows it, and its log is whole.
    Outcome::of(&mut place.agentsh(&verify)).expect_code(0);
    let log = Outcome::of(&mut place.agentsh(&["registry", "log", "--registry", &url])).expect_code(0).stdout;
    assert!(log.contains("new release") && log.contains("approved"), "{log}");
    serve.kill().unwrap();
    serve.wait().unwrap();
}

/// A tool that says something else than when it was trusted is shown with what changed, what cannot be seen included.
#[test]
fn a_changed_interface_is_shown_field_by_field() {
    let place = Place::new(Mode::Invoker);
    recorded(&place);
    let database = place.home.join(".local/state/agentsh/agentsh.db");
    let store = rusqlite::Connection::open(&database).unwrap();
    let changed = store
        .execute(
            "INSERT INTO interface_changes SELECT server_id, scope, basis, audience, kind, name, 'sha256:ff', \
             json_set(definition, '$.description', ?1), at, '' FROM interface_pins WHERE name = 'echo'",
            ["Says it again\u{e0041}\u{200b}<b>"],
        )
        .unwrap();
    assert_eq!(changed, 1);
    let ui = Ui::open(&place);
    assert!(ui.get("/servers").body.contains("1 changed</span>"));
    let page = ui.get("/server/%3Cb%3Efs").body;
    assert!(page.contains("Different from the pin") && page.contains("<code>description</code>"), "{page}");
    assert!(page.contains("<ins>+Says it again<span class=\"unseen\">\\u{e0041}</span>"), "{page}");
    assert!(page.contains("agentsh mcp pins trust --server"), "{page}");
}
