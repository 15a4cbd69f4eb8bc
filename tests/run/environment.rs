//! The environment variables of an agent.

use crate::support::{Mode, Outcome, Place, Pty};

#[test]
fn environment_has_the_usual_variables_and_no_others() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut command = place.agentsh(&["run", "--quiet", "--", "sh", "-c", "env"]);
        let outcome =
            Outcome::of(command.env("COLORTERM", "truecolor").env("SOMETHING", "else")).expect_code(0);
        let has = |line: &str| outcome.stdout.lines().any(|found| found == line);
        assert!(has(&format!("HOME={}", place.home.display())), "{outcome}");
        assert!(
            has("USER=tester") && has("PATH=/usr/local/bin:/usr/bin:/bin") && has("LANG=C.UTF-8"),
            "{outcome}"
        );
        assert!(has("COLORTERM=truecolor") && !outcome.stdout.contains("SOMETHING"), "{outcome}");
    }
}

#[test]
fn agent_starts_in_the_project_and_writes_there() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let outcome = place.shell(
            "pwd; mkdir a; echo text > a/b; ln a/b c; cat c; mv c a/d; mv a/d e; mkdir -p f/g; mv a f/g/",
        );
        assert_eq!(outcome.stdout, format!("{}\ntext\n", place.project.display()), "{mode:?} {outcome}");
        assert_eq!(std::fs::read_to_string(place.project.join("f/g/a/b")).unwrap(), "text\n");
    }
}

#[test]
fn home_and_tmp_are_private_and_thrown_away() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join("letter"), "dear");
        let script = "ls ~ | tr '\\n' ' '; cat ~/letter; echo x > ~/made && echo x > /tmp/made && echo x > /var/tmp/made && ls /tmp";
        let outcome = place.shell(script).expect_code(0);
        let shown = outcome.stdout.lines().next().unwrap_or_default();
        // If Go is installed, its cache is there, too.
        let shown: Vec<_> = shown.split_whitespace().filter(|name| *name != "go").collect();
        assert_eq!(shown.first(), Some(&"project"), "{mode:?} {outcome}");
        assert!(!outcome.stdout.contains("dear"), "{mode:?} {outcome}");
        assert!(!place.home.join("made").exists() && !std::path::Path::new("/tmp/made").exists());
        assert!(!place.shell("cat ~/made /tmp/made").stdout.contains('x'));
    }
}

#[test]
fn system_directories_are_readable() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = "test -r /usr/bin/env && test -c /dev/null && echo x > /dev/null && test -r /proc/self/status \
            && ! echo x 2>/dev/null > /usr/bin/x && ! echo x 2>/dev/null > /etc/passwd && ! echo x 2>/dev/null > /x \
            && head -c 4 /dev/urandom | wc -c && grep -c \"^$(id -un):\" /etc/passwd && hostname 2>/dev/null || cat /proc/sys/kernel/hostname";
        let outcome = place.shell(script);
        assert!(outcome.stdout.starts_with("4\n1\nagentsh"), "{mode:?} {outcome}");
        let devices = place.shell("ls /dev").stdout;
        let devices: Vec<&str> = devices.split_whitespace().collect();
        let expected = [
            "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
            "tty", "urandom", "zero",
        ];
        assert_eq!(devices, expected, "{mode:?}");
    }
}

#[test]
fn threads_pipes_and_locks_work() {
    let place = Place::new(Mode::Invoker);
    let script = "seq 1 1000 | sort -R | sort -n | tail -n 1; (flock 9; echo locked) 9> lock; date > /dev/null && echo ok";
    assert_eq!(place.shell(script).stdout, "1000\nlocked\nok\n");
}

/// `env` is a launcher of servers; alone it is just a program.
#[test]
fn env_without_a_command_runs() {
    let place = Place::new(Mode::Invoker);
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "env"])).expect_code(0);
    assert!(outcome.stdout.contains("HOME="), "{outcome}");
}

/// As execvp(3) and shells do, for a service or a cron job that cleared its environment.
#[test]
fn programs_are_found_without_path() {
    let place = Place::new(Mode::Invoker);
    let mut command = place.agentsh(&["run", "--quiet", "--", "printenv", "PATH"]);
    let outcome = Outcome::of(command.env_remove("PATH")).expect_code(0);
    assert_eq!(outcome.stdout, "/usr/local/bin:/usr/bin:/bin\n");
}

/// A variable that agentsh sets itself inside is not one that the program does not get.
#[test]
fn variables_that_are_set_anew_are_not_reported_as_missing() {
    let place = Place::new(Mode::Invoker);
    let program = place.script(place.project.join("bin/ssl"), "#!/bin/sh\nprintenv SSL_CERT_FILE\n");
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(program).env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt").env("SSL_OTHER", "x");
    let outcome = Outcome::of(&mut command).expect_code(0);
    assert!(
        outcome.stdout.contains("ca-certificates") || outcome.stdout.contains("/run/agentsh"),
        "{outcome}"
    );
    assert!(outcome.stderr.contains("'ssl' does not get its own variables SSL_OTHER: add"), "{outcome}");
}

/// An agent draws on the terminal when it runs: what it does not get is said before.
#[test]
fn keys_that_an_unknown_agent_does_not_get_are_told_at_its_start() {
    let place = Place::new(Mode::Invoker);
    let program = place.script(place.project.join("bin/helper"), "#!/bin/sh\necho drawn\n");
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(program).env("ANTHROPIC_API_KEY", "sk-x").env("HELPER_MODEL", "m");
    let (code, text) = Pty::start(command).whole();
    assert_eq!(code, 0, "{text:?}");
    let (before, after) = text.split_once("drawn").expect(&text);
    let before = before.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(before.contains("'helper' does not get ANTHROPIC_API_KEY; `--env NAME` passes"), "{text:?}");
    assert!(before.contains("HELPER_MODEL: add `--env HELPER_MODEL`"), "{text:?}");
    assert!(!after.contains("does not get"), "{text:?}");
}
