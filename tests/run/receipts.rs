//! Receipts, with which other people can verify a session.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::day::has;
use crate::support::browser::Ui;
use crate::support::peer::Peer;
use crate::support::schema::fits;
use crate::support::{Mode, Outcome, Place};

const COMMITS: &str = "git checkout -q side && echo two > file && git commit -qam two && echo three > file && \
                       git commit -qam three";

fn outside(place: &Place, script: &str) -> String {
    Outcome::of(place.command("sh").args(["-ec", script])).expect_code(0).stdout.trim().to_owned()
}

/// A repository in which a session made two commits behind an older one that it did not start from, and the receipt of that.
pub fn session(place: &Place) -> (PathBuf, String) {
    place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
    outside(
        place,
        "git init -q -b main . && echo one > file && git add file && git commit -qm one && git checkout -qb side && \
         GIT_COMMITTER_DATE=2020-01-01T00:00:00Z git commit -q --allow-empty -m side && git checkout -q main",
    );
    let file = place.path("run").join("receipt.json");
    let words = ["run", "--quiet", "--receipt", file.to_str().unwrap(), "--", "sh", "-c", COMMITS];
    Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    let text = std::fs::read_to_string(&file).unwrap();
    (file, text)
}

fn payload(receipt: &str) -> String {
    let envelope: Value = serde_json::from_str(receipt).unwrap();
    String::from_utf8(STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap()).unwrap()
}

fn agentsh(place: &Place, words: &[&str]) -> Outcome {
    Outcome::of(&mut place.agentsh(words))
}

/// The receipt of the last session in a project without a repository, of a commit that a person made later.
pub fn of_a_later_commit(place: &Place) -> Value {
    place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
    outside(place, "git init -q -b main . && git commit -q --allow-empty -m later");
    written(place, &["--commit", "HEAD"]).1
}

/// Writes the receipt of the last session; gives its file and its statement.
fn written(place: &Place, more: &[&str]) -> (PathBuf, Value) {
    let made = agentsh(place, &[&["receipt"], more].concat()).expect_code(0);
    let file = place.write(place.path("written.json"), &made.stdout);
    let statement: Value = serde_json::from_str(&payload(&made.stdout)).unwrap();
    fits(&statement, &schema()).unwrap();
    (file, statement)
}

fn verify(place: &Place, home: &Path, file: &Path, more: &[&str]) -> Outcome {
    let words = [&["receipt", "verify", file.to_str().unwrap()], more].concat();
    Outcome::of(place.agentsh(&words).env("HOME", home))
}

#[track_caller]
pub fn refused(outcome: Outcome, why: &str) {
    let outcome = outcome.expect_code(1);
    assert!(outcome.stdout.starts_with("refused: ") && outcome.stdout.contains(why), "{why}\n{outcome}");
}

