//! `agentsh policy show`: what is in force here, and where each part comes from.

use std::io::Write;

use serde_json::{Value, json};

use crate::{CommandContext, PolicySelection, bundle, flow, listing, policy_failure, profiles, tools};
use agentsh_base::types::RuleRef;
use agentsh_host::toolchains::Toolchains;
use agentsh_policy::{Named, Policy, find_named, profile};
use agentsh_store::escape;
use agentsh_terminal::exit::FAILED;
use agentsh_terminal::output::{Failure, terminal_width};

pub async fn show(
    name: Option<&str>,
    which: &PolicySelection,
    json: bool,
    place: &CommandContext,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let is_in_force = name.is_none() && which.profile.is_none();
    let named = match (name, &which.profile) {
        (Some(name), _) => Some(find_named(name, &place.config_home)),
        (None, Some(name)) => {
            Some(profile::named(name, &place.config_home).map(|found| Named::Profile(Box::new(found))))
        }
        (None, None) => None,
    };
    let policy = match named {
        None => place.policy(which),
        Some(Ok(Named::Profile(profile))) => return profiles::print(&profile, json, out),
        Some(Ok(Named::Policy(loaded))) => loaded.tested(&place.project),
        Some(Err(error)) => Err(error),
    };
    let policy = policy.map_err(policy_failure)?;
    let lines = policy.lines();
    let tools = if is_in_force { tools::find(&policy, place) } else { Toolchains::default() };
    let labels = if is_in_force { flow::labels(&policy, place).await } else { Ok(Vec::new()) };
    let labels = match labels {
        Ok(labels) => labels,
        Err(why) => {
            writeln!(err, "error: {why}")?;
            return Ok(FAILED);
        }
    };
    if json {
        let parts: Vec<Value> = lines
            .iter()
            .map(|line| {
                let layer = layer_of(&policy, &line.rule);
                json!({"key": line.key, "value": line.value, "rule": line.rule, "layer": layer})
            })
            .collect();
        let warnings: Vec<Value> =
            policy.warnings.iter().map(|w| json!({"text": w.value, "rule": w.rule})).collect();
        let whole = json!({
            "source": policy.source, "parts": parts, "warnings": warnings, "toolchains": tools::json(&tools),
            "labels": labels.iter().map(|l| json!({"key": l.key, "value": l.value, "by": l.by})).collect::<Vec<_>>(),
        });
        writeln!(out, "{whole}")?;
        return Ok(0);
    }
    let width = lines.iter().map(|line| line.key.len() + line.value.len() + 2).filter(|w| *w < 60).max();
    let columns = terminal_width().map(usize::from);
    let mut listing =
        listing::Listing { out, columns, aligned: width.unwrap_or_default(), home: &place.home };
    listing.head(&policy.source)?;
    if let Some(found) = &policy.organisation {
        listing.head(&bundle::bundle_status(found))?;
    }
    for line in &lines {
        // The layer says more than the file if several layers count.
        let layer = match &policy.organisation {
            Some(_) => format!("{}: ", layer_of(&policy, &line.rule)),
            None => String::new(),
        };
        let rule = listing.rule(&line.rule, &line.key);
        listing.line(&format!("{}: {}", line.key, line.value), &format!("{layer}{rule}"))?;
    }
    for flow::Label { key, value, by } in &labels {
        listing.line(&format!("{}: {value}", escape::line(key)), &escape::line(by))?;
    }
    tools::print(&tools, &mut listing)?;
    for warning in &policy.warnings {
        writeln!(err, "warning: {}: {}", warning.rule, warning.value)?;
    }
    Ok(0)
}

/// The name of the layer that a rule comes from.
fn layer_of(policy: &Policy, rule: &RuleRef) -> &'static str {
    policy.layers.get(&rule.file).map_or("default", |layer| layer.word)
}
