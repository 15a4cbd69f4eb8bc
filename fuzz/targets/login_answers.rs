#![no_main]

use agentsh_login as login;

#[path = "../checks/login_answers.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
