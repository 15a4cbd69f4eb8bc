//! Numbers and how they are shown.

use crate::run::print_text;

/// Measurements of one quantity, in ascending order.
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The numbers of a list.
    pub fn of(list: &serde_json::Value) -> Self {
        Self::new(list.as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect())
    }

    pub fn median(&self) -> f64 {
        self.quantile(50)
    }

    pub fn p95(&self) -> f64 {
        self.quantile(95)
    }

    pub fn p99(&self) -> f64 {
        self.quantile(99)
    }

    fn quantile(&self, percent: usize) -> f64 {
        self.0.get(self.0.len().saturating_sub(1) * percent / 100).copied().unwrap_or(f64::NAN)
    }
}

/// What a number must not pass.
#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// It is shown next to one that has a bar.
    None,
}

/// Prints line by line and remembers whether every bar was held.
#[derive(Default)]
pub struct Report {
    missed: u32,
}

impl Report {
    /// One line: what was measured, the numbers next to each other, and the one number that the bar is about.
    pub fn line(&mut self, what: &str, numbers: &str, (name, value, unit): (&str, f64, &str), bar: Bound) {
        let value_text = display_value(value, unit);
        let (held, bar) = match bar {
            Bound::AtMost(most) => (value <= most, format!(" (bar: at most {})", display_value(most, unit))),
            Bound::AtLeast(least) => {
                (value >= least, format!(" (bar: at least {})", display_value(least, unit)))
            }
            Bound::None => (true, String::new()),
        };
        let miss = if held { "" } else { "  MISSED" };
        print_text(&format!("{what}: {numbers}  {name} {value_text}{bar}{miss}\n"));
        self.missed += u32::from(!held);
    }

    pub fn all_held(&self) -> bool {
        self.missed == 0
    }
}

/// Two digits after the point for small numbers, none for large ones.
pub fn display_value(value: f64, unit: &str) -> String {
    let space = if unit.is_empty() { "" } else { " " };
    let places = if value.abs() < 100.0 { 2 } else { 0 };
    format!("{value:.places$}{space}{unit}")
}

/// Median, and the 95th percentile in brackets.
pub fn microseconds(samples: &Samples) -> String {
    format!("{} [{}]", display_value(samples.median(), "us"), display_value(samples.p95(), "us"))
}

/// Microseconds as milliseconds: median, and the 95th percentile in brackets.
pub fn milliseconds(samples: &Samples) -> String {
    format!("{:.2} ms [{:.2}]", samples.median() / 1e3, samples.p95() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_values() {
        let samples = Samples::new((0..101).rev().map(f64::from).collect());
        assert_eq!((samples.median(), samples.p95()), (50.0, 95.0));
        assert!(Samples::new(Vec::new()).median().is_nan());
    }

    #[test]
    fn benchmark_that_misses_its_bound_is_reported() {
        let mut report = Report::default();
        report.line("a", "", ("ratio", 1.0, ""), Bound::AtMost(1.0));
        assert!(report.all_held());
        report.line("b", "", ("calls", 1.0, "/s"), Bound::AtLeast(2.0));
        assert!(!report.all_held());
        report.line("c", "", ("nothing", f64::NAN, ""), Bound::AtMost(1.0));
        assert_eq!(report.missed, 2);
    }
}
