//! One database for the fleet and its registry, and the route that says whether it answers.

use super::Server;
use crate::support::{Mode, Outcome, Place, postgres, skip};

#[test]
fn on_postgres_the_server_says_that_it_is_well_and_the_registry_says_whose_database_it_is() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let at = Place::new(mode);
    let mut cluster = postgres::start(&at, &bin);
    let server = Server::start(&at, &cluster.url, &[]);
    let health = || server.raw("GET", "/healthz", &[], b"").0;
    assert_eq!(health(), 200);
    let registry = Outcome::of(&mut at.agentsh(&[
        "registry",
        "serve",
        "--open",
        "--listen",
        "127.0.0.1:0",
        "--database",
        &cluster.url,
    ]));
    assert_ne!(registry.code, 0, "{registry}");
    assert!(registry.stderr.contains("belongs to a fleet server"), "{registry}");
    cluster.end();
    assert_eq!(health(), 503);
}
