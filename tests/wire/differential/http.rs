//! The same over HTTP: what a server says to two calls is in the bodies of their answers or on the stream for all
//! other messages; directly, through `agentsh mcp run --url`, and through `agentsh gateway`.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::HttpClient;
use super::recordings::{self, Recording, Seed};
use super::{Heard, Rule, SOON, Speaker, Through, differences, hear, is_answered, sort_answers};
use crate::gateway::Gateway;
use crate::support::http_server::{Asked, End, HttpServer, Reply, handshake};
use crate::support::{Mode, Peer, Place, eventually};

const MUTATIONS: u64 = 500;
/// How long is listened where directly nothing more comes, or a stream stays open.
const QUIET: Duration = Duration::from_millis(150);
/// Next to the bodies of the two answers: the stream for everything else.
const GENERAL: usize = 2;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// How one call is answered.
#[derive(Clone, Debug)]
struct Delivery {
    status: u16,
    kind: &'static str,
    end: End,
    cuts: Vec<usize>,
    /// How events are written.
    spelling: usize,
    packed: bool,
    /// The announced length exceeds the sent bytes by this number.
    missing: Option<usize>,
    /// The stream ends after this many events; they have ids, with which the rest can be requested.
    pause: Option<usize>,
}

#[derive(Clone, Debug)]
struct Carried {
    recording: Recording,
    ways: [Delivery; 2],
    /// The places of each line.
    places: Vec<usize>,
}

impl Carried {
    fn new(recording: Recording, kind: &'static str) -> Self {
        let way = Delivery {
            status: 200,
            kind,
            end: End::Whole,
            cuts: Vec::new(),
            spelling: 0,
            packed: false,
            missing: None,
            pause: None,
        };
        let (_, second) = recording.pair();
        let mut current = 0;
        let mut place = |line: &String| {
            if line.contains("\"id\"") {
                current = usize::from(line.contains(&second.to_string()));
            }
            current
        };
        let places = recording.lines.iter().map(&mut place).collect();
        Self { recording, ways: [way.clone(), way], places }
    }

    fn lines(&self, place: usize) -> impl Iterator<Item = &String> {
        let all = self.recording.lines.iter().zip(&self.places);
        all.filter(move |(_, at)| **at == place).map(|(line, _)| line)
    }

    fn events(&self, place: usize) -> Vec<String> {
        let Delivery { spelling, pause, .. } = self.ways[place];
        let number = self.recording.number();
        let each = self.lines(place).map(|line| match spelling {
            1 => format!("event: message\r\ndata:{line}\r\n\r\n"),
            2 => format!(": ping\n\ndata: {line}\n\n"),
            3 => format!("event: ping\ndata: {{}}\n\nevent:message\ndata: {line}\n\n"),
            4 => format!("retry: 20\ndata: {}\n\n", line.replacen(",\"", ",\ndata: \"", 1)),
            5 => format!("data: \n\ndata\n\ndata: {line}\r\r"),
            6 => format!("\u{feff}data: {line}\n\n"),
            _ => format!("data: {line}\n\n"),
        });
        match pause {
            None => each.collect(),
            Some(_) => {
                let named = (1..).zip(each).map(|(at, event)| format!("id: {number}-{place}-{at}\n{event}"));
                let first = format!("id: {number}-{place}-0\nretry: 20\ndata: \n\n");
                std::iter::once(first).chain(named).collect()
            }
        }
    }

    fn reply(&self, place: usize) -> Reply {
        let way = &self.ways[place];
        let body = match way.kind.starts_with(EVENTS) {
            true => {
                let events = self.events(place);
                let shown = way.pause.map_or(events.len(), |pause| events.len().min(pause + 1));
                events[..shown].concat()
            }
            false => self.lines(place).cloned().collect::<Vec<_>>().join("\n"),
        };
        let mut reply = Reply { end: way.end, ..Reply::status(way.status) };
        if !way.kind.is_empty() {
            reply = reply.with("Content-Type", way.kind);
        }
        if way.packed {
            reply = reply.with("Content-Encoding", "gzip");
        }
        if let Some(missing) = way.missing {
            reply = reply.with("Content-Length", &(body.len() + missing).to_string());
            reply.end = if missing > 0 { End::Broken } else { End::Whole };
        }
        let mut cuts: Vec<usize> = way.cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
        cuts.retain(|cut| body.is_char_boundary(*cut));
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        reply.pieces = cuts.windows(2).map(|pair| body[pair[0]..pair[1]].to_owned()).collect();
        reply
    }

