//! `cargo build`, `npm ci`, `uv sync`, `go test` and their tests in a project that was built before: under `agentsh run` with
//! the default policy, next to the same outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::measure::{Bound, Report, Samples, milliseconds};
use crate::install;
use crate::run::{find, print_text};

/// What a warm build inside may cost.
const MAX_COUNT: Bound = Bound::AtMost(1.1);

struct Work {
    name: &'static str,
    needs: &'static [&'static str],
    /// Makes the project, once; the other copy is made from it.
    make: &'static str,
    /// Before each round, not measured: something to build.
    touch: &'static str,
    run: &'static str,
    bar: Bound,
}

/// Forty modules, so that there is something to compile.
const MODULES: &str = "for n in $(seq 40); do printf 'use std::collections::BTreeMap;\\n\
    pub fn count(text: &str) -> BTreeMap<String, usize> {\\n    let mut all = BTreeMap::new();\\n    \
    for word in text.split_whitespace() { *all.entry(format!(\"{word}-%s\")).or_default() += 1; }\\n    all\\n}\\n\
    #[test]\\nfn counts() { assert_eq!(count(\"a b a\").len(), 2); }\\n' $n > src/m$n.rs; echo \"pub mod m$n;\" >> src/lib.rs; done";

/// A project of Python with twenty tests.
const PYTHON: &str = "printf '[project]\\nname = \"day\"\\nversion = \"1\"\\nrequires-python = \">=3.9\"\\ndependencies = [\"requests\", \"rich\", \
               \"pytest\"]\\n' > pyproject.toml; uv lock -q; mkdir tests; \
               for n in $(seq 20); do echo 'import requests, rich\ndef test_it(): assert 1 + 1 == 2' > tests/test_$n.py; done";

const WORKS: &[Work] = &[
    Work {
        name: "cargo build && cargo test",
        needs: &["cargo", "cc"],
        make: "cargo init -q --lib --name day --vcs none .; : > src/lib.rs; ${MODULES}; \
               printf 'serde_json = \"1\"\\nregex = \"1\"\\n' >> Cargo.toml; echo 'fn main() { println!(\"{}\", serde_json::json!({\"a\": \
               regex::Regex::new(\"a\").is_ok()})); }' > src/main.rs",
        touch: "echo \"// $ROUND\" >> src/lib.rs",
        run: "cargo build -q && cargo test -q >/dev/null",
        bar: MAX_COUNT,
    },
    Work {
        name: "cargo build with nothing to do",
        needs: &["cargo", "cc"],
        make: "cargo init -q --name day --vcs none .",
        touch: ":",
        run: "for n in 1 2 3 4 5 6 7 8 9 10; do cargo build -q; done",
        bar: MAX_COUNT,
    },
    Work {
        name: "npm ci && npm test",
        needs: &["npm", "node"],
        make: "echo '{\"name\": \"day\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node --test test.js\"}}' > package.json; \
               npm install --silent --no-audit --no-fund express@4 lodash@4 eslint@9; \
               echo 'const test = require(\"node:test\"); test(\"it\", () => { require(\"express\"); require(\"lodash\") })' > test.js",
        touch: ":",
        run: "npm ci --silent --no-audit --no-fund && npm test --silent >/dev/null",
        bar: MAX_COUNT,
    },
    Work {
        name: "uv sync && pytest",
        needs: &["uv", "python3"],
        make: PYTHON,
        touch: "echo \"# $ROUND\" >> tests/test_1.py",
        run: "uv sync -q && .venv/bin/pytest -q >/dev/null",
        bar: MAX_COUNT,
    },
    Work {
        name: "uv sync of a new environment (copied inside, where outside are links to the cache)",
        needs: &["uv", "python3"],
        make: PYTHON,
        touch: "rm -rf .venv",
        run: "uv sync -q",
        bar: Bound::None,
    },
    Work {
        name: "go test",
        needs: &["go"],
        make: "go mod init day 2>/dev/null; for n in $(seq 20); do mkdir p$n; printf 'package p\\nimport \"strings\"\\nfunc F(s string) int \
               { return strings.Count(s, \"a\") + %s }\\n' $n > p$n/p.go; printf 'package p\\nimport \"testing\"\\nfunc TestF(t *testing.T) \
               { if F(\"\") != %s { t.Fatal() } }\\n' $n > p$n/p_test.go; done",
        touch: "for n in $(seq 20); do echo \"// $ROUND\" >> p$n/p.go; done",
        run: "go test ./... >/dev/null",
        bar: MAX_COUNT,
    },
];

