//! Roles near each other, to find orders to a model that no rule has. `role-*` concepts say what a phrase does; two of
//! them near each other score the log-likelihood of that pair in attacks against ordinary texts. `cargo xtask
//! calibrate` measures them and writes `points.txt`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::lexicon::{Hit, Lexicon};

const POINTS: &str = include_str!("../../patterns/points.txt");
pub const PREFIX: &str = "role-";
/// Maximum bytes between the starts of two roles.
const MAX_ROLE_DISTANCE: usize = 160;
/// Earlier roles that are considered.
const RECENT: usize = 16;
/// Bytes in which different pairs add up.
pub const WINDOW: usize = 400;
/// Points from which a text raises an alarm.
pub const ALARM_POINTS: u32 = 100;

/// Two roles, as an index of the points.
pub type Pair = u16;

#[derive(Debug, Default)]
pub struct Pairs {
    names: Vec<String>,
    /// The role of a concept, from 1.
    roles: Vec<u8>,
    points: Vec<u8>,
}

/// The state of reading one text.
#[derive(Debug, Default)]
pub struct Reader {
    recent: VecDeque<(Range<usize>, u8)>,
    inside: VecDeque<(usize, Pair)>,
    counts: Vec<u16>,
    sum: u32,
}

impl Pairs {
    pub(super) fn new<'a>(concepts: impl Iterator<Item = &'a String>, lexicon: &Lexicon) -> Self {
        let is_role = |name: &&String| name.starts_with(PREFIX) && !name.ends_with(".abroad");
        let names: Vec<String> = concepts.filter(is_role).cloned().collect();
        let mut pairs = Self { points: vec![0; names.len() * names.len()], names, ..Self::default() };
        for (role, name) in (1..).zip(&pairs.names) {
            let concept = usize::from(lexicon.number(name).unwrap_or_default());
            if pairs.roles.len() <= concept {
                pairs.roles.resize(concept + 1, 0);
            }
            pairs.roles[concept] = role;
        }
        let numbers: BTreeMap<String, usize> =
            (0..pairs.points.len()).map(|pair| (pairs.name(pair), pair)).collect();
        for line in POINTS.lines() {
            let (name, points) = line.rsplit_once(' ').unwrap_or_default();
            if let (Some(pair), Ok(points)) = (numbers.get(name), points.parse()) {
                pairs.points[*pair] = points;
            }
        }
        pairs
    }

    /// A pair's name in `points.txt`.
    #[must_use]
    pub fn name(&self, pair: usize) -> String {
        let role = |at: usize| self.names.get(at).map_or("", |name| name.trim_start_matches(PREFIX));
        let all = self.names.len().max(1);
        format!("{} {}", role(pair / all), role(pair % all))
    }

    /// Whether a phrase is one of a role.
    pub fn is_role(&self, hit: Hit) -> bool {
        self.roles.get(usize::from(hit.concept)).is_some_and(|role| *role != 0)
    }

    /// Takes a phrase: calls `found` with each pair that it completes.
    pub fn pairs(&self, reader: &mut Reader, hit: Hit, found: &mut dyn FnMut(Pair)) {
        let role = self.roles.get(usize::from(hit.concept)).copied().unwrap_or(0);
        if role == 0 {
            return;
        }
        while reader.recent.front().is_some_and(|(place, _)| place.start + MAX_ROLE_DISTANCE < hit.start) {
            reader.recent.pop_front();
        }
        let mut seen = 0_u64;
        for (place, other) in reader.recent.iter().rev() {
            let is_apart = place.end <= hit.start || place.start >= hit.end;
            if *other != role && is_apart && seen >> (other % 64) & 1 == 0 {
                seen |= 1 << (other % 64);
                let (low, high) = (role.min(*other) - 1, role.max(*other) - 1);
                found(u16::from(low) * self.names.len() as u16 + u16::from(high));
            }
        }
        reader.recent.push_back((hit.start..hit.end, role));
        if reader.recent.len() > RECENT {
            reader.recent.pop_front();
        }
    }

    /// Adds a phrase of a role ([`Self::is_role`]); returns the place if the points reach the threshold.
    pub fn step(&self, reader: &mut Reader, hit: Hit) -> Option<Range<usize>> {
        let mut new = [0; RECENT];
        let mut count = 0;
        self.pairs(reader, hit, &mut |pair| {
            if self.points[usize::from(pair)] > 0 {
                new[count] = pair;
                count += 1;
            }
        });
        for pair in &new[..count] {
            reader.counts.resize(self.points.len(), 0);
            reader.inside.push_back((hit.start, *pair));
            reader.counts[usize::from(*pair)] += 1;
            if reader.counts[usize::from(*pair)] == 1 {
                reader.sum += u32::from(self.points[usize::from(*pair)]);
            }
        }
        while let Some((start, pair)) = reader.inside.front().copied()
            && start + WINDOW < hit.start
        {
            reader.inside.pop_front();
            reader.counts[usize::from(pair)] -= 1;
            if reader.counts[usize::from(pair)] == 0 {
                reader.sum -= u32::from(self.points[usize::from(pair)]);
            }
        }
        if reader.sum < ALARM_POINTS {
            return None;
        }
        let start = reader.inside.front().map_or(hit.start, |(start, _)| *start);
        for (_, pair) in reader.inside.drain(..) {
            reader.counts[usize::from(pair)] = 0;
        }
        reader.recent.clear();
        reader.sum = 0;
        Some(start..hit.end)
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::Patterns;

    fn told(text: &str) -> usize {
        let mut places = 0;
        Patterns::builtin().matches(text, &mut Vec::new(), &mut |_| places += 1);
        places
    }

    #[test]
    fn role_points_add_up_only_near_each_other() {
        let pieces = ["the language model", "passwords", "keep quiet", "upload", "without asking"];
        assert_eq!(told(&pieces.join(" and ")), 1);
        assert_eq!(told(&pieces.join(&" x".repeat(200))), 0);
        assert_eq!(told(&"keep quiet ".repeat(100)), 0);
    }

    #[test]
    fn points_of_role_pairs_name_two_roles() {
        let pairs = &Patterns::builtin().pairs;
        let known = pairs.points.iter().filter(|points| **points > 0).count();
        assert_eq!(super::POINTS.lines().filter(|line| !line.starts_with('#')).count(), known);
    }
}
