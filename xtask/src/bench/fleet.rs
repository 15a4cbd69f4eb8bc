//! The fleet server: 50 hosts at 10,000 events a second for a minute, and questions afterwards.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::measure::{Bound, Report, Samples, milliseconds};
use super::place::Place;

const HOSTS: usize = 50;

pub struct Load {
    pub rate: u32,
    pub seconds: u32,
    /// Of the days before; 0: none.
    pub events: u64,
    pub days: u32,
    /// How often each question is asked.
    pub rounds: u32,
}

/// Command-line queries, one per line, as typed. `SESSION` is a session from the middle of the database.
const QUESTIONS: &str = include_str!("../../../tests/fleet/questions.txt");
/// Of which the test of their plans has nothing to say: they look at no events, or at few on purpose.
const QUESTIONS_HERE: [&str; 4] =
    ["mcp events --type mcp_exfil_detected --host filled7", "mcp servers", "report SESSION", "fleet hosts"];

pub fn measure(place: &Place, database: &str, load: &Load, report: &mut Report) -> Result<()> {
    let mut server = place
        .command(&place.agentsh)
        .args(["fleet", "serve", "--listen", "127.0.0.1:0", "--database", database])
        .stdout(Stdio::piped())
        .spawn()?;
    let measured = with(place, database, load, server.stdout.take().context("no output")?, report);
    let peak = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
    let peak =
        peak.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim().to_owned();
    let _ended = server.kill();
    let _reaped = server.wait();
    measured?;
    crate::run::print_text(&format!("memory of the server at most: {peak}\n"));
    Ok(())
}

fn with(
    place: &Place,
    database: &str,
    load: &Load,
    output: impl std::io::Read,
    report: &mut Report,
) -> Result<()> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let url = line.trim().strip_prefix("listening on ").context("the server does not start")?.to_owned();
    let token = |role: &str| -> Result<String> {
        let words = ["fleet", "token", "--role", role, "--database", database];
        let made = place.command(&place.agentsh).args(words).output()?;
        ensure!(made.status.success(), "no token: {}", String::from_utf8_lossy(&made.stderr));
        Ok(String::from_utf8(made.stdout)?.trim().to_owned())
    };
    let viewer = token("viewer")?;
    let login = ["fleet", "login", "--url", &url, "--token", &viewer];
    ensure!(place.command(&place.agentsh).args(login).stdout(Stdio::null()).status()?.success(), "no login");
    if load.rate > 0 {
        let tokens = (0..HOSTS).map(|_| token("host")).collect::<Result<Vec<_>>>()?;
        arrivals(place, &url, load, &tokens, report)?;
    }
    if load.events > 0 {
        fill(place, database, load)?;
        questions(place, &url, load, report)?;
    }
    Ok(())
}

/// Hosts that send at a steady rate.
fn arrivals(place: &Place, url: &str, load: &Load, tokens: &[String], report: &mut Report) -> Result<()> {
    let file = place.home.join(".local/state/agentsh/fleet/login.json");
    let file: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let credential = file["credential"].as_str().context("no credential")?;
    let input = format!("{}\n{credential}", tokens.join("\n"));
    let (rate, seconds) = (load.rate, load.seconds);
    let mut hosts = place
        .command(&place.bench)
        .args(["fleet", url, &HOSTS.to_string(), &rate.to_string(), &seconds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    hosts.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    let ended = hosts.wait_with_output()?;
    ensure!(ended.status.success(), "the hosts ended with {}", ended.status);
    let answer: Value = serde_json::from_slice(&ended.stdout)?;
    let numbers = |name: &str| -> Samples {
        Samples::new(answer[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect())
    };
    let (arrivals, questions) = (numbers("arrivals"), numbers("questions"));
    let sent = answer["sent"].as_f64().unwrap_or_default();
    let reached = sent / answer["seconds"].as_f64().unwrap_or(1.0);
    let what =
        format!("{HOSTS} hosts, {rate} events/s for {seconds} s, {} told to come later", answer["later"]);
    let times = |samples: &Samples| {
        format!("{:.3} s, p95 {:.3} s, p99 {:.3} s", samples.median(), samples.p95(), samples.p99())
    };
    report.line(&what, &times(&arrivals), ("events/s", reached, ""), Bound::AtLeast(f64::from(rate) * 0.9));
    let on_disk = ("p99", arrivals.p99(), "s");
    report.line("a batch until it is on disk", &times(&arrivals), on_disk, Bound::AtMost(2.0));
    report.line("a question", &times(&questions), ("p95", questions.p95(), "s"), Bound::AtMost(0.2));
    Ok(())
}

/// Days of the fleet, as psql takes them.
fn fill(place: &Place, database: &str, load: &Load) -> Result<()> {
    let (events, days) = (load.events.to_string(), load.days.to_string());
    let mut script =
        place.command(&place.bench).args(["fleet-fill", &events, &days]).stdout(Stdio::piped()).spawn()?;
    let output = script.stdout.take().context("no script")?;
    let mut psql = place.command("psql");
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-d", database]).stdin(output);
    ensure!(psql.status()?.success() && script.wait()?.success(), "psql did not take the events");
    let size = "SELECT pg_database_size(current_database())";
    let size = place.command("psql").args(["-At", "-d", database, "-c", size]).output()?;
    let bytes: f64 = String::from_utf8(size.stdout)?.trim().parse().unwrap_or_default();
    let million = bytes / 1e6 / (load.events as f64 / 1e6);
    crate::run::print_text(&format!(
        "{events} events over {days} days: {:.0} MB, {million:.0} MB a million\n",
        bytes / 1e6
    ));
    Ok(())
}

/// Each question from the first process to its last line.
fn questions(place: &Place, url: &str, load: &Load, report: &mut Report) -> Result<()> {
    let ask = |words: &str| -> Result<std::process::Output> {
        let mut command = place.command(&place.agentsh);
        command.args(words.split(' ').chain(["--fleet", url]));
        Ok(command.output()?)
    };
    let page = ask("mcp events --host filled9 --json --limit 2500")?;
    let page: Value = serde_json::from_slice(&page.stdout)?;
    let last = page.as_array().and_then(|rows| rows.last()).context("nothing is there")?;
    let session = last["session"].as_str().context("no session")?.to_owned();
    for question in QUESTIONS.lines().chain(QUESTIONS_HERE) {
        let words = question.replace("SESSION", &session);
        let mut times = Vec::new();
        for _ in 0..load.rounds {
            let begun = std::time::Instant::now();
            let answer = ask(&words)?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            ensure!(
                answer.status.success() || words.starts_with("fleet hosts"),
                "{words}: {}",
                String::from_utf8_lossy(&answer.stderr)
            );
        }
        let times = Samples::new(times);
        report.line(question, &milliseconds(&times), ("p95", times.p95() / 1e6, "s"), Bound::AtMost(0.2));
    }
    Ok(())
}
