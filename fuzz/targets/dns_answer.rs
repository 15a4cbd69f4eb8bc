#![no_main]

use agentsh_net as net;
use agentsh_policy as policy;

#[path = "../checks/dns_answer.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
