//! Claude Code's command line: options, their values, and where agentsh inserts its own.
//!
//! The grammar is commander's: `--name VALUE` takes the next word whatever it is, `--name VALUES...` continues up to
//! the next word that starts with `-`, `--name=VALUE` takes exactly one, `--` ends the options.

/// Options with exactly one value.
const ONE: &[&str] = &[
    "--advisor",
    "--agent",
    "--agent-color",
    "--agent-id",
    "--agent-name",
    "--agent-type",
    "--agents",
    "--append-system-prompt",
    "--append-system-prompt-file",
    "--debug-file",
    "--deep-link-cwd-b64",
    "--deep-link-last-fetch",
    "--deep-link-repo",
    "--effort",
    "--fallback-model",
    "--input-format",
    "--json-schema",
    "--managed-settings",
    "--max-budget-usd",
    "--max-thinking-tokens",
    "--max-turns",
    "--model",
    "--name",
    "-n",
    "--output-format",
    "--parent-session-id",
    "--permission-mode",
    "--permission-prompt-tool",
    "--plan-mode-instructions",
    "--plugin-dir",
    "--plugin-dir-no-mcp",
    "--plugin-url",
    "--prefill",
    "--prefill-b64",
    "--remote-control-session-name-prefix",
    "--resume-session-at",
    "--rewind-files",
    "--sdk-url",
    "--session-id",
    "--setting-sources",
    "--settings",
    "--system-prompt",
    "--system-prompt-file",
    "--task-budget",
    "--team-name",
    "--teammate-mode",
    "--thinking",
    "--thinking-display",
    "--workload",
];
/// Options with one value or more.
const MULTI_VALUE_OPTIONS: &[&str] = &[
    "--add-dir",
    "--allowed-tools",
    "--allowedTools",
    "--betas",
    "--channels",
    "--dangerously-load-development-channels",
    "--disallowed-tools",
    "--disallowedTools",
    "--file",
    MCP_CONFIG,
    "--tools",
];
/// Options whose value may be left out.
const OPTIONAL: &[&str] = &[
    "--cloud",
    "--debug",
    "-d",
    "--from-pr",
    "--prompt-suggestions",
    "--rc",
    "--remote",
    "--remote-control",
    "--resume",
    "-r",
    "--teleport",
    "--worktree",
    "-w",
];
/// Subcommands that start no session of their own, or that take none of the options of one.
const SUBCOMMANDS: &[&str] = &[
    "auth",
    "auto-mode",
    "doctor",
    "gateway",
    "import-conversations",
    "install",
    "mcp",
    "plugin",
    "plugins",
    "project",
    "remote-control",
    "setup-token",
    "ultrareview",
    "update",
    "upgrade",
];
/// Words that count as a subcommand only when they come first of all.
const FIRST_WORDS: &[&str] = &["attach", "daemon", "kill", "logs", "rc", "respawn", "rm", "stop", "sync"];
const MCP_CONFIG: &str = "--mcp-config";
const STRICT: &str = "--strict-mcp-config";
const APPEND: &str = "--append-system-prompt";

/// The MCP servers of the command line, and the command line without them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// The words after the program. Each `--mcp-config` was replaced by `--strict-mcp-config`, which takes no
    /// value: it ends the values of the option before it, as the original did.
    pub(super) rest: Vec<String>,
    /// Values of `--mcp-config` in order: files or JSON.
    pub(super) configs: Vec<String>,
    pub(super) strict: bool,
    /// Words that agentsh puts in front.
    front: Vec<String>,
    /// The positions in `rest` of the values of `--agents`, with the number of bytes before the value (`--agents=`).
    pub(super) agents: Vec<(usize, usize)>,
    pub(super) settings: Vec<String>,
    pub(super) setting_sources: Option<String>,
    /// Values of `--plugin-dir`.
    pub(super) plugin_dirs: Vec<String>,
    pub(super) plugin_urls: bool,
    /// Values of `--add-dir`.
    pub(super) added: Vec<String>,
    /// The position in `rest` of the value of the last `--append-system-prompt`, with the number of bytes before it.
    pub(super) appended: Option<(usize, usize)>,
    /// `--append-system-prompt-file`, with which the other does not go.
    pub(super) appended_file: bool,
    /// `--bare` or `--safe-mode`: no server but those of the command line.
    pub(super) bare: bool,
    pub(super) subcommand: Option<Subcommand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subcommand {
    /// `agents`: takes our options, after its own name. The index is where in `rest` they go.
    Agents(usize),
    Other,
}

