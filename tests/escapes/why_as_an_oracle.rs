//! Questions to the session from inside: what is on the disk, what else the policy says, and the session's time.
//! Stopped by: an answer is made from the policy alone, about the one thing asked; questions are bounded.

use crate::support::{Mode, Outcome, Place};

const WHY: &str = "/run/agentsh/agentsh why";

fn inside(place: &Place, script: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]))
}

#[test]
fn why_reveals_no_files_and_no_other_rules() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.user_policy("agent:\n  network: {allow: [one.test, private-name.test]}\n");
        place.write(place.home.join("there.txt"), "x");
        let of = |name: &str| inside(&place, &format!("{WHY} ~/{name}")).stdout.replace(name, "IT");
        assert_eq!(of("there.txt"), of("gone.txt"));
        let outcome = inside(&place, &format!("{WHY} two.test; {WHY} one.test; {WHY} '*.test'; {WHY} ''"));
        assert!(!outcome.stdout.contains("private-name"), "{outcome}");
        // The twin: a question that names it is answered.
        let outcome = inside(&place, &format!("{WHY} private-name.test"));
        assert!(outcome.stdout.contains("allowed: `private-name.test"), "{outcome}");
    }
}

#[test]
fn strange_questions_do_not_stop_the_session() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = format!(
            "{WHY} $(head -c 3000 /dev/zero | tr '\\0' /); {WHY} $(head -c 3000 /dev/zero | tr '\\0' '*'); \
             {WHY} $(head -c 9000 /dev/zero | tr '\\0' a); {WHY} \"$(printf 'a\\033[31mb\\nc')\"; {WHY} '[::1'; \
             {WHY} '://'; {WHY} 'x://@:99999'; {WHY} two.test"
        );
        let outcome = inside(&place, &script);
        assert!(!outcome.stdout.contains('\u{1b}'), "{outcome}");
        assert!(outcome.stdout.contains("no rule names `two.test`"), "{outcome}");
    }
}
