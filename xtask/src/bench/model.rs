//! The model's channel next to a bare reverse proxy of the same library.

use anyhow::Result;

use super::measure::{Bound, Report, Samples, display_value, microseconds};
use super::place::Place;

pub fn measure(place: &Place, rounds: u32, report: &mut Report) -> Result<()> {
    let measured =
        place.measure(["model".as_ref(), place.agentsh.as_os_str(), rounds.to_string().as_ref()])?;
    let samples = |what: &str, way: &str| Samples::of(&measured[what][way]);
    for (what, title, most) in [
        ("first", "a model's answer, to its first byte", 300.0),
        ("event", "an event of a model's answer", 20.0),
    ] {
        let (bare, judged) = (samples(what, "bare"), samples(what, "judged"));
        report.line(
            title,
            &format!(
                "agentsh {}  a bare proxy {}  {:.2} times as long",
                microseconds(&judged),
                microseconds(&bare),
                judged.median() / bare.median()
            ),
            ("added", judged.median() - bare.median(), "us"),
            Bound::AtMost(most),
        );
    }
    let (bare, judged) = (samples("stream", "bare"), samples("stream", "judged"));
    report.line(
        "one long answer of a model",
        &format!("a bare proxy {} ", display_value(bare.median(), "MB/s")),
        ("agentsh", judged.median(), "MB/s"),
        Bound::AtLeast(200.0),
    );
    let held = &measured["held"];
    let number = |key: &str| held[key].as_f64().unwrap_or(f64::NAN);
    let title = format!("{} answers of a model at once", number("count"));
    let numbers = format!("memory of agentsh {} before,", display_value(number("before"), "MiB"));
    report.line(&title, &numbers, ("with them", number("after"), "MiB"), Bound::AtMost(200.0));
    report.line(&title, "", ("failed", number("failed"), ""), Bound::AtMost(0.0));
    Ok(())
}
