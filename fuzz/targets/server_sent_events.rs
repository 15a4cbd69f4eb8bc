#![no_main]

use agentsh_remote as remote;

#[path = "../checks/server_sent_events.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
