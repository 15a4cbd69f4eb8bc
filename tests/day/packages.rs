//! Packages are published through placeholders: by npm, cargo and twine, to registries that want the user's token. Refused until
//! the policy has the line that the refusal says; the token is nowhere inside.

use std::path::{Path, PathBuf};

use super::credentials::inside;
use crate::support::forge::{TOKEN, forge};
use crate::support::{Mode, Outcome, Place, skip};

/// How one tool publishes.
struct Tool {
    name: &'static str,
    /// The variable that holds the token outside, and the placeholder inside.
    variable: &'static str,
    /// The request that publishes.
    request: &'static str,
    script: &'static str,
}

const NPM: Tool = Tool {
    name: "npm",
    variable: "NPM_TOKEN",
    request: "PUT /npm/agentsh-day",
    script: "echo '{\"name\": \"agentsh-day\", \"version\": \"1.0.0\"}' > package.json; \
             npm publish",
};
const CARGO: Tool = Tool {
    name: "cargo",
    variable: "CARGO_REGISTRIES_CORP_TOKEN",
    request: "PUT /api/v1/crates/new",
    script: "mkdir c; cd c; cargo init -q --lib --name agentsh-day --vcs none; echo 'license = \"MIT\"' > l; \
             sed -i '/^edition/r l' Cargo.toml; sed -i '/^edition/a description = \"x\"' Cargo.toml; rm l; \
             CARGO_REGISTRIES_CORP_INDEX=sparse+https://allowed.test:8443/index/ \
             cargo publish -q --registry corp --no-verify --allow-dirty",
};
const TWINE: Tool = Tool {
    name: "twine",
    variable: "TWINE_PASSWORD",
    request: "POST /legacy/",
    script: "mkdir -p w/agentsh_day-1.0.dist-info; cd w; \
             printf 'Metadata-Version: 2.1\\nName: agentsh-day\\nVersion: 1.0\\n' > agentsh_day-1.0.dist-info/METADATA; \
             printf 'Wheel-Version: 1.0\\nTag: py3-none-any\\n' > agentsh_day-1.0.dist-info/WHEEL; touch agentsh_day-1.0.dist-info/RECORD; \
             python3 -m zipfile -c agentsh_day-1.0-py3-none-any.whl agentsh_day-1.0.dist-info; \
             TWINE_USERNAME=__token__ twine upload --non-interactive --disable-progress-bar \
             --repository-url https://allowed.test:8443/legacy/ agentsh_day-1.0-py3-none-any.whl",
};

/// The path of a program of the user who runs the tests, and the directory that has to be shown for it.
fn installed(program: &str) -> Option<(PathBuf, PathBuf)> {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).to_vec();
    if program == "cargo" {
        // The one that builds this: without what chooses among several.
        places.extend(Path::new(env!("CARGO")).parent().map(Path::to_owned));
    } else {
        places.extend(std::env::split_paths(&std::env::var_os("AGENTSH_TEST_TOOLS").unwrap_or_default()));
        places.extend(std::env::split_paths(&own));
    }
    let directory = places.into_iter().find(|place| place.join(program).exists())?;
    let top = directory.parent()?.to_owned();
    Some((directory, top))
}

fn policy(place: &Place, tool: &Tool, shown: &Path, allow: &str) {
    place.user_policy(&format!(
        "agent:\n  filesystem: {{read: [\"{}\"]}}\n  credentials:\n    - {{host: \"allowed.test:8443\", from: \"env:{}\"{allow}}}\n",
        shown.display(),
        tool.variable
    ));
}

fn holds_no_token(place: &Place, outcome: &Outcome) {
    assert!(!outcome.stdout.contains(TOKEN) && !outcome.stderr.contains(TOKEN), "{outcome}");
    for file in [".local/state/agentsh/agentsh.db", ".local/state/agentsh/agentsh.db-wal"] {
        let record = std::fs::read(place.home.join(file)).unwrap_or_default();
        assert!(!record.windows(TOKEN.len()).any(|bytes| bytes == TOKEN.as_bytes()), "it is in {file}");
    }
}

fn publishes(tool: &Tool) {
    for mode in Mode::all() {
        let Some((directory, top)) = installed(tool.name) else {
            return skip(&format!("{} is not installed", tool.name));
        };
        let place = forge(mode, "userns");
        // Also for a user who cannot reach it outside.
        let seen = Outcome::of(place.command("test").arg("-x").arg(directory.join(tool.name)));
        if seen.code != 0 {
            skip(&format!("{mode:?}: {} cannot be read", directory.display()));
            continue;
        }
        place.set(tool.variable, TOKEN);
        place.write(place.home.join(".npmrc"), "registry = https://allowed.test:8443/npm/\n");
        place.set("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", directory.display()));
        let published = place.internet_log().with_extension("log.git").join("published").join(tool.name);
        let (first, second) = TOKEN.split_at(9);
        let script = format!(
            "{}; code=$?; cd ~; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c {first}''{second}; \
             grep -rl {first}''{second} ~ /tmp 2>/dev/null; exit $code",
            tool.script
        );
        let clean = || {
            for entry in std::fs::read_dir(&place.project).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    std::fs::remove_dir_all(path).unwrap();
                }
            }
        };

        // Without the right to it: refused before the registry gets the request, with the policy line.
        policy(&place, tool, &top, "");
        let outcome = inside(&place, &script);
        assert_ne!(outcome.code, 0, "{mode:?}: {outcome}");
        assert!(outcome.stderr.contains(tool.request), "{mode:?}: {outcome}");
        assert!(outcome.stderr.contains("policy.yaml:4"), "{mode:?}: {outcome}");
        assert!(!published.exists());
        holds_no_token(&place, &outcome);
        clean();

        // With it.
        let allow = format!(", allow: [\"GET /**\", \"{}\"]", tool.request);
        policy(&place, tool, &top, &allow);
        let outcome = inside(&place, &script).expect_code(0);
        assert!(published.exists(), "{mode:?}: {outcome}");
        assert!(outcome.stdout.lines().any(|line| line == "0"), "{mode:?}: {outcome}");
        holds_no_token(&place, &outcome);
        let path = tool.request.split(' ').nth(1).unwrap();
        let uses = place.events("credential_used");
        assert!(uses.iter().any(|used| used["path"] == path), "{uses:?}");
    }
}

#[test]
#[ignore = "takes long"]
fn npm_publishes_without_its_token() {
    publishes(&NPM);
}

#[test]
fn cargo_publishes_without_its_token() {
    publishes(&CARGO);
}

#[test]
fn twine_uploads_without_its_token() {
    publishes(&TWINE);
}
