//! The project's own git remotes over https: only fetching is allowed on their hosts.

use super::credentials::inside;
use super::has;
use crate::support::forge::forge;
use crate::support::{Mode, Outcome};

const REMOTE: &str = "https://allowed.test:8443/git/public.git";

#[test]
#[ignore = "takes long"]
fn git_fetch_from_a_project_remote_works() {
    if !has("git") || !has("curl") {
        return;
    }
    for mode in Mode::all() {
        for backend in ["auto", "userns"] {
            let place = forge(mode, backend);
            let script = format!("git init -q -b main . && git remote add origin {REMOTE}");
            Outcome::of(place.command("sh").args(["-ec", &script])).expect_code(0);
            let outcome = inside(
                &place,
                "set -e; git fetch -q; git checkout -q -b here origin/main; cat file; \
                 for url in https://allowed.test:8443/x https://v4.test:8443/git/public.git/info/refs; do \
                   curl -sS -o /dev/null -w '%{http_code} ' $url 2>/dev/null || echo none; done; \
                 git push -q origin HEAD:refs/heads/other || echo no push",
            )
            .expect_code(0);
            let lines: Vec<&str> = outcome.stdout.lines().collect();
            assert_eq!(lines, ["one", "403 000 none", "no push"], "{outcome}");
            assert!(outcome.stderr.contains("POST /git/public.git/git-receive-pack"), "{outcome}");
            assert!(outcome.stderr.contains(".git/config"), "{outcome}");
            let log = std::fs::read_to_string(place.internet_log()).unwrap();
            assert!(!log.contains("receive-pack"), "{log}");
            // In `strict` there is nothing that the user did not write.
            let words = ["run", "--quiet", "--policy", "strict", "--", "git", "fetch", "-q"];
            assert_ne!(Outcome::of(&mut place.agentsh(&words)).code, 0);
        }
    }
}
