//! Times in a readable form.

use jiff::Timestamp;

use crate::escape;

/// A recorded time as people read it: in UTC, to the second. What is not a time stays as it is, escaped.
#[must_use]
pub fn shown_time(recorded: &str) -> String {
    match recorded.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => escape::line(recorded).into_owned(),
    }
}
