//! The table of keys: used by the reader, the reference (`docs/policy.md`) and the schema for editors.

/// One key of a map.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    /// Other spellings of the same key.
    pub also: &'static [&'static str],
    pub kind: Kind,
    /// The default if no layer writes the key, in words.
    pub default: &'static str,
    /// How a layer above changes it, where that does not follow from its kind.
    pub merge: &'static str,
    /// The meaning in a sentence.
    pub about: &'static str,
    /// A value as it is written after the key, in one line of YAML.
    pub example: &'static str,
}

/// The kind of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Flag,
    /// From the first to the second.
    Number(u64, u64),
    /// A number with a fraction, from 0 to 1.
    Share,
    Text,
    /// Such as `30s`.
    Duration,
    /// Such as `512MiB`.
    Size,
    /// Such as `200%`.
    Percent,
    Word(&'static [&'static str]),
    /// A list that a layer above adds to, or replaces with `{replace: [...]}`.
    List(&'static Kind),
    /// A list that is one value.
    Whole(&'static Kind),
    Map(&'static [Key]),
    /// A map whose keys are names that the user chooses.
    Names(&'static Kind),
    /// A process: every key of an agent's or a server's sandbox, and these.
    Process(&'static [Key]),
    /// A process, and the keys of the agent alone.
    Agent,
    /// All keys of `sandbox.mcp`.
    Mcp,
    Either(&'static [Kind]),
}

/// For `..KEY`: what most keys have in common.
pub const KEY: Key =
    Key { name: "", also: &[], kind: Kind::Text, default: "", merge: "", about: "", example: "" };

/// A table of keys: above each the text that the reference has about it, then its name, its kind, and those of the other
/// fields that differ from [`KEY`].
macro_rules! keys {
    ($($(#[doc = $about:literal])* $name:literal: $kind:expr $(, $field:ident: $value:expr)*;)*) => {
        &[$($crate::keys::Key {
            name: $name,
            kind: $kind,
            about: agentsh_base::without_margin(concat!($($about),*)),
            $($field: $value,)*
            ..$crate::keys::KEY
        }),*]
    };
}
pub(crate) use keys;

impl Key {
    /// The ways to write it.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.also.iter().copied())
    }

    /// How a layer above changes it.
    #[must_use]
    pub fn merging(&self) -> &'static str {
        match self.kind {
            _ if !self.merge.is_empty() => self.merge,
            Kind::List(_) => "adds, unless written as `{replace: [...]}`",
            Kind::Map(_) | Kind::Names(_) | Kind::Process(_) | Kind::Agent | Kind::Mcp => "merged key by key",
            _ => "the highest layer that writes it decides",
        }
    }
}

impl Kind {
    /// The keys of a map of this kind; none for everything else.
    #[must_use]
    pub fn keys(&self) -> Vec<&'static Key> {
        match *self {
            Self::Map(keys) => keys.iter().collect(),
            Self::Process(keys) => {
                crate::sections::RawProcess::keys().into_iter().chain(keys.iter()).collect()
            }
            Self::Agent => {
                let own = crate::sections::RawAgent::keys();
                crate::sections::RawProcess::keys().into_iter().chain(own).collect()
            }
            Self::Mcp => crate::sections::RawMcp::keys(),
            _ => Vec::new(),
        }
    }

    /// For people: `list of text`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Number(low, high) if low == high => format!("the number {low}"),
            Self::Number(low, high) => format!("number, {low} to {high}"),
            Self::Share => "number, 0.0 to 1.0".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Duration => "duration, such as `30s`, `10m`, `1h30m`".to_owned(),
            Self::Size => "size, such as `512MiB`, `4GiB`".to_owned(),
            Self::Percent => "share of one processor, such as `200%`".to_owned(),
            Self::Word(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                quoted.join(", ")
            }
            Self::List(item) | Self::Whole(item) => format!("list of {}", item.describe()),
            Self::Map(_) | Self::Process(_) | Self::Agent | Self::Mcp => "map".to_owned(),
            Self::Names(value) => format!("map of names to {}", value.describe()),
            Self::Either(kinds) => kinds.iter().map(Self::describe).collect::<Vec<_>>().join(", or "),
        }
    }
}
