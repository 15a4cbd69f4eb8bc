//! `agentsh registry`: hashes of interfaces, and the server that keeps them.

mod evil;
mod listing;
mod live;
mod pages;
mod postgres;
mod routes;
mod server;
mod wire;