#[test]
#[ignore = "takes long"]
fn a_receipt_is_checked_on_another_machine() {
    if !has("git") {
        return;
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        let (file, text) = session(&place);
        let statement = payload(&text);
        let read: Value = serde_json::from_str(&statement).unwrap();
        let commits = outside(&place, "git rev-list HEAD~2..HEAD");
        let named: Vec<&Value> =
            read["subject"].as_array().unwrap().iter().map(|one| &one["digest"]["gitCommit"]).collect();
        assert_eq!(
            (commits.lines().count(), named.iter().filter(|commit| commit.is_string()).count()),
            (2, 2)
        );
        assert!(commits.lines().all(|commit| named.iter().any(|named| **named == commit)), "{statement}");
        let facts = &read["predicate"];
        assert_eq!(facts["unattributed"]["commits"][0], *outside(&place, "git rev-parse HEAD~2"));
        assert_eq!((&facts["binding"], &facts["session"]["agent"]), (&"record".into(), &"sh".into()));
        assert!(facts["policy"][0]["digest"].as_str().unwrap().starts_with("sha256:"), "{statement}");
        assert!(facts["layers"].as_array().unwrap().len() > 5 && facts["programs"][0]["starts"] == 1);
        fits(&read, &schema()).unwrap();
        // Neither what it was asked, nor where.
        assert!(
            !statement.contains("echo") && !statement.contains(place.home.to_str().unwrap()),
            "{statement}"
        );

        let here = verify(&place, &place.home, &file, &[]).expect_code(0);
        assert!(here.stdout.contains("its record is here and matches"), "{here}");
        let (again, _) = written(&place, &[]);
        verify(&place, &place.home, &again, &[]).expect_code(0);
        let line = Outcome::of(&mut place.agentsh(&["receipt", "key"])).expect_code(0).stdout;
        let key = place.write(place.path("allowed"), format!("ada@example.org {line}"));
        let key = ["--key", key.to_str().unwrap()];
        let other = place.path("other");
        place.make_directory(&other);
        let there = verify(&place, &other, &file, &key).expect_code(0);
        assert!(there.stdout.starts_with("good: signed by ada@example.org (SHA256:"), "{there}");
        assert!(there.stdout.contains("its record is not here") && !other.join(".local").exists(), "{there}");
        let nobody = verify(&place, &other, &file, &[]).expect_code(2);
        assert!(nobody.stderr.contains("give --key FILE"), "{nobody}");

        let asked = place.write(place.path("requirements.yaml"), documented("yaml", 0));
        let ask = |more: &[&str]| {
            let required = ["--policy", asked.to_str().unwrap()];
            verify(&place, &other, &file, &[&key[..], &required, more].concat())
        };
        ask(&[]).expect_code(0);
        let hook = gate(&place, &key, &asked);
        // The newest alone is not enough.
        for rev in ["HEAD", "HEAD~1"] {
            hook(&["push", "-q", "upstream", "HEAD:main"], "no note found");
            hook(&["notes", "--ref=agentsh", "add", "-F", file.to_str().unwrap(), rev], "");
            hook(&["push", "-q", "upstream", "refs/notes/agentsh"], "");
        }
        assert_eq!(step(&place, &commits).code, 0, "{}", step(&place, &commits));
        // By the commit alone.
        let by = |rev: &str| {
            let words = [&["receipt", "verify", rev], &key[..]].concat();
            Outcome::of(place.agentsh(&words).env("HOME", &other))
        };
        assert!(by("HEAD").expect_code(0).stdout.starts_with("good: signed by ada@example.org"));
        let none = by("HEAD~2").expect_code(2);
        assert!(none.stderr.contains("git fetch origin refs/notes/agentsh:refs/notes/agentsh"), "{none}");
        by("no-such").expect_code(2);
        outside(&place, "git notes --ref=agentsh copy HEAD HEAD~2");
        refused(by("HEAD~2"), "it is not about commit");
        outside(&place, "git notes --ref=agentsh remove HEAD~2");
        outside(&place, "git commit -q --allow-empty -m later");
        let later = step(&place, "");
        assert!(later.code != 0 && later.stderr.contains("has no receipt"), "{later}");
        outside(&place, "git reset -q --hard HEAD~1");
        place.write(place.path("upstream/requirements.yaml"), "hosts: []\nlayers: [no such layer]\n");
        hook(&["push", "-q", "upstream", "HEAD:main"], "layers: 'no such layer' is not on record");
        place.write(place.path("upstream/requirements.yaml"), "commits: recorded\n");
        hook(&["push", "-q", "upstream", "HEAD:main"], "");

        place.write(&asked, "layers: [no such layer]\n");
        refused(ask(&[]), "layers: 'no such layer' is not on record for the agent");
        place.write(&asked, "layer: [landlock]\n");
        ask(&[]).expect_code(2);
        assert_ne!(
            place.shell("cat ~/.local/state/agentsh/receipt.key").code,
            0,
            "the key is not there inside"
        );
    }
}

#[test]
fn receipt_names_a_commit_with_an_older_date() {
    if !has("git") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
    outside(&place, "git init -q -b main . && git commit -q --allow-empty -m one");
    let make = |before: &str| {
        let script =
            format!("{before} git commit -q --allow-empty -m two; git commit -q --allow-empty -m three");
        Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", &script])).expect_code(0);
        written(&place, &[])
    };
    let (file, statement) = make("GIT_COMMITTER_DATE=2020-01-01T00:00:00Z");
    let older = outside(&place, "git rev-parse HEAD~1");
    assert_eq!(
        statement["predicate"]["unattributed"],
        serde_json::json!({"count": 1, "commits": [older]}),
        "{statement}"
    );
    assert!(!statement["subject"].to_string().contains(&older), "{statement}");
    let said = verify(&place, &place.home, &file, &[]).expect_code(0);
    assert!(said.stdout.contains("not covered, since dated before the session: 1 more"), "{said}");
    let (_, statement) = make("");
    assert!(statement["predicate"].get("unattributed").is_none(), "{statement}");
}

/// A branch that is left again, a commit that is replaced or dropped: the record has them. What other working trees and
/// repositories have, and what was only visited, is not in the receipt.
#[test]
fn receipt_names_commits_that_head_left() {
    if !has("git") {
        return;
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
        outside(
            &place,
            "git init -q -b main . && git commit -q --allow-empty -m one && git checkout -qb other && \
             GIT_COMMITTER_DATE=2020-01-01T00:00:00Z git commit -q --allow-empty -m other && git checkout -q main",
        );
        // Two with the same message in one second would be one.
        let commit = "n=$((n+1)); git commit -q --allow-empty -m more$n; git rev-parse HEAD";
        let script = format!(
            "git checkout -qb x; {commit}; {commit}; git checkout -q other; git checkout -q main; \
             git checkout -q --detach; {commit}; git checkout -q main; {commit}; git commit -q --amend --allow-empty -m again; \
             git rev-parse HEAD; git checkout -qb rebased main~1; {commit}; git rebase -q main; git rev-parse HEAD; \
             git checkout -q main; git merge -q rebased; {commit}; git reset -q --hard HEAD~1; \
             git worktree add -q tree -b tree; (cd tree; {commit}); git init -q own; (cd own; {commit}) > not 2>&1"
        );
        let made = agentsh(&place, &["run", "--quiet", "--", "sh", "-ec", &script]).expect_code(0);
        let made: std::collections::BTreeSet<&str> = made.stdout.lines().collect();
        assert_eq!(made.len(), 9, "{made:?}");
        let (file, statement) = written(&place, &[]);
        let subject = statement["subject"].as_array().unwrap();
        let named = subject.iter().filter_map(|one| one["digest"]["gitCommit"].as_str()).collect();
        assert_eq!(made, named, "{statement}");
        assert!(statement["predicate"].get("unattributed").is_none(), "{statement}");
        for commit in made {
            verify(&place, &place.home, &file, &["--commit", commit]).expect_code(0);
        }
        refused(verify(&place, &place.home, &file, &["--commit", "other"]), "it is not about commit");
        let not = std::fs::read_to_string(place.project.join("not")).unwrap();
        assert!(!statement.to_string().contains(not.trim()), "{statement}");
        // Commits that git has pruned are not listed.
        outside(
            &place,
            "git worktree remove --force tree; git reflog expire --expire=all --all; git gc -q --prune=now",
        );
        let (_, statement) = written(&place, &[]);
        let subject = statement["subject"].as_array().unwrap();
        assert_eq!(
            subject.iter().filter(|one| one["digest"].get("gitCommit").is_some()).count(),
            5,
            "{statement}"
        );
    }
}

