#![no_main]

use agentsh::{gateway, json, mcp};

#[path = "../checks/repeated_headers.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
