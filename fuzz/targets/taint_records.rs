#![no_main]

use agentsh::{dlp, types};

#[path = "../checks/taint_records.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
