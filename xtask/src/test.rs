//! `cargo xtask test`: every check and every test, one line each, and a last line that counts.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;

use crate::run::{Captured, capture, cargo, is_root, print_text, repository, succeed, target};
use crate::{deny, ebpf, install, vm};

#[derive(Debug, Args)]
pub struct Options {
    /// Which part
    #[arg(value_enum, default_value = "change")]
    part: Part,
    /// Download nothing: end-to-end tests whose packages are not installed yet are skipped
    #[arg(long)]
    offline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What is run for every change: `unit`, and `root` without the tests that take long
    Change,
    /// Formatting, lints, and the tests inside the sources
    Unit,
    /// The whole black-box suite; started by root it runs as root and as an ordinary user
    Root,
    /// Real agents, real servers and the official clients
    E2e,
    /// Licences, sources and banned crates of what is built; the first time cargo-deny is built
    Deny,
    /// The black-box suite on Debian's cloud kernels, in emulated machines: half an hour, and not part of `all`
    Vm,
    /// Everything but `vm`, and the kernel programs built from source
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Failed, and passed when run again alone: neither passed nor failed.
    flaky: u64,
}

/// How one step ended.
struct Outcome {
    count: Count,
    /// Printed after the line: the output of a failed step, or why something was skipped.
    note: String,
}

/// True when nothing failed.
pub fn main(options: &Options) -> Result<bool> {
    let mut steps = Steps { total: Count::default() };
    let part = options.part;
    let has_units = matches!(part, Part::Change | Part::Unit | Part::All);
    let has_suite = matches!(part, Part::Change | Part::Root | Part::All);
    let memory = if is_root() && (has_units || has_suite) { Memory::mount() } else { None };
    let memory = memory.as_ref().map(|memory| memory.directory.path());
    if has_units {
        steps.run("formatting", || check(&mut cargo(["fmt", "--all", "--check"])));
    }
    if part == Part::All {
        steps.run("kernel programs, from source", || {
            ebpf::verify()?;
            Ok(Outcome { count: Count { passed: 1, ..Count::default() }, note: String::new() })
        });
    }
    if part == Part::Deny || (part == Part::All && (deny::is_installed() || !options.offline)) {
        steps.run("dependencies", || {
            deny::check()?;
            Ok(Outcome { count: Count { passed: 1, ..Count::default() }, note: String::new() })
        });
    }
    // Beside the build, which needs none of them: a new machine spends minutes on either.
    let packages = (part != Part::All && has_suite && !options.offline)
        .then(|| std::thread::spawn(install::system_packages));
    if has_units || has_suite {
        steps.run("build, lints", || check(&mut linted(&["test", "--workspace", "--locked", "--no-run"])));
    }
    if let Some(packages) = packages {
        steps.run("programs of the distribution", || {
            packages.join().map_err(|_| anyhow!("the installation panicked"))??;
            Ok(Outcome { count: Count { passed: 1, ..Count::default() }, note: String::new() })
        });
    }
    if has_units {
        steps.run("tests in the sources", || {
            tests(&["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins"], &[], memory)
        });
    }
    // Before the suite: some of its tests use what is installed here.
    let is_installed = matches!(part, Part::E2e | Part::All) && install_tools(&mut steps, options.offline);
    if has_suite {
        let long: &[&str] = if part == Part::Change { &[] } else { &["--include-ignored"] };
        for target in black_box()? {
            let name = if is_root() { "as root and as a user" } else { "as a user" };
            steps.run(&format!("{target}, {name}"), || {
                tests(&["test", "--workspace", "--locked", "--no-fail-fast", "--test", &target], long, memory)
            });
        }
    }
    if is_installed {
        end_to_end(&mut steps);
    }
    if part == Part::Vm {
        machines(&mut steps);
    }
    print_text(&format!("{}\n", steps.total));
    Ok(steps.total.failed == 0)
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, skipped, flaky } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")?;
        if *flaky > 0 { write!(f, ", {flaky} flaky") } else { Ok(()) }
    }
}

