#![no_main]

use agentsh::{gateway, json};

#[path = "../checks/protocol_eras.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
