//! What `policy check` finds on this machine: rules that would have no effect at the first run.

use std::path::PathBuf;

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_host::grants;
use agentsh_policy::{PathContext, Policy, ProcessPolicy, Question, Ruled, place};

/// One line for each entry of the user that has no effect here. `path` is where programs are searched.
pub fn lint(policy: &Policy, context: &PathContext, path: Option<&String>) -> Vec<Ruled<String>> {
    let mut found = Vec::new();
    process(policy, None, &policy.agent, context, &mut found);
    for (id, server) in &policy.mcp.servers {
        if let Some(command) = &server.command
            && !is_there(command, context, path)
        {
            let value = format!("server `{id}` cannot be started here: there is no program `{command}`");
            found.push(Ruled { value, rule: server.rule.clone() });
        }
        process(policy, Some(id), &server.process, context, &mut found);
    }
    found
}

fn is_there(command: &str, context: &PathContext, path: Option<&String>) -> bool {
    if command.contains('/') {
        return place::resolve(command, context).exists();
    }
    path.is_some_and(|path| std::env::split_paths(path).any(|directory| directory.join(command).is_file()))
}

/// The rules that are not from shipped policies, because those name files that may not exist.
fn own_rules<T>(list: &[Ruled<T>]) -> impl Iterator<Item = &Ruled<T>> {
    list.iter().filter(|entry| entry.rule.line > 0 && !entry.rule.file.starts_with("built-in:"))
}

/// The directory above the first wildcard of a pattern; None for a plain path.
fn start_of(pattern: &str, context: &PathContext) -> Option<PathBuf> {
    let special = |part: &str| part.contains(['*', '?', '[']);
    if !special(pattern) {
        return None;
    }
    let whole = place::resolve(pattern, context);
    Some(whole.iter().take_while(|part| !special(&part.to_string_lossy())).collect())
}

fn process(
    policy: &Policy,
    from: Option<&ServerId>,
    of: &ProcessPolicy,
    context: &PathContext,
    found: &mut Vec<Ruled<String>>,
) {
    let files = &of.filesystem;
    let mut warn = |rule: &RuleRef, value: String| found.push(Ruled { value, rule: rule.clone() });
    for (list, question) in
        [(&files.read, Question::Read as fn(String) -> Question), (&files.write, Question::Write)]
    {
        for entry in own_rules(list) {
            // All that is in a directory is the directory.
            let value = entry.value.strip_suffix("/**").unwrap_or(&entry.value);
            if let Some(start) = start_of(value, context) {
                if !start.exists() {
                    let text =
                        format!("`{}` grants nothing: {} does not exist here", entry.value, start.display());
                    warn(&entry.rule, text);
                }
                continue;
            }
            let answer = policy.ask(from, &question(value.to_owned()), context);
            if !answer.allow {
                warn(&entry.rule, format!("`{}` grants nothing: {}", entry.value, answer.text));
            } else if !place::resolve(value, context).exists() {
                let text = format!("`{}` does not exist here, so it grants nothing", entry.value);
                warn(&entry.rule, text);
            }
        }
    }
    for entry in own_rules(&of.exec.allow) {
        let start = start_of(&entry.value, context).unwrap_or_else(|| place::resolve(&entry.value, context));
        if !start.exists() {
            let text =
                format!("`{}` allows nothing to run: {} does not exist here", entry.value, start.display());
            warn(&entry.rule, text);
        }
    }
    // Nothing starts in the home itself, whatever the policy says.
    let is_home = context.home.starts_with(&context.project);
    if let Some(why) = grants::contribution(files, context).err().filter(|_| !is_home) {
        let rule = files.write.first().or(files.read.first()).map(|entry| entry.rule.clone());
        let rule = rule.unwrap_or_else(|| RuleRef::default_rule("filesystem"));
        warn(&rule, format!("cannot start anything: {why}"));
    }
}