/// The schema of statements, as the specification of in-toto describes them.
fn schema() -> Value {
    serde_json::from_str(include_str!("../fixtures/in-toto-statement.schema.json")).unwrap()
}

#[test]
fn statement_schema_refuses_other_documents() {
    let good = serde_json::json!({"_type": "https://in-toto.io/Statement/v1", "predicateType": "urn:x:1", "predicate": {},
        "subject": [{"name": "commit", "digest": {"gitCommit": "ab12"}}]});
    fits(&good, &schema()).unwrap();
    for (place, other) in [
        ("/_type", "https://in-toto.io/Statement/v0.1".into()),
        ("/predicateType", "no address".into()),
        ("/predicate", Value::Null),
        ("/subject", serde_json::json!([])),
        ("/subject/0", serde_json::json!({"name": "commit"})),
        ("/subject/0/digest", serde_json::json!({})),
        ("/subject/0/digest/gitCommit", "AB12".into()),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(place).unwrap() = other;
        assert!(fits(&bad, &schema()).is_err(), "{place}");
    }
}

/// A block of a language in the page.
fn documented(language: &str, number: usize) -> &'static str {
    let fence = format!("```{language}\n");
    let rest = include_str!("../../docs/receipts.md").split(&fence).nth(number + 1).unwrap();
    rest.split("```").next().unwrap()
}

/// The step for a pipeline in the page, in a clone of what is here.
fn step(place: &Place, verified: &str) -> Outcome {
    let lines = documented("yaml", 1).split_once("|\n").unwrap().1.lines();
    let script: String = lines.map(|line| line.trim_start().to_owned() + "\n").collect();
    let key = place.path("allowed").display().to_string();
    let asked = place.path("requirements.yaml").display().to_string();
    outside(
        place,
        &format!(
            "rm -rf {0}; mkdir {0}; cp {key} {0}/allowed_signers; cp {asked} {0}; git clone -q --branch side . {0}/clone; \
             cd {0}/clone; git update-ref refs/remotes/origin/main HEAD~2",
            place.path("run/pipeline").display()
        ),
    );
    let path = format!("{}:/usr/bin:/bin", place.program("agentsh").parent().unwrap().display());
    let mut command = place.command("bash");
    let outcome = Outcome::of(
        command.args(["-ec", &script]).current_dir(place.path("run/pipeline/clone")).env("PATH", path),
    );
    assert!(verified.lines().all(|commit| outcome.stdout.contains(commit)), "{outcome}");
    outcome
}

/// A repository that takes what the hook of `docs/receipts.md` lets through; gives what pushes there.
fn gate<'p>(place: &'p Place, key: &[&str], asked: &Path) -> impl Fn(&[&str], &str) + use<'p> {
    place.make_directory(&place.path("upstream"));
    outside(
        place,
        &format!("git init -q --bare {0} && git remote add upstream {0}", place.path("upstream").display()),
    );
    outside(place, "git push -q upstream HEAD~2:refs/heads/main");
    place.script(place.path("upstream/hooks/pre-receive"), documented("sh", 0));
    place.write(place.path("upstream/allowed_signers"), std::fs::read(key[1]).unwrap());
    place.write(place.path("upstream/requirements.yaml"), std::fs::read(asked).unwrap());
    let program = place.program("agentsh");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", program.parent().unwrap().display());
    move |words, why| {
        let outcome = Outcome::of(place.command("git").args(words).env("PATH", &path));
        assert!((outcome.code == 0) == why.is_empty() && outcome.stderr.contains(why), "{why}\n{outcome}");
    }
}

