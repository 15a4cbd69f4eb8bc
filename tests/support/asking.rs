//! Questions that wait for a person, and programs that wait with them.

use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use super::{Place, within};

/// Waits for the end of a program, and gives what it wrote: standard output and standard error.
pub fn ended(child: Child) -> (String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// What waits for an answer on this machine.
pub fn waiting(place: &Place) -> Vec<Value> {
    place.listed(&["approvals", "list", "--json"])
}

/// The one question that waits, as soon as it does.
pub fn question(place: &Place) -> Value {
    assert!(within(Duration::from_secs(30), || waiting(place).len() == 1), "{:?}", waiting(place));
    waiting(place).remove(0)
}
