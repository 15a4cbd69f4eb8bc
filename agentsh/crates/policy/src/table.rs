//! Sections whose keys are a table. Each key is one row: its text for the reference, its type, its kind. What one file
//! writes and what is in force have the same type, so that reading, merging and showing follow from the row.

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::describe::Lines;
use crate::keys::{Key, Kind};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::types::RuleRef;

/// A single value; None: not written.
pub type One<T> = Option<Ruled<T>>;

/// Values by names that the user chooses.
pub type Named<T> = BTreeMap<String, Ruled<T>>;

/// A list that is one value. Its place is that of its first entry.
pub type Whole<T> = Vec<Ruled<T>>;

/// A list that layers add to.
#[derive(Clone, Debug, PartialEq)]
pub struct Entries<T> {
    entries: Vec<Ruled<T>>,
    /// Of a list in one file: where it is written, and whether it replaces that of lower layers.
    written: Option<(RuleRef, bool)>,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), written: None }
    }
}

impl<T> Deref for Entries<T> {
    type Target = Vec<Ruled<T>>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl<'e, T> IntoIterator for &'e Entries<T> {
    type Item = &'e Ruled<T>;
    type IntoIter = std::slice::Iter<'e, Ruled<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl<'e, T> IntoIterator for &'e mut Entries<T> {
    type Item = &'e mut Ruled<T>;
    type IntoIter = std::slice::IterMut<'e, Ruled<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter_mut()
    }
}

impl<T> From<Vec<Ruled<T>>> for Entries<T> {
    fn from(entries: Vec<Ruled<T>>) -> Self {
        Self { entries, written: None }
    }
}

impl<T> From<List<T>> for Entries<T> {
    fn from(list: List<T>) -> Self {
        let Some(list) = list else { return Self::default() };
        Self { entries: list.value, written: Some((list.rule, list.replaces)) }
    }
}

impl<T> Entries<T> {
    pub fn push(&mut self, entry: Ruled<T>) {
        self.entries.push(entry);
    }
}

impl<T: Clone> Entries<T> {
    /// Adds those of another list, which replaces nothing.
    pub(crate) fn add(&mut self, other: &Self) {
        self.entries.extend_from_slice(other);
    }

    /// Puts the entries of a project's list, if it wrote one, in their place as far as they are covered, and refuses the
    /// others.
    pub(crate) fn narrow(
        &mut self,
        own: &Self,
        narrowing: &mut Narrowing<'_>,
        covered: impl Fn(&[Ruled<T>], &T) -> bool,
        message: impl Fn(&T) -> String,
    ) {
        self.narrow_within(own, |_| false, narrowing, covered, message);
    }

    /// Like `narrow`, for a server: what its profile may give it (`possible`) is not refused.
    pub(crate) fn narrow_within(
        &mut self,
        own: &Self,
        possible: impl Fn(&T) -> bool,
        narrowing: &mut Narrowing<'_>,
        covered: impl Fn(&[Ruled<T>], &T) -> bool,
        message: impl Fn(&T) -> String,
    ) {
        if !own.is_written() {
            return;
        }
        let (kept, others): (Vec<_>, Vec<_>) = own.iter().cloned().partition(|own| covered(self, &own.value));
        for entry in others.iter().filter(|entry| !possible(&entry.value)) {
            narrowing.refuse(&entry.rule, message(&entry.value));
        }
        self.entries = kept;
    }

    pub(crate) fn is_written(&self) -> bool {
        self.written.is_some()
    }

    /// Whether it replaces the list of lower layers.
    pub(crate) fn replaces(&self) -> bool {
        self.written.as_ref().is_some_and(|(_, replaces)| *replaces)
    }
}

/// A field of a table.
pub(crate) trait Field: Default {
    type Value;

    /// Reads what is there, each value with `value`.
    fn read<'n>(
        reader: &mut Reader<'_>,
        here: Option<Here<'n>>,
        value: impl FnMut(&mut Reader<'_>, &Here<'n>) -> Option<Self::Value>,
    ) -> Self;

    /// Lays it over that of the layers below.
    fn merge(&self, below: &mut Self);

    /// Its values, each with its name if it has one.
    fn values(&self) -> impl Iterator<Item = (&str, &Ruled<Self::Value>)>;

    /// Where it is written.
    fn rules(&self) -> Vec<&RuleRef> {
        self.values().map(|(_, own)| &own.rule).collect()
    }

    /// Adds a line for each value.
    fn describe<S: Into<String>>(&self, key: &str, lines: &mut Lines, show: impl Fn(&Self::Value) -> S) {
        for (name, own) in self.values() {
            let key = if name.is_empty() { key } else { &format!("{key}.{name}") };
            lines.add(key, show(&own.value), &own.rule);
        }
    }
}

