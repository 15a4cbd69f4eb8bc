//! Receipts: the packages of in-toto and of sigstore accept them, and refuse one that was edited.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::place::{Ended, Place, Starter, installed, run};

const COMMIT: &str = "git init -q . && git config user.name Ada && git config user.email ada@example.org && \
                      git commit -q --allow-empty -m";

/// Interpreter, directory of its packages, and the script that verifies.
const VERIFIERS: [(&str, &str, &str, &str); 2] = [
    ("venv-fleet/bin/python3", "venv-fleet", "receipt.py", include_str!("receipt.py")),
    ("/usr/bin/node", "npm", "receipt.mjs", include_str!("receipt.mjs")),
];

pub fn are_verified_by_others(starter: Starter) {
    let place = Place::new(starter);
    let [receipt, edited, key] = ["receipt.json", "edited.json", "key"].map(|name| place.home.join(name));
    let shell = |script: String| succeed(run(place.command("sh").args(["-ec", &script])));
    shell(format!("{COMMIT} one"));
    shell(format!("ssh-keygen -q -t ed25519 -N '' -f {}", key.display()));
    succeed(run(&mut place.agentsh(["run", "--quiet", "--", "sh", "-ec", &format!("{COMMIT} two")])));
    let words = ["receipt", "--key", &key.display().to_string(), "--output", &receipt.display().to_string()];
    succeed(run(&mut place.agentsh(words)));
    let text = std::fs::read_to_string(&receipt).expect("it was written");
    place.write(&edited, &edit(&text));
    for (interpreter, packages, name, source) in VERIFIERS {
        let script = installed(packages).join(name);
        std::fs::write(&script, source).expect("the installation is ours");
        let verify = |receipt: &Path| {
            let mut command = place.command(installed(interpreter));
            run(command.arg(&script).arg(receipt).arg(key.with_extension("pub")))
        };
        assert_eq!(succeed(verify(&receipt)).trim(), "urn:agentsh:receipt:1", "{name}");
        let refused = verify(&edited);
        assert!(
            refused.status != Some(0) && refused.stderr.to_lowercase().contains("verif"),
            "{name}: {refused:?}"
        );
    }
}

#[track_caller]
fn succeed(ended: Ended) -> String {
    assert_eq!(ended.status, Some(0), "{ended:?}");
    ended.stdout
}

/// The same receipt with another exit status in its statement.
fn edit(receipt: &str) -> String {
    let mut envelope: Value = serde_json::from_str(receipt).expect("JSON");
    let payload = STANDARD.decode(envelope["payload"].as_str().expect("a text")).expect("base64");
    let statement =
        String::from_utf8(payload).expect("a text").replacen("\"exit_code\":0", "\"exit_code\":1", 1);
    assert!(statement.contains("\"exit_code\":1"), "{statement}");
    envelope["payload"] = STANDARD.encode(statement).into();
    envelope.to_string()
}
