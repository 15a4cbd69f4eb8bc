//! The model's channel next to a bare reverse proxy: `model AGENTSH ROUNDS` is a model that streams, starts the proxy
//! (`model-proxy`), and gives orders to two clients: one of the proxy, and one in the sandbox of an agent.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::ordered::Client;

/// The word that makes this program the client, wherever an adapter puts its own arguments.
pub const CLIENT: &str = "model-client";
const FIRSTS: usize = 50;
const EVENTS: usize = 100;
/// Text of one large answer, in bytes, and of each of its events.
const STREAM: usize = 256 << 20;
const SIZE: usize = 1000;
const STREAMS: usize = 5;
const HELD: usize = 2000;
const DESCRIPTORS: usize = 3 * HELD + 1024;

pub fn main(words: &[String]) {
    let (agentsh, rounds) = (&words[0], words[1].parse::<usize>().unwrap());
    let model = serve_model();
    let own = std::env::current_exe().unwrap();
    let mut proxy = Command::new(&own)
        .args(["model-proxy", &model.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let base = |address: &str| format!("http://{address}");
    // A program that agentsh knows as an agent with a model.
    let agent = std::env::current_dir().unwrap().join("claude");
    std::fs::copy(&own, &agent).unwrap();
    let policy = format!("version: 1\nagent: {{limits: {{open_files: {DESCRIPTORS}}}}}\n");
    std::fs::write("model.yaml", policy).unwrap();
    let options = ["run", "--quiet", "--policy", "./model.yaml", "--"];
    let mut bare = client_of(Command::new(&own).arg(CLIENT), &base(line.trim()));
    let mut judged =
        client_of(Command::new(agentsh).args(options).arg(&agent).arg(CLIENT), &base(&model.to_string()));
    let (mut first, mut event, mut stream) = ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
    // The first turn warms up. A machine may be quick or slow for seconds, so turns are short.
    for round in 0..=rounds.clamp(2, 40) {
        for (at, client) in [&mut bare, &mut judged].into_iter().enumerate() {
            let (firsts, events) =
                (client.order(&format!("first {FIRSTS}")), client.order(&format!("event {EVENTS}")));
            if round > 0 {
                for (times, measured) in [(&mut first[at], firsts), (&mut event[at], events)] {
                    times.extend(measured.as_array().unwrap().iter().filter_map(Value::as_f64));
                }
            }
        }
    }
    for round in 0..=STREAMS {
        for (client, rates) in [&mut bare, &mut judged].into_iter().zip(&mut stream) {
            let seconds = client.order(&format!("stream {STREAM}")).as_f64().unwrap();
            if round > 0 {
                rates.push(STREAM as f64 / 1e6 / seconds);
            }
        }
    }
    let before = resident(judged.id());
    let failed = judged.order(&format!("hold {HELD}"));
    let after = resident(judged.id());
    drop((bare, judged));
    drop(proxy.stdin.take());
    let _ = proxy.wait();
    let [bare_first, judged_first] = first;
    let [bare_event, judged_event] = event;
    let [bare_stream, judged_stream] = stream;
    println!(
        "{}",
        json!({"first": {"bare": bare_first, "judged": judged_first},
            "event": {"bare": bare_event, "judged": judged_event},
            "stream": {"bare": bare_stream, "judged": judged_stream},
            "held": {"count": HELD, "failed": failed, "before": before, "after": after}})
    );
}

/// MiB of one process.
fn resident(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let row = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    row.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

fn client_of(command: &mut Command, base: &str) -> Client {
    Client::start(command.env("ANTHROPIC_BASE_URL", base).env("ANTHROPIC_API_KEY", "k"), "first 1")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn nanoseconds() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

/// The model, on a thread of its own. What a request wants is in its body.
fn serve_model() -> SocketAddr {
    let (told, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                tokio::spawn(speak(stream));
            }
        });
    });
    address.recv().unwrap()
}

