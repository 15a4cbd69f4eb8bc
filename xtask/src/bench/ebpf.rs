//! What the kernel programs cost.

use std::os::unix::fs::MetadataExt;

use anyhow::Result;

use super::measure::{Bound, Report, Samples, milliseconds};
use super::place::Place;
use crate::run::print_text;

/// The bar is about one microsecond in fifty, and single rounds differ by more.
const TURNS_A_ROUND: u32 = 4;

/// Connections in a policed control group and outside of it, refusals, and the programs' way into the kernel.
pub fn measure(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        print_text("eBPF: skipped, only root can load the programs\n");
        return Ok(());
    }
    let times = place.measure(["network", &rounds.saturating_mul(TURNS_A_ROUND).to_string()])?;
    let samples = |name: &str| Samples::of(&times[name]);
    let mut compare = |what: &str, (own, peer): (&str, &str), bar: Bound| {
        let (own_times, peer_times) = (samples(own), samples(peer));
        report.line(
            what,
            &format!("{own} {:.1} us  {peer} {:.1} us", own_times.median(), peer_times.median()),
            ("ratio", own_times.median() / peer_times.median(), ""),
            bar,
        );
    };
    let what = "connect on own loopback until another thread has accepted";
    compare(what, ("policed-two", "bare-two"), Bound::AtMost(1.03));
    compare("connect and accept in one thread, which nobody wakes", ("policed", "bare"), Bound::None);
    compare("a refusal beside a plain failed connect", ("refused", "failed"), Bound::AtMost(1.0));
    let load = samples("load");
    report.line(
        "load and attach the programs",
        &milliseconds(&load),
        ("median", load.median() / 1e3, "ms"),
        Bound::AtMost(5.0),
    );
    Ok(())
}
