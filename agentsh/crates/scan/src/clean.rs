//! A text without terminal control and hidden HTML, and the secrets in it.

use std::borrow::Cow;
use std::ops::Range;

use agentsh_secrets::certain::{self, Secret};
use agentsh_secrets::views::{View, ansi};

use crate::finding::Removal;
use crate::html::{self, Hidden};
use crate::rules::Channel;
use crate::score::{self, Own, Rule};

/// Points from which a hidden text is an order.
const ORDER: u32 = 20;
/// Bytes around a join that are searched with it: the longest certain secrets are private keys.
const MAX_SECRET: usize = 16_384;

/// A text without terminal control and hidden HTML.
pub struct Clean<'a> {
    text: &'a str,
    /// Without terminal control, if there was some.
    visible: Option<View>,
    /// In what is left without terminal control.
    hidden: Vec<Hidden>,
    /// What remains of `text`, if it was changed.
    rest: Option<View>,
    /// Where it reads on after something that a view of `text` reads too: hidden HTML, text in control strings.
    joins: Vec<usize>,
}

impl<'a> Clean<'a> {
    /// Without terminal control and hidden HTML.
    pub fn of(text: &'a str) -> Self {
        let mut clean = Self::without_control(text);
        let (rest, hidden) = html::strip(clean.shown(), &gives_orders);
        let Some(mut rest) = rest else { return clean };
        clean.joins = clean
            .joins
            .iter()
            .map(|at| rest.position_of(*at))
            .chain(rest.gaps().filter(|(_, gap)| !gap.is_empty()).map(|gap| gap.0))
            .collect();
        clean.joins.sort_unstable();
        if let Some(visible) = &clean.visible {
            rest.rebase(visible);
        }
        Self { rest: Some(rest), hidden, ..clean }
    }

    /// Without terminal control.
    pub fn without_control(text: &'a str) -> Self {
        let visible = ansi::visible(text);
        let joins = visible
            .iter()
            .flat_map(|view| view.gaps())
            .filter(|(_, gap)| ansi::has_string(&text[gap.clone()]));
        let joins = joins.map(|(at, _)| at).collect();
        Self { text, rest: visible.clone(), visible, hidden: Vec::new(), joins }
    }

    fn shown(&self) -> &str {
        self.visible.as_ref().map_or(self.text, |view| &view.text)
    }

    /// Bytes of terminal control.
    pub fn control(&self) -> usize {
        self.text.len() - self.shown().len()
    }

    /// Whether something was removed.
    pub fn is_changed(&self) -> bool {
        self.rest.is_some()
    }

    /// Places of hidden HTML that gives orders.
    pub fn orders(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let orders = self.hidden.iter().filter(|hidden| gives_orders(&self.shown()[hidden.place.clone()]));
        orders.map(|hidden| match &self.visible {
            Some(view) => view.original_range(hidden.place.clone()),
            None => hidden.place.clone(),
        })
    }

    /// What was removed.
    pub fn removals(&self, pointer: &str) -> Vec<Removal> {
        let control = (self.control() > 0).then(|| ("ansi", self.control()));
        let hidden = self.hidden.iter().map(|hidden| (hidden.kind, hidden.place.len()));
        let removal = |(kind, bytes)| Removal { kind, pointer: pointer.to_owned(), bytes };
        control.into_iter().chain(hidden).map(removal).collect()
    }

    /// The places of secrets in what remains: near its joins those that are found there, else the known ones of the original.
    pub fn secrets(&self, known: impl Iterator<Item = (&'static str, Range<usize>)>) -> Vec<Secret> {
        let Some(rest) = &self.rest else {
            return known.map(|(kind, place)| Secret::without_label(kind, place)).collect();
        };
        let near = View::of(&rest.text).changed_at(&self.joins);
        let parts = near.near_changes(MAX_SECRET);
        let moved = |(kind, place): (_, Range<usize>)| {
            Secret::without_label(kind, rest.position_of(place.start)..rest.position_of(place.end))
        };
        let is_far = |secret: &Secret| {
            let after = parts.partition_point(|part| part.whole().start <= secret.place.start);
            after.checked_sub(1).is_none_or(|at| parts[at].whole().end <= secret.place.start)
        };
        let mut found: Vec<Secret> = known.map(moved).filter(is_far).collect();
        for part in &parts {
            found.extend(
                certain::find_in_views(&part.text)
                    .into_iter()
                    .map(|secret| Secret::without_label(secret.kind, part.original_range(secret.place))),
            );
        }
        certain::sort_and_merge(found)
    }

    pub fn into_text(self) -> Cow<'a, str> {
        self.rest.map_or(Cow::Borrowed(self.text), |rest| rest.text.into())
    }
}

/// The text without terminal control and hidden HTML.
#[must_use]
pub fn sanitised(text: &str) -> Cow<'_, str> {
    Clean::of(text).into_text()
}

fn gives_orders(text: &str) -> bool {
    let mut signs = score::signs(text, Channel::Output);
    // Only written rules remove text.
    signs.retain(|sign| sign.rule != Rule::Own(Own::Roles));
    score::judge(text, &mut signs, Channel::Output).score >= ORDER
}
