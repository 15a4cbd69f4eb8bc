//! The official libraries of Anthropic and OpenAI, as an agent uses them: they accept every answer that was
//! rewritten, streamed and not, and an answer without refusals is the same as without agentsh.

use serde_json::Value;

use crate::model::{Model, calls};
use crate::place::{Ended, Place, Starter, installed, run};

pub struct Library {
    pub name: &'static str,
    interpreter: &'static str,
    /// Below the installation: where its packages are, and its script in there.
    below: &'static str,
    script: &'static str,
    source: &'static str,
}

pub const LIBRARIES: [Library; 2] = [
    Library {
        name: "python",
        interpreter: "venv-models/bin/python3",
        below: "venv-models",
        script: "library.py",
        source: include_str!("library.py"),
    },
    Library {
        name: "typescript",
        interpreter: "/usr/bin/node",
        below: "npm",
        // Next to `node_modules`, where Node looks for packages.
        script: "library.mjs",
        source: include_str!("library.mjs"),
    },
];

/// Puts the scripts where they find their packages.
pub fn prepare() {
    for library in &LIBRARIES {
        let script = installed(library.below).join(library.script);
        std::fs::write(script, library.source).expect("the installation is ours");
    }
}

const WHICH: [&str; 4] = ["text", "one", "two", "leak"];
const WITHHELD: &str = "[Response withheld: the model attempted to reveal protected instructions.]";

/// The answers that the library received, one by one. The agent is the program that agentsh knows for such a model.
fn asked(
    library: &Library,
    place: &Place,
    model: &Model,
    (agent, apis): (&str, &str),
    is_guarded: bool,
) -> Vec<Value> {
    let script = installed(library.below).join(library.script);
    let program = place.project.join("bin").join(agent);
    place.program(
        &program,
        &format!(
            "#!/bin/sh\nexec {} {} {apis} {}\n",
            installed(library.interpreter).display(),
            script.display(),
            WHICH.join(",")
        ),
    );
    let mut command = match is_guarded {
        true => place.agentsh(["run", "--quiet", "--", &program.display().to_string()]),
        false => place.command(&program),
    };
    command
        .env("ANTHROPIC_BASE_URL", format!("http://{}", model.address))
        .env("OPENAI_BASE_URL", format!("http://{}/v1", model.address))
        .env("ANTHROPIC_API_KEY", "sk-test")
        .env("OPENAI_API_KEY", "sk-test");
    let Ended { stdout, stderr, .. } = run(&mut command);
    let seen: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}\n{stderr}"));
    seen.as_array().expect("a list").clone()
}

pub fn accepts(library: &Library, starter: Starter) {
    let place = Place::new(starter);
    let model = calls::start();
    let policy = format!(
        "version: 1\nagent: {{filesystem: {{read: [\"{}\"]}}}}\nllm: {{canary: true}}\nsandbox:\n  mcp:\n    \
         enforce_policy: true\n    tool_policy: denylist\n    denied_tools: [{{server: agent, tool: {}}}]\n",
        installed(library.below).display(),
        calls::REFUSED
    );
    place.write(&place.home.join(".config/agentsh/policy.yaml"), &policy);
    for (agent, apis) in [("claude", "anthropic"), ("codex", "chat,responses")] {
        let alone = asked(library, &place, &model, (agent, apis), false);
        let guarded = asked(library, &place, &model, (agent, apis), true);
        assert_eq!(guarded.len(), apis.split(',').count() * WHICH.len() * 2);
        assert_eq!(guarded.len(), alone.len());
        for (guarded, alone) in guarded.iter().zip(&alone) {
            check(guarded, alone);
        }
    }
    let heard = model.conversation();
    assert_eq!(heard.len(), 2 * 3 * WHICH.len() * 2, "each request goes to the model once");
    let called = place.ask(&["mcp", "events", "--json", "--type", "model_called"]);
    assert_eq!(called.as_array().map(Vec::len), Some(3 * WHICH.len() * 2), "{called}");
    let replaced = place.ask(&["mcp", "events", "--json", "--type", "output_message_replaced"]);
    assert_eq!(replaced.as_array().map(Vec::len), Some(3 * 2), "{replaced}");
}

fn check(guarded: &Value, alone: &Value) {
    assert_eq!((&guarded["error"], &alone["error"]), (&Value::Null, &Value::Null), "{guarded} {alone}");
    let text = guarded["text"].as_str().unwrap_or_else(|| panic!("{guarded}"));
    let refused = format!("[agentsh] Tool '{}' blocked by policy: ", calls::REFUSED);
    let tools = |answer: &Value| answer["tools"].as_array().cloned().unwrap_or_default();
    match guarded["which"].as_str() {
        Some("text") => assert_eq!(guarded, alone),
        Some("leak") => {
            assert!(text.ends_with(WITHHELD) && !text.contains("oracle"), "{guarded}");
            assert!(alone["text"].as_str().is_some_and(|text| text.contains("oracle")), "{alone}");
        }
        which => {
            assert!(text.starts_with(calls::HELLO) && text.contains(&refused), "{guarded}");
            let left: &[&str] = if which == Some("two") { &[calls::ALLOWED] } else { &[] };
            assert_eq!(tools(guarded), left, "{guarded}");
            assert_eq!(tools(alone).len(), left.len() + 1, "{alone}");
            // If a call remains, the turn continues as before.
            let goes_on = guarded["reason"] == alone["reason"];
            let has_one_reason = guarded["api"] == "responses";
            assert_eq!(goes_on, !left.is_empty() || has_one_reason, "{guarded} {alone}");
        }
    }
}
