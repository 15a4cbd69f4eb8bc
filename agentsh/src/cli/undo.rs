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
    /// A file that a session changed or restored, or a directory with all such files in it
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
        let mut is_known = false;
        for path in std::iter::once(path.clone()).chain(undo::kept_below(&state, &path)) {
            match undo::undo(&state, &path) {
                Ok(Some(done)) => {
                    is_known = true;
                    let done = agentsh_store::escape::line(&done).into_owned();
                    drop(writeln!(style::prose(&mut std::io::stdout()), "{done}"));
                }
                Ok(None) => {}
                Err(error) => return fail(&format!("cannot restore {}: {error}", path.display())),
            }
        }
        if !is_known {
            fail(&format!("no session kept another version of {}", path.display()));
            return exit::NO;
        }
    }
    0
}
