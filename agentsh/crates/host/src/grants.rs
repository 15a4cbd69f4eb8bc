//! Turns the paths of a policy into paths of this host: `~`, the project, and patterns are expanded once, when a
//! process starts. A file that is created later and matches a pattern of `write` is visible only if its directory is.

use std::path::{Path, PathBuf};

use agentsh_policy::{FilesystemPolicy, PathContext, Ruled, place};
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::spec::{Contribution, Feature, Grant};
use agentsh_store::FileGrant;
use agentsh_store::words::FileWord;

/// Directory entries looked at for one pattern.
const MAX_ENTRIES: usize = 200_000;

/// The grants of a policy's filesystem rules on this host.
///
/// # Errors
/// Why no sandbox may start with these rules.
pub fn contribution(policy: &FilesystemPolicy, context: &PathContext) -> Result<Contribution, String> {
    let each = |list: &[Ruled<String>]| {
        let mut found = Vec::new();
        for Ruled { value, rule } in list {
            let paths = matching(value, context).ok_or_else(|| {
                format!("the pattern of {rule} matches in too large a directory; name a narrower one")
            })?;
            found.extend(paths.into_iter().map(|value| Ruled { value, rule: rule.clone() }));
        }
        Ok::<_, String>(found)
    };
    let grant = |access| move |Ruled { value: path, rule }| Ruled { value: Grant { path, access }, rule };
    let mut out = Contribution::new(Feature::Policy);
    out.grants.extend(each(&policy.read)?.into_iter().map(grant(Access::ReadOnly)));
    let written = each(&policy.write)?;
    if let Some(Ruled { value: path, rule }) = written.iter().find(|path| holds_home(&path.value, context)) {
        return Err(format!(
            "{} ({rule}) contains the whole home directory, which is never writable; name the directories in it \
             that may \
             change",
            path.display()
        ));
    }
    out.grants.extend(written.into_iter().map(grant(Access::ReadWrite)));
    out.hidden = each(&policy.deny)?;
    out.unmasked = unmasked(policy, context);
    Ok(out)
}

/// Built-in masks and guards that the policy lifts, absolute.
#[must_use]
pub fn unmasked(policy: &FilesystemPolicy, context: &PathContext) -> Vec<PathBuf> {
    policy.unmask.iter().map(|rule| absolute(&rule.value, context)).collect()
}

/// The rules for the record. None if there is none beyond the built-in ones.
#[must_use]
pub fn on_record(policy: &FilesystemPolicy) -> Option<Vec<FileGrant>> {
    let lists = [
        (FileWord::Read, &policy.read),
        (FileWord::Write, &policy.write),
        (FileWord::Deny, &policy.deny),
        (FileWord::Unmask, &policy.unmask),
    ];
    let entries = lists.into_iter().flat_map(|(word, list)| list.iter().map(move |rule| (word, rule)));
    let grants = entries.map(|(word, Ruled { value, rule })| FileGrant {
        path: value.clone(),
        word,
        rule: rule.clone(),
    });
    let grants: Vec<FileGrant> = grants.collect();
    let is_written = |grant: &FileGrant| {
        !grant.rule.file.starts_with("built-in") && !["default", "agent"].contains(&grant.rule.file.as_str())
    };
    grants.iter().any(is_written).then_some(grants)
}

/// Existing paths that a pattern means; None when there was too much to look at.
fn matching(pattern: &str, context: &PathContext) -> Option<Vec<PathBuf>> {
    let whole = absolute(pattern, context);
    let special = |part: &std::ffi::OsStr| part.to_string_lossy().contains(['*', '?', '[']);
    if !whole.iter().any(special) {
        return Some(vec![whole]);
    }
    let start: PathBuf = whole.iter().take_while(|part| !special(part)).collect();
    if whole.strip_prefix(&start).is_ok_and(|rest| rest == Path::new("**")) {
        return Some(vec![start]);
    }
    let (mut found, mut open, mut budget) = (Vec::new(), vec![start], MAX_ENTRIES);
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            budget = budget.checked_sub(1)?;
            let path = entry.path();
            if place::matches(pattern, &path, context) {
                found.push(path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            }
        }
    }
    found.sort();
    Some(found)
}

/// Whether a path contains the home. Its missing files cannot be guarded: keys, programs and files that run at the next login.
fn holds_home(path: &Path, context: &PathContext) -> bool {
    context.home.starts_with(path)
}

fn absolute(text: &str, context: &PathContext) -> PathBuf {
    place::resolve(text, context)
}

