//! Loads and attaches the session's eBPF programs on a separate thread.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;

use tokio::sync::{OnceCell, oneshot};

use agentsh_host::Backend;
use agentsh_net::Kernel;
use agentsh_net::ebpf::{self, Attached, Loaded};
use agentsh_sandbox::cgroup::{Hierarchies, Parent};
use agentsh_store::Journal;

pub struct AttachedPrograms {
    pub kernel: Kernel<Journal>,
    pub hierarchies: Hierarchies,
    hold: RefCell<Option<AttachedHold>>,
}

/// The programs' links, dropped before their directory.
pub type AttachedHold = (Attached, Parent);

type Attempt = Result<(Loaded, Attached, Hierarchies, Parent), String>;

pub struct LoadingPrograms {
    pending: RefCell<Option<oneshot::Receiver<Attempt>>>,
    is_tried: bool,
    /// The first result.
    settled: OnceCell<Result<Rc<AttachedPrograms>, String>>,
}

impl LoadingPrograms {
    pub fn begin(backend: Backend, hierarchies: &Hierarchies) -> Self {
        let settled = OnceCell::new();
        let refused = match (backend, ebpf::check_permission()) {
            (Backend::Userns, _) => Some("userns was asked for".to_owned()),
            (_, Err(error)) => Some(error.to_string()),
            (_, Ok(())) => None,
        };
        if let Some(why) = refused {
            // Empty until now.
            let _ = settled.set(Err(why));
            return Self { pending: RefCell::new(None), is_tried: false, settled };
        }
        let (done, pending) = oneshot::channel();
        let hierarchies = hierarchies.clone();
        // Without a thread, the closed channel is the result.
        let _ = std::thread::Builder::new().spawn(move || {
            // The session may have ended.
            let _ = done.send(attempt(&hierarchies));
        });
        Self { pending: RefCell::new(Some(pending)), is_tried: true, settled }
    }

    pub fn is_tried(&self) -> bool {
        self.is_tried
    }

    /// What to drop after the last sandbox has ended: it takes the kernel a millisecond.
    pub fn detach(&self) -> Option<AttachedHold> {
        self.settled.get()?.as_ref().ok()?.hold.borrow_mut().take()
    }

    /// Waits until they are attached. Call inside a `LocalSet`.
    ///
    /// # Errors
    /// Why they are not.
    pub async fn wait_until_loaded(&self) -> Result<Rc<AttachedPrograms>, String> {
        let settle = async {
            let pending = self.pending.borrow_mut().take().ok_or("they were not loaded")?;
            let attempt = pending.await.map_err(|_| "the thread that loads them exited".to_owned())?;
            let (loaded, attached, hierarchies, parent) = attempt?;
            let kernel = Kernel::new(loaded).map_err(|error| error.to_string())?;
            Ok(Rc::new(AttachedPrograms {
                kernel,
                hierarchies,
                hold: RefCell::new(Some((attached, parent))),
            }))
        };
        self.settled.get_or_init(|| settle).await.clone()
    }
}

fn attempt(hierarchies: &Hierarchies) -> Attempt {
    let loaded = Loaded::load().map_err(|error| error.to_string())?;
    let (below, parent) = hierarchies
        .create_child(&format!("agentsh-{}-net", std::process::id()))
        .map_err(|error| format!("cannot create a cgroup (version 2) here: {error}"))?;
    let attached = loaded.attach(parent.as_fd()).map_err(|error| error.to_string())?;
    Ok((loaded, attached, below, parent))
}
