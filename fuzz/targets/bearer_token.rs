#![no_main]

use agentsh_gateway as gateway;

#[path = "../checks/bearer_token.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