/// # Errors
/// When something that is there does not work.
pub fn measure(agentsh: &Path, rounds: u32, report: &mut Report) -> Result<()> {
    // Next to every repository and workspace: a project there would be a part of it.
    let directory = tempfile::Builder::new()
        .prefix("agentsh-bench-day-")
        .tempdir()
        .context("cannot make the projects")?;
    let root = directory.path();
    let mut path = vec![];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    path.extend(install::tools());
    let bench =
        Bench { agentsh: agentsh.to_owned(), path: std::env::join_paths(path)?, state: root.join("state") };
    for (number, work) in WORKS.iter().enumerate() {
        if let Some(missing) = work.needs.iter().find(|program| !bench.has(program)) {
            print_text(&format!("{}: skipped: {missing} is not installed\n", work.name));
            continue;
        }
        bench.compare(work, &root.join(number.to_string()), rounds, report)?;
    }
    Ok(())
}

/// How long something took, and how long processors worked for its programs: on a busy machine the second says more.
struct Timing {
    microseconds: f64,
    processor: f64,
}

/// As `times` of the shell writes it: `0m1.23s`.
fn seconds(text: &str) -> Option<f64> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()?.mul_add(60.0, seconds.parse().ok()?))
}

struct Bench {
    agentsh: PathBuf,
    path: std::ffi::OsString,
    state: PathBuf,
}

impl Bench {
    fn has(&self, program: &str) -> bool {
        find(program).is_some() || std::env::split_paths(&self.path).any(|at| at.join(program).is_file())
    }

    /// With the user's own home, because toolchains and caches are part of everyday work. agentsh's own files are elsewhere.
    fn script(&self, project: &Path, inside: bool, text: &str, round: u32) -> Command {
        let mut command = Command::new(if inside { self.agentsh.as_os_str() } else { "sh".as_ref() });
        if inside {
            command.args(["run", "--quiet", "--", "sh"]);
        }
        command.args(["-ec", text]).current_dir(project).stdin(Stdio::null());
        command.env("PATH", &self.path).env("ROUND", round.to_string());
        command.env("XDG_STATE_HOME", &self.state).env("XDG_DATA_HOME", &self.state);
        command
    }

    fn done(&self, project: &Path, inside: bool, text: &str, round: u32) -> Result<Timing> {
        let started = Instant::now();
        let output = self.script(project, inside, &format!("{text}\ntimes"), round).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{text}: {said}{}", String::from_utf8_lossy(&output.stderr));
        let processor = said.lines().last().unwrap_or_default().split(' ').filter_map(seconds).sum();
        Ok(Timing { microseconds: started.elapsed().as_secs_f64() * 1e6, processor })
    }

    fn compare(&self, work: &Work, root: &Path, rounds: u32, report: &mut Report) -> Result<()> {
        let (outside, inside) = (root.join("outside"), root.join("inside"));
        std::fs::create_dir_all(&outside)?;
        self.done(&outside, false, &work.make.replace("${MODULES}", MODULES), 0)?;
        self.done(root, false, "cp -a outside inside", 0)?;
        let (mut times, mut processor) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let mut cold = [0.0; 2];
        for round in 0..=rounds {
            for (number, (project, is_inside)) in [(&outside, false), (&inside, true)].into_iter().enumerate()
            {
                self.done(project, false, work.touch, round)?;
                let took = self.done(project, is_inside, work.run, round)?;
                // The first one fetches and builds what the others find.
                if round == 0 {
                    cold[number] = took.microseconds;
                    continue;
                }
                times[number].push(took.microseconds);
                processor[number].push(took.processor);
            }
        }
        let [outside, inside] = times.map(Samples::new);
        let [processor_outside, processor_inside] = processor.map(|all| Samples::new(all).median());
        report.line(
            &format!("{}, warm", work.name),
            &format!(
                "inside {}  outside {}  processor {processor_inside:.2} s, {processor_outside:.2} s  (first: {:.0} ms, {:.0} ms)",
                milliseconds(&inside),
                milliseconds(&outside),
                cold[1] / 1e3,
                cold[0] / 1e3
            ),
            ("ratio", inside.median() / outside.median(), ""),
            work.bar,
        );
        Ok(())
    }
}
