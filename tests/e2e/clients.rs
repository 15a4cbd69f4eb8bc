//! x
use crate::place::Starter;
pub struct Client {
    pub name: &'static str,
}
pub struct Server {
    pub name: &'static str,
}
pub const CLIENTS: &[Client] = &[];
pub const SERVERS: &[Server] = &[];
pub fn same(_: &Client, _: &Server, _: Starter) {}
