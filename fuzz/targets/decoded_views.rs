#![no_main]

use agentsh_dlp as dlp;

#[path = "../checks/decoded_views.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
