//! Reads and writes the maps.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use agentsh_ebpf::{Counter, Net, Origin, Place, Sandbox, Traffic, words};
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray};
use ipnet::IpNet;

use super::EbpfError;
use super::load::chain;

/// The addresses of one sandbox. The relay must be bound to exactly these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    pub listener_v4: Option<SocketAddrV4>,
    pub listener_v6: Option<SocketAddrV6>,
    /// The resolver, if it is not on loopback, which is always reachable.
    pub resolver: Option<SocketAddr>,
}

/// Counters since loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events lost in a full ring, and connections without room for their origin.
    pub lost: u64,
    /// Connects and datagrams.
    pub refused: u64,
    pub refused_sockets: u64,
    pub dropped_packets: u64,
}

pub struct Tables {
    sandboxes: HashMap<MapData, u64, [u8; Sandbox::SIZE]>,
    allowed: HashMap<MapData, [u8; Place::SIZE], u32>,
    nets: LpmTrie<MapData, [u8; Net::SIZE], u32>,
    origins: HashMap<MapData, [u8; Place::SIZE], [u8; Origin::SIZE]>,
    traffic: HashMap<MapData, u64, [u8; Traffic::SIZE]>,
    counters: PerCpuArray<MapData, u64>,
    /// Entries of each sandbox, for removal.
    given: BTreeMap<u64, TableContents>,
}

#[derive(Default)]
struct TableContents {
    places: Vec<[u8; Place::SIZE]>,
    nets: Vec<(u32, [u8; Net::SIZE])>,
}

impl Tables {
    pub fn new(maps: &mut BTreeMap<String, MapData>) -> Result<Self, EbpfError> {
        Ok(Self {
            sandboxes: HashMap::try_from(take(maps, "SANDBOXES")?).map_err(|e| mismatch("SANDBOXES", &e))?,
            allowed: HashMap::try_from(take(maps, "ALLOWED")?).map_err(|e| mismatch("ALLOWED", &e))?,
            nets: LpmTrie::try_from(take(maps, "NETS")?).map_err(|e| mismatch("NETS", &e))?,
            origins: HashMap::try_from(take(maps, "ORIGINS")?).map_err(|e| mismatch("ORIGINS", &e))?,
            traffic: HashMap::try_from(take(maps, "TRAFFIC")?).map_err(|e| mismatch("TRAFFIC", &e))?,
            counters: PerCpuArray::try_from(take(maps, "COUNTERS")?).map_err(|e| mismatch("COUNTERS", &e))?,
            given: BTreeMap::new(),
        })
    }

    pub fn configure(&mut self, cgroup: u64, config: &SandboxConfig) -> Result<(), EbpfError> {
        let sandbox = Sandbox::new(config.listener_v4, config.listener_v6, config.resolver);
        self.sandboxes
            .insert(cgroup, sandbox.to_bytes(), 0)
            .map_err(|error| failed("take the addresses of a sandbox", &error))
    }

    pub fn allow(&mut self, cgroup: u64, address: IpAddr, port: u16) -> Result<(), EbpfError> {
        let place = Place::new(cgroup, words(address), port).to_bytes();
        self.allowed.insert(place, 1, 0).map_err(|error| failed("take an allowed address", &error))?;
        self.given.entry(cgroup).or_default().places.push(place);
        Ok(())
    }

    pub fn allow_net(&mut self, cgroup: u64, net: IpNet, port: Option<u16>) -> Result<(), EbpfError> {
        let (bits, data) = net_key(cgroup, net, port);
        self.nets
            .insert(&Key::new(bits, data), 1, 0)
            .map_err(|error| failed("take an allowed network", &error))?;
        self.given.entry(cgroup).or_default().nets.push((bits, data));
        Ok(())
    }

    /// Returns and removes the entry.
    pub fn origin(&mut self, cgroup: u64, peer: SocketAddr) -> Option<Origin> {
        let place = Place::new(cgroup, words(peer.ip()), peer.port()).to_bytes();
        let origin = self.origins.get(&place, 0).ok()?;
        self.origins.remove(&place).ok()?;
        Some(Origin::from_bytes(&origin))
    }

