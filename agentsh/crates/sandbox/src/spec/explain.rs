//! What a program sees at a path, and by which rule, from the enforced specification. Guards over hook files and
//! repositories are not included, because they depend on the host's files.

use std::path::{Path, PathBuf};

use super::{SandboxSpec, resolve};
use crate::plan::Access;
use crate::policy::builtin_paths::{HOME_MASKS, SYSTEM_READ};
use crate::types::RuleRef;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// A mask or a rule hides it.
    Hidden,
    /// Nothing shows it.
    Absent,
    ReadOnly,
    ReadWrite,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    pub visibility: Visibility,
    /// The path of the rule: this one, or one above it.
    pub place: PathBuf,
    pub rule: RuleRef,
}

/// Private writable directories of every sandbox.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

impl SandboxSpec {
    /// The deepest rule decides; at the same path, the later mount.
    #[must_use]
    pub fn explain(&self, path: &Path) -> Explained {
        let path = &resolve(&self.placed.links, path);
        let mut found = self.explain_outside(path);
        let mut consider = |place: &Path, visibility: Visibility, rule: &RuleRef| {
            if path.starts_with(place) && place.as_os_str().len() >= found.place.as_os_str().len() {
                found = Explained { visibility, place: place.to_owned(), rule: rule.clone() };
            }
        };
        let home = &self.paths.home;
        consider(home, Visibility::Absent, &built_in("private home"));
        let roots = self.paths.program_roots.iter();
        roots.for_each(|root| consider(root, Visibility::ReadOnly, &built_in("program")));
        let project =
            self.paths.project_access.map(|access| (&self.paths.project, access, built_in("project")));
        let grants = self.paths.grants.iter();
        let grants = grants.map(|grant| (&grant.value.path, grant.value.access, grant.rule.clone()));
        let mut grants: Vec<_> = project.into_iter().chain(grants).collect();
        // Two grants for one path: the wider access applies.
        grants.sort_by_key(|(_, access, _)| *access == Access::ReadWrite);
        grants.iter().for_each(|(path, access, rule)| consider(path, of(*access), rule));
        // Masks and hidden paths cover every grant.
        let lifted = |mask: &Path| {
            self.paths.unmasked.iter().any(|entry| entry.starts_with(mask) && path.starts_with(entry))
        };
        let masks = HOME_MASKS.iter().map(|(mask, why)| (home.join(mask), built_in(why)));
        let masks = masks.filter(|(mask, _)| !lifted(mask));
        let hidden = self.paths.hidden.iter().map(|hidden| (hidden.value.clone(), hidden.rule.clone()));
        if found.visibility != Visibility::Absent
            && let Some((place, rule)) = masks.chain(hidden).find(|(place, _)| {
                // The project is visible at its own path.
                path.starts_with(place)
                    && (found.place != self.paths.project || place.starts_with(&found.place))
            })
        {
            found = Explained { visibility: Visibility::Hidden, place, rule };
        }
        // Later mounts are above.
        let own = self.paths.own.iter().map(|own| (&own.value.path, of(own.value.access), own.rule.clone()));
        let placed = &self.placed;
        let elsewhere = placed.elsewhere.iter().map(|one| (&one.inside, of(one.access), built_in("sandbox")));
        let caches = placed.caches.iter().map(|one| (&one.inside, Visibility::ReadWrite, built_in("caches")));
        let files =
            placed.files.iter().map(|file| (&file.path, Visibility::ReadOnly, built_in("generated file")));
        for (place, visibility, rule) in own.chain(elsewhere).chain(caches).chain(files) {
            if path.starts_with(place) {
                found = Explained { visibility, place: place.clone(), rule };
            }
        }
        found
    }

    /// The contents of every sandbox.
    fn explain_outside(&self, path: &Path) -> Explained {
        let explained = |visibility, place: &str, id: &str| Explained {
            visibility,
            place: place.into(),
            rule: built_in(id),
        };
        if let Some(place) = PRIVATE.iter().find(|place| path.starts_with(place)) {
            return explained(Visibility::ReadWrite, place, "private directory");
        }
        match SYSTEM_READ.iter().find(|place| path.starts_with(place)) {
            Some(place) => explained(Visibility::ReadOnly, place, "system"),
            None => explained(Visibility::Absent, "/", "not shown"),
        }
    }
}

fn of(access: Access) -> Visibility {
    match access {
        Access::ReadOnly => Visibility::ReadOnly,
        Access::ReadWrite | Access::Device => Visibility::ReadWrite,
    }
}

fn built_in(id: &str) -> RuleRef {
    RuleRef { id: id.to_owned(), file: "built-in".to_owned(), line: 0 }
}