    /// The stream that contains a message; None if several do.
    fn place_of(&self, heard: &Heard) -> Option<usize> {
        let is_it = |line: &str| hear(line.as_bytes(), &self.recording).as_ref() == Some(heard);
        let mut places = (0..=GENERAL).filter(|place| self.lines(*place).any(|line| is_it(line)));
        places.next().filter(|_| places.next().is_none())
    }

    /// The call was taken, and its answer may come by the stream for everything else for as long as that is there.
    fn is_put_off(&self, id: i64, directly: &[Heard]) -> bool {
        let way = &self.ways[usize::from(id == self.recording.pair().1)];
        let is_answer =
            |one: &Heard| matches!(one, Heard::Result(own, _) | Heard::Error(own, _) if *own == id);
        way.status == 202 && !directly.iter().any(is_answer)
    }

    /// Text after an answer in its stream, or in an invalid stream: not every client reads it.
    fn is_unread(&self, heard: &Heard) -> bool {
        let answers = |line: &String| {
            matches!(hear(line.as_bytes(), &self.recording), Some(Heard::Result(..) | Heard::Error(..)))
        };
        (0..GENERAL).any(|place| {
            let way = &self.ways[place];
            let is_whole = way.status == 200
                && way.kind.starts_with(EVENTS)
                && !way.packed
                && self.lines(place).next().is_some();
            let read = if is_whole { self.lines(place).take_while(|line| !answers(line)).count() } else { 0 };
            let mut rest = self.lines(place).skip(read);
            rest.any(|line| hear(line.as_bytes(), &self.recording).as_ref() == Some(heard))
        })
    }

    /// Whether the server said this in answer to the call, wherever.
    fn says(&self, heard: &Heard) -> bool {
        let all = self.recording.lines.iter();
        all.flat_map(|line| match serde_json::from_str(line) {
            Ok(Value::Array(all)) => all.iter().map(Value::to_string).collect(),
            _ => vec![line.clone()],
        })
        .any(|line| match (hear(line.as_bytes(), &self.recording), heard) {
            (Some(Heard::Error(known, one)), Heard::Error(id, other)) => known == *id && one == *other,
            (Some(one), other) => one == *other,
            // An error without an id is about the call in whose answer it stands.
            (None, Heard::Error(_, other)) => serde_json::from_str(&line)
                .is_ok_and(|message: Value| message["id"].is_null() && message["error"] == *other),
            (None, _) => false,
        })
    }

    /// Whether an error of agentsh says what happened to this call.
    fn is_true(&self, place: usize, message: &str) -> bool {
        let way = &self.ways[place];
        let is_json = way.kind.to_ascii_lowercase().starts_with(JSON);
        let is_read = is_json || way.kind.starts_with(EVENTS);
        let id = [self.recording.pair().0, self.recording.pair().1][place];
        let names = |line: &String| line.contains(&id.to_string());
        let is_it = |heard| matches!(heard, Heard::Result(own, _) | Heard::Error(own, _) if own == id);
        // A mark of byte order is one at the beginning alone.
        let read = match (way.spelling, way.pause) {
            (6, None) => 1,
            (6, Some(_)) => 0,
            _ => usize::MAX,
        };
        let mut own = self.lines(place).take(read);
        let has_body = !matches!(way.status, 202 | 204);
        let is_answered =
            has_body && own.any(|line| hear(line.as_bytes(), &self.recording).is_some_and(is_it));
        match message {
            _ if message.contains("HTTP ") => {
                way.status >= 300 && message.contains(&format!("HTTP {}", way.status))
            }
            _ if message.contains("neither JSON nor") => !is_read && way.status < 300,
            _ if message.contains("is not JSON") => is_json,
            _ if message.contains("compressed") => way.packed,
            _ if message.contains("ended the session") => way.status == 404,
            _ if message.contains("ended the answer before") => {
                !is_answered || way.end == End::Broken || way.end == End::Reset || way.missing > Some(0)
            }
            _ if message.contains("duplicate") || message.contains("twice") => self.recording.has_unequal,
            _ if message.contains("answer is broken") => {
                matches!(way.end, End::Broken | End::Reset | End::HalfClosed) || way.missing > Some(0)
            }
            // The proxy's error for a line that it cannot forward.
            _ => self.recording.lines.iter().any(names),
        }
    }
}

