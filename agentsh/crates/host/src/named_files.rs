//! What the user's own programs obey in a directory that a sandbox may write, and that no table lists: the ends of links of his
//! home, what his configurations and his environment name, and what this session itself read as his word (decision 825).

mod links;
mod mentions;
mod project;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agentsh_base::types::ServerId;
use agentsh_base::users_files;
use agentsh_policy::{Answer, Policy, Question};
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::normalised_path;
use agentsh_sandbox::spec::{NamedFile, NamedKind};

use super::{Context, accepted_files, grants};

/// Limits of all named files, and of the links between them.
const MAX_NAMED: usize = 400;
const MAX_LINKS: usize = 40;

/// Each by its real path.
#[must_use]
pub fn named_files(context: &Context) -> BTreeMap<PathBuf, NamedFile> {
    let found = context.named_files.get_or_init(|| {
        let mut found = NamedFiles::new(context);
        let host = CachedHost::new(&context.host);
        for (path, what) in accepted_files::accepted_files(&context.state) {
            found.add(&path, NamedKind::File, &format!("it is {what}"));
        }
        found.follow_links(&host);
        found.read_configurations(&host);
        found.ask_agents();
        found.read_project(&host);
        found.named
    });
    let mut own = NamedFiles::new(context);
    // What lies in the system is the machine's, and no sandbox writes it.
    let is_of_machine = |path: &Path| path.starts_with("/etc") || agentsh_sandbox::layout::is_system(path);
    for (path, what) in users_files::noted_files().into_iter().filter(|(path, _)| !is_of_machine(path)) {
        own.add(&path, NamedKind::Own, &format!("it is {what}"));
    }
    for path in [context.config.join("agentsh"), context.state.clone()] {
        own.add(&path, NamedKind::Own, "agentsh keeps its own files there");
    }
    found.clone().into_iter().chain(own.named).collect()
}

/// The answer about a write that the policy allows: no, where somebody names the file.
#[must_use]
pub fn deny_named_file(
    context: &Context,
    policy: &Policy,
    from: Option<&ServerId>,
    question: &Question,
    answer: Answer,
) -> Answer {
    let Question::Write(text) = question else { return answer };
    if !answer.allow {
        return answer;
    }
    let paths = context.paths();
    let wanted = agentsh_policy::place::resolve(text, &paths);
    let process = from.map(|id| policy.mcp.process_of(id, None));
    let lifted = grants::unmasked(&process.as_ref().unwrap_or(&policy.agent).filesystem, &paths);
    let holds = |(place, named): &(PathBuf, NamedFile)| {
        !matches!(named.kind, NamedKind::Commands | NamedKind::Told)
            && wanted.starts_with(place)
            && !lifted.contains(place)
    };
    match named_files(context).into_iter().find(holds) {
        Some((place, named)) => {
            let answer = agentsh_policy::named_read_only(from, &place, &named.why);
            let change = answer.change.filter(|_| named.kind != NamedKind::Own);
            Answer { change, ..answer }
        }
        None => answer,
    }
}

struct NamedFiles<'c> {
    context: &'c Context,
    /// Directories that a sandbox of this session may write.
    roots: Vec<PathBuf>,
    named: BTreeMap<PathBuf, NamedFile>,
}

impl<'c> NamedFiles<'c> {
    fn new(context: &'c Context) -> Self {
        let others = context.writable.iter().filter(|root| **root != context.project);
        let others = others.filter_map(|root| context.paths.canonical(root));
        let roots = std::iter::once(context.project.clone()).chain(others).collect();
        Self { context, roots, named: BTreeMap::new() }
    }

    /// A writable directory itself stays writable.
    fn is_inside(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root) && path != root)
    }

    /// The path with all links followed, also where nothing is.
    fn real(&self, path: &Path) -> PathBuf {
        for above in path.ancestors().filter(|above| !self.context.host.is_missing(above)) {
            if let Some(real) = self.context.paths.canonical(above) {
                return match path.strip_prefix(above) {
                    Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
                    _ => real,
                };
            }
        }
        path.to_owned()
    }

    /// Guards a path and, if it is a link, what it leads to: each could be replaced.
    fn add(&mut self, path: &Path, kind: NamedKind, why: &str) {
        let mut at = normalised_path(path);
        for _ in 0..MAX_LINKS {
            let (Some(above), Some(name)) = (at.parent(), at.file_name()) else { return };
            let real = self.real(above).join(name);
            // A link above it could be replaced, too.
            for place in [&real, &at] {
                if self.named.len() < MAX_NAMED && self.is_inside(place) {
                    let named = || NamedFile { kind, why: why.to_owned() };
                    self.named.entry(place.clone()).or_insert_with(named);
                }
            }
            let Some(to) = self.context.paths.link(&real) else { return };
            at = normalised_path(&real.parent().unwrap_or(Path::new("/")).join(to));
        }
    }

    /// Directories of agents that a variable has put there. Those of the home are never written.
    fn ask_agents(&mut self) {
        let Context { env, home, project, directory, .. } = self.context;
        let (extra, agreed) = (BTreeMap::new(), BTreeSet::new());
        let asked = agentsh_agents::Context {
            argv: &[],
            env,
            home,
            project,
            cwd: directory,
            bridge: "",
            socket: "",
            inject_dir: Path::new(""),
            generic_config: None,
            extra: &extra,
            agreed: &agreed,
            told: None,
        };
        for (path, agent) in agentsh_agents::obeyed_files(&asked) {
            if self.is_inside(&path) || !path.starts_with(home) {
                self.add(&path, NamedKind::Directory, &format!("{agent} obeys it"));
            }
        }
    }

    /// As the user writes it.
    fn display_path(&self, path: &Path) -> String {
        match path.strip_prefix(&self.context.home) {
            Ok(below) => format!("~/{}", below.display()),
            Err(_) => path.display().to_string(),
        }
    }
}