struct Steps {
    total: Count,
}

impl Steps {
    /// Runs one step and prints its line. True when it did not fail.
    fn run(&mut self, name: &str, step: impl FnOnce() -> Result<Outcome>) -> bool {
        print_text(&format!("{name:<38} "));
        let started = Instant::now();
        let outcome = step().unwrap_or_else(|error| Outcome {
            count: Count { failed: 1, ..Count::default() },
            note: format!("{error:#}"),
        });
        let count = outcome.count;
        let word = match count {
            Count { failed: 1.., .. } => "FAILED",
            Count { passed: 0, skipped: 1.., .. } => "skipped",
            _ => "ok",
        };
        let is_one = count.passed + count.failed + count.skipped + count.flaky <= 1;
        let numbers = if is_one { String::new() } else { format!("  {count}") };
        print_text(&format!("{word:<7} {:>7}{numbers}\n", seconds(started.elapsed())));
        if !outcome.note.is_empty() {
            print_text(&format!("{}\n", outcome.note.trim_end()));
        }
        self.total.passed += count.passed;
        self.total.failed += count.failed;
        self.total.skipped += count.skipped;
        self.total.flaky += count.flaky;
        count.failed == 0
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// A step that is right or wrong as a whole.
fn check(command: &mut Command) -> Result<Outcome> {
    let Captured { success, output } = capture(command)?;
    Ok(if success {
        Outcome { count: Count { passed: 1, ..Count::default() }, note: String::new() }
    } else {
        Outcome { count: Count { failed: 1, ..Count::default() }, note: output }
    })
}

/// cargo with clippy's compiler for our own packages, as `cargo clippy` sets it: what is built is linted, once, and nothing is
/// checked a second time. `--workspace` with it always: with `-p` cargo unites other features, and builds every crate once more.
fn linted(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    command
}

/// A tmpfs for the directories of the tests, in a mount namespace of this process alone: tests create and delete some hundred
/// thousand small files, and ext4 examines every inode that was freed in the last five seconds before it reuses one. On ext4 that
/// was more than half of the processor time of the suite.
struct Memory {
    directory: tempfile::TempDir,
}

impl Memory {
    /// None where it is not permitted, as in a container: the tests are slower then.
    fn mount() -> Option<Self> {
        nix::sched::unshare(CloneFlags::CLONE_NEWNS).ok()?;
        const NOTHING: Option<&Path> = None;
        nix::mount::mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING).ok()?;
        // No random letters: they look like a secret now and then, and the journal does not hold those.
        let name = format!("agentsh-{}", std::process::id());
        let directory = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir().ok()?;
        let mode = Some("mode=1777");
        nix::mount::mount(Some("tmpfs"), directory.path(), Some("tmpfs"), MsFlags::empty(), mode).ok()?;
        Some(Self { directory })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Without it the directory below could not be removed; the mount ends with this process in any case.
        let _ = nix::mount::umount2(self.directory.path(), MntFlags::MNT_DETACH);
    }
}

/// A step that counts the cases in it. Their directories are made in `memory` if there is one.
fn tests(arguments: &[&str], of_tests: &[&str], memory: Option<&Path>) -> Result<Outcome> {
    let tools = std::env::join_paths(install::tools())?;
    with_second_run(|names| {
        let mut command = linted(arguments);
        command.env("AGENTSH_TEST_TOOLS", &tools).arg("--").args(of_tests);
        command.envs(memory.map(|directory| ("TMPDIR", directory)));
        // The runner's own switch for options that are not stable: it tells how long each test took.
        command.env(RUNNER, "env RUSTC_BOOTSTRAP=1").args(["-Zunstable-options", "--report-time"]);
        if !names.is_empty() {
            command.args(["--exact", "--test-threads=1"]).args(names);
        } else if std::env::var_os("RUST_TEST_THREADS").is_none() {
            // Tests of the suite wait for half of their time.
            let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
            command.env("RUST_TEST_THREADS", (cores + cores.div_ceil(2)).to_string());
        }
        command
    })
}

/// The variable with which cargo gets the runner of the tests.
const RUNNER: &str = if cfg!(target_arch = "aarch64") {
    "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
} else {
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER"
};

/// As `retries = 1` of other runners: what failed is run once more, alone. Many tests measure time, and a machine that does
/// something else for a second is not a defect; what passes only then is named and counted apart, so that nobody overlooks it.
fn with_second_run(command: impl Fn(&[&str]) -> Command) -> Result<Outcome> {
    let first = capture(&mut command(&[]))?;
    let failed = failures(&first.output);
    if first.success || failed.is_empty() || failed.len() > MAX_RUN_AGAIN {
        return Ok(judge(first));
    }
    let second = capture(&mut command(&failed))?;
    let again = count_tests(&second.output);
    if !second.success || again.passed != failed.len() as u64 {
        return Ok(judge(first));
    }
    let mut count = count_tests(&first.output);
    (count.failed, count.flaky) = (0, again.passed);
    let mut note = test_remarks(&first.output);
    for name in failed {
        note.push_str(&format!("  passed only when run again, alone: {name}\n"));
    }
    Ok(Outcome { count, note })
}

/// More than this is not one bad moment of the machine.
const MAX_RUN_AGAIN: usize = 8;

/// The names of the tests that failed, from the list at the end of each target: what a test's children print can come between a
/// name and its `FAILED` further up.
fn failures(output: &str) -> Vec<&str> {
    let lists = output.split("\nfailures:\n").skip(1);
    lists.flat_map(|list| list.lines().map_while(|line| line.strip_prefix("    "))).collect()
}

/// Each test by name, and how it ended: `ok <0.012s>`.
fn ended(output: &str) -> impl Iterator<Item = (&str, &str)> {
    output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
}

/// The tests that took longest, when there are many: a faster run begins with these.
fn slowest(output: &str) -> String {
    let mut times: Vec<(f64, &str)> = ended(output)
        .filter_map(|(name, how)| {
            let (_, time) = how.split_once('<')?;
            Some((time.strip_suffix("s>")?.parse().ok()?, name))
        })
        .collect();
    times.sort_by(|one, other| other.0.total_cmp(&one.0));
    if times.len() < 10 * SLOWEST {
        return String::new();
    }
    times.iter().take(SLOWEST).map(|(time, name)| format!("  {time:5.1} s  {name}\n")).collect()
}

const SLOWEST: usize = 10;

fn judge(Captured { success, output }: Captured) -> Outcome {
    let mut count = count_tests(&output);
    // It did not build, or died before it could count.
    if !success && count.failed == 0 {
        count.failed = 1;
    }
    let note = if count.failed > 0 { output } else { test_remarks(&output) };
    Outcome { count, note }
}

/// What was left out, and what took longest.
fn test_remarks(output: &str) -> String {
    skips(output).map(|line| format!("  {line}\n")).collect::<String>() + &slowest(output)
}

/// Sums the lines `test result: ok. 3 passed; 0 failed; 1 ignored; …`, and what tests left out.
fn count_tests(output: &str) -> Count {
    let left_out = skips(output).filter(|line| line.starts_with(SKIPPED_PART)).count();
    let mut count = Count { skipped: left_out as u64, ..Count::default() };
    for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let (_, numbers) = line.split_once(". ").unwrap_or_default();
        for part in numbers.split("; ") {
            let (number, what) = part.trim().split_once(' ').unwrap_or_default();
            let number: u64 = number.parse().unwrap_or(0);
            match what {
                "passed" => count.passed += number,
                "failed" => count.failed += number,
                "ignored" => count.skipped += number,
                _ => {}
            }
        }
    }
    count
}

