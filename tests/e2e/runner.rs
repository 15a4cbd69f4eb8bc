//! Runs cases on a few threads and reports them as `cargo test` does, with skips that are decided at run time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

pub struct Case {
    pub name: String,
    /// Why this case cannot run here.
    pub skipped: Option<&'static str>,
    pub body: Box<dyn Fn() + Send + Sync>,
}

/// Arguments are substrings of names, as with `cargo test`; options are ignored.
pub fn run(mut cases: Vec<Case>) -> ExitCode {
    let started = Instant::now();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let all = cases.len();
    cases.retain(|case| wanted.is_empty() || wanted.iter().any(|part| case.name.contains(part)));
    let filtered = all - cases.len();
    println!("\nrunning {} tests", cases.len());
    // Each case is several processes already.
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
    let (queue, tally) = (Mutex::new(cases.into_iter()), Mutex::new([0_usize; 3]));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().expect("no thread panicked").next() else { return };
                    let (which, word) = outcome(&case);
                    println!("test {} ... {word}", case.name);
                    tally.lock().expect("no thread panicked")[which] += 1;
                }
            });
        }
    });
    let [passed, failed, ignored] = tally.into_inner().expect("no thread panicked");
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let time = started.elapsed().as_secs_f64();
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {filtered} filtered \
         out; finished in {time:.2}s\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn outcome(case: &Case) -> (usize, String) {
    if let Some(reason) = case.skipped {
        return (2, format!("ignored, {reason}"));
    }
    let started = Instant::now();
    // The panic hook has already printed what went wrong.
    match catch_unwind(AssertUnwindSafe(&case.body)) {
        Ok(()) => (0, format!("ok ({:.1}s)", started.elapsed().as_secs_f64())),
        Err(_) => (1, "FAILED".to_owned()),
    }
}
