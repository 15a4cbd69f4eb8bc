//! The addresses that stand for names inside one sandbox. Pure.
//!
//! A program that resolves an allowed name gets an address pair out of two private blocks; a connection to that
//! address is a connection to that name. A pair belongs to its name for the life of the sandbox, so that an answer
//! cached by the program never means another name.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::allow::Allowlist;

/// IPv4 addresses of names: the upper half of the block for benchmarks (RFC 2544), which is public nowhere.
pub const V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 19, 0, 0), 16);
/// IPv6 addresses of names: a block of unique local addresses (RFC 4193).
pub const V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd61, 0x6773, 0x6800, 0, 0, 0, 0, 0), 64);
/// Most names that may be asked for under wildcards. Names that the policy spells out always have a place.
pub const MAX_WILDCARD_NAMES: usize = 4096;
/// Most names altogether: what fits between the first and the last address of [`V4`].
const MAX_NAMES: usize = 65_534;

/// One address pair per name.
#[derive(Debug, Default)]
pub struct FakeIpPool {
    numbers: BTreeMap<String, u16>,
    /// The name with number n stands at n - 1.
    names: Vec<String>,
    spelled_out: usize,
}

impl FakeIpPool {
    /// A pool in which every name that the policy spells out has its place already: names asked for under wildcards
    /// cannot take it away.
    #[must_use]
    pub fn new(allow: &Allowlist) -> Self {
        let mut pool = Self::default();
        for name in allow.exact_names() {
            pool.number(name, MAX_NAMES);
        }
        pool.spelled_out = pool.names.len();
        pool
    }

    /// The pair of a name, which must be in its one spelling and allowed. None when the pool is full.
    pub fn address_of(&mut self, name: &str) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let most = MAX_NAMES.min(self.spelled_out + MAX_WILDCARD_NAMES);
        self.number(name, most).map(pair)
    }

    /// The name that an address stands for.
    #[must_use]
    pub fn name_of(&self, address: IpAddr) -> Option<&str> {
        let number = match address.to_canonical() {
            IpAddr::V4(v4) => u32::from(v4).checked_sub(u32::from(V4.network()))?.into(),
            IpAddr::V6(v6) => u128::from(v6).checked_sub(u128::from(V6.network()))?,
        };
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.names.get(index).map(String::as_str)
    }

    /// Whether an address belongs to the pool at all, given to a name or not.
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