/// Plays what is carried to whoever calls: both calls of a recording are there before it says anything.
fn serve(all: &[Carried]) -> HttpServer {
    let all = all.to_vec();
    let general: Mutex<Option<Sender<String>>> = Mutex::default();
    let arrived: Vec<AtomicUsize> = all.iter().map(|_| AtomicUsize::new(0)).collect();
    HttpServer::start(move |asked| {
        if asked.method == "GET" {
            if let Some(last) = asked.header("last-event-id") {
                let numbers: Vec<usize> = last.split('-').map(|number| number.parse().unwrap()).collect();
                let events = all[numbers[0]].events(numbers[1]);
                return Reply::events(
                    &events[numbers[2] + 1..].iter().map(String::as_str).collect::<Vec<_>>(),
                );
            }
            let (sender, receiver) = channel();
            *general.lock().unwrap() = Some(sender);
            return Reply::events(&[": here\n\n"]).fed(receiver);
        }
        let message = asked.message();
        match asked.rpc().as_str() {
            "tools/list" => {
                let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
                Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}))
            }
            "tools/call" => {
                let (at, place) = number_of(asked);
                let carried = &all[at];
                if arrived[at].fetch_add(1, Ordering::SeqCst) == 1 {
                    assert!(eventually(|| general.lock().unwrap().is_some()), "nobody listens");
                    for line in carried.lines(GENERAL) {
                        let _ = general.lock().unwrap().as_ref().unwrap().send(line.clone());
                    }
                }
                eventually(|| arrived[at].load(Ordering::SeqCst) > 1);
                carried.reply(place)
            }
            _ => handshake(asked)
                .unwrap_or_else(|| Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "result": {}}))),
        }
    })
}

/// Which recording is called, and which of its two calls this is.
fn number_of(asked: &Asked) -> (usize, usize) {
    let token = asked.message()["params"]["arguments"]["call"].as_u64().unwrap();
    let number = usize::try_from(token - 1000).unwrap();
    (number / 2, number % 2)
}

impl Speaker {
    /// Both calls, and what is heard until nothing more comes. Directly nothing is expected; else what was heard `directly` is
    /// waited for, and an end of each call.
    fn hear_out(&mut self, carried: &Carried, directly: Option<&[Heard]>) -> Vec<Heard> {
        let recording = &carried.recording;
        self.call(recording);
        let mut heard: Vec<Heard> = Vec::new();
        let mut deadline = Instant::now() + SOON;
        // What comes by the other stream may come later than everything else.
        let is_general = directly.is_none() && carried.lines(GENERAL).next().is_some();
        let is_open = carried.ways.iter().any(|way| way.end == End::Open);
        let mut listens_on = is_general || is_open;
        loop {
            let is_over = match (directly, &*self) {
                (None, Self::Http(client)) => client.is_idle(recording.ids().map(|(id, _)| id)),
                (None, Self::Lines(_)) => false,
                (Some(directly), _) => {
                    let is_heard =
                        |one: &Heard| heard.contains(one) || carried.is_unread(one) || recording.has_unequal;
                    recording.ids().all(|(id, _)| is_answered(&heard, id) || carried.is_put_off(id, directly))
                        && directly.iter().all(|one| !matches!(one, Heard::Said(_)) || is_heard(one))
                }
            };
            if listens_on && (is_over || is_open) {
                listens_on = false;
                deadline = deadline.min(Instant::now() + QUIET);
            }
            let is_done = is_over && !is_general;
            let left = match is_done {
                true => Duration::ZERO,
                false => deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(2)),
            };
            let Some(line) = self.line_within(left) else {
                if is_done || Instant::now() >= deadline {
                    break;
                }
                continue;
            };
            let Some(one) = hear(&line, recording) else { continue };
            self.take(one, &mut heard);
        }
        if carried.ways.iter().any(|way| way.end == End::Closed) {
            // A client that reuses a connection before it notices that the other side closed it loses what it sends;
            // this is true of any client.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.give_up(recording, &heard);
        heard
    }
}

