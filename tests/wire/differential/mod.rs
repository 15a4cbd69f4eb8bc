//! What a client hears of a server through agentsh is what it hears of it directly: results, errors, order and ends. A server
//! plays recordings, each once directly and once through `agentsh mcp run`; the client takes what both official SDKs take.
//! Recordings are the rows of [`recordings`], and mutations of them from a seed.

mod client;
mod http;
mod recordings;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Mode, Peer, Place};
use recordings::{Recording, Seed};

/// Recordings of the second test, which are played on one connection.
const MUTATIONS: u64 = 500;
/// No client waits for so long for what is here already.
const SOON: Duration = Duration::from_secs(5);

/// How long is listened behind the last answer of a server that ended.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What a client hears, in order.
#[derive(Clone, Debug, PartialEq)]
enum Heard {
    Result(i64, Value),
    Error(i64, Value),
    /// A notification or a request of the server.
    Said(Value),
}

/// Where agentsh may differ, and why. Everything else is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// A call whose answer cannot be read, or never comes, ends with an error that says so; directly it waits until it times
    /// out.
    NobodyWaitsForever,
    /// Of two members with one name and unequal values some readers take the first and some the last: refused.
    UnequalMembers,
    /// An answer that cannot be taken ends its request at once; a second one comes too late.
    FirstAnswerCounts,
    /// A request of the server under the id of one that the client has not answered yet: nobody could say to which an answer
    /// belongs.
    IdInUse,
    /// A call whose HTTP answer no client can take ends with an error that says what it was.
    Told,
    /// What a server said in such an answer all the same is passed on.
    Saved,
    /// The stream of an answer that ends without it ends the call; it may come by another stream, which one of the two SDKs waits
    /// for.
    EndsWithItsStream,
    /// A session that is lost is begun anew, and what the server offers may be something else then.
    Begun,
    /// What a server asked that has ended is withdrawn: nobody can hear the answer.
    Withdrawn,
}

#[test]
fn every_kind_of_answer_is_heard_as_directly() {
    for mode in Mode::all() {
        compare(mode, &recordings::rows());
    }
}

#[test]
fn mutations_are_heard_as_directly() {
    let seed = Seed::of_environment();
    let recordings: Vec<Recording> = (0..MUTATIONS).map(|at| recordings::mutated(seed, at)).collect();
    compare(Mode::Invoker, &recordings);
}

#[test]
#[ignore = "takes long"]
fn ends_are_as_directly() {
    for recording in recordings::ends() {
        // Its own: a server that broke off in earlier sessions is warned about in the results of later ones.
        let place = Place::new(Mode::Invoker);
        let file = place.write("recordings", recording.line());
        let [direct, through] = both(&place, &file).map(|mut peer| {
            begin(&mut peer);
            let started = Instant::now();
            let heard = play(&mut peer, 0, &recording);
            let (status, errors) = peer.finish();
            assert!(started.elapsed() < SOON, "{recording:?} {errors}");
            (heard, status)
        });
        let differences = differences(&recording, &direct.0, &through.0);
        assert!(differences.iter().all(|(rule, _)| rule.is_some()), "{recording:#?} {differences:#?}");
        assert_eq!(through.1, direct.1, "exit status of {recording:#?}");
    }
}

fn both(place: &Place, file: &std::path::Path) -> [Peer; 2] {
    let server = place.program("fixture_server");
    let mut direct = place.command(&server);
    direct.arg("plays").arg(file);
    [Peer::start(&mut direct), Peer::server(place, &["plays", file.to_str().unwrap()])]
}

fn begin(peer: &mut Peer) {
    peer.shake_hands();
    peer.request("tools/list", json!({}));
}

fn compare(mode: Mode, recordings: &[Recording]) {
    let place = Place::new(mode);
    let text: Vec<String> = recordings.iter().map(Recording::line).collect();
    let file = place.write("recordings", text.join("\n"));
    let [direct, through] = both(&place, &file).map(|mut peer| {
        begin(&mut peer);
        let heard: Vec<Vec<Heard>> =
            recordings.iter().enumerate().map(|(at, recording)| play(&mut peer, at, recording)).collect();
        let (status, errors) = peer.finish();
        assert_eq!(status, 0, "{errors}");
        heard
    });
    let mut wrong = Vec::new();
    let mut answered = 0;
    for ((recording, direct), through) in recordings.iter().zip(&direct).zip(&through) {
        answered += direct.iter().filter(|heard| matches!(heard, Heard::Result(..))).count();
        let differences = differences(recording, direct, through);
        if differences.iter().any(|(rule, _)| rule.is_none()) {
            wrong.push(format!(
                "{recording:#?}\ndirectly {direct:#?}\nthrough {through:#?}\n{differences:#?}"
            ));
        }
    }
    // A client that took nothing would see no difference.
    assert!(answered >= recordings.len() / 2, "{answered} of {}", recordings.len());
    assert!(
        wrong.is_empty(),
        "{mode:?}: {} of {} differ\n{}",
        wrong.len(),
        recordings.len(),
        wrong.join("\n\n")
    );
}

