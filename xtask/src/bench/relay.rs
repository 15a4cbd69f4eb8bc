//! Connections through the relay next to direct ones.

use anyhow::Result;

use super::measure::{Bound, Report, Samples, display_value, microseconds};
use super::place::Place;

pub fn measure(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let measured =
        place.measure(["relay".as_ref(), place.agentsh.as_os_str(), rounds.to_string().as_ref()])?;
    let samples = |what: &str, path: &str| Samples::of(&measured[what][path]);
    let (direct, relayed) = (samples("connect", "direct"), samples("connect", "relay"));
    report.line(
        "a new connection and one request through the relay",
        &format!("agentsh {}  direct {}", microseconds(&relayed), microseconds(&direct)),
        ("ratio", relayed.median() / direct.median(), ""),
        Bound::AtMost(2.5),
    );
    let (direct, relayed) = (samples("stream", "direct"), samples("stream", "relay"));
    report.line(
        "one large stream through the relay",
        &format!(
            "agentsh {}  direct {}",
            display_value(relayed.median(), "MB/s"),
            display_value(direct.median(), "MB/s")
        ),
        ("ratio", relayed.median() / direct.median(), ""),
        Bound::AtLeast(0.6),
    );
    let held = &measured["held"];
    let number = |key: &str| held[key].as_f64().unwrap_or(f64::NAN);
    let each = (number("after") - number("before")) * 1024.0 / number("count");
    report.line(
        &format!("{} connections held through the relay", number("count")),
        &format!(
            "memory of agentsh {} before, {} with them, {} each,",
            display_value(number("before"), "MiB"),
            display_value(number("after"), "MiB"),
            display_value(each, "KiB")
        ),
        ("failed", number("failed"), ""),
        Bound::AtMost(0.0),
    );
    Ok(())
}
