//! The user's toolchains that `run` shows to the agent, for `policy show`.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::CommandContext;
use crate::listing::Listing;
use agentsh_base::real_paths::RealPaths;
use agentsh_host::facts::lists_programs;
use agentsh_host::toolchains::{self, SearchContext, Toolchains};
use agentsh_policy::Policy;
use agentsh_sandbox::host::RealHost;
use agentsh_store::escape;

/// The toolchains as `run` finds them. None if the policy lists the allowed programs.
pub fn find(policy: &Policy, place: &CommandContext) -> Toolchains {
    if lists_programs(&policy.agent) {
        return Toolchains::default();
    }
    let configured = place.env.get("XDG_DATA_HOME").map(Path::new).filter(|path| path.is_absolute());
    let data = configured.map_or_else(|| place.home.join(".local/share"), Path::to_owned).join("agentsh");
    let own = [place.state.as_path(), &data, &place.config_home];
    let host = RealHost::default();
    let around =
        SearchContext { host: &host, home: &place.home, project: &place.project, env: &place.env, own };
    toolchains::find(around, &RealPaths::default())
}

pub fn print(tools: &Toolchains, listing: &mut Listing<'_>) -> io::Result<()> {
    let shown = |path: &Path| escape::line(&path.display().to_string()).into_owned();
    // Paths have different lengths: the remark is right behind each.
    let aligned = std::mem::take(&mut listing.aligned);
    if !tools.found.is_empty() {
        listing.head(&format!("toolchains found here: {}", tools.found.join(", ")))?;
    }
    for grant in &tools.grants {
        listing.line(&format!("toolchain: {}", shown(&grant.path)), "shown to the agent, read-only")?;
    }
    for (link, to) in &tools.links {
        listing.line(&format!("toolchain: {}", shown(link)), &format!("a link to {}", shown(to)))?;
    }
    for hidden in &tools.hidden {
        listing.line(&format!("toolchain: {}", shown(hidden)), "hidden")?;
    }
    for cache in &tools.caches {
        let comment = "private to the project";
        listing.line(&format!("cache: {}", shown(cache)), comment)?;
    }
    listing.aligned = aligned;
    Ok(())
}

pub fn json(tools: &Toolchains) -> Value {
    let shown: Vec<_> = tools.grants.iter().map(|grant| grant.path.display().to_string()).collect();
    let paths = |paths: &mut dyn Iterator<Item = &std::path::PathBuf>| -> Vec<String> {
        paths.map(|path| path.display().to_string()).collect()
    };
    json!({
        "found": tools.found,
        "shown": shown,
        "links": paths(&mut tools.links.keys()),
        "hidden": paths(&mut tools.hidden.iter()),
        "caches": paths(&mut tools.caches.iter()),
    })
}
