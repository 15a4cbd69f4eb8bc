//! `agentsh policy check|test`: whether a policy is valid, passes its tests, and has an effect here.

use std::io::Write;

use serde_json::{Value, json};

use crate::{CommandContext, lint};
use agentsh_base::types::RuleRef;
use agentsh_policy::{
    Answer, Diagnostic, Named, PolicyError, PolicyTest, Ruled, ServerProfile, find, find_named, tests,
};
use agentsh_terminal::exit::NO;
use agentsh_terminal::output::Failure;

pub fn check(
    names: &[String],
    json: bool,
    place: &CommandContext,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let found: Vec<(&str, Result<Named, PolicyError>)> = if names.is_empty() {
        let in_force = find(&place.search(None, "default")).map(|loaded| Named::Policy(Box::new(loaded)));
        vec![("the policy in force", in_force)]
    } else {
        names.iter().map(|name| (name.as_str(), find_named(name, &place.config_home))).collect()
    };
    let mut code = 0;
    let mut reports = Vec::new();
    for (name, found) in found {
        match found.and_then(|found| check_policy(found, place)) {
            Ok(Checked { source, what, warnings }) => {
                for warning in &warnings {
                    writeln!(err, "warning: {}: {}", warning.rule, warning.value)?;
                }
                let warnings: Vec<Value> =
                    warnings.iter().map(|w| json!({"text": w.value, "rule": w.rule})).collect();
                reports.push(json!({"file": source, "ok": true, "warnings": warnings}));
                if !json {
                    writeln!(out, "{source}: ok, {what}")?;
                }
            }
            Err(error) => {
                code = NO;
                let mistakes: Vec<Value> = error.diagnostics().iter().map(diagnostic_json).collect();
                let report =
                    json!({"file": name, "ok": false, "error": error.to_string(), "mistakes": mistakes});
                reports.push(report);
                write!(err, "{}", error.render())?;
            }
        }
    }
    if json {
        writeln!(out, "{}", Value::Array(reports))?;
    }
    Ok(code)
}

/// The policy in force, with everything its tests expect.
struct Checked {
    source: String,
    what: String,
    warnings: Vec<Ruled<String>>,
}

fn check_policy(found: Named, place: &CommandContext) -> Result<Checked, PolicyError> {
    Ok(match found {
        Named::Policy(loaded) => {
            let source = loaded.file.clone();
            let what = count(loaded.answers(&place.project).len(), "test");
            let policy = loaded.tested(&place.project)?;
            let absent = |rule: &RuleRef| Ruled {
                value: format!("{}: not in force", agentsh_policy::NO_ENGINE),
                rule: rule.clone(),
            };
            let mut warnings = lint::lint(&policy, &place.context(), place.env.get("PATH"));
            warnings.extend(policy.warnings);
            warnings.extend(policy.mcp.not_enforced.iter().map(absent));
            Checked { source, what, warnings }
        }
        Named::Profile(profile) => {
            let profile = profile.tested()?;
            let what = format!("a profile with {}", count(profile.tests.len(), "test"));
            Checked { source: profile.file, what, warnings: Vec::new() }
        }
    })
}

pub fn test(
    name: Option<&str>,
    json: bool,
    place: &CommandContext,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let found = match name {
        Some(name) => find_named(name, &place.config_home),
        None => find(&place.search(None, "default")).map(|loaded| Named::Policy(Box::new(loaded))),
    };
    let found = match found {
        Ok(Named::Policy(found)) => found,
        Ok(Named::Profile(profile)) => {
            let answers = profile.answers(&ServerProfile::test_context());
            return print_tests(&profile.file, &answers, json, out);
        }
        Err(error) => {
            write!(err, "{}", error.render())?;
            return Ok(NO);
        }
    };
    let answers = found.answers(&place.project);
    print_tests(&found.file, &answers, json, out)
}

fn print_tests(
    file: &str,
    answers: &[(PolicyTest, Answer)],
    json: bool,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let mut failed = 0;
    let mut reports = Vec::new();
    for (test, answer) in answers {
        let ok = answer.allow == test.expect_allow;
        failed += usize::from(!ok);
        if json {
            reports.push(test_json(test, answer, ok));
        } else {
            let word = if ok { "ok    " } else { "FAILED" };
            let got = if answer.allow { "allow" } else { "deny" };
            let what = tests::describe(test);
            writeln!(
                out,
                "{word} line {}: {what} -> {got}: {} [{}]",
                test.rule.line, answer.text, answer.rule
            )?;
        }
    }
    if json {
        writeln!(out, "{}", Value::Array(reports))?;
    } else {
        writeln!(out, "{file}: {}, {failed} failed", count(answers.len(), "test"))?;
    }
    Ok(if failed == 0 { 0 } else { NO })
}

fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "file": diagnostic.file, "line": diagnostic.line, "column": diagnostic.column,
        "message": diagnostic.message, "help": diagnostic.help,
    })
}

fn test_json(test: &PolicyTest, answer: &Answer, ok: bool) -> Value {
    json!({
        "ok": ok, "line": test.rule.line, "test": tests::describe(test), "expect_allow": test.expect_allow,
        "allow": answer.allow, "rule": answer.rule, "text": answer.text,
    })
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
