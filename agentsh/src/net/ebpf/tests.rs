#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may stop at the first surprise")]
use super::*;
#[test]
fn loads() {
    for _ in 0..5 {
        let t = std::time::Instant::now();
        let l = match Loaded::load() { Ok(l) => l, Err(e) => panic!("{e}") };
        let a = t.elapsed();
        let f = std::fs::File::open(cgroup2_mount().unwrap().join("ebpftest")).unwrap();
        let t = std::time::Instant::now();
        let at = l.attach(f.as_fd()).unwrap();
        let b = t.elapsed();
        let t = std::time::Instant::now();
        drop(at);
        panic_print(format!("{a:?} {b:?} {:?}", t.elapsed()));
    }
}
fn panic_print(s: String) { use std::io::Write; let _ = writeln!(std::io::stderr(), "{s}"); }
