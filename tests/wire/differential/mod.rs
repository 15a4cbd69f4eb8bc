//! A client gets from a server through agentsh what it gets from it directly: results, errors, order and ends. A
//! server plays recordings, each once directly and once through `agentsh mcp run` or `agentsh gateway`; the client
//! accepts what both official SDKs accept. Recordings are the rows of [`recordings`], and mutations of them from a
//! seed.

mod client;
mod http;
mod recordings;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::support::{Mode, Peer, Place};
use client::HttpClient;
use recordings::{Recording, Seed};

/// Recordings of the second test, which are played on one connection.
const MUTATIONS: u64 = 500;
/// Maximum wait for data that has already arrived.
const SOON: Duration = Duration::from_secs(5);
/// A busy machine starts two programs.
const START: Duration = Duration::from_secs(30);

/// How long to listen after the last answer of a server that ended, and for messages that the last one of a recording
/// overtook.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The messages that a client gets, in order.
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
    /// A request of the server under the id of one that the client has not answered yet: an answer could belong to
    /// either.
    IdInUse,
    /// A call whose HTTP answer no client can take ends with an error that says what it was.
    Told,
    /// The valid part of such an answer is passed on.
    Saved,
    /// The stream of an answer that ends without it ends the call; it may come by another stream, which one of the two SDKs waits
    /// for.
    EndsWithItsStream,
    /// A lost session is started again, and the server may offer something else then.
    Begun,
    /// A request of a server that has ended is withdrawn, because it cannot get the answer.
    Withdrawn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    Run,
    Gateway,
}

/// The client of the server, direct or through agentsh.
enum Speaker {
    Http(HttpClient),
    Lines(Box<Peer>),
}

impl Speaker {
    /// The endpoint `id` of a gateway.
    fn of_gateway(gateway: &Gateway, id: &str) -> Self {
        Self::Http(HttpClient::new(&format!("http://{}/mcp/{id}", gateway.address)))
    }

    fn send(&mut self, message: &Value) {
        match self {
            Self::Http(client) => client.send(message),
            Self::Lines(peer) => peer.send(message),
        }
    }

    fn line_within(&mut self, limit: Duration) -> Option<Vec<u8>> {
        match self {
            Self::Http(client) => client.line_within(limit),
            Self::Lines(peer) => peer.line_within(limit),
        }
    }

    fn begin(&mut self) {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"roots": {}},
            "clientInfo": {"name": "suite", "version": "1"}});
        self.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        self.line_within(START).expect("a handshake");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        self.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
        self.line_within(START).expect("a listing");
    }

    fn call(&mut self, recording: &Recording) {
        for (id, token) in recording.ids() {
            let params = json!({"name": "t", "arguments": {"call": id}, "_meta": {"progressToken": token}});
            self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
        }
    }

    /// Adds what a client takes; what asks something is answered.
    fn take(&mut self, one: Heard, heard: &mut Vec<Heard>) {
        match &one {
            // The second answer to a request is ignored.
            Heard::Result(id, _) | Heard::Error(id, _) if is_answered(heard, *id) => return,
            Heard::Said(message) => {
                if let Some(id) = message.get("id") {
                    self.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}}));
                }
            }
            _ => {}
        }
        heard.push(one);
    }

    /// As a client does whose call timed out.
    fn give_up(&mut self, recording: &Recording, heard: &[Heard]) {
        for (id, _) in recording.ids().filter(|(id, _)| !is_answered(heard, *id)) {
            let params = json!({"requestId": id, "reason": "timed out"});
            self.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
        }
    }
}

fn is_answered(heard: &[Heard], id: i64) -> bool {
    heard.iter().any(|one| matches!(one, Heard::Result(known, _) | Heard::Error(known, _) if *known == id))
}

/// A gateway gives each answer by a stream of its own.
fn sort_answers(heard: &mut [Heard]) {
    heard.sort_by_key(|one| match one {
        Heard::Result(id, _) | Heard::Error(id, _) => Some(*id),
        Heard::Said(_) => None,
    });
}

#[test]
fn answers_arrive_as_without_agentsh() {
    for mode in Mode::all() {
        compare(mode, Through::Run, &recordings::rows());
        compare(mode, Through::Gateway, &recordings::rows());
    }
}

#[test]
fn mutated_answers_arrive_as_without_agentsh() {
    let seed = Seed::of_environment();
    let recordings: Vec<Recording> = (0..MUTATIONS).map(|at| recordings::mutated(seed, at)).collect();
    compare(Mode::Invoker, Through::Run, &recordings);
    compare(Mode::Invoker, Through::Gateway, &recordings);
}

#[test]
#[ignore = "takes long"]
fn connection_ends_arrive_as_without_agentsh() {
    for recording in recordings::ends() {
        for through in [Through::Run, Through::Gateway] {
            // Its own: a server that broke off in earlier sessions is warned about in the results of later ones.
            let place = Place::new(Mode::Invoker);
            let mut sides = Sides::start(&place, through, std::slice::from_ref(&recording));
            let started = Instant::now();
            let mut direct = sides.direct.play(0, &recording, None);
            let mut other = sides.guarded.play(0, &recording, Some(&direct));
            assert!(started.elapsed() < SOON, "{recording:?}");
            if through == Through::Gateway {
                sort_answers(&mut direct);
                sort_answers(&mut other);
            }
            let differences = differences(&recording, &direct, &other);
            assert!(
                differences.iter().all(|(rule, _)| rule.is_some()),
                "{through:?} {recording:#?} {differences:#?}"
            );
            let [direct, guarded] = sides.end();
            assert_eq!(guarded.unwrap_or(direct.unwrap()), direct.unwrap(), "exit status of {recording:#?}");
        }
    }
}