fn compare(through: Through, all: &[Carried]) {
    let place = Place::new(Mode::Invoker);
    let servers = [serve(all), serve(all)];
    let mut direct = Speaker::Http(HttpClient::new(&servers[0].url()));
    let url = servers[1].url();
    let mut gateway = None;
    let mut guarded = match through {
        Through::Run => {
            let mut command = place.agentsh(&["mcp", "run", "--id", "far", "--url", &url]);
            Speaker::Lines(Box::new(Peer::start(&mut command)))
        }
        Through::Gateway => {
            let file = format!(
                "listen: 127.0.0.1:0\nauth: {{open: true}}\nlimits: {{requests_per_minute: 0}}\nendpoints: [{{id: far, url: \"{url}\"}}]\n"
            );
            let gateway = gateway.insert(Gateway::start(&place, &file));
            Speaker::of_gateway(gateway, "far")
        }
    };
    direct.begin();
    guarded.begin();
    let mut wrong = Vec::new();
    let mut has_begun = false;
    let (mut answered, mut before) = (0, BTreeSet::new());
    for carried in all {
        let mut one = direct.hear_out(carried, None);
        let mut other = guarded.hear_out(carried, Some(&one));
        if through == Through::Gateway {
            // It gives each answer by a stream of its own, wherever the server put it.
            sort_answers(&mut one);
            sort_answers(&mut other);
        }
        answered += one.iter().filter(|heard| matches!(heard, Heard::Result(..))).count();
        // Late messages belong to the previous recording.
        other.retain(|heard| !matches!(heard, Heard::Said(said) if before.contains(&said.to_string())));
        let said =
            carried.recording.lines.iter().filter_map(|line| hear(line.as_bytes(), &carried.recording));
        before.extend(said.filter_map(|heard| match heard {
            Heard::Said(said) => Some(said.to_string()),
            _ => None,
        }));
        has_begun |= carried.ways.iter().any(|way| way.status == 404);
        let found = differ(carried, has_begun, &one, &other);
        if found.iter().any(|(rule, _)| rule.is_none()) {
            wrong.push(format!("{carried:#?}\ndirectly {one:#?}\nthrough {other:#?}\n{found:#?}"));
        }
    }
    wrong.extend(delivered_otherwise(all, &servers));
    assert!(answered >= all.len() / 2, "{answered} of {}", all.len());
    assert!(wrong.is_empty(), "{through:?}: {} of {} differ\n{}", wrong.len(), all.len(), wrong.join("\n\n"));
}

/// No call reaches the server more often than directly: nothing is done twice. A lost session is started again, and
/// the call is repeated in it. A call that never arrives has no result, which [`differ`] finds: on a connection that
/// the server is closing both ways of ending are right.
fn delivered_otherwise(all: &[Carried], servers: &[HttpServer; 2]) -> Option<String> {
    let counts = servers.each_ref().map(|server| {
        let mut counts = vec![[0_usize; 2]; all.len()];
        for asked in server.asked().iter().filter(|asked| asked.rpc() == "tools/call") {
            let (at, place) = number_of(asked);
            counts[at][place] += 1;
        }
        counts
    });
    let all = all.iter().enumerate().flat_map(|(at, carried)| [0, 1].map(|place| (at, place, carried)));
    let wrong: Vec<String> = all
        .filter(|(at, place, carried)| {
            let is_lost = carried.ways[*place].status == 404;
            counts[1][*at][*place] > counts[0][*at][*place] + usize::from(is_lost)
        })
        .map(|(at, place, carried)| {
            format!(
                "sent {} times instead of {}: {place} of {carried:#?}",
                counts[1][at][place], counts[0][at][place]
            )
        })
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("\n"))
}

