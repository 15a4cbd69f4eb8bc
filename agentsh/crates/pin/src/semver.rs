//! npm's versions and version ranges.

use std::cmp::Ordering;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    /// Empty for a release.
    pre: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Text(String),
}

/// Alternatives (`||`) of comparators that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range(Vec<Vec<Comparator>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparator {
    operator: Operator,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
}

impl Version {
    pub fn parse(text: &str) -> Option<Self> {
        let partial = Partial::parse(text)?;
        let [Some(major), Some(minor), Some(patch)] = partial.numbers else { return None };
        Some(Self { numbers: [major, minor, patch], pre: partial.pre })
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.pre.cmp(&other.pre),
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Range {
    /// None when `text` is not a range: then it is a tag such as `latest`, which only the registry can resolve.
    pub fn parse(text: &str) -> Option<Self> {
        text.split("||").map(|set| comparators(set.trim())).collect::<Option<Vec<_>>>().map(Self)
    }

    /// A pre-release only satisfies a range that names a pre-release of the same version.
    pub fn matches(&self, version: &Version) -> bool {
        self.0.iter().any(|set| {
            let named = |comparator: &Comparator| {
                !comparator.version.pre.is_empty() && comparator.version.numbers == version.numbers
            };
            set.iter().all(|comparator| comparator.matches(version))
                && (version.pre.is_empty() || set.iter().any(named))
        })
    }
}

impl Comparator {
    fn matches(&self, version: &Version) -> bool {
        let order = version.cmp(&self.version);
        match self.operator {
            Operator::Less => order.is_lt(),
            Operator::LessEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterEqual => order.is_ge(),
            Operator::Equal => order.is_eq(),
        }
    }
}

/// `1`, `1.2`, `1.2.x`, `*`: a version with numbers left open.
struct Partial {
    numbers: [Option<u64>; 3],
    pre: Vec<Part>,
}

impl Partial {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches(['v', '=']);
        let text = text.split_once('+').map_or(text, |(version, _build)| version);
        let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
        let mut numbers = [None; 3];
        let mut open = false;
        for (index, part) in core.split('.').enumerate() {
            let slot = numbers.get_mut(index)?;
            if matches!(part, "x" | "X" | "*") || (part.is_empty() && core.is_empty()) {
                open = true;
            } else if !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            } else if !open {
                *slot = Some(part.parse().ok()?);
            }
        }
        let pre = match pre {
            None => Vec::new(),
            Some(pre) => pre.split('.').map(Part::parse).collect::<Option<_>>()?,
        };
        Some(Self { numbers, pre })
    }

    fn floor(&self) -> Version {
        Version { numbers: self.numbers.map(Option::unwrap_or_default), pre: self.pre.clone() }
    }

    /// The first version after all that keep the numbers up to and including `index`.
    fn first_version_after(&self, index: usize) -> Version {
        let mut numbers = [0; 3];
        for (position, number) in numbers.iter_mut().enumerate().take(index + 1) {
            *number = self.numbers.get(position).copied().flatten().unwrap_or_default();
        }
        if let Some(number) = numbers.get_mut(index) {
            *number = number.saturating_add(1);
        }
        // Lower than every pre-release of that version, so that pre-releases are excluded, too.
        Version { numbers, pre: vec![Part::Number(0)] }
    }

    /// The number of components given.
    fn component_count(&self) -> usize {
        self.numbers.iter().take_while(|number| number.is_some()).count()
    }
}

impl Part {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return None;
        }
        match text.parse() {
            Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Some(Self::Number(number)),
            _ => Some(Self::Text(text.to_owned())),
        }
    }
}

fn comparators(set: &str) -> Option<Vec<Comparator>> {
    if let Some((low, high)) = set.split_once(" - ") {
        let (low, high) = (Partial::parse(low)?, Partial::parse(high)?);
        let mut both = vec![at_least(low.floor())];
        both.extend(up_to(&high));
        return Some(both);
    }
    // Blanks may be between an operator and its version.
    let mut found = Vec::new();
    let mut words = set.split_whitespace().peekable();
    if words.peek().is_none() {
        return Some(Vec::from([at_least(Partial::parse("")?.floor())]));
    }
    while let Some(word) = words.next() {
        let split = word.find(|letter: char| !"<>=^~".contains(letter)).unwrap_or(word.len());
        let (operator, version) = word.split_at(split);
        let version = if version.is_empty() { words.next()? } else { version };
        found.extend(simple(operator, &Partial::parse(version)?)?);
    }
    Some(found)
}

fn simple(operator: &str, partial: &Partial) -> Option<Vec<Comparator>> {
    let floor = partial.floor();
    let given = partial.component_count();
    let below = |version| Comparator { operator: Operator::Less, version };
    Some(match operator {
        "" | "=" if given == 3 => vec![Comparator { operator: Operator::Equal, version: floor }],
        "" | "=" => std::iter::once(at_least(floor)).chain(up_to(partial)).collect(),
        "^" if given == 0 => vec![at_least(floor)],
        "^" => {
            // The leftmost number that is not zero may not change.
            let fixed = partial.numbers.iter().take(given).position(|number| *number != Some(0));
            vec![at_least(floor), below(partial.first_version_after(fixed.unwrap_or(given - 1)))]
        }
        "~" | "~>" if given == 0 => vec![at_least(floor)],
        "~" | "~>" => {
            vec![at_least(floor), below(partial.first_version_after(if given == 1 { 0 } else { 1 }))]
        }
        ">=" => vec![at_least(floor)],
        "<" => vec![below(floor)],
        "<=" if given == 0 => vec![at_least(floor)],
        "<=" => up_to(partial).into_iter().collect(),
        ">" if given == 3 => vec![Comparator { operator: Operator::Greater, version: floor }],
        ">" if given == 0 => vec![below(floor)],
        ">" => vec![at_least(partial.first_version_after(given - 1))],
        _ => return None,
    })
}

fn at_least(version: Version) -> Comparator {
    Comparator { operator: Operator::GreaterEqual, version }
}

/// The upper end of `- 1.2` and `<=1.2`: everything that starts with it.
fn up_to(partial: &Partial) -> Option<Comparator> {
    match partial.component_count() {
        0 => None,
        3 => Some(Comparator { operator: Operator::LessEqual, version: partial.floor() }),
        given => {
            Some(Comparator { operator: Operator::Less, version: partial.first_version_after(given - 1) })
        }
    }
}
