//! Private addresses that stand for names in one sandbox. Pure.
//!
//! An allowed name resolves to an address pair, and a connection to it is a connection to that name. A pair keeps its
//! name for the life of the sandbox, so cached answers stay valid.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::allow::Allowlist;

/// The upper half of the benchmark block (RFC 2544), which is never public.
pub const V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 19, 0, 0), 16);
/// A block of unique local addresses (RFC 4193).
pub const V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd61, 0x6773, 0x6800, 0, 0, 0, 0, 0), 64);
/// Limit of names that match wildcards. Exact names always have an address.
pub const MAX_WILDCARD_NAMES: usize = 4096;
/// Limit of all names: the usable addresses of [`V4`].
const MAX_NAMES: usize = 65_534;

/// One address pair per name.
#[derive(Debug, Default)]
pub struct FakeIpPool {
    numbers: BTreeMap<String, u16>,
    /// Name n is at index n - 1.
    names: Vec<String>,
    spelled_out: usize,
}

impl FakeIpPool {
    /// Reserves addresses for all exact names, so that wildcards cannot use them up.
    #[must_use]
    pub fn new(allow: &Allowlist) -> Self {
        let mut pool = Self::default();
        for name in allow.exact_names() {
            pool.number(name, MAX_NAMES);
        }
        pool.spelled_out = pool.names.len();
        pool
    }

    /// The pair of an allowed, normalised name. None when the pool is full.
    pub fn address_of(&mut self, name: &str) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let most = MAX_NAMES.min(self.spelled_out + MAX_WILDCARD_NAMES);
        self.number(name, most).map(pair)
    }

    #[must_use]
    pub fn name_of(&self, address: IpAddr) -> Option<&str> {
        let number = match address.to_canonical() {
            IpAddr::V4(v4) => u32::from(v4).checked_sub(u32::from(V4.network()))?.into(),
            IpAddr::V6(v6) => u128::from(v6).checked_sub(u128::from(V6.network()))?,
        };
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.names.get(index).map(String::as_str)
    }

    /// Whether an address is in the pool, assigned or not.
    #[must_use]
    pub fn contains(address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => V4.contains(&v4),
            IpAddr::V6(v6) => V6.contains(&v6),
        }
    }

    fn number(&mut self, name: &str, most: usize) -> Option<u16> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.names.len() >= most {
            return None;
        }
        let number = u16::try_from(self.names.len() + 1).ok()?;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }
}

fn pair(number: u16) -> (Ipv4Addr, Ipv6Addr) {
    let v4 = u32::from(V4.network()) + u32::from(number);
    let v6 = u128::from(V6.network()) + u128::from(number);
    (v4.into(), v6.into())
}

#[cfg(test)]
mod tests {
    use super::{V4, V6};
    use agentsh_egress::special_use::special;

    #[test]
    fn the_pool_is_not_public() {
        assert!(special(V4.network().into()).is_some() && special(V6.network().into()).is_some());
    }
}
