//! What `policy check` finds on this machine: what the first run would refuse or leave out.

use crate::policy::{FilesystemPolicy, PathContext, Policy, Question, Ruled, place};
use crate::session::grants;
use crate::types::{RuleRef, ServerId};

/// One line for each entry of the user that does not do what it says, here.
pub(super) fn lint(policy: &Policy, context: &PathContext) -> Vec<Ruled<String>> {
    let mut found = Vec::new();
    process(policy, None, &policy.agent.filesystem, context, &mut found);
    for (id, server) in &policy.mcp.servers {
        process(policy, Some(id), &server.process.filesystem, context, &mut found);
    }
    found
}

fn process(
    policy: &Policy,
    from: Option<&ServerId>,
    files: &FilesystemPolicy,
    context: &PathContext,
    found: &mut Vec<Ruled<String>>,
) {
    let mut warn = |rule: &RuleRef, value: String| found.push(Ruled { value, rule: rule.clone() });
    for (list, question) in
        [(&files.read, Question::Read as fn(String) -> Question), (&files.write, Question::Write)]
    {
        // What ships names what may be there.
        let own =
            list.iter().filter(|entry| entry.rule.line > 0 && !entry.rule.file.starts_with("built-in:"));
        for entry in own.filter(|entry| !entry.value.contains(['*', '?'])) {
            let answer = policy.ask(from, &question(entry.value.clone()), context);
            if !answer.allow {
                warn(&entry.rule, format!("`{}` opens nothing: {}", entry.value, answer.text));
            } else if !place::resolve(&entry.value, context).exists() {
                let text = format!("`{}` does not exist here, so that it opens nothing", entry.value);
                warn(&entry.rule, text);
            }
        }
    }
    // In the home itself nothing starts, whatever the policy says.
    let is_home = context.home.starts_with(&context.project);
    if let Some(why) = grants::expand(files, context).refused.filter(|_| !is_home) {
        let rule = files.write.first().or(files.read.first()).map(|entry| entry.rule.clone());
        let rule = rule.unwrap_or_else(|| RuleRef::default_rule("filesystem"));
        warn(&rule, format!("nothing can be started: {why}"));
    }
}
