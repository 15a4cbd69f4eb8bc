//! Resident memory of agentsh: with three servers, and after many calls.

use anyhow::{Context, Result, ensure};

use super::mcp::{Client, processes};
use super::measure::{Bound, Report, display_value};
use super::place::Place;

const CALLS: u32 = 100_000;
/// Calls in a second that are to be carried for as long as anybody asks.
const RATE: u32 = 20_000;
/// What an allocator may round up to; growth with the number of calls would be far more.
const NOISE_MIB: f64 = 2.0;
/// What the guard may hold, whatever servers do, and the results that try it.
const GUARD_MIB: f64 = 32.0;
const RESULTS: u32 = 100;
const MEGABYTE: u32 = 1_000_000;
const SETTLED: std::time::Duration = std::time::Duration::from_secs(2);

pub fn measure(place: &Place, report: &mut Report) -> Result<()> {
    let mut client = Client::start(place, &place.bridged("three.json"))?;
    client.order("calls 2000 5")?;
    // What a start needs leaves memory a second after it; agents run for hours.
    std::thread::sleep(SETTLED);
    let own = processes(&client, &place.agentsh)?;
    ensure!(!own.is_empty(), "no process of agentsh found");
    let sum = |key: &str| -> Result<f64> { own.iter().map(|pid| mebibytes(*pid, key)).sum() };
    let (resident, share) = (sum("Rss")?, sum("Pss")?);
    report.line(
        "resident memory with three servers",
        &format!(
            "{} processes of agentsh, shared pages counted once {},",
            own.len(),
            display_value(share, "MiB")
        ),
        ("together", resident, "MiB"),
        Bound::AtMost(25.0),
    );
    let (_, refused) = client.pipeline(CALLS, RATE)?;
    let before = sum("Private_Dirty")?;
    let (seconds, refused_later) = client.pipeline(CALLS, RATE)?;
    let after = sum("Private_Dirty")?;
    report.line(
        &format!("{CALLS} calls, {RATE} asked for in a second, twice"),
        &format!("the second time in {},", display_value(seconds, "s")),
        ("refused", (refused + refused_later) as f64, "calls"),
        Bound::AtMost(0.0),
    );
    report.line(
        &format!("memory after {CALLS} more calls"),
        &format!("private {} before, {} after,", display_value(before, "MiB"), display_value(after, "MiB")),
        ("grown by", after - before, "MiB"),
        Bound::AtMost(NOISE_MIB),
    );
    measure_bounded(place, report)
}

/// What is remembered of results, however much servers say: all of it private, and to be looked for in every call.
fn measure_bounded(place: &Place, report: &mut Report) -> Result<()> {
    let mut client = Client::start(place, &place.aggregated("two.json"))?;
    client.order("calls 2000 5")?;
    std::thread::sleep(SETTLED);
    let own = processes(&client, &place.agentsh)?;
    let sum = || -> Result<f64> { own.iter().map(|pid| mebibytes(*pid, "Private_Dirty")).sum() };
    let before = sum()?;
    client.order("notes 20000")?;
    client.order(&format!("words {RESULTS} {MEGABYTE}"))?;
    client.order("calls 2000 5")?;
    std::thread::sleep(SETTLED);
    let after = sum()?;
    report.line(
        &format!("state of the guard after 20000 short results and {RESULTS} of 1 MB"),
        &format!("private {} before, {} after,", display_value(before, "MiB"), display_value(after, "MiB")),
        ("grown by", after - before, "MiB"),
        Bound::AtMost(GUARD_MIB),
    );
    Ok(())
}

/// One row of `smaps_rollup`.
pub fn mebibytes(pid: u32, key: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let row = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = row.and_then(|row| row.split_whitespace().next()?.parse::<f64>().ok());
    Ok(number.with_context(|| format!("no {key} in {path}"))? / 1024.0)
}
