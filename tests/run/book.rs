//! The documents as a book: what it lists is there, and what it tells people to write is good.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Mode, Outcome, Place};

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Targets of the links in a page, without what stands behind `#`.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap().to_owned())
        .filter(|link| !link.is_empty())
        .collect()
}

#[test]
fn the_summary_lists_every_page_and_every_page_is_there() {
    let summary = fs::read_to_string(documents().join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&summary).into_iter().collect();
    assert!(listed.len() > 15, "{listed:?}");
    for page in &listed {
        let text =
            fs::read_to_string(documents().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.starts_with("# "), "{page} has no title");
    }
    let there =
        fs::read_dir(documents()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> =
        there.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert_eq!(listed, there);
}

#[test]
fn pages_of_the_book_lead_to_files_that_exist() {
    for page in ["install.md", "refusals.md", "compare.md", "security.md", "agents.md"] {
        for link in links(&fs::read_to_string(documents().join(page)).unwrap()) {
            assert!(link.starts_with("https:") || documents().join(&link).exists(), "{page}: {link}");
        }
    }
}

#[test]
fn every_recipe_is_a_policy() {
    let place = Place::new(Mode::Invoker);
    let text = fs::read_to_string(documents().join("refusals.md")).unwrap();
    let recipes: Vec<&str> =
        text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(recipes.len() >= 8);
    for (number, recipe) in recipes.iter().enumerate() {
        // Not in the project, where a policy may only narrow.
        let file = place.path(&format!("recipe-{number}.yaml"));
        fs::write(&file, format!("version: 1\n{recipe}")).unwrap();
        let checked = Outcome::of(&mut place.agentsh(&["policy", "check", file.to_str().unwrap()]));
        assert_eq!(checked.code, 0, "{recipe}\n{checked}");
    }
}
