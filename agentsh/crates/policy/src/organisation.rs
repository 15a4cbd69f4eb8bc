//! The organisation whose signed policy applies here, and its stored bundle.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::bundle::{Bundle, BundleError};
use super::diagnostic::{PolicyError, Source};
use super::keys::{Key, Kind, keys};
use super::locks::Locks;
use super::model::{PolicyTest, Ruled};
use super::read::Extends;
use super::reader::{Here, Reader};
use super::search::{self, Loaded};
use super::{narrow, yaml};

/// Next to the policy: of this machine, else of the user.
pub const FILE: &str = "organisation.yaml";
/// The bundle of this machine's organisation; a user's own is in the user's state directory.
const MACHINE_BUNDLES: &str = "/var/lib/agentsh/bundles";

/// The signers, and the source of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organisation {
    pub name: String,
    /// A URL or a file; `agentsh policy bundle pull` looks there.
    pub source: String,
    pub keys: Vec<String>,
    /// The file in which these are written.
    pub file: PathBuf,
    /// The directory of the stored bundle.
    pub directory: PathBuf,
}

/// The bundle that is a layer of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    pub name: String,
    pub version: u64,
    pub expires: Timestamp,
    pub is_expired: bool,
    /// Why the newest one that was offered is not in force.
    pub refused: Option<String>,
    pub locks: Locks,
}

const KEYS: &[Key] = keys! {
    "name": Kind::Text;
    "source": Kind::Text;
    "keys": Kind::Whole(&Kind::Text);
};

impl Organisation {
    /// The content of `organisation.yaml`; None if there is none. The machine's file, next to `system`, takes precedence over
    /// the user's.
    ///
    /// # Errors
    /// When it is there and cannot be used.
    pub fn find(system: &Path, config_home: &Path, state: &Path) -> Result<Option<Self>, PolicyError> {
        let own = config_home.join("agentsh").join(FILE);
        let places =
            [(system.with_file_name(FILE), PathBuf::from(MACHINE_BUNDLES)), (own, state.join("bundles"))];
        for (file, directory) in places {
            if file.parent().is_none_or(|above| above.as_os_str().is_empty()) {
                continue;
            }
            if let Some(text) = search::read_plain(&file)? {
                return Self::read(&file, &text, directory).map(Some);
            }
        }
        Ok(None)
    }

    fn read(file: &Path, text: &str, directory: PathBuf) -> Result<Self, PolicyError> {
        let shown = file.display().to_string();
        let source = Source { name: &shown, text };
        let tree = yaml::parse(source).map_err(|problem| PolicyError::Invalid(vec![*problem]))?;
        let mut reader = Reader::new(source);
        let root = Here::root(&tree);
        let fields = reader.map(&root, KEYS);
        let text = |reader: &mut Reader<'_>, key: &str| {
            let here = fields.as_ref()?.find(key)?;
            reader.text(&here)
        };
        let (name, from) = (text(&mut reader, "name"), text(&mut reader, "source"));
        let keys = fields.as_ref().and_then(|fields| fields.find("keys"));
        let keys = reader.list(keys, Reader::text).map(|list| list.value).unwrap_or_default();
        let keys: Vec<String> = keys.into_iter().map(|key| key.value).collect();
        if let (None, _) | (_, None) = (&name, &from) {
            reader.problem(&root, "an organisation has a `name` and a `source`", None);
        }
        if keys.is_empty() {
            let help = "write `keys: [RW...]`: the second line of a minisign public key";
            reader.problem(&root, "without `keys` no bundle can be trusted", help);
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.as_ref().is_some_and(|name| !name.bytes().all(is_plain)) {
            reader.problem(&root, "a `name` has letters, digits, `-` and `_`", None);
        }
        reader.finish().map_err(PolicyError::Invalid)?;
        let (name, source) = (name.unwrap_or_default(), from.unwrap_or_default());
        Ok(Self { name, source, keys, file: file.to_owned(), directory })
    }

    /// The file of the stored bundle.
    #[must_use]
    pub fn kept(&self) -> PathBuf {
        self.directory.join(format!("{}.bundle", self.name))
    }

    /// The file with the reason why another bundle was refused.
    #[must_use]
    pub fn refusal(&self) -> PathBuf {
        self.directory.join(format!("{}.refused", self.name))
    }

    /// The kept bundle, its signature checked again. None: nothing was ever pulled.
    ///
    /// # Errors
    /// When it differs from what its organisation signed.
    pub fn bundle(&self) -> Result<Option<Bundle>, PolicyError> {
        let kept = self.kept();
        let Some(text) = search::read_plain(&kept)? else { return Ok(None) };
        let shown = kept.display().to_string();
        let bundle = Bundle::read(&shown, &text, &self.keys);
        let bundle = bundle.and_then(|bundle| match bundle.name == self.name {
            true => Ok(bundle),
            false => Err(BundleError::Name { found: bundle.name, wanted: self.name.clone() }),
        });
        bundle.map(Some).map_err(|error| PolicyError::Unreadable {
            file: shown,
            why: format!("{error}; get it again with `agentsh policy bundle pull`"),
        })
    }