/// The lines that name what was skipped and why: whole tests, and parts that a test says it had to leave out. Tests that take
/// long are counted alone.
fn skips(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| match line.find(SKIPPED_PART) {
        Some(at) => line.get(at..),
        None => (line.starts_with("test ") && line.contains("... ignored") && !line.ends_with(TAKES_LONG))
            .then_some(line),
    })
}

/// The reason with which a test of the suite is left to `all`: `#[ignore = "takes long"]`.
const TAKES_LONG: &str = "takes long";

/// How a test says on standard error that this machine cannot run a part of it.
const SKIPPED_PART: &str = "skipped part of ";

/// The integration tests that `cargo test` would run automatically.
fn black_box() -> Result<Vec<String>> {
    let text =
        succeed(&mut cargo(["metadata", "--no-deps", "--format-version", "1", "--locked", "--quiet"]))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).context("cannot understand cargo's metadata")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|package| package["name"] == "agentsh" || package["name"] == "agentsh-server")
        .flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let own = targets.filter(|target| target["kind"][0] == "test" && target["test"] == true);
    Ok(own.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}

/// Whether the agents, servers, clients and tools are there.
fn install_tools(steps: &mut Steps, offline: bool) -> bool {
    if offline && !install::is_current() {
        steps.run("end to end", || {
            Ok(Outcome {
                count: Count { skipped: 1, ..Count::default() },
                note: "  --offline, and the agents, servers and clients are not installed yet".to_owned(),
            })
        });
        return false;
    }
    offline
        || steps.run("agents, servers and clients", || {
            install::ensure()?;
            Ok(Outcome { count: Count { passed: 1, ..Count::default() }, note: String::new() })
        })
}