impl<T: Clone> Field for One<T> {
    type Value = T;

    fn read<'n>(
        reader: &mut Reader<'_>,
        here: Option<Here<'n>>,
        value: impl FnMut(&mut Reader<'_>, &Here<'n>) -> Option<T>,
    ) -> Self {
        reader.one(here, value)
    }

    fn merge(&self, below: &mut Self) {
        if self.is_some() {
            below.clone_from(self);
        }
    }

    fn values(&self) -> impl Iterator<Item = (&str, &Ruled<T>)> {
        self.iter().map(|own| ("", own))
    }
}

impl<T: Clone> Field for Named<T> {
    type Value = T;

    fn read<'n>(
        reader: &mut Reader<'_>,
        here: Option<Here<'n>>,
        mut value: impl FnMut(&mut Reader<'_>, &Here<'n>) -> Option<T>,
    ) -> Self {
        reader.named(here, |reader, here| reader.one(Some(here), &mut value))
    }

    fn merge(&self, below: &mut Self) {
        below.extend(self.clone());
    }

    fn values(&self) -> impl Iterator<Item = (&str, &Ruled<T>)> {
        self.iter().map(|(name, own)| (name.as_str(), own))
    }
}

impl<T: Clone> Field for Whole<T> {
    type Value = T;

    fn read<'n>(
        reader: &mut Reader<'_>,
        here: Option<Here<'n>>,
        value: impl FnMut(&mut Reader<'_>, &Here<'n>) -> Option<T>,
    ) -> Self {
        reader.list(here, value).map(|list| list.value).unwrap_or_default()
    }

    fn merge(&self, below: &mut Self) {
        if !self.is_empty() {
            below.clone_from(self);
        }
    }

    fn values(&self) -> impl Iterator<Item = (&str, &Ruled<T>)> {
        self.iter().map(|own| ("", own))
    }

    fn rules(&self) -> Vec<&RuleRef> {
        self.iter().take(1).map(|own| &own.rule).collect()
    }
}

impl<T: Clone> Field for Entries<T> {
    type Value = T;

    fn read<'n>(
        reader: &mut Reader<'_>,
        here: Option<Here<'n>>,
        value: impl FnMut(&mut Reader<'_>, &Here<'n>) -> Option<T>,
    ) -> Self {
        reader.adding(here, value).into()
    }

    fn merge(&self, below: &mut Self) {
        if self.replaces() {
            below.entries.clear();
        }
        below.add(self);
    }

    fn values(&self) -> impl Iterator<Item = (&str, &Ruled<T>)> {
        self.iter().map(|own| ("", own))
    }

    fn rules(&self) -> Vec<&RuleRef> {
        self.written.iter().map(|(rule, _)| rule).collect()
    }
}

/// A value that is read and shown by its kind.
pub(crate) trait Value: Sized {
    fn read(reader: &mut Reader<'_>, here: &Here<'_>, kind: &Kind) -> Option<Self>;
    fn show(&self, kind: &Kind) -> String;
}

impl Value for bool {
    fn read(reader: &mut Reader<'_>, here: &Here<'_>, _: &Kind) -> Option<Self> {
        reader.flag(here)
    }

    fn show(&self, _: &Kind) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn read(reader: &mut Reader<'_>, here: &Here<'_>, _: &Kind) -> Option<Self> {
        reader.text(here)
    }

    fn show(&self, _: &Kind) -> String {
        self.clone()
    }
}

/// A number, milliseconds, or thousandths.
impl Value for u64 {
    fn read(reader: &mut Reader<'_>, here: &Here<'_>, kind: &Kind) -> Option<Self> {
        match kind {
            Kind::Duration => reader.milliseconds(here),
            Kind::Share => reader.thousandths(here),
            Kind::Number(low, high) => reader.count(here, *low, *high),
            _ => None,
        }
    }

