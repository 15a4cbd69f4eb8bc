//! Address ranges that are allowed for addresses which the user configured himself.

use ipnet::IpNet;

use agentsh_base::types::RuleRef;
use agentsh_egress::special_use::METADATA;
use agentsh_policy::Ruled;

/// Where a user's model or package registry may be: the address that the user wrote counts, also
/// inside a private network. Not among them: the addresses at which clouds keep their credentials.
const USERS_NETWORKS: [&str; 12] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
    // Set aside for documentation and benchmarks: closed networks number their mirrors from them.
    "192.0.2.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "2001:db8::/32",
];

/// Private networks that may contain a name from the user's own configuration, as conditions of its rule.
#[must_use]
pub fn users_networks(rule: &RuleRef) -> Vec<Ruled<IpNet>> {
    let blocks = USERS_NETWORKS.iter().filter_map(|block| block.parse().ok()).flat_map(without_metadata);
    blocks.map(|value| Ruled { value, rule: rule.clone() }).collect()
}

/// A block, in as many pieces as it takes to leave out the addresses at which clouds keep their credentials.
fn without_metadata(block: IpNet) -> Vec<IpNet> {
    if !METADATA.iter().any(|address| block.contains(address)) {
        return vec![block];
    }
    // A single address has no halves.
    let halves = block.subnets(block.prefix_len().saturating_add(1)).into_iter().flatten();
    halves.flat_map(without_metadata).collect()
}