/// As over standard output; what is in different streams has no order.
fn differ(
    carried: &Carried,
    has_begun: bool,
    direct: &[Heard],
    through: &[Heard],
) -> Vec<(Option<Rule>, String)> {
    let recording = &carried.recording;
    let place_of = |id: i64| usize::from(id == recording.pair().1);
    let answer = |heard: &[Heard], id: i64| {
        let is_it =
            |one: &&Heard| matches!(one, Heard::Result(known, _) | Heard::Error(known, _) if *known == id);
        heard.iter().find(is_it).cloned()
    };
    let mut found = Vec::new();
    let mut told = BTreeSet::new();
    for (id, _) in recording.ids() {
        let other = answer(through, id);
        let failed =
            matches!(answer(direct, id), Some(Heard::Error(_, error)) if error["data"]["transport"] == true);
        let said = other.as_ref().is_some_and(|other| carried.says(other));
        match &other {
            Some(Heard::Error(_, error)) if !said => {
                let message = error["message"].as_str().unwrap();
                let is_true = carried.is_true(place_of(id), message);
                let rule = is_true.then_some(Rule::Told);
                if failed || !is_true {
                    told.insert(id);
                    found.push((rule, format!("request {id}: {message}")));
                }
            }
            Some(_) if said && (failed || answer(direct, id).is_none()) => {
                told.insert(id);
                found.push((Some(Rule::Saved), format!("request {id}: {other:?}")));
            }
            _ => {}
        }
    }
    let is_rest = |heard: &&Heard| match heard {
        Heard::Result(id, _) | Heard::Error(id, _) => !told.contains(id),
        Heard::Said(_) => !carried.is_unread(heard),
    };
    for place in [Some(0), Some(1), Some(GENERAL), None] {
        let [one, other] = [direct, through].map(|heard| {
            let own = heard.iter().filter(is_rest).filter(|heard| match heard {
                Heard::Result(id, _) | Heard::Error(id, _) => {
                    let known = answer(direct, *id).and_then(|heard| carried.place_of(&heard));
                    known == place
                }
                Heard::Said(_) => carried.place_of(heard) == place,
            });
            let mut own: Vec<Heard> = own.cloned().collect();
            if place.is_none() {
                own.sort_by_key(|heard| format!("{heard:?}"));
            }
            own
        });
        found.extend(differences(recording, &one, &other));
    }
    for (rule, text) in found.iter_mut().filter(|(rule, _)| rule.is_none()) {
        let is_elsewhere = |id: i64| {
            let own = place_of(id);
            let answered = answer(direct, id).and_then(|heard| carried.place_of(&heard));
            answered.is_some_and(|place| place != own)
        };
        let ids = recording.ids().map(|(id, _)| id);
        let is_of = |id: &i64| text.starts_with(&format!("request {id}: "));
        if text.contains("server 'far': ") && ids.filter(is_of).any(is_elsewhere) {
            *rule = Some(Rule::EndsWithItsStream);
        }
        if has_begun && text.contains("too much") && text.contains("notifications/tools/list_changed") {
            *rule = Some(Rule::Begun);
        }
    }
    // A call that has no answer on either side is in no stream.
    found.retain(|(_, text)| !text.ends_with("directly None, through agentsh None"));
    found
}

#[test]
fn answers_over_http_arrive_as_without_agentsh() {
    let both = [EVENTS, JSON];
    let all: Vec<Carried> = (0..)
        .zip(recordings::texts().iter().flat_map(|row| both.map(|kind| (row, kind))))
        .map(|(number, (row, kind))| Carried::new(Recording::new(number, row), kind))
        .collect();
    compare(Through::Run, &all);
    compare(Through::Gateway, &all);
}

#[test]
#[ignore = "takes long"]
fn mutated_answers_over_http_arrive_as_without_agentsh() {
    let seed = Seed::of_environment();
    let all: Vec<Carried> = (0..MUTATIONS).map(|at| mutated(seed, at)).collect();
    compare(Through::Run, &all);
    compare(Through::Gateway, &all);
}

/// A mutated recording in answers that are mutated up to three times.
fn mutated(seed: Seed, number: u64) -> Carried {
    let recording = recordings::mutated(seed, number);
    let mut seed = seed.of(number ^ 1 << 40);
    let mut carried = Carried::new(recording, if seed.below(3) > 0 { EVENTS } else { JSON });
    for _ in 0..=seed.below(3) {
        change(&mut seed, &mut carried);
    }
    carried
}

fn change(seed: &mut Seed, carried: &mut Carried) {
    const KINDS: &[&str] = &[
        "Application/JSON",
        "application/json; charset=utf-8",
        "text/event-stream;charset=utf-8",
        "text/event-stream",
        "application/json",
        "text/plain",
        "text/html",
        "",
    ];
    const STATUSES: &[u16] = &[201, 202, 204, 400, 401, 403, 404, 429, 500, 502, 503];
    const ENDS: &[End] = &[End::Closed, End::Broken, End::Reset, End::HalfClosed];
    let count = carried.places.len();
    let way = &mut carried.ways[seed.below(2)];
    match seed.below(12) {
        0 => way.kind = KINDS[seed.below(KINDS.len())],
        1 => way.status = STATUSES[seed.below(STATUSES.len())],
        2 | 3 => way.end = ENDS[seed.below(ENDS.len())],
        // Seldom, since nobody knows that nothing comes.
        4 if seed.below(4) == 0 => way.end = End::Open,
        4 | 5 => way.cuts = (0..=seed.below(5)).map(|_| seed.below(1 << 16)).collect(),
        6 | 7 => way.spelling = seed.below(7),
        8 => way.pause = Some(seed.below(3)),
        9 => way.missing = Some(seed.below(2) * 7),
        10 if seed.below(4) == 0 => way.packed = true,
        10 => {
            // Accepted, and answered by the stream for everything else.
            let place = seed.below(2);
            carried.ways[place].status = 202;
            carried.places.iter_mut().filter(|at| **at == place).for_each(|at| *at = GENERAL);
        }
        _ => carried.places[seed.below(count)] = seed.below(GENERAL + 1),
    }
}
