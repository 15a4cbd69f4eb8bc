//! How long it takes to start something.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::measure::{Bound, Report, Samples, milliseconds};
use super::place::Place;

/// A static `true`: bare, in bubblewrap, in the sandbox of a server.
pub fn sandbox(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let rounds = rounds.to_string();
    let words = ["launch".as_ref(), rounds.as_ref(), place.nothing.as_os_str(), place.project.as_os_str()];
    let times = place.measure(words)?;
    let samples = |name: &str| Samples::of(&times[name]);
    let (bare, peer, own) = (samples("bare"), samples("bwrap"), samples("agentsh"));
    report.line(
        "launch true in a full server sandbox",
        &format!(
            "agentsh {}  bwrap {}  bare {}",
            milliseconds(&own),
            milliseconds(&peer),
            milliseconds(&bare)
        ),
        ("ratio", own.median() / peer.median(), ""),
        Bound::AtMost(1.0),
    );
    Ok(())
}

/// Repositories that a large project holds, and the time that looking at and guarding them may add.
const NESTED: usize = 1_500;
const MAX_ADDED: f64 = 300.0;

/// What many nested repositories add to `agentsh run -- true`.
pub fn measure_nested(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let project = place.project.join("nested");
    let plain = place.project.join("plain");
    std::fs::create_dir_all(&plain)?;
    for number in 0..NESTED {
        let git = project.join(number.to_string()).join(".git");
        std::fs::create_dir_all(&git)?;
        std::fs::write(git.join("config"), "[core]\n")?;
    }
    let mut medians = Vec::new();
    for directory in [&plain, &project] {
        let mut times = Vec::new();
        for round in 0..=rounds {
            let started = Instant::now();
            let mut own = place.command(&place.agentsh);
            own.args(["run", "--", "/bin/true"]).current_dir(directory);
            let status = own.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            ensure!(status.success(), "{own:?} failed: {status}");
            if round > 0 {
                times.push(started.elapsed().as_secs_f64() * 1e6);
            }
        }
        medians.push(Samples::new(times));
    }
    std::fs::remove_dir_all(&project)?;
    let [plain, many] = &medians[..] else { return Ok(()) };
    report.line(
        "agentsh run -- true in a project of 1,500 nested repositories",
        &format!("with {}  without {}", milliseconds(many), milliseconds(plain)),
        ("added", (many.median() - plain.median()) / 1e3, "ms"),
        Bound::AtMost(MAX_ADDED),
    );
    Ok(())
}

/// `agentsh run -- true` from the start of the process to its end.
pub fn measure_run(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let mut own = place.command(&place.agentsh);
    own.args(["run", "--"]).arg(&place.nothing);
    let mut bare = place.command(&place.nothing);
    let (mut own_times, mut bare_times) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        for (command, times) in [(&mut bare, &mut bare_times), (&mut own, &mut own_times)] {
            let started = Instant::now();
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            let time = started.elapsed().as_secs_f64() * 1e6;
            ensure!(status.success(), "{command:?} failed: {status}");
            // The first one makes the store.
            if round > 0 {
                times.push(time);
            }
        }
    }
    let (own, bare) = (Samples::new(own_times), Samples::new(bare_times));
    report.line(
        "agentsh run -- true, as a whole",
        &format!("agentsh {}  bare {}", milliseconds(&own), milliseconds(&bare)),
        ("median", own.median() / 1e3, "ms"),
        Bound::AtMost(25.0),
    );
    Ok(())
}
