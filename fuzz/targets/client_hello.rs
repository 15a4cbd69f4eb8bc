#![no_main]

use agentsh::{net, policy};

#[path = "../checks/client_hello.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
