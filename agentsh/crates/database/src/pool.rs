//! Reader threads, each with its own connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::{Connection, Database, DbError};

/// Questions that wait; further requests wait before they are asked.
const QUEUE: usize = 256;

type Question = Box<dyn FnOnce(&mut dyn Connection) + Send>;

#[derive(Clone)]
pub struct Pool {
    questions: mpsc::Sender<Question>,
}

impl Pool {
    /// Starts `threads`, which end with the last clone and are called by `name` and a number.
    ///
    /// # Errors
    /// When the database cannot be reached, or a thread not be started.
    pub fn start(database: &Database, name: &str, threads: usize) -> Result<Self, DbError> {
        let (questions, queue) = mpsc::channel::<Question>(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads {
            let (mut db, queue) = (database.connect(None)?, Arc::clone(&queue));
            let spawned = thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
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

    /// # Errors
    /// The error of the question; also when the threads have ended.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Connection) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, DbError> {
        let gone = || DbError("the readers have ended".to_owned());
        let (reply, answered) = oneshot::channel();
        let question: Question = Box::new(move |db| {
            // The requester may have disconnected.
            let _heard = reply.send(question(db));
        });
        self.questions.send(question).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}
