//! The documents as a book: the files that it lists exist, and the policies that it shows are valid.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Mode, Outcome, Place, skip};

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Targets of the links in a page, without what is behind `#`.
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

/// Every decision record has a title with its number, says whether it still holds, and is in the index once.
#[test]
fn decision_records_have_a_title_a_status_and_a_line_in_the_index() {
    let folder = documents().join("decisions");
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.filter(|name| name != "README.md").collect();
    let numbers: BTreeSet<&str> = names.iter().map(|name| &name[..4]).collect();
    assert_eq!(numbers.len(), names.len(), "a number is used twice");
    let mut expected = BTreeSet::new();
    for name in &names {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let (number, mut lines) = (&name[..4], text.lines());
        let title = lines.next().unwrap().strip_prefix(&format!("# {number}: "));
        let title = title.unwrap_or_else(|| panic!("{name} does not begin with '# {number}: TITLE'"));
        assert_eq!(lines.next(), Some(""), "{name}");
        let status = lines.next().unwrap().strip_prefix("Status: ").unwrap_or_default();
        // Numbers of the records that replace this one, as `0360, 0390`.
        let after = |words: &str| {
            let rest = status.strip_prefix(words)?;
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',' && c != ' ').unwrap_or(rest.len());
            Some(rest[..end].trim())
        };
        let whole = after("superseded by ");
        let part = after("accepted; superseded in part by ");
        assert!(status.starts_with("accepted") || whole.is_some(), "{name}: {status}");
        for other in whole.or(part).into_iter().flat_map(|numbers| numbers.split(", ")) {
            assert!(numbers.contains(other), "{name} is superseded by {other}, which does not exist");
        }
        let note = match (whole, part) {
            (Some(by), _) => format!(" (superseded by {by})"),
            (_, Some(by)) => format!(" (in part superseded by {by})"),
            _ => String::new(),
        };
        expected.insert(format!("- [{number}]({name}): {title}{note}"));
    }
    let lines: Vec<&str> = index.lines().filter(|line| line.starts_with("- ")).collect();
    assert_eq!(lines.len(), expected.len(), "a record stands in the index twice, or not at all");
    let listed: BTreeSet<String> = lines.into_iter().map(str::to_owned).collect();
    assert_eq!(listed, expected, "docs/decisions/README.md");
}

/// By mdBook itself, where `cargo xtask test all` has installed it.
#[test]
fn documentation_book_builds() {
    let tools = ["AGENTSH_TEST_TOOLS", "PATH"].map(|name| std::env::var_os(name).unwrap_or_default());
    let programs = tools.iter().flat_map(std::env::split_paths).map(|place| place.join("mdbook"));
    let Some(program) = programs.into_iter().find(|program| program.exists()) else {
        return skip("mdbook is not installed");
    };
    let book = tempfile::tempdir().unwrap();
    let mut build = std::process::Command::new(program);
    build.arg("build").arg(documents().parent().unwrap()).arg("--dest-dir").arg(book.path());
    let built = Outcome::of(&mut build).expect_code(0);
    assert!(!built.stderr.contains("WARN") && !built.stderr.contains("ERROR"), "{built}");
    for page in links(&fs::read_to_string(documents().join("SUMMARY.md")).unwrap()) {
        let page = book.path().join(page).with_extension("html");
        assert!(page.exists(), "{}: {built}", page.display());
    }
}

#[test]
fn book_links_lead_to_existing_files() {
    for page in ["install.md", "refusals.md", "compare.md", "security.md", "agents.md"] {
        for link in links(&fs::read_to_string(documents().join(page)).unwrap()) {
            assert!(link.starts_with("https:") || documents().join(&link).exists(), "{page}: {link}");
        }
    }
}

const PROMISES: &str = "# Compatibility with five products

agentsh replaces five products. One of them is called agentsh, too: its section compares that product with this program. Each row has a
promise from their documentation, what agentsh does, and a test of the real program. `tests/seeds` has the rows, and a test writes this page.
";

