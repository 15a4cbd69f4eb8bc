//! `agentsh gateway` compared with a server without one, and with npm `supergateway` and PyPI `mcp-proxy`: the time of a small
//! call, calls per second of one processor, the cost of open streams, and whether anything is lost when servers fail.

mod http;
mod started;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::mcp::processor_seconds;
use super::measure::{Bound, Report, Samples, display_value, microseconds};
use crate::run::{print_text, succeed};
use http::{CallReply, Client, Upstream};
use started::{Room, Started};

/// Calls of one turn.
const TURN: u32 = 100;
const STREAMS: usize = 1000;
/// Clients that load at once.
const CLIENTS: usize = 8;
/// One call in this many fails at the server.
const FAILS: u64 = 100;

/// `seconds`: how long the load lasts.
pub fn measure(agentsh: &Path, rounds: u32, seconds: u32, report: &mut Report) -> Result<()> {
    let room = Room::make(agentsh)?;
    // A thousand streams are a thousand descriptors of this process.
    succeed(Command::new("prlimit").args(["--nofile=8192", "--pid", &std::process::id().to_string()]))?;
    small_calls(&room, rounds, report)?;
    one_processor(&room, report)?;
    streams(&room, report)?;
    load(&room, Duration::from_secs(seconds.into()), report)
}

fn small_calls(room: &Room, rounds: u32, report: &mut Report) -> Result<()> {
    let upstream = Upstream::start(0)?;
    let gateway = room.agentsh(&[], Some(&upstream.url))?;
    let local = room.agentsh(&[], None)?;
    let peers = (room.supergateway("streamableHttp"), room.mcp_proxy());
    let mut ways =
        vec![("direct", Client::connect(&upstream.url)?), ("agentsh", Client::connect(&gateway.url)?)];
    ways.push(("agentsh, local server", Client::connect(&local.url)?));
    for (name, peer) in [("supergateway, local server", &peers.0), ("mcp-proxy, local server", &peers.1)] {
        match peer
            .as_ref()
            .map_err(|error| format!("{error:#}"))
            .and_then(|peer| Client::connect(&peer.url).map_err(|error| format!("{error:#}")))
        {
            Ok(client) => ways.push((name, client)),
            Err(why) => print_text(&format!("{name}: not measured: {why}\n")),
        }
    }
    let mut times = vec![Vec::new(); ways.len()];
    for turn in 0..=rounds.div_ceil(5).max(10) {
        for ((_, client), times) in ways.iter_mut().zip(&mut times) {
            for _ in 0..TURN {
                let began = Instant::now();
                ensure!(client.call()? == CallReply::Result, "a call failed");
                // The first turn warms up.
                if turn > 0 {
                    times.push(began.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
    }
    let times: Vec<Samples> = times.into_iter().map(Samples::new).collect();
    let direct = times[0].median();
    for (at, ((name, _), samples)) in ways.iter().zip(&times).enumerate() {
        let bar = if at == 1 { Bound::AtMost(150.0) } else { Bound::None };
        let numbers = microseconds(samples);
        report.line(
            &format!("small call over HTTP, {name}"),
            &numbers,
            ("added", samples.median() - direct, "us"),
            bar,
        );
    }
    Ok(())
}

/// The gateway has one processor; clients and server have the other.
fn one_processor(room: &Room, report: &mut Report) -> Result<()> {
    const CALLS: u32 = 2000;
    let upstream = Upstream::start(0)?;
    let gateway = room.agentsh(&["taskset", "-c", "0"], Some(&upstream.url))?;
    let mut clients = (0..CLIENTS).map(|_| Client::connect(&gateway.url)).collect::<Result<Vec<_>>>()?;
    let (before, began) = (processor_seconds(gateway.pid()), Instant::now());
    std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(|| -> Result<()> {
                    for _ in 0..CALLS {
                        ensure!(client.call()? == CallReply::Result, "a call failed");
                    }
                    Ok(())
                })
            })
            .collect();
        running
            .into_iter()
            .try_for_each(|one| one.join().unwrap_or_else(|_| anyhow::bail!("a client stopped")))
    })?;
    let calls = f64::from(CALLS) * CLIENTS as f64;
    let rate = calls / began.elapsed().as_secs_f64();
    let each = (processor_seconds(gateway.pid()) - before) * 1e6 / calls;
    report.line(
        &format!("calls on one processor, {CLIENTS} clients"),
        &format!(
            "{} with clients and server beside it  own time {} a call,",
            display_value(rate, "calls/s"),
            display_value(each, "us")
        ),
        ("so", 1e6 / each, "calls/s"),
        Bound::AtLeast(5000.0),
    );
    Ok(())
}

