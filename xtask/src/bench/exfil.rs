//! What it costs to look into arguments and results, beside the same server without a proxy.

use anyhow::{Context, Result};

use super::mcp::{Client, processes};
use super::measure::{Bar, Report, Samples, milliseconds, shown};
use super::memory::mebibytes;
use super::place::Place;

/// Results that are remembered while calls are measured.
const LIVE: u32 = 10_000;
const MEGABYTE: u32 = 1_000_000;
/// Texts that make careless decoders slow.
const HARD: u32 = 400_000;

/// A client without and one with a proxy.
struct Pair {
    direct: Client,
    proxied: Client,
    rounds: u32,
}

pub fn measure(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let mut pair = Pair {
        direct: Client::start(place, &place.direct())?,
        proxied: Client::start(place, &place.aggregated())?,
        rounds,
    };
    pair.small("small call, nothing remembered", "calls 100 5", 60.0, report)?;
    pair.proxied.order(&format!("notes {LIVE}"))?;
    let own = processes(&pair.proxied, &place.agentsh)?;
    let resident: Vec<f64> = own.iter().map(|pid| mebibytes(*pid, "Rss")).collect::<Result<_>>()?;
    let largest = resident.iter().copied().fold(f64::NAN, f64::max);
    report.line(
        &format!("resident memory with {LIVE} results remembered"),
        &format!("{} processes of agentsh,", own.len()),
        ("the proxy", largest, "MiB"),
        Bar::AtMost(40.0),
    );
    pair.small(&format!("small call, {LIVE} results remembered"), "calls 100 5", 60.0, report)?;
    let title = format!("argument of 1 KB, {LIVE} results remembered");
    pair.small(&title, "send 20 words 1000", 200.0, report)?;
    pair.large("argument of 1 MB", &format!("send 3 words {MEGABYTE}"), 10.0, report)?;
    for (kind, title) in [("hex", "hex"), ("mail", "`a@`"), ("percent", "`%25`"), ("base64", "nested base64")]
    {
        pair.large(
            &format!("argument of 400 KB of {title}"),
            &format!("send 3 {kind} {HARD}"),
            20.0,
            report,
        )?;
    }
    // Last: results of this length push the others out of the memory.
    pair.large("another result of 1 MB of words each time", &format!("words 3 {MEGABYTE}"), 10.0, report)?;
    pair.large("the same result of 1 MB of words again", &format!("again 3 {MEGABYTE}"), 10.0, report)
}

impl Pair {
    fn small(&mut self, what: &str, order: &str, most: f64, report: &mut Report) -> Result<()> {
        let turns = self.rounds.div_ceil(5).max(20);
        let (direct, proxied) = self.in_turns(order, turns)?;
        let numbers = format!(
            "agentsh {} [{}]  direct {} [{}]",
            shown(proxied.median(), "us"),
            shown(proxied.p95(), "us"),
            shown(direct.median(), "us"),
            shown(direct.p95(), "us"),
        );
        let added = proxied.median() - direct.median();
        report.line(&format!("{what}, through proxy"), &numbers, ("added", added, "us"), Bar::AtMost(most));
        Ok(())
    }

    fn large(&mut self, what: &str, order: &str, most: f64, report: &mut Report) -> Result<()> {
        let turns = self.rounds.div_ceil(20).max(5);
        let (direct, proxied) = self.in_turns(order, turns)?;
        let numbers = format!("agentsh {}  direct {}", milliseconds(&proxied), milliseconds(&direct));
        let added = (proxied.median() - direct.median()) / 1e3;
        report.line(&format!("{what}, through proxy"), &numbers, ("added", added, "ms"), Bar::AtMost(most));
        Ok(())
    }

    fn in_turns(&mut self, order: &str, turns: u32) -> Result<(Samples, Samples)> {
        let (mut direct, mut proxied) = (Vec::new(), Vec::new());
        for turn in 0..=turns {
            for (client, times) in [(&mut self.direct, &mut direct), (&mut self.proxied, &mut proxied)] {
                let measured = client.times(order).with_context(|| order.to_owned())?;
                // The first turn warms up.
                if turn > 0 {
                    times.extend(measured);
                }
            }
        }
        Ok((Samples::new(direct), Samples::new(proxied)))
    }
}
