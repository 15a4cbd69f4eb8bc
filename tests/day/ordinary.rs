//! The ordinary tasks of `docs/a-day.md`, done by the real programs: each gives the result that its row says, and a
//! refusal says why.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tasks::{self, Task};
use crate::support::{Mode, Outcome, Place, skip};

const MINE: &str =
    "[user]\n\tname = Ada Example\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n";

fn all() -> Vec<(&'static str, &'static [Task])> {
    vec![
        ("Git", tasks::git::TASKS),
        ("Files of the project", tasks::project::TASKS),
        ("Languages and tools", tasks::programs::TASKS),
        ("The machine and the network", tasks::machine::TASKS),
    ]
}

/// Whether the user of this place has the program.
fn is_installed(place: &Place, program: &str) -> bool {
    super::tools(place)
        .into_iter()
        .chain(["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from))
        .any(|directory| directory.join(program).exists())
}

/// A new copy of the project and of the files next to it.
fn copy(place: &Place, number: usize) -> PathBuf {
    let template = place.home.join("template");
    if !template.exists() {
        place.write(place.home.join(".gitconfig"), MINE);
        place.write(
            place.home.join("unmasked.yaml"),
            "agent: {filesystem: {write: [\".\"], unmask: [.git/config]}}\n",
        );
        place.make_directory(&template);
        let mut command = place.command("sh");
        command.args(["-ec", include_str!("tasks/template.sh")]).current_dir(&template);
        Outcome::of(&mut command).expect_code(0);
    }
    let own = place.home.join(format!("day/{number}"));
    place.make_directory(own.parent().unwrap());
    Outcome::of(place.command("cp").arg("-a").args([&template, &own])).expect_code(0);
    own.join("proj")
}

fn script(command: &mut Command, directory: &Path, text: &str) -> Outcome {
    Outcome::of(command.args(["-ec", text]).current_dir(directory))
}

/// What went wrong with one task.
fn surprise(place: &Place, number: usize, task: &Task) -> Option<String> {
    // For one that does not end.
    eprintln!("{}", task.name);
    let project = copy(place, number);
    let told = |what: &str, outcome: &Outcome| Some(format!("{}: {what}: {outcome}", task.name));
    let before = script(&mut place.command("sh"), &project, task.before);
    if before.code != 0 {
        return told("cannot be prepared", &before);
    }
    let mut words = vec!["run", "--quiet"];
    words.extend(task.flags);
    words.extend(["--", "sh"]);
    let mut command = place.agentsh(&words);
    let outcome = script(&mut command, &project.join(task.place), task.inside);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    match task.refused {
        Some(_) if outcome.code == 0 => return told("is not refused", &outcome),
        Some(says) if !said.contains(says) => return told("does not say why", &outcome),
        None if outcome.code != 0 => return told("does not work", &outcome),
        _ => {}
    }
    let after = script(&mut place.command("sh"), &project, task.after);
    if after.code != 0 {
        return told("leaves something else behind", &after);
    }
    let _ = fs::remove_dir_all(project.parent().unwrap());
    None
}

fn do_all(subject: &str) {
    let (_, tasks) = all().into_iter().find(|(name, _)| *name == subject).unwrap();
    for mode in Mode::all() {
        let place = Place::new(mode);
        super::use_tools(&place);
        let mut surprises = String::new();
        let mut count = 0;
        for (number, task) in tasks.iter().enumerate() {
            if let Some(missing) = task.needs.iter().find(|program| !is_installed(&place, program)) {
                skip(&format!("{}: {missing} is not installed", task.name));
                continue;
            }
            if let Some(surprise) = surprise(&place, number, task) {
                count += 1;
                writeln!(surprises, "{surprise}").unwrap();
            }
        }
        assert!(surprises.is_empty(), "{mode:?}: {count} of {}:\n{surprises}", tasks.len());
    }
}

#[test]
#[ignore = "takes long"]
fn everyday_git_commands_work() {
    do_all("Git");
}

#[test]
#[ignore = "takes long"]
fn everyday_file_commands_work() {
    do_all("Files of the project");
}

#[test]
#[ignore = "takes long"]
fn everyday_language_tools_work() {
    do_all("Languages and tools");
}

#[test]
#[ignore = "takes long"]
fn everyday_system_commands_work() {
    do_all("The machine and the network");
}

/// The document lists what is tested, and nothing else.
#[test]
fn documented_day_commands_match_the_table() {
    let mut text = String::new();
    for (subject, tasks) in all() {
        let works: Vec<&str> =
            tasks.iter().filter(|task| task.refused.is_none()).map(|task| task.name).collect();
        writeln!(text, "### {subject}\n\nThese work:\n\n- {}\n", works.join("\n- ")).unwrap();
        text.push_str("| refused | message |\n|---|---|\n");
        for task in tasks {
            if let Some(says) = task.refused {
                writeln!(text, "| {} | `{says}` … |", task.name).unwrap();
            }
        }
        text.push('\n');
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/a-day.md");
    let document = fs::read_to_string(&file).unwrap_or_default();
    assert!(document.contains(text.trim_end()), "docs/a-day.md does not hold this table:\n{text}");
}
