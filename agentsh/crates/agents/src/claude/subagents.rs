//! Files of subagents, skills and commands (`.claude/{agents,skills,commands}`). Claude Code would start the MCP
//! servers in their front matter inside its own sandbox, past the proxy, run their hooks, and allow their tools
//! without asking. agentsh removes the servers, and from files of the project everything that would grant something.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::argv::Parsed;
use super::front_matter::{Block, is_declaration, without_keys};
use crate::{Context, Launch, read, walk};

/// Tools that change nothing and connect to nothing: a project may allow them.
const READING: &[&str] = &["AskUserQuestion", "Glob", "Grep", "LS", "NotebookRead", "Read", "TodoWrite"];
/// Modes in which Claude Code asks as it does without one.
const ASKING: &[&str] = &["default", "manual", "plan"];

/// Looks at the files of the project, in each directory from the current one up and in those that the command line adds.
pub(super) fn check_subagents(context: &Context<'_>, parsed: &Parsed, directory: &Path, launch: &mut Launch) {
    let within = |directory: &&Path| directory.starts_with(context.project);
    let above = context.cwd.ancestors().filter(within).map(Path::to_owned);
    let added = parsed.added.iter().map(|directory| context.cwd.join(directory));
    let places: BTreeSet<PathBuf> = above.chain(added).map(|directory| directory.join(".claude")).collect();
    let mut subagents = Subagents { launch, taken: Vec::new() };
    for place in places.iter().filter(|place| *place != directory) {
        // Every file of a skill, because a link may lead to a file with another name.
        for name in ["agents", "commands", "skills"] {
            let files = walk::files(&place.join(name), &["md"], &[], walk::MAX_FILES, subagents.launch);
            files.into_iter().for_each(|path| subagents.look_at(path));
        }
    }
    subagents.say_taken();
}

struct Subagents<'l> {
    launch: &'l mut Launch,
    /// Files that came with a project, as they are shown, and the keys that were taken out of them.
    taken: Vec<(String, BTreeSet<String>)>,
}

impl Subagents<'_> {
    fn look_at(&mut self, path: PathBuf) {
        let text = match read::text(&path, read::LIMIT) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            // A file that is unreadable here may be readable inside.
            Err(error) => {
                self.launch.notes.push(format!("{error}; the agent gets an empty file instead"));
                return self.launch.replaced.push((path, Vec::new()));
            }
        };
        let (mut servers, mut word) = (false, BTreeSet::new());
        let content = without_keys(&text, |block| {
            let is_server = is_declaration(block);
            let is_word = speaks_for_the_user(block);
            servers |= is_server;
            if is_word {
                word.insert(block.key.clone());
            }
            is_server || is_word
        });
        let Some(content) = content else { return };
        let shown = agentsh_base::escape::line(&path.display().to_string()).into_owned();
        if servers {
            self.launch.notes.push(format!(
                "MCP servers that {shown} declares are not started: declare them in ~/.claude.json or .mcp.json, and name them \
                 there"
            ));
        }
        if !servers && word.is_empty() {
            self.launch.notes.push(format!(
                "the front matter of {shown} is not passed to Claude Code: it is not plain YAML"
            ));
        }
        if !word.is_empty() {
            self.taken.push((shown, word));
        }
        self.launch.replaced.push((path, content.into_bytes()));
    }

    /// One line for all files of a project that would act in the user's name.
    fn say_taken(&mut self) {
        let Some((first, _)) = self.taken.first() else { return };
        let keys: BTreeSet<&str> = self.taken.iter().flat_map(|(_, keys)| keys).map(String::as_str).collect();
        let keys: Vec<&str> = keys.into_iter().collect();
        let more = match self.taken.len() {
            1 => String::new(),
            files => format!(" and {} more", files - 1),
        };
        self.launch.notes.push(format!(
            "{first}{more} came with the project: {} is not passed to Claude Code; write what you want to allow into ~/.claude/settings.json",
            keys.join(", ")
        ));
    }
}

