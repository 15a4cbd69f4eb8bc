#![no_main]

use agentsh_base::json;
use agentsh_guard as guard;
use agentsh_registry as registry;

#[path = "../checks/canonical_forms.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
