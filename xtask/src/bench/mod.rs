//! x
use anyhow::Result;
use clap::Args;
#[derive(Debug, Args)]
pub struct Options {}
pub fn main(_: &Options) -> Result<bool> {
    Ok(true)
}
