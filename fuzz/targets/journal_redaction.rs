#![no_main]

use agentsh_store as store;

#[path = "../checks/journal_redaction.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
