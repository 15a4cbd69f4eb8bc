//! While a server starts, the agent can neither rename nor remove the files that it runs; otherwise the server's mounts over them
//! would be lost. This holds from before the last check until the server has written something: then its interpreter has opened
//! its script (decision 780).

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::io::Interest;

use agentsh_pin::Resolved;
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::share_mounts::{hold, release};
use agentsh_sandbox::spawn;
use agentsh_sandbox::spec::SandboxSpec;

use super::Session;

/// Names that are held for one server. Dropped, they are abandoned if no other server starts.
pub struct HeldNames(Rc<Session>);

impl HeldNames {
    /// Holds what is to run. None: the agent may not rename any of it.
    ///
    /// # Errors
    /// In words, when a name cannot be held: the server must not start.
    pub fn of(session: &Rc<Session>, resolved: &Resolved) -> Result<Option<Self>, String> {
        let inside = session.live.agent.inside.borrow();
        let (Some(inside), Some(spec)) = (&*inside, session.live.agent.spec.get()) else { return Ok(None) };
        let mut held = None;
        for path in resolved.files.iter().map(|file| file.path.as_path()) {
            let Some(root) = writable_above(spec, path) else { continue };
            if held.is_none() {
                session.live.agent.held.set(session.live.agent.held.get() + 1);
                held = Some(Self(Rc::clone(session)));
            }
            let names = path.ancestors().take_while(|above| *above != root).map(Path::to_owned);
            let mut names: Vec<PathBuf> = names.collect();
            names.reverse();
            hold(&session.facts.context.zygote, inside, root, names)?;
        }
        Ok(held)
    }

    /// Gives them up as soon as there is something to read, or nothing more to come.
    ///
    /// # Errors
    /// When the kernel cannot watch what the server says.
    pub fn until_it_speaks(self, says: &impl AsFd) -> std::io::Result<()> {
        let says: OwnedFd = says.as_fd().try_clone_to_owned()?;
        let says = spawn::watch(says, Interest::READABLE)?;
        tokio::task::spawn_local(async move {
            let _ = says.readable().await;
            drop(self);
        });
        Ok(())
    }
}

impl Drop for HeldNames {
    fn drop(&mut self) {
        let live = &self.0.live;
        live.agent.held.set(live.agent.held.get().saturating_sub(1));
        if live.agent.held.get() == 0
            && let Some(inside) = &*live.agent.inside.borrow()
        {
            // A sandbox that has ended holds nothing.
            let _ = release(&self.0.facts.context.zygote, inside);
        }
    }
}

/// The first directory on the way to a path that the agent may write in: the name itself cannot be changed inside.
fn writable_above<'s>(spec: &'s SandboxSpec, path: &Path) -> Option<&'s Path> {
    let paths = &spec.paths;
    let project = (paths.project_access == Some(Access::ReadWrite)).then_some(paths.project.as_path());
    let granted = paths.grants.iter().chain(&paths.own).map(|grant| &grant.value);
    let granted = granted.filter(|grant| grant.access == Access::ReadWrite).map(|grant| grant.path.as_path());
    let above = project.into_iter().chain(granted).filter(|root| path.starts_with(root) && path != *root);
    above.min_by_key(|root| root.as_os_str().len())
}
