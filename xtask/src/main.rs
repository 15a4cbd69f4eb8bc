//! `cargo xtask`: tests, benchmarks and checks of agentsh. What it needs it installs itself.

#![allow(clippy::disallowed_methods, reason = "this starts compilers and tests, not agents")]

#[cfg(feature = "all")]
mod alarms;
mod bench;
#[cfg(feature = "all")]
mod calibrate;
mod deny;
#[cfg(feature = "all")]
mod dist;
mod ebpf;
mod install;
#[cfg(not(feature = "all"))]
mod light;
mod messages;
mod picture;
mod run;
mod test;
mod vm;
#[cfg(feature = "all")]
mod walk;
mod weight;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(not(feature = "all"))]
use light::{alarms, calibrate, dist, walk};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Tests, benchmarks and checks of agentsh")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run the tests; the last line counts what passed, failed and was skipped
    Test(test::Options),
    /// Build the kernel programs from source, or compare them with what the repository holds
    Ebpf(ebpf::Options),
    /// Write docs/events.schema.json, the JSON schema of events, as the code has it
    Schema,
    /// Draw docs/demo.svg, the picture of the README, from what the demo prints
    Picture,
    /// Make what people install: a tarball, a package for Debian, checksums, a bill of materials
    Dist(dist::Options),
    /// Walk through a newcomer's first minutes with each agent, in a clean root of Debian; takes root, and minutes
    Walk(walk::Options),
    /// Measure agentsh next to its peer or the bare floor, in one run (release build; never part of the tests)
    Bench(bench::Options),
    /// Judge ordinary texts of this machine as results of tools; the alarms in a thousand, by source and by rule
    Alarms(alarms::Options),
    /// Measure what two roles near each other are worth, in attacks and in ordinary texts, and write the scan's points
    Calibrate(calibrate::Options),
    /// Print every text that agentsh can show a person, with file and line
    Messages,
    /// Count crates and lines of agentsh, and hold them against weight.toml
    Weight,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Test(options) => test::main(&options),
        Task::Ebpf(options) => ebpf::main(&options),
        Task::Schema => schema(),
        Task::Picture => picture::main(),
        Task::Dist(options) => dist::main(&options),
        Task::Walk(options) => walk::main(&options),
        Task::Alarms(options) => alarms::main(&options),
        Task::Calibrate(options) => calibrate::main(&options),
        Task::Messages => messages::main(),
        Task::Weight => weight::main(),
        Task::Bench(options) => bench::main(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            run::warn(&format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// The test that holds the file against the code also writes it.
fn schema() -> anyhow::Result<bool> {
    let test = ["test", "-q", "-p", "agentsh-store", "--lib", "the_schema_in_the_documents_is_current"];
    run::succeed(run::cargo(test).env("AGENTSH_WRITE_SCHEMA", "1"))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

    use super::*;

    /// What the documents tell people to type, the table of measured numbers in the README among it.
    #[test]
    fn every_task_that_a_document_names_is_one() {
        let pages = ["README.md", "CONTRIBUTING.md", "tests/README.md", "docs/install.md"];
        let mut tried = 0;
        for page in pages {
            let text = std::fs::read_to_string(run::repository().join(page)).unwrap();
            for rest in text.split("cargo xtask").skip(1) {
                let end = rest.find(['`', '\n', '#', '&', '|', ',', ';']).unwrap_or(rest.len());
                let words = rest[..end].split_whitespace();
                let line: Vec<&str> = std::iter::once("cargo xtask").chain(words).collect();
                if line.len() > 1 {
                    Arguments::try_parse_from(&line)
                        .unwrap_or_else(|error| panic!("{page}: {line:?}: {error}"));
                    tried += 1;
                }
            }
        }
        assert!(tried > 8, "only {tried} were found");
    }

    /// Each row of the table of the README has a number, and the command that measures it: another part in each.
    #[test]
    fn every_measured_number_has_its_part_of_bench() {
        let readme = std::fs::read_to_string(run::repository().join("README.md")).unwrap();
        let table = readme.split("\n## Performance\n").nth(1).unwrap().split("\n## ").next().unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what "));
        let mut parts = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [_, own, _, command] = cells[..] else { panic!("{row}") };
            assert!(own.starts_with(|first: char| first.is_ascii_digit()), "no number: {row}");
            let words = command.trim_matches('`').split(' ');
            let parsed = Arguments::try_parse_from(std::iter::once("cargo xtask").chain(words.skip(2)));
            let Ok(Arguments { task: Task::Bench(options) }) = parsed else { panic!("{row}: {parsed:?}") };
            parts.push(format!("{options:?}"));
        }
        assert_eq!(parts.len(), 6, "{parts:?}");
        parts.sort();
        parts.dedup();
        assert_eq!(parts.len(), 6, "one command stands twice: {parts:?}");
    }
}
