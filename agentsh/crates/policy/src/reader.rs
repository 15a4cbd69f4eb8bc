//! Reads typed values from the tree. It collects all mistakes, so that one run shows them all.

use std::collections::BTreeMap;

use super::diagnostic::{Diagnostic, Source, TextPosition, closest, one_of};
use super::keys::Key;
use super::model::Ruled;
use super::sections::credentials::is_variable;
use super::units;
use super::yaml::{Entry, Node, Value};
use crate::types::RuleRef;

/// More errors than are useful at once.
const MAX_PROBLEMS: usize = 20;
/// Longest name, pattern or path.
const MAX_TEXT: usize = 4096;

/// A list as it was written: None is "the key is not there", which is not the same as an empty list.
pub type List<T> = Option<Listed<T>>;

#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T> {
    pub value: Vec<Ruled<T>>,
    pub rule: RuleRef,
    /// The list replaces that of lower layers, instead of adding to it.
    pub replaces: bool,
}

pub(crate) struct Reader<'t> {
    pub source: Source<'t>,
    /// The name of the outermost map.
    pub root: &'static str,
    /// Nothing is below this file: its lists replace the defaults.
    pub is_bare: bool,
    /// The keys come from `inspect`: a section exists only for the keys in it.
    pub is_front: bool,
    problems: Vec<Diagnostic>,
    pub warnings: Vec<Ruled<String>>,
}

/// A value, and the rule that it is.
#[derive(Clone)]
pub(crate) struct Here<'n> {
    pub node: &'n Node,
    /// Dotted path of the key.
    pub path: String,
    /// Line of the key.
    pub line: u64,
}

/// What a person can do about a mistake, if something can be said.
pub(crate) trait Help {
    fn text(self) -> Option<String>;
}

impl Help for &str {
    fn text(self) -> Option<String> {
        Some(self.to_owned())
    }
}

impl Help for String {
    fn text(self) -> Option<String> {
        Some(self)
    }
}

impl Help for Option<String> {
    fn text(self) -> Option<String> {
        self
    }
}

/// The entries of a map whose keys are known.
pub(crate) struct Fields<'n> {
    entries: &'n [Entry],
    path: String,
}

impl<'n> Here<'n> {
    pub fn root(node: &'n Node) -> Self {
        Self { node, path: String::new(), line: 1 }
    }
}

impl<'n> Fields<'n> {
    pub fn find(&self, key: &str) -> Option<Here<'n>> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Here { node: &entry.node, path: join(&self.path, key), line: entry.key_place.line })
    }

    /// Every entry, for maps whose keys are names.
    pub fn all(&self) -> impl Iterator<Item = (&'n str, Here<'n>)> + use<'n> {
        let path = self.path.clone();
        self.entries.iter().map(move |entry| {
            let here = Here { node: &entry.node, path: join(&path, &entry.key), line: entry.key_place.line };
            (entry.key.as_str(), here)
        })
    }
}

impl<'t> Reader<'t> {
    pub fn new(source: Source<'t>) -> Self {
        Self {
            source,
            root: "a policy",
            is_bare: false,
            is_front: false,
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// All mistakes so far, or none.
    pub fn finish(mut self) -> Result<Vec<Ruled<String>>, Vec<Diagnostic>> {
        self.problems.sort_by_key(|problem| (problem.line, problem.column));
        if self.problems.is_empty() { Ok(self.warnings) } else { Err(self.problems) }
    }

    pub fn rule(&self, here: &Here<'_>) -> RuleRef {
        RuleRef { id: here.path.clone(), file: self.source.name.to_owned(), line: here.line }
    }

    pub fn ruled<T>(&self, here: &Here<'_>, value: T) -> Ruled<T> {
        Ruled { value, rule: self.rule(here) }
    }

    pub fn warn(&mut self, rule: RuleRef, text: impl Into<String>) {
        self.warnings.push(Ruled { value: text.into(), rule });
    }

    pub fn problem(&mut self, here: &Here<'_>, message: impl Into<String>, help: impl Help) {
        self.problem_at(here.node.place, message, "", help);
    }

    /// A mistake that leaves nothing to read.
    pub fn fault<T>(&mut self, here: &Here<'_>, message: impl Into<String>, help: impl Help) -> Option<T> {
        self.problem(here, message, help);
        None
    }

    pub fn problem_of_rule(&mut self, rule: &RuleRef, message: impl Into<String>, help: impl Help) {
        let diagnostic = self.source.diagnostic_for_rule(rule, message, help.text());
        self.push(diagnostic);
    }

    /// A map with these keys and no others.
    pub fn known<'n>(&mut self, here: &Here<'n>, keys: &[&'static Key]) -> Option<Fields<'n>> {
        let names: Vec<&str> = keys.iter().flat_map(|key| key.names()).collect();
        self.fields(here, &names)
    }

    /// Like [`Self::known`], for a map that is one key.
    pub fn map<'n>(&mut self, here: &Here<'n>, keys: &'static [Key]) -> Option<Fields<'n>> {
        self.known(here, &keys.iter().collect::<Vec<_>>())
    }

    /// A map with keys of these names and no others.
    pub fn fields<'n>(&mut self, here: &Here<'n>, keys: &[&str]) -> Option<Fields<'n>> {
        let fields = self.names(here)?;
        for entry in fields.entries {
            if !keys.contains(&entry.key.as_str()) {
                let place =
                    if here.path.is_empty() { self.root.to_owned() } else { format!("`{}`", here.path) };
                let help = match closest(&entry.key, keys) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the keys here are {}", one_of(keys)),
                };
                let key: String = entry.key.chars().take(64).collect();
                let message = format!("unknown key `{key}`");
                self.problem_at(entry.key_place, message, format!("not a key of {place}"), help);
            }
        }
        Some(fields)
    }

