//! What agentsh weighs, held against `weight.toml`: a change that makes it heavier edits that file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::run;

/// Section and name in `weight.toml`, and the number.
type Weights = BTreeMap<String, BTreeMap<String, u64>>;

/// The section about what a start costs.
const START: &str = "start";

/// The packages whose normal dependencies are counted.
const PROGRAMS: [&str; 2] = ["agentsh", "agentsh-server"];

/// Prints every number next to its maximum; whether none is above it.
pub fn main() -> Result<bool> {
    let (mut measured, mut maxima) = (measure()?, maxima()?);
    let start = start()?;
    if start.is_empty() {
        run::warn("start: not counted, since strace is not installed (apt-get install strace)");
        maxima.remove(START);
    } else {
        measured.insert(START.to_owned(), start);
    }
    for (section, weights) in &measured {
        for (name, weight) in weights {
            let maximum = maxima.get(section).and_then(|section| section.get(name));
            let maximum = maximum.map_or_else(|| "none".to_owned(), u64::to_string);
            run::print_text(&format!("{section} {name}: {weight} (maximum {maximum})\n"));
        }
    }
    let faults = faults(&measured, &maxima);
    for fault in &faults {
        run::warn(fault);
    }
    Ok(faults.is_empty())
}

fn measure() -> Result<Weights> {
    let mut crates = BTreeMap::new();
    for program in PROGRAMS {
        crates.insert(program.to_owned(), crates_behind(program)?);
    }
    Ok(BTreeMap::from([("crates".to_owned(), crates), ("lines".to_owned(), lines()?)]))
}

/// What a start costs, as the test of the suite counts it that holds it against `weight.toml`; empty where nothing traces
/// system calls. Without root only what a user's start costs.
fn start() -> Result<BTreeMap<String, u64>> {
    if run::find("strace").is_none() {
        return Ok(BTreeMap::new());
    }
    let test = ["test", "--workspace", "--locked", "--quiet", "--test", "suite", "--"];
    let name = ["--exact", "run::start::a_start_costs_what_weight_toml_says", "--nocapture"];
    let output = run::capture(&mut run::cargo(test.iter().chain(&name)))?.output;
    let counts: BTreeMap<String, u64> = output.lines().filter_map(count).collect();
    anyhow::ensure!(!counts.is_empty(), "the costs of a start were not counted:\n{}", output.trim_end());
    Ok(counts)
}

/// `start NAME: NUMBER`
fn count(line: &str) -> Option<(String, u64)> {
    let (name, count) = line.strip_prefix("start ")?.split_once(": ")?;
    Some((name.to_owned(), count.parse().ok()?))
}

fn maxima() -> Result<Weights> {
    let text = std::fs::read_to_string(run::repository().join("weight.toml")).context("weight.toml")?;
    toml::from_str(&text).context("weight.toml")
}

/// What is heavier than its maximum, what has none, and maxima of what is no more.
fn faults(measured: &Weights, maxima: &Weights) -> Vec<String> {
    let mut faults = Vec::new();
    for (section, weights) in measured {
        for (name, weight) in weights {
            match maxima.get(section).and_then(|section| section.get(name)) {
                Some(maximum) if weight <= maximum => {}
                Some(maximum) => faults.push(format!(
                    "{section} {name}: {weight}, more than {maximum}: make it lighter, or raise it in weight.toml and say why in the commit"
                )),
                None => faults.push(format!("{section} {name}: {weight}, and no maximum in weight.toml")),
            }
        }
    }
    for (section, weights) in maxima {
        for name in weights.keys() {
            if !measured.get(section).is_some_and(|section| section.contains_key(name)) {
                faults.push(format!("{section} {name}: stands in weight.toml and is not there"));
            }
        }
    }
    faults
}

/// Packages in the tree of normal dependencies, the program among them.
fn crates_behind(program: &str) -> Result<u64> {
    let tree = ["tree", "--locked", "-p", program, "-e", "normal", "--prefix", "none", "--format", "{p}"];
    let output = run::cargo(tree).output().context("cannot start cargo tree")?;
    anyhow::ensure!(output.status.success(), "cargo tree -p {program} failed");
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty());
    Ok(names.collect::<BTreeSet<_>>().len() as u64)
}

/// Lines of the product by crate.
fn lines() -> Result<BTreeMap<String, u64>> {
    let root = run::repository().join("agentsh");
    let mut lines = BTreeMap::from([("agentsh".to_owned(), lines_below(&root.join("src"))?)]);
    for entry in std::fs::read_dir(root.join("crates"))? {
        let entry = entry?;
        let source = entry.path().join("src");
        if source.is_dir() {
            lines.insert(entry.file_name().to_string_lossy().into_owned(), lines_below(&source)?);
        }
    }
    Ok(lines)
}

fn lines_below(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if name == "tests" || name == "tests.rs" || name.to_string_lossy().ends_with("_tests.rs") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            sum += lines_below(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sum += product_lines(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(sum)
}

/// Lines before the tests at the end of a file.
fn product_lines(text: &str) -> u64 {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    product.lines().count() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn weights(name: &str, weight: u64) -> Weights {
        BTreeMap::from([("crates".to_owned(), BTreeMap::from([(name.to_owned(), weight)]))])
    }

    #[test]
    fn weights_are_within_their_maxima() {
        let mut maxima = maxima().unwrap();
        // A test of the suite holds it.
        maxima.remove(START);
        let faults = faults(&measure().unwrap(), &maxima);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn weight_growth_and_missing_or_stale_maxima_are_faults() {
        assert!(faults(&weights("a", 2), &weights("a", 2)).is_empty());
        assert!(faults(&weights("a", 1), &weights("a", 2)).is_empty());
        assert_eq!(faults(&weights("a", 3), &weights("a", 2)).len(), 1);
        assert_eq!(faults(&weights("a", 1), &weights("b", 1)).len(), 2);
    }

    #[test]
    fn costs_of_a_start_are_read_from_the_test() {
        assert_eq!(count("start calls-root: 12"), Some(("calls-root".to_owned(), 12)));
        assert_eq!(count("start of something: else"), None);
    }

    #[test]
    fn weight_does_not_count_test_lines() {
        assert_eq!(product_lines("one\ntwo\n#[cfg(test)]\nmod tests {\n    x\n}\n"), 2);
    }
}