    fn show(&self, kind: &Kind) -> String {
        match kind {
            Kind::Duration => format!("{self} ms"),
            Kind::Share => share(*self).to_string(),
            _ => self.to_string(),
        }
    }
}

/// Thousandths as a number from 0.0 to 1.0.
#[expect(clippy::cast_precision_loss, reason = "0 to 1000")]
pub(crate) fn share(thousandths: u64) -> f64 {
    thousandths as f64 / 1000.0
}

/// The value that is in force if this is what is written.
pub(crate) fn in_force<T: Clone>(written: &One<T>, default: T) -> T {
    written.as_ref().map_or(default, |own| own.value.clone())
}

/// The first word that means a value.
pub(crate) fn word_for<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

/// Makes values of enums of `words!`.
macro_rules! word_values {
    ($($type:ty),+) => {
        $(impl $crate::table::Value for $type {
            fn read(reader: &mut $crate::reader::Reader<'_>, here: &$crate::reader::Here<'_>, _: &$crate::keys::Kind) -> Option<Self> {
                reader.choice(here, Self::WORDS)
            }

            fn show(&self, _: &$crate::keys::Kind) -> String {
                self.as_str().to_owned()
            }
        })+
    };
}
pub(crate) use word_values;

/// A map with known keys, in one file or in force.
pub(crate) trait Table: Default {
    const TABLE: &'static [Key];

    /// `place` is that of the whole map.
    fn read(reader: &mut Reader<'_>, place: Option<RuleRef>, fields: &Fields<'_>) -> Self;
    fn merge(&self, below: &mut Self);

    /// Where one key is written.
    fn rule_of(&self, key: &str) -> Option<&RuleRef>;

    /// Where its keys are written.
    fn rules(&self) -> Vec<&RuleRef>;

    /// Adds a line for each of these keys; `name` is the whole table's.
    fn describe_keys(&self, keys: &[&str], name: &str, lines: &mut Lines);

    fn describe(&self, name: &str, lines: &mut Lines) {
        let keys: Vec<&str> = Self::TABLE.iter().map(|key| key.name).collect();
        self.describe_keys(&keys, name, lines);
    }

    fn read_at(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Self {
        let Some(here) = here else { return Self::default() };
        let Some(fields) = reader.map(&here, Self::TABLE) else { return Self::default() };
        Self::read(reader, Some(reader.rule(&here)), &fields)
    }
}

/// A table in another one.
impl<T: Table> Field for T {
    type Value = Self;

    fn read<'n>(
        reader: &mut Reader<'_>,
        here: Option<Here<'n>>,
        _: impl FnMut(&mut Reader<'_>, &Here<'n>) -> Option<Self>,
    ) -> Self {
        Self::read_at(reader, here)
    }

    fn merge(&self, below: &mut Self) {
        Table::merge(self, below);
    }

    fn values(&self) -> impl Iterator<Item = (&str, &Ruled<Self>)> {
        std::iter::empty()
    }

    fn rules(&self) -> Vec<&RuleRef> {
        Table::rules(self)
    }

    fn describe<S: Into<String>>(&self, key: &str, lines: &mut Lines, _: impl Fn(&Self) -> S) {
        Table::describe(self, key, lines);
    }
}

/// Shown key by key.
impl<T: Table> Value for T {
    fn read(reader: &mut Reader<'_>, here: &Here<'_>, _: &Kind) -> Option<Self> {
        Some(Self::read_at(reader, Some(here.clone())))
    }

    fn show(&self, _: &Kind) -> String {
        String::new()
    }
}