/// Whether a key allows tools, runs programs or reduces questions.
fn speaks_for_the_user(block: &Block<'_>) -> bool {
    let is_one_of = |names: &[&str], word: &str| names.contains(&word.trim().trim_matches(['"', '\'']));
    if block.is("allowedtools") {
        !block.is_list_of(|word| word.trim().is_empty() || is_one_of(READING, word))
    } else if block.is("permissionmode") {
        !block.is_list_of(|word| is_one_of(ASKING, word))
    } else {
        block.is("hooks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_servers(text: &str) -> Option<String> {
        without_keys(text, is_declaration)
    }

    /// A project allows only tools that read.
    #[test]
    fn permissions_and_hooks_in_project_front_matter_are_removed() {
        let file = |front: &str| format!("---\ndescription: a\n{front}model: opus\n---\nBody\n");
        let of_project = |text: &str| without_keys(text, speaks_for_the_user);
        for front in [
            "",
            "allowed-tools: Read, Grep\n",
            "allowed-tools:\n  - Read\n  - \"Glob\"\n",
            "allowed-tools: []\n",
            "allowed-tools:\n",
            "permissionMode: plan\n",
            "tools: Bash, Read\n",
            "disallowed-tools: Bash\n",
        ] {
            assert_eq!(of_project(&file(front)), None, "{front}");
        }
        for front in [
            "allowed-tools: Bash(git add:*)\n",
            "allowed-tools: Read, Bash(curl *)\n",
            "allowed-tools: [\"mcp__github__create_issue\"]\n",
            "allowedTools:\n  - Read\n  - Write\n",
            "allowed_tools: >\n  Bash\n",
            "Allowed-Tools: |\n  Bash\n",
            "permissionMode: bypassPermissions\n",
            "permission-mode: acceptEdits\n",
            "hooks:\n  PreToolUse:\n    - hooks: [{type: command, command: sh}]\n",
        ] {
            assert_eq!(of_project(&file(front)), Some(file("")), "{front}");
        }
    }

    #[test]
    fn subagent_server_declarations_are_removed_and_references_stay() {
        let file = |front: &str| format!("---\nname: a\n{front}tools: Read\n---\nBody\nmcpServers: text\n");
        for front in [
            "",
            "mcpServers: [fs, github]\n",
            "mcpServers:\n  - fs\n  - \"my server\"\n",
            "mcpServers: fs, github # both\n",
        ] {
            assert_eq!(without_servers(&file(front)), None, "{front}");
        }
        for front in [
            "mcpServers:\n  evil:\n    command: sh\n",
            "mcpServers:\n  - evil:\n      command: sh\n",
            "mcpServers: {evil: {command: sh}}\n",
            "mcpServers: [{evil: {command: sh}}]\n",
            "mcpServers : \n  evil: {url: http://x}\n",
            "mcp-servers:\n  evil:\n    command: sh\n",
        ] {
            assert_eq!(without_servers(&file(front)), Some(file("")), "{front}");
        }
    }

    #[test]
    fn front_matter_with_an_unusually_spelled_key_is_removed() {
        for front in [
            "\"mcp\\x53ervers\": {a: {command: sh}}",
            "? mcpServers\n: {}",
            "{mcpServers: {}}",
            "&a mcpServers: {}",
            "'mcpServers': {}",
            "  name: a\n  mcpServers:\n    evil: {command: sh}",
            "# first\n\n name: a\n mcpServers: {a: {command: sh}}",
            "name: a\rmcpServers: {a: {command: sh}}",
            "name: a\u{2028}mcpServers: {a: {command: sh}}",
        ] {
            assert_eq!(
                without_servers(&format!("---\n{front}\n---\nBody\n")),
                Some("Body\n".to_owned()),
                "{front}"
            );
        }
        let ended_in_a_line = "---\nmcpServers: {a: {command: sh}}\n# ---\nBody\n";
        assert_eq!(
            without_servers(ended_in_a_line),
            ended_in_a_line.strip_prefix("---\n").map(str::to_owned)
        );
        let with_a_mark = "---\u{feff}\nmcpServers: {a: {command: sh}}\n---\nBody\n";
        assert_eq!(without_servers(with_a_mark), Some("---\u{feff}\n---\nBody\n".to_owned()));
        for text in ["no front matter\nmcpServers: {a: 1}\n", "---\nmcpServers: {}\n", ""] {
            assert_eq!(without_servers(text), None, "{text}");
        }
    }
}
