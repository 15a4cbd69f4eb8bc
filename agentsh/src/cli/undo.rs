//! `agentsh undo FILE`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::fail;
use agentsh_host::Context;
use agentsh_host::undo;
use agentsh_terminal::{exit, style};

#[derive(Debug, Args)]
pub struct UndoArgs {
    /// A file that a session changed or restored
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub fn run(args: &UndoArgs) -> u8 {
    let state = match Context::find_for_server() {
        Ok((context, _)) => context.state,
        Err(error) => return fail(&error.to_string()),
    };
    for file in &args.files {
        let path = undo::absolute(file);
        match undo::undo(&state, &path) {
            Ok(Some(done)) => {
                drop(writeln!(style::prose(&mut std::io::stdout()), "{}", agentsh_store::escape::line(&done)))
            }
            Ok(None) => {
                fail(&format!("no session kept another version of {}", path.display()));
                return exit::NO;
            }
            Err(error) => return fail(&format!("cannot restore {}: {error}", path.display())),
        }
    }
    0
}
