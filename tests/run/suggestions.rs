//! The end of a run: what was refused, as the commands that allow it.

use crate::support::browser::Ui;
use crate::support::{Mode, Outcome, Place, Pty, without_colour};

/// The commands at the end of a run.
fn suggested(outcome: &Outcome) -> Vec<&str> {
    outcome.stderr.lines().filter_map(|line| line.trim().strip_prefix("to allow: agentsh ")).collect()
}

/// On a terminal: each reason is one line, and each thing is said once.
#[test]
fn end_of_a_run_has_at_most_five_lines() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nagent:\n  network: {unknown: deny}\n");
    let hosts = "for n in 1 2 3 4 5 6 7 8; do getent hosts host$n.example.com; done";
    let others = "for to in 127.0.0.1:5433 10.1.1.1 8.8.8.8; do curl -s http://$to; done";
    for script in [hosts.to_owned(), format!("{hosts}; {others}")] {
        let command = place.agentsh(&["run", "--", "sh", "-c", &format!("{script}; echo drawn")]);
        let (code, text) = Pty::start(command).whole();
        assert_eq!(code, 0, "{text}");
        let text = without_colour(&text).replace('\r', "");
        let end = text.split_once("drawn\n").expect(&text).1;
        // Wrapped lines continue further to the right.
        let lines =
            end.lines().filter(|line| !line.starts_with("    ")).filter(|line| line.starts_with("  "));
        assert!(lines.count() <= 4, "{end}");
        let end = end.split_whitespace().collect::<Vec<_>>().join(" ");
        let refused = "refused: the agent -> host1.example.com, host2.example.com, host3.example.com, host4.example.com, \
                       host5.example.com, 3 more (name not allowed, by ";
        assert!(end.contains(refused), "{end}");
        assert_eq!(end.matches("to allow: agentsh policy allow ").count(), 1, "{end}");
    }
}

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
        let commands = suggested(&outcome);
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
        assert_eq!(suggested(&outcome), Vec::<&str>::new(), "{outcome}");
        let refused = format!("{asked}; getent hosts b.example.com; cat ~/library/x");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--tell-files", "--", "sh", "-c", &refused]));
        assert_eq!(
            suggested(&outcome),
            [format!("policy allow {home}/library/x b.example.com")],
            "{outcome}"
        );
    }
}
