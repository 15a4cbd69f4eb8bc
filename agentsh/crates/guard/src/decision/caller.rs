//! From where a request of a client came to a gateway.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The client's side of a request over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub address: IpAddr,
    /// Those that rules name, in lower case, with all their values.
    pub headers: BTreeMap<String, Vec<String>>,
}
