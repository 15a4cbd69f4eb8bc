#![no_main]

use agentsh::{guard, json, registry};

#[path = "../checks/canonical_forms.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
