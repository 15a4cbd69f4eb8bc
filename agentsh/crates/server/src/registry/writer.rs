//! The only thread that writes. Changes that arrive during a transaction share the next one (group commit), so many
//! writers cost one disk flush.

use std::thread;

use tokio::sync::{mpsc, oneshot};

use agentsh_database::{Connection, Database, DbError};
use agentsh_registrar::changes::Ledger;
use agentsh_registrar::refusal::Refusal;
use agentsh_registrar::schema;

/// Changes that wait; further requests wait before they are read.
const QUEUE: usize = 256;
/// Changes in one transaction.
const BATCH: usize = 128;

#[derive(Clone)]
pub(crate) struct Writer {
    orders: mpsc::Sender<Box<dyn Order>>,
}

/// A change: applied in a transaction, answered once that is on disk.
trait Order: Send {
    fn apply(&mut self, ledger: &mut Ledger<'_>) -> Result<(), DbError>;
    fn answer(self: Box<Self>, committed: Result<(), DbError>);
}

struct Change<T, F> {
    work: Option<F>,
    outcome: Option<Result<T, Refusal>>,
    reply: oneshot::Sender<Result<T, Refusal>>,
}

impl Writer {
    /// Starts the thread, which ends with the last clone.
    pub(crate) fn start(database: &Database) -> Result<Self, DbError> {
        let mut db = database.connect(Some(schema::WRITERS))?;
        let (orders, mut queue) = mpsc::channel::<Box<dyn Order>>(QUEUE);
        let spawned = thread::Builder::new().name("registry-writer".into()).spawn(move || {
            while let Some(order) = queue.blocking_recv() {
                let mut batch = vec![order];
                while batch.len() < BATCH
                    && let Ok(order) = queue.try_recv()
                {
                    batch.push(order);
                }
                let committed = transaction(db.as_mut(), &mut batch);
                for order in batch {
                    order.answer(committed.clone());
                }
            }
        });
        spawned.map_err(|error| DbError(format!("cannot start a thread: {error}")))?;
        Ok(Self { orders })
    }

    /// Runs the work in a transaction. What it refuses changed nothing: checks come before changes.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Ledger<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let gone = || Refusal::Unavailable("the writer has ended".into());
        let (reply, answered) = oneshot::channel();
        let order = Change { work: Some(work), outcome: None, reply };
        self.orders.send(Box::new(order)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn transaction(db: &mut dyn Connection, batch: &mut [Box<dyn Order>]) -> Result<(), DbError> {
    let run = |db: &mut dyn Connection, batch: &mut [Box<dyn Order>]| {
        db.begin()?;
        let mut ledger = Ledger::new(db);
        for order in batch {
            order.apply(&mut ledger)?;
        }
        db.commit()
    };
    run(db, batch).inspect_err(|_| db.rollback())
}

impl<T: Send, F: FnOnce(&mut Ledger<'_>) -> Result<T, Refusal> + Send> Order for Change<T, F> {
    fn apply(&mut self, ledger: &mut Ledger<'_>) -> Result<(), DbError> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let outcome = work(ledger);
        if let Err(Refusal::Unavailable(reason)) = &outcome {
            return Err(DbError(reason.clone()));
        }
        self.outcome = Some(outcome);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), DbError>) {
        let outcome = match (committed, self.outcome) {
            (Ok(()), Some(outcome)) => outcome,
            // A refusal is final, even if changes of others failed.
            (Err(_), Some(Err(refusal))) => Err(refusal),
            (Err(error), _) => Err(error.into()),
            (Ok(()), None) => Err(Refusal::Unavailable("nothing was changed".into())),
        };
        // The requester may have disconnected.
        let _heard = self.reply.send(outcome);
    }
}