/// Reads the words after the program.
pub(super) fn parse(words: &[String]) -> Parsed {
    let mut parsed = Parsed::default();
    let mut words = words.iter().peekable();
    let mut positionals = 0;
    if words.peek().is_some_and(|first| FIRST_WORDS.contains(&first.as_str())) {
        parsed.subcommand = Some(Subcommand::Other);
    }
    while let Some(word) = words.next() {
        if word == "--" {
            parsed.rest.push(word.clone());
            parsed.rest.extend(words.cloned());
            break;
        }
        if !word.starts_with('-') || word == "-" {
            if positionals == 0 && parsed.subcommand.is_none() {
                if word == "agents" {
                    parsed.subcommand = Some(Subcommand::Agents(parsed.rest.len() + 1));
                } else if SUBCOMMANDS.contains(&word.as_str()) {
                    parsed.subcommand = Some(Subcommand::Other);
                }
            }
            positionals += 1;
            parsed.rest.push(word.clone());
            // The rest belongs to the subcommand, which has its own options (`mcp add NAME -- CMD`).
            if parsed.subcommand == Some(Subcommand::Other) {
                parsed.rest.extend(words.cloned());
                break;
            }
            continue;
        }
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let mut values: Vec<String> = Vec::new();
        let is_inline = inline.is_some();
        if let Some(value) = inline {
            values.push(value);
        } else if ONE.contains(&name) {
            values.extend(words.next().cloned());
        } else if MULTI_VALUE_OPTIONS.contains(&name) {
            values.extend(words.next().cloned());
            while let Some(value) = words.next_if(|next| !is_option(next)) {
                values.push(value.clone());
            }
        } else if OPTIONAL.contains(&name) {
            values.extend(words.next_if(|next| !is_option(next)).cloned());
        }
        parsed.option(word, name, values, is_inline);
    }
    parsed
}

/// The words with our configuration in it.
pub(super) fn inject(parsed: &Parsed, config: &str) -> Vec<String> {
    // As one word, because in the form with two words the following prompt would count as a second file.
    let ours = [STRICT.to_owned(), format!("{MCP_CONFIG}={config}")];
    match parsed.subcommand {
        Some(Subcommand::Other) => parsed.rest.clone(),
        Some(Subcommand::Agents(at)) => {
            let (before, after) = parsed.rest.split_at(at.min(parsed.rest.len()));
            [before, &ours, after].concat()
        }
        // In front, where commander takes them whether or not a subcommand follows that is not known here.
        None => [&ours[..], &parsed.front, &parsed.rest].concat(),
    }
}

impl Parsed {
    /// Adds settings that go before all files. False: there is no place for them.
    pub(super) fn set(&mut self, settings: &str) -> bool {
        let may = self.subcommand.is_none() && self.settings.is_empty();
        if may {
            self.front.push(format!("--settings={settings}"));
        }
        may
    }

    /// Adds a text to the agent's context, after the user's own. False: there is no place for it.
    pub(super) fn append_system_prompt(&mut self, text: &str) -> bool {
        if self.subcommand.is_some() || self.appended_file {
            return false;
        }
        match self.appended.and_then(|(at, prefix)| self.rest.get_mut(at).map(|word| (word, prefix))) {
            // An option without its value is the user's mistake, which Claude Code reports.
            Some((word, prefix)) if word.len() > prefix => {
                word.push_str("\n\n");
                word.push_str(text);
            }
            Some((word, _)) => word.push_str(text),
            None => self.front.push(format!("{APPEND}={text}")),
        }
        true
    }

    fn option(&mut self, word: &str, name: &str, values: Vec<String>, inline: bool) {
        if name == MCP_CONFIG {
            self.configs.extend(values);
            self.rest.push(STRICT.to_owned());
            return;
        }
        self.rest.push(word.to_owned());
        match name {
            STRICT => self.strict = true,
            "--bare" | "--safe-mode" => self.bare = true,
            "--agents" => {
                let at = if inline { self.rest.len() - 1 } else { self.rest.len() };
                let prefix = if inline { "--agents=".len() } else { 0 };
                if !values.is_empty() {
                    self.agents.push((at, prefix));
                }
            }
            APPEND if !values.is_empty() => {
                let prefix = if inline { APPEND.len() + 1 } else { 0 };
                self.appended = Some((self.rest.len() - usize::from(inline), prefix));
            }
            "--append-system-prompt-file" => self.appended_file = true,
            "--settings" => self.settings.extend(values.last().cloned()),
            "--setting-sources" => self.setting_sources = values.last().cloned(),
            "--add-dir" => self.added.extend(values.iter().cloned()),
            "--plugin-dir" => self.plugin_dirs.extend(values.iter().cloned()),
            "--plugin-url" => self.plugin_urls = true,
            _ => {}
        }
        if !inline {
            self.rest.extend(values);
        }
    }
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}
