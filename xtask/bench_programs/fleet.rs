//! Hosts without machines: journals that are chained as real ones, forwarded at a steady rate.
//!
//! `fleet URL HOSTS RATE SECONDS`, with a token for each host and then a credential on lines of standard input.

use std::time::{Duration, Instant};

use agentsh_egress::resolve::Resolver;
use agentsh_egress::target::Rules;
use agentsh_fleet::Client;
use agentsh_fleet::batch::{Batch, JournalPosition};
use agentsh_fleet::key_files::HostFile;
use agentsh_fleet::keys::HostKey;
use agentsh_fleet::wire::{Enrol, Enrolled, Position};
use agentsh_store::raw::{FIRST_LINK, Raw};
use serde_json::{Value, json};

/// Events of one session.
const SESSION: u64 = 2000;
/// How often each question is asked.
const QUESTIONS: usize = 40;

fn http() -> agentsh_egress::Client {
    agentsh_egress::Client::new(Resolver::system_lookup().unwrap(), Rules::user_configured())
}

struct Host {
    client: Client,
    number: usize,
    place: JournalPosition,
    session: String,
    seq: u64,
}

impl Host {
    async fn enrol(url: &str, token: &str, number: usize) -> Self {
        let key = HostKey::make().unwrap();
        let public = HostKey::read(&key).unwrap().public();
        let asked = Enrol {
            token: token.to_owned(),
            name: format!("host{number}"),
            key: public,
            version: "bench".to_owned(),
        };
        let Enrolled { host } = Client::anonymous(http(), url).post("/v1/enrol", &asked).await.unwrap();
        let file = HostFile { url: url.to_owned(), host, name: String::new(), key };
        let client = Client::host(http(), &file).unwrap();
        Self { client, number, place: JournalPosition { id: 0, hash: None }, session: String::new(), seq: 0 }
    }

    fn rows(&mut self, number: u64) -> Vec<Raw> {
        let mut before = self.place.hash.unwrap_or(FIRST_LINK);
        let mut rows = Vec::new();
        for id in (self.place.id + 1..).take(usize::try_from(number).unwrap()) {
            if self.seq.is_multiple_of(SESSION) {
                (self.session, self.seq) = (uuid::Uuid::now_v7().to_string(), 0);
            }
            self.seq += 1;
            let server = format!("server{}", id % 7);
            let body = match self.seq {
                1 => {
                    json!({"type": "session_started", "version": "bench", "verb": "run", "agent": ["claude"],
                    "project": "/home/user/project", "policy": "default", "kernel": "6", "uid": 1000})
                }
                seq if seq % 2 == 0 => {
                    json!({"type": "mcp_tool_called", "server_id": server, "tool_name": "read_file",
                    "jsonrpc_id": seq, "input": {"path": format!("/home/user/project/src/file{seq}.rs"), "limit": 200}})
                }
                seq => {
                    json!({"type": "mcp_tool_call_intercepted", "server_id": server, "tool_name": "read_file",
                    "jsonrpc_id": seq - 1, "action": if seq % 101 == 0 { "block" } else { "allow" },
                    "reason": "tool-allowed", "rule": {"id": "sandbox.mcp", "file": "policy.yaml", "line": 12}})
                }
            };
            let time = jiff::Timestamp::now();
            let mut row = Raw {
                id,
                session: self.session.clone(),
                seq: self.seq,
                time: format!("{time:.6}"),
                body: body.to_string(),
                hash: FIRST_LINK,
            };
            row.hash = row.hash_behind(&before);
            before = row.hash;
            rows.push(row);
        }
        rows
    }

    /// Sends `rate` rows each second. Gives the seconds from each batch to its answer, and how often it was to come later.
    async fn run(mut self, rate: u64, seconds: u64, hosts: usize) -> (Vec<f64>, u64, u64) {
        let (mut times, mut later, mut sent) = (Vec::new(), 0, 0);
        // Not all at once.
        let phase =
            Duration::from_secs(1) * u32::try_from(self.number).unwrap() / u32::try_from(hosts).unwrap();
        let start = Instant::now() + phase;
        for second in 0..seconds {
            tokio::time::sleep_until((start + Duration::from_secs(second)).into()).await;
            let rows = self.rows(rate);
            let last = rows.last().unwrap();
            let next = JournalPosition { id: last.id, hash: Some(last.hash) };
            let packed = Batch { after: self.place, rows }.to_gzip().unwrap();
            let begun = Instant::now();
            while let Err(error) = self.client.send::<Position>("/v1/events", packed.clone()).await {
                assert!(!error.is_final(), "{error}");
                later += 1;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            times.push(begun.elapsed().as_secs_f64());
            sent += rate;
            self.place = next;
        }
        (times, later, sent)
    }
}

pub fn main(words: &[String]) {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let (url, hosts, rate, seconds) =
        (words[0].clone(), usize::try_from(number(1)).unwrap(), number(2), number(3));
    let lines: Vec<String> = std::io::stdin().lines().map(Result::unwrap).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = runtime.block_on(async {
        let mut tasks = Vec::new();
        let mut enrolled = Vec::new();
        for (index, token) in lines.iter().take(hosts).enumerate() {
            enrolled.push(Host::enrol(&url, token, index).await);
        }
        let begun = Instant::now();
        for host in enrolled {
            tasks.push(tokio::spawn(host.run(rate / hosts as u64, seconds, hosts)));
        }
        let (mut times, mut later, mut sent) = (Vec::new(), 0, 0);
        for task in tasks {
            let (own, refused, rows) = task.await.unwrap();
            times.extend(own);
            later += refused;
            sent += rows;
        }
        let elapsed = begun.elapsed().as_secs_f64();
        let person = Client::with_credential(http(), &url, lines[hosts].clone());
        let mut questions = Vec::new();
        for path in [
            "/v1/events?limit=100",
            "/v1/events?kind=mcp_tool_call_intercepted&action=block&limit=100&with_calls=true",
            "/v1/servers?limit=1000",
        ] {
            for _ in 0..QUESTIONS {
                let begun = Instant::now();
                let _answer: Value = person.get(path).await.unwrap();
                questions.push(begun.elapsed().as_secs_f64());
            }
        }
        json!({"sent": sent, "seconds": elapsed, "later": later, "arrivals": times, "questions": questions})
    });
    println!("{answer}");
}
