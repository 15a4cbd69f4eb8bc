#![no_main]

use agentsh_dlp as dlp;
use agentsh_secrets as secrets;

#[path = "../checks/fold.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