#[test]
fn receipt_of_another_commit_is_refused() {
    if !has("git") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    let (file, text) = session(&place);
    let check = |more: &[&str]| verify(&place, &place.home, &file, more);
    refused(check(&["--commit", "HEAD~2"]), "it is not about commit");
    for none in ["nosuch", "HEAD~1..HEAD", "HEAD^@"] {
        refused(check(&["--commit", none]), &format!("there is no commit '{none}'"));
    }
    let old = Outcome::of(&mut place.agentsh(&["receipt", "--commit", "HEAD~2"])).expect_code(1);
    assert!(old.stderr.contains("was made before session"), "{old}");

    // Edited, truncated, signed with another key.
    let edited = payload(&text).replace("\"exit_code\":0", "\"exit_code\":1");
    let edited = text.replace(&STANDARD.encode(payload(&text)), &STANDARD.encode(edited));
    assert_ne!(edited, text);
    for (text, why) in [
        (edited.as_str(), "does not match its content"),
        (&text[..text.len() / 2], "it is malformed"),
        (&text.replace("SHA256:", "SHA256:x"), "is not one of the given keys"),
    ] {
        place.write(&file, text);
        refused(check(&[]), why);
    }
    place.write(&file, &text);
    let line = Outcome::of(&mut place.agentsh(&["receipt", "key"])).expect_code(0).stdout;
    let key = place.write(place.path("allowed"), format!("ada valid-before=\"20200101\" {line}"));
    refused(check(&["--key", key.to_str().unwrap()]), "the key of ada expired at 2020-01-01T00:00:00Z");

    // The holder of the key signs statements that the record does not contain.
    let key = std::fs::read_to_string(place.home.join(".local/state/agentsh/receipt.key")).unwrap();
    let key = agentsh_receipt::SigningKey::read(&key).unwrap();
    let mut statement = agentsh_receipt::Statement::read(&payload(&text)).unwrap();
    statement.predicate.session.exit_code = 1;
    place.write(&file, agentsh_receipt::sign(&statement, &key).unwrap());
    refused(check(&[]), "the record of its session differs");
    "9.9".clone_into(&mut statement.predicate.agentsh);
    place.write(&file, agentsh_receipt::sign(&statement, &key).unwrap());
    let other = check(&[]).expect_code(0).stdout;
    assert!(other.contains("has the same events; what version 9.9 wrote of it was not compared"), "{other}");
    statement.predicate.record.events += 1;
    place.write(&file, agentsh_receipt::sign(&statement, &key).unwrap());
    refused(check(&[]), "the record of its session was rewritten");
    place.write(&file, &text);

    // Another record under the same name, with a chain that holds.
    check(&[]).expect_code(0);
    rewrite(&place.home.join(".local/state/agentsh/agentsh.db"), "\"verb\":\"run\"", "\"verb\":\"ran\"");
    refused(check(&[]), "the record of its session was rewritten");

    // A person's later changes count as theirs.
    outside(&place, "git commit -q --amend -m other");
    refused(check(&[]), "it is not about commit");
    // Neither a tag with the name of the file, nor a repository that git does not read, hides that.
    std::fs::copy(&file, place.project.join("receipt.json")).unwrap();
    outside(&place, "git tag receipt.json HEAD@{1}");
    refused(agentsh(&place, &["receipt", "verify", "receipt.json"]), "it is not about commit");
    outside(&place, "git config core.repositoryFormatVersion 9");
    refused(check(&[]), "git does not read the repository of");
    let unread = agentsh(&place, &["receipt", "verify", "HEAD"]).expect_code(2);
    assert!(unread.stderr.contains("git does not read the repository of"), "{unread}");
}

/// Files of the repository that hide parents, and a remote that is a command, which git asks for an object that is not there.
#[test]
fn repository_files_change_no_receipt_and_run_nothing() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        session(&place);
        let subject = || written(&place, &[]).1["subject"].clone();
        let before = subject();
        for name in ["info/grafts", "shallow"] {
            outside(&place, &format!("git rev-parse side > .git/{name}"));
            assert_eq!(outside(&place, "git rev-list --count side"), "1");
            assert_eq!(subject(), before, "{mode:?} {name}");
            outside(&place, &format!("rm .git/{name}"));
        }
        outside(
            &place,
            "git config extensions.partialClone o; git config remote.o.promisor true; \
             git config remote.o.url 'ext::touch ran'; git config protocol.ext.allow always; \
             gone=$(git rev-parse side~1^{tree}); rm -f .git/objects/${gone%??????????????????????????????????????}/${gone#??}",
        );
        agentsh(&place, &["receipt"]);
        assert!(!place.project.join("ran").exists(), "{mode:?}");
        let _refused = place.command("git").args(["diff-tree", "side~1", "side"]).output().unwrap();
        assert!(place.project.join("ran").exists(), "{mode:?}: git by itself asks");
    }
}

/// For a commit that was made after the session there is only the signer's word.
#[test]
fn a_commit_of_a_person_is_bound_by_the_signer() {
    if !has("git") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
    outside(&place, "git init -q -b main . && echo one > file && git add file && git commit -qm one");
    place.shell("echo two > file").expect_code(0);
    let none = Outcome::of(&mut place.agentsh(&["receipt"])).expect_code(1);
    assert!(none.stderr.contains("made no commit; name the commit that contains its work"), "{none}");
    outside(&place, "git commit -qam two");
    let made = Outcome::of(&mut place.agentsh(&["receipt", "--commit", "HEAD"])).expect_code(0);
    let file = place.write(place.path("receipt.json"), &made.stdout);
    verify(&place, &place.home, &file, &[]).expect_code(0);
    let asked = place.write(place.path("requirements.yaml"), "commits: recorded\n");
    let outcome = verify(&place, &place.home, &file, &["--policy", asked.to_str().unwrap()]);
    refused(outcome, "commits: the record does not say that they are the session's");
}

