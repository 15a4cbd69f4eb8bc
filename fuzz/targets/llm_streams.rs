#![no_main]

use agentsh_llm as llm;

#[path = "../checks/llm_streams.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