    pub fn traffic(&self, cookie: u64) -> Option<Traffic> {
        self.traffic.get(&cookie, 0).ok().map(|bytes| Traffic::from_bytes(&bytes))
    }

    /// Afterwards everything in that cgroup is refused.
    pub fn remove(&mut self, cgroup: u64) {
        // A missing entry needs no removal.
        let _ = self.sandboxes.remove(&cgroup);
        let given = self.given.remove(&cgroup).unwrap_or_default();
        for place in &given.places {
            let _ = self.allowed.remove(place);
        }
        for (bits, data) in &given.nets {
            let _ = self.nets.remove(&Key::new(*bits, *data));
        }
        let origins: Vec<_> = self.origins.keys().filter_map(Result::ok).collect();
        for place in origins.iter().filter(|place| Place::from_bytes(place).cgroup == cgroup) {
            let _ = self.origins.remove(place);
        }
    }

    pub fn counters(&self) -> Counters {
        let sum = |counter: Counter| {
            self.counters
                .get(&(counter as u32), 0)
                .map_or(0, |values| values.iter().fold(0_u64, |sum, value| sum.saturating_add(*value)))
        };
        Counters {
            lost: sum(Counter::Lost),
            refused: sum(Counter::Refused),
            refused_sockets: sum(Counter::RefusedSockets),
            dropped_packets: sum(Counter::DroppedPackets),
        }
    }

    /// Connections of all sandboxes whose origin was not read yet.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.origins.keys().count()
    }
}

/// A network's key: prefix in bits, and data.
#[must_use]
pub fn net_key(cgroup: u64, net: IpNet, port: Option<u16>) -> (u32, [u8; Net::SIZE]) {
    let net = net.trunc();
    let address = words(net.network());
    let inside = match net {
        IpNet::V4(net) => 96 + u32::from(net.prefix_len()),
        IpNet::V6(net) => u32::from(net.prefix_len()),
    };
    (Net::FIXED_BITS + inside, Net::new(cgroup, address, port.unwrap_or(0)).to_bytes())
}

pub fn take(maps: &mut BTreeMap<String, MapData>, name: &str) -> Result<Map, EbpfError> {
    let data = maps.remove(name).ok_or_else(|| EbpfError::Object(format!("it has no map {name}")))?;
    Map::from_map_data(data).map_err(|error| mismatch(name, &error))
}

fn mismatch(name: &str, error: &MapError) -> EbpfError {
    EbpfError::Object(format!("the map {name} is not as expected: {}", chain(error)))
}

fn failed(what: &'static str, error: &MapError) -> EbpfError {
    EbpfError::Table { what, why: chain(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_key_is_a_prefix_of_its_addresses() {
        let (bits, data) = net_key(7, "10.1.2.3/8".parse().unwrap(), Some(443));
        assert_eq!(bits, 96 + 96 + 8);
        let inside = Net::new(7, words("10.200.0.1".parse().unwrap()), 443).to_bytes();
        assert_eq!(data[..25], inside[..25]);
        assert_eq!(data[25..], [0, 0, 0]);
        let (bits, _) = net_key(7, "::/0".parse().unwrap(), None);
        assert_eq!(bits, Net::FIXED_BITS);
    }

    #[test]
    fn an_ipv6_network_does_not_hold_ipv4_addresses() {
        let (_, all) = net_key(7, "::/0".parse().unwrap(), None);
        let v4 = Net::new(7, words("10.0.0.1".parse().unwrap()), 0).to_bytes();
        let v6 = Net::new(7, words("2001:db8::1".parse().unwrap()), 0).to_bytes();
        assert_ne!(all[..12], v4[..12]);
        assert_eq!(all[..12], v6[..12]);
        // An IPv4 address mapped to IPv6 is still IPv4.
        let (_, mapped) = net_key(7, "::ffff:10.0.0.0/104".parse().unwrap(), None);
        assert_eq!(mapped[..25], net_key(7, "10.0.0.0/8".parse().unwrap(), None).1[..25]);
    }
}