async fn speak(mut stream: TcpStream) -> std::io::Result<()> {
    let mut read = Vec::new();
    loop {
        let head = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let whole = head + length.unwrap_or(0_usize);
        while read.len() < whole {
            stream.read_buf(&mut read).await?;
        }
        let asked: Value = serde_json::from_slice(&read[head..whole]).unwrap_or_default();
        read.drain(..whole);
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
            )
            .await?;
        let number = |name: &str| asked["metadata"][name].as_u64().unwrap_or(0);
        let (events, size, gap) =
            (number("events"), usize::try_from(number("size")).unwrap(), number("gap_ms"));
        let mut out = Vec::new();
        let filler = "word ".repeat(size / 5);
        for _ in 0..events {
            let delta = format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
                 {{\"type\":\"text_delta\",\"text\":\"{} {filler}\"}}}}\n\n",
                nanoseconds()
            );
            out.extend_from_slice(format!("{:x}\r\n{delta}\r\n", delta.len()).as_bytes());
            if gap > 0 || out.len() > 64 << 10 {
                stream.write_all(&out).await?;
                out.clear();
            }
            if gap > 0 {
                tokio::time::sleep(Duration::from_millis(gap)).await;
            }
        }
        stream.write_all(&out).await?;
        if asked["metadata"]["hold"] == true {
            // Until the other side hangs up.
            while stream.read_buf(&mut read).await? > 0 {}
            return Ok(());
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
}

/// What every proxy has to do: `model-proxy ADDRESS`.
pub fn proxy(words: &[String]) {
    let model: SocketAddr = words[0].parse().unwrap();
    // It ends with the one who started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().lines().count();
        std::process::exit(0);
    });
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let far = TcpStream::connect(model).await.unwrap();
                far.set_nodelay(true).unwrap();
                let (sender, connection) = client::handshake::<_, Incoming>(TokioIo::new(far)).await.unwrap();
                tokio::spawn(connection);
                let sender = std::sync::Arc::new(tokio::sync::Mutex::new(sender));
                let service = service_fn(move |request: Request<Incoming>| {
                    let sender = std::sync::Arc::clone(&sender);
                    async move {
                        let mut sender = sender.lock().await;
                        sender.ready().await?;
                        sender.send_request(request).await
                    }
                });
                let _ = server::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}

/// Follows orders, on the address that `ANTHROPIC_BASE_URL` gives.
pub fn client() {
    let base = std::env::var("ANTHROPIC_BASE_URL").unwrap();
    let address: SocketAddr = base.trim_start_matches("http://").parse().unwrap();
    let runtime = runtime();
    let local = tokio::task::LocalSet::new();
    let mut held = Vec::new();
    let mut connection = local.block_on(&runtime, connect(address));
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (what, number) = line.split_once(' ').unwrap();
        let number: usize = number.parse().unwrap();
        let answer = local.block_on(&runtime, async {
            match what {
                "first" => {
                    let mut times = Vec::new();
                    for _ in 0..number {
                        let began = Instant::now();
                        let mut body = ask(&mut connection, &json!({"events": 1})).await;
                        body.frame().await.unwrap().unwrap();
                        times.push(began.elapsed().as_secs_f64() * 1e6);
                        while body.frame().await.is_some() {}
                    }
                    json!(times)
                }
                "event" => {
                    let wanted = json!({"events": number, "gap_ms": 1});
                    let mut body = ask(&mut connection, &wanted).await;
                    let mut times = Vec::new();
                    while let Some(frame) = body.frame().await {
                        let now = nanoseconds();
                        let Ok(bytes) = frame.unwrap().into_data() else { continue };
                        let text = String::from_utf8_lossy(&bytes);
                        let sent =
                            text.rsplit_once("\"text\":\"").and_then(|(_, rest)| rest.split(' ').next());
                        let Some(sent) = sent.and_then(|digits| digits.parse::<u128>().ok()) else {
                            continue;
                        };
                        times.push(now.saturating_sub(sent) as f64 / 1e3);
                    }
                    json!(times)
                }
                "stream" => {
                    let began = Instant::now();
                    let wanted = json!({"events": number / SIZE, "size": SIZE});
                    let mut body = ask(&mut connection, &wanted).await;
                    let mut got = 0;
                    while let Some(frame) = body.frame().await {
                        got += frame.unwrap().into_data().map_or(0, |bytes| bytes.len());
                    }
                    assert!(got > number, "{got} bytes of {number}");
                    json!(began.elapsed().as_secs_f64())
                }
                _ => {
                    let mut failed = 0;
                    for _ in 0..number {
                        let mut connection = connect(address).await;
                        let mut body = ask(&mut connection, &json!({"events": 1, "hold": true})).await;
                        failed += usize::from(!matches!(body.frame().await, Some(Ok(_))));
                        held.push((connection, body));
                    }
                    json!(failed)
                }
            }
        });
        println!("{answer}");
    }
}

/// A connection, and the address that its requests are for.
struct Sender(client::SendRequest<Full<Bytes>>, SocketAddr);

async fn connect(address: SocketAddr) -> Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = client::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::task::spawn_local(connection);
    Sender(sender, address)
}

async fn ask(sender: &mut Sender, wanted: &Value) -> Incoming {
    let body = json!({"model": "m", "stream": true, "messages": [], "metadata": wanted}).to_string();
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/messages")
        .header("host", sender.1.to_string())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    sender.0.ready().await.unwrap();
    let answer = sender.0.send_request(request).await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());
    answer.into_body()
}
