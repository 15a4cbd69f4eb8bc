//! `agentsh policy explain --flow FROM TO`: may data of one server go to another?

use std::collections::BTreeSet;
use std::io::Write;

use serde_json::json;

use crate::package::ServerFacts;
use crate::{CommandContext, PolicySelection, policy_failure};
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_dlp::flow::{Labels, Sink, Source};
use agentsh_policy::profile::Package;
use agentsh_policy::{OnFlow, Policy};
use agentsh_store::{PinStore, escape};
use agentsh_terminal::exit::{FAILED, NO, OK};
use agentsh_terminal::output::Failure;

/// A server of the question, with what is known of it.
struct End {
    id: ServerId,
    labels: Labels,
    /// The origin of the label.
    by: String,
}

/// Exit status 0: it passes, perhaps with an alert; 1: a person is asked, or it is refused.
pub async fn explain(
    which: &PolicySelection,
    ends: &[String],
    as_json: bool,
    place: &CommandContext,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let policy = place.policy(which).map_err(policy_failure)?;
    let mut found = Vec::new();
    for (at, word) in ends.iter().enumerate() {
        // `SERVER:TOOL` and `SERVER/TOOL` are taken too: labels belong to servers.
        let id = ServerId(word.split([':', '/']).next().unwrap_or_default().to_owned());
        match End::of(id, at == 0, &policy, place).await {
            Ok(end) => found.push(end),
            Err(why) => {
                writeln!(err, "error: {why}")?;
                return Ok(FAILED);
            }
        }
    }
    let [from, to] = found.as_slice() else {
        writeln!(err, "error: --flow takes two servers")?;
        return Ok(FAILED);
    };
    let (copy, copy_rule) = of_copy(&policy, from, to);
    let (label, label_rule) = of_labels(&policy, from, to);
    let code = if copy.max(label) >= Strictness::Ask { NO } else { OK };
    let (source, sink) = (source_word(from.labels), sink_word(to.labels));
    if as_json {
        let whole = json!({
            "from": from.id, "source": source, "source_by": from.by,
            "to": to.id, "sink": sink, "sink_by": to.by,
            "copy": copy.as_str(), "copy_rule": copy_rule, "without_copy": label.as_str(), "without_copy_rule": label_rule,
        });
        writeln!(out, "{whole}")?;
        return Ok(code);
    }
    let shown = |id: &ServerId| escape::line(&id.0).into_owned();
    writeln!(out, "from '{}': its results are {source} ({})", shown(&from.id), from.by)?;
    writeln!(out, "to '{}': data sent to it is {sink} ({})", shown(&to.id), to.by)?;
    // Prose and code may pass without a rule; a copy of a value needs one.
    let is_shared = allowing_rule(&policy, from, to).is_none() && from.labels.shares_with(to.labels);
    let what = if is_shared { "a copy of a secret or personal data" } else { "a copy" };
    if is_shared {
        writeln!(out, "a call that carries a copy of prose or code: {} ({label_rule})", label.sentence())?;
    }
    writeln!(out, "a call that carries {what}: {} ({copy_rule})", copy.sentence())?;
    writeln!(out, "a call without a copy, after something was read: {} ({label_rule})", label.sentence())?;
    if code == NO {
        writeln!(
            out,
            "  to allow it: sandbox: {{mcp: {{exfiltration: {{allow: [{{from: {}, to: {}}}]}}}}}}",
            shown(&from.id),
            shown(&to.id)
        )?;
    }
    Ok(code)
}

/// A label of a server that no line of a policy gives, and who does.
pub struct Label {
    pub key: String,
    pub value: &'static str,
    pub by: String,
}

/// Labels that hold without a line of the policy, of the servers that it names and of those that are pinned here.
pub async fn labels(policy: &Policy, place: &CommandContext) -> Result<Vec<Label>, String> {
    let mut ids: BTreeSet<ServerId> = policy.mcp.servers.keys().cloned().collect();
    // Asking makes no store.
    if agentsh_store::exists(&place.state) {
        let pins = PinStore::new(&place.state).list().await.map_err(|error| error.to_string())?;
        let project = place.project.display().to_string();
        let here = pins.into_iter().filter(|pin| pin.state.scope.is_empty() || pin.state.scope == project);
        ids.extend(here.map(|pin| pin.state.server_id));
    }
    let mut found = Vec::new();
    for id in ids {
        let entry = policy.mcp.servers.get(&id);
        let is_written = |is_source| {
            entry.is_some_and(|entry| if is_source { entry.source.is_some() } else { entry.sink.is_some() })
        };
        for (is_source, name) in [(true, "source"), (false, "sink")] {
            if !is_written(is_source) {
                let end = End::of(id.clone(), is_source, policy, place).await?;
                let value = if is_source { source_word(end.labels) } else { sink_word(end.labels) };
                found.push(Label { key: format!("mcp.servers.{}.flow.{name}", id.0), value, by: end.by });
            }
        }
    }
    Ok(found)
}

