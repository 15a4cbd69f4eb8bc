#![no_main]

use agentsh_base::json;
use agentsh_gateway as gateway;
use agentsh_mcp as mcp;

#[path = "../checks/repeated_headers.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