/// Sends the requests, has the recording played, and hears until its end.
fn play(peer: &mut Peer, at: usize, recording: &Recording) -> Vec<Heard> {
    for (id, token) in recording.ids() {
        let params = json!({"name": "t", "arguments": {}, "_meta": {"progressToken": token}});
        peer.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    peer.send(&json!({"jsonrpc": "2.0", "method": "notifications/play", "params": {"at": at}}));
    let mut heard = Vec::new();
    let is_answered = |heard: &[Heard], id: i64| {
        heard
            .iter()
            .any(|one| matches!(one, Heard::Result(known, _) | Heard::Error(known, _) if *known == id))
    };
    let mut deadline = Instant::now() + SOON;
    while let Some(line) = peer.line_within(deadline.saturating_duration_since(Instant::now())) {
        let Some(one) = hear(&line, recording) else { continue };
        match &one {
            Heard::Said(message) if message["method"] == "notifications/played" => {
                assert_eq!(message["params"]["at"], at, "another recording");
                break;
            }
            // The second answer to a request is read by nobody.
            Heard::Result(id, _) | Heard::Error(id, _) if is_answered(&heard, *id) => continue,
            Heard::Said(message) => {
                if let Some(id) = message.get("id") {
                    peer.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}}));
                }
                heard.push(one);
            }
            _ => heard.push(one),
        }
        // Little else can come of a server that ended, and agentsh itself goes on.
        if recording.end.is_some() && recording.ids().all(|(id, _)| is_answered(&heard, id)) {
            deadline = deadline.min(Instant::now() + LAST_WORDS);
        }
    }
    assert!(
        Instant::now() < deadline || recording.end.is_some(),
        "no end of {recording:#?}: {}",
        peer.errors()
    );
    for (id, _) in recording.ids().filter(|(id, _)| !is_answered(&heard, *id)) {
        if recording.end.is_none() {
            let params = json!({"requestId": id, "reason": "timed out"});
            peer.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
        }
    }
    heard
}

/// A line as both official SDKs take it; None where one of them does not.
fn hear(line: &[u8], recording: &Recording) -> Option<Heard> {
    let message: Value = serde_json::from_slice(line).ok()?;
    if message["jsonrpc"] != "2.0" {
        return None;
    }
    if message["method"].is_string() {
        return Some(Heard::Said(message));
    }
    let id = match &message["id"] {
        Value::Number(number) => number.as_f64()?,
        // The number that a text spells.
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    let id = recording.ids().map(|(known, _)| known).find(|known| *known as f64 == id)?;
    match (message.get("result"), message.get("error")) {
        (Some(result), None) if result.is_object() => Some(Heard::Result(id, result.clone())),
        (None, Some(error)) if error["code"].is_i64() && error["message"].is_string() => {
            Some(Heard::Error(id, error.clone()))
        }
        _ => None,
    }
}

/// Whether a line that names the request, and that no client takes, comes before its answer.
fn is_refused_first(recording: &Recording, id: i64) -> bool {
    let names =
        |line: &&String| line.contains(&format!("\"id\":{id}")) || line.contains(&format!("\"id\":\"{id}\""));
    recording.lines.iter().find(names).is_some_and(|line| hear(line.as_bytes(), recording).is_none())
}

/// Each difference with the rule that allows it, if one does.
fn differences(recording: &Recording, direct: &[Heard], through: &[Heard]) -> Vec<(Option<Rule>, String)> {
    let mut found = Vec::new();
    let answer = |heard: &[Heard], id: i64| {
        let is_it =
            |one: &&Heard| matches!(one, Heard::Result(known, _) | Heard::Error(known, _) if *known == id);
        heard.iter().find(is_it).cloned()
    };
    let mut differ = Vec::new();
    for (id, _) in recording.ids() {
        let (one, other) = (answer(direct, id), answer(through, id));
        if one == other {
            continue;
        }
        differ.push(id);
        let reason = match &other {
            Some(Heard::Error(_, error)) => error["data"]["reason"].as_str().unwrap_or_default(),
            _ => "",
        };
        let rule = match &one {
            None if !reason.is_empty() => Some(Rule::NobodyWaitsForever),
            Some(_) if recording.has_unequal && reason == "duplicate-key" => Some(Rule::UnequalMembers),
            Some(_) if !reason.is_empty() && is_refused_first(recording, id) => Some(Rule::FirstAnswerCounts),
            _ => None,
        };
        found.push((rule, format!("request {id}: directly {one:?}, through agentsh {other:?}")));
    }
    // What is the same on both sides has one order, and nothing is said twice or made up.
    let rest = |heard: &[Heard]| -> Vec<Heard> {
        let is_same = |one: &&Heard| match one {
            Heard::Result(id, _) | Heard::Error(id, _) => !differ.contains(id),
            Heard::Said(_) => true,
        };
        heard.iter().filter(is_same).cloned().collect()
    };
    let (one, mut other) = (rest(direct), rest(through).into_iter().peekable());
    let mut open = BTreeSet::new();
    for heard in one {
        let is_in_use = matches!(&heard, Heard::Said(message) if !open.insert(message["id"].to_string()))
            && !matches!(&heard, Heard::Said(message) if message["id"].is_null());
        if other.next_if_eq(&heard).is_some() {
            continue;
        }
        let rule = match heard {
            Heard::Said(_) if recording.has_unequal => Some(Rule::UnequalMembers),
            Heard::Said(_) if is_in_use => Some(Rule::IdInUse),
            _ => None,
        };
        found.push((rule, format!("lost or out of order: {heard:?}")));
    }
    found.extend(other.map(|heard| {
        let is_withdrawal =
            matches!(&heard, Heard::Said(message) if message["method"] == "notifications/cancelled");
        let rule = (is_withdrawal && recording.end.is_some()).then_some(Rule::Withdrawn);
        (rule, format!("too much: {heard:?}"))
    }));
    found
}
