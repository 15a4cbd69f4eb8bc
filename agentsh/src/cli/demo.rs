//! x
use clap::Args;
#[derive(Debug, Args)]
pub struct DemoArgs {}
pub const SERVER_VERB: &str = "__demo-server";
pub const AGENT_VERB: &str = "__demo-agent";
pub fn server() -> u8 {
    0
}
pub fn agent() -> u8 {
    0
}
pub async fn run(_: DemoArgs) -> u8 {
    0
}
