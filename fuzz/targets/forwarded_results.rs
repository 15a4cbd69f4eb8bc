#![no_main]

use agentsh::{guard, json, scan};

#[path = "../checks/forwarded_results.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
