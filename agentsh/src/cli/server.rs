//! `agentsh-server`, which serves fleets and registries: how `agentsh` finds and starts it, and what the two share.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use agentsh_terminal::output::Failure;

pub use super::fleet::Fleet;
pub use super::fleet::approvals::{answer as answer_question, waiting};
pub use super::fleet::people::TokenArgs;
pub use super::fleet::serve::{DatabaseArgs, OidcArgs, Registers, ServeArgs as FleetArgs};
pub use super::on_one_thread;
pub use super::registry::serve::ServeArgs as RegistryArgs;
pub use super::ui::approvals::question;
pub use super::ui::rows::RowContext;
pub use super::ui::session::of_fleet;

/// The version of this build, for programs of the same release.
pub const VERSION: &str = env!("AGENTSH_VERSION");

/// The name of the program.
const PROGRAM: &str = "agentsh-server";

/// Replaces this process by `agentsh-server` with the same arguments: the one next to `agentsh`, else the first one on PATH.
pub(super) fn hand_over() -> Failure {
    let Some(program) = find() else {
        return Failure::Failed(format!(
            "{PROGRAM} is neither next to agentsh nor on PATH: it comes with the packages of agentsh, and \
             `cargo install --locked --path agentsh/crates/server` builds it"
        ));
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "agentsh's own program, in place of this one and with the same rights"
    )]
    let error = std::process::Command::new(&program).args(std::env::args_os().skip(1)).exec();
    Failure::Failed(format!("cannot start '{}': {error}", program.display()))
}

fn find() -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = beside.into_iter().chain(std::env::split_paths(&path).filter(|place| place.is_absolute()));
    places.map(|place| place.join(PROGRAM)).find(|program| program.is_file())
}