/// The outcomes, from lenient to strict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strictness {
    Passes,
    Alert,
    AskOrAlert,
    Ask,
    Block,
}

impl Strictness {
    fn of(action: OnFlow) -> Self {
        match action {
            OnFlow::Allow => Self::Passes,
            OnFlow::Alert => Self::Alert,
            OnFlow::Ask => Self::Ask,
            OnFlow::Block => Self::Block,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Passes => "allow",
            Self::Alert | Self::AskOrAlert => "alert",
            Self::Ask => "ask",
            Self::Block => "block",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Passes => "goes on",
            Self::Alert => "passes, and an alert is recorded",
            Self::AskOrAlert => {
                "waits for a person once for this pair; if nobody can answer, it passes with one alert"
            }
            Self::Ask => "waits for a person",
            Self::Block => "is refused",
        }
    }
}

impl End {
    async fn of(
        id: ServerId,
        is_source: bool,
        policy: &Policy,
        place: &CommandContext,
    ) -> Result<Self, String> {
        let known = ServerFacts::of_server(&id, policy, place).await.map_err(|error| error.to_string())?;
        let entry = policy.mcp.servers.get(&id);
        let package = known.package.as_deref().and_then(Package::of_identity);
        let labels = Labels::of_server(entry, package.as_ref(), known.profile.as_ref());
        let written = entry.and_then(|entry| match is_source {
            true => entry.source.as_ref().map(|source| &source.rule),
            false => entry.sink.as_ref().map(|sink| &sink.rule),
        });
        let by = match (written, &known.profile, &known.package) {
            (Some(rule), ..) => rule.to_string(),
            (None, Some(profile), _) => format!("profile {}", profile.file),
            (None, None, Some(package)) => format!("known properties of {package}"),
            (None, None, None) => "no profile and no label; the strictest applies".to_owned(),
        };
        Ok(Self { id, labels, by })
    }
}

fn of_copy(policy: &Policy, from: &End, to: &End) -> (Strictness, RuleRef) {
    let exfiltration = &policy.mcp.exfiltration;
    if let Some(passes) = allowing_rule(policy, from, to) {
        return passes;
    }
    let written = exfiltration.written.get("on_detection").cloned();
    (Strictness::of(exfiltration.in_run()), written.unwrap_or_else(|| exfiltration.rule.clone()))
}

fn of_labels(policy: &Policy, from: &End, to: &End) -> (Strictness, RuleRef) {
    if let Some(passes) = allowing_rule(policy, from, to) {
        return passes;
    }
    if from.labels.shares_with(to.labels) {
        return (Strictness::Passes, RuleRef::default_rule("sandbox.mcp.servers.flow"));
    }
    let exfiltration = &policy.mcp.exfiltration;
    match exfiltration.on_flow(&from.id.0, &to.id.0) {
        Some((action, rule)) => (Strictness::of(action), rule.clone()),
        None => (Strictness::AskOrAlert, exfiltration.rule.clone()),
    }
}

/// The rule that allows every flow between the two.
fn allowing_rule(policy: &Policy, from: &End, to: &End) -> Option<(Strictness, RuleRef)> {
    let exfiltration = &policy.mcp.exfiltration;
    if !exfiltration.enabled {
        let rule = exfiltration.written.get("enabled").unwrap_or(&exfiltration.rule);
        return Some((Strictness::Passes, rule.clone()));
    }
    if let Some(rule) = exfiltration.allows(&from.id.0, &to.id.0) {
        return Some((Strictness::Passes, rule.clone()));
    }
    let is_free = from.id == to.id || from.labels.source == Source::Public || to.labels.sink == Sink::Local;
    is_free.then(|| (Strictness::Passes, RuleRef::default_rule("sandbox.mcp.servers.flow")))
}

fn source_word(labels: Labels) -> &'static str {
    match labels.source {
        Source::Private => "private",
        Source::Shareable => "shareable",
        Source::Public => "public",
    }
}

fn sink_word(labels: Labels) -> &'static str {
    match labels.sink {
        Sink::Local => "local",
        Sink::SameOrigin => "same-origin",
        Sink::External => "external",
    }
}
