#![no_main]

use agentsh_sandbox as sandbox;

#[path = "../checks/git_config.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