/// A struct that is a [`Table`]: above each row the text that the reference has about the key, then its name, its type, its
/// kind, and those of the other fields of [`Key`] that differ from the usual. `=> read` and `=> show` are functions for
/// values that are not read or shown by their kind alone, `=> words` their words; `=> whole` reads a field that is not
/// read value by value. `with rule`: a field has the place of the whole map.
macro_rules! table {
    (
        $(#[$meta:meta])* struct $name:ident $(with $rule:ident)?;
        $($(#[doc = $about:literal])* $visible:vis $key:ident: $type:ty = $kind:expr $(, $option:ident: $value:expr)*
            $(=> read $read:expr)? $(=> show $show:expr)? $(=> words $words:expr)?
            $(=> whole $whole:expr)?;)+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $(/// Where the section is written.
            pub $rule: Option<$crate::types::RuleRef>,)?
            $($(#[doc = $about])* $visible $key: $type,)+
        }

        impl $crate::table::Table for $name {
            const TABLE: &'static [$crate::keys::Key] = &[$($crate::keys::Key {
                name: stringify!($key),
                kind: $kind,
                about: agentsh_base::without_margin(concat!($($about),*)),
                $($option: $value,)*
                ..$crate::keys::KEY
            }),+];

            fn read(
                reader: &mut $crate::reader::Reader<'_>,
                _place: Option<$crate::types::RuleRef>,
                fields: &$crate::reader::Fields<'_>,
            ) -> Self {
                Self {
                    $($rule: _place,)?
                    $($key: {
                        let here = reader.spelled(fields, Self::TABLE, stringify!($key));
                        $crate::table::given!(
                            $crate::table::Field::read(reader, here, $crate::table::given!(
                                |reader, here| $crate::table::Value::read(reader, here, &$kind);
                                $($read)? $(|reader, here| reader.choice(here, &$words))?
                            ));
                            $($whole(reader, here))?
                        )
                    },)+
                }
            }

            fn merge(&self, below: &mut Self) {
                $(if self.$rule.is_some() {
                    below.$rule.clone_from(&self.$rule);
                })?
                $($crate::table::Field::merge(&self.$key, &mut below.$key);)+
            }

            fn rule_of(&self, key: &str) -> Option<&$crate::types::RuleRef> {
                match key {
                    $(stringify!($key) => $crate::table::Field::rules(&self.$key).first().copied(),)+
                    _ => None,
                }
            }

            fn rules(&self) -> Vec<&$crate::types::RuleRef> {
                let mut rules = Vec::new();
                $(rules.extend($crate::table::Field::rules(&self.$key));)+
                rules
            }

            fn describe_keys(&self, keys: &[&str], name: &str, lines: &mut $crate::describe::Lines) {
                for key in keys {
                    let whole = format!("{name}.{key}");
                    match *key {
                        $(stringify!($key) => $crate::table::Field::describe(&self.$key, &whole, lines,
                            $crate::table::given!(
                                |value| $crate::table::Value::show(value, &$kind);
                                $($show)? $(|value| $crate::table::word_for(&$words, value))?
                            )),)+
                        _ => {}
                    }
                }
            }
        }
    };
}
pub(crate) use table;

/// The second expression if there is one, else the first.
macro_rules! given {
    ($usual:expr;) => {
        $usual
    };
    ($usual:expr; $given:expr) => {
        $given
    };
}
pub(crate) use given;

/// Functions of a section that is a table at one place of a policy, or, in brackets, whose keys are fields of the policy.
macro_rules! in_table {
    ($policy:ident [$($field:ident),+]: read merge describe) => {
        const KEYS: &'static [$crate::keys::Key] = <Self as $crate::table::Table>::TABLE;

        fn read(reader: &mut $crate::reader::Reader<'_>, fields: &$crate::reader::Fields<'_>) -> Self {
            $crate::table::Table::read(reader, None, fields)
        }

        fn merge(&self, below: &mut $policy) {
            $($crate::table::Field::merge(&self.$field, &mut below.$field);)+
        }

        fn describe(policy: &$policy, name: &str, lines: &mut $crate::describe::Lines) {
            $crate::table::Table::describe(&Self { $($field: policy.$field.clone()),+ }, name, lines);
        }
    };
    ($policy:ident $place:tt: $($function:ident)+) => {
        $($crate::table::in_table! { @$function $policy $place })+
    };
    (@read $policy:ident ($($field:tt)+)) => {
        fn read(reader: &mut $crate::reader::Reader<'_>, fields: &$crate::reader::Fields<'_>) -> Self {
            $crate::table::Table::read_at(reader, fields.find(Self::KEYS[0].name))
        }
    };
    (@merge $policy:ident ($($field:tt)+)) => {
        fn merge(&self, below: &mut $policy) {
            $crate::table::Table::merge(self, &mut below.$($field)+);
        }
    };
    (@describe $policy:ident ($($field:tt)+)) => {
        fn describe(policy: &$policy, name: &str, lines: &mut $crate::describe::Lines) {
            $crate::table::Table::describe(&policy.$($field)+, &$crate::reader::join(name, Self::KEYS[0].name), lines);
        }
    };
}
pub(crate) use in_table;
