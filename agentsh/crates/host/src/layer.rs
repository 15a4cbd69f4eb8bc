//! Mounts the layer of review mode in a sandbox.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::Context;
use agentsh_sandbox::layout::Layout;
use agentsh_sandbox::plan::{Mount, NodeContent, Source};
use agentsh_sandbox::remount_guards::Namespaces;
use agentsh_sandbox::share_mounts::share_mounts;

/// Puts mounts of the agent's layer where a layout shows parts of it. They go to the end of `descriptors`.
///
/// # Errors
/// A sentence. The sandbox must then not start, because it would see the project itself.
pub fn borrow(
    context: &Context,
    agent: &Namespaces,
    layout: &mut Layout,
    descriptors: &mut Vec<OwnedFd>,
) -> Result<(), String> {
    let mut parts: Vec<_> = layout.mounts.iter_mut().filter_map(part).collect();
    if parts.is_empty() {
        return Ok(());
    }
    let wanted: Vec<PathBuf> =
        parts.iter().map(|(_, below)| path_in_project(&context.project, below)).collect();
    let lent = share_mounts(&context.zygote, agent, &wanted)?;
    for ((source, _), mount) in parts.iter_mut().zip(lent) {
        descriptors.push(mount);
        **source = Source::Detached(descriptors.len().saturating_sub(1));
    }
    Ok(())
}

fn part(mount: &mut Mount) -> Option<(&mut Source, PathBuf)> {
    let NodeContent::Bind { source, .. } = &mut mount.what else { return None };
    let Source::Layer { below } = source else { return None };
    let below = below.clone();
    Some((source, below))
}

/// Joined with nothing, a path would end in a slash.
fn path_in_project(project: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { project.to_owned() } else { project.join(below) }
}
