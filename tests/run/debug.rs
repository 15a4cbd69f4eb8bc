//! Debuggers, sanitizers and large reservations of addresses work on the program's own processes.

use std::path::Path;

use crate::support::{Mode, Place, skip};

const PROGRAM: &str =
    "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(10); p[0] = 1; return p[0] - 1; }\n";

/// What the shell prints, if the tool is here.
fn says(tool: &str, script: &str, expected: &str) {
    if !Path::new(tool).exists() {
        return skip(&format!("{tool} is not installed"));
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("main.c", PROGRAM);
        let outcome = place.shell(script);
        assert!(outcome.stdout.contains(expected), "{mode:?} {outcome}");
    }
}

#[test]
fn gdb_stops_a_program_and_looks_into_it() {
    let gdb = "gdb -q -batch -ex 'break main' -ex run -ex 'print 40+2' -ex continue ./main 2>&1";
    says("/usr/bin/gdb", &format!("cc -g -o main main.c && {gdb}"), "$1 = 42");
    says("/usr/bin/gdb", &format!("cc -g -o main main.c && {gdb}"), "exited normally");
}

#[test]
fn strace_follows_a_program_and_its_children() {
    says(
        "/usr/bin/strace",
        "strace -f -e trace=execve sh -c '/bin/true; /bin/echo done' 2>&1",
        "exited with 0 +++",
    );
}

/// It reserves 16 TiB of addresses.
#[test]
fn address_sanitizer_can_reserve_its_address_space() {
    says(
        "/usr/bin/gcc",
        "gcc -fsanitize=address -o main main.c && ./main 2>&1; echo end $?",
        "LeakSanitizer: detected",
    );
    says(
        "/usr/bin/gcc",
        "gcc -fsanitize=address -o main main.c && ASAN_OPTIONS=detect_leaks=0 ./main && echo good",
        "good",
    );
}

/// Half of the machine, not a fixed number.
#[test]
fn the_agents_memory_is_in_proportion_to_the_machine() {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let kib: u64 = total.trim().trim_end_matches("kB").trim().parse().unwrap();
    let place = Place::new(Mode::Invoker);
    assert_eq!(place.shell("true").code, 0);
    let half = format!("{} MiB", kib / 2 / 1024);
    let layers = place.events("enforcement");
    assert!(layers.iter().any(|layer| layer.to_string().contains(&half)), "{half}: {layers:?}");
}
