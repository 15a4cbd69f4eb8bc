#![no_main]

use agentsh::{dlp, policy, types};

#[path = "../checks/destinations.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
