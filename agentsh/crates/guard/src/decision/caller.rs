//! The origin of a gateway client's request.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The client's side of a request over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub address: IpAddr,
    /// The headers that rules name, in lower case, with all their values.
    pub headers: BTreeMap<String, Vec<String>>,
}
