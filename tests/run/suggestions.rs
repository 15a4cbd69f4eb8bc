//! The end of a run: what was refused, as the commands that allow it.

use crate::support::browser::Ui;
use crate::support::{Mode, Outcome, Place};

#[test]
fn suggested_commands_allow_what_was_refused() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join("library/x"), "");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n\tbare = false\n");
        place.make_directory(&place.project.join(".git/objects"));
        place.make_directory(&place.project.join(".git/refs"));
        let script = "getent hosts a.example.com; cat ~/library/x; \
                      echo x > .git/config.lock; mv .git/config.lock .git/config; rm -f .git/config.lock; sleep 0.2";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--tell-files", "--", "sh", "-c", script]));
        let (_, lines) = outcome.stderr.split_once("to allow any of these").expect(&outcome.stderr);
        let lines = lines.split_once('\n').unwrap().1;
        let commands: Vec<&str> =
            lines.lines().map_while(|line| line.trim().strip_prefix("agentsh ")).collect();
        let home = place.home.display();
        assert_eq!(
            commands,
            [
                format!("policy allow {home}/library/x a.example.com"),
                "policy allow --write .git/config".to_owned(),
            ],
            "{outcome}"
        );
        // So do the report and the page of the session.
        let report = Outcome::of(&mut place.agentsh(&["report"])).expect_code(0).stdout;
        let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(report.contains("to allow it: `agentsh policy allow a.example.com`"), "{report}");
        let ui = Ui::open(&place);
        let id = place.events("session_started")[0]["session"].as_str().unwrap().to_owned();
        let page = ui.get(&format!("/session/{id}")).body;
        assert!(page.contains("<code>agentsh policy allow a.example.com</code>"), "{page}");
        // They can be pasted.
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            Outcome::of(&mut place.agentsh(&words)).expect_code(0);
        }
        Outcome::of(&mut place.agentsh(&["policy", "check"])).expect_code(0);
        let outcome = place.shell("echo '[x]' >> .git/config && cat ~/library/x").expect_code(0);
        assert_eq!(outcome.stdout, "", "{outcome}");
    }
}

/// The answer to a question names the command; the end of the run lists what was refused, and nothing that was only asked for.
#[test]
fn a_question_suggests_nothing() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join("library/x"), "");
        let home = place.home.display();
        let asked = format!(
            "ln -s {home} link; for word in ~ ~/library/.. / /etc/shadow ./link ~/library b.example.com; do \
             /run/agentsh/agentsh why $word; done"
        );
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", &asked]));
        assert!(outcome.stdout.contains("agentsh policy allow b.example.com"), "{outcome}");
        assert!(!outcome.stderr.contains("to allow any of these"), "{outcome}");
        let refused = format!("{asked}; getent hosts b.example.com; cat ~/library/x");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--tell-files", "--", "sh", "-c", &refused]));
        let (_, lines) = outcome.stderr.split_once("to allow any of these").expect(&outcome.stderr);
        let line = lines.lines().nth(1).unwrap().trim();
        assert_eq!(line, format!("agentsh policy allow {home}/library/x b.example.com"), "{outcome}");
    }
}
