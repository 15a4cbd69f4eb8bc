//! The real Codex does a task: it writes files, tests them, commits, and pushes to a remote that wants the user's token,
//! which is nowhere inside: not in variables, files, the memory of any process, nor in the record. Needs what
//! `cargo xtask test e2e` installs, and AGENTSH_E2E_DIR to say where.

use std::path::PathBuf;

use serde_json::json;

#[path = "../e2e/inside.rs"]
#[allow(dead_code, clippy::expect_used, reason = "another target needs more of it")]
mod inside;

use super::credentials::{TOKEN, forge};
use super::has;
use crate::support::{Mode, Outcome, Place, is_root, skip};

const URL: &str = "https://allowed.test:8443/git/private.git";
/// Every agent has it in its memory.
const KNOWN: &str = "the-double-of-what-is-asked";

fn installed() -> Option<PathBuf> {
    let found = std::env::var_os("AGENTSH_E2E_DIR").map(PathBuf::from);
    if found.is_none() {
        skip("AGENTSH_E2E_DIR is not set: there is no agent");
    }
    found.filter(|_| has("git") && has("python3"))
}

fn works(agent: &[&str], prepare: impl Fn(&Place)) {
    let Some(directory) = installed() else { return };
    for mode in Mode::all() {
        let place = forge(mode, "userns");
        let file = |name: &str| place.project.join("work").join(name).display().to_string();
        let steps = json!([
            [format!("git clone -q {URL} work && cat work/file")],
            [file("double.py"), format!("# {KNOWN}\ndef double(n):\n    return n * 2\n")],
            [
                file("test_double.py"),
                "import unittest\nfrom double import double\nclass T(unittest.TestCase):\n    \
                 def test_it(self): self.assertEqual(double(21), 42)\n"
            ],
            ["cd work && python3 -m unittest -q && echo tested > result"],
            ["cd work && git add -A && git -c user.name=A -c user.email=a@b.example commit -qm 'Add double'"],
            [
                "cd work && git push -q origin HEAD:main && echo pushed >> result; env > ../environment; sleep 1"
            ],
        ]);
        std::fs::write(place.internet_log().with_extension("log.model"), steps.to_string()).unwrap();
        let packages = directory.join("npm");
        place.user_policy(&format!(
            "agent:\n  filesystem: {{read: [\"{}\"]}}\n  credentials:\n    - {{host: \"allowed.test:8443\", from: \"env:FORGE_TOKEN\", \
             allow: [\"GET /**\", \"POST /**/git-upload-pack\", \"POST /git/private.git/git-receive-pack\"]}}\n",
            packages.display()
        ));
        place.set(
            "PATH",
            format!("{}:/usr/local/bin:/usr/bin:/bin", packages.join("node_modules/.bin").display()),
        );
        prepare(&place);
        let watch = is_root().then(|| inside::Watch::start(TOKEN, KNOWN, &place.home));
        let words = [&["run", "--"], agent].concat();
        let outcome = Outcome::of(&mut place.agentsh(&words)).expect_code(0);
        let seen = watch.map(inside::Watch::finish);

        let root = place.internet_log().with_extension("log.git");
        let pushed = Outcome::of(
            place.command("git").args(["-c", "safe.directory=*", "-C"]).arg(root.join("private.git")).args([
                "show",
                "--format=%s",
                "main:double.py",
            ]),
        );
        assert!(pushed.stdout.contains("return n * 2"), "{mode:?}: {pushed}\n{outcome}");
        let result = std::fs::read_to_string(file("result")).unwrap_or_default();
        assert_eq!(result, "tested\npushed\n", "{mode:?}: {outcome}");
        let environment = std::fs::read_to_string(place.project.join("environment")).unwrap();
        assert!(environment.contains("FORGE_TOKEN=agentsh_") && !environment.contains(TOKEN));
        assert!(!outcome.stdout.contains(TOKEN) && !outcome.stderr.contains(TOKEN), "{outcome}");
        for file in ["agentsh.db", "agentsh.db-wal"] {
            let record =
                std::fs::read(place.home.join(".local/state/agentsh").join(file)).unwrap_or_default();
            assert!(!record.windows(TOKEN.len()).any(|bytes| bytes == TOKEN.as_bytes()), "it is in {file}");
        }
        if let Some(seen) = seen {
            assert!(seen.secret.is_empty(), "{mode:?}: {:?}", seen.secret);
            assert!(!seen.known.is_empty() && seen.bytes > 1 << 20, "{mode:?}: {seen:?}");
        } else {
            skip("the memory of the agent is read by root alone");
        }
        let log = std::fs::read_to_string(place.internet_log()).unwrap();
        assert!(log.contains(&format!("Basic x-access-token:{TOKEN}")), "the token was used");
    }
}

#[test]
fn codex_pushes_without_the_token() {
    let agent = [
        "codex",
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "add a doubling function, please",
    ];
    works(&agent, |place| {
        let config = "model = \"scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
                      base_url = \"https://v4.test:8443/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n";
        place.write(place.home.join(".codex/config.toml"), config);
        place.set("SCRIPTED_KEY", "sk-test");
        place.set("CODEX_CA_CERTIFICATE", place.project.join("authority.pem").display().to_string());
    });
}
