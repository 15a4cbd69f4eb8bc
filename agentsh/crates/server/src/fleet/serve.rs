//! Runs the server, from its options to its end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentsh_base::random;
use agentsh_database::{Database, DbError, Pool};
use axum::Router;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::fleet::asks;
use crate::fleet::event_ids::Places;
use crate::fleet::gate::Gate;
use crate::fleet::metrics::Metrics;
use crate::fleet::routes::{App, MAX_BATCHES, router};
use crate::fleet::schema;
use crate::fleet::sign_ins;
use crate::fleet::tls::{TlsListener, acceptor};

/// Threads that read.
const READERS: usize = 4;
/// Threads that write, each one batch at a time: the database joins their commits. A file has one writer.
const WRITERS: usize = 4;
/// How often days are made and forgotten.
const RETENTION_INTERVAL: Duration = Duration::from_secs(3600);

/// Reports something to the operator of the server.
pub type OperatorLog = Arc<dyn Fn(&str) + Send + Sync>;

pub struct Options {
    pub listen: SocketAddr,
    pub database: Database,
    /// Certificate and key, as PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// TLS ends before this server.
    pub behind_proxy: bool,
    /// Events are forgotten this many days after they arrived; None: never.
    pub keep_days: Option<u32>,
    pub bundles: Option<PathBuf>,
    pub tell: OperatorLog,
}

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "{0} is not a loopback address: give --tls-cert and --tls-key, or --behind-proxy where TLS ends before it"
    )]
    NoTls(SocketAddr),
    #[error("{0}")]
    Tls(String),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error("the database cannot be used: {0}")]
    Database(#[from] DbError),
    #[error("the server ended: {0}")]
    Io(io::Error),
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    acceptor: Option<tokio_rustls::TlsAcceptor>,
    app: Arc<App>,
    address: SocketAddr,
    keep_days: Option<u32>,
    database: Database,
    tell: OperatorLog,
}

impl Server {
    /// Opens the database and the address.
    ///
    /// # Errors
    /// Plain text for other machines, an address in use, a database that cannot be opened.
    pub async fn open(options: Options) -> Result<Self, ServeError> {
        let listen = options.listen;
        if !listen.ip().is_loopback() && options.tls.is_none() && !options.behind_proxy {
            return Err(ServeError::NoTls(listen));
        }
        let acceptor = options.tls.as_ref().map(|(certificate, key)| acceptor(certificate, key)).transpose();
        let acceptor = acceptor.map_err(ServeError::Tls)?;
        let listener = TcpListener::bind(listen).await.map_err(|error| ServeError::Listen(listen, error))?;
        let address = listener.local_addr().map_err(|error| ServeError::Listen(listen, error))?;
        let low = random::hex::<2>().map_err(ServeError::Io)?;
        let database = options.database;
        // The client of PostgreSQL waits, which the thread of the server must not.
        let kept = database.clone();
        let opened = tokio::task::spawn_blocking(move || {
            schema::prepare(&database)?;
            let writers = if matches!(database, Database::File(_)) { 1 } else { WRITERS };
            let readers = Pool::start(&database, "fleet-reader", READERS)?;
            Ok::<_, DbError>((readers, Pool::start(&database, "fleet-writer", writers)?))
        });
        let (readers, writers) = opened.await.map_err(|error| ServeError::Io(io::Error::other(error)))??;
        let app = App {
            readers,
            writers,
            places: Arc::new(Places::new(
                u16::from_str_radix(&low, 16).unwrap_or_default(),
                Arc::clone(&options.tell),
            )),
            batches: Semaphore::new(MAX_BATCHES),
            by_host: std::sync::Mutex::default(),
            metrics: Metrics::default(),
            bundles: options.bundles,
        };
        let (keep_days, tell) = (options.keep_days, options.tell);
        Ok(Self { listener, acceptor, app: Arc::new(app), address, keep_days, database: kept, tell })
    }

    /// The address it listens on; the port is known even if it was requested as 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.acceptor.is_some() { "https" } else { "http" }
    }

    /// The routes, for [`crate::Client::in_process`].
    pub fn answers(&self) -> Router {
        router(Arc::clone(&self.app))
    }

    /// Identifies callers, and people of an identity provider, for what is served on the same port.
    #[must_use]
    pub fn gate(&self) -> Gate {
        Gate::of(Arc::clone(&self.app))
    }

    /// Serves, with `pages` next to its own paths, until `stop` is ready; requests that run are finished.
    ///
    /// # Errors
    /// When nothing more can be accepted.
    pub async fn run(
        self,
        pages: Router,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        let keeping = tokio::spawn(keep(Arc::clone(&self.app), self.keep_days, self.database, self.tell));
        let service = router(self.app).merge(pages);
        let served = match self.acceptor {
            None => axum::serve(self.listener, service).with_graceful_shutdown(stop).await,
            Some(acceptor) => {
                let listener = TlsListener::start(self.listener, self.address, acceptor);
                axum::serve(listener, service).with_graceful_shutdown(stop).await
            }
        };
        keeping.abort();
        served.map_err(ServeError::Io)
    }
}

/// Makes the days to come and forgets those that are over. What fails is tried again with the next round.
async fn keep(app: Arc<App>, keep_days: Option<u32>, database: Database, tell: OperatorLog) {
    loop {
        let made = app.writers.ask(|db| schema::make_days(db, Timestamp::now())).await;
        log_outcome(&app.metrics, &tell, "days", &made);
        let forgotten = app
            .writers
            .ask(move |db| {
                asks::forget(db)?;
                sign_ins::forget(db)?;
                if let Some(days) = keep_days {
                    schema::forget(db, Timestamp::now(), days)?;
                }
                Ok(())
            })
            .await;
        log_outcome(&app.metrics, &tell, "forgetting", &forgotten);
        // On a separate connection, because it takes long. After dropped days, because building an index on one would block
        // the table.
        let (own, app, tell) = (database.clone(), Arc::clone(&app), Arc::clone(&tell));
        tokio::task::spawn_blocking(move || {
            let completed = own.connect(None).and_then(|mut db| schema::complete(db.as_mut()).map(drop));
            log_outcome(&app.metrics, &tell, "indexes", &completed);
        });
        tokio::time::sleep(RETENTION_INTERVAL).await;
    }
}

/// Says when something begins to fail, and when it no longer does.
fn log_outcome(metrics: &Metrics, tell: &OperatorLog, what: &'static str, done: &Result<(), DbError>) {
    if !metrics.note_task(what, done.is_err()) {
        return;
    }
    let (thing, verb) = match what {
        "days" => ("tables for the days to come", "made"),
        "forgetting" => ("events and sign-ins that are over", "forgotten"),
        _ => ("indexes of the tables of days", "completed"),
    };
    match done {
        Ok(()) => tell(&format!("{thing} are {verb} again")),
        Err(error) => tell(&format!("{thing} cannot be {verb}: {error}; retried every hour")),
    }
}
