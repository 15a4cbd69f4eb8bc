//! What it costs to look into arguments and results, next to the same server without a proxy.

use anyhow::{Context, Result};

use super::mcp::{Client, processes};
use super::measure::{Bound, Report, Samples, microseconds, milliseconds};
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
    let start = |file: &str| -> Result<Pair> {
        let direct = Client::start(place, &place.direct())?;
        Ok(Pair { direct, proxied: Client::start(place, &place.aggregated(file))?, rounds })
    };
    let mut pair = start("proxy.json")?;
    pair.measure_small_calls("small call, nothing remembered", "calls 100 5", 60.0, report)?;
    pair.proxied.order(&format!("notes {LIVE}"))?;
    let own = processes(&pair.proxied, &place.agentsh)?;
    let resident: Vec<f64> = own.iter().map(|pid| mebibytes(*pid, "Rss")).collect::<Result<_>>()?;
    let largest = resident.iter().copied().fold(f64::NAN, f64::max);
    report.line(
        &format!("resident memory with {LIVE} results remembered"),
        &format!("{} processes of agentsh,", own.len()),
        ("the proxy", largest, "MiB"),
        Bound::AtMost(40.0),
    );
    pair.arguments(&format!("{LIVE} results remembered"), report)?;
    // Results of this length push the others out of the memory.
    pair.large("another result of 1 MB of words each time", &format!("words 3 {MEGABYTE}"), 10.0, report)?;
    pair.large("the same result of 1 MB of words again", &format!("again 3 {MEGABYTE}"), 10.0, report)?;
    // None of them may go where the arguments go: now they are looked for.
    let mut pair = start("two.json")?;
    pair.proxied.order(&format!("notes {LIVE}"))?;
    pair.arguments(&format!("{LIVE} results of another server remembered"), report)
}

impl Pair {
    fn arguments(&mut self, what: &str, report: &mut Report) -> Result<()> {
        self.measure_small_calls(&format!("small call, {what}"), "calls 100 5", 60.0, report)?;
        self.measure_small_calls(&format!("argument of 1 KB, {what}"), "send 20 words 1000", 200.0, report)?;
        let kinds = [
            ("words", "1 MB of words", MEGABYTE, 10.0),
            ("hex", "400 KB of hex", HARD, 20.0),
            ("mail", "400 KB of `a@`", HARD, 20.0),
            ("percent", "400 KB of `%25`", HARD, 20.0),
            ("base64", "400 KB of nested base64", HARD, 20.0),
        ];
        for (kind, title, bytes, most) in kinds {
            self.large(
                &format!("argument of {title}, {what}"),
                &format!("send 3 {kind} {bytes}"),
                most,
                report,
            )?;
        }
        Ok(())
    }

    fn measure_small_calls(&mut self, what: &str, order: &str, most: f64, report: &mut Report) -> Result<()> {
        let turns = self.rounds.div_ceil(5).max(20);
        let (direct, proxied) = self.in_turns(order, turns)?;
        let numbers = format!("agentsh {}  direct {}", microseconds(&proxied), microseconds(&direct));
        let added = proxied.median() - direct.median();
        report.line(&format!("{what}, through proxy"), &numbers, ("added", added, "us"), Bound::AtMost(most));
        Ok(())
    }

    fn large(&mut self, what: &str, order: &str, most: f64, report: &mut Report) -> Result<()> {
        let turns = self.rounds.div_ceil(20).max(5);
        let (direct, proxied) = self.in_turns(order, turns)?;
        let numbers = format!("agentsh {}  direct {}", milliseconds(&proxied), milliseconds(&direct));
        let added = (proxied.median() - direct.median()) / 1e3;
        report.line(&format!("{what}, through proxy"), &numbers, ("added", added, "ms"), Bound::AtMost(most));
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
