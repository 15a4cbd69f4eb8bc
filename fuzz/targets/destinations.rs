#![no_main]

use agentsh_base::types;
use agentsh_dlp as dlp;
use agentsh_policy as policy;

#[path = "../checks/destinations.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
