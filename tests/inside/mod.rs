//! The same probes outside and inside: `probes.txt` says where an answer may differ, and why; everything else is the same.
//! `docs/inside.md` is that list. `AGENTSH_WRITE_SNAPSHOTS=1` writes it anew.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Mode, Outcome, Place};

const PROBES: &str = include_str!("probes.txt");

#[derive(Default)]
struct Probe {
    group: &'static str,
    name: &'static str,
    script: String,
    why: Option<&'static str>,
    /// The reason if root started the sandbox.
    why_root: Option<&'static str>,
}

impl Probe {
    /// Why the answer may differ; None: it is the same.
    fn reason(&self) -> Option<String> {
        let root_only = || self.why_root.map(|why| format!("only if root started agentsh: {why}"));
        self.why.map(str::to_owned).or_else(root_only)
    }
}

fn probes() -> Vec<Probe> {
    let mut probes: Vec<Probe> = Vec::new();
    let mut group = "";
    for line in PROBES.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            group = name;
        } else if let Some(why) = line.strip_prefix("  =root ") {
            probes.last_mut().unwrap().why_root = Some(why);
        } else if let Some(why) = line.strip_prefix("  = ") {
            probes.last_mut().unwrap().why = Some(why);
        } else if let Some(text) = line.strip_prefix("  ") {
            writeln!(probes.last_mut().unwrap().script, "{text}").unwrap();
        } else if !line.is_empty() && !line.starts_with('#') {
            probes.push(Probe { group, name: line, ..Probe::default() });
        }
    }
    probes
}

/// What a probe answers, each time in a new directory of the same name.
fn answer(place: &Place, probe: &Probe, run: &str) -> (i32, String) {
    let directory = place.home.join("probe");
    let _ = fs::remove_dir_all(&directory);
    place.make_directory(&directory);
    let mut command = place.agentsh(&[]);
    let agentsh = PathBuf::from(command.get_program());
    let run = run.replace("agentsh", &agentsh.display().to_string());
    command = place.command("setsid");
    command.args(["-w", "sh", "-c"]).current_dir(&directory).env("RUN", run).env("PWD", &directory);
    if probe.script.contains("$RUN") {
        command.arg(&probe.script);
    } else {
        command.args(["exec $RUN sh -c \"$1\"", "sh", &probe.script]);
    }
    let outcome = Outcome::of(&mut command);
    (outcome.code, outcome.stdout)
}

fn compare(mode: Mode) {
    let place = Place::new(mode);
    let mut surprises = String::new();
    for probe in probes() {
        // For one that does not end.
        eprintln!("{}", probe.name);
        let (outside, inside) =
            (answer(&place, &probe, ""), answer(&place, &probe, "agentsh run --quiet --"));
        let may_differ = probe.why.is_some() || mode.is_root() && probe.why_root.is_some();
        if outside != inside && !may_differ {
            writeln!(surprises, "{}:\n  outside {outside:?}\n  inside  {inside:?}", probe.name).unwrap();
        }
    }
    assert!(surprises.is_empty(), "{mode:?}:\n{surprises}");
}

#[test]
#[ignore = "takes long"]
fn probes_answer_the_same_inside_and_outside() {
    for mode in Mode::all() {
        compare(mode);
    }
}

/// A probe that says why it differs would hide that it answers nothing at all.
#[test]
fn every_probe_says_what_is_run_and_no_two_are_called_the_same() {
    let probes = probes();
    let mut names: Vec<&str> = probes.iter().map(|probe| probe.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), probes.len());
    assert!(
        probes.len() > 150 && probes.iter().all(|probe| !probe.script.is_empty() && !probe.group.is_empty())
    );
}

#[test]
fn documented_probes_match_the_list() {
    let probes = probes();
    let same = probes.iter().filter(|probe| probe.reason().is_none()).count();
    let root_only = probes.iter().filter(|probe| probe.why.is_none()).count() - same;
    let mut text = format!(
        "# Compatibility matrix\n\n`tests/inside` runs {} probes outside and inside a sandbox, as an ordinary user and as root. \
         {same} give the\nsame answer, byte for byte, and {root_only} more if an ordinary user starts agentsh. The tables say where an \
         answer\nmay differ, and why.\n",
        probes.len()
    );
    let mut rest = probes.as_slice();
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(|probe| probe.group == first.group).count();
        let (group, after) = rest.split_at(length);
        rest = after;
        let same: Vec<&str> =
            group.iter().filter(|probe| probe.reason().is_none()).map(|probe| probe.name).collect();
        writeln!(text, "\n## {}\n\nThese give the same answer:\n\n- {}", first.group, same.join("\n- "))
            .unwrap();
        // Probes with the same reason share a row.
        let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
        for probe in group {
            let Some(why) = probe.reason() else { continue };
            match rows.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) => names.push(probe.name),
                None => rows.push((why, vec![probe.name])),
            }
        }
        if !rows.is_empty() {
            text.push_str("\n| may differ | why |\n|---|---|\n");
        }
        for (why, names) in rows {
            writeln!(text, "| {} | {} |", names.join("; "), why.replace('|', "\\|")).unwrap();
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/inside.md");
    if std::env::var_os("AGENTSH_WRITE_SNAPSHOTS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let document = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        document == text,
        "docs/inside.md is not this list; write it anew with AGENTSH_WRITE_SNAPSHOTS=1"
    );
}
