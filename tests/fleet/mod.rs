//! `agentsh fleet`: hosts that forward what they recorded, the server that checks and keeps it, and people who ask.

mod approvals;
mod arrival;
mod bundle;
mod clocks;
mod database;
mod inside;
mod killed;
mod offline;
mod oidc;
mod pages;
mod plans;
mod provider;
mod queries;
mod receipts;
mod refused;
mod restore;
mod subject;
mod tls;
mod units;
mod upgrade;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Mode, Outcome, Peer, Place, postgres, processes, skip};

/// `agentsh fleet serve`, in a place of its own.
pub struct Server<'a> {
    place: &'a Place,
    child: Child,
    pub address: String,
    words: Vec<String>,
}

impl<'a> Server<'a> {
    pub fn start(place: &'a Place, database: &str, words: &[&str]) -> Self {
        Self::start_at(place, database, "127.0.0.1:0", words)
    }

    pub fn start_at(place: &'a Place, database: &str, listen: &str, words: &[&str]) -> Self {
        let mut all = vec!["--database".to_owned(), database.to_owned()];
        all.extend(words.iter().map(|word| (*word).to_owned()));
        let (child, address) = Self::begin(place, listen, &all);
        Self { place, child, address, words: all }
    }

    fn begin(place: &Place, listen: &str, words: &[String]) -> (Child, String) {
        let mut command = place.agentsh(&["fleet", "serve", "--listen", listen]);
        let mut child = command.args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit("://").next().unwrap_or_default().to_owned();
        (child, address)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `kill -9`.
    pub fn end(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// At the same address; false where the database does not answer.
    pub fn again(&mut self) -> bool {
        self.end();
        let (child, address) = Self::begin(self.place, &self.address, &self.words);
        self.child = child;
        address == self.address
    }

    /// A token, made on the server's own machine.
    pub fn token(&self, role: &str, name: &str) -> String {
        let database = &self.words[1];
        let words = ["fleet", "token", "--role", role, "--name", name, "--database", database];
        Outcome::of(&mut self.place.agentsh(&words)).expect_code(0).stdout.trim().to_owned()
    }

    pub fn enrol(&self, host: &Place, name: &str) {
        let token = self.token("host", name);
        let url = self.url();
        Outcome::of(&mut host.agentsh(&["fleet", "enrol", "--url", &url, "--token", &token])).expect_code(0);
    }

    /// Logs in a user with a role, from a test directory.
    pub fn login(&self, at: &Place, role: &str) {
        let (token, url) = (self.token(role, role), self.url());
        Outcome::of(&mut at.agentsh(&["fleet", "login", "--url", &url, "--token", &token])).expect_code(0);
    }

    pub fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let has_length = headers.iter().any(|(name, _)| *name == "Content-Length");
        let length = if has_length { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}{length}Connection: close\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses by the head alone need not read the body.
        let _sent = stream.write_all(body);
        let mut answer = Vec::new();
        let _may_be_reset = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        (status, answer)
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// On a file, and on PostgreSQL where there is one.
pub fn on_both(test: impl Fn(&Place, &str)) {
    let place = Place::new(Mode::Invoker);
    test(&place, place.home.join("fleet.db").to_str().unwrap());
    drop(place);
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let place = Place::new(mode);
    let cluster = postgres::start(&place, &bin);
    test(&place, &cluster.url);
}

const DENIED: &str = "version: 1\nsandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: \"*\", tool: crash}]}}\n";

/// Everything that is recorded; without the forwarder that a session started.
pub fn forward(host: &Place, words: &[&str]) -> Outcome {
    let state = host.home.join(".local/state/agentsh");
    processes::end_below(&state);
    let mut all = vec!["fleet", "forward", "--once"];
    all.extend(words);
    Outcome::of(&mut host.agentsh(&all))
}

/// A session with a server, calls, and one that is refused.
pub fn session(host: &Place, calls: usize) {
    host.user_policy(DENIED);
    let mut peer = Peer::ready(host, &[]);
    for number in 0..calls {
        peer.text("echo", serde_json::json!({"text": format!("number {number}")}));
    }
    let refused = peer.request("tools/call", serde_json::json!({"name": "crash", "arguments": {}}));
    assert!(refused.get("error").is_some() || refused["result"]["isError"] == true, "{refused}");
    peer.finish();
}

pub fn asked(at: &Place, server: &Server<'_>, words: &[&str]) -> Vec<Value> {
    let url = server.url();
    let mut all = words.to_vec();
    all.extend(["--json", "--fleet", &url]);
    at.listed(&all)
}

pub fn hosts(at: &Place) -> (Vec<Value>, i32) {
    let outcome = Outcome::of(&mut at.agentsh(&["fleet", "hosts", "--json"]));
    (serde_json::from_str(&outcome.stdout).expect(&outcome.stderr), outcome.code)
}
