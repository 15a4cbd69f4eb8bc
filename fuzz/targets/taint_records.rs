#![no_main]

use agentsh_base::types;
use agentsh_dlp as dlp;

#[path = "../checks/taint_records.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
