//! The calls that the filter of a sandbox hands to the session, answered while it lives: new names for guarded files, files that
//! a program looked for, and calls that are refused.

use std::fs;
use std::rc::Rc;

use tokio::io::Interest;

use super::draining::{Next, serve};
use super::{Session, refused_calls};
use agentsh_base::types::ServerId;
use agentsh_guards::{GuardSession, Guarded};
use agentsh_sandbox::seccomp::MissingFile;
use agentsh_sandbox::seccomp::listener::{Listener, Refused};
use agentsh_sandbox::spawn;

/// Answers the calls of one sandbox while it lives.
#[derive(Debug)]
pub struct CallResponder(tokio::task::AbortHandle);

impl Drop for CallResponder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Hears of a file that a process looked for.
pub type Hear = fn(&Session, Option<&ServerId>, u32, &MissingFile);

impl CallResponder {
    /// `told`: who hears of it, and whose sandbox it is. `guarded`: what renames are decided about. `hear`: of files, where the
    /// session tells them.
    ///
    /// # Errors
    /// When the kernel cannot watch the listener.
    pub fn start(
        listener: Listener,
        told: Option<(Rc<Session>, Option<ServerId>)>,
        guarded: Guarded,
        hear: Hear,
    ) -> std::io::Result<Self> {
        let watched = std::os::fd::AsFd::as_fd(&listener).try_clone_to_owned()?;
        let watched = spawn::watch(watched, Interest::READABLE)?;
        let (listener, guarded) = (Rc::new(listener), Rc::new(guarded));
        let answering = tokio::task::spawn_local(async move {
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
    refused: &Refused,
    told: Option<&(Rc<Session>, Option<ServerId>)>,
    hear: Hear,
) {
    if let Some((session, server)) = told.filter(|(session, _)| session.facts.tells_files)
        && let Some(wanted) = listener.looked_for(refused)
    {
        hear(session, server.as_ref(), refused.pid, &wanted);
        listener.go_on(refused);
        return;
    }
    // As long as it waits it is there.
    let program = fs::read_to_string(format!("/proc/{}/comm", refused.pid)).unwrap_or_default();
    let program = program.trim_end_matches('\n');
    if let Some((session, server)) = told {
        refused_calls::refused(session, server.as_ref(), program, refused.call);
    }
    listener.refuse(refused);
}
