//! The registry on PostgreSQL as Debian packages it. The test starts the server, and is skipped where PostgreSQL is
//! missing.

use super::{pages, server};
use crate::support::{Mode, Place, postgres, skip};

#[test]
#[ignore = "takes long"]
fn registry_on_postgres_answers_as_on_a_file() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let mode = Mode::all().into_iter().find(|mode| !mode.is_root());
    let Some(mode) = mode else { return skip("no ordinary user") };
    let suite: [fn(&Place); 8] = [
        server::first_holds,
        server::rejections_stick,
        server::poison_leaves_nothing,
        server::races_are_decided,
        server::two_registries,
        server::what_expires,
        server::the_command_line,
        pages::decided,
    ];
    for test in suite {
        let place = Place::new(mode);
        let cluster = postgres::start(&place, &bin);
        place.write(place.home.join("database.url"), &cluster.url);
        test(&place);
    }
}
