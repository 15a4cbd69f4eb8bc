//! How much a long judgement delays other work, compared with the same work without agentsh.

use anyhow::Result;

use super::measure::{Bound, Report, Samples, display_value, milliseconds};
use super::place::Place;

pub fn measure(place: &Place, report: &mut Report) -> Result<()> {
    let config = place.home.join("three.json");
    let measured = place.measure(["beside".as_ref(), place.agentsh.as_os_str(), config.as_os_str()])?;
    for (what, title) in [("calls", "a small call"), ("connects", "a new connection and one request")] {
        let p99 = |path: &str, when: &str| Samples::of(&measured[path][when][what]).p99();
        let (alone, beside) = (p99("agentsh", "alone"), p99("agentsh", "beside"));
        report.line(
            &format!("{title} while another server gets 1 MB arguments, p99"),
            &format!(
                "agentsh {} alone, {} beside  direct {} alone, {} beside",
                display_value(alone, "us"),
                display_value(beside, "us"),
                display_value(p99("direct", "alone"), "us"),
                display_value(p99("direct", "beside"), "us"),
            ),
            ("ratio", beside / alone, ""),
            Bound::AtMost(2.0),
        );
    }
    let long = |path: &str| Samples::of(&measured[path]["long"]);
    report.line(
        "the 1 MB arguments meanwhile",
        &format!("agentsh {}  direct {}", milliseconds(&long("agentsh")), milliseconds(&long("direct"))),
        ("ratio", long("agentsh").median() / long("direct").median(), ""),
        Bound::None,
    );
    Ok(())
}
