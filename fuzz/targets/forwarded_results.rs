#![no_main]

use agentsh_base::json;
use agentsh_guard as guard;
use agentsh_scan as scan;

#[path = "../checks/forwarded_results.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
