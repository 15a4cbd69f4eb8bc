//! A package at a version, and the order of versions in its ecosystem.

use std::cmp::Ordering;
use std::str::FromStr as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ecosystem {
    Npm,
    Pypi,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    pub ecosystem: Ecosystem,
    /// The name as [`Ecosystem::name`] writes it.
    pub name: String,
    pub version: String,
}

impl Ecosystem {
    /// The ecosystem by its OSV name. A suffix after `:` names a part of one.
    #[must_use]
    pub fn of_osv(word: &str) -> Option<Self> {
        match word.split(':').next() {
            Some("npm") => Some(Self::Npm),
            Some("PyPI") => Some(Self::Pypi),
            _ => None,
        }
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
        }
    }

    /// The normal spelling of a name in this ecosystem: PyPI accepts several spellings of one name.
    #[must_use]
    pub fn name(self, written: &str) -> String {
        match self {
            Self::Npm => written.to_owned(),
            Self::Pypi => {
                let mut name = String::new();
                for letter in written.chars() {
                    match letter {
                        '-' | '_' | '.' if name.ends_with('-') => {}
                        '-' | '_' | '.' => name.push('-'),
                        other => name.extend(other.to_lowercase()),
                    }
                }
                name
            }
        }
    }

    /// Semantic versioning for npm, PEP 440 for PyPI. None: one of them is not a valid version.
    #[must_use]
    pub fn compare(self, left: &str, right: &str) -> Option<Ordering> {
        match self {
            Self::Npm => {
                let (left, right) = (npm(left)?, npm(right)?);
                // Builds of one version are the same version.
                Some(left.cmp_precedence(&right))
            }
            Self::Pypi => {
                let parse = |text: &str| pep440_rs::Version::from_str(text.trim()).ok();
                // The local part says who built it.
                Some(parse(left)?.without_local().cmp(&parse(right)?.without_local()))
            }
        }
    }
}

/// Records and manifests leave numbers out, and some write a `v`.
fn npm(text: &str) -> Option<semver::Version> {
    let text = text.trim().trim_start_matches(['v', '=']);
    semver::Version::parse(text).ok().or_else(|| {
        let dots = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.');
        let (numbers, rest) = text.split_at(dots.count());
        let missing = 2_usize.checked_sub(numbers.matches('.').count())?;
        semver::Version::parse(&format!("{numbers}{}{rest}", ".0".repeat(missing))).ok()
    })
}

impl Package {
    #[must_use]
    pub fn new(ecosystem: Ecosystem, name: &str, version: &str) -> Self {
        Self { ecosystem, name: ecosystem.name(name), version: version.to_owned() }
    }

    /// `npm:NAME@VERSION`, `pypi:NAME@VERSION`.
    #[must_use]
    pub fn parse(identity: &str) -> Option<Self> {
        let (ecosystem, rest) = match identity.split_once(':')? {
            ("npm", rest) => (Ecosystem::Npm, rest),
            ("pypi", rest) => (Ecosystem::Pypi, rest),
            _ => return None,
        };
        let (name, version) = rest.rsplit_once('@').filter(|(name, _)| !name.is_empty())?;
        Some(Self::new(ecosystem, name, version))
    }
}

impl std::fmt::Display for Package {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}@{}", self.ecosystem.as_str(), self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_the_rules_of_their_ecosystem() {
        for (ecosystem, order) in [
            (
                Ecosystem::Npm,
                &["0.0.0-0", "1.0.0-alpha.2", "1.0.0-alpha.10", "1.0.0", "1.2", "1.10.0", "2"][..],
            ),
            (
                Ecosystem::Pypi,
                &["1.0.dev1", "1.0a1", "1.0rc1", "1.0", "1.0.post1", "1.2", "1.10", "1!0.1"][..],
            ),
        ] {
            for pair in order.windows(2) {
                assert_eq!(ecosystem.compare(pair[0], pair[1]), Some(Ordering::Less), "{pair:?}");
            }
        }
        assert_eq!(Ecosystem::Npm.compare("1.0.0+a", "v1.0.0+b"), Some(Ordering::Equal));
        assert_eq!(Ecosystem::Pypi.compare("1.0+cpu", "1.0.0"), Some(Ordering::Equal));
        assert_eq!(Ecosystem::Npm.compare("latest", "1.0.0"), None);
        assert_eq!(Ecosystem::Npm.compare("1.0.0.0", "1.0.0"), None);
    }

    #[test]
    fn package_names_are_normalised() {
        assert_eq!(Ecosystem::Pypi.name("My__Package.Name"), "my-package-name");
        let package = Package::parse("npm:@scope/name@1.2.3");
        assert_eq!(package, Some(Package::new(Ecosystem::Npm, "@scope/name", "1.2.3")));
        assert_eq!(Package::parse("npm:@scope/name"), None);
        assert_eq!(Package::parse("file:/a@b"), None);
    }
}