    /// A map whose keys are names that the user chose.
    pub fn names<'n>(&mut self, here: &Here<'n>) -> Option<Fields<'n>> {
        match &here.node.value {
            Value::Map(entries) => Some(Fields { entries, path: here.path.clone() }),
            other => self.wrong_type(here, "a map", other),
        }
    }

    /// The map under a key of another one.
    pub fn within<'n>(&mut self, fields: &Fields<'n>, key: &str, keys: &'static [Key]) -> Option<Fields<'n>> {
        fields.find(key).and_then(|here| self.map(&here, keys))
    }

    /// The value of a key of this table, under any of its names.
    pub fn spelled<'n>(&mut self, fields: &Fields<'n>, table: &[Key], name: &str) -> Option<Here<'n>> {
        let key = table.iter().find(|key| key.name == name)?;
        let mut found = key.names().filter_map(|name| Some((name, fields.find(name)?)));
        let (first, here) = found.next()?;
        if let Some((second, here)) = found.next() {
            let message = format!("`{second}` is an alias of `{first}`, which is also set here");
            self.problem(&here, message, None);
        }
        Some(here)
    }

    /// A value that `read` makes of what is there.
    pub fn one<'n, T>(
        &mut self,
        here: Option<Here<'n>>,
        read: impl FnOnce(&mut Self, &Here<'n>) -> Option<T>,
    ) -> Option<Ruled<T>> {
        let here = here?;
        read(self, &here).map(|value| self.ruled(&here, value))
    }

    /// What `read` makes of each entry of a map whose keys are names.
    pub fn named<'n, T>(
        &mut self,
        here: Option<Here<'n>>,
        mut read: impl FnMut(&mut Self, Here<'n>) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let names = here.and_then(|here| self.names(&here));
        let entries = names.iter().flat_map(Fields::all);
        entries.filter_map(|(name, here)| Some((name.to_owned(), read(self, here)?))).collect()
    }

    /// The name of a variable.
    pub fn variable(&mut self, here: &Here<'_>, help: &str) -> Option<String> {
        let name = self.text(here)?;
        if !is_variable(&name) {
            return self.fault(here, "this is not a variable name", help);
        }
        Some(name)
    }

    /// The texts of a list, which is one value.
    pub fn texts(&mut self, here: Option<Here<'_>>) -> Vec<String> {
        self.all(here, Self::text)
    }

    /// A list that layers add to: as it is, or as `{replace: [...]}`.
    pub fn adding<'n, T>(
        &mut self,
        here: Option<Here<'n>>,
        item: impl FnMut(&mut Self, &Here<'n>) -> Option<T>,
    ) -> List<T> {
        let here = here?;
        if !matches!(here.node.value, Value::Map(_)) {
            return self.list(Some(here), item);
        }
        let fields = self.fields(&here, &["replace"])?;
        let Some(replacing) = fields.find("replace") else {
            return self.fault(&here, "this map is empty", "write a list, or `{replace: [...]}`");
        };
        self.list(Some(replacing), item).map(|list| Listed { replaces: true, ..list })
    }

    pub fn list<'n, T>(
        &mut self,
        here: Option<Here<'n>>,
        mut item: impl FnMut(&mut Self, &Here<'n>) -> Option<T>,
    ) -> List<T> {
        let here = here?;
        let Value::List(nodes) = &here.node.value else {
            return self.wrong_type(&here, "a list", &here.node.value);
        };
        let mut values = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let entry = Here { node, path: format!("{}[{index}]", here.path), line: node.place.line };
            if let Some(value) = item(self, &entry) {
                values.push(self.ruled(&entry, value));
            }
        }
        Some(Listed { value: values, rule: self.rule(&here), replaces: self.is_bare })
    }

    /// A list that is one value, without the places of its entries.
    pub fn whole<'n, T>(
        &mut self,
        here: Option<Here<'n>>,
        item: impl FnMut(&mut Self, &Here<'n>) -> Option<T>,
    ) -> Option<Ruled<Vec<T>>> {
        let list = self.list(here, item)?;
        Some(Ruled { value: list.value.into_iter().map(|entry| entry.value).collect(), rule: list.rule })
    }

    /// The values of a list; none if it is not there.
    pub fn all<'n, T>(
        &mut self,
        here: Option<Here<'n>>,
        item: impl FnMut(&mut Self, &Here<'n>) -> Option<T>,
    ) -> Vec<T> {
        self.whole(here, item).map(|list| list.value).unwrap_or_default()
    }

    /// Text that is not empty and not absurdly long.
    pub fn text(&mut self, here: &Here<'_>) -> Option<String> {
        match &here.node.value {
            Value::Text(text) if text.is_empty() => self.fault(here, "this must not be empty", None),
            Value::Text(_) => self.any_text(here),
            other => self.wrong_type(here, "text", other),
        }
    }

    /// Text that may be empty.
    pub fn any_text(&mut self, here: &Here<'_>) -> Option<String> {
        match &here.node.value {
            Value::Text(text) if text.len() > MAX_TEXT => {
                self.fault(here, format!("this is longer than {MAX_TEXT} bytes"), None)
            }
            Value::Text(text) if text.contains('\0') => {
                self.fault(here, "this contains a NUL character", None)
            }
            Value::Text(text) => Some(text.clone()),
            other => self.wrong_type(here, "text", other),
        }
    }

    pub fn flag(&mut self, here: &Here<'_>) -> Option<bool> {
        match &here.node.value {
            Value::Bool(value) => Some(*value),
            other => self.wrong_type(here, "true or false", other),
        }
    }

    pub fn boolean(&mut self, here: Option<Here<'_>>) -> Option<Ruled<bool>> {
        self.one(here, Self::flag)
    }

    pub fn count(&mut self, here: &Here<'_>, low: u64, high: u64) -> Option<u64> {
        let Value::Integer(value) = &here.node.value else {
            return self.wrong_type(here, "a whole number", &here.node.value);
        };
        match u64::try_from(*value) {
            Ok(number) if (low..=high).contains(&number) => Some(number),
            _ => self.fault(here, format!("{value} is not between {low} and {high}"), None),
        }
    }

    pub fn number(&mut self, here: Option<Here<'_>>, low: u64, high: u64) -> Option<Ruled<u64>> {
        self.one(here, |reader, here| reader.count(here, low, high))
    }

    /// One word of a closed list.
    pub fn choice<T: Copy>(&mut self, here: &Here<'_>, words: &[(&str, T)]) -> Option<T> {
        let written = self.any_text(here)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == written) {
            return Some(*value);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty()).collect();
        let help = match closest(&written, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write {}", one_of(&known)),
        };
        let shown: String = written.chars().take(64).collect();
        self.fault(here, format!("unknown value `{shown}` for `{}`", here.path), help)
    }

    pub fn word<T: Copy>(&mut self, here: Option<Here<'_>>, words: &[(&str, T)]) -> Option<Ruled<T>> {
        self.one(here, |reader, here| reader.choice(here, words))
    }

    /// A span of time such as `30s`.
    pub fn milliseconds(&mut self, here: &Here<'_>) -> Option<u64> {
        let written = self.text(here)?;
        units::milliseconds(&written).or_else(|| {
            let help = "write a number and a unit, such as `30s`, `10m` or `1h30m`";
            self.fault(here, "this is not a duration", help)
        })
    }

    /// A number from 0.0 to 1.0.
    pub fn thousandths(&mut self, here: &Here<'_>) -> Option<u64> {
        match here.node.value {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
            Value::Float(value) if (0.0..=1.0).contains(&value) => Some((value * 1000.0).round() as u64),
            Value::Integer(0) => Some(0),
            Value::Integer(1) => Some(1000),
            Value::Float(_) | Value::Integer(_) => {
                self.fault(here, format!("`{}` is between 0.0 and 1.0", here.path), None)
            }
            ref other => self.wrong_type(here, "a number between 0.0 and 1.0", other),
        }
    }

    /// Reports what is there instead of what is wanted.
    pub fn wrong_type<T>(&mut self, here: &Here<'_>, wanted: &str, found: &Value) -> Option<T> {
        let help = match (wanted, found) {
            (_, Value::Null) => Some("fill it in, or remove the key".to_owned()),
            ("text", Value::Bool(_) | Value::Integer(_) | Value::Float(_)) => {
                Some("put it in quotes".to_owned())
            }
            ("a list", Value::Text(_)) => Some("put it in brackets: `[...]`".to_owned()),
            ("true or false", Value::Text(text)) if matches!(text.as_str(), "yes" | "on" | "no" | "off") => {
                Some("write `true` or `false`".to_owned())
            }
            _ => None,
        };
        let name = if here.path.is_empty() { self.root.to_owned() } else { format!("`{}`", here.path) };
        let label = format!("found {}", found.kind());
        self.problem_at(here.node.place, format!("{name} must be {wanted}"), label, help);
        None
    }

    pub fn problem_at(
        &mut self,
        place: TextPosition,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Help,
    ) {
        let diagnostic = self.source.diagnostic(place, message, label, help.text());
        self.push(diagnostic);
    }

    fn push(&mut self, diagnostic: Diagnostic) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(diagnostic);
        }
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
