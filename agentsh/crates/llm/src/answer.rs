//! An answer that is not streamed.

use crate::canary::Needle;
use crate::dialect::{Rulings, holds_only, is_cut, parse, whole_answer};
use crate::engine::{in_arguments, judge_one};
use crate::route::Provider;
use crate::usage::Usage;
use crate::{EngineEvent, Judge, LlmError, Ruling};

/// The answer for the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// None: unchanged.
    pub body: Option<String>,
    pub told: Vec<EngineEvent>,
    /// The usage as the provider counts it.
    pub usage: Usage,
}

impl Answer {
    /// Judges the calls in an answer, and searches its texts for the needle.
    ///
    /// # Errors
    /// When it cannot be parsed: it is withheld.
    pub fn of(
        provider: Provider,
        body: &[u8],
        needle: Option<&Needle>,
        replacement: &str,
        judge: &mut dyn Judge,
    ) -> Result<Self, LlmError> {
        // Clients ignore this mark.
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let text = std::str::from_utf8(body).map_err(|_| LlmError::Shape("text that is not UTF-8"))?;
        let tree = parse(text)?;
        let form = whole_answer(provider);
        let mut usage = Usage::default();
        for part in tree.as_array().unwrap_or(std::slice::from_ref(&tree)) {
            usage.merge(Usage::of(part));
        }
        let (calls, texts) = form.read(&tree)?;
        holds_only(&tree, calls.len())?;
        let leaks = needle.is_some_and(|needle| {
            texts.iter().any(|text| needle.is_in(text))
                || calls.iter().any(|(_, call)| in_arguments(needle, &call.arguments))
        });
        if leaks {
            return Ok(Self {
                body: Some(form.with_replacement(&tree, replacement)),
                told: vec![EngineEvent::Leaked],
                usage,
            });
        }
        let (mut rulings, mut told) = (Rulings::new(), Vec::new());
        for (key, call) in calls {
            let ruling = judge_one(judge, &call, is_cut(&tree));
            if let Ruling::Block(reason) = &ruling {
                told.push(EngineEvent::Blocked { call: call.clone(), reason: reason.clone() });
            }
            rulings.insert(key, (call, ruling));
        }
        let body = if told.is_empty() { None } else { Some(form.without_refused_calls(&tree, &rulings)?) };
        Ok(Self { body, told, usage })
    }
}
