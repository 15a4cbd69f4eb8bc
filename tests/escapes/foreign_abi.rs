//! The same numbers mean other calls in the 32-bit and x32 tables. Stopped by: the filter ends a process that uses
//! another table.

use crate::support::{everywhere, no_with, yes};

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_the_32_bit_and_x32_tables_kill_the_process() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            no_with("int80", "KILLED SIGSYS"),
            no_with("x32", "KILLED SIGSYS"),
            no_with("personality 8", "REFUSED EPERM"),
            yes("personality 0"),
            yes("native-call"),
        ]);
    });
}
