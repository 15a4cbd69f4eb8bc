//! Threads that read, each with a connection of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::db::{Connection, Database, DbError};
use crate::refusal::Refusal;

/// Readers. A question takes tens of microseconds; two of them leave room for one that is slow.
const THREADS: usize = 2;
/// Questions that wait; further requests wait before they are asked.
const QUEUE: usize = 256;

type Question = Box<dyn FnOnce(&mut dyn Connection) + Send>;

#[derive(Clone)]
pub(crate) struct Pool {
    questions: mpsc::Sender<Question>,
}

impl Pool {
    /// Starts the threads, which end with the last clone.
    pub(crate) fn start(database: &Database) -> Result<Self, DbError> {
        let (questions, queue) = mpsc::channel::<Question>(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..THREADS {
            let (mut db, queue) = (database.connect()?, Arc::clone(&queue));
            let spawned = thread::Builder::new().name(format!("registry-reader-{number}")).spawn(move || {
                loop {
                    let question = queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                    let Some(question) = question else { return };
                    question(db.as_mut());
                }
            });
            spawned.map_err(|error| DbError(format!("cannot start a thread: {error}")))?;
        }
        Ok(Self { questions })
    }

    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Connection) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let gone = || Refusal::Unavailable("the readers have ended".into());
        let (reply, answered) = oneshot::channel();
        let question: Question = Box::new(move |db| {
            // Whoever asked may have hung up.
            let _heard = reply.send(question(db));
        });
        self.questions.send(question).await.map_err(|_| gone())?;
        Ok(answered.await.map_err(|_| gone())??)
    }
}
