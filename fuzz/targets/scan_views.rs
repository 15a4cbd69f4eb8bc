#![no_main]

use agentsh_secrets as secrets;

#[path = "../checks/scan_views.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
