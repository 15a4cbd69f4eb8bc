//! The expected outcomes of attempts.

pub struct Expected {
    pub line: String,
    verdict: Verdict,
}

enum Verdict {
    Done,
    Refused,
    With(&'static str),
}

/// The twin: must work.
pub fn yes(line: impl Into<String>) -> Expected {
    Expected { line: line.into(), verdict: Verdict::Done }
}

/// Must be refused, in whatever way.
pub fn no(line: impl Into<String>) -> Expected {
    Expected { line: line.into(), verdict: Verdict::Refused }
}

/// Must be answered with exactly this, such as `REFUSED EPERM`.
pub fn no_with(line: impl Into<String>, answer: &'static str) -> Expected {
    Expected { line: line.into(), verdict: Verdict::With(answer) }
}

impl Expected {
    /// None when the answer is as expected.
    pub fn surprise(&self, answer: &str) -> Option<String> {
        let (met, wanted) = match &self.verdict {
            Verdict::Done => (answer == "DONE", "DONE"),
            Verdict::Refused => (answer.starts_with("REFUSED") || answer.starts_with("KILLED"), "a refusal"),
            Verdict::With(wanted) => (answer == *wanted, *wanted),
        };
        (!met).then(|| format!("`{}` gave {answer}, not {wanted}", self.line))
    }
}