fn end_to_end(steps: &mut Steps) {
    let is_built = steps.run("build, end to end", || {
        // Some of its tests have the small internet of the suite: all is built, so that it is the same build.
        let rest = check(&mut linted(&["test", "--workspace", "--locked", "--no-run"]))?;
        if rest.count.failed > 0 {
            return Ok(rest);
        }
        check(&mut linted(&["test", "--workspace", "--locked", "--test", "e2e", "--no-run"]))
    });
    if is_built {
        steps.run("end to end", run_end_to_end);
    }
}

/// What depends on the kernel.
const KERNEL_TESTS: [vm::Tests; 2] = [
    vm::Tests {
        target: &["-p", "agentsh", "--test", "suite"],
        filters: &[
            "escapes::",
            "kill::",
            "network::",
            "pins::",
            "run::delegated",
            "run::environment",
            "run::exit",
        ],
    },
    vm::Tests { target: &["-p", "agentsh-net", "--lib"], filters: &["ebpf::"] },
];

fn machines(steps: &mut Steps) {
    let mut bench = None;
    let prepared = steps.run("build, for the machines", || {
        check(&mut cargo(["build", "-p", "agentsh", "--locked", "--bins", "--examples"]))
    }) && steps.run("disks of the machines", || {
        bench = Some(vm::prepare(&KERNEL_TESTS)?);
        Ok(Outcome { count: Count { passed: 1, ..Count::default() }, note: String::new() })
    });
    let Some(bench) = bench.filter(|_| prepared) else { return };
    for series in vm::SERIES {
        steps.run(&format!("kernel {series}"), || {
            let report = vm::test(&bench, series)?;
            let mut outcome = judge(Captured { success: report.failure.is_none(), output: report.output });
            if outcome.count.passed == 0 && outcome.count.failed == 0 {
                outcome.count.failed = 1;
            }
            let why = report.failure.map(|why| format!("  {why}\n")).unwrap_or_default();
            outcome.note = format!("  {}\n{why}{}", report.kernel, outcome.note);
            Ok(outcome)
        });
    }
}

/// As root in a network namespace with nothing but loopback, so that nothing can leave the machine, and with the
/// installation at a place that an ordinary user can reach too, wherever the repository is. The names of the models lead
/// to this machine there.
const ISOLATE: &str = r#"ip link set lo up && mount --bind "$1" /mnt && shift &&
printf '127.0.0.1 localhost\n127.0.0.2 api.anthropic.com\n127.0.0.3 api.openai.com\n' > /mnt/hosts &&
mount --bind /mnt/hosts /etc/hosts && exec "$@""#;

