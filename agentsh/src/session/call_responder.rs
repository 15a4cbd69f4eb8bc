//! Answers system calls that a sandbox's filter passes to the session: new names for guarded files, missing files,
//! refused calls.

use std::fs;
use std::rc::Rc;

use tokio::io::Interest;

use super::Session;
use super::drain::{Next, serve};
use agentsh_base::types::ServerId;
use agentsh_guards::{GuardSession, Guarded};
use agentsh_sandbox::seccomp::MissingFile;
use agentsh_sandbox::seccomp::listener::{Listener, NotifiedCall};
use agentsh_sandbox::spawn;

/// Answers one sandbox's calls until dropped.
#[derive(Debug)]
pub struct CallResponder(tokio::task::AbortHandle);

impl Drop for CallResponder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Called for a file that a process looked for.
pub type MissingFileHandler = fn(&Session, Option<&ServerId>, u32, &MissingFile);

impl CallResponder {
    /// `told`: the session and server of the reports. `guarded`: decides about renames. `hear`: called for files, if
    /// the session reports them.
    ///
    /// # Errors
    /// When the kernel cannot watch the listener.
    pub fn start(
        listener: Listener,
        told: Option<(Rc<Session>, Option<ServerId>)>,
        guarded: Guarded,
        hear: MissingFileHandler,
    ) -> std::io::Result<Self> {
        let watched = std::os::fd::AsFd::as_fd(&listener).try_clone_to_owned()?;
        let watched = spawn::watch(watched, Interest::READABLE)?;
        let (listener, guarded) = (Rc::new(listener), Rc::new(guarded));
        let answering = agentsh_base::task::spawn_local(async move {
            serve(&watched, async || match listener.next_refused() {
                Ok(Some(refused)) => {
                    let left = match &told {
                        Some((session, server)) => {
                            let session: Rc<dyn GuardSession> = session.clone();
                            guarded.answer(&listener, refused, (&session, server.as_ref()))
                        }
                        None => Some(refused),
                    };
                    if let Some(refused) = left {
                        answer(&listener, &refused, told.as_ref(), hear);
                    }
                    Next::More
                }
                Ok(None) => Next::Empty,
                Err(_) => Next::Over,
            })
            .await;
        });
        Ok(Self(answering.abort_handle()))
    }
}

fn answer(
    listener: &Listener,
    refused: &NotifiedCall,
    told: Option<&(Rc<Session>, Option<ServerId>)>,
    hear: MissingFileHandler,
) {
    if let Some((session, server)) = told.filter(|(session, _)| session.facts.tells_files)
        && let Some(wanted) = listener.looked_for(refused)
    {
        hear(session, server.as_ref(), refused.pid, &wanted);
        listener.go_on(refused);
        return;
    }
    // The process waits for the answer, so it exists.
    let program = fs::read_to_string(format!("/proc/{}/comm", refused.pid)).unwrap_or_default();
    let program = program.trim_end_matches('\n');
    if let Some((session, server)) = told {
        let calls = &session.live.refusals.calls;
        calls.report_first(&session.record, server.as_ref(), program, refused.call);
    }
    listener.refuse(refused);
}
