//! Codex's command line: the options about servers, the sandbox and the configuration.

/// Options with one value that are skipped.
const ONE: &[&str] = &[
    "--add-dir",
    "--ask-for-approval",
    "-a",
    "--color",
    "--cyber-access-program",
    "--disable",
    "--enable",
    "--local-provider",
    "--model",
    "-m",
    "--output-last-message",
    "-o",
    "--output-schema",
    "--remote",
    "--remote-auth-token-env",
    "--thread-source",
];
/// An override without effect. It replaces a removed one, because with a word less the option before it would take the next
/// word as a value.
const NOTHING: &str = "mcp_servers={}";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// The words after the program, without overrides of servers.
    pub(super) rest: Vec<String>,
    /// The positions in `rest` where an override of servers was replaced by [`NOTHING`].
    pub(super) taken_out: Vec<usize>,
    /// Every `-c KEY=VALUE` in order.
    pub(super) overrides: Vec<(String, String)>,
    pub(super) profile: Option<String>,
    pub(super) directory: Option<String>,
    /// `--sandbox` and its like: the words of the first.
    pub(super) sandbox: Option<String>,
    pub(super) ignore_user_config: bool,
    pub(super) trust: bool,
    /// `--oss`: a model on this machine.
    pub(super) local_model: bool,
    pub(super) local_provider: Option<String>,
    pub(super) subcommand: Option<String>,
}

/// Reads the words after the program.
pub(super) fn parse(words: &[String]) -> Parsed {
    let mut parsed = Parsed::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            parsed.rest.push(word.clone());
            parsed.rest.extend(words.cloned());
            break;
        }
        if !word.starts_with('-') || word == "-" {
            parsed.subcommand.get_or_insert_with(|| word.clone());
            parsed.rest.push(word.clone());
            // `mcp add NAME -- CMD` and `sandbox CMD` have words of their own.
            if matches!(parsed.subcommand.as_deref(), Some("mcp" | "sandbox" | "completion")) {
                parsed.rest.extend(words.cloned());
                break;
            }
            continue;
        }
        let (name, inline) = split(word);
        let takes_one = ONE.contains(&name)
            || matches!(name, "-c" | "--config" | "-p" | "--profile" | "-C" | "--cd" | "-s" | "--sandbox");
        let value = match inline {
            Some(value) => Some(value.to_owned()),
            None if takes_one => words.next().cloned(),
            None => None,
        };
        let separate = inline.is_none().then(|| value.clone()).flatten();
        if matches!(name, "-c" | "--config") {
            parsed.override_word(value.as_deref().unwrap_or_default(), separate.is_some(), word);
            continue;
        }
        parsed.rest.push(word.clone());
        parsed.rest.extend(separate);
        match name {
            "-p" | "--profile" => parsed.profile = value,
            "-C" | "--cd" => parsed.directory = value,
            "-s" | "--sandbox" => parsed.sandbox = value.or(parsed.sandbox.take()),
            "--dangerously-bypass-approvals-and-sandbox" | "--yolo" => {
                parsed.sandbox = Some("danger-full-access".to_owned());
            }
            "--approve-for-me" | "--full-auto" => parsed.sandbox = Some("workspace-write".to_owned()),
            "--ignore-user-config" => parsed.ignore_user_config = true,
            "--trust" => parsed.trust = true,
            "--oss" => parsed.local_model = true,
            "--local-provider" => parsed.local_provider = value,
            _ => {}
        }
    }
    parsed
}

impl Parsed {
    fn override_word(&mut self, assignment: &str, separate: bool, word: &str) {
        let (key, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
        let first = key.split('.').next().unwrap_or_default();
        if first == "mcp_servers" {
            self.rest.extend(["-c".to_owned(), NOTHING.to_owned()]);
            self.taken_out.push(self.rest.len() - 1);
        } else {
            self.rest.push(word.to_owned());
            if separate {
                self.rest.push(assignment.to_owned());
            }
        }
        if key == "sandbox_mode" {
            self.sandbox = Some(value.trim_matches(['"', '\'']).to_owned());
        }
        self.overrides.push((key, value));
    }
}

/// The name of an option and the value that is written in the same word: `--name=value`, `-nvalue`, `-n=value`.
fn split(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
    }
    match word.char_indices().nth(2) {
        Some((at, _)) if "acCimops".contains(&word[1..at]) => {
            let value = &word[at..];
            (&word[..at], Some(value.strip_prefix('=').unwrap_or(value)))
        }
        _ => (word, None),
    }
}
