//! x
use clap::Args;
#[derive(Debug, Args)]
pub struct DoctorArgs {}
pub async fn run(_: DoctorArgs) -> u8 {
    0
}
