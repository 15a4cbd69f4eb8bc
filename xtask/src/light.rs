//! Tasks that need many packages: `cargo xtask` is built without these, so that the tests start sooner, and passes the task on
//! to an xtask that has them.

use anyhow::{Context, Result};
use clap::Args;

use crate::run;

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// As the whole xtask takes them; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

macro_rules! pass_on {
    ($($task:ident),*) => {
        $(pub mod $task {
            pub use super::Options;

            /// # Errors
            /// When cargo cannot be started.
            pub fn main(options: &Options) -> anyhow::Result<bool> {
                super::pass_on(stringify!($task), options)
            }
        })*
    };
}

pass_on!(alarms, calibrate, dist, walk);

fn pass_on(task: &str, options: &Options) -> Result<bool> {
    let mut command = run::cargo(["run", "--quiet", "--package", "xtask", "--", task]);
    let status = command.args(&options.arguments).status().context("cannot start cargo")?;
    Ok(status.success())
}
