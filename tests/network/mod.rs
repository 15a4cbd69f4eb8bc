//! Connections by name, on a machine whose only network is the small internet of the fixture.

mod ask;
mod authorities;
pub mod clients;
mod detached;
mod events;
mod inspect;
mod kernel;
mod names;
mod proxy;
mod ways_out;

use std::fs;

use crate::support::sandbox::{Kind, Sandbox};
use crate::support::{Mode, Place, skip};

/// As `everywhere`, online and with every backend that the mode can have.
pub fn online(test: impl Fn(&Sandbox)) {
    for (mode, backend) in backends() {
        for kind in [Kind::Agent, Kind::Server] {
            test(&Sandbox { place: Place::new(mode).online().policed_by(backend), kind });
        }
    }
}

/// Every mode with userns, and root with eBPF too.
fn backends() -> Vec<(Mode, &'static str)> {
    let mut backends: Vec<_> = Mode::all().into_iter().map(|mode| (mode, "userns")).collect();
    if Mode::Invoker.is_root() {
        backends.push((Mode::Invoker, "ebpf"));
    } else {
        skip("eBPF: the tests are not run by root");
    }
    backends
}

/// Lines of the small internet: what left the machine.
fn heard(place: &Place) -> String {
    fs::read_to_string(place.internet_log()).unwrap_or_default()
}
