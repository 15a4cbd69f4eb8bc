//! Real agents do a task: they write and change files, test them, commit, and push to a remote that wants the user's token, which is
//! nowhere inside: not in variables, files, the memory of any process, nor in the record.

use serde_json::json;

use crate::inside;
use crate::place::{Starter, installed};
use crate::support::forge::{TOKEN, forge};
use crate::support::{Mode, Outcome, Place, is_root, skip};

const URL: &str = "https://allowed.test:8443/git/private.git";
/// Every agent has it in its memory.
const KNOWN: &str = "the-double-of-what-is-asked";

fn mode(starter: Starter) -> Mode {
    match starter {
        Starter::User if is_root() => Mode::User,
        _ => Mode::Invoker,
    }
}

fn works(starter: Starter, agent: &[&'static str], prepare: impl Fn(&Place)) {
    let mode = mode(starter);
    let place = forge(mode, "userns");
    let work = place.project.join("work");
    let file = |name: &str| work.join(name).display().to_string();
    // An agent may stay where it went.
    let there = |command: &str| format!("cd {} && {command}", work.display());
    let steps = json!([
        [format!("git clone -q {URL} {} && cat {}", work.display(), file("file"))],
        [file("double.py"), format!("# {KNOWN}\ndef double(n):\n    return n + n + 1\n")],
        [
            file("test_double.py"),
            "import unittest\nfrom double import double\nclass T(unittest.TestCase):\n    \
             def test_it(self): self.assertEqual(double(21), 42)\n"
        ],
        [there("python3 -m unittest -q || echo failed > result")],
        [file("double.py"), "n + n + 1", "n * 2"],
        [there("python3 -m unittest -q && echo tested >> result")],
        [there("git add -A && git -c user.name=A -c user.email=a@b.example commit -qm 'Add double'")],
        [there("git push -q origin HEAD:main && echo pushed >> result; env > ../environment; sleep 1")],
    ]);
    std::fs::write(place.internet_log().with_extension("log.model"), steps.to_string()).unwrap();
    let packages = installed("npm");
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
    let watch = is_root().then(|| inside::Watch::start(TOKEN, KNOWN, agent[0], &place.home));
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
    assert_eq!(result, "failed\ntested\npushed\n", "{mode:?}: {outcome}");
    let environment = std::fs::read_to_string(place.project.join("environment")).unwrap();
    assert!(environment.contains("FORGE_TOKEN=agentsh_") && !environment.contains(TOKEN));
    assert!(!outcome.stdout.contains(TOKEN) && !outcome.stderr.contains(TOKEN), "{outcome}");
    for file in ["agentsh.db", "agentsh.db-wal"] {
        let record = std::fs::read(place.home.join(".local/state/agentsh").join(file)).unwrap_or_default();
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

pub fn codex(starter: Starter) {
    let agent = [
        "codex",
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "add a doubling function, please",
    ];
    works(starter, &agent, |place| {
        let config = "model = \"scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
                      base_url = \"https://v4.test:8443/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n";
        place.write(place.home.join(".codex/config.toml"), config);
        place.set("SCRIPTED_KEY", "sk-test");
        place.set("CODEX_CA_CERTIFICATE", place.project.join("authority.pem").display().to_string());
    });
}

pub fn claude(starter: Starter) {
    let agent = [
        "claude",
        "-p",
        "add a doubling function, please",
        "--allowedTools",
        "Bash,Write,Edit,Read",
        "--output-format",
        "json",
    ];
    works(starter, &agent, |place| {
        for (name, value) in [
            ("ANTHROPIC_BASE_URL", "https://v4.test:8443"),
            ("ANTHROPIC_API_KEY", "sk-test"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
        ] {
            place.set(name, value);
        }
        place.set("NODE_EXTRA_CA_CERTS", place.project.join("authority.pem").display().to_string());
    });
}
