#![no_main]

use agentsh_base::json;
use agentsh_gateway as gateway;

#[path = "../checks/protocol_eras.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
