//! A section of a policy. One file below `sections/` has everything about it: its keys, and how they are read, merged,
//! narrowed by a project, and shown.

use std::collections::BTreeMap;

use crate::describe::Lines;
use crate::keys::Key;
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::types::RuleRef;

/// One file's content for one section of `P`.
pub(crate) trait Section<P>: Default {
    /// Its keys in the map that it shares with the other sections of `P`.
    const KEYS: &'static [Key];

    /// Reads its keys from the map. A mistake is reported to the reader, and reading continues.
    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self;

    /// Merges the values of this file over those of the layers below. Values that it does not name stay.
    fn merge(&self, below: &mut P);

    /// Like `merge`, for a project's file: it can restrict, and granting is an error.
    fn narrow(&self, base: &mut P, narrowing: &mut Narrowing<'_>);

    /// Adds a line for everything that is in force.
    fn describe(policy: &P, name: &str, lines: &mut Lines);

    /// Warns about entries without effect. Called when all layers are merged.
    fn warn(_policy: &P, _warnings: &mut Vec<Ruled<String>>) {}
}

/// Lays a single value over the one below.
pub fn merge_key<T: Clone>(value: &Option<Ruled<T>>, below: &mut Option<Ruled<T>>) {
    if value.is_some() {
        below.clone_from(value);
    }
}

/// Puts a value in place of the one in force, and notes where it was written.
pub fn set_key<T: Clone>(
    key: &'static str,
    value: &Option<Ruled<T>>,
    in_force: &mut T,
    written: &mut BTreeMap<&'static str, RuleRef>,
) {
    if let Some(value) = value {
        in_force.clone_from(&value.value);
        written.insert(key, value.rule.clone());
    }
}

/// [`merge_key`] for fields that two structs have.
macro_rules! merge_keys {
    ($own:expr => $below:expr; $($key:ident),+) => {
        $($crate::section::merge_key(&$own.$key, &mut $below.$key);)+
    };
}
pub(crate) use merge_keys;

/// Where each of these fields was written, for `Narrowing::refuse_all`.
macro_rules! rules_of {
    ($own:expr; $($key:ident),+) => {
        [$($crate::table::Field::rules(&$own.$key)),+].into_iter().flatten()
    };
}
pub(crate) use rules_of;

/// Makes of a list of sections what a file writes about them (`$raw`) and what is in force (`$policy`).
///
/// Each section is one line: its name, its type, and the fields that it decides about.
macro_rules! sections {
    (
        $(#[$raw_meta:meta])* $raw:ident;
        $(#[$meta:meta])* $policy:ident { $($(#[$kept_meta:meta])* $kept:ident: $kept_type:ty,)* }
        $($section:ident: $section_type:ty => { $($(#[$field_meta:meta])* $field:ident: $field_type:ty),* $(,)? })*
    ) => {
        $(#[$raw_meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $raw {
            $(pub $section: $section_type,)*
        }

        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $policy {
            $($(#[$kept_meta])* pub $kept: $kept_type,)*
            $($($(#[$field_meta])* pub $field: $field_type,)*)*
        }

        impl $raw {
            /// The keys of each section.
            pub(crate) fn sections() -> Vec<&'static [$crate::keys::Key]> {
                vec![$(<$section_type as $crate::section::Section<$policy>>::KEYS,)*]
            }

            pub(crate) fn keys() -> Vec<&'static $crate::keys::Key> {
                Self::sections().into_iter().flatten().collect()
            }

            pub(crate) fn read(reader: &mut $crate::reader::Reader<'_>, fields: &$crate::reader::Fields<'_>) -> Self {
                Self { $($section: <$section_type as $crate::section::Section<$policy>>::read(reader, fields),)* }
            }

            pub(crate) fn merge(&self, below: &mut $policy) {
                $($crate::section::Section::<$policy>::merge(&self.$section, below);)*
            }

            /// Like `merge`, except that locked sections are narrowed. A change of a locked section by another section is an
            /// error.
            pub(crate) fn merge_within(
                &self,
                below: &mut $policy,
                place: &str,
                locks: &$crate::locks::Locks,
                narrowing: &mut $crate::narrow::Narrowing<'_>,
            ) {
                $({
                    let keys = <$section_type as $crate::section::Section<$policy>>::KEYS;
                    if locks.of(place, keys).is_some() {
                        $crate::section::Section::<$policy>::narrow(&self.$section, below, narrowing);
                    } else {
                        let before = below.clone();
                        $crate::section::Section::<$policy>::merge(&self.$section, below);
                        if let Some(lock) = below.changed(&before, place, locks) {
                            *below = before;
                            narrowing.refuse_section(place, keys, &lock);
                        }
                    }
                })*
            }

            pub(crate) fn narrow(&self, base: &mut $policy, narrowing: &mut $crate::narrow::Narrowing<'_>) {
                $($crate::section::Section::<$policy>::narrow(&self.$section, base, narrowing);)*
            }
        }

        impl $policy {
            pub(crate) fn describe(&self, name: &str, lines: &mut $crate::describe::Lines) {
                $(<$section_type as $crate::section::Section<$policy>>::describe(self, name, lines);)*
            }

            /// The lock of a section that is not as it was before.
            fn changed(&self, before: &Self, place: &str, locks: &$crate::locks::Locks) -> Option<String> {
                $(
                    let keys = <$section_type as $crate::section::Section<$policy>>::KEYS;
                    if let Some(lock) = locks.of(place, keys)
                        && (false $(|| self.$field != before.$field)*)
                    {
                        return Some(lock.value.clone());
                    }
                )*
                None
            }

            pub(crate) fn warn(&self, warnings: &mut Vec<$crate::model::Ruled<String>>) {
                $(<$section_type as $crate::section::Section<$policy>>::warn(self, warnings);)*
            }
        }
    };
}
pub(crate) use sections;
