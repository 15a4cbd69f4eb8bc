//! Runs the server, from its options to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use jiff::SignedDuration;
use tokio::net::TcpListener;

use crate::registry::routes::{App, router};
use crate::registry::writer::Writer;
use agentsh_database::{Database, DbError, Pool};
use agentsh_registrar::access::Operators;
use agentsh_registrar::schema;

/// Threads that read. A question takes tens of microseconds; two of them leave room for one that is slow.
const READERS: usize = 2;

/// Servers that hosts of a fleet may register.
const MAX_OF_HOSTS: i64 = 1_000_000;

/// How a registry is run.
pub struct Options {
    pub listen: SocketAddr,
    pub database: Database,
    pub operators: Operators,
    /// Registration and requests for approval without a token, from this machine. Loopback addresses only.
    pub open: bool,
    /// Names next to those of the loopback by which clients call this server.
    pub hosts: Vec<String>,
    /// TLS ends before this server: without it only loopback addresses are listened on.
    pub behind_proxy: bool,
    /// How long a registration holds; None: until it is superseded or revoked.
    pub valid_for: Option<SignedDuration>,
    /// How long a request for approval waits.
    pub answer_within: SignedDuration,
    /// Servers that may be registered without a token.
    pub most_servers: u32,
}

/// A registry behind another server, which names the caller.
pub struct Mounted {
    pub database: Database,
    /// Hosts may register what nobody has registered.
    pub open: bool,
    pub answer_within: SignedDuration,
}

impl Mounted {
    /// Opens the database. Every request needs a [`crate::Caller`] among its extensions.
    ///
    /// # Errors
    /// A database that cannot be opened.
    pub async fn open(self) -> Result<Router, ServeError> {
        let (pool, writer) = open_database(self.database).await?;
        Ok(router(Arc::new(App {
            pool,
            writer,
            operators: Operators::default(),
            hosts: Vec::new(),
            is_told: true,
            open: self.open,
            most_servers: MAX_OF_HOSTS,
            valid_for: None,
            answer_within: self.answer_within,
            bodies: App::bodies(),
        })))
    }
}

/// The client of PostgreSQL waits, which the thread of the server must not.
async fn open_database(database: Database) -> Result<(Pool, Writer), ServeError> {
    let opened = tokio::task::spawn_blocking(move || {
        database.prepare(schema::WRITERS, &schema::TABLES).map_err(|error| {
            // Both have a table `servers`, of other columns.
            let fleets =
                database.connect(None).and_then(|mut db| db.rows("SELECT version FROM fleet_schema", &[]));
            match fleets {
                Ok(_) => DbError(
                    "this database belongs to a fleet server; give the registry its own with --database"
                        .to_owned(),
                ),
                Err(_) => error,
            }
        })?;
        Ok::<_, DbError>((Pool::start(&database, "registry-reader", READERS)?, Writer::start(&database)?))
    });
    Ok(opened.await.map_err(|error| ServeError::Io(io::Error::other(error)))??)
}

/// Why the registry does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("an open registry must listen on a loopback address, and not behind a proxy: {0}")]
    OpenToOthers(SocketAddr),
    #[error("{0} is not a loopback address: a proxy must terminate TLS (--behind-proxy)")]
    NoTls(SocketAddr),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error(transparent)]
    Database(#[from] DbError),
    #[error("the server ended: {0}")]
    Io(io::Error),
}

/// A registry that listens.
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
    address: SocketAddr,
}

impl Server {
    /// Opens the database and the address.
    ///
    /// # Errors
    /// Options that would let strangers decide, an address in use, a database that cannot be opened.
    pub async fn open(options: Options) -> Result<Self, ServeError> {
        let listen = options.listen;
        // Behind a proxy everybody has an address of this machine.
        if options.open && (options.behind_proxy || !listen.ip().is_loopback()) {
            return Err(ServeError::OpenToOthers(listen));
        }
        if !options.behind_proxy && !listen.ip().is_loopback() {
            return Err(ServeError::NoTls(listen));
        }
        let listener = TcpListener::bind(listen).await.map_err(|error| ServeError::Listen(listen, error))?;
        let address = listener.local_addr().map_err(|error| ServeError::Listen(listen, error))?;
        let (pool, writer) = open_database(options.database).await?;
        let mut hosts = options.hosts;
        hosts.extend(["127.0.0.1", "localhost", "[::1]"].map(str::to_owned));
        let app = App {
            pool,
            writer,
            operators: options.operators,
            hosts,
            is_told: false,
            open: options.open,
            most_servers: i64::from(options.most_servers),
            valid_for: options.valid_for,
            answer_within: options.answer_within,
            bodies: App::bodies(),
        };
        Ok(Self { listener, app: Arc::new(app), address })
    }

    /// The address it listens on; the port is known even if it was requested as 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is ready; requests that run are finished.
    ///
    /// # Errors
    /// When nothing more can be accepted.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), ServeError> {
        let service = router(self.app).into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(self.listener, service).with_graceful_shutdown(stop).await.map_err(ServeError::Io)
    }
}
