//! How much a long judgement delays other work, compared with the same work without agentsh.

use anyhow::{Context, Result};
use serde_json::Value;

use super::measure::{Bar, Report, Samples, milliseconds, shown};
use super::place::Place;
use crate::run::succeed;

pub fn measure(place: &Place, report: &mut Report) -> Result<()> {
    let mut command = place.command(&place.bench);
    let config = place.home.join("three.json");
    let output = succeed(command.arg("beside").arg(&place.agentsh).arg(config))?;
    let measured: Value =
        serde_json::from_str(output.lines().last().unwrap_or_default()).with_context(|| output.clone())?;
    let samples = |value: &Value| {
        Samples::new(value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect())
    };
    for (what, title) in [("calls", "a small call"), ("connects", "a new connection and one request")] {
        let p99 = |path: &str, when: &str| samples(&measured[path][when][what]).p99();
        let (alone, beside) = (p99("agentsh", "alone"), p99("agentsh", "beside"));
        report.line(
            &format!("{title} while another server gets 1 MB arguments, p99"),
            &format!(
                "agentsh {} alone, {} beside  direct {} alone, {} beside",
                shown(alone, "us"),
                shown(beside, "us"),
                shown(p99("direct", "alone"), "us"),
                shown(p99("direct", "beside"), "us"),
            ),
            ("ratio", beside / alone, ""),
            Bar::AtMost(2.0),
        );
    }
    let long = |path: &str| samples(&measured[path]["long"]);
    report.line(
        "the 1 MB arguments meanwhile",
        &format!("agentsh {}  direct {}", milliseconds(&long("agentsh")), milliseconds(&long("direct"))),
        ("ratio", long("agentsh").median() / long("direct").median(), ""),
        Bar::None,
    );
    Ok(())
}
