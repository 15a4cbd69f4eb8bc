//! Only written settings are found; they are found again when written plainly, whatever precedes them in the file.

use super::sandbox::git_config::{GitConfig, parse};

pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let found = parse(&text);
    let length: usize =
        [&found.hooks, &found.includes, &found.worktrees, &found.programs, &found.commands].into_iter().flatten().map(String::len).sum();
    assert!(length <= text.len(), "more was found than is written");
    let plain = write(&found);
    assert_eq!(parse(&plain), found, "not what is written: {plain:?}");
    // Ends whatever the text left open: quotes and a continued line do not reach over two line ends.
    let behind = parse(&format!("{text}\n\n{plain}"));
    for (before, after) in [
        (&found.hooks, &behind.hooks),
        (&found.includes, &behind.includes),
        (&found.worktrees, &behind.worktrees),
        (&found.programs, &behind.programs),
        (&found.commands, &behind.commands),
    ] {
        assert!(after.ends_with(before), "the text before hides it");
    }
}

fn write(config: &GitConfig) -> String {
    let entries = |header: &str, key: &str, values: &[String]| {
        let escaped = |value: &String| {
            value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t")
        };
        values.iter().map(|value| format!("{header}\n{key} = \"{}\"\n", escaped(value))).collect::<String>()
    };
    entries("[core]", "hooksPath", &config.hooks)
        + &entries("[core]", "worktree", &config.worktrees)
        + &entries("[include]", "path", &config.includes)
        + &entries("[core]", "sshCommand", &config.programs)
        + &entries("[core]", "attributesFile", &config.commands)
}
