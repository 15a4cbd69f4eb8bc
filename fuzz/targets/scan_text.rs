#![no_main]

use agentsh_scan as scan;

#[path = "../checks/scan_text.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