fn reviewed(place: &Place, script: &str) {
    agentsh(place, &["run", "--quiet", "--review", "--", "sh", "-ec", script]).expect_code(0);
    agentsh(place, &["review", "--apply"]).expect_code(0);
}

/// Applied files are named by their digest, before anybody commits them.
#[test]
fn receipt_of_an_applied_review_binds_its_files() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("file", "one\n");
        place.write("gone", "gone\n");
        reviewed(&place, "echo two > file; rm gone; mkdir sub; echo new > sub/new; ln -s file link");
        let (file, statement) = written(&place, &[]);
        let named: Vec<&Value> =
            statement["subject"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(named, ["file", "link", "sub/new"], "{statement}");
        let digest = "27dd8ed44a83ff94d557f9fd0412ed5a8cbca69ea04922d88c01184a07300a5a";
        assert_eq!(statement["subject"][0]["digest"]["sha256"], digest, "sha256sum of `two`");
        let facts = &statement["predicate"];
        assert_eq!((&facts["removed"], &facts["binding"]), (&serde_json::json!(["gone"]), &"record".into()));
        let check = |more: &[&str]| verify(&place, &place.home, &file, more);
        let good = check(&[]).expect_code(0);
        assert!(good.stdout.contains("4 files in ") && good.stdout.contains("its record is here"), "{good}");
        for (change, why, back) in [
            ("echo 2 > file", "file 'file' in ", "echo two > file"),
            ("echo x > gone", "file 'gone' was removed, and is in ", "rm gone"),
            ("mv sub else", "file 'sub/new' was applied, and is not in ", "mv else sub"),
            ("ln -sf gone link", "file 'link' in ", "ln -sf file link"),
        ] {
            outside(&place, change);
            refused(check(&[]), why);
            outside(&place, back);
        }
        check(&[]).expect_code(0);
        if has("git") {
            refused(check(&["--commit", "HEAD"]), "there is no repository in ");
            place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
            outside(&place, "git init -q -b main . && git add . && git commit -qm one");
            let there = check(&["--commit", "HEAD"]).expect_code(0);
            assert!(there.stdout.contains("4 files in commit "), "{there}");
            // A receipt of some files does not cover a commit with more.
            outside(&place, "echo x > more && git add . && git commit -qm more");
            let more = "also changes 'more', which is not one of the files of the receipt";
            refused(check(&["--commit", "HEAD"]), more);
            outside(&place, &format!("git notes --ref=agentsh add -F {} HEAD", file.display()));
            refused(agentsh(&place, &["receipt", "verify", "HEAD"]), more);
            let id = outside(&place, "git rev-parse HEAD");
            outside(&place, &format!("cp {} {id}; git rm -q more; git commit -qm less", file.display()));
            refused(agentsh(&place, &["receipt", "verify", &id]), more);
            outside(&place, &format!("rm {id}; git reset -q --hard HEAD~2"));
            outside(&place, "echo 2 > file && git commit -qam two");
            refused(check(&["--commit", "HEAD"]), "is not what was applied");
            outside(
                &place,
                "git reset -q --hard HEAD~1; mkdir gone; echo x > gone/x; git add . && git commit -qm three",
            );
            refused(check(&["--commit", "HEAD"]), "file 'gone' was removed, and is in ");
        }
    }
}

