//! The fleet server: 50 hosts at 10,000 events a second for a minute, and questions afterwards.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::measure::{Bar, Report, Samples, milliseconds};
use super::place::Place;

const HOSTS: usize = 50;

pub fn measure(place: &Place, database: &str, rate: u32, seconds: u32, report: &mut Report) -> Result<()> {
    let mut server = place
        .command(&place.agentsh)
        .args(["fleet", "serve", "--listen", "127.0.0.1:0", "--database", database])
        .stdout(Stdio::piped())
        .spawn()?;
    let measured = with(place, database, rate, seconds, server.stdout.take().context("no output")?);
    let _ended = server.kill();
    let _reaped = server.wait();
    let answer = measured?;
    let numbers = |name: &str| -> Samples {
        Samples::new(answer[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect())
    };
    let (arrivals, questions) = (numbers("arrivals"), numbers("questions"));
    let sent = answer["sent"].as_f64().unwrap_or_default();
    let reached = sent / answer["seconds"].as_f64().unwrap_or(1.0);
    let what =
        format!("{HOSTS} hosts, {rate} events/s for {seconds} s, {} told to come later", answer["later"]);
    report.line(
        &what,
        &milliseconds(&arrivals),
        ("events/s", reached, ""),
        Bar::AtLeast(f64::from(rate) * 0.9),
    );
    report.line(
        "a batch until it is on disk",
        &milliseconds(&arrivals),
        ("p95", arrivals.p95(), "s"),
        Bar::AtMost(2.0),
    );
    report.line("a question", &milliseconds(&questions), ("p95", questions.p95(), "s"), Bar::AtMost(0.2));
    Ok(())
}

fn with(place: &Place, database: &str, rate: u32, seconds: u32, output: impl std::io::Read) -> Result<Value> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let url = line.trim().strip_prefix("listening on ").context("the server does not start")?.to_owned();
    let token = |role: &str| -> Result<String> {
        let words = ["fleet", "token", "--role", role, "--database", database];
        let made = place.command(&place.agentsh).args(words).output()?;
        ensure!(made.status.success(), "no token: {}", String::from_utf8_lossy(&made.stderr));
        Ok(String::from_utf8(made.stdout)?.trim().to_owned())
    };
    let mut input = String::new();
    for _ in 0..HOSTS {
        input += &(token("host")? + "\n");
    }
    let viewer = token("viewer")?;
    let login = ["fleet", "login", "--url", &url, "--token", &viewer];
    ensure!(place.command(&place.agentsh).args(login).stdout(Stdio::null()).status()?.success(), "no login");
    let file = place.home.join(".local/state/agentsh/fleet/login.json");
    let file: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    input += file["credential"].as_str().context("no credential")?;
    let mut hosts = place
        .command(&place.bench)
        .args(["fleet", &url, &HOSTS.to_string(), &rate.to_string(), &seconds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    hosts.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    let ended = hosts.wait_with_output()?;
    ensure!(ended.status.success(), "the hosts ended with {}", ended.status);
    Ok(serde_json::from_slice(&ended.stdout)?)
}
