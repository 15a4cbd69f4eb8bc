//! `cargo xtask calibrate`: points for pairs of roles (`policies/patterns/roles.yaml`), measured. A pair is worth the
//! logarithm of how much more frequent it is in attacks than in ordinary texts. Ordinary texts are those of `alarms`, by
//! package: half of the packages are counted, the others set the threshold by the budget, and `alarms` tests it. Sources of
//! attacks are left out one by one, so that what is printed is what the points find in a source that they do not know.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use agentsh_base::json;
use agentsh_scan::{ALARM_POINTS, Patterns, WINDOW, definition_text};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{alarms, run};

#[derive(Debug, Args)]
pub struct Options {
    /// Attacks: JSON lines with `text` or `tool`, `source`, and `payload` where only a part of the text is the attack; also gzipped
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    attacks: Vec<PathBuf>,
    /// Ordinary texts in the same form, besides those of this machine
    #[arg(long, value_name = "FILE", num_args = 1..)]
    ordinary: Vec<PathBuf>,
    /// Files of each source of this machine, at most
    #[arg(long, value_name = "N", default_value_t = 8000)]
    sample: usize,
    /// Write the points; without it they are only measured
    #[arg(long)]
    write: bool,
}

const FILE: &str = "policies/patterns/points.txt";
/// Alarms in a thousand ordinary texts that are left to the points: the rest of the budget of `alarms` is that of the rules.
const BUDGET: f64 = 0.4;
/// A pair counts as if this many more attacks had been seen, of which one in a hundred contains it.
const UNSEEN: f64 = 50.0;
const RATE: f64 = 0.01;

type Pairs = Vec<Vec<(usize, u16)>>;

struct Text {
    source: String,
    pairs: Pairs,
    /// The pairs of the part that is the attack.
    counted: BTreeSet<u16>,
}

/// # Errors
///
/// Files that cannot be read or hold something else.
pub fn main(options: &Options) -> Result<bool> {
    let attacks = rows(&options.attacks)?;
    let mut ordinary = rows(&options.ordinary)?;
    for (name, roots) in alarms::sources() {
        for root in roots {
            let mut files = Vec::new();
            alarms::collect(&root, &mut files);
            files.sort_by_cached_key(|file| digest(&file.to_string_lossy()));
            let texts = files.iter().filter_map(|file| Some((file, alarms::read(file)?)));
            for (file, content) in texts.take(options.sample) {
                ordinary.push(text(format!("{name}:{}", package(&root, file)), &content, None));
            }
        }
    }
    ensure!(!attacks.is_empty() && ordinary.len() > 1000, "too few texts to measure anything");
    let (counted, setting): (Vec<&Text>, Vec<&Text>) =
        ordinary.iter().partition(|text| digest(&text.source)[0].is_multiple_of(2));

    let sources: BTreeSet<&str> = attacks.iter().map(|text| text.source.as_str()).collect();
    let (mut found, mut all) = (0, 0);
    for source in sources {
        let (left, known): (Vec<_>, Vec<_>) = attacks.iter().partition(|text| text.source == source);
        let points = scaled(&measure(&known, &counted), &setting);
        let number = left.iter().filter(|text| best(&points, &text.pairs) >= f64::from(ALARM_POINTS)).count();
        run::print_text(&format!("{source}: {number} of {} with the points of other sources\n", left.len()));
        (found, all) = (found + number, all + left.len());
    }
    let all_attacks: Vec<&Text> = attacks.iter().collect();
    let points = scaled(&measure(&all_attacks, &counted), &setting);
    run::print_text(&format!("all sources: {found} of {all}\n"));
    if options.write {
        write(&points, attacks.len(), counted.len())?;
    }
    Ok(true)
}

fn digest(text: &str) -> Vec<u8> {
    Sha256::digest(text.as_bytes()).to_vec()
}

/// The directory of a package below the one that holds packages: files of one are never both counted and tested.
fn package(root: &Path, file: &Path) -> String {
    let below = file.strip_prefix(root).unwrap_or(file);
    let depth = if root.ends_with("registry/src") { 2 } else { 1 };
    below.iter().take(depth).collect::<PathBuf>().display().to_string()
}

fn text(source: String, text: &str, payload: Option<&str>) -> Text {
    let patterns = Patterns::builtin();
    let pairs = patterns.roles(text);
    let of_payload = payload.map(|payload| patterns.roles(payload));
    let counted = of_payload.as_ref().unwrap_or(&pairs).iter().flatten().map(|(_, pair)| *pair).collect();
    Text { source, pairs, counted }
}