#[test]
fn a_receipt_of_a_review_says_what_is_applied_by_then() {
    let place = Place::new(Mode::Invoker);
    let file = place.path("run").join("receipt.json");
    let run = || {
        let words = ["run", "--quiet", "--review", "--receipt", file.to_str().unwrap(), "--", "sh", "-ec"];
        let done = agentsh(&place, &[&words[..], &["echo 2 > a; echo 2 > b"]].concat()).expect_code(0);
        assert!(done.stderr.contains("nothing of its review is applied: `agentsh review --apply`"), "{done}");
        assert!(!file.exists());
    };
    let names = || {
        let (file, statement) = written(&place, &[]);
        verify(&place, &place.home, &file, &[]).expect_code(0);
        let subject = statement["subject"].as_array().unwrap().clone();
        subject.into_iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    run();
    agentsh(&place, &["review", "--apply", "a"]).expect_code(0);
    assert_eq!(names(), ["a"]);
    agentsh(&place, &["review", "--apply"]).expect_code(0);
    assert_eq!(names(), ["a", "b"]);
    // Nothing but files that are gone is no subject.
    reviewed(&place, "rm a b");
    let gone = agentsh(&place, &["receipt"]).expect_code(1);
    assert!(gone.stderr.contains("made no commit"), "{gone}");
    run();
    agentsh(&place, &["review", "--apply", "b"]).expect_code(0);
    agentsh(&place, &["review", "--discard"]).expect_code(0);
    assert_eq!(names(), ["b"]);
    run();
    agentsh(&place, &["review", "--discard"]).expect_code(0);
    let none = agentsh(&place, &["receipt"]).expect_code(1);
    assert!(none.stderr.contains("needs a repository, or files from `agentsh run --review`"), "{none}");
}

#[test]
fn receipt_leaves_out_what_was_undone() {
    let place = Place::new(Mode::Invoker);
    place.write("file", "one\n");
    reviewed(&place, "echo two > file; echo new > new");
    let (file, _) = written(&place, &[]);
    agentsh(&place, &["review", "--undo"]).expect_code(0);
    refused(verify(&place, &place.home, &file, &[]), "file 'new' was applied, and is not in ");
    let none = agentsh(&place, &["receipt"]).expect_code(1);
    assert!(none.stderr.contains("made no commit"), "{none}");
    // Taken back twice, it is done again.
    agentsh(&place, &["review", "--undo"]).expect_code(0);
    verify(&place, &place.home, &written(&place, &[]).0, &[]).expect_code(0);
}

#[test]
fn a_commit_of_exactly_what_a_review_applied_is_bound_by_the_record() {
    if !has("git") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
    outside(&place, "git init -q -b main . && echo one > file && git add file && git commit -qm one");
    reviewed(&place, "echo two > file; echo new > new");
    outside(&place, "git add . && git commit -qm two");
    let (file, statement) = written(&place, &["--commit", "HEAD"]);
    assert_eq!(statement["predicate"]["binding"], "record", "{statement}");
    verify(&place, &place.home, &file, &[]).expect_code(0);
    // A person put more into it.
    outside(&place, "echo more >> file && git commit -qa --amend --no-edit");
    let (file, statement) = written(&place, &["--commit", "HEAD"]);
    assert_eq!(statement["predicate"]["binding"], "signer", "{statement}");
    verify(&place, &place.home, &file, &[]).expect_code(0);
}

#[test]
fn receipt_is_written_to_git_notes_and_includes_requested_details() {
    if !has("git") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    session(&place);
    let file = place.path("noted.json");
    agentsh(&place, &["receipt", "--note"]).expect_code(2);
    for _twice in 0..2 {
        agentsh(&place, &["receipt", "--note", "--output", file.to_str().unwrap()]).expect_code(0);
        std::fs::remove_file(&file).unwrap();
    }
    for rev in ["HEAD", "HEAD~1"] {
        agentsh(&place, &["receipt", "verify", rev]).expect_code(0);
    }
    agentsh(&place, &["receipt", "verify", "HEAD~2"]).expect_code(2);

    place.shell("getent hosts refused.example; true").expect_code(0);
    outside(&place, "git commit -q --allow-empty -m later");
    let (_, statement) = written(&place, &["--commit", "HEAD"]);
    assert!(!statement.to_string().contains("refused.example"), "{statement}");
    let (file, statement) = written(&place, &["--commit", "HEAD", "--include", "addresses,files"]);
    let included = statement["predicate"]["included"].as_array().unwrap();
    let is_it = |one: &Value| one["what"] == "addresses" && one["name"] == "refused.example";
    assert!(included.iter().any(is_it), "{statement}");
    verify(&place, &place.home, &file, &[]).expect_code(0);
    agentsh(&place, &["receipt", "--include", "everything"]).expect_code(2);
}

#[test]
fn a_key_of_minisign_signs() {
    if !has("git") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    session(&place);
    for name in ["ada", "bob"] {
        let file = place.path(name);
        agentsh(&place, &["policy", "bundle", "keygen", file.to_str().unwrap()]).expect_code(0);
    }
    let keys = ["ada", "ada.pub", "bob.pub"].map(|name| place.path(name));
    let [secret, public, other] = keys.each_ref().map(|path| path.to_str().unwrap());
    let (file, _) = written(&place, &["--key", secret]);
    let good = verify(&place, &place.home, &file, &["--key", public]).expect_code(0);
    assert!(good.stdout.starts_with("good: signed by SHA256:"), "{good}");
    // Forged: signed with another key than the given ones, whatever name the envelope has.
    refused(verify(&place, &place.home, &file, &["--key", other]), "which is not one of the given keys");
    let name = |key: &str| {
        let line = agentsh(&place, &["receipt", "key", "--key", key]).expect_code(0).stdout;
        let list = place.write(place.path("allowed"), format!("bob {line}"));
        let said = verify(&place, &place.home, &file, &["--key", list.to_str().unwrap()]);
        said.stdout.split('(').nth(1).and_then(|rest| rest.split(')').next()).map(str::to_owned)
    };
    let ada = name(secret).unwrap();
    let (forged, _) = written(&place, &["--key", place.path("bob").to_str().unwrap()]);
    let text = std::fs::read_to_string(&forged).unwrap();
    let envelope: Value = serde_json::from_str(&text).unwrap();
    let id = envelope["signatures"][0]["keyid"].as_str().unwrap();
    place.write(&forged, text.replace(id, &ada));
    refused(verify(&place, &place.home, &forged, &["--key", public]), "does not match its content");
    place.write(place.path("ada"), "untrusted comment: x\nRWQ=\n");
    agentsh(&place, &["receipt", "--key", secret]).expect_code(125);
}

#[test]
fn minisign_opens_a_key_with_a_password() {
    let place = Place::new(Mode::Invoker);
    let pair = minisign::KeyPair::generate_encrypted_keypair(Some("secret".to_owned())).unwrap();
    let key = place.write(place.path("ada"), String::from(pair.sk.to_box(None).unwrap()));
    // Without a terminal the password comes from standard input.
    let said = |password: &str| {
        let script = format!("echo {password} | setsid -w \"$@\"");
        let mut command = place.command("sh");
        command.args(["-c", &script, "sh"]).arg(place.program("agentsh"));
        Outcome::of(command.args(["receipt", "key", "--key"]).arg(&key))
    };
    if has("minisign") {
        assert!(said("secret").expect_code(0).stdout.starts_with("ssh-ed25519 "));
        assert!(said("other").expect_code(125).stderr.contains("minisign refused it"));
    } else {
        assert!(said("secret").expect_code(125).stderr.contains("the system has no `minisign`"));
    }
    assert!(std::fs::read_to_string(&key).unwrap().contains("RWRTY"), "it keeps its password");
}

#[test]
fn a_certificate_of_an_authority_signs() {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
    if !has("git") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    session(&place);
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.distinguished_name.push(DnType::CommonName, "a team");
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
    let key = |name: &str, until: i32| {
        let key = KeyPair::generate().unwrap();
        let mut own = CertificateParams::default();
        own.distinguished_name.push(DnType::CommonName, name);
        own.subject_alt_names = vec![SanType::Rfc822Name(name.try_into().unwrap())];
        own.not_after = rcgen::date_time_ymd(until, 1, 1);
        let text = key.serialize_pem() + &own.signed_by(&key, &root).unwrap().pem() + &root.pem();
        let (receipt, _) = written(&place, &["--key", place.write(place.path(name), text).to_str().unwrap()]);
        receipt
    };
    let roots = place.write(place.path("roots.pem"), root.pem());
    let roots = roots.to_str().unwrap();
    let verified = |receipt: &Path, more: &[&str]| verify(&place, &place.home, receipt, more);
    let accepted = ["--key", roots, "--identity", "ada@example.org"];
    let receipt = key("ada@example.org", 2200);
    let good = verified(&receipt, &accepted).expect_code(0);
    assert!(good.stdout.starts_with("good: signed by ada@example.org (SHA256:"), "{good}");
    let none = verified(&receipt, &accepted[..2]).expect_code(2);
    assert!(none.stderr.contains("certificates need --identity NAME"), "{none}");
    verified(&receipt, &["--identity", "ada@example.org"]).expect_code(2);
    refused(
        verified(&receipt, &["--key", roots, "--identity", "bob@example.org"]),
        "it names ada@example.org, and not the e-mail address bob@example.org",
    );
    refused(verify(&place, &place.home, &receipt, &[]), "accept it with the certificates of its authority");
    refused(verified(&key("bob@example.org", 2200), &accepted), "it names bob@example.org");
    refused(
        verified(&key("ada@example.org", 2020), &accepted),
        "the key of ada@example.org (or a certificate above it) expired at 2020",
    );
    let line = agentsh(&place, &["receipt", "key", "--key", place.path("ada@example.org").to_str().unwrap()]);
    assert!(line.expect_code(2).stderr.contains("--identity NAME"));
}

/// A team hands the rights of a server around, and receipts name them.
#[test]
fn a_signed_profile_is_taken_over_and_named_by_receipts() {
    if !has("git") || !has("node") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    let profile = "version: 1\npackage: {npm: p}\nwhy: \"A server of ours.\"\nnetwork:\n  allow:\n    \
                   - {host: api.example.com, port: 443, why: \"the interface\"}\ntests:\n  \
                   - {connect: \"api.example.com:443\", expect: allow}\n  - {connect: \"example.org:443\", expect: deny}\n";
    let own = place.write(place.home.join(".config/agentsh/servers/ours.yaml"), profile);
    let file = place.path("ours.profile.json");
    let name = file.to_str().unwrap();
    let told = agentsh(&place, &["profile", "export", "ours", "--output", name]).expect_code(0).stderr;
    let digest = told.split_once("sha256:").unwrap().1.split(',').next().unwrap();
    agentsh(&place, &["profile", "export", "no-such"]).expect_code(2);
    let line = agentsh(&place, &["receipt", "key"]).expect_code(0).stdout;
    let allowed = place.write(place.path("allowed"), format!("ada {line}"));
    let import = || agentsh(&place, &["profile", "import", name, "--key", allowed.to_str().unwrap()]);
    import().expect_code(0);
    place.write(&own, format!("{profile}# of my own\n"));
    let kept = import().expect_code(1);
    assert!(kept.stderr.contains("exists with other content; remove it first"), "{kept}");
    std::fs::remove_file(&own).unwrap();
    let done = import().expect_code(0);
    assert!(
        done.stdout.contains("npm:p") && done.stdout.contains(digest) && done.stdout.contains("ada"),
        "{done}"
    );
    assert_eq!(std::fs::read_to_string(&own).unwrap(), profile);

    let signed = std::fs::read_to_string(&file).unwrap();
    let edited = profile.replace("why: \"A", "why: \"Not a");
    for (text, why) in [
        (signed.replace(&STANDARD.encode(profile), &STANDARD.encode(edited)), "does not match its content"),
        (signed[..signed.len() / 2].to_owned(), "it is malformed"),
        (signed.replace("SHA256:", "SHA256:x"), "is not one of the given keys"),
    ] {
        place.write(&file, text);
        let outcome = import().expect_code(1);
        assert!(outcome.stderr.contains(why), "{why}\n{outcome}");
    }
    place.write(&allowed, format!("ada valid-before=\"20200101\" {line}"));
    place.write(&file, &signed);
    let late = import().expect_code(1);
    assert!(late.stderr.contains("the key of ada expired"), "{late}");
    // One is not the other.
    refused(verify(&place, &place.home, &file, &[]), "its payload is not application/vnd.in-toto+json");

    place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
    outside(&place, "git init -q -b main .");
    let package = place.home.join("tools/node_modules/p");
    place.write(package.join("package.json"), r#"{"name": "p", "version": "1.0.0", "main": "index.js"}"#);
    let entry = place.write(
        package.join("index.js"),
        "console.log('{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}'); process.stdin.resume();\n",
    );
    let mut command = place.agentsh(&["mcp", "run", "--id", "ours", "--", "node"]);
    let mut peer = Peer::start(command.arg(&entry));
    peer.ask("ping", serde_json::json!({}));
    peer.next();
    peer.finish();
    outside(&place, "git commit -q --allow-empty -m later");
    let (file, statement) = written(&place, &["--commit", "HEAD"]);
    let named = &statement["predicate"]["servers"][0]["profile"];
    assert_eq!(
        (&named["name"], &named["digest"]),
        (&"ours.yaml".into(), &format!("sha256:{digest}").into()),
        "{statement}"
    );
    verify(&place, &place.home, &file, &[]).expect_code(0);
    // If pins are off, none is known.
    assert_eq!(statement["predicate"]["servers"][0]["pin"], "first-use", "{statement}");
    place.user_policy("version: 1\nsandbox: {mcp: {version_pinning: {enabled: false}}}\n");
    let mut command = place.agentsh(&["mcp", "run", "--id", "unpinned", "--", "node"]);
    let mut peer = Peer::start(command.arg(&entry));
    peer.ask("ping", serde_json::json!({}));
    peer.next();
    peer.finish();
    outside(&place, "git commit -q --allow-empty -m last");
    let (file, statement) = written(&place, &["--commit", "HEAD"]);
    assert_eq!(statement["predicate"]["servers"][0]["pin"], "not-pinned", "{statement}");
    let asked = place.write(place.path("requirements.yaml"), "pins: known\n");
    let asked = verify(&place, &place.home, &file, &["--policy", asked.to_str().unwrap()]);
    refused(asked, "pins: server 'unpinned' is not-pinned");
}

#[test]
fn the_page_of_a_session_has_its_receipt() {
    if !has("git") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    session(&place);
    let ui = Ui::open(&place);
    let page = ui.get("/session/latest");
    let link = page
        .body
        .split("href=\"")
        .find_map(|rest| rest.split('"').next().filter(|to| to.ends_with("/receipt")));
    let got = ui.get(link.expect(&page.body));
    assert_eq!(got.status, 200, "{}", got.body);
    for drawn in ["What it proves", "What it does not prove", "landlock", "enforced", "SHA256:", "sha256:"] {
        assert!(got.body.contains(drawn), "{drawn}: {}", got.body);
    }
    let commit = outside(&place, "git rev-parse HEAD");
    assert!(got.body.contains(&commit), "{}", got.body);
    let got = ui.get(&(link.unwrap().to_owned() + ".json"));
    assert!(got.head.contains("content-disposition: attachment; filename=\"receipt-"), "{}", got.head);
    let file = place.write(place.path("downloaded.json"), &got.body);
    verify(&place, &place.home, &file, &[]).expect_code(0);
    // A session without a commit has none, and the page says how to name one.
    place.shell("true").expect_code(0);
    let none = ui.get("/session/latest/receipt");
    assert!(none.status == 404 && none.body.contains("--commit REV"), "{}", none.body);
}

/// Writes another word into the record, and a chain over it.
pub fn rewrite(database: &Path, from: &str, to: &str) {
    let open = rusqlite::Connection::open(database).unwrap();
    let mut names = open.prepare("SELECT name FROM sqlite_master WHERE type = 'trigger'").unwrap();
    let triggers: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().map(|name| name.unwrap()).collect();
    triggers.iter().for_each(|name| open.execute_batch(&format!("DROP TRIGGER {name}")).unwrap());
    let mut rows = open.prepare("SELECT id, session, seq, time, body FROM events ORDER BY id").unwrap();
    let rows = rows.query_map([], |row| {
        Ok(agentsh_store::raw::Raw {
            id: row.get(0)?,
            session: row.get(1)?,
            seq: row.get::<_, i64>(2)?.try_into().unwrap(),
            time: row.get(3)?,
            body: row.get::<_, String>(4)?.replace(from, to),
            hash: [0; 32],
        })
    });
    let mut before = [0; 32];
    for row in rows.unwrap().map(|row| row.unwrap()).collect::<Vec<_>>() {
        let hash = row.hash_behind(&before);
        let changed = "UPDATE events SET body = ?1, prev = ?2, hash = ?3 WHERE id = ?4";
        open.execute(changed, rusqlite::params![row.body, before, hash, row.id]).unwrap();
        before = hash;
    }
}
