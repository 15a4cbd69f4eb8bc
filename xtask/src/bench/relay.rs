//! Connections through the relay next to direct ones.

use anyhow::{Context, Result};
use serde_json::Value;

use super::measure::{Bar, Report, Samples, shown};
use super::place::Place;
use crate::run::succeed;

pub fn measure(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let mut command = place.command(&place.bench);
    let output = succeed(command.arg("relay").arg(&place.agentsh).arg(rounds.to_string()))?;
    let last = output.lines().last().unwrap_or_default();
    let measured: Value = serde_json::from_str(last).with_context(|| output.clone())?;
    let samples = |what: &str, path: &str| {
        let values = measured[what][path].as_array().into_iter().flatten();
        Samples::new(values.filter_map(Value::as_f64).collect())
    };
    let (direct, relayed) = (samples("connect", "direct"), samples("connect", "relay"));
    report.line(
        "a new connection and one request through the relay",
        &format!(
            "agentsh {} [{}]  direct {} [{}]",
            shown(relayed.median(), "us"),
            shown(relayed.p95(), "us"),
            shown(direct.median(), "us"),
            shown(direct.p95(), "us")
        ),
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
