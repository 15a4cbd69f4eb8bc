//! Connections through the relay next to direct ones.

use anyhow::Result;

use super::measure::{Bar, Report, Samples, microseconds, shown};
use super::place::Place;

pub fn measure(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let measured =
        place.measured(["relay".as_ref(), place.agentsh.as_os_str(), rounds.to_string().as_ref()])?;
    let samples = |what: &str, path: &str| Samples::of(&measured[what][path]);
    let (direct, relayed) = (samples("connect", "direct"), samples("connect", "relay"));
    report.line(
        "a new connection and one request through the relay",
        &format!("agentsh {}  direct {}", microseconds(&relayed), microseconds(&direct)),
        ("ratio", relayed.median() / direct.median(), ""),
        Bar::AtMost(2.5),
    );
    let (direct, relayed) = (samples("stream", "direct"), samples("stream", "relay"));
    report.line(
        "one large stream through the relay",
        &format!("agentsh {}  direct {}", shown(relayed.median(), "MB/s"), shown(direct.median(), "MB/s")),
        ("ratio", relayed.median() / direct.median(), ""),
        Bar::AtLeast(0.6),
    );
    let held = &measured["held"];
    let number = |key: &str| held[key].as_f64().unwrap_or(f64::NAN);
    let each = (number("after") - number("before")) * 1024.0 / number("count");
    report.line(
        &format!("{} connections held through the relay", number("count")),
        &format!(
            "memory of agentsh {} before, {} with them, {} each,",
            shown(number("before"), "MiB"),
            shown(number("after"), "MiB"),
            shown(each, "KiB")
        ),
        ("failed", number("failed"), ""),
        Bar::AtMost(0.0),
    );
    Ok(())
}
