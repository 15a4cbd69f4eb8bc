//! What the proxy adds to a call.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::exfil;
use super::measure::{Bound, Report, Samples, display_value, microseconds, milliseconds};
use super::place::Place;

/// Small calls of one turn.
const TURN: u32 = 100;
const MEGABYTE: u32 = 1_000_000;
/// The ways through agentsh, in the order of the clients behind the direct one.
const PATHS: [&str; 3] = ["mcp run", "the bridge", "proxy"];
/// Calls on the way at once when calls are pipelined.
const WINDOW: u32 = 128;

/// A measuring client that takes orders.
pub struct Client {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// Starts it and waits until its servers answered.
    pub fn start(place: &Place, command: &[String]) -> Result<Self> {
        let (program, arguments) = command.split_first().context("an empty command")?;
        let mut command = place.command(program);
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the client")?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().context("a pipe")?;
        let mut client = Self { child, orders, answers: BufReader::new(answers) };
        client.answer()?;
        Ok(client)
    }

    /// Sends one order and waits for the answer.
    pub fn order(&mut self, order: &str) -> Result<Value> {
        let orders = self.orders.as_mut().context("a pipe")?;
        orders.write_all(format!("{order}\n").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the client ended: {}", self.child.wait()?);
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// An order whose answer is a list of times.
    pub fn times(&mut self, order: &str) -> Result<Vec<f64>> {
        Ok(self.order(order)?.as_array().into_iter().flatten().filter_map(Value::as_f64).collect())
    }

    /// Small calls, [`WINDOW`] of them on the way at once, `per_second` of them a second (0 for as many as
    /// possible): seconds, and how many were refused.
    pub fn pipeline(&mut self, calls: u32, per_second: u32) -> Result<(f64, u64)> {
        let answer = self.order(&format!("pipeline {calls} {WINDOW} {per_second}"))?;
        Ok((answer[0].as_f64().context("seconds")?, answer[1].as_u64().context("a number")?))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}

pub fn measure(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let mut direct = Client::start(place, &place.direct())?;
    let mut proxied = Client::start(place, &place.proxied())?;
    let mut bridged = Client::start(place, &place.bridged("one.json"))?;
    let mut aggregated = Client::start(place, &place.aggregated("proxy.json"))?;
    let mut clients = [&mut direct, &mut proxied, &mut bridged, &mut aggregated];

    let small = in_turns(&mut clients, rounds.div_ceil(5).max(20), &format!("calls {TURN} 5"))?;
    for (samples, path) in small[1..].iter().zip(PATHS) {
        report.line(
            &format!("small call through {path}"),
            &format!("agentsh {}  direct {}", microseconds(samples), microseconds(&small[0])),
            ("added", samples.median() - small[0].median(), "us"),
            Bound::AtMost(60.0),
        );
    }
    let large = in_turns(&mut clients, rounds.div_ceil(10).max(10), &format!("calls 3 {MEGABYTE}"))?;
    for (samples, path) in large[1..].iter().zip(PATHS) {
        report.line(
            &format!("result of 1 MB through {path}"),
            &format!("agentsh {}  direct {}", milliseconds(samples), milliseconds(&large[0])),
            ("added", (samples.median() - large[0].median()) / 1e3, "ms"),
            // `proxy` looks into it as well.
            Bound::AtMost(if path == "proxy" { 10.0 } else { 5.0 }),
        );
    }
    drop((direct, proxied, bridged, aggregated));
    exfil::measure(place, rounds, report)?;
    pipelined(place, report)
}

/// Every client does the same in turns, so that what else happens on the machine meets all of them.
fn in_turns(clients: &mut [&mut Client; 4], turns: u32, order: &str) -> Result<[Samples; 4]> {
    let mut times: [Vec<f64>; 4] = Default::default();
    for turn in 0..=turns {
        for (client, times) in clients.iter_mut().zip(&mut times) {
            let measured = client.times(order)?;
            // The first turn warms up.
            if turn > 0 {
                times.extend(measured);
            }
        }
    }
    Ok(times.map(Samples::new))
}

/// Everything on one processor: how many calls a second, and how much of the processor agentsh itself took.
fn pipelined(place: &Place, report: &mut Report) -> Result<()> {
    const CALLS: u32 = 20_000;
    let on_one =
        |command: Vec<String>| [["taskset", "-c", "0"].map(str::to_owned).to_vec(), command].concat();
    let rate = |client: &mut Client| -> Result<f64> {
        let (seconds, refused) = client.pipeline(CALLS, 0)?;
        ensure!(refused == 0, "{refused} calls were refused");
        Ok(f64::from(CALLS) / seconds)
    };
    let direct = rate(&mut Client::start(place, &on_one(place.direct()))?)?;
    let commands = [place.proxied(), place.bridged("one.json"), place.aggregated("proxy.json")];
    for (command, path) in commands.into_iter().zip(PATHS) {
        let mut client = Client::start(place, &on_one(command))?;
        let own = processes(&client, &place.agentsh)?;
        let before: f64 = own.iter().map(|pid| processor_seconds(*pid)).sum();
        let through = rate(&mut client)?;
        let used = own.iter().map(|pid| processor_seconds(*pid)).sum::<f64>() - before;
        let each = used * 1e6 / f64::from(CALLS);
        let numbers = format!(
            "agentsh {} with client and server  direct {}  agentsh's own time {} a call,",
            display_value(through, "calls/s"),
            display_value(direct, "calls/s"),
            display_value(each, "us")
        );
        report.line(
            &format!("pipelined calls on one processor through {path}"),
            &numbers,
            ("so", 1e6 / each, "calls/s"),
            Bound::AtLeast(20_000.0),
        );
    }
    Ok(())
}

/// All processes below a client (and itself) that are agentsh.
pub fn processes(client: &Client, agentsh: &Path) -> Result<Vec<u32>> {
    let mut family = BTreeSet::from([client.pid()]);
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    // Children may have lower numbers than their parents.
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent)| family.contains(parent) && !family.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        family.extend(more);
    }
    let is_agentsh = |pid: &u32| {
        let program: Option<PathBuf> = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        program.is_some_and(|program| program.file_name() == agentsh.file_name())
    };
    Ok(family.into_iter().filter(is_agentsh).collect())
}

/// Time on a processor of all threads so far.
pub fn processor_seconds(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}