    /// The stored bundle as a layer, and its state. An expired one stays in force, because without it the policy would be
    /// weaker.
    ///
    /// # Errors
    /// Like [`Organisation::bundle`], and when nothing was ever pulled.
    pub fn in_force(&self, now: Timestamp) -> Result<(Bundle, InForce), PolicyError> {
        let bundle = self.bundle()?.ok_or_else(|| PolicyError::Unreadable {
            file: self.kept().display().to_string(),
            why: format!(
                "{} names the organisation '{}', and its policy was never fetched; get it with `agentsh policy bundle pull`",
                self.file.display(),
                self.name
            ),
        })?;
        let refused = search::read_plain(&self.refusal())?.map(|text| text.trim().to_owned());
        let found = bundle.standing(now, refused.filter(|text| !text.is_empty()));
        Ok((bundle, found))
    }

    /// Whether a bundle that was offered may take the place of the kept one.
    ///
    /// # Errors
    /// Why it may not.
    pub fn accept(&self, text: &str, now: Timestamp) -> Result<Bundle, BundleError> {
        let shown = self.kept().display().to_string();
        let offered = Bundle::read(&shown, text, &self.keys)?;
        if offered.name != self.name {
            return Err(BundleError::Name { found: offered.name, wanted: self.name.clone() });
        }
        if offered.expires <= now {
            return Err(BundleError::Expired(offered.expires));
        }
        let policy = |error: PolicyError| BundleError::Policy(error.to_string());
        search::with_organisation("", &offered, Vec::new())
            .map_err(policy)?
            .tested(Path::new("/"))
            .map_err(policy)?;
        // A damaged stored bundle proves no version; whoever could damage it could also remove it.
        if let Ok(Some(kept)) = self.bundle() {
            if offered.version < kept.version {
                return Err(BundleError::Older { found: offered.version, kept: kept.version });
            }
            if offered.version == kept.version && offered.text != kept.text {
                return Err(BundleError::Changed(kept.version));
            }
            offered.opens(&kept)?;
        }
        Ok(offered)
    }
}

impl Bundle {
    /// Its state as a layer.
    #[must_use]
    pub fn standing(&self, now: Timestamp, refused: Option<String>) -> InForce {
        InForce {
            name: self.name.clone(),
            version: self.version,
            expires: self.expires,
            is_expired: self.expires <= now,
            refused,
            locks: self.locks.clone(),
        }
    }

    /// Whether this one would open what the stored one locks: a section that is no longer locked, an entry that grants more,
    /// or something that the stored one's tests expect to be denied.
    fn opens(&self, kept: &Self) -> Result<(), BundleError> {
        let (mut own, held) = (self.locks.clone(), kept.locks.without(&self.widens));
        own.0.extend(self.widens.0.iter().cloned());
        if !own.cover(&held) {
            let lost: Vec<&str> = held.0.iter().map(|lock| lock.value.as_str()).collect();
            return Err(BundleError::Widens(lost.join(", ")));
        }
        if held.is_empty() {
            return Ok(());
        }
        let policy = |error: PolicyError| BundleError::Policy(error.to_string());
        let before: Loaded = search::with_organisation("", kept, Vec::new()).map_err(policy)?;
        let layer = self.layer().map_err(policy)?;
        let mut narrowed = before.policy.clone();
        let source = Source { name: &layer.file, text: &layer.text };
        // Another base may open anything, also what no entry of the new one says.
        let base = |layer: &search::Layer| match &layer.raw.extends {
            Extends::Below => "",
            Extends::Nothing(_) => "none",
            Extends::BuiltIn(name, _) => name,
        };
        if base(&layer) != base(&kept.layer().map_err(policy)?) {
            return Err(BundleError::Widens(format!("{} (by another `extends`)", paths(&held))));
        }
        let mut raw = layer.raw.clone();
        raw.extends = Extends::Below;
        if let Err(problems) = narrow::merge_narrowed(&mut narrowed, &raw, &held, source) {
            let first = problems.first().map(|problem| format!("line {}: {}", problem.line, problem.message));
            return Err(BundleError::Widens(first.unwrap_or_default()));
        }
        let after = search::with_organisation("", self, Vec::new()).map_err(policy)?;
        let context = super::PathContext { home: "/home/user".into(), project: "/home/user/project".into() };
        let denied = |test: &&PolicyTest| !test.expect_allow;
        for test in before.policy.tests.iter().filter(denied) {
            let answer = after.policy.ask(test.from.as_ref(), &test.question, &context);
            if answer.allow {
                return Err(BundleError::Widens(format!(
                    "something that its test denies ({})",
                    super::tests::describe(test)
                )));
            }
        }
        Ok(())
    }
}

/// For people: paths in a row.
#[must_use]
pub fn paths(locks: &Locks) -> String {
    locks.0.iter().map(|lock: &Ruled<String>| lock.value.as_str()).collect::<Vec<_>>().join(", ")
}