/// One client directly and one through agentsh, each with a server of its own.
struct Sides {
    direct: Speaker,
    guarded: Speaker,
    gateway: Option<Gateway>,
}

impl Sides {
    fn start(place: &Place, through: Through, recordings: &[Recording]) -> Self {
        let text: Vec<String> = recordings.iter().map(Recording::line).collect();
        let file = place.write("recordings", text.join("\n"));
        let server = place.program("fixture_server");
        let mut direct = place.command(&server);
        let direct = Speaker::Lines(Box::new(Peer::start(direct.arg("plays").arg(&file))));
        let mut gateway = None;
        let guarded = match through {
            Through::Run => Speaker::Lines(Box::new(Peer::server(place, &["plays", file.to_str().unwrap()]))),
            Through::Gateway => {
                let endpoint = json!({"id": "near", "command": server, "args": ["plays", file]});
                let text = json!({"listen": "127.0.0.1:0", "auth": {"open": true},
                    "limits": {"requests_per_minute": 0}, "endpoints": [endpoint]});
                let gateway = gateway.insert(Gateway::start(place, &text.to_string()));
                Speaker::of_gateway(gateway, "near")
            }
        };
        let mut sides = Self { direct, guarded, gateway };
        sides.direct.begin();
        sides.guarded.begin();
        sides
    }

    /// Exit statuses; a gateway does not end with a server.
    fn end(self) -> [Option<i32>; 2] {
        assert_eq!(self.gateway.map_or(0, Gateway::stop), 0);
        [self.direct, self.guarded].map(|speaker| match speaker {
            Speaker::Lines(peer) => Some(peer.finish().0),
            Speaker::Http(_) => None,
        })
    }
}

fn compare(mode: Mode, through: Through, recordings: &[Recording]) {
    let place = Place::new(mode);
    let mut sides = Sides::start(&place, through, recordings);
    let mut wrong = Vec::new();
    let mut answered = 0;
    for (at, recording) in recordings.iter().enumerate() {
        let mut direct = sides.direct.play(at, recording, None);
        let mut other = sides.guarded.play(at, recording, Some(&direct));
        answered += direct.iter().filter(|heard| matches!(heard, Heard::Result(..))).count();
        if through == Through::Gateway {
            sort_answers(&mut direct);
            sort_answers(&mut other);
        }
        let differences = differences(recording, &direct, &other);
        if differences.iter().any(|(rule, _)| rule.is_none()) {
            wrong.push(format!("{recording:#?}\ndirectly {direct:#?}\nthrough {other:#?}\n{differences:#?}"));
        }
    }
    // A client that took nothing would see no difference.
    assert!(answered >= recordings.len() / 2, "{answered} of {}", recordings.len());
    assert!(
        wrong.is_empty(),
        "{mode:?} {through:?}: {} of {} differ\n{}",
        wrong.len(),
        recordings.len(),
        wrong.join("\n\n")
    );
    assert!(sides.end().into_iter().flatten().all(|status| status == 0));
}

impl Speaker {
    /// Sends the requests, on which the recording is played, and hears until its end. Over HTTP that may overtake what was said before it:
    /// then what was heard `directly` is waited for.
    fn play(&mut self, at: usize, recording: &Recording, directly: Option<&[Heard]>) -> Vec<Heard> {
        self.call(recording);
        let mut heard = Vec::new();
        let mut deadline = Instant::now() + SOON;
        let mut is_played = false;
        loop {
            let is_over = match (directly, &*self) {
                (Some(directly), Self::Http(_)) => {
                    let answers =
                        recording.ids().all(|(id, _)| is_answered(&heard, id) || !is_answered(directly, id));
                    let all =
                        directly.iter().all(|one| !matches!(one, Heard::Said(_)) || heard.contains(one));
                    is_played && answers && all
                }
                _ => is_played,
            };
            if is_over {
                break;
            }
            // Little else can come from a server that ended, and agentsh itself keeps running.
            if recording.end.is_some() && recording.ids().all(|(id, _)| is_answered(&heard, id)) {
                deadline = deadline.min(Instant::now() + LAST_WORDS);
            }
            let Some(line) = self.line_within(deadline.saturating_duration_since(Instant::now())) else {
                break;
            };
            match hear(&line, recording) {
                Some(Heard::Said(message)) if message["method"] == "notifications/played" => {
                    assert_eq!(message["params"]["at"], at, "another recording");
                    is_played = true;
                    deadline = deadline.min(Instant::now() + crate::support::patience(LAST_WORDS));
                }
                Some(one) => self.take(one, &mut heard),
                None => {}
            }
        }
        assert!(is_played || recording.end.is_some(), "no end of {recording:#?}");
        if recording.end.is_none() {
            self.give_up(recording, &heard);
        }
        heard
    }
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
    // Common messages have the same order on both sides, and none is repeated or invented.
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