fn run_end_to_end() -> Result<Outcome> {
    let installation = install::directory();
    if is_root() {
        std::fs::create_dir_all(installation.join("bin"))?;
        for program in ["agentsh", "agentsh-server"] {
            let binary = installation.join("bin").join(program);
            std::fs::copy(target().join("debug").join(program), binary)
                .context("cannot copy the binaries under test")?;
        }
    }
    with_second_run(|names| {
        let mut plain =
            linted(&["test", "--workspace", "--locked", "--offline", "--no-fail-fast", "--test", "e2e"]);
        if !names.is_empty() {
            plain.args(["--", "--exact", "--test-threads=1"]).args(names);
        }
        if !is_root() {
            plain.env("AGENTSH_E2E_DIR", &installation).env("RUST_BACKTRACE", "0");
            return plain;
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c", ISOLATE, "sh"]).arg(&installation);
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(repository());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env("AGENTSH_E2E_DIR", "/mnt")
            .env("AGENTSH_E2E_BINARY", "/mnt/bin/agentsh")
            .env("RUST_BACKTRACE", "0");
        command
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_targets_are_summed() {
        let output = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                      noise 7 passed\ntest result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n";
        assert_eq!(count_tests(output), Count { passed: 5, failed: 4, skipped: 1, flaky: 0 });
        assert_eq!(count_tests("test result: "), Count::default());
    }

    #[test]
    fn failed_tests_are_known_by_name() {
        let output = "test a::b ... ok\ntest c::d ... noise of a child\nFAILED\n\nfailures:\n\n---- c::d stdout ----\n    no name\n\n\
                      failures:\n    c::d\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured\n";
        assert_eq!(failures(output), ["c::d"]);
    }

    #[test]
    fn slowest_tests_are_named_if_there_are_many() {
        let line = |n: usize| format!("test a::t{n} ... ok <{n}.5s>\n");
        let output: String = (0..100).map(line).collect();
        assert!(slowest(&output).starts_with("   99.5 s  a::t99\n   98.5 s"), "{}", slowest(&output));
        assert_eq!(slowest(&output).lines().count(), 10);
        assert_eq!(slowest(&line(1)), "");
    }

    #[test]
    fn flaky_test_is_named_and_one_that_fails_twice_fails() {
        let script = |second: &str| {
            let second = second.to_owned();
            with_second_run(move |names| {
                let mut command = Command::new("sh");
                let first = "echo 'test a ... ok'; echo 'test b ... FAILED'; echo; echo failures:; echo '    b'; \
                             echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 1";
                command.arg("-c").arg(if names.is_empty() { first } else { &second }).args(names);
                command
            })
            .unwrap()
        };
        let good = script("echo 'test b ... ok'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'");
        assert_eq!(good.count, Count { passed: 1, failed: 0, skipped: 0, flaky: 1 });
        assert_eq!(good.note, "  passed only when run again, alone: b\n");
        let bad = script("echo 'test b ... FAILED'; echo 'test result: FAILED. 0 passed; 1 failed'; exit 1");
        assert_eq!(bad.count, Count { passed: 1, failed: 1, skipped: 0, flaky: 0 });
        let nothing = script("echo 'test result: ok. 0 passed; 0 failed; 0 ignored'");
        assert_eq!(nothing.count.failed, 1, "a name that selects nothing proves nothing");
    }

    #[test]
    fn skipped_part_of_a_test_counts_as_a_skip() {
        let output = "skipped part of a::b: needs root\ntest a::b ... ok\ntest c ... ignored, slow\n\
                      test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured\n";
        assert_eq!(count_tests(output), Count { passed: 1, failed: 0, skipped: 2, flaky: 0 });
        let lines: Vec<&str> = skips(output).collect();
        assert_eq!(lines, ["skipped part of a::b: needs root", "test c ... ignored, slow"]);
        assert_eq!(skips("test d ... ignored, takes long\n").count(), 0);
    }
}