/// Each row names a test that is there, and is one of three kinds. `docs/seeds.md` is these rows;
/// `AGENTSH_WRITE_SNAPSHOTS=1` writes it anew.
#[test]
fn every_promise_names_a_test_that_exists_and_the_document_has_it() {
    let tests = documents().join("../tests");
    let mut pages: Vec<PathBuf> =
        fs::read_dir(tests.join("seeds")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    let mut text = PROMISES.to_owned();
    for page in pages {
        let page = fs::read_to_string(page).unwrap();
        let (title, rows) = page.trim_end().split_once("\n\n").unwrap();
        text += &format!("\n#{title}\n\n| what | promise | agentsh | test | |\n|---|---|---|---|---|\n");
        for row in rows.split("\n\n") {
            let cells: Vec<&str> = row.lines().collect();
            let [what, promise, does, name, verdict] = cells[..] else { panic!("not five lines: {row}") };
            assert!(!row.contains('|'), "{row}");
            let (file, test) = name.rsplit_once("::").unwrap();
            let file = tests.join(file.replace("::", "/")).with_extension("rs");
            let source =
                fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let is_test = ["", "#[ignore = \"takes long\"]\n"]
                .iter()
                .any(|mark| source.contains(&format!("#[test]\n{mark}fn {test}()")));
            assert!(is_test, "{row}");
            let has_reason = |word: &&str| verdict.strip_prefix(*word).is_some_and(|why| why.len() > 10);
            assert!(
                verdict == "same" || ["stricter, because ", "differs, because "].iter().any(has_reason),
                "{row}"
            );
            text += &format!("| {what} | {promise} | {does} | `{name}` | {verdict} |\n");
        }
    }
    let file = documents().join("seeds.md");
    if std::env::var_os("AGENTSH_WRITE_SNAPSHOTS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let is_current = fs::read_to_string(&file).unwrap_or_default() == text;
    assert!(
        is_current,
        "docs/seeds.md is not what tests/seeds has; write it anew with AGENTSH_WRITE_SNAPSHOTS=1"
    );
}

#[test]
fn documented_recipes_work() {
    let place = Place::new(Mode::Invoker);
    let text = fs::read_to_string(documents().join("refusals.md")).unwrap();
    let recipes: Vec<&str> =
        text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(recipes.len() >= 2);
    for (number, recipe) in recipes.iter().enumerate() {
        // Not in the project, where a policy may only narrow.
        let file = place.path(&format!("recipe-{number}.yaml"));
        fs::write(&file, format!("version: 1\n{recipe}")).unwrap();
        let checked = Outcome::of(&mut place.agentsh(&["policy", "check", file.to_str().unwrap()]));
        assert_eq!(checked.code, 0, "{recipe}\n{checked}");
    }
    for directory in ["src/lib", "notes", ".nvm/versions/node/v22.0.0/lib/node_modules"] {
        place.make_directory(&place.home.join(directory));
    }
    place.write(place.home.join(".netrc"), "x");
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("agentsh policy allow "));
    let commands: Vec<&str> = lines.map(|line| line.split('#').next().unwrap().trim()).collect();
    assert!(commands.len() >= 10);
    for command in commands {
        let words: Vec<&str> = ["policy", "allow", "--print"].into_iter().chain(command.split(' ')).collect();
        Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    }
}

/// Words as a shell splits them; nothing after a comment, a pipe, a redirection or `;`.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for character in line.chars() {
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            (None, ' ') => words.push(String::new()),
            (_, other) => words.last_mut().unwrap().push(other),
        }
    }
    let ends = ["#", "|", ">", "<", "&", ";", "&&", "||"];
    words.into_iter().filter(|word| !word.is_empty()).take_while(|word| !ends.contains(&&**word)).collect()
}

/// Every command line of agentsh in the documents is one that it reads: with `--help` behind its options it helps.
#[test]
fn documented_commands_are_valid_command_lines() {
    let place = Place::new(Mode::Invoker);
    let mut tried = 0;
    for entry in fs::read_dir(documents()).unwrap() {
        let page = entry.unwrap().path();
        if page.extension().is_none_or(|name| name != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
        for line in lines.map(|line| line.strip_prefix("sudo ").unwrap_or(line)) {
            // `[--x]`, `a|b` and `…` describe a form.
            if !line.starts_with("agentsh ") || line.contains(['[', '…']) {
                continue;
            }
            let mut words = words(line);
            let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
            let end = if words[1] == "run" && end == words.len() { words.len() - 1 } else { end };
            words.insert(end, "--help".to_owned());
            let rest: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            let outcome = Outcome::of(&mut place.agentsh(&rest));
            assert!(
                outcome.code == 0 && outcome.stdout.contains("Usage:"),
                "{}: {line}\n{outcome}",
                page.display()
            );
            tried += 1;
        }
    }
    assert!(tried > 50, "only {tried} were found");
}

/// Fenced blocks of a language in a page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(documents().join(page)).unwrap();
    let fence = format!("```{language}\n");
    text.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Policies and profiles that pages other than the reference and the recipes show.
#[test]
fn documented_policies_are_valid() {
    let place = Place::new(Mode::Invoker);
    place.set("OTEL_TOKEN", "token");
    place.set("HOOK_SECRET", "secret");
    let mut tried = 0;
    for page in fs::read_dir(documents()).unwrap() {
        let page = page.unwrap().file_name().into_string().unwrap();
        // These have readers, and tests, of their own.
        if !page.ends_with(".md")
            || ["policy.md", "receipts.md", "refusals.md", "gateway.md", "organisation.md"]
                .contains(&page.as_str())
        {
            continue;
        }
        for block in blocks(&page, "yaml") {
            let file = place.path(&format!("{page}-{tried}.yaml"));
            let head = if block.starts_with("version: 1\n") { "" } else { "version: 1\n" };
            fs::write(&file, format!("{head}{block}")).unwrap();
            let checked = Outcome::of(&mut place.agentsh(&["policy", "check", file.to_str().unwrap()]));
            assert_eq!(checked.code, 0, "{page}: {block}\n{checked}");
            tried += 1;
        }
    }
    assert!(tried >= 6, "only {tried} were found");
}

#[test]
fn the_configurations_of_the_gateway_in_its_page_are_read() {
    let place = Place::new(Mode::Invoker);
    place.set("TRACKER_TOKEN", "token");
    let blocks = blocks("gateway.md", "yaml");
    let [whole, logins] = blocks.as_slice() else { panic!("{blocks:?}") };
    // The second shows what is written next to the endpoints of the first.
    let endpoints = &whole[whole.find("endpoints:").unwrap()..];
    place.write("team.yaml", "version: 1\n");
    for (number, text) in [whole.clone(), format!("{logins}{endpoints}")].iter().enumerate() {
        let file = place.write(format!("gateway-{number}.yaml"), text);
        let words = ["gateway", "keys", "--config", file.to_str().unwrap(), "list"];
        let read = Outcome::of(&mut place.agentsh(&words)).expect_code(0);
        assert!(read.stdout.contains("no keys yet"), "{read}");
        // It is read, not passed over.
        fs::write(&file, text.replace("endpoints:", "endponts:")).unwrap();
        assert_ne!(Outcome::of(&mut place.agentsh(&words)).code, 0);
    }
}
