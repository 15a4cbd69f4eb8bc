//! The policy's own patterns and the documented ones, searched for in every string of a value.

use agentsh_base::json::{Json, unescape};
use agentsh_base::types::RuleRef;
use agentsh_guard::{Finding, Outcome, Reason, Subject, Verdict};
use agentsh_policy::{CustomPattern, DetectionPolicy, OnFinding, Ruled, documented_patterns};

use agentsh_scan::{self as scan, Action, Severity};

use super::MAX_COUNT;

#[derive(Debug)]
pub(super) struct Custom {
    patterns: Vec<Ruled<CustomPattern>>,
    /// The pattern set of the page is looked for.
    documented: bool,
}

/// A place that a pattern fits.
pub(super) struct Found<'p> {
    pattern: &'p CustomPattern,
    pub severity: Severity,
    pointer: String,
    context: String,
    /// It refuses in every place and at every severity.
    is_sure: bool,
}

impl Custom {
    pub fn new(policy: &DetectionPolicy) -> Self {
        Self { patterns: policy.patterns.clone(), documented: !policy.documented.is_empty() }
    }

    pub fn find(&self, value: &Json<'_>) -> Vec<Found<'_>> {
        let mut found = Vec::new();
        if self.patterns.is_empty() && !self.documented {
            return found;
        }
        let own = self.patterns.iter().map(|pattern| (&pattern.value, false));
        let documented = documented_patterns().iter().filter(|_| self.documented);
        let all = own.chain(documented.map(|one| (one, true)));
        // Limits each pattern separately: a flood of one hides no other.
        let mut missing: Vec<_> = all.map(|(pattern, documented)| (pattern, documented, MAX_COUNT)).collect();
        texts(value, &mut String::new(), &mut |pointer, text, is_name| {
            // A list of parameter names would help no reader.
            let says_nothing = is_name || pointer.contains("/required/");
            // Letters that only look like others are read as these.
            let folded =
                (self.documented && !text.is_ascii()).then(|| agentsh_secrets::views::folded_view(text).text);
            let views = [Some(text), folded.as_deref()];
            missing.retain_mut(|(pattern, is_documented, left)| {
                let views = views.iter().flatten().take(if *is_documented { 2 } else { 1 });
                let mut views = views.filter(|_| !(*is_documented && says_nothing));
                let place = views.find_map(|view| Some((*view, pattern.pattern.0.find(view)?.range())));
                found.extend(place.as_ref().map(|(view, place)| Found {
                    pattern,
                    severity: pattern.severity,
                    pointer: pointer.to_owned(),
                    context: scan::redacted_context(view, place),
                    is_sure: *is_documented || pattern.severity >= Severity::High,
                }));
                *left -= usize::from(place.is_some());
                *left > 0
            });
        });
        found
    }
}

impl Found<'_> {
    /// The same, or as certain.
    pub fn with_certainty(self, is_sure: bool) -> Self {
        Self { is_sure: self.is_sure || is_sure, ..self }
    }

    pub fn to_finding(&self, subject: &Subject<'_>, action: OnFinding, rule: RuleRef, what: &str) -> Finding {
        // A pattern that the policy calls critical is not a guess.
        let verdict = if self.is_sure { Action::Block } else { Action::Alert };
        let outcome = super::outcome(verdict, action).unwrap_or(Outcome::Allow);
        let CustomPattern { name, category, description, .. } = self.pattern;
        let meaning = description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        let severity = self.severity.as_str();
        let what = format!("{what} matches the pattern '{name}' ({category}, {severity}){meaning}");
        let verdict = Verdict::new(outcome, Reason::ContentSuspicious, rule);
        Finding {
            source: Some(super::source(subject)),
            context: self.context.clone(),
            pointer: self.pointer.clone(),
            description: description.clone(),
            ..Finding::new(verdict, Some(category), name, self.severity, what)
        }
    }
}

/// Every string and every name of a member, with its JSON pointer, and whether it is a name. The depth is bounded by the reader.
pub(super) fn texts(value: &Json<'_>, pointer: &mut String, see: &mut dyn FnMut(&str, &str, bool)) {
    let length = pointer.len();
    match value {
        Json::String(_) => {
            if let Some(text) = value.as_text() {
                see(pointer, &text, false);
            }
        }
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{at}"));
                texts(item, pointer, see);
                pointer.truncate(length);
            }
        }
        Json::Object(members) => {
            for (raw, member) in members {
                let name = unescape(raw);
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                see(pointer, &name, true);
                texts(member, pointer, see);
                pointer.truncate(length);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
