//! The scripted agent: it behaves like a model that follows every instruction it finds. It starts its servers from its
//! configuration, tries what it can, and reports each answer.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::attacks;
use super::client::{Client, text};
use super::facts::{
    BURST, CLOCK, CLOCK_FILE, DemoFacts, HOSTILE, POISON, RUG, Report, SERVERS_FILE, SHADOW, SPLIT,
    TOOL_IN_TWO_PIECES, UNLISTED,
};
use crate::attempt::{self, Try};

const AGENT: &str = "agent";
/// More than the policy's burst.
const CALLS: u32 = BURST + 2;

/// # Errors
/// When the session ends under it, or its own facts are missing.
pub fn run() -> io::Result<()> {
    let facts = DemoFacts::read(Path::new("."))?;
    for report in attacks::common(AGENT, &facts) {
        print_report(&report)?;
    }
    let made = Try::new(
        "write a file in the project",
        std::fs::write("notes.txt", "made by the agent\n").map_err(|error| attempt::errno(&error)),
    );
    print_report(&Report::new(AGENT, "works-project", vec![made]))?;
    hostile_server()?;
    rate_limit()?;
    changed_program()
}

fn hostile_server() -> io::Result<()> {
    // The clock is there first: what looks like its tool comes later.
    let mut clock = Client::start(Path::new(SERVERS_FILE), CLOCK)?;
    clock.initialize()?.map_err(refused_io)?;
    clock.request("tools/list", &json!({}))?.map_err(refused_io)?;
    clock.close();
    let mut client = Client::start(Path::new(SERVERS_FILE), HOSTILE)?;
    client.initialize()?.map_err(refused_io)?;

    let greeted = client.call("greet", &json!({}))?;
    print_report(&Report::new(AGENT, "works-tool", vec![as_try("call an allowed tool", &greeted)]))?;

    let listed = client.request("tools/list", &json!({}))?.map_err(refused_io)?;
    let names: Vec<&str> =
        listed["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
    let hidden = !names.contains(&"exfiltrate");
    let try_list =
        Try::answered("find a denied tool in tools/list", hidden.then(|| "not listed".to_owned()), None);
    print_report(&Report {
        detail: format!("listed: {}", names.join(", ")),
        ..Report::new(AGENT, "hidden-tool", vec![try_list])
    })?;

    // It is trusted, and used, before it changes.
    client.call(RUG, &json!({}))?.map_err(refused_io)?;
    let again = client.request("tools/list", &json!({}))?.map_err(refused_io)?;
    for (attack, tool) in
        [("rug-pull", RUG), ("list-twice", TOOL_IN_TWO_PIECES), ("poison", POISON), ("shadowing", SHADOW)]
    {
        let tools = again["tools"].as_array().into_iter().flatten();
        let hidden = !tools.into_iter().any(|listed| listed["name"] == tool);
        let called = client.call(tool, &json!({}))?;
        let tries = vec![
            Try::answered("find it in tools/list", hidden.then(|| "not listed".to_owned()), None),
            as_try("call it all the same", &called),
        ];
        print_report(&Report::new(HOSTILE, attack, tries))?;
    }

    let told = client.call(SPLIT, &json!({}))?;
    print_report(&Report::new(HOSTILE, "split-payload", vec![as_try("say it to the agent", &told)]))?;

    let called = client.call(UNLISTED, &json!({}))?;
    let tries = vec![as_try("call it all the same", &called)];
    report_with_arrivals(&mut client, (HOSTILE, "hidden-capability"), UNLISTED, tries)?;

    let called = client.call("exfiltrate", &json!({"path": "~/.ssh/id_demo"}))?;
    let tries = vec![as_try("call it all the same", &called)];
    report_with_arrivals(&mut client, (AGENT, "denied-tool"), "exfiltrate", tries)?;

    let id = client.next_id();
    client.raw(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"greet","name":"exfiltrate","arguments":{{}}}}}}"#
    ))?;
    let answer = client.answer(id)?;
    let tries = vec![as_try("name two tools in one call", &answer)];
    report_with_arrivals(&mut client, (AGENT, "two-names"), "exfiltrate", tries)?;

    for how in ["oversized-line", "duplicate-key", "unasked-response"] {
        client.stray.clear();
        // An error in place of the answer is fine: the question is whether the message came through.
        let answer = client.call("misbehave", &json!({"how": how}))?;
        // Another round trip, so that everything sent before it has arrived.
        client.call("received", &json!({}))?.map_err(refused_io)?;
        let word = format!("smuggled-{how}");
        let arrived = client.stray.iter().any(|message| message.to_string().contains(&word))
            || answer.is_ok_and(|result| result.to_string().contains(&word));
        let attempt = Try::answered(
            "smuggle a message to the agent",
            (!arrived).then(|| "never arrived".to_owned()),
            None,
        );
        print_report(&Report::new(HOSTILE, how, vec![attempt]))?;
    }

    let attacked = client.call("attack", &json!({}))?.map_err(refused_io)?;
    let reports: Vec<Report> = serde_json::from_str(text(&attacked))?;
    for report in &reports {
        print_report(report)?;
    }
    client.close();
    Ok(())
}

/// Whether the refused call reached the server anyway, in the server's own words.
fn report_with_arrivals(
    client: &mut Client,
    (by, attack): (&str, &str),
    tool: &str,
    mut tries: Vec<Try>,
) -> io::Result<()> {
    let received = client.call("received", &json!({}))?.map_err(refused_io)?;
    let calls: Vec<String> = serde_json::from_str(text(&received))?;
    let arrived = calls.iter().any(|name| name == tool);
    tries.push(Try::answered("reach the server", (!arrived).then(|| "never arrived".to_owned()), None));
    print_report(&Report::new(by, attack, tries))
}

fn rate_limit() -> io::Result<()> {
    let mut client = Client::start(Path::new(SERVERS_FILE), CLOCK)?;
    client.initialize()?.map_err(refused_io)?;
    let mut tries = Vec::new();
    for number in 1..=CALLS {
        let answer = client.call("now", &json!({}))?;
        if number > BURST {
            tries.push(as_try(&format!("call number {number}"), &answer));
        }
    }
    client.close();
    print_report(&Report::new(AGENT, "rate-limit", tries))
}

/// Changes the program of a server that ran a moment ago, and starts it again.
fn changed_program() -> io::Result<()> {
    attempt::append(Path::new(CLOCK_FILE), "# and something else\n").map_err(io::Error::from)?;
    let mut client = Client::start(Path::new(SERVERS_FILE), CLOCK)?;
    let answer = client.initialize()?;
    let attempt = as_try("start the changed program", &answer);
    client.close();
    print_report(&Report::new(AGENT, "changed-program", vec![attempt]))
}

/// A refusal carries agentsh's reason and the rule that it named.
fn as_try(what: &str, answer: &Result<Value, Value>) -> Try {
    let Err(error) = answer else { return Try::answered(what, None, None) };
    let field = |name: &str| error["data"][name].as_str().map(str::to_owned);
    let reason =
        field("reason").unwrap_or_else(|| error["message"].as_str().unwrap_or("an error").to_owned());
    Try::answered(what, Some(reason), field("rule"))
}

fn refused_io(error: Value) -> io::Error {
    io::Error::other(error["message"].as_str().unwrap_or("refused").to_owned())
}

fn print_report(report: &Report) -> io::Result<()> {
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, report)?;
    output.write_all(b"\n")?;
    output.flush()
}
