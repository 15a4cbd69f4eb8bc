//! The end of a run: what was refused, as the lines of policy that would allow it.

use crate::support::{Mode, Outcome, Place};

#[test]
fn what_was_refused_is_suggested_as_one_piece_of_policy() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join("library/x"), "");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n\tbare = false\n");
        place.make_directory(&place.project.join(".git/objects"));
        place.make_directory(&place.project.join(".git/refs"));
        let script = "getent hosts a.example.com; /run/agentsh/agentsh why ~/library/x; \
                      echo x > .git/config.lock; mv .git/config.lock .git/config; rm -f .git/config.lock; sleep 0.2";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script]));
        let (_, lines) = outcome.stderr.split_once("to allow any of these").expect(&outcome.stderr);
        let lines = lines.split_once('\n').unwrap().1;
        let piece: String = lines
            .lines()
            .take_while(|line| line.starts_with("agent:") || line.starts_with(' '))
            .fold(String::new(), |text, line| text + line + "\n");
        assert!(piece.contains("a.example.com") && piece.contains(".git/config"), "{outcome}");
        assert!(piece.contains("read: ["), "{outcome}");
        // It can be pasted.
        place.user_policy(&piece);
        Outcome::of(&mut place.agentsh(&["policy", "check"])).expect_code(0);
        let outcome = place.shell("echo '[x]' >> .git/config && cat ~/library/x").expect_code(0);
        assert_eq!(outcome.stdout, "", "{outcome}");
    }
}