fn streams(room: &Room, report: &mut Report) -> Result<()> {
    let upstream = Upstream::start(0)?;
    let gateway = room.agentsh(&[], Some(&upstream.url))?;
    let before = resident(gateway.pid())?;
    let open: Vec<_> =
        (0..STREAMS).map(|_| Client::connect(&gateway.url)?.listen()).collect::<Result<Vec<_>>>()?;
    let after = resident(gateway.pid())?;
    report.line(
        &format!("{STREAMS} open streams, agentsh"),
        &format!("{} before", display_value(before, "MiB")),
        ("resident", after, "MiB"),
        Bound::AtMost(100.0),
    );
    drop(open);
    let peers: [(&str, Result<Started>); 2] =
        [("supergateway", room.supergateway("sse")), ("mcp-proxy", room.mcp_proxy())];
    for (name, peer) in peers {
        let measured = peer.and_then(|peer| {
            let before = resident(peer.pid())?;
            let open: Vec<_> =
                (0..STREAMS).map(|_| http::open_stream(&peer.streams)).collect::<Result<Vec<_>>>()?;
            let after = resident(peer.pid())?;
            drop(open);
            Ok((before, after))
        });
        match measured {
            Ok((before, after)) => report.line(
                &format!("{STREAMS} open streams, {name}"),
                &format!("{} before", display_value(before, "MiB")),
                ("resident", after, "MiB"),
                Bound::None,
            ),
            Err(why) => print_text(&format!("{STREAMS} open streams, {name}: not measured: {why:#}\n")),
        }
    }
    Ok(())
}

/// Every call has its answer, and what the server let down is an error of the protocol.
fn load(room: &Room, lasts: Duration, report: &mut Report) -> Result<()> {
    let upstream = Upstream::start(FAILS)?;
    let gateway = room.agentsh(&[], Some(&upstream.url))?;
    let mut clients = (0..CLIENTS).map(|_| Client::connect(&gateway.url)).collect::<Result<Vec<_>>>()?;
    let (results, errors) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let mut early = 0.0;
    std::thread::scope(|scope| -> Result<()> {
        let (results, errors) = (&results, &errors);
        let running: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(move || -> Result<()> {
                    while began.elapsed() < lasts {
                        let count = if client.call()? == CallReply::Result { results } else { errors };
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        // Buffers and memory have reached their size then.
        std::thread::sleep(lasts / 4);
        early = resident(gateway.pid())?;
        running
            .into_iter()
            .try_for_each(|one| one.join().unwrap_or_else(|_| anyhow::bail!("a client stopped")))
    })?;
    let (results, errors) = (results.into_inner(), errors.into_inner());
    let failed = upstream.failed.load(Ordering::Relaxed);
    let late = resident(gateway.pid())?;
    let lost = failed.abs_diff(errors);
    report.line(
        &format!("{} s of load, 1 call in {FAILS} let down by the server", lasts.as_secs()),
        &format!("{results} results, {errors} errors of the protocol for {failed} failures,"),
        ("lost or unexplained", lost as f64, ""),
        Bound::AtMost(0.0),
    );
    report.line(
        "memory under that load",
        &format!(
            "{} after a quarter, {} at the end",
            display_value(early, "MiB"),
            display_value(late, "MiB")
        ),
        ("growth", (late / early - 1.0) * 100.0, "%"),
        Bound::AtMost(10.0),
    );
    Ok(())
}

/// Resident memory of one process.
fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1024.0)
}
