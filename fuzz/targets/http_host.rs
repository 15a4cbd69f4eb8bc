#![no_main]

use agentsh_net as net;

#[path = "../checks/http_host.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