/// Paths in the arguments of a server's command line, which the user therefore meant it to have.
///
/// Relative ones count from `directory`, where the server starts. `everywhere` is false for a declaration that came with the project: it may only name what is in the project.
/// Options of the form `--dir=PATH` count. An option that would open the whole machine does not.
#[must_use]
pub fn from_arguments(
    arguments: &[String],
    directory: &Path,
    context: &PathContext,
    everywhere: bool,
) -> (Vec<Grant>, Vec<String>) {
    let (mut grants, mut refused) = (Vec::new(), Vec::new());
    let started_in = PathContext { home: context.home.clone(), project: directory.to_owned() };
    for argument in arguments {
        let value = match argument.split_once('=') {
            Some((option, value)) if option.starts_with('-') => value,
            _ => argument.as_str(),
        };
        if value.is_empty() || value.starts_with('-') || value.contains("://") {
            continue;
        }
        // Links are followed: what is granted is what the name means now.
        let named = place::resolve(value, &started_in);
        let Ok(path) = named.canonicalize() else { continue };
        if named.starts_with(&context.project) && !path.starts_with(&context.project) {
            refused.push(format!(
                "{value}: a link in the project that leads out of it; name its target instead"
            ));
        } else if path == context.project || path.starts_with(&context.project) && !everywhere {
            grants.push(Grant { path, access: Access::ReadWrite });
        } else if !everywhere {
            refused.push(format!(
                "{value}: a server that came with the project can only get paths inside the project"
            ));
        } else if path == Path::new("/")
            || ["/proc", "/sys", "/dev", "/run", "/boot"].iter().any(|root| path.starts_with(root))
        {
            refused.push(format!("{value}: part of the running system, never shown"));
        } else if agentsh_sandbox::layout::is_system(&path) || path.starts_with("/etc") {
            grants.push(Grant { path, access: Access::ReadOnly });
        } else if holds_home(&path, context) {
            refused.push(format!(
                "{value} for writing: it contains the home directory; name the directories in it that may change"
            ));
            grants.push(Grant { path, access: Access::ReadOnly });
        } else {
            grants.push(Grant { path, access: Access::ReadWrite });
        }
    }
    grants.sort_by(|a, b| a.path.cmp(&b.path));
    grants.dedup();
    (grants, refused)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn expanded(filesystem: &str, context: &PathContext) -> Result<Contribution, String> {
        let text = format!("agent: {{filesystem: {{{filesystem}}}}}");
        let policy = agentsh_policy::parse("p.yaml", &text).unwrap();
        contribution(&policy.agent.filesystem, context)
    }

    fn paths<T: Clone>(ruled: &[Ruled<T>]) -> Vec<T> {
        ruled.iter().map(|one| one.value.clone()).collect()
    }

    fn home() -> PathContext {
        PathContext { home: "/home/u".into(), project: "/home/u/project".into() }
    }

    fn grant(path: impl Into<PathBuf>, access: Access) -> Grant {
        Grant { path: path.into(), access }
    }

    #[test]
    fn home_and_project_are_expanded_in_grants() {
        let found = expanded(
            r#"read: ["~/notes", /srv], write: [build], deny: ["~/notes/private"], unmask: ["~/.npmrc"]"#,
            &home(),
        )
        .unwrap();
        let grants = paths(&found.grants);
        assert!(grants.contains(&grant("/home/u/notes", Access::ReadOnly)), "{grants:?}");
        assert!(grants.contains(&grant("/srv", Access::ReadOnly)));
        assert!(grants.contains(&grant("/home/u/project/build", Access::ReadWrite)));
        assert!(paths(&found.hidden).contains(&"/home/u/notes/private".into()));
        assert!(found.unmasked.contains(&"/home/u/.npmrc".into()));
        assert!(found.grants.iter().all(|grant| grant.rule.file == "p.yaml" && grant.rule.line == 1));
    }

    #[test]
    fn a_writable_home_is_refused_with_its_rule_and_a_readable_one_is_not() {
        for path in ["/home/u", "/home"] {
            let refused = expanded(&format!("write: [{path:?}]"), &home()).err().unwrap();
            assert!(refused.contains("never writable") && refused.contains("p.yaml:1"), "{refused}");
        }
        assert!(expanded(r#"read: ["~"]"#, &home()).is_ok());
    }

    #[test]
    fn grant_pattern_covers_files_that_match_now() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let context = PathContext { home: "/home/u".into(), project: root.to_owned() };
        for name in ["a.log", "deep/b.log", "c.txt"] {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), "").unwrap();
        }
        let found = expanded(r#"deny: ["**/*.log"], write: ["deep/**"]"#, &context).unwrap();
        let hidden = paths(&found.hidden);
        assert!(hidden.contains(&root.join("a.log")), "{hidden:?}");
        assert!(hidden.contains(&root.join("deep/b.log")));
        assert!(!hidden.contains(&root.join("c.txt")));
        assert!(paths(&found.grants).contains(&grant(root.join("deep"), Access::ReadWrite)));
    }

    #[test]
    fn paths_in_server_arguments_are_granted_as_far_as_allowed() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        let context = PathContext { home: base.join("home"), project: base.join("home/project") };
        for directory in ["home/project/inner", "data"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        std::os::unix::fs::symlink(base.join("data"), context.project.join("out")).unwrap();
        let data = base.join("data").display().to_string();
        let words =
            [data.clone(), "--root=inner".to_owned(), "https://x/data".to_owned(), "missing".to_owned()];
        let (grants, refused) = from_arguments(&words, &context.project, &context, true);
        let inner = context.project.join("inner");
        assert_eq!(grants, [grant(base.join("data"), Access::ReadWrite), grant(&inner, Access::ReadWrite)]);
        assert!(refused.is_empty(), "{refused:?}");
        // A file of the project speaks for the project alone.
        let (grants, refused) = from_arguments(&words, &context.project, &context, false);
        assert_eq!(grants, [grant(&inner, Access::ReadWrite)]);
        assert!(
            refused.len() == 1 && refused[0].contains("can only get paths inside the project"),
            "{refused:?}"
        );
        // A link is what it leads to now, which the project must not choose.
        let link = ["out".to_owned()];
        let (grants, refused) = from_arguments(&link, &context.project, &context, true);
        assert!(grants.is_empty() && refused[0].contains("a link in the project"), "{refused:?}");
        let system = ["/", "/proc", "/usr"].map(str::to_owned);
        let (grants, refused) = from_arguments(&system, &context.project, &context, true);
        assert_eq!(grants, [grant("/usr", Access::ReadOnly)]);
        assert_eq!(refused.len(), 2, "{refused:?}");
        let home = [context.home.display().to_string()];
        let (grants, refused) = from_arguments(&home, &context.project, &context, true);
        assert_eq!(grants, [grant(&context.home, Access::ReadOnly)]);
        assert!(refused[0].contains("contains the home directory"), "{refused:?}");
    }
}