fn rows(files: &[PathBuf]) -> Result<Vec<Text>> {
    let mut rows = Vec::new();
    for file in files {
        let name = || file.display().to_string();
        let mut content = std::fs::read(file).with_context(name)?;
        if content.starts_with(&[0x1f, 0x8b]) {
            let packed = std::mem::take(&mut content);
            flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut content).with_context(name)?;
        }
        for line in String::from_utf8(content).with_context(name)?.lines() {
            let row: Value = serde_json::from_str(line).with_context(name)?;
            // Orders that look like ordinary text, and texts that quote attacks, are not used.
            if row["difficulty"] == "implicit" || row["quotes_attack"] == true {
                continue;
            }
            let source = row["source"].as_str().unwrap_or_default().to_owned();
            let content = if row["tool"].is_object() {
                let tool = row["tool"].to_string();
                json::read(tool.as_bytes()).ok().map(|tool| definition_text(&tool))
            } else {
                row["text"].as_str().map(str::to_owned)
            };
            let content = content.with_context(|| format!("{}: a row without `text`", name()))?;
            rows.push(text(source, &content, row["payload"].as_str()));
        }
    }
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "counts of texts")]
fn measure(attacks: &[&Text], ordinary: &[&Text]) -> BTreeMap<u16, f64> {
    let count = |texts: &[&Text]| {
        let mut counts = BTreeMap::<u16, f64>::new();
        texts.iter().flat_map(|text| &text.counted).for_each(|pair| *counts.entry(*pair).or_default() += 1.0);
        counts
    };
    let other = count(ordinary);
    count(attacks)
        .into_iter()
        .map(|(pair, number)| {
            let attack = (number + UNSEEN * RATE) / (attacks.len() as f64 + UNSEEN);
            let plain = (other.get(&pair).unwrap_or(&0.0) + 0.5) / (ordinary.len() as f64 + 1.0);
            (pair, (attack / plain).ln())
        })
        .filter(|(_, points)| *points > 0.0)
        .collect()
}

/// The points of the heaviest window, as the scan adds them up.
fn best(points: &BTreeMap<u16, f64>, pairs: &Pairs) -> f64 {
    let mut best = 0.0_f64;
    for view in pairs {
        let worth: Vec<(usize, u16, f64)> =
            view.iter().filter_map(|(at, pair)| Some((*at, *pair, *points.get(pair)?))).collect();
        let (mut counts, mut first, mut sum) = (BTreeMap::<u16, usize>::new(), 0, 0.0);
        for (at, pair, points) in &worth {
            let count = counts.entry(*pair).or_default();
            *count += 1;
            sum += if *count == 1 { *points } else { 0.0 };
            while worth[first].0 + WINDOW < *at {
                let (_, pair, points) = &worth[first];
                let count = counts.entry(*pair).or_default();
                *count -= 1;
                sum -= if *count == 0 { *points } else { 0.0 };
                first += 1;
            }
            best = best.max(sum);
        }
    }
    best
}

/// The points as they are written: scaled so that [`ALARM_POINTS`] is what the budget allows.
fn scaled(points: &BTreeMap<u16, f64>, setting: &[&Text]) -> BTreeMap<u16, f64> {
    let told = threshold(points, setting, BUDGET);
    let scale = |points: f64| (points / told * f64::from(ALARM_POINTS)).round().min(255.0);
    points.iter().map(|(pair, points)| (*pair, scale(*points))).filter(|(_, points)| *points > 0.0).collect()
}

/// What as many ordinary texts reach as the budget allows.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of texts"
)]
fn threshold(points: &BTreeMap<u16, f64>, ordinary: &[&Text], budget: f64) -> f64 {
    let mut scores: Vec<f64> = ordinary.iter().map(|text| best(points, &text.pairs)).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    let allowed = (scores.len() as f64 * budget / 1000.0) as usize;
    scores.get(allowed).map_or(f64::MAX, |score| score + 1e-6)
}

fn write(points: &BTreeMap<u16, f64>, attacks: usize, ordinary: usize) -> Result<()> {
    let mut out = format!(
        "# Points for two roles near each other; {ALARM_POINTS} raise an alarm. Written by `cargo xtask calibrate` from {attacks} attacks and\n\
         # {ordinary} ordinary texts.\n"
    );
    for (pair, points) in points {
        out.push_str(&format!("{} {points}\n", Patterns::builtin().pairs.name(usize::from(*pair))));
    }
    std::fs::write(run::repository().join(FILE), out).context(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_pairs_of_attacks_alone_get_points_within_a_window() {
        let with = |pairs: &[(usize, u16)]| Text {
            source: String::new(),
            pairs: vec![pairs.to_vec()],
            counted: pairs.iter().map(|(_, pair)| *pair).collect(),
        };
        let attacks = [with(&[(0, 1), (10, 2)]), with(&[(0, 1), (5, 1)])];
        let ordinary: Vec<Text> = (0..100).map(|_| with(&[(0, 2)])).collect();
        let points = measure(&attacks.iter().collect::<Vec<_>>(), &ordinary.iter().collect::<Vec<_>>());
        assert_eq!(points.keys().copied().collect::<Vec<_>>(), [1]);
        assert_eq!(best(&points, &attacks[0].pairs), points[&1]);
        let points = BTreeMap::from([(1, 2.0), (2, 3.0)]);
        assert_eq!(best(&points, &vec![vec![(0, 1), (WINDOW, 2)]]), 5.0);
        assert_eq!(best(&points, &vec![vec![(0, 1), (WINDOW + 1, 2), (WINDOW + 2, 2)]]), 3.0);
    }
}
